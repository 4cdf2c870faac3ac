# SPDX-License-Identifier: Apache-2.0
"""The user's own flow tables, read by inference or by a ``columns.toml``.

:func:`describe` infers a catalogue from a table's names and cells. A ``columns.toml`` that is named
or lies beside the data overrides the entries that it has. A network trained on such a table carries
the rules of its columns (:class:`~n3ic.model.columns.TableRules`) and reads other tables by them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from n3ic.data.catalogue_dataset import (
    MOST_CLASSES,
    TEXT,
    CatalogueDataSet,
    FileFlows,
    canonical,
    changed_cells_lines,
)
from n3ic.data.cell_text import same_spelling
from n3ic.data.column_inference import infer
from n3ic.data.column_profile import ColumnProfile, column_names, profile_columns
from n3ic.data.column_roles import is_label_name
from n3ic.data.delimited import Sheet, TextColumn, remarks_of
from n3ic.data.description import COLUMNS_FILE, read_description
from n3ic.data.file_tables import DataSource, find_sources, open_sheets
from n3ic.data.files import TABLE_SUFFIXES, printable
from n3ic.data.number_marks import Mark
from n3ic.data.table import FlowTable
from n3ic.data.unit_consistency import contradiction
from n3ic.errors import DataError, ModelError, UsageError, did_you_mean
from n3ic.model.columns import TableRules

OWN = "flows"  # the data set and the use case of any table, on the command line
MOST_COLUMNS = 4096
_CANDIDATES = 20
_UNIT_KEYS = {"source_unit", "unit", "scale"}
_LONGEST_CLASS = 256
_HARMLESS = ("0", "benign", "normal", "legitimate", "legit", "background", "clean", "false", "no")


class UserTable(CatalogueDataSet):
    """A table that a catalogue describes, from any flow exporter.

    Args:
        catalogue: a catalogue as in :mod:`n3ic.data.catalogue_dataset`, or a network's rules.
        classes: classes of the network that reads the flows, which may lack some; None to train.
        notes: how the files were read, as sentences.
    """

    name: ClassVar[str] = OWN
    summary: ClassVar[str] = "a table of flows that is described by its columns"
    comma: ClassVar[bool] = False
    suffixes: ClassVar[tuple[str, ...]] = (*TABLE_SUFFIXES, ".log", ".parquet")
    unpublished: ClassVar[str] = "a table of the user's own"

    def __init__(
        self,
        catalogue: Mapping[str, Any] | TableRules,
        classes: tuple[str, ...] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self._content = _catalogue_of(catalogue) if isinstance(catalogue, TableRules) else catalogue
        self._known = classes
        self.notes = tuple(notes)

    @property
    def _toml(self) -> Mapping[str, Any]:
        return self._content

    @property
    def toml(self) -> Mapping[str, Any]:
        """The catalogue as plain data."""
        return self._content

    @property
    def rules(self) -> TableRules:
        """How the table's columns and label are read."""
        table = self._content["table"]
        return TableRules(
            self._rules,
            next(iter(table.get("label", ())), ""),
            table.get("positive", ""),
            table.get("blank_label", ""),
            table.get("decimal", ""),
        )

    @property
    def _decimal(self) -> Mark | None:
        return cast(Mark, self.rules.decimal) if self.rules.decimal else None

    def load_noting(self, path: DataSource) -> tuple[FlowTable, tuple[str, ...]]:
        """The table, and lines about the changed cells.

        Raises:
            DataError: a file is malformed; the message names file, line and column.
        """
        table, parts = self._read(path)
        return table, changed_cells_lines(parts, len(table))

    def names_of(self, sheet: Sheet) -> list[str]:
        """Unique names of a sheet's columns."""
        return column_names(sheet.first)

    def _part(self, sheet: Sheet) -> FileFlows:
        if not self.rules.label:
            raise DataError(f"{sheet.name}: nothing says which column is the class; name a label")
        return super()._part(sheet)

    def _classes(self, sheet: Sheet, label: str, column: TextColumn) -> NDArray[np.str_]:
        blank = self._content["table"].get("blank_label", "")
        texts = [text or blank for text in same_spelling(column.texts, self._known or ())]
        if "" in texts and not blank:
            row = int(np.argmax(column.codes == texts.index("")))
            raise sheet.cell_error(
                True,
                row,
                label,
                f"no class; fill the cell, or say under [table] of {COLUMNS_FILE} what a blank "
                'stands for: blank_label = "benign"',
            )
        if len({*texts}) > MOST_CLASSES:
            raise DataError(
                f"{sheet.name}, column {label!r}: {len({*texts}):,} classes, at most "
                f"{MOST_CLASSES} expected; is this the label?"
            )
        if (longest := max(texts, key=len))[_LONGEST_CLASS:]:
            raise DataError(
                f"{sheet.name}, column {label!r}: a class of {len(longest):,} characters, "
                f"{printable(longest)!r}; at most {_LONGEST_CLASS} expected; is this the label?"
            )
        return np.array(texts)[column.codes]

    def _table(self, parts: Sequence[Any], sources: Sequence[Any]) -> FlowTable:
        texts = {
            name: entry["reason"]
            for name, entry in self._content["columns"].items()
            if entry["kind"] == TEXT
        }
        table = replace(super()._table(parts, sources), rules=self.rules, omitted=texts)
        positive = self.rules.positive
        if self._known is not None:
            if self._known != (f"not {positive}", positive):
                return table
            is_positive = np.isin(table.label, table.members(positive))
            return replace(table, label=is_positive.astype(np.int64), classes=self._known)
        return with_positive(table, positive)


