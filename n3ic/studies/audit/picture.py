# SPDX-License-Identifier: Apache-2.0
"""The picture of an audit: which column reveals which mark, and what is lost without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from n3ic.studies.audit.ablation import Loss
from n3ic.studies.audit.finding import Finding, MarkFacts
from n3ic.util.pictures import INK, LOOKS, SOFT, new_page, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 16


@styled
def audit_figure(
    subject: str,
    facts: Sequence[MarkFacts],
    best: Sequence[Finding],
    singles: Sequence[Finding],
    losses: Sequence[Loss],
) -> Figure:
    """Draw each column's balanced accuracy on each mark, and the accuracy lost without the column.

    Args:
        subject: the table in words.
        facts: the marks.
        best: the strongest finding of each column, of which the first 16 are drawn.
        singles: the best finding for each column and mark.
        losses: accuracy lost without columns.
    """
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    columns = [entry.columns[0] for entry in best[:_MOST]]
    marks = [m.name for m in facts if any(f.mark == m.name for f in singles)]
    lost = {entry.columns[0]: entry for entry in losses if len(entry.columns) == 1}
    known = {(entry.columns[0], entry.mark): entry for entry in singles}
    figure = new_page(max(7.0, 0.8 * len(marks) + 5.6), max(3.6, 0.36 * len(columns) + 2.4))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(max(2, len(marks)), 2.4))
    accuracy = np.full((len(columns), len(marks)), np.nan)
    for row, name in enumerate(columns):
        for place, mark in enumerate(marks):
            if entry := known.get((name, mark)):
                accuracy[row, place] = 100 * entry.sure
                figures = f"{accuracy[row, place]:.0f}{'*' * entry.leaks}"
                left.text(
                    place, row, "-" if entry.within is None else figures, ha="center",
                    va="center", fontsize=9, color="white" if accuracy[row, place] > 92 else INK,
                )  # fmt: skip
    pale = LinearSegmentedColormap.from_list("accuracy", ["#ffffff", LOOKS[0].colour])
    left.imshow(accuracy, cmap=pale, norm=PowerNorm(3, 50, 100), aspect="auto")
    left.set_xticks(range(len(marks)), [plain(m, 18) for m in marks], rotation=35, ha="right")
    left.set_yticks(range(len(columns)), [plain(c, 26) for c in columns])
    left.set_title("balanced accuracy of the mark, %")
    if lost:
        at = [columns.index(name) for name in lost if name in columns]
        drawn = [entry for name, entry in lost.items() if name in columns]
        right.barh(
            at, [100 * entry.lost for entry in drawn], xerr=[200 * entry.error for entry in drawn],
            **LOOKS[1].area, error_kw={"ecolor": INK, "capsize": 2, "elinewidth": 1.2},
        )  # fmt: skip
        right.axvline(0, color=INK, linewidth=1)
        right.set_title(f"points lost without it,\n{drawn[0].kind}" if drawn else "")
    else:
        right.set_axis_off()
    right.tick_params(left=False)
    right.margins(x=0.1)
    figure.suptitle(plain(subject, 60))
    figure.supxlabel(
        "* raises the alarm   - no group has rows with and without a value", fontsize=10, color=SOFT
    )
    return figure
