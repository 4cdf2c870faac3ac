# SPDX-License-Identifier: Apache-2.0
"""FlowTable: labelled traffic as integer features, with the features' meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from n3ic.data.narrow_columns import NarrowColumns
from n3ic.errors import DataError, did_you_mean
from n3ic.model.columns import TableRules
from n3ic.model.inputs import to_integer
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.display import Displayed, TextTable, View

__all__ = ["Feature", "FlowTable", "SourceFile", "Tap", "to_integer"]

Tap = Literal["", "exact", "approximate", "halved", "not causal", "artefact", "payload"]
"""How a column relates to the value of a meter at one tap: equal; nearly equal; twice as large, as
it was counted on both sides of a router; known only after later flows; an artefact of the tools
that made it; known only from the payload. Empty if not examined."""

_CLASSES = 6  # named in the line about a table
Kind = TypeVar("Kind", bound=np.generic)


@dataclass(frozen=True)
class Feature:
    """One column of a data set's catalogue.

    Attributes:
        name: the column's name.
        meaning: what it measures, in a sentence.
        source_unit: the unit in the files, such as ``s`` or ``bit/s``.
        unit: the integer unit in n3ic, such as ``us`` or ``kbit/s``.
        scale: integer units in one source unit.
        bits: width of the integer, 1 to 32.
        nic: whether a NIC can compute these values from headers, times and counters.
        nic_reason: why, or why not.
        leaks: whether it reveals the capture set-up (addresses, ports, times, TTL).
        leak_reason: how it does; empty if it does not.
        tap: its relation to the value of a meter at one tap.
        tap_reason: the evidence for that, with the share of rows.
        doubt: what its values show against it although it is used; empty for nothing.
    """

    name: str
    meaning: str
    source_unit: str
    unit: str
    scale: float
    bits: int
    nic: bool
    nic_reason: str
    leaks: bool = False
    leak_reason: str = ""
    tap: Tap = ""
    tap_reason: str = ""
    doubt: str = ""

    @property
    def usable(self) -> bool:
        """Whether it is used by default, without being named."""
        return self.nic and not self.leaks


@dataclass(frozen=True)
class SourceFile:
    """A file that a table was read from.

    Attributes:
        path: path as given.
        sha256: SHA-256 of the decompressed bytes.
        rows: number of flows read from it.
        identity: the official file that it equals, or how it differs.
    """

    path: str
    sha256: str
    rows: int
    identity: str


@dataclass(frozen=True, eq=False, repr=False)
class FlowTable(Displayed):
    """Labelled flows as integers.

    Attributes:
        name: the data set's name, which contains ``synthetic`` for generated flows.
        features: int64 array of shape ``(rows,)`` per feature, in the catalogue's integer unit,
            each value in ``0..2^32 - 1``; a dict, or columns that are kept narrow.
        catalogue: what the features mean, one entry per key of ``features``.
        label: class index of each row, int64, shape ``(rows,)``.
        classes: class names; for two classes the second is the positive one.
        synthetic: whether a generator made the flows.
        sha256: digest of the data.
        category: finer label of each row, such as the attack category, or None.
        partition: ``train``, ``test`` or ```` of each row, by the publisher's split, or None.
        time_order: whether rows are in time order, so that a split by time makes sense.
        conversation: int64 array of shape ``(rows,)``: the conversation (5-tuple, either
            direction) of each row as a number from 0, or None if unknown.
        flow: int64 array of shape ``(rows,)``: each row's flow; None if each row is a flow.
        point: int64 array of shape ``(rows,)``: its packet of the schedule, 0 for the end; or None.
        sources: the files that were read.
        notes: assumptions and omissions in reading the files, as sentences.
        meter: the meter of the features that it names, carried by networks that read no others;
            None if unknown.
        rules: how the features were read from the user's columns; None for a named data set.
        omitted: why, by name, for columns of the files that are no features, such as texts.
    """

    name: str
    features: Mapping[str, NDArray[np.int64]]
    catalogue: tuple[Feature, ...]
    label: NDArray[np.int64]
    classes: tuple[str, ...]
    synthetic: bool
    sha256: str
    category: NDArray[np.str_] | None = None
    partition: NDArray[np.str_] | None = None
    time_order: bool = False
    conversation: NDArray[np.int64] | None = None
    flow: NDArray[np.int64] | None = None
    point: NDArray[np.int64] | None = None
    sources: tuple[SourceFile, ...] = field(default=())
    notes: tuple[str, ...] = ()
    meter: MeterSpec | None = None
    rules: TableRules | None = None
    omitted: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {f.name for f in self.catalogue}
        if known != set(self.features):
            raise ValueError(f"catalogue and features differ: {known ^ set(self.features)}")
        rows = len(self.label)
        narrow = isinstance(self.features, NarrowColumns)  # int64 of one shape by their nature
        for name, column in () if narrow else self.features.items():
            if column.shape != (rows,) or column.dtype != np.int64:
                raise ValueError(f"column {name}: expected int64 ({rows},), got {column.shape}")
        if rows and not 0 <= self.label.min() <= self.label.max() < len(self.classes):
            raise ValueError("a label is not the index of a class")

    def view(self) -> View:
        """The title and the tables that are displayed."""
        counts = np.bincount(self.label, minlength=len(self.classes))
        every = max(len(self), 1)
        shares = tuple(
            (name, f"{count:,}", f"{count / every:.1%}")
            for name, count in zip(self.classes, counts.tolist(), strict=True)
        )
        columns = []
        for f in self.catalogue:
            values = self.features[f.name]
            span = (f"{values.min():,}", f"{values.max():,}") if len(values) else ("", "")
            use = "leaks" if f.leaks else "yes" if f.nic else "no"
            columns.append((f.name, f.meaning, use, f.unit, str(f.bits), *span))
        of_card = ("feature", "meaning", "on a NIC", "unit", "bits", "least", "largest")
        kind = " (synthetic)" if self.synthetic else ""
        many = len(self.classes)
        class_text = ", ".join(f"{name} {count}" for name, count, _ in shares[:_CLASSES])
        more = f" and {many - _CLASSES} more" if many > _CLASSES else ""
        return View(
            f"{self.name}{kind}: {len(self):,} flows, {len(self.catalogue)} features, "
            f"{class_text}{more}",
            (
                TextTable("classes", ("class", "flows", "share"), shares),
                TextTable("features", of_card, tuple(columns), left=4),
                *_sources(self.sources),
            ),
            self.notes,
        )

    def __len__(self) -> int:
        return len(self.label)

    def feature(self, name: str) -> Feature:
        """The catalogue's entry of a feature."""
        return next(f for f in self.catalogue if f.name == name)

    @property
    def usable(self) -> tuple[str, ...]:
        """Features that a NIC can compute and that do not leak the capture set-up."""
        return tuple(f.name for f in self.catalogue if f.usable)

    def against_rest(self, name: str) -> FlowTable:
        """The table with two classes: all others (0), and the named one (1).

        Args:
            name: name of a class, or the common beginning of several before a dash: ``bittorrent``
                means ``bittorrent-encrypted`` and ``bittorrent-plain`` together.

        Raises:
            DataError: the table lacks the class, or has no other class.
        """
        ones = self.members(name)
        if not 0 < len(ones) < len(self.classes):
            raise DataError(
                f"{self.name}: no class {name!r} to tell from others; "
                f"{did_you_mean(name, self.classes)}the classes are {', '.join(self.classes)}"
            )
        label = np.isin(self.label, ones).astype(np.int64)
        return replace(self, label=label, classes=(f"not {name}", name))

    def members(self, name: str) -> list[int]:
        """Index of the class of a name, or of the classes that begin with it and a dash."""
        family = [i for i, c in enumerate(self.classes) if c.startswith(f"{name}-")]
        return [self.classes.index(name)] if name in self.classes else family

    def rows(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> FlowTable:
        """The table of some rows, by index or by mask."""

        def pick(column: NDArray[Kind] | None) -> NDArray[Kind] | None:
            return None if column is None else column[index]

        of = self.features
        return replace(
            self,
            features=of.rows(index)
            if isinstance(of, NarrowColumns)
            else {name: column[index] for name, column in of.items()},
            label=self.label[index],
            category=pick(self.category),
            partition=pick(self.partition),
            conversation=pick(self.conversation),
            flow=pick(self.flow),
            point=pick(self.point),
        )

    def only(self, names: Iterable[str]) -> FlowTable:
        """The table with some of its features, in its own order."""
        selected, of = {*names}, self.features
        return replace(
            self,
            features=of.only(selected)
            if isinstance(of, NarrowColumns)
            else {name: column for name, column in of.items() if name in selected},
            catalogue=tuple(f for f in self.catalogue if f.name in selected),
        )

    def matrix(self, names: tuple[str, ...] | list[str]) -> NDArray[np.int64]:
        """Columns side by side: int64 array of shape ``(rows, len(names))``."""
        if not names:
            return np.empty((len(self), 0), dtype=np.int64)
        return np.stack([self.features[name] for name in names], axis=1)


def _sources(files: tuple[SourceFile, ...]) -> tuple[TextTable, ...]:
    rows = tuple((s.path, s.identity, f"{s.rows:,}") for s in files)
    return (TextTable("files", ("file", "what it is", "flows"), rows, left=2),) if rows else ()