def _catalogue_of(rules: TableRules) -> Mapping[str, Any]:
    """The catalogue of the columns that a network reads."""
    return {
        "table": {
            "label": [rules.label],
            "positive": rules.positive,
            "blank_label": rules.blank_label,
            "decimal": rules.decimal,
        },
        "columns": {
            name: {**vars(rule), "meaning": name, "reason": ""}
            for name, rule in rules.columns.items()
        },
    }


def with_positive(table: FlowTable, positive: str) -> FlowTable:
    """A table of two classes with the positive class second; other tables are unchanged.

    Args:
        table: the flows.
        positive: the class to tell from all others. If empty, all classes are told apart, and of
            two classes the positive one is that not called benign, normal or the like.

    Raises:
        DataError: the table lacks the class, or has a single class.
    """
    if len(table.classes) < 2:
        raise DataError(
            f"the label has the one class {table.classes[0]!r} in every row; two or more are needed"
        )
    if positive and len(table.classes) > 2:
        return table.against_rest(positive)
    if len(table.classes) > 2:
        return table
    if positive and positive not in table.classes:
        return table.against_rest(positive)
    first, second = table.classes
    turn = first == positive if positive else second.lower().rstrip(".") in _HARMLESS
    if not turn:
        return table
    return replace(table, classes=(second, first), label=1 - table.label)


