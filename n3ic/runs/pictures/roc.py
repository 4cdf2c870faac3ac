# SPDX-License-Identifier: Apache-2.0
"""ROC curves, no finer than the negatives allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from n3ic.evaluation.interval import LEVEL
from n3ic.evaluation.roc import RocCurve
from n3ic.util.pictures import PALE, legend, look, new_figure, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def roc_figure(curves: Mapping[str, RocCurve], rows: str, positive: str = "") -> Figure:
    """ROC curves on a logarithmic axis of false positives that begins at 1/negatives.

    With N negatives, no rate between 0 and 1/N can be observed. A curve is a staircase: its value
    at x is the largest true positive rate at a false positive rate of at most x. The first curve
    has the confidence band of :meth:`~n3ic.evaluation.roc.RocCurve.band`.

    Args:
        curves: curves of the same rows by name, the network's first.
        rows: description of the held-out rows.
        positive: name of the positive class.

    Raises:
        ValueError: there is no curve.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if not curves:
        raise ValueError("expected at least one ROC curve")
    figure, axes = new_figure(6.8, 6.2)
    first = next(iter(curves.values()))
    x, low, high = first.band()
    for number, (name, curve) in enumerate(curves.items()):
        fpr, tpr = curve.steps()
        axes.plot(
            fpr, 100 * tpr, **look(number).line, drawstyle="steps-post",
            linewidth=1.5 if number else 2.8, zorder=3 - 0.1 * number,
            label=f"{plain(name, 24)}: {curve.area:.4f}",
        )  # fmt: skip
    axes.fill_between(
        x, 100 * low, 100 * high, color=look(0).colour, alpha=0.18, linewidth=0,
        label=f"{LEVEL:.0%} band of the first",
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(first.least, 1)
    axes.set_ylim(0, 101)
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(
        f"false positive rate, %\n(from 1 of {first.negatives:,} negatives on; lower ones cannot "
        "be seen)"
    )
    axes.set_ylabel("true positive rate, %")
    axes.grid(color=PALE)
    title = f"ROC of class {plain(positive, 24)}" if positive else "ROC"
    axes.set_title(f"{title}\n{plain(rows, 60)}")
    legend(figure, columns=2, title="area under each curve")
    return figure
