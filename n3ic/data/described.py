"""Data sets of one kind: delimited text with a flow a line, described by a ``catalogue.toml``.

A subclass of :class:`DescribedDataSet` is a name, a summary, and beside its module a ``card.md``
and a ``catalogue.toml``:

- ``[table]``: ``label``, the columns that may hold the class, best first; ``conversation``, the
  columns of the 5-tuple (two addresses each before its port, and the protocol), which a file may
  lack; ``embedded``, the file beside the module that is the default.
- ``[published]``: what a file with a SHA-256 is.
- ``[reasons]``: sentences that several columns share.
- ``[columns.NAME]``: see :func:`~n3ic.data.catalogue.feature_of`, and ``kind``: ``number``,
  ``quotient`` (blank or infinite where its divisor is 0) or ``address``. Names are those of
  :func:`canonical`. A file's further columns are ignored.
- ``[derived.NAME]``: features computed from the columns that ``needs`` lists.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.data.catalogue import Column, Derived, feature_of, feature_table, with_derived
from n3ic.data.dataset import DataSet, table_facts
from n3ic.data.delimited import Sheet, TextColumn, check_header, glance, open_sheet, parse_sheet
from n3ic.data.files import combined_sha256, find_tables, printable, read_contents
from n3ic.data.table import Feature, FlowTable, SourceFile
from n3ic.errors import DataError, UsageError
from n3ic.model.inputs import UINT32_MAX, to_integer

MOST_CLASSES = 256
_OTHERS = re.compile(r"[^a-z0-9]+")
_NO_DIVISOR = {"", "nan", "inf", "+inf", "infinity", "+infinity"}


def canonical(name: str) -> str:
    """A column's name in lower case, ``_`` for everything but letters and digits."""
    return _OTHERS.sub("_", name.lower()).strip("_")


@dataclass(frozen=True, eq=False)
class FlowPart:
    """The flows of one file.

    Attributes:
        columns: int64 array of shape ``(rows,)`` per feature.
        label: class name of each row.
        key: 5-tuple of each row, the lesser end first; None where the file lacks it.
        repairs: cells that were changed, by column and reason.
        repaired: rows with such a cell.
    """

    columns: Mapping[str, Column]
    label: NDArray[np.str_]
    key: Sequence[tuple[Any, ...]] | None
    repairs: Mapping[str, int]
    repaired: int


