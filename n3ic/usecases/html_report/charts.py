# SPDX-License-Identifier: Apache-2.0
"""Charts of the report page: pictures small enough for a phone, each with a description.

They show the same data as the wider pictures of :mod:`n3ic.runs.pictures`. On a dark page, the
style sheet inverts their brightness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from n3ic.evaluation.calibration import MarginGroup
from n3ic.evaluation.importance import FeatureImportance
from n3ic.evaluation.roc import RocCurve
from n3ic.util.pictures import (
    INK,
    PALE,
    look,
    new_figure,
    new_page,
    plain,
    png_url,
    styled,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 4.4, 3.9  # inches; type of 12 points is then 13 pixels high on a phone
_BARS = 12
_NAME = 16  # characters of a feature's name
_POINTS = 200
ROC = "ROC"


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        title: a heading.
        words: a description, shown below the picture and read to those who cannot see it.
        picture: a PNG file as a data URL.
    """

    title: str
    words: str
    picture: str


def roc_chart(curve: RocCurve, words: str) -> Chart:
    """A ROC curve with its band, on a logarithmic axis that begins at a rate of 1/negatives."""
    return Chart(ROC, words, png_url(roc_figure(curve)))


def calibration_chart(groups: Sequence[MarginGroup], words: str) -> Chart:
    """Observed accuracy by margin, with its intervals."""
    return Chart("Calibration of the margin", words, png_url(calibration_figure(groups)))


def importance_chart(importance: Sequence[FeatureImportance], words: str) -> Chart:
    """Bars of the most important features: accuracy lost, and chi-squared of the best bit."""
    return Chart("What the accuracy rests on", words, png_url(importance_figure(importance)))


@styled
def roc_figure(curve: RocCurve) -> Figure:
    """The picture of :func:`roc_chart`."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axes = new_figure(_WIDTH, _HEIGHT)
    rates, low, high = curve.band(points=_POINTS)
    fpr, tpr = curve.steps(_POINTS)
    axes.fill_between(rates, 100 * low, 100 * high, color=look(0).colour, alpha=0.25, linewidth=0)
    axes.plot(fpr, 100 * tpr, **look(0).line, drawstyle="steps-post")
    axes.set(xscale="log", ylim=(0, 101))
    if curve.least < 1:
        axes.set_xlim(curve.least, 1)
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"false positive rate, %\n(from 1 of {curve.negatives:,} on)")
    axes.set_ylabel("true positive rate, %")
    axes.grid(color=PALE)
    return figure


@styled
def calibration_figure(groups: Sequence[MarginGroup]) -> Figure:
    """The picture of :func:`calibration_chart`."""
    figure, axes = new_figure(_WIDTH, _HEIGHT)
    share = [100 * g.accuracy for g in groups]
    axes.errorbar(
        [(g.least + g.most) / 2 for g in groups],
        share,
        yerr=[
            [max(0.0, s - 100 * g.low) for s, g in zip(share, groups, strict=True)],
            [max(0.0, 100 * g.high - s) for s, g in zip(share, groups, strict=True)],
        ],
        xerr=[(g.most - g.least + 0.8) / 2 for g in groups],
        fmt="none",
        ecolor=look(0).colour,
    )
    axes.set_ylim(top=101)
    axes.set_xlim(left=-0.5)  # margin 0 must not lie on the axis
    whole_numbers(axes.xaxis)
    axes.set_xlabel("margin (best score less second best)")
    axes.set_ylabel("right, %")
    axes.grid(axis="y", color=PALE)
    return figure


@styled
def importance_figure(importance: Sequence[FeatureImportance]) -> Figure:
    """The picture of :func:`importance_chart`."""
    from matplotlib.ticker import MaxNLocator

    features = importance[:_BARS]
    figure = new_page(_WIDTH, 1.2 + 0.27 * len(features))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(5, 3))
    at = range(len(features))
    left.barh(at, [100 * f.accuracy for f in features], **look(0).area)
    right.barh(at, [f.phi2 for f in features], **look(1).area)
    left.set_yticks(at, [plain(f.feature, _NAME) for f in features])
    left.set_ylim(len(features) - 0.4, -0.6)
    left.axvline(0, color=INK, linewidth=1)
    left.set_xlabel("points lost\nif permuted")
    right.set_xlabel("best bit\n(chi²/rows)")
    left.xaxis.set_major_locator(MaxNLocator(2))
    most = max((f.phi2 for f in features), default=0.0)
    right.set_xticks([0, most] if most > 0 else [0], ["0", f"{most:.2g}"][: 1 + (most > 0)])
    for axes in (left, right):
        axes.grid(axis="x", color=PALE)
        axes.tick_params(axis="y", length=0)
    return figure
