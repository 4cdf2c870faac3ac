# SPDX-License-Identifier: Apache-2.0
"""Scaling curves of simulated kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from n3ic.util.pictures import INK, PALE, legend, look, new_page, plain, styled
from scripts.fcsn.experiments import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 4


@styled
def scaling_figure(points: Sequence[Point], weak: bool) -> Figure:
    """Draw one panel per kernel: speed-up over one big node, or efficiency for weak scaling."""
    kernels = list(dict.fromkeys(p.kernel for p in points))
    columns = min(_COLUMNS, len(kernels))
    rows = -(-len(kernels) // columns)
    figure = new_page(max(6.4, 3.2 * columns), 3.0 * rows + 0.9)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    # Panels of the grid that have no kernel stay empty.
    for panel in panels[len(kernels) :]:
        panel.set_axis_off()
    for panel, kernel in zip(panels, kernels, strict=False):
        mine = [p for p in points if p.kernel == kernel]
        counts = [p.nodes for p in mine]
        ideal = [1.0] * len(counts) if weak else [float(n) for n in counts]
        data = [p.one_s / p.data_s for p in mine]
        compute = [p.one_s / p.compute_s for p in mine]
        panel.plot(counts, data, **look(0).curve, label="data-centric")
        panel.plot(counts, compute, **look(1).curve, label="compute-centric")
        panel.plot(counts, ideal, ":", color=INK, linewidth=1.2, label="ideal")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xticks(counts, [str(n) for n in counts])
        panel.minorticks_off()
        panel.yaxis.set_major_formatter(lambda v, _: f"{v:g}")
        panel.grid(color=PALE)
        panel.set_title(plain(kernel, 24))
    for panel in panels[len(kernels) - columns : len(kernels)]:
        panel.set_xlabel("nodes")
    what = "efficiency (one big node / this)" if weak else "speed-up over one big node"
    figure.supylabel(what)
    legend(figure)
    figure.suptitle("weak scaling, simulated" if weak else "strong scaling, simulated")
    return figure
