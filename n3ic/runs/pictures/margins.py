# SPDX-License-Identifier: Apache-2.0
"""Margins of a network, and its accuracy by margin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from n3ic.evaluation.calibration import MarginGroup
from n3ic.evaluation.held_out import HeldOut
from n3ic.evaluation.interval import LEVEL
from n3ic.util.pictures import (
    INK,
    PALE,
    legend,
    look,
    new_figure,
    new_page,
    plain,
    styled,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BARS = 40


@styled
def margins_figure(sample: HeldOut) -> Figure:
    """Held-out rows by margin, correct ones and wrong ones.

    Args:
        sample: a network's answers on rows that it was not trained on (margins on training rows are
            larger); see :func:`~n3ic.evaluation.held_out.held_out`.
    """
    figure, axes = new_figure()
    margins, right = sample.inference.margins, sample.right
    largest = int(margins.max(initial=0))
    width = -(-(largest + 1) // _BARS)  # rounded up, so that there are at most _BARS
    edges = np.arange(0, largest + width + 1, width) - 0.5
    middles, bottom = (edges[1:] + edges[:-1]) / 2, np.zeros(len(edges) - 1)
    for number, (rows, name) in enumerate(((right, "right"), (~right, "wrong"))):
        counts = np.histogram(margins[rows], edges)[0]
        share = f"{name}: {int(rows.sum()):,} rows"
        axes.bar(middles, counts, width, bottom, **look(number).area, linewidth=0.4, label=share)
        bottom = bottom + counts
    if sample.model.shunt:
        axes.axvline(sample.model.shunt - 0.5, color=INK, linewidth=1.5)
        axes.annotate(
            f" decided from {sample.model.shunt} on", (sample.model.shunt - 0.5, 0.97),
            xycoords=("data", "axes fraction"), va="top",
        )  # fmt: skip
    whole_numbers(axes.xaxis)
    axes.grid(axis="y", color=PALE)
    axes.set_xlabel("margin (best score less second best)")
    axes.set_ylabel("rows")
    axes.set_title(f"Margins\n{plain(sample.origin, 60)}")
    legend(figure)
    return figure


@styled
def calibration_figure(groups: Sequence[MarginGroup], rows: str) -> Figure:
    """Observed accuracy by margin with its interval above, and the rows of each group below.

    Args:
        groups: groups of held-out rows; see :func:`~n3ic.evaluation.calibration.calibration`.
        rows: description of the held-out rows.
    """
    figure = new_page(6.4, 5.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(5, 2))
    middle = np.array([(g.least + g.most) / 2 for g in groups])
    width = np.array([g.most - g.least + 1 for g in groups])
    share = np.array([100 * g.accuracy for g in groups])
    ends = np.array([[100 * g.low for g in groups], [100 * g.high for g in groups]])
    upper.errorbar(
        middle, share, np.abs(ends - share), width / 2, fmt=look(0).marker, color=look(0).colour,
        capsize=4, label=f"rows of these margins that are right, {LEVEL:.0%} interval",
    )  # fmt: skip
    counts = [g.rows for g in groups]
    every = 100 * sum(g.right for g in groups) / max(sum(counts), 1)
    upper.axhline(every, **look(1).line, label=f"all rows: {every:.1f} %")
    upper.set_ylabel("right, %")
    lower.bar(middle, counts, width, **look(0).area, linewidth=1)
    lower.set_ylabel("rows")
    lower.set_xlabel("margin (best score less second best)")
    lower.set_ylim(0)
    whole_numbers(lower.xaxis)
    for axes in (upper, lower):
        axes.grid(axis="y", color=PALE)
    upper.set_title(f"Calibration of the margin\n{plain(rows, 60)}")
    legend(figure, upper, columns=1)
    return figure
