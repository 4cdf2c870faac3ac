# SPDX-License-Identifier: Apache-2.0
"""Data sets of delimited text with one flow per line, described by a ``catalogue.toml``.

A subclass of :class:`CatalogueDataSet` has a name, a summary, and beside its module a ``card.md``
and a ``catalogue.toml``:

- ``[table]``: ``label``, the columns that may hold the class, best first; ``conversation``, the
  columns of the 5-tuple (each address before its port, then the protocol), which a file may
  lack; ``embedded``, the file beside the module that is the default.
- ``[published]``: descriptions of published files by SHA-256.
- ``[reasons]``: sentences that several columns share.
- ``[columns.NAME]``: see :func:`~n3ic.data.catalogue.feature_of`, and how cells become integers,
  see :class:`~n3ic.model.columns.ColumnRule`: ``kind`` (a ``quotient`` is a number whose blanks
  and infinities, from a divisor of 0, are the largest integer; a ``text`` is not a feature),
  ``blank``, ``negative``, ``values``, ``buckets``, ``indicators``. :func:`canonical`
  spells names; other columns are ignored.
- ``[derived.NAME]``: features computed from the columns that ``needs`` lists.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.data.catalogue import Column, Derived, feature_of, feature_table, with_derived
from n3ic.data.dataset import DataSet, table_facts
from n3ic.data.delimited import (
    Sheet,
    TextColumn,
    check_header,
    first_lines,
    parse_sheet,
    remarks_of,
)
from n3ic.data.file_tables import DataSource, find_sources, open_sheets
from n3ic.data.files import TABLE_SUFFIXES, combined_sha256, printable
from n3ic.data.number_marks import Mark
from n3ic.data.table import Feature, FlowTable, SourceFile
from n3ic.errors import DataError, UsageError
from n3ic.model.columns import NEGATIVE_PART, ColumnRule
from n3ic.model.inputs import to_integer

MOST_CLASSES = 256
TEXT = "text"  # the kind of a column that is not a feature
_VAST = 1e30  # more than any integer in any unit
_OTHERS = re.compile(r"[^a-z0-9]+")


def canonical(name: str) -> str:
    """A column's name in lower case, ``_`` for everything but letters and digits."""
    return _OTHERS.sub("_", name.lower()).strip("_")


@dataclass(frozen=True, eq=False)
class FileFlows:
    """The flows of one file.

    Attributes:
        columns: int64 array of shape ``(rows,)`` per feature.
        label: class name of each row.
        key: 5-tuple of each row, the lesser end first; None if the file lacks it.
        repairs: number of changed cells, by column and reason.
        repaired: rows with such a cell.
    """

    columns: Mapping[str, Column]
    label: NDArray[np.str_]
    key: Sequence[tuple[Any, ...]] | None
    repairs: Mapping[str, int]
    repaired: int


