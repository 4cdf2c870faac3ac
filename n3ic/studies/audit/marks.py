# SPDX-License-Identifier: Apache-2.0
"""Marks: columns that name a host, a network, a distance, a time or a capture, and their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.data.catalogue_dataset import CatalogueDataSet
from n3ic.data.column_roles import WHY, Row, first_row, role_of
from n3ic.data.dataset import DataSet
from n3ic.data.delimited import parse_sheet
from n3ic.data.file_tables import open_sheets
from n3ic.data.table import FlowTable
from n3ic.errors import UsageError, did_you_mean

MOST_VALUES = 8
LEAST_SHARE = 0.005
LEAST_ROWS = 50
_CAPTURE = Row(
    "capture",
    "where or with what the rows were made",
    "capture pcap file filename tool site sensor probe tap vlan vlanid scenario experiment testbed",
)
_ROLES = ("address", "link", "network", "ttl", "time", "port")
_TIME_OF_DAY = re.compile(r"[ T]")


@dataclass(frozen=True, eq=False)
class Mark:
    """A column that a model must not learn.

    Attributes:
        name: the column's name.
        kind: ``address``, ``network``, ``link``, ``ttl``, ``time``, ``port``, ``capture``, or
            ``named`` by the user.
        codes: value of each row, as an index into ``values``; int64 of shape ``(rows,)``.
        values: the distinguished values, in words; the last stands for all others.
        whole: rank of each row's value among all values, before rare ones are merged; int64 of
            shape ``(rows,)``.
    """

    name: str
    kind: str
    codes: NDArray[np.int64]
    values: tuple[str, ...]
    whole: NDArray[np.int64]

    @property
    def counts(self) -> bool:
        """Whether a column that reveals the mark counts as a leak.

        A port names a service, which honest features reveal, too. It divides the rows instead.
        """
        return self.kind != "port"


def kind_of(name: str, reason: str = "") -> str:
    """Return the kind of a mark, from its name or the reason for its exclusion; empty if none.

    Args:
        name: the column.
        reason: why the table's inference excludes the column.
    """
    if first_row((_CAPTURE,), name):
        return "capture"
    role, _ = role_of(name)
    if role in _ROLES:
        return role
    return next((kind for kind in ("address", "time") if reason == WHY[kind]), "")


def marks_of(table: FlowTable, source: DataSet, named: Sequence[str] = ()) -> tuple[Mark, ...]:
    """Return the marks of a table: the named columns, or all whose name or note marks them.

    Args:
        table: the flows.
        source: their data set; its files may have columns that are not features.
        named: columns to use as marks; empty for all known ones.

    Raises:
        UsageError: the table has no such column.
        DataError: a file has changed since it was read.
    """
    kinds = {f.name: kind_of(f.name, f.nic_reason) for f in table.catalogue if not f.usable}
    texts = _of_text(table, source, named)
    marks: list[Mark] = []
    for name in named or dict.fromkeys([*(n for n, kind in kinds.items() if kind), *texts]):
        kind = (kinds.get(name) or kind_of(name) or "named") if not named else "named"
        if name in texts:
            marks.append(_of_texts(name, kind, texts[name]))
        elif name in table.features:
            marks.append(_of_numbers(name, kind, table.features[name]))
            if kind_of(name) == "address":
                marks.append(_of_numbers(f"{name} /24", "network", table.features[name] >> 8, 8))
        else:
            known = [*table.features, *texts]
            raise UsageError(f"{table.name} has no column {name!r}; {did_you_mean(name, known)}")
    return tuple(mark for mark in marks if len(mark.values) > 1)


def _of_text(
    table: FlowTable, source: DataSet, named: Sequence[str]
) -> dict[str, NDArray[np.str_]]:
    """Return text columns that are marks or named, read again as features hold only numbers."""
    if not isinstance(source, CatalogueDataSet):
        return {}
    rules = table.rules.columns if table.rules else {}
    numbers = {n for n in table.features if n not in rules or rules[n].kind != "category"}
    parts: dict[str, list[NDArray[np.str_]]] = {}
    for path in dict.fromkeys(file.path for file in table.sources):
        # An embedded file is named without its folder.
        inside = source.embedded if source.embedded and source.embedded.name == path else path
        for content in open_sheets(inside):
            names = source.names_of(content.sheet)
            mark_columns = [n for n in names if n not in numbers and (n in named or kind_of(n))]
            if not mark_columns:
                continue
            cells = parse_sheet(content.sheet, names, header=True, numeric=(), text=mark_columns)
            for name in mark_columns:
                column = cells.texts[name]
                parts.setdefault(name, []).append(np.array(column.texts)[column.codes])
    joined = {name: np.concatenate(columns) for name, columns in parts.items()}
    return {name: column for name, column in joined.items() if len(column) == len(table)}


def _of_texts(name: str, kind: str, column: NDArray[np.str_]) -> Mark:
    if kind == "time":  # keeps the day of a date with a time
        days = np.array([_TIME_OF_DAY.split(text)[0] for text in column.tolist()])
        column = days if len(np.unique(days)) > 1 else column
    texts, whole = np.unique(column, return_inverse=True)
    return _most_frequent(name, kind, whole.reshape(-1).astype(np.int64), texts.tolist())


def _of_numbers(name: str, kind: str, column: NDArray[np.int64], shift: int = 0) -> Mark:
    distinct, whole = np.unique(column, return_inverse=True)
    whole = whole.reshape(-1).astype(np.int64)
    if kind in ("address", "network"):
        return _most_frequent(name, kind, whole, [_dotted(int(v) << shift) for v in distinct])
    mark = _most_frequent(name, kind, whole, [str(v) for v in distinct])
    if kind in ("time", "named") and len(mark.values) <= 2:  # few values repeat: use quantiles
        ranks = np.argsort(np.argsort(column, kind="stable"), kind="stable")
        parts = ranks * MOST_VALUES // max(len(column), 1)
        codes = parts[np.searchsorted(np.sort(column), column)]  # keeps equal values together
        used, codes = np.unique(codes, return_inverse=True)
        values = [f"part {p + 1} of {MOST_VALUES}" for p in used]
        return Mark(name, kind, codes.reshape(-1).astype(np.int64), (*values, "other"), whole)
    return mark


def _dotted(address: int) -> str:
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))


def _most_frequent(name: str, kind: str, whole: NDArray[np.int64], texts: Sequence[str]) -> Mark:
    """Return a mark with a code for each of the most frequent values and one for all others."""
    counts = np.bincount(whole, minlength=len(texts))
    least = max(LEAST_ROWS, LEAST_SHARE * len(whole))
    order = np.argsort(-counts, kind="stable")[:MOST_VALUES]
    frequent = [int(i) for i in order if counts[i] >= least]
    code = np.full(len(texts), len(frequent), dtype=np.int64)
    code[frequent] = np.arange(len(frequent))
    return Mark(name, kind, code[whole], (*(texts[i] for i in frequent), "other"), whole)
