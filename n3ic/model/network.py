"""BinaryModel: the frozen, integer-only description of a trained binary network.

Training writes it; everything after reads only it. A hidden neuron fires iff
``popcount(XNOR(w, x) & mask) >= threshold`` (paper, Algorithm 1, with a threshold a neuron);
a class scores ``popcount(XNOR(w, x) & mask) + bias`` and the highest score wins, the lowest
index on a tie. Where the margin between the two best scores is below the model's threshold the
flow is *shunted*: the host decides it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ModelError
from n3ic.model.bits import Bits, Words, unpack
from n3ic.model.columns import TableRules
from n3ic.model.file import (
    SHUNT_VERSION,
    VERSION,
    pack_file,
    read_file,
    short,
    unpack_file,
)
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import Connections, HiddenLayer, OutputLayer
from n3ic.model.metering import MeterSpec
from n3ic.util.files import write_atomic

FAMILY = "binary-network"
SHUNT = -1
"""The verdict of a flow that is left to the host; every other verdict is a class index."""
SHUNT_NAME = "shunt"
"""What stands for it where classes are written by name."""


@dataclass(frozen=True, eq=False)
class Inference:
    """What a network computed on some vectors, layer by layer.

    Attributes:
        scores: int32 array of shape ``(rows, classes)``.
        classes: index of the winning class, shape ``(rows,)``.
        margins: best score minus second best, int32, shape ``(rows,)``.
        hidden: bool array of shape ``(rows, outputs)`` per hidden layer; empty where an
            executor does not tell.
        verdicts: class index, or ``SHUNT`` where the margin is below the model's threshold, int64,
            shape ``(rows,)``; None where an executor knows no threshold.
    """

    scores: NDArray[np.int32]
    classes: NDArray[np.int64]
    margins: NDArray[np.int32]
    hidden: tuple[Bits, ...] = ()
    verdicts: NDArray[np.int64] | None = None


def classes_of(scores: NDArray[np.int32]) -> NDArray[np.int64]:
    """Index of the highest score of each row, the lowest index on a tie."""
    return np.asarray(np.argmax(scores, axis=1), dtype=np.int64)


def margins_of(scores: NDArray[np.int32]) -> NDArray[np.int32]:
    """Best minus second best score of each row."""
    top = np.partition(scores, -2, axis=1)
    return (top[:, -1] - top[:, -2]).astype(np.int32)


def shape_text(shape: Sequence[int]) -> str:
    """A shape as people write it: ``256-32-16-2``."""
    return "-".join(str(n) for n in shape)


@dataclass(frozen=True, eq=False)
class BinaryModel:
    """A binary network from packed input bits to integer scores.

    Attributes:
        input: how integer features become input bits.
        hidden: the hidden layers, none or more.
        output: the layer of class scores, two classes or more.
        classes: name of each class.
        name: what the model is for, such as ``anomaly``.
        provenance: where it comes from (recipe, data, seed): text to text.
        meter: how the features are computed from packets; None for a network that was trained on
            a table without a meter.
        shunt: the smallest margin with which the card decides a flow by itself; a flow of a
            smaller one is shunted to the host. 0 decides every flow; one more than
            :attr:`largest_margin` shunts every flow.
        table: how the features are read from a table of the layout that it was trained on; None
            where a data set reads it.
    """

    input: InputSpec
    hidden: tuple[HiddenLayer, ...]
    output: OutputLayer
    classes: tuple[str, ...]
    name: str = "model"
    provenance: Mapping[str, str] = field(default_factory=dict)
    meter: MeterSpec | None = None
    shunt: int = 0
    table: TableRules | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        object.__setattr__(self, "classes", tuple(self.classes))
        provenance = {str(k): str(v) for k, v in self.provenance.items()}
        object.__setattr__(self, "provenance", provenance)
        width, source = self.input.n_bits, "the input"
        for i, layer in enumerate(self.layers):
            if layer.n_inputs != width:
                raise ModelError(
                    f"layer {i} takes {layer.n_inputs} bits, but {source} gives {width}"
                )
            width, source = layer.n_outputs, f"layer {i}"
        if len(self.classes) != self.output.n_outputs or len(self.classes) < 2:
            raise ModelError(
                f"{self.output.n_outputs} scores for {len(self.classes)} classes; "
                "they must be as many, and at least two"
            )
        if len(set(self.classes)) != len(self.classes):
            raise ModelError("class names must differ")
        if any(not isinstance(c, str) or not 0 < len(c) <= 256 for c in self.classes):
            raise ModelError("a class name has 1 to 256 characters")
        if self.meter is not None:
            _check_metered(self.input, self.meter)
        if self.table is not None and (lacking := {*self.input.features} - {*self.table.features}):
            raise ModelError(f"the input reads {min(lacking)!r}, which its table does not give")
        self._check_shunt()

    def _check_shunt(self) -> None:
        if isinstance(self.shunt, bool) or not isinstance(self.shunt, int | np.integer):
            raise ModelError(f"the shunting threshold is an integer, not {self.shunt!r}")
        object.__setattr__(self, "shunt", int(self.shunt))
        highest = self.largest_margin + 1
        if not 0 <= self.shunt <= highest:
            raise ModelError(
                f"a shunting threshold of {self.shunt}: 0 to {highest} expected, "
                f"the largest margin of this network is {self.largest_margin}"
            )
        if self.shunt and SHUNT_NAME in self.classes:
            raise ModelError(f"a network that shunts flows has no class named {SHUNT_NAME!r}")

    @property
    def largest_margin(self) -> int:
        """A bound of the margins: the highest score of a class less the best lowest of the others.

        Scores are taken as independent of each other, so inputs may not reach it.
        """
        lowest = self.output.bias.astype(np.int64)
        highest = lowest + self.output.fan_in
        others = np.array([np.delete(lowest, c).max() for c in range(len(lowest))])
        return int((highest - others).max())

    @property
    def layers(self) -> tuple[Connections, ...]:
        """All layers in order, the output layer last."""
        return (*self.hidden, self.output)

    @property
    def shape(self) -> tuple[int, ...]:
        """Input bits, then the neurons of each layer: ``(256, 32, 16, 2)``."""
        return (self.input.n_bits, *(layer.n_outputs for layer in self.layers))

    @property
    def shape_text(self) -> str:
        """The shape as people write it: ``256-32-16-2``."""
        return shape_text(self.shape)

    @property
    def has_masks(self) -> bool:
        """Whether any layer lacks some of its connections."""
        return any(layer.mask is not None for layer in self.layers)

    # --- inference -------------------------------------------------------------------------

    def infer(self, words: ArrayLike) -> Inference:
        """Run the network and keep every layer's output.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Raises:
            ModelError: the inputs are not packed inputs of this model.
        """
        x = np.asarray(words)
        hidden = []
        for layer in self.hidden:
            x = layer.fire(x)
            hidden.append(unpack(x, layer.n_outputs))
        scores = self.output.scores(x)
        return self.inference(scores, tuple(hidden))

    def inference(self, scores: NDArray[np.int32], hidden: tuple[Bits, ...] = ()) -> Inference:
        """Classes, margins and verdicts of scores.

        Args:
            scores: int32 array of shape ``(rows, classes)``.
            hidden: what the hidden layers gave, where it is known.
        """
        classes, margins = classes_of(scores), margins_of(scores)
        return Inference(scores, classes, margins, hidden, self._verdicts(classes, margins))

    def verdicts(self, scores: NDArray[np.int32]) -> NDArray[np.int64]:
        """Class index of each row, or ``SHUNT`` where its margin is below the threshold.

        Args:
            scores: int32 array of shape ``(rows, classes)``.

        Returns:
            int64 array of shape ``(rows,)``.
        """
        return self._verdicts(classes_of(scores), margins_of(scores))

    def _verdicts(
        self, classes: NDArray[np.int64], margins: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        return np.where(margins >= self.shunt, classes, SHUNT).astype(np.int64)

    @property
    def verdict_names(self) -> tuple[str, ...]:
        """Class names, and ``shunt`` after them where the threshold shunts flows.

        ``SHUNT`` is -1: a verdict is an index into these names.
        """
        return (*self.classes, SHUNT_NAME) if self.shunt else self.classes

    def with_shunt(self, shunt: int) -> BinaryModel:
        """The same network with another shunting threshold.

        Raises:
            ModelError: it is negative, or beyond the largest margin + 1.
        """
        return replace(self, shunt=shunt)

    def with_layers(
        self, spec: InputSpec, hidden: Sequence[HiddenLayer], output: OutputLayer
    ) -> BinaryModel:
        """The same model of other layers that decide the same flows.

        A threshold that no margin of the new output reaches becomes the lowest of these.
        """
        plain = replace(self, input=spec, hidden=tuple(hidden), output=output, shunt=0)
        return plain.with_shunt(min(self.shunt, plain.largest_margin + 1)) if self.shunt else plain

    def scores(self, words: ArrayLike) -> NDArray[np.int32]:
        """Integer scores of packed inputs: int32 array of shape ``(rows, classes)``.

        This is the reference that every target must reproduce; it is plain numpy.
        """
        x = np.asarray(words)
        for layer in self.hidden:
            x = layer.fire(x)
        return self.output.scores(x)

    def encode(self, features: Mapping[str, ArrayLike]) -> Words:
        """Packed inputs of integer features; see :meth:`InputSpec.encode`."""
        return self.input.encode_words(features)

    # --- memory ----------------------------------------------------------------------------

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight bits, as the paper counts them (Table 1): inputs x neurons / 8."""
        return -(-sum(layer.weights.size for layer in self.layers) // 8)

    @property
    def float_weight_bytes(self) -> int:
        """Bytes of the same weights as float32."""
        return 4 * sum(layer.weights.size for layer in self.layers)

    @property
    def threshold_bytes(self) -> int:
        """Bytes of thresholds and output biases at the smallest of 1, 2 or 4 bytes a layer.

        Zero where they say nothing: thresholds of half the inputs everywhere (the paper's
        network) and no bias.
        """
        total = 0
        for layer in self.hidden:
            if not np.array_equal(layer.thresholds, (layer.fan_in + 1) // 2):
                total += layer.n_outputs * _bytes_for(int(layer.thresholds.max()))
        if self.output.bias.any():
            total += self.output.n_outputs * _bytes_for(2 * int(np.abs(self.output.bias).max()))
        return total

    @property
    def mask_bytes(self) -> int:
        """Bytes of the connection masks, one bit a connection of the layers that have one."""
        return -(-sum(layer.weights.size for layer in self.layers if layer.mask is not None) // 8)

    @property
    def input_bytes(self) -> int:
        """Bytes of the input stage's cuts."""
        return self.input.memory_bytes

    # --- identity and files ----------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the model file's bytes, as ``sha256sum`` gives it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BinaryModel) and _serialise(self) == _serialise(other)

    def __hash__(self) -> int:
        return hash((self.name, self.shape, self.classes))

    @cached_property
    def _file(self) -> bytes:
        return _serialise(self)

    def to_bytes(self) -> bytes:
        """The model file's bytes; the same model gives the same bytes.

        A model that was read from a file gives that file's bytes.
        """
        return self._file

    def save(self, path: str | Path) -> None:
        """Write the model file, whole or not at all.

        Raises:
            N3icError: the file cannot be written.
        """
        write_atomic(path, self.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "model file") -> BinaryModel:
        """Read the bytes of a model file.

        Args:
            data: the bytes.
            source: what to call them in errors.

        Raises:
            ModelError: the bytes are damaged, foreign, or of a newer version.

        Warns:
            N3icWarning: a file of version 1, which has no checksum.
        """
        header, tensors = unpack_file(data, source)
        try:
            if header["family"] != FAMILY:
                raise ModelError(f"a model of family {header['family']!r}, expected {FAMILY!r}")
            shape = _typed_shape(header["shape"])
            layers = list(enumerate(pairwise(shape)))
            hidden = tuple(
                HiddenLayer.from_tensors(tensors, f"layer.{i}.", (outputs, inputs))
                for i, (inputs, outputs) in layers[:-1]
            )
            last, (inputs, outputs) = layers[-1]
            output = OutputLayer.from_tensors(tensors, f"layer.{last}.", (outputs, inputs))
            tensors.close()
            shunt = _shunt_of(header)
            classes, provenance, name = header["classes"], header["provenance"], header["name"]
            if not isinstance(classes, list) or not isinstance(provenance, dict):
                raise ModelError("bad classes or provenance")
            if not isinstance(name, str) or any(
                not isinstance(v, str) for v in provenance.values()
            ):
                raise ModelError("names and provenance must be text")
            spec = InputSpec.from_dict(header["input"])
            meter = MeterSpec.from_dict(header["meter"]) if "meter" in header else None
            table = TableRules.from_dict(header["table"]) if "table" in header else None
            model = cls(spec, hidden, output, tuple(classes), name, provenance, meter, shunt, table)
        except ModelError as error:
            raise ModelError(f"{source}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ModelError(f"{source}: damaged model ({short(error)})") from error
        model.__dict__["_file"] = data  # fills the cached property: its digest is that file's
        return model

    @classmethod
    def load(cls, path: str | Path) -> BinaryModel:
        """Read a model file.

        Raises:
            ModelError: the file is missing, damaged, foreign, or of a newer version.
        """
        return cls.from_bytes(read_file(path), str(path))


def _serialise(model: BinaryModel) -> bytes:
    header: dict[str, Any] = {
        "name": model.name,
        "shape": list(model.shape),
        "classes": list(model.classes),
        "input": model.input.to_dict(),
        "provenance": dict(model.provenance),
    }
    if model.meter is not None:
        header["meter"] = model.meter.to_dict()
    if model.shunt:
        header["shunt"] = model.shunt
    if model.table is not None:
        header["table"] = model.table.to_dict()
    tensors = {
        f"layer.{i}.{name}": array
        for i, layer in enumerate(model.layers)
        for name, array in layer.tensors().items()
    }
    version = SHUNT_VERSION if model.shunt else VERSION
    return pack_file(FAMILY, header, tensors, version)


def _check_metered(spec: InputSpec, meter: MeterSpec) -> None:
    """Refuse an input that the meter does not give, or gives in other units."""
    units = meter.units
    for f in spec.fields:
        if f.feature not in units:
            raise ModelError(f"the input reads {f.feature!r}, which its meter does not compute")
        if f.unit != units[f.feature]:
            raise ModelError(
                f"the input reads {f.feature!r} in {f.unit or 'no unit'}, "
                f"but its meter gives it in {units[f.feature] or 'no unit'}"
            )


def _typed_shape(shape: Any) -> list[int]:
    if (
        not isinstance(shape, list)
        or len(shape) < 2
        or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in shape)
    ):
        raise ModelError(f"bad shape {shape!r}")
    return shape


def _shunt_of(header: Mapping[str, Any]) -> int:
    """The threshold of a file: there in the version that shunts, and in no other."""
    shunt = header.get("shunt", 0)
    if isinstance(shunt, bool) or not isinstance(shunt, int) or shunt < 0:
        raise ModelError(f"bad shunting threshold {shunt!r}")
    if (header["version"] == SHUNT_VERSION) != (shunt > 0):
        raise ModelError(
            f"a shunting threshold of {shunt} in a file of version {header['version']}; "
            f"version {SHUNT_VERSION} has one, and only that"
        )
    return shunt


def _bytes_for(largest: int) -> int:
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4
