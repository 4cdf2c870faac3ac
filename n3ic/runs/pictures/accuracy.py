# SPDX-License-Identifier: Apache-2.0
"""Accuracy against what a network costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from n3ic.util.pictures import INK, PALE, legend, look, new_figure, plain, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_AXES = {
    "bytes": "bytes in total, cuts included",
    "bits": "input bits",
    "sites": "LUT sites, unrolled (estimated)",
    "latency_ns": "latency, ns (estimated)",
}


@dataclass(frozen=True)
class SizePoint:
    """A network, or several that differ only in their seed.

    Attributes:
        size: costs by axis: ``bytes``, ``bits``, ``sites``, ``latency_ns`` or others.
        accuracies: accuracy of each seed's network on held-out rows.
        series: name of the point's curve, such as a recipe or a kind of network.
        label: text beside the point.
    """

    size: Mapping[str, float]
    accuracies: tuple[float, ...]
    series: str = ""
    label: str = ""

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds."""
        return float(np.mean(self.accuracies))

    @property
    def deviation(self) -> float:
        """Sample standard deviation over the seeds; 0 for a single seed."""
        return float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else 0.0


@styled
def accuracy_against(
    points: Sequence[SizePoint],
    x: str = "bytes",
    *,
    title: str = "",
    xlabel: str = "",
    front: bool = False,
    levels: Mapping[str, float] | None = None,
) -> Figure:
    """Accuracy against a size, on a logarithmic axis; means and deviations over the seeds.

    Args:
        points: networks; those without that size are not drawn.
        x: name of the size.
        title: title of the picture, such as the held-out rows of the accuracies.
        xlabel: label of the axis; known sizes have one.
        front: draw the Pareto front in steps: the best mean accuracy up to each size. A network
            that was chosen on these very rows looks better than it is.
        levels: accuracies, 0 to 1, of classifiers without a size, by name: horizontal lines.

    Raises:
        ValueError: no point has that size.
    """
    figure, axes = new_figure(7.0, 5.4)
    draw_accuracy(axes, points, x, front=front, levels=levels)
    axes.set_xlabel(xlabel or _AXES.get(x, plain(x)))
    axes.set_ylabel("accuracy on held-out rows, %")
    if title:
        axes.set_title(plain(title, 70))
    legend(figure)
    return figure


def draw_accuracy(
    axes: Axes,
    points: Sequence[SizePoint],
    x: str,
    *,
    front: bool = False,
    levels: Mapping[str, float] | None = None,
    order: Sequence[str] = (),
) -> None:
    """Draw :func:`accuracy_against` into axes, without titles and without a legend.

    Args:
        axes: the axes, in :func:`~n3ic.util.pictures.style`.
        points: networks; those without that size are not drawn.
        x: name of the size.
        front: draw the Pareto front.
        levels: accuracies of classifiers without a size, by name.
        order: names of all series, so that a series looks the same in several pictures.

    Raises:
        ValueError: no point has that size.
    """
    points_drawn = [p for p in points if x in p.size]
    if not points_drawn:
        raise ValueError(f"no point has a size {x!r}")
    names = list(dict.fromkeys([*order, *(p.series for p in points_drawn), *(levels or {})]))
    for name in dict.fromkeys(p.series for p in points_drawn):
        series_points = sorted(
            (p for p in points_drawn if p.series == name), key=lambda p: p.size[x]
        )
        axes.errorbar(
            [p.size[x] for p in series_points], [100 * p.mean for p in series_points],
            [100 * p.deviation for p in series_points], capsize=3, label=plain(name) or None,
            **look(names.index(name)).curve,
        )  # fmt: skip
        for p in series_points:
            if p.label:
                axes.annotate(
                    plain(p.label, 24), (p.size[x], 100 * p.mean), (5, -11),
                    textcoords="offset points", fontsize=10, annotation_clip=True,
                )  # fmt: skip
    if front:
        best = pareto_front(points_drawn, x)
        axes.step(
            [p.size[x] for p in best], [100 * p.mean for p in best], where="post", color=INK,
            linewidth=1.2, linestyle=(0, (1, 1)), label="Pareto front",
        )  # fmt: skip
    for name, value in (levels or {}).items():
        axes.axhline(100 * value, **look(names.index(name)).line, label=plain(name))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
    axes.grid(color=PALE)


def pareto_front(points: Sequence[SizePoint], x: str) -> list[SizePoint]:
    """Points for which no other is as accurate and smaller, or as small and more accurate.

    Returns:
        The points by size; the first of equal ones.
    """
    out: list[SizePoint] = []
    for p in sorted(points, key=lambda p: (p.size[x], -p.mean)):  # of equal sizes, the best first
        if not out or p.mean > out[-1].mean:
            out.append(p)
    return out