def describe(
    paths: DataSource,
    label: str = "",
    description: str | Path | None = None,
    *,
    positive: str = "",
    beside: bool = True,
) -> tuple[UserTable, list[ColumnProfile]]:
    """Infer how tables of one layout are read, and apply the user's description.

    Args:
        paths: files or folders of CSV with any separator, Zeek logs or Parquet, also compressed; or
            a table in memory, see :func:`.memory.table_sheet`.
        label: the column of the class; empty for that of ``columns.toml``.
        description: a ``columns.toml``; None for the one beside the data if ``beside``.
        positive: the class to tell from all others.
        beside: whether a ``columns.toml`` beside the data is read.

    Returns:
        The table to read, and the facts of every column.

    Raises:
        DataError: the tables cannot be read, have different columns, or do not fit the description.
        UsageError: the table has no such label.
    """
    files = find_sources(paths, UserTable.suffixes)
    if description is None and beside:
        description = description_beside(paths if isinstance(paths, str | Path) else files[0])
    described = read_description(description) if description else {"table": {}, "columns": {}}
    mark = described["table"].get("decimal")
    sheets = [table.sheet for file in files for table in open_sheets(file, mark)]
    header = sheets[0].first
    names = column_names(header)
    if len(names) > MOST_COLUMNS:
        raise DataError(f"{sheets[0].name}: {len(names):,} columns, at most {MOST_COLUMNS:,}")
    if len(names) < 2:
        raise DataError(
            f"{sheets[0].name}: a single column; expected a flow a line, its cells separated by "
            "commas, semicolons, tabs or bars"
        )
    label_name = label or next(iter(described["table"].get("label", ())), "")
    label_column = _label(label_name, header, names, sheets[0].name) if label_name else ""
    facts = profile_columns(sheets, label_column)
    time_unit = described["table"].get("time_unit", "")
    inferred = infer(
        facts, label_column, time_unit=time_unit, units=_said_units(described["columns"])
    )
    unknown = [name for name in described["columns"] if name not in {*names} - {label_column}]
    if unknown:
        raise DataError(
            f"{description}: describes the column {unknown[0]!r}, which {sheets[0].name} "
            f"{'has as its label' if unknown[0] == label_column else 'lacks'}"
        )
    columns = {
        name: _overridden(
            f"{description}: [columns.{name}]", entry, described["columns"].get(name, {})
        )
        for name, entry in inferred["columns"].items()
    }
    commas = {"decimal": ","} if any(sheet.decimal == "," for sheet in sheets) else {}
    table = {**inferred["table"], **commas, **described["table"]}
    if label_column:
        table["label"] = [label_column]
    if positive:
        table["positive"] = positive
    own = UserTable({"table": table, "columns": columns}, notes=remarks_of(sheets))
    try:
        own.rules  # noqa: B018 - checks every entry
    except ModelError as error:
        raise DataError(f"{description}: {error}") from error
    if not time_unit:
        settled = [n for n, entry in described["columns"].items() if entry.keys() & _UNIT_KEYS]
        _check_units(sheets, names, columns, settled)
    return own, facts


