# SPDX-License-Identifier: Apache-2.0
"""What models of every family share: input, integer scores, classes, margin, file.

Prediction, evaluation, export and verification use only this interface. The highest score wins,
the lowest index on a tie. Where the margin between the two best scores is below the model's
threshold, the flow is *shunted*: the host decides it.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic import plugins
from n3ic.errors import ModelError, UsageError
from n3ic.model.bits import Bits, Words
from n3ic.model.columns import TableRules
from n3ic.model.file import (
    SHUNT_VERSION,
    VERSION,
    Tensors,
    pack_file,
    read_file,
    short,
    unpack_file,
)
from n3ic.model.inputs import InputSpec
from n3ic.model.meter_spec import MeterSpec
from n3ic.model.text import check_text
from n3ic.util.display import Displayed, TextTable, View, facts, listed
from n3ic.util.files import write_atomic
from n3ic.util.plain_data import from_plain, shown

SHUNT = -1
"""The verdict of a flow that is left to the host; every other verdict is a class index."""
SHUNT_NAME = "shunt"
"""Its name among the names of the classes."""
MAX_FACTS = 64
MAX_FACT = 4096
"""Largest number of facts in a provenance, and of characters in one of them."""
_CONTAINER = ("format", "version", "family", "checksum")


@dataclass(frozen=True, eq=False)
class Inference:
    """What a model computed on some vectors.

    Attributes:
        scores: int32 array of shape ``(rows, classes)``.
        classes: index of the winning class, shape ``(rows,)``.
        margins: best score minus second best, int32, shape ``(rows,)``.
        hidden: bool array of shape ``(rows, outputs)`` per hidden layer of a binary network; empty
            if an executor does not report them.
        verdicts: class index, or ``SHUNT`` where the margin is below the model's threshold, int64,
            shape ``(rows,)``; None if an executor knows no threshold.
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
    top = np.partition(scores, -2, axis=1)  # the two best last; no need to sort the others
    return (top[:, -1] - top[:, -2]).astype(np.int32)


def family_text(family: str) -> str:
    """The name of a family in words, such as ``binary network``."""
    return " ".join(family.rsplit("-", 1))


@dataclass(frozen=True)
class _HeaderFields:
    """Header entries that every family has; each family reads its own."""

    name: str
    classes: tuple[str, ...]
    input: Any
    provenance: Mapping[str, str]
    meter: Any = None
    shunt: int = 0
    table: Any = None


