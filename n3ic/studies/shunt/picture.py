# SPDX-License-Identifier: Apache-2.0
"""Accuracy of a network that shunts, on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic.evaluation.interval import LEVEL, share_interval
from n3ic.studies.shunt.points import ShuntPoint
from n3ic.util.pictures import INK, PALE, legend, look, new_figure, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = (
    ("accuracy", "decided on the card", 0),
    ("accuracy_unseen", "the same, deduplicated", 5),
    ("shunted_accuracy", "shunted, by boosted trees", 3),
    ("end_to_end", "end to end", 1),
    ("end_to_end_unseen", "end to end, deduplicated", 4),
)


@styled
def shunting_figure(points: Sequence[ShuntPoint], rows: str, chosen: int | None = None) -> Figure:
    """Draw accuracy against the share of rows that the card decides.

    Args:
        points: points of the thresholds on held-out rows: ``study.test`` of
            :func:`~n3ic.studies.shunt.study.study_shunting`. Validation rows would flatter the
            threshold, which is chosen on them.
        rows: description of the rows.
        chosen: the threshold to mark.
    """
    figure, axes = new_figure(6.4, 5.4)
    decided = [p for p in points if p.accuracy is not None]
    hits = [round(p.accuracy * p.decided) for p in decided if p.accuracy is not None]
    low, high = share_interval(np.array(hits), np.array([p.decided for p in decided]))
    share = [100 * p.share for p in decided]
    axes.fill_between(
        share, 100 * low, 100 * high, color=look(0).colour, alpha=0.18, linewidth=0,
        label=f"{LEVEL:.0%} interval of it",
    )  # fmt: skip
    least = []
    for name, label, number in _SHOWN:
        pairs = [(100 * p.share, getattr(p, name)) for p in points]
        known = [(x, 100 * y) for x, y in pairs if y is not None]
        if known:
            x, y = zip(*known, strict=True)
            sparse_marks: dict[str, Any] = {"markevery": max(1, len(x) // 12), "markersize": 5.0}
            axes.plot(x, y, **look(number).curve, **sparse_marks, label=label)
            least.append(min(y))
    point = next((p for p in points if p.threshold == chosen), None)
    if point is not None:
        axes.axvline(100 * point.share, color=INK, linewidth=1.2)
        side = "right" if point.share > 0.5 else "left"
        axes.annotate(
            f" threshold {point.threshold} ", (100 * point.share, 0.02), ha=side,
            xycoords=("data", "axes fraction"),
        )  # fmt: skip
    if least:  # the wide interval of a few rows would squash the curves
        span = 101 - min(least)
        axes.set_ylim(max(0, min(least) - 0.15 * span), 101)
    axes.set_xlim(-1, 101)
    axes.set_xlabel("rows that the card decides, %")
    axes.set_ylabel("accuracy, %")
    axes.grid(color=PALE)
    axes.set_title(f"Shunting\n{plain(rows, 60)}")
    legend(figure, columns=2)
    return figure