def _said_units(columns: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Units of columns of which the user says no more than the unit in the table."""
    return {
        name: entry["source_unit"]
        for name, entry in columns.items()
        if "source_unit" in entry and not entry.keys() & {"unit", "scale"}
    }


def _check_units(
    sheets: Sequence[Sheet],
    names: Sequence[str],
    columns: Mapping[str, Mapping[str, Any]],
    settled: Collection[str],
) -> None:
    """Check that the units of a table agree with its cells.

    Raises:
        DataError: a column of times has another unit than its name says; names both readings.
    """
    units = {
        name: str(entry.get("source_unit") or entry.get("unit", ""))
        for name, entry in columns.items()
        if entry["kind"] == "number"
    }
    conflict = contradiction(sheets, names, units, settled)
    if conflict is not None:
        raise DataError(
            f"{sheets[0].name}: {conflict.column} is in {conflict.unit} by its name, but in "
            f"{conflict.other} by its cells: {conflict.evidence}; say which in {COLUMNS_FILE} "
            "beside the data or in --description FILE: "
            f'time_unit = "{conflict.other}" or "{conflict.unit}" under [table] '
            f"for all times, or source_unit under [columns.{conflict.column}]"
        )


def load_own(
    paths: DataSource,
    label: str,
    description: str | Path | None = None,
    *,
    positive: str = "",
    notify: Callable[[str], object],
) -> FlowTable:
    """Read labelled tables as :func:`describe` infers; ``notify`` gets lines about the inference.

    Raises:
        DataError: the tables cannot be read, or do not fit the description.
        UsageError: no label is named, or the table has no such label.
    """
    own, facts = describe(paths, label, description, positive=positive)
    need_label(own, facts, paths)
    table, changed = own.load_noting(paths)
    for line in (summary_line(own, facts), *changed):
        notify(line)
    return table


def description_beside(path: object) -> Path | None:
    """The ``columns.toml`` beside a table, or in a folder of tables, or None."""
    if not isinstance(path, str | Path):
        return None
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    file = folder / COLUMNS_FILE
    return file if file.is_file() else None


def described_as(table: FlowTable) -> UserTable:
    """How the features of a table were read, to be written as a ``columns.toml``."""
    rules = table.rules or TableRules({})
    known = {f.name: f for f in table.catalogue}
    columns = {
        name: {
            "use": known[name].usable,
            "reason": known[name].nic_reason,
            "meaning": known[name].meaning,
            **rule.to_dict(),
            "unit": rule.unit,
            "bits": rule.bits,
        }
        for name, rule in rules.columns.items()
    }
    settings = {k: getattr(rules, k) for k in ("positive", "blank_label", "decimal")}
    return UserTable({"table": {"label": [rules.label], **settings}, "columns": columns})


def summary_line(own: UserTable, facts: Sequence[ColumnProfile]) -> str:
    """A line about the table: its rows, its label and its columns with their units."""
    used = [
        f"{name} ({unit})" if (unit := entry.get("unit", "")) else name
        for name, entry in own.toml["columns"].items()
        if entry["use"]
    ]
    rows = facts[0].rows if facts else 0
    return f"{rows:,} rows, label {own.rules.label!r}, {len(used)} columns: {', '.join(used)}"


def _overridden(
    where: str, inferred: Mapping[str, Any], described: Mapping[str, Any]
) -> dict[str, Any]:
    """The inferred entry of a column, overridden by the user's.

    Raises:
        DataError: the user's entry uses a column of text.
    """
    entry = {**inferred, **described}
    if entry["kind"] != "category":
        entry.pop("values", None)
        entry.pop("buckets", None)
        entry.pop("indicators", None)
    if entry["kind"] == TEXT and described.get("use"):
        raise DataError(
            f"{where}: a column of text ({inferred['reason']}) is used as a category: say "
            'kind = "category" and values = ["one", "other"]'
        )
    return entry


def labels_of(facts: Sequence[ColumnProfile]) -> list[str]:
    """Columns that could be a label, with their numbers of classes, best first."""
    candidates = [f for f in facts if 1 < f.distinct <= MOST_CLASSES]
    ordered = sorted(candidates, key=lambda f: (not is_label_name(f.name), f.distinct))
    return [f"{f.header} ({f.distinct} values)" for f in ordered[:_CANDIDATES]]


def need_label(own: UserTable, facts: Sequence[ColumnProfile], source: object) -> None:
    """Check that a table's label is known.

    Raises:
        UsageError: the label is unknown; the message lists columns that could be it.
    """
    if not own.rules.label:
        could = ", ".join(labels_of(facts)) or "none has few enough values"
        raise UsageError(
            f"{source}: which column is the class? Say --label COLUMN; these could be: {could}"
        )


def _label(wanted_name: str, header: Sequence[str], names: Sequence[str], source: str) -> str:
    """Name of the label's column, which the user may spell as the file or as n3ic does.

    Raises:
        UsageError: no column, or more than one, has that name.
    """
    matches = [i for i, text in enumerate(header) if text == wanted_name.strip()]
    matches = matches or [
        i for i, text in enumerate(header) if canonical(text) == canonical(wanted_name)
    ]
    matches = matches or [i for i, name in enumerate(names) if name == wanted_name]
    if len(matches) == 1:
        return names[matches[0]]
    if matches:
        raise UsageError(f"{source}: {len(matches)} columns are called {wanted_name!r}; rename one")
    listed = ", ".join(printable(h) for h in header[:60])
    raise UsageError(
        f"{source}: no column {wanted_name!r}; {did_you_mean(wanted_name, header)}"
        f"its columns are {listed}"
    )