class DescribedDataSet(DataSet):
    """A data set whose files a ``catalogue.toml`` describes.

    Attributes:
        formulas: how derived features are computed, by name.
    """

    formulas: ClassVar[Mapping[str, Callable[..., Column]]] = {}

    @cached_property
    def _toml(self) -> Mapping[str, Any]:
        return tomllib.loads((self.folder / "catalogue.toml").read_text("utf-8"))

    @cached_property
    def _columns(self) -> Mapping[str, Feature]:
        entries, sentences = self._toml["columns"], self._toml.get("reasons", {})
        return {name: feature_of(name, entry, sentences) for name, entry in entries.items()}

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
        return (*self._columns.values(), *(one.feature for one in self._derived))

    @property
    def card(self) -> str:
        """The data card, as Markdown, with the tables of columns in it."""
        derived = [one.feature for one in self._derived]
        text = super().card.replace("{{columns}}", feature_table([*self._columns.values()]))
        return text.replace("{{derived}}", feature_table(derived))

    @property
    def embedded(self) -> Path | None:
        """The file that is the default; None where the data may not be passed on."""
        name = self._toml["table"].get("embedded")
        return self.folder / name if name else None

    def load(self, path: str | Path | Sequence[str | Path] | None = None) -> FlowTable:
        """Read a file, a folder, several of them, or the embedded file.

        Raises:
            DataError: a file is not what it should be; names file, line and column.
            UsageError: ``path`` is None and no file is embedded.
        """
        return self._read(path)[0]

    def recognises(self, path: Path) -> bool:
        """Whether the header of a file, or of one in a folder, has the columns and few others."""
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        sheets = (glance(p) for p in inside if p.is_file())
        return any(self._heads(sheet) for sheet in sheets if sheet is not None)

    def _heads(self, sheet: Sheet) -> bool:
        names = {canonical(c) for c in sheet.first}
        return self._required <= names and len(names & {*self._columns}) > len(names) / 2

    def read_features(self, sheet: Sheet, wanted: Collection[str]) -> Mapping[str, Column]:
        """Integer features of flows that may lack labels and columns, derived ones included.

        Raises:
            DataError: a column is missing or a cell is not what it should be.
        """
        behind = {one.feature.name: one.needs for one in self._derived}
        needed = {name for feature in wanted for name in behind.get(feature, (feature,))}
        names = [canonical(c) for c in sheet.first]
        check_header(sheet, names, sorted(needed))
        columns = self._parse(sheet, names, needed, ())[0]
        features = with_derived(columns, self._derived)
        return {name: features[name] for name in wanted}

    def check(self, path: str | Path | Sequence[str | Path]) -> Mapping[str, Any]:
        """What files hold, and which of their cells had to be changed.

        Raises:
            DataError: a file is not what it should be; names file, line and column.
        """
        table, parts = self._read(path)
        counts: Counter[str] = Counter()
        for part in parts:
            counts.update(part.repairs)
        return {
            **table_facts(table),
            "conversations": None
            if table.conversation is None
            else len(np.unique(table.conversation)),
            "rows_changed": sum(part.repaired for part in parts),
            "problems": [f"{what}: {n:,} of {len(table):,} rows" for what, n in counts.items()],
        }

    @cached_property
    def _required(self) -> frozenset[str]:
        return frozenset(self._columns) - {*self._key}

    def _read(
        self, path: str | Path | Sequence[str | Path] | None
    ) -> tuple[FlowTable, list[FlowPart]]:
        given = self.embedded if path is None else path
        if given is None:
            raise UsageError(
                f"{self.name} has no embedded sample (its licence does not allow it): name the "
                "files or a folder"
            )
        published: Mapping[str, str] = self._toml.get("published", {})
        sources, parts = [], []
        for file in find_tables(given):
            for content in read_contents(file):
                known = published.get(content.sha256)
                if path is None and known is None:
                    raise DataError(
                        f"{file}: the embedded file is not the published one; install n3ic anew"
                    )
                part = self._part(open_sheet(content))
                parts.append(part)
                name = file.name if path is None else content.name
                identity = known or "the same columns, not a published file"
                sources.append(SourceFile(name, content.sha256, len(part.label), identity))
        return self._table(parts, sources), parts

    def _table(self, parts: Sequence[FlowPart], sources: Sequence[SourceFile]) -> FlowTable:
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

    def _part(self, sheet: Sheet) -> FlowPart:
        """The labelled flows of a file."""
        names = [canonical(c) for c in sheet.first]
        labels = self._toml["table"]["label"]
        label = next((name for name in labels if name in names), labels[0])
        check_header(sheet, names, [*sorted(self._required), label])
        wanted = [name for name in self._columns if name in names]
        columns, texts, repairs, rows = self._parse(sheet, names, wanted, (label,))
        classes = texts[label]
        if "" in classes.texts:
            row = int(np.argmax(classes.codes == classes.texts.index("")))
            raise sheet.cell_error(True, row, label, "no class; fill the cell or remove the line")
        if len(classes.texts) > MOST_CLASSES:
            raise DataError(
                f"{sheet.name}, column {label!r}: {len(classes.texts):,} classes, at most "
                f"{MOST_CLASSES} expected; is this the label?"
            )
        key = None
        if self._key and {*self._key} <= {*names}:
            source, sport, destination, dport, protocol = (
                np.array(texts[n].texts)[texts[n].codes] if n in texts else columns[n]
                for n in self._key
            )
            ends = zip(source, sport, destination, dport, protocol, strict=True)
            key = [(*sorted([(a, b), (c, d)]), p) for a, b, c, d, p in ends]
        return FlowPart(columns, np.array(classes.texts)[classes.codes], key, repairs, rows)

    def _parse(
        self, sheet: Sheet, names: Sequence[str], wanted: Collection[str], more: Sequence[str]
    ) -> tuple[dict[str, Column], Mapping[str, TextColumn], Mapping[str, int], int]:
        """Wanted columns in integer units, the text columns, repaired cells, rows with such."""
        kinds = {n: self._toml["columns"][n].get("kind", "number") for n in wanted}
        numeric = [n for n, kind in kinds.items() if kind == "number"]
        known = {*wanted, *more}
        cells = parse_sheet(
            sheet,
            [n if n in known else "" for n in names],
            header=True,
            numeric=numeric,
            text=[*(n for n in kinds if n not in numeric), *more],
        )
        columns: dict[str, Column] = {}
        repairs: dict[str, int] = {}
        repaired = np.zeros(cells.rows, dtype=np.bool_)
        for name, kind in kinds.items():
            feature = self._columns[name]
            if kind == "address":
                columns[name] = _by_text(sheet, name, cells.texts[name], _address, "an address")
                continue
            if kind == "quotient":
                values = _by_text(sheet, name, cells.texts[name], _quotient, "a number")
            else:
                values = cells.numbers[name].astype(np.float64)
            for bad, what in (
                (values < 0, "negative, set to 0"),
                (np.isinf(values), "blank or infinite, set to the largest value"),
            ):
                if bad.any():
                    repairs[f"{name} {what}"] = int(bad.sum())
                    repaired |= bad
            finite = np.clip(values, 0, UINT32_MAX * 1.0)
            columns[name] = np.minimum(to_integer(finite, feature.scale), (1 << feature.bits) - 1)
        return columns, cells.texts, repairs, int(repaired.sum())


def _numbered(keys: Iterable[tuple[Any, ...]]) -> NDArray[np.int64]:
    known: dict[tuple[Any, ...], int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _by_text(
    sheet: Sheet, name: str, column: TextColumn, of: Callable[[str], Any], expected: str
) -> NDArray[Any]:
    """Values of a column of text.

    Raises:
        DataError: a cell is not what is expected; ``of`` said None.
    """
    values = [of(text) for text in column.texts]
    bad = np.array([value is None for value in values], dtype=np.bool_)[column.codes]
    if bad.any():
        row = int(np.argmax(bad))
        got = printable(column.texts[column.codes[row]])
        raise sheet.cell_error(True, row, name, f"expected {expected}, got {got!r}")
    return np.array(values)[column.codes]


def _address(text: str) -> int | None:
    """An IPv4 address as its integer; 0 for an IPv6 one, which has no place in 32 bits."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return int(address) if address.version == 4 else 0


def _quotient(text: str) -> float | None:
    """A number; infinity where the divisor was 0."""
    if text.lower() in _NO_DIVISOR:
        return float("inf")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None
