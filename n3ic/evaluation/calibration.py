# SPDX-License-Identifier: Apache-2.0
"""Calibration of the margin: observed accuracy as a function of the margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.evaluation.interval import LEVEL, share_interval
from n3ic.util.display import TextTable
from n3ic.util.markdown import percent


@dataclass(frozen=True)
class MarginGroup:
    """Rows of neighbouring margins.

    Attributes:
        least: smallest margin.
        most: largest margin.
        rows: number of rows.
        right: number of correctly classified rows.
        low: lower end of the confidence interval of the accuracy.
        high: upper end of the interval.
    """

    least: int
    most: int
    rows: int
    right: int
    low: float
    high: float

    @property
    def accuracy(self) -> float:
        """Share of correctly classified rows."""
        return self.right / self.rows

    @property
    def name(self) -> str:
        """The margins in words."""
        return f"{self.least}" if self.least == self.most else f"{self.least}-{self.most}"


def calibration(
    right: NDArray[np.bool_],
    margins: NDArray[np.int32],
    groups: int = 10,
    level: float = LEVEL,
) -> tuple[MarginGroup, ...]:
    """Observed accuracy by margin, in groups of similar size; rows of equal margin stay together.

    Args:
        right: whether the network is right on each held-out row, bool array of shape ``(rows,)``.
        margins: margins of these rows, int array of shape ``(rows,)``.
        groups: maximum number of groups.
        level: confidence level, see :func:`~n3ic.evaluation.interval.share_interval`.

    Returns:
        The groups, the smallest margins first; empty for no rows.
    """
    if not len(margins):
        return ()
    values, index, counts = np.unique(margins, return_inverse=True, return_counts=True)
    # Group by the rank of a margin's middle row: rows of equal margin cannot be told apart.
    middle = counts.cumsum() - counts / 2
    group = np.minimum((middle * groups / len(margins)).astype(np.int64), groups - 1)
    out = []
    for g in np.unique(group):
        members = group == g
        rows = int(counts[members].sum())
        hits = int(right[members[index]].sum())
        low, high = share_interval(hits, rows, level)
        least, most = values[members][[0, -1]].tolist()  # np.unique sorted them
        out.append(MarginGroup(least, most, rows, hits, float(low), float(high)))
    return tuple(out)


def calibration_table(groups: Sequence[MarginGroup], rows: str) -> TextTable:
    """Table of a network's accuracy by margin.

    Args:
        groups: groups of held-out rows; see :func:`calibration`.
        rows: description of these rows.
    """
    cells = tuple(
        (g.name, f"{g.rows:,}", percent(g.accuracy), f"{100 * g.low:.1f} to {100 * g.high:.1f} %")
        for g in groups
    )
    head = ("margin", "rows", "right of them", f"{LEVEL:.0%} interval")
    return TextTable(f"How often it is right by margin, on {rows}", head, cells)
