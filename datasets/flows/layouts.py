# SPDX-License-Identifier: Apache-2.0
"""Lets a data set read a user's table that has its layout, which adds its derived columns.

A network that is trained on such a table names the data set. That data set then reads the flows for
prediction, evaluation and every export, and computes the same columns. A table in memory is
recognised and read like its CSV file.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from n3ic import plugins
from n3ic.data.dataset import DataSet, data_set, data_set_of
from n3ic.data.delimited import Sheet, first_lines
from n3ic.data.table import FlowTable
from n3ic.data.user_table import OWN, with_positive
from n3ic.errors import DataError, N3icError
from n3ic.usecases.evaluation import same_classes

_SHOWN = 5
_HEAD = 2  # rows
_MOST = 0.5  # share of the usable columns above which a layout counts as near


@dataclass(frozen=True)
class KnownLayout:
    """The result of reading a user's table by a data set.

    Attributes:
        table: the table as the data set reads it; None if it would lose a part of the user's table.
        message: a line about it for the user; empty if the data set adds nothing.
    """

    table: FlowTable | None
    message: str


def known_layout(source: str | Path | Sheet, own: FlowTable) -> DataSet | None:
    """Find the data set that recognises a table, or knows most of its columns; None without one.

    Args:
        source: the user's files, or the table in memory.
        own: the same table with inferred columns.
    """
    try:
        if not isinstance(source, Sheet):
            return data_set_of(source)
        with TemporaryDirectory(prefix="n3ic-") as folder:
            head = Path(folder) / "head.csv"
            head.write_bytes(source.as_text(_HEAD).body)
            return data_set_of(head)
    except N3icError:
        return _nearest(source, own)


def _nearest(source: str | Path | Sheet, own: FlowTable) -> DataSet | None:
    """Find the data set that shares most columns with a table and can derive others from them."""
    used = {*_used(own)}
    shared_columns: dict[str, int] = {}
    for name in (n for n in plugins.names("n3ic.datasets") if n != OWN):
        known = data_set(name)
        tables = type(known).load_sheet is not DataSet.load_sheet and not known.synthetic
        shared = used & {f.name for f in known.catalogue} if tables else ()
        if len(shared) > _MOST * len(used) and _derivable(known, source, own):
            shared_columns[name] = len(shared)
    return (
        data_set(max(shared_columns, key=lambda name: shared_columns[name]))
        if shared_columns
        else None
    )


def by_layout(
    known: DataSet, source: str | Path | Sheet, own: FlowTable, described: str, positive: str
) -> KnownLayout:
    """Read a table by the data set that knows its layout, or say what prevents that.

    Args:
        known: the data set.
        source: the user's files, or the table in memory.
        own: the same table with inferred columns and the user's class.
        described: file of the user's column descriptions, which take precedence; empty for none.
        positive: the class to tell from all others.
    """
    begin = f"the data set {known.name} knows this layout"
    if described:
        return KnownLayout(None, f"{begin}: without {described} it adds its derived columns")
    try:
        read = known.load_sheet(source) if isinstance(source, Sheet) else known.load(source)
        table = with_positive(read, positive)
    except DataError as error:
        derivable = _derivable(known, source, own)
        more = (
            f"the data set {known.name} derives {_some(derivable)} from such columns, but: {error}"
        )
        return KnownLayout(None, more if derivable else "")
    if lost := _lost(own, table):
        return KnownLayout(
            None, f"{begin}: without {_some(lost)}, or with --dataset {known.name}, it adds its "
            "derived columns",
        )  # fmt: skip
    if not same_classes(own.label, table.label):
        return KnownLayout(
            None, f"{begin}, with another column as the class: with yours under that name it adds "
            f"its derived columns; n3ic data show {known.name} says which",
        )  # fmt: skip
    ignored = {f.name: f.nic_reason for f in own.catalogue if not f.usable} | dict(own.omitted)
    omitted = {name: why for name, why in ignored.items() if name not in table.features}
    table = replace(table, omitted=omitted)
    derived = [name for name in table.usable if name not in own.features]
    adds = f", with its derived columns {_some(derived)}" if derived else ""
    left = [n for n in _used(own) if n in table.features and not table.feature(n).usable]
    less = f", without {_some(left)}, see n3ic data show {known.name}" if left else ""
    return KnownLayout(
        table, f"{begin} and reads it{adds}{less}; --dataset flows infers the columns instead"
    )


def _derivable(known: DataSet, source: str | Path | Sheet, own: FlowTable) -> list[str]:
    """Features that a data set derives from the user's columns and the user's table lacks."""
    if isinstance(source, Sheet):
        head: Sheet | None = source.as_text(_HEAD)
    else:
        head = first_lines(Path(source)) if Path(source).is_file() else None
    names = []
    for name in (f.name for f in known.catalogue if f.usable and f.name not in own.features):
        with suppress(DataError):
            if head is not None and known.read_features(head, (name,)):
                names.append(name)
    return names


def _used(own: FlowTable) -> list[str]:
    """Columns of the user's table that a network would read."""
    return [*own.rules.only(own.usable).columns] if own.rules else [*own.usable]


def _lost(own: FlowTable, table: FlowTable) -> list[str]:
    """Columns that a network would read from the user's table and that the data set drops.

    A column that repeats another one is not lost, because data sets leave out repeated columns.
    """
    shared_columns = [own.features[name] for name in own.features if name in table.features]
    return [
        name
        for name in _used(own)
        if name not in table.features
        and not any(np.array_equal(own.features[name], column) for column in shared_columns)
    ]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
