# SPDX-License-Identifier: Apache-2.0
"""A user's table in the layout of a data set: read by it, so that it has its derived columns.

A network of such a table names the data set, which then reads flows for prediction, evaluation and
every export, and computes the same columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from n3ic.data.dataset import DataSet
from n3ic.data.table import FlowTable
from n3ic.data.user_table import with_positive
from n3ic.errors import DataError
from n3ic.model.columns import NEGATIVE_PART

_SHOWN = 5


@dataclass(frozen=True)
class Layout:
    """What a data set makes of a user's table.

    Attributes:
        table: the table as the data set reads it; None where something of the user's would be lost.
        told: a line about it.
    """

    table: FlowTable | None
    told: str


def by_layout(
    known: DataSet, path: str | Path, own: FlowTable, described: str, positive: str
) -> Layout:
    """Read a table by the data set that knows its layout, or say how to have that.

    Args:
        known: the data set.
        path: the user's files.
        own: the same as inferred, with the user's class.
        described: the user's description of the columns, which is kept; empty if there is none.
        positive: the class to tell from all others.
    """
    begin = f"the data set {known.name} knows this layout"
    if described:
        return Layout(None, f"{begin}: without {described} it adds its derived columns")
    try:
        table = with_positive(known.load(path), positive)
    except DataError as error:
        return Layout(None, f"{begin}, and would add its derived columns, but: {error}")
    if lost := _lost(own, table):
        return Layout(
            None, f"{begin}: without {_some(lost)}, or with --dataset {known.name}, it adds its "
            "derived columns",
        )  # fmt: skip
    if not _same_classes(own, table):
        return Layout(
            None, f"{begin}, with another column as the class: with yours under that name it adds "
            f"its derived columns; n3ic data show {known.name} says which",
        )  # fmt: skip
    derived = [name for name in table.usable if name not in own.features]
    adds = f", with its derived columns {_some(derived)}" if derived else ""
    return Layout(table, f"{begin} and reads it{adds}; --dataset flows infers the columns instead")


def _lost(own: FlowTable, table: FlowTable) -> list[str]:
    """Columns that a network of the user's would read and the data set does not.

    A column that repeats another is no loss: data sets leave such out.
    """
    used = dict.fromkeys(name.removesuffix(NEGATIVE_PART) for name in own.usable)
    kept = [own.features[name] for name in own.features if name in table.features]
    return [
        name
        for name in used
        if name not in table.features
        and not any(np.array_equal(own.features[name], column) for column in kept)
    ]


def _same_classes(one: FlowTable, other: FlowTable) -> bool:
    """Whether two tables have the same rows and divide them alike, whatever the classes' names."""
    if len(one) != len(other):
        return False
    pairs = np.unique(np.stack([one.label, other.label]), axis=1)
    return all(len({*side}) == pairs.shape[1] for side in pairs.tolist())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