class CatalogueDataSet(DataSet):
    """A data set whose files a ``catalogue.toml`` describes.

    Attributes:
        formulas: functions of the derived features, by name.
        comma: whether cells must be separated by commas.
        suffixes: suffixes of table files in a folder.
        unpublished: description of a file whose digest is not in the catalogue.
    """

    formulas: ClassVar[Mapping[str, Callable[..., Column]]] = {}
    comma: ClassVar[bool] = True
    suffixes: ClassVar[tuple[str, ...]] = TABLE_SUFFIXES
    unpublished: ClassVar[str] = "the same columns, not a published file"

    @cached_property
    def _toml(self) -> Mapping[str, Any]:
        return tomllib.loads((self.folder / "catalogue.toml").read_text("utf-8"))

    @cached_property
    def _columns(self) -> Mapping[str, Feature]:
        entries, sentences = self._toml["columns"], self._toml.get("reasons", {})
        return {
            name: feature_of(name, entry, sentences)
            for name, entry in entries.items()
            if entry.get("kind") != TEXT
        }

    @cached_property
    def _rules(self) -> Mapping[str, ColumnRule]:
        entries = self._toml["columns"]
        return {name: rule_of(e) for name, e in entries.items() if e.get("kind") != TEXT}

    @cached_property
    def _derived(self) -> tuple[Derived, ...]:
        sentences = self._toml.get("reasons", {})
        return tuple(
            Derived(feature_of(name, entry, sentences), tuple(entry["needs"]), self.formulas[name])
            for name, entry in self._toml.get("derived", {}).items()
        )

    @property
    def _key(self) -> tuple[str, ...]:
        return tuple(self._toml["table"].get("conversation", ()))

    @property
    def catalogue(self) -> tuple[Feature, ...]:
        """Every feature that a table may have."""
        below = (
            replace(
                feature,
                name=name + NEGATIVE_PART,
                meaning=f"{feature.meaning}, below 0",
                doubt="",  # the column itself carries the doubt
            )
            for name, feature in self._columns.items()
            if self._rules[name].negative == "split"
        )
        single = (
            indicator
            for name, feature in self._columns.items()
            for indicator in _indicators(feature, self._rules[name])
        )
        derived = (entry.feature for entry in self._derived)
        return (*self._columns.values(), *below, *single, *derived)

    @property
    def card(self) -> str:
        """The data card, as Markdown, with the tables of columns in it."""
        derived = [entry.feature for entry in self._derived]
        text = super().card.replace("{{columns}}", feature_table([*self._columns.values()]))
        return text.replace("{{derived}}", feature_table(derived))

    @property
    def embedded(self) -> Path | None:
        """The default file; None if the licence does not allow one."""
        name = self._toml["table"].get("embedded")
        return self.folder / name if name else None

    def load(self, path: DataSource | None = None) -> FlowTable:
        """Read a file, a folder, several of them, or the embedded file; see the base class."""
        return self._read(path)[0]

    def load_sheet(self, sheet: Sheet) -> FlowTable:
        """Read a table in memory like its file."""
        return self.load(sheet)

    def recognises(self, path: Path) -> bool:
        """Whether the header of a file, or of one in a folder, has the columns and few more."""
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        sheets = (first_lines(p) for p in inside if p.is_file())
        return any(self._heads(sheet) for sheet in sheets if sheet is not None)

    def _heads(self, sheet: Sheet) -> bool:
        # Files of other data sets may have the required columns among many others.
        names = {*self.names_of(sheet)}
        return self._required <= names and len(names & {*self._columns}) > len(names) / 2

    def read_features(
        self, sheet: Sheet, feature_names: Collection[str], changed: Counter[str] | None = None
    ) -> Mapping[str, Column]:
        """Integer features of flows that may lack labels and columns, derived ones included.

        Args:
            sheet: the table, or a part of it.
            feature_names: names of the features.
            changed: counts the changed cells, by column and reason.

        Raises:
            DataError: a column is missing or a cell is invalid.
        """
        behind = {entry.feature.name: entry.needs for entry in self._derived} | {
            part: (name,) for name, rule in self._rules.items() for part in rule.features(name)
        }
        needed = {name for feature in feature_names for name in behind.get(feature, (feature,))}
        names = self.names_of(sheet)
        absent = sorted(needed - {*names})
        if sheet.records and len(absent) < len(needed) / 2:  # none of these flows has the key
            sheet = sheet.with_blank(absent)
            names = self.names_of(sheet)
        check_header(sheet, names, sorted(needed), comma=self.comma)
        columns, _, repairs, _ = self._parse(sheet, names, needed, ())
        if changed is not None:
            changed.update(repairs)
        features = with_derived(columns, self._derived)
        return {name: features[name] for name in feature_names}

    def names_of(self, sheet: Sheet) -> list[str]:
        """Names of a sheet's columns."""
        return [canonical(c) for c in sheet.first]

    def check(self, path: DataSource) -> Mapping[str, Any]:
        """Facts about files and their changed cells; see the base class."""
        table, parts = self._read(path)
        return {
            **table_facts(table),
            "conversations": None
            if table.conversation is None
            else len(np.unique(table.conversation)),
            "rows_changed": sum(part.repaired for part in parts),
            "problems": [*table.notes, *changed_cells_lines(parts, len(table))],
        }

    @property
    def _decimal(self) -> Mark | None:
        """The decimal mark where a file fits two; None to refuse such a file."""
        return None

    @cached_property
    def _required(self) -> frozenset[str]:
        return frozenset(self._columns) - {*self._key}

    def _read(self, path: DataSource | None) -> tuple[FlowTable, list[FileFlows]]:
        source = self.embedded if path is None else path
        if source is None:
            raise UsageError(
                f"{self.name} has no embedded sample (its licence does not allow it): name the "
                "files or a folder"
            )
        published: Mapping[str, str] = self._toml.get("published", {})
        sources, parts, notes = [], [], []
        for file in find_sources(source, self.suffixes):
            for table in open_sheets(file, self._decimal):
                known = published.get(table.sha256)
                if path is None and known is None:
                    raise DataError(
                        f"{file}: the embedded file is not the published one; reinstall n3ic"
                    )
                part = self._part(table.sheet)
                parts.append(part)
                notes += remarks_of([table.sheet])
                name = file.name if path is None else table.sheet.name
                sources.append(
                    SourceFile(name, table.sha256, len(part.label), known or self.unpublished)
                )
        return replace(self._table(parts, sources), notes=tuple(notes)), parts

    def _table(self, parts: Sequence[FileFlows], sources: Sequence[SourceFile]) -> FlowTable:
        shared = [n for n in parts[0].columns if all(n in part.columns for part in parts)]
        columns = with_derived(
            {n: np.concatenate([part.columns[n] for part in parts]) for n in shared}, self._derived
        )
        names, label = np.unique(np.concatenate([p.label for p in parts]), return_inverse=True)
        keys = [part.key for part in parts if part.key is not None]
        return FlowTable(
            name=self.name,
            features=columns,
            catalogue=tuple(f for f in self.catalogue if f.name in columns),
            label=label.astype(np.int64),
            classes=tuple(names.tolist()),
            synthetic=self.synthetic,
            sha256=combined_sha256([source.sha256 for source in sources]),
            conversation=_numbered(k for key in keys for k in key)
            if len(keys) == len(parts)
            else None,
            sources=tuple(sources),
        )

    def _part(self, sheet: Sheet) -> FileFlows:
        """The labelled flows of a file."""
        names = self.names_of(sheet)
        labels = self._toml["table"]["label"]
        label = next((name for name in labels if name in names), labels[0])
        check_header(sheet, names, [*sorted(self._required), label], comma=self.comma)
        column_names = [name for name in self._columns if name in names]
        key = self._key if {*self._key} <= {*names} else ()
        columns, texts, repairs, rows = self._parse(
            sheet, names, column_names, (label, *(n for n in key if n not in column_names))
        )
        classes = self._classes(sheet, label, texts[label])
        tuples = None
        if key:
            source, sport, destination, dport, protocol = (
                np.array(texts[n].texts)[texts[n].codes] if n in texts else columns[n].astype(str)
                for n in key
            )
            ends = zip(source, sport, destination, dport, protocol, strict=True)
            tuples = [(*sorted([(a, b), (c, d)]), p) for a, b, c, d, p in ends]  # any direction
        return FileFlows(columns, classes, tuples, repairs, rows)

    def _classes(self, sheet: Sheet, label: str, column: TextColumn) -> NDArray[np.str_]:
        """Class of each row.

        Raises:
            DataError: a row has no class, or there are too many classes.
        """
        if "" in column.texts:
            row = int(np.argmax(column.codes == column.texts.index("")))
            raise sheet.cell_error(True, row, label, "no class; fill the cell or remove the line")
        if len(column.texts) > MOST_CLASSES:
            raise DataError(
                f"{sheet.name}, column {label!r}: {len(column.texts):,} classes, at most "
                f"{MOST_CLASSES} expected; is this the label?"
            )
        return np.array(column.texts)[column.codes]

    def _parse(
        self, sheet: Sheet, names: Sequence[str], column_names: Collection[str], more: Sequence[str]
    ) -> tuple[dict[str, Column], Mapping[str, TextColumn], Mapping[str, int], int]:
        """Wanted columns in integer units, text columns, changed cells, rows with such cells."""
        rules = {n: self._rules[n] for n in column_names}
        numeric = [n for n, rule in rules.items() if rule.kind == "number"]
        known = {*column_names, *more}
        cells = parse_sheet(
            sheet,
            [n if n in known else "" for n in names],
            header=True,
            numeric=numeric,
            text=[*(n for n in rules if n not in numeric), *more],
            gaps=[n for n in numeric if rules[n].blank != "refuse"],
        )
        columns: dict[str, Column] = {}
        repairs: dict[str, int] = {}
        repaired = np.zeros(cells.rows, dtype=np.bool_)

        def repair(bad: NDArray[np.bool_], reason: str) -> None:
            nonlocal repaired
            if bad.any():
                repairs[reason] = int(bad.sum())
                repaired |= bad

        for name, rule in rules.items():
            if rule.kind == "address":
                columns[name] = _by_text(sheet, name, cells.texts[name], _address, "an address")
            elif rule.kind == "category":
                codes = np.array(rule.codes(cells.texts[name].texts), dtype=np.int64)
                columns[name] = codes[cells.texts[name].codes]
                for i, feature in enumerate(rule.single(name)):
                    columns[feature] = (columns[name] == i).astype(np.int64)
                if not rule.buckets:
                    repair(columns[name] == len(rule.values), f"{name} of no known value")
            else:
                columns |= _number(name, rule, cells.numbers[name].astype(np.float64), repair)
        return columns, cells.texts, repairs, int(repaired.sum())


