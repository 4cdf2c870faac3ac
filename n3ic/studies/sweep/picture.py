# SPDX-License-Identifier: Apache-2.0
"""The picture of a sweep: accuracy against each cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from n3ic.runs.pictures.accuracy import draw_accuracy
from n3ic.util.pictures import legend, new_page, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from n3ic.runs.pictures.accuracy import SizePoint

_AXES = {
    "bytes": "bytes in total, cuts included",
    "sites": "LUT sites (estimated)",
    "latency_ns": "latency, ns (estimated)",
}

_NARROW = 4  # ratio of the largest to the smallest size below which the axis is linear


@styled
def front_figure(
    subject: str,
    costs: Sequence[str],
    sizes: Sequence[SizePoint],
    other_families: Sequence[SizePoint],
) -> Figure:
    """Draw the accuracy on validation rows against each known cost, with its Pareto front.

    Args:
        subject: the sweep in words.
        costs: names of the costs.
        sizes: the sweep's points.
        other_families: points of other families, which have bytes alone.
    """
    figure = new_page(4.6 * len(costs) + 0.6, 4.8)
    grid = figure.subplots(1, len(costs), squeeze=False, sharey=True)
    for axes, cost in zip(grid[0], costs, strict=True):
        order = [p.series for p in (*sizes, *other_families)]
        draw_accuracy(axes, sizes, cost, front=True, order=order)
        if cost == "bytes" and other_families:
            draw_accuracy(axes, other_families, cost, order=order)
        axes.set_xlabel(_AXES[cost])
        every = [p.size[cost] for p in sizes if cost in p.size]
        if max(every) < _NARROW * min(every):  # a logarithmic axis would have hardly a tick
            axes.set_xscale("linear")
            axes.xaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
            axes.locator_params(axis="x", nbins=5, integer=True)
    low, high = grid[0][0].get_ylim()
    # Accuracy ends at 100 %; a margin of 2 % keeps its marks inside the frame.
    grid[0][0].set_ylim(low, min(high, 100 + 0.02 * (100 - low)))
    grid[0][0].set_ylabel("accuracy on validation rows, %")
    figure.suptitle(plain(subject, 90))
    legend(figure)
    return figure
