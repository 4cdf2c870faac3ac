"""Scaling curves of simulated kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Literal

from n3ic.cluster.simulation.experiments import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 110
_COLUMNS = 4


def write_scaling(
    points: Sequence[Point], weak: bool, stream: IO[bytes], kind: Literal["png", "svg"]
) -> None:
    """Draw a sweep; the bytes depend on the figures alone.

    Args:
        points: of one or more kernels.
        weak: whether the problems grew with the nodes.
        stream: what is written to.
        kind: the format.
    """
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "n3ic"}):
        what = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        scaling_figure(points, weak).savefig(stream, dpi=_DPI, format=kind, metadata=what)


def scaling_figure(points: Sequence[Point], weak: bool) -> Figure:
    """A panel a kernel: speed-up over one big node, or of weak scaling the efficiency."""
    from matplotlib.figure import Figure

    kernels = list(dict.fromkeys(p.kernel for p in points))
    columns = min(_COLUMNS, len(kernels))
    rows = -(-len(kernels) // columns)
    figure = Figure(figsize=(3.2 * columns, 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(kernels) :]:
        panel.set_axis_off()
    for panel, kernel in zip(panels, kernels, strict=False):
        mine = [p for p in points if p.kernel == kernel]
        counts = [p.nodes for p in mine]
        ideal = [1.0] * len(counts) if weak else [float(n) for n in counts]
        panel.plot(counts, [p.one_s / p.data_s for p in mine], "o-", label="data-centric")
        panel.plot(counts, [p.one_s / p.compute_s for p in mine], "s--", label="compute-centric")
        panel.plot(counts, ideal, ":", color="black", label="ideal")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xticks(counts, [str(n) for n in counts])
        panel.set_title(kernel)
    for panel in panels[len(kernels) - columns : len(kernels)]:
        panel.set_xlabel("nodes")
    what = "efficiency (one big node / this)" if weak else "speed-up over one big node"
    for panel in panels[::columns]:
        panel.set_ylabel(what)
    panels[0].legend(fontsize="small")
    figure.suptitle("weak scaling, simulated" if weak else "strong scaling, simulated")
    return figure
