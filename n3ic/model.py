"""BinaryModel: the frozen, integer-only description of a trained binary network.

Training writes it; everything after reads only it. A hidden neuron fires iff
``popcount(XNOR(w, x) & mask) >= threshold`` (paper, Algorithm 1, with a threshold a neuron);
a class scores ``popcount(XNOR(w, x) & mask) + bias`` and the highest score wins, the lowest
index on a tie.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.bits import Bits, Words, pack, pad_mask, unpack, word_count
from n3ic.errors import ModelError
from n3ic.inputs import InputSpec

if TYPE_CHECKING:
    from pathlib import Path

MAX_NEURONS = 1 << 16
_CHUNK_CELLS = 1 << 22  # cells of the (rows, neurons, words) block that numpy holds at once


def _frozen(array: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
    out = np.array(array, dtype=dtype, order="C")
    out.setflags(write=False)
    return out


@dataclass(frozen=True, eq=False)
class Connections:
    """The weights of a layer and which of them count.

    Attributes:
        weights: bool array of shape ``(outputs, inputs)``; True is +1, False is -1.
        mask: bool array of the same shape, or None where every connection counts. Weights of
            absent connections are stored as 1, so equal networks have equal bytes.
    """

    weights: Bits
    mask: Bits | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights)
        if weights.ndim != 2 or 0 in weights.shape:
            raise ModelError(f"weights have shape (outputs, inputs), got {weights.shape}")
        if max(weights.shape) > MAX_NEURONS:
            raise ModelError(f"a layer has at most {MAX_NEURONS} inputs and outputs")
        if not np.isin(weights, (0, 1)).all():
            raise ModelError("weights are bits: 0 or 1")
        bits = weights.astype(np.bool_)
        if self.mask is not None:
            mask = np.asarray(self.mask)
            if mask.shape != weights.shape or not np.isin(mask, (0, 1)).all():
                raise ModelError(f"a mask has bits of the weights' shape, got {mask.shape}")
            object.__setattr__(self, "mask", _frozen(mask, np.bool_))
            bits = bits | ~mask.astype(np.bool_)
        object.__setattr__(self, "weights", _frozen(bits, np.bool_))

    @property
    def n_inputs(self) -> int:
        """Number of input bits, K."""
        return int(self.weights.shape[1])

    @property
    def n_outputs(self) -> int:
        """Number of neurons."""
        return int(self.weights.shape[0])

    @property
    def n_words(self) -> int:
        """Number of 32-bit words of one neuron's weights."""
        return word_count(self.n_inputs)

    @cached_property
    def fan_in(self) -> NDArray[np.int32]:
        """Connections of each neuron: int32 array of shape ``(outputs,)``."""
        if self.mask is None:
            return _frozen(np.full(self.n_outputs, self.n_inputs), np.int32)
        return _frozen(self.mask.sum(axis=1), np.int32)

    @cached_property
    def weight_words(self) -> Words:
        """Packed weights, padded with 1: uint32 array of shape ``(outputs, n_words)``."""
        return _frozen(pack(self.weights, pad=1), np.uint32)

    @cached_property
    def mask_words(self) -> Words:
        """Packed mask, padded with 0; all real bits are 1 where there is no mask."""
        if self.mask is None:
            return _frozen(np.tile(pad_mask(self.n_inputs), (self.n_outputs, 1)), np.uint32)
        return _frozen(pack(self.mask), np.uint32)

    def popcounts(self, inputs: Words) -> NDArray[np.int32]:
        """``popcount(XNOR(w, x) & mask)`` of every neuron on every row.

        Args:
            inputs: uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Returns:
            int32 array of shape ``(rows, outputs)``.
        """
        mask = None if self.mask is None else self.mask_words
        out = np.empty((len(inputs), self.n_outputs), dtype=np.int32)
        step = max(1, _CHUNK_CELLS // (self.n_outputs * self.n_words))
        for start in range(0, len(inputs), step):
            block = ~(inputs[start : start + step, None, :] ^ self.weight_words)
            if mask is not None:
                block &= mask
            out[start : start + step] = np.bitwise_count(block).sum(axis=2, dtype=np.int32)
        return out


@dataclass(frozen=True, eq=False)
class HiddenLayer(Connections):
    """A layer whose neurons fire at a threshold.

    Attributes:
        thresholds: int32 array of shape ``(outputs,)``, each in ``0..fan_in + 1``; 0 always
            fires and ``fan_in + 1`` never does.
    """

    thresholds: NDArray[np.int32] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        thresholds = np.asarray(self.thresholds)
        if thresholds.shape != (self.n_outputs,) or thresholds.dtype.kind not in "iu":
            raise ModelError(f"{self.n_outputs} integer thresholds expected")
        wrong = np.flatnonzero((thresholds < 0) | (thresholds > self.fan_in + 1))
        if wrong.size:
            j = int(wrong[0])
            raise ModelError(
                f"neuron {j}: threshold {thresholds[j]} is not in 0..{self.fan_in[j] + 1}"
            )
        object.__setattr__(self, "thresholds", _frozen(thresholds, np.int32))

    def fire(self, inputs: Words) -> Words:
        """Packed output bits of packed input bits, pad bits 0."""
        return pack(self.popcounts(inputs) >= self.thresholds)


@dataclass(frozen=True, eq=False)
class OutputLayer(Connections):
    """The last layer: a score per class.

    Attributes:
        bias: int32 array of shape ``(classes,)``, added to the popcounts.
    """

    bias: NDArray[np.int32] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        bias = np.asarray(self.bias)
        if bias.shape != (self.n_outputs,) or bias.dtype.kind not in "iu":
            raise ModelError(f"{self.n_outputs} integer biases expected")
        if np.abs(bias.astype(np.int64)).max() >= 1 << 24:
            raise ModelError("a bias is below 2^24 in size")
        object.__setattr__(self, "bias", _frozen(bias, np.int32))

    def scores(self, inputs: Words) -> NDArray[np.int32]:
        """Scores of packed input bits: int32 array of shape ``(rows, classes)``."""
        return self.popcounts(inputs) + self.bias


@dataclass(frozen=True, eq=False)
class Trace:
    """What a network computed on some vectors, layer by layer.

    Attributes:
        scores: int32 array of shape ``(rows, classes)``.
        classes: index of the winning class, shape ``(rows,)``.
        margins: best score minus second best, int32, shape ``(rows,)``.
        hidden: bool array of shape ``(rows, outputs)`` per hidden layer; empty where an
            executor does not tell.
    """

    scores: NDArray[np.int32]
    classes: NDArray[np.int64]
    margins: NDArray[np.int32]
    hidden: tuple[Bits, ...] = ()


def classes_of(scores: NDArray[np.int32]) -> NDArray[np.int64]:
    """Index of the highest score of each row, the lowest index on a tie."""
    return np.asarray(np.argmax(scores, axis=1), dtype=np.int64)


def margins_of(scores: NDArray[np.int32]) -> NDArray[np.int32]:
    """Best minus second best score of each row."""
    top = np.partition(scores, -2, axis=1)
    return (top[:, -1] - top[:, -2]).astype(np.int32)


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
    """

    input: InputSpec
    hidden: tuple[HiddenLayer, ...]
    output: OutputLayer
    classes: tuple[str, ...]
    name: str = "model"
    provenance: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        object.__setattr__(self, "classes", tuple(self.classes))
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
        return "-".join(str(n) for n in self.shape)

    @property
    def has_masks(self) -> bool:
        """Whether any layer lacks some of its connections."""
        return any(layer.mask is not None for layer in self.layers)

    # --- inference -------------------------------------------------------------------------

    def _words(self, words: ArrayLike) -> Words:
        array = np.asarray(words)
        if array.ndim != 2 or array.shape[1] != self.input.n_words:
            raise ModelError(
                f"packed inputs have shape (rows, {self.input.n_words}), got {array.shape}"
            )
        if array.dtype != np.uint32:
            raise ModelError(f"packed inputs are uint32, got {array.dtype}")
        if len(array) and (array[:, -1] & ~pad_mask(self.input.n_bits)[-1]).any():
            raise ModelError("pad bits of packed inputs must be 0")
        return np.ascontiguousarray(array)

    def trace(self, words: ArrayLike) -> Trace:
        """Run the network and keep every layer's output.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Raises:
            ModelError: the inputs are not packed inputs of this model.
        """
        x = self._words(words)
        hidden = []
        for layer in self.hidden:
            x = layer.fire(x)
            hidden.append(unpack(x, layer.n_outputs))
        scores = self.output.scores(x)
        return Trace(scores, classes_of(scores), margins_of(scores), tuple(hidden))

    def scores(self, words: ArrayLike) -> NDArray[np.int32]:
        """Integer scores of packed inputs: int32 array of shape ``(rows, classes)``.

        This is the reference that every target must reproduce; it is plain numpy.
        """
        x = self._words(words)
        for layer in self.hidden:
            x = layer.fire(x)
        return self.output.scores(x)

    def predict(self, words: ArrayLike) -> Trace:
        """Classes, margins and scores of packed inputs, by the fastest means at hand.

        A compiled kernel runs where there is a C compiler, numpy otherwise, with equal results.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.
        """
        from n3ic import native

        return native.predict(self, words)

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
        """SHA-256 of the model file's bytes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BinaryModel) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.digest)

    def to_bytes(self) -> bytes:
        """The model file's bytes; the same model gives the same bytes."""
        from n3ic import modelfile

        return modelfile.dump(self)

    def save(self, path: str | Path) -> None:
        """Write the model file, whole or not at all.

        Raises:
            ModelError: the file cannot be written.
        """
        from n3ic import modelfile

        modelfile.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> BinaryModel:
        """Read a model file.

        Raises:
            ModelError: the file is missing, damaged, foreign, or of a newer version.
        """
        from n3ic import modelfile

        return modelfile.load(path)


def _bytes_for(largest: int) -> int:
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4


def random_model(
    shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    density: float | None = None,
    extremes: bool = True,
) -> BinaryModel:
    """A random model, for tests and benchmarks.

    Args:
        shape: input bits, then the neurons of each layer, the classes last.
        rng: the source of randomness.
        density: share of the connections that are kept; None for no masks.
        extremes: let some neurons never or always fire, and biases differ.
    """

    def parts(outputs: int, inputs: int) -> tuple[Bits, Bits | None]:
        weights = rng.random((outputs, inputs)) < 0.5
        return weights, None if density is None else rng.random((outputs, inputs)) < density

    hidden = []
    for inputs, outputs in pairwise(shape[:-1]):
        weights, mask = parts(outputs, inputs)
        fan_in = np.full(outputs, inputs) if mask is None else mask.sum(axis=1)
        spread = np.sqrt(fan_in + 1) / 2
        thresholds = np.rint(fan_in / 2 + rng.normal(0, 1, outputs) * spread)
        if extremes:
            kind = rng.integers(0, 16, outputs)
            thresholds = np.where(kind == 0, 0, np.where(kind == 1, fan_in + 1, thresholds))
        thresholds = np.clip(thresholds, 0, fan_in + 1).astype(np.int32)
        hidden.append(HiddenLayer(weights, mask=mask, thresholds=thresholds))
    weights, mask = parts(shape[-1], shape[-2])
    bias = rng.integers(-3, 4, shape[-1]) if extremes else np.zeros(shape[-1], dtype=np.int64)
    return BinaryModel(
        input=InputSpec.raw(shape[0]),
        hidden=tuple(hidden),
        output=OutputLayer(weights, mask=mask, bias=bias.astype(np.int32)),
        classes=tuple(f"class{i}" for i in range(shape[-1])),
        name="random",
    )