def changed_cells_lines(parts: Sequence[FileFlows], rows: int) -> tuple[str, ...]:
    """Lines about the changed cells, by column and reason."""
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.repairs)
    return tuple(f"{reason}: {n:,} of {rows:,} rows" for reason, n in counts.items())


def rule_of(entry: Mapping[str, Any]) -> ColumnRule:
    """How the cells of a column become integers, by its entry in a catalogue.

    Raises:
        ModelError: the entry is not a valid rule.
    """
    known = {k: v for k, v in entry.items() if k in ColumnRule.__dataclass_fields__}
    kind = known.get("kind", "number")
    if kind == "quotient":
        known = {"blank": "largest", **known, "kind": "number"}
    return ColumnRule.from_dict(known)


def _number(
    name: str,
    rule: ColumnRule,
    values: NDArray[np.float64],
    repair: Callable[[NDArray[np.bool_], str], None],
) -> dict[str, Column]:
    """The features of a column of numbers; ``repair`` is called with changed cells."""
    largest = (1 << rule.bits) - 1

    def integers(of: NDArray[np.float64]) -> Column:
        return np.minimum(to_integer(np.maximum(of, 0), rule.scale), largest)

    blank, endless, below = np.isnan(values), np.isposinf(values), values < 0
    if rule.blank == "zero":
        repair(blank, f"{name} blank, set to 0")
        repair(endless, f"{name} infinite, set to the largest value")
    else:
        repair(blank | endless, f"{name} blank or infinite, set to the largest value")
    if rule.negative == "split":
        repair(np.isneginf(values), f"{name} infinite, set to the largest value")
    else:
        repair(below, f"{name} negative, set to 0")
    known = np.clip(np.where(blank, 0.0, values), -_VAST, _VAST)  # scaled, it stays finite
    above = np.isfinite(values) & (np.rint(np.abs(known) * rule.scale) > largest)
    repair(above, f"{name} above the largest value, set to it")
    out = {name: np.where(blank & (rule.blank == "largest"), largest, integers(known))}
    if rule.negative == "split":
        out[name + NEGATIVE_PART] = integers(-known)
    return out


