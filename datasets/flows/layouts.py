# SPDX-License-Identifier: Apache-2.0
"""A user's table in the layout of a data set: read by it, so that it has its derived columns.

A network of such a table names the data set, which then reads flows for prediction, evaluation and
every export, and computes the same columns. A table in memory is recognised and read as its CSV
file.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from n3ic import plugins
from n3ic.data.dataset import DataSet, data_set, data_set_of
from n3ic.data.delimited import Sheet, first_lines
from n3ic.data.table import FlowTable
from n3ic.data.user_table import OWN, with_positive
from n3ic.errors import DataError, N3icError
from n3ic.model.columns import NEGATIVE_PART
from n3ic.usecases.evaluation import same_classes

_SHOWN = 5
_HEAD = 2  # rows
_MOST = 0.5  # of the columns that can be used, from which on a layout is told to be near


@dataclass(frozen=True)
class KnownLayout:
    """What a data set makes of a user's table.

    Attributes:
        table: the table as the data set reads it; None where something of the user's would be lost.
        told: a line about it; empty where the data set adds nothing.
    """

    table: FlowTable | None
    told: str


def known_layout(source: str | Path | Sheet, own: FlowTable) -> DataSet | None:
    """The data set that recognises a table, or knows most of its columns; None if none does.

    Args:
        source: the user's files, or the table in memory.
        own: the same as inferred.
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
    """The data set with most columns in common that derives others from such; None without one."""
    used = {*_used(own)}
    found: dict[str, int] = {}
    for name in (n for n in plugins.names("n3ic.datasets") if n != OWN):
        known = data_set(name)
        tables = type(known).load_sheet is not DataSet.load_sheet and not known.synthetic
        shared = used & {f.name for f in known.catalogue} if tables else ()
        if len(shared) > _MOST * len(used) and _derivable(known, source, own):
            found[name] = len(shared)
    return data_set(max(found, key=lambda name: found[name])) if found else None


def by_layout(
    known: DataSet, source: str | Path | Sheet, own: FlowTable, described: str, positive: str
) -> KnownLayout:
    """Read a table by the data set that knows its layout, or say how to have that.

    Args:
        known: the data set.
        source: the user's files, or the table in memory.
        own: the same as inferred, with the user's class.
        described: the user's description of the columns, which is kept; empty if there is none.
        positive: the class to tell from all others.
    """
    begin = f"the data set {known.name} knows this layout"
    if described:
        return KnownLayout(None, f"{begin}: without {described} it adds its derived columns")
    try:
        read = known.load_sheet(source) if isinstance(source, Sheet) else known.load(source)
        table = with_positive(read, positive)
    except DataError as error:
        found = _derivable(known, source, own)
        more = f"the data set {known.name} derives {_some(found)} from such columns, but: {error}"
        return KnownLayout(None, more if found else "")
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
    derived = [name for name in table.usable if name not in own.features]
    adds = f", with its derived columns {_some(derived)}" if derived else ""
    left = [n for n in _used(own) if n in table.features and not table.feature(n).usable]
    less = f", without {_some(left)}, see n3ic data show {known.name}" if left else ""
    return KnownLayout(
        table, f"{begin} and reads it{adds}{less}; --dataset flows infers the columns instead"
    )


def _derivable(known: DataSet, source: str | Path | Sheet, own: FlowTable) -> list[str]:
    """Features that a data set derives from columns of the user's, and the user does not have."""
    if isinstance(source, Sheet):
        head: Sheet | None = source.as_text(_HEAD)
    else:
        head = first_lines(Path(source)) if Path(source).is_file() else None
    found = []
    for name in (f.name for f in known.catalogue if f.usable and f.name not in own.features):
        with suppress(DataError):
            if head is not None and known.read_features(head, (name,)):
                found.append(name)
    return found


def _used(own: FlowTable) -> list[str]:
    """Columns of the user's that a network would read."""
    return [*dict.fromkeys(name.removesuffix(NEGATIVE_PART) for name in own.usable)]


def _lost(own: FlowTable, table: FlowTable) -> list[str]:
    """Columns that a network of the user's would read and the data set does not have.

    A column that repeats another is no loss: data sets leave such out.
    """
    kept = [own.features[name] for name in own.features if name in table.features]
    return [
        name
        for name in _used(own)
        if name not in table.features
        and not any(np.array_equal(own.features[name], column) for column in kept)
    ]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