class Classifier(Displayed):
    """A frozen model from packed input bits to integer scores; a family is a subclass.

    Attributes:
        family: its name in model files, such as ``binary-network``.
        header_keys: entries that the family adds to the header of its file.
        input: how integer features become input bits.
        classes: name of each class, two or more.
        name: what the model is for, such as ``anomaly``.
        provenance: its origin (recipe, data, seed) as texts by name.
        meter: how the features are computed from packets; None if the training table had none.
        shunt: the smallest margin with which the card decides a flow by itself; 0 decides every
            flow; one more than :attr:`largest_margin` shunts every flow.
        table: how the features are read from a table in the training table's layout; None if a
            data set reads it.
    """

    family: ClassVar[str]
    header_keys: ClassVar[tuple[str, ...]]
    input: InputSpec
    classes: tuple[str, ...]
    name: str
    provenance: Mapping[str, str]
    meter: MeterSpec | None
    shunt: int
    table: TableRules | None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Sizes of the model's parts, as its family counts them; classes last."""

    @property
    @abstractmethod
    def shape_text(self) -> str:
        """The shape in words."""

    @property
    def entry_widths(self) -> tuple[int, ...]:
        """Bits of an entry of each look-up table that a device may load anew; of none, empty."""
        return ()

    @property
    @abstractmethod
    def largest_margin(self) -> int:
        """An upper bound of the margins."""

    @property
    @abstractmethod
    def weight_bytes(self) -> int:
        """Bytes of the parameters."""

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by part, as a card stores them: parameters, thresholds, biases, indices, cuts."""
        return {"weight_bytes": self.weight_bytes, "input_bytes": self.input_bytes}

    @property
    def total_bytes(self) -> int:
        """Bytes of all parts, which a budget of bytes bounds."""
        return sum(self.memory.values())

    @property
    def learned_all(self) -> bool:
        """Whether every class was learned; otherwise one class means that no other fits."""
        return True

    @abstractmethod
    def scores(self, words: ArrayLike) -> NDArray[np.int32]:
        """Integer scores of packed inputs: int32 array of shape ``(rows, classes)``.

        This is the reference that every target must reproduce; it is plain numpy.
        """

    @abstractmethod
    def _header(self) -> dict[str, Any]:
        """Entries that the family adds to the header of the file."""

    @abstractmethod
    def _tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays of the file."""

    @classmethod
    @abstractmethod
    def _read(cls, header: Mapping[str, Any], tensors: Tensors, shared: Mapping[str, Any]) -> Self:
        """The model of a file; ``shared`` holds the constructor's arguments of all families."""

    # --- display ---------------------------------------------------------------------------

    def view(self) -> View:
        """The title and the tables that are displayed."""
        shunts = f"margins below {self.shunt} are shunted" if self.shunt else ""
        size = f"{self.weight_bytes:,} bytes of weights, {self.total_bytes:,} in total"
        parts = (self.shape_text, size, f"classes {listed(self.classes)}", shunts)
        return View(
            f"{self.name}: {', '.join(filter(None, parts))}",
            (
                facts(
                    "model",
                    [
                        ("family", family_text(self.family)),
                        ("shape", self.shape_text),
                        ("bytes of weights", f"{self.weight_bytes:,}"),
                        ("bytes of cuts", f"{self.input_bytes:,}"),
                        ("bytes in total", f"{self.total_bytes:,}"),
                        ("classes", ", ".join(self.classes)),
                        ("shunting", shunts),
                        ("meter", self.meter),
                        *sorted(self.provenance.items()),
                    ],
                ),
                *self._parts(),
                *self.input.view().tables,
            ),
        )

    def _parts(self) -> tuple[TextTable, ...]:
        """Tables of the parts of the family's models."""
        return ()

    # --- checks that a family makes at construction ----------------------------------------

    def _check_shared(self, n_scores: int) -> None:
        """Normalise and check the attributes of all families.

        Raises:
            ModelError: classes, names, meter, table or threshold are invalid.
        """
        object.__setattr__(self, "classes", tuple(self.classes))
        provenance = {str(k): str(v) for k, v in self.provenance.items()}
        object.__setattr__(self, "provenance", provenance)
        if len(self.classes) != n_scores or len(self.classes) < 2:
            raise ModelError(
                f"{n_scores} scores for {len(self.classes)} classes; "
                "expected one score a class, and at least two"
            )
        if len(set(self.classes)) != len(self.classes):
            raise ModelError("class names must differ")
        check_text("name", self.name, least=0)
        for name in self.classes:
            check_text("a class's name", name)
        if len(provenance) > MAX_FACTS:
            raise ModelError(f"provenance: {len(provenance):,} facts, at most {MAX_FACTS} expected")
        for key, value in provenance.items():
            check_text("a key of the provenance", key)
            check_text(f"provenance: {key}", value, least=0, most=MAX_FACT)
        if self.meter is not None:
            _check_metered(self.input, self.meter)
        if self.table is not None and (lacking := {*self.input.features} - {*self.table.features}):
            raise ModelError(f"the input reads {min(lacking)!r}, which its table does not give")
        self._check_shunt()

    def _check_shunt(self) -> None:
        if isinstance(self.shunt, bool) or not isinstance(self.shunt, int | np.integer):
            raise ModelError(f"the shunting threshold is an integer, not {self.shunt!r}")
        object.__setattr__(self, "shunt", int(self.shunt))
        highest = self.largest_margin + 1  # a threshold that no margin reaches shunts every flow
        if not 0 <= self.shunt <= highest:
            raise ModelError(
                f"a shunting threshold of {self.shunt}: 0 to {highest} expected, "
                f"the largest margin of this network is {self.largest_margin}"
            )
        if self.shunt and SHUNT_NAME in self.classes:  # verdicts by name would be ambiguous
            raise ModelError(f"a network that shunts flows has no class named {SHUNT_NAME!r}")

    # --- inference -------------------------------------------------------------------------

    def predict(self, flows: Any, **how: Any) -> Any:
        """Classify flows, such as those of a pandas table; see :func:`n3ic.predict`.

        Returns:
            For a table in memory, a table of the same kind with classes, margins and scores; for
            anything else, an :class:`Inference`.
        """
        # The family knows the readers, which lie above models.
        return plugins.load(plugins.FAMILIES, self.family).predict(self, flows, **how)

    def infer(self, words: ArrayLike) -> Inference:
        """Scores, classes, margins and verdicts of packed inputs.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Raises:
            ModelError: the inputs are not packed inputs of this model.
        """
        return self.inference(self.scores(words))

    def inference(self, scores: NDArray[np.int32], hidden: tuple[Bits, ...] = ()) -> Inference:
        """Classes, margins and verdicts of scores.

        Args:
            scores: int32 array of shape ``(rows, classes)``.
            hidden: outputs of the hidden layers, if known.
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
        """Class names, followed by ``shunt`` if the model shunts flows.

        ``SHUNT`` is -1, so every verdict is an index into these names.
        """
        return (*self.classes, SHUNT_NAME) if self.shunt else self.classes

    def changed(self, **fields: Any) -> Self:
        """The same model with other values of some attributes.

        Raises:
            ModelError: a value is invalid.
        """
        model: Self = replace(cast(Any, self), **fields)
        return model

    def with_input(
        self, spec: InputSpec, *, meter: MeterSpec | None = None, table: TableRules | None = None
    ) -> Self:
        """The same model with other features behind its bits.

        The former meter and table rules are dropped.

        Args:
            spec: the features and their cuts, of the same number of bits.
            meter: computes the features from packets; None for no meter.
            table: reads the features from a table; None for no rules.

        Raises:
            ModelError: meter or table lacks a feature, or the number of bits differs.
        """
        return self.changed(input=spec, meter=meter, table=table)

    def with_shunt(self, shunt: int) -> Self:
        """The same model with another shunting threshold.

        Raises:
            ModelError: the threshold is negative or above the largest margin + 1.
        """
        return self.changed(shunt=shunt)

    def favouring(self, positive: int, step: int, rates: str) -> Self:
        """The model with a step added to the score of a class, by its bias.

        Args:
            positive: index of the class.
            step: the integer that is added.
            rates: the false alarms in words, for the provenance.

        Raises:
            UsageError: scores of this family have no bias.
        """
        able = (plugins.load(plugins.FAMILIES, n).model for n in plugins.names(plugins.FAMILIES))
        biased = [m.family for m in able if m.favouring is not Classifier.favouring]
        raise UsageError(
            f"a false-alarm rate is kept by a bias, and models of family {self.family} have none: "
            f"expected one of family {', '.join(biased)}"
        )

    def encode(self, features: Mapping[str, ArrayLike]) -> Words:
        """Packed inputs of integer features; see :meth:`InputSpec.encode`."""
        return self.input.encode_words(features)

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
        return isinstance(other, type(self)) and self._serialise() == other._serialise()

    def __hash__(self) -> int:
        return hash((self.name, self.shape, self.classes))  # cheaper than the digest

    @cached_property
    def _file(self) -> bytes:
        return self._serialise()

    def to_bytes(self) -> bytes:
        """The model file's bytes; the same model gives the same bytes.

        A model that was read from a file gives that file's bytes.
        """
        return self._file

    def save(self, path: str | Path) -> None:
        """Write the model file atomically.

        Raises:
            N3icError: the file cannot be written.
        """
        write_atomic(path, self.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "model file") -> Self:
        """Read the bytes of a model file.

        Args:
            data: the bytes.
            source: what to call them in errors.

        Raises:
            ModelError: the bytes are damaged, foreign, of a newer version, or of another family.

        Warns:
            N3icWarning: the file is of version 1, which has no checksum.
        """
        header, tensors = unpack_file(data, source)
        return cls.from_parts(header, tensors, data, source)

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], tensors: Tensors, data: bytes, source: str
    ) -> Self:
        """The model of an unpacked file; see :meth:`from_bytes`."""
        try:
            if header["family"] != cls.family:
                raise ModelError(f"a model of family {header['family']!r}, expected {cls.family!r}")
            own = {key: header[key] for key in header if key not in {*_CONTAINER, *cls.header_keys}}
            fields = _header_fields(own)
            shared = {
                "classes": fields.classes,
                "name": fields.name,
                "provenance": fields.provenance,
                "shunt": fields.shunt,
                "input": InputSpec.from_dict(fields.input),
                "meter": MeterSpec.from_dict(header["meter"]) if "meter" in header else None,
                "table": TableRules.from_dict(header["table"]) if "table" in header else None,
            }
            _check_version(header["version"], fields.shunt)
            model = cls._read(header, tensors, shared)
            tensors.close()
        except ModelError as error:
            raise ModelError(f"{source}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ModelError(f"{source}: damaged model ({short(error)})") from error
        model.__dict__["_file"] = data  # fills the cached property, so the digest is the file's
        return model

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model file.

        Raises:
            ModelError: the file is missing, damaged, foreign, or of a newer version.
        """
        return cls.from_bytes(read_file(path), str(path))

    def _serialise(self) -> bytes:
        header: dict[str, Any] = {
            "name": self.name,
            "classes": list(self.classes),
            "input": self.input.to_dict(),
            "provenance": dict(self.provenance),
            **self._header(),
        }
        if self.meter is not None:
            header["meter"] = self.meter.to_dict()
        if self.shunt:
            header["shunt"] = self.shunt
        if self.table is not None:
            header["table"] = self.table.to_dict()
        version = SHUNT_VERSION if self.shunt else VERSION  # older n3ic reads models without one
        return pack_file(self.family, header, self._tensors(), version)


def _check_metered(spec: InputSpec, meter: MeterSpec) -> None:
    """Refuse features that the meter does not compute, or computes in other units."""
    units = meter.units
    for f in spec.fields:
        if f.feature not in units:
            raise ModelError(f"the input reads {f.feature!r}, which its meter does not compute")
        if f.unit != units[f.feature]:
            raise ModelError(
                f"the input reads {f.feature!r} in {f.unit or 'no unit'}, "
                f"but its meter gives it in {units[f.feature] or 'no unit'}"
            )


def _header_fields(header: Mapping[str, Any]) -> _HeaderFields:
    try:
        return from_plain(_HeaderFields, header, strict=True)
    except ValueError as error:
        raise ModelError(str(error)) from error


def _check_version(version: int, shunt: int) -> None:
    """Check that a file has a shunting threshold if its version has one, and only then."""
    if (version == SHUNT_VERSION) != (shunt > 0):
        raise ModelError(
            f"a shunting threshold of {shown(shunt)} in a file of version {version}; "
            f"version {SHUNT_VERSION} has one, and only that"
        )