def _indicators(column: Feature, rule: ColumnRule) -> list[Feature]:
    """The features of single texts of a category."""
    return [
        replace(
            column,
            name=name,
            meaning=f"{column.meaning} is {printable(text)!r}",
            unit="",
            source_unit="",
            scale=1.0,
            bits=1,
            doubt="",  # the column itself carries the doubt
        )
        for name, text in zip(rule.single(column.name), rule.values, strict=False)
    ]


def _numbered(keys: Iterable[tuple[Any, ...]]) -> NDArray[np.int64]:
    known: dict[tuple[Any, ...], int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _by_text(
    sheet: Sheet, name: str, column: TextColumn, of: Callable[[str], Any], expected: str
) -> NDArray[Any]:
    """Values of a column of text.

    Raises:
        DataError: a cell is invalid: ``of`` returned None.
    """
    values = [of(text) for text in column.texts]
    bad = np.array([value is None for value in values], dtype=np.bool_)[column.codes]
    if bad.any():
        row = int(np.argmax(bad))
        cell = printable(column.texts[column.codes[row]])
        raise sheet.cell_error(True, row, name, f"expected {expected}, got {cell!r}")
    return np.array(values)[column.codes]


def _address(text: str) -> int | None:
    """An IPv4 address as its integer; 0 for an IPv6 address, which does not fit 32 bits."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return int(address) if address.version == 4 else 0
