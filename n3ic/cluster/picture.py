"""The picture of a plan: what each node holds, and what other placements would give."""

from __future__ import annotations

from itertools import pairwise
from typing import IO, TYPE_CHECKING, Literal

from n3ic.cluster.costs import weight_bytes
from n3ic.cluster.plan import Plan
from n3ic.model.network import shape_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 120
_MOST_LABELS = 24  # nodes whose names are written out


def write_picture(plan: Plan, stream: IO[bytes], kind: Literal["png", "svg"]) -> None:
    """Draw a plan; the bytes depend on the plan alone.

    Args:
        plan: the plan.
        stream: what is written to.
        kind: the format.
    """
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "n3ic"}):
        what = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        plan_figure(plan).savefig(stream, dpi=_DPI, format=kind, metadata=what)


def plan_figure(plan: Plan) -> Figure:
    """Memory of the nodes, a colour a layer, and rates and latencies of plain placements."""
    from matplotlib.figure import Figure

    height = max(3.6, 0.3 * min(len(plan.cluster.nodes), 60))
    figure = Figure(figsize=(11, height), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_memory(left, plan)
    _draw_alternatives(right, plan)
    figure.suptitle(
        f"{shape_text(plan.placement.shape)} on {len(plan.cluster.nodes)} nodes, estimated"
    )
    return figure


def _draw_memory(axes: Axes, plan: Plan) -> None:
    nodes = plan.cluster.nodes
    begun = [0.0] * len(nodes)
    layers = zip(plan.placement.layers, pairwise(plan.placement.shape), strict=True)
    for number, (layer, (inputs, neurons)) in enumerate(layers):
        held = weight_bytes(layer, inputs, neurons)
        widths = [held.get(i, 0) / 1e6 for i in range(1, len(nodes) + 1)]
        axes.barh(
            range(len(nodes)),
            widths,
            left=begun,
            color=f"C{number}",
            label=f"layer {number}: {inputs}-{neurons}, {layer.split.value}",
        )
        begun = [a + b for a, b in zip(begun, widths, strict=True)]
    for i, node in enumerate(nodes):
        axes.plot([node.bytes / 1e6] * 2, [i - 0.45, i + 0.45], color="black", linewidth=1.5)
    if len(nodes) <= _MOST_LABELS:
        axes.set_yticks(range(len(nodes)), [f"{n.name} ({n.target})" for n in nodes])
    axes.invert_yaxis()
    axes.set_xlabel("MB of weights (line: what the memory holds)")
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.2))


def _draw_alternatives(axes: Axes, plan: Plan) -> None:
    found = [("this plan", plan.expected)]
    found += [(a.name, a.expected) for a in plan.alternatives if a.expected is not None]
    missing = [a.name for a in plan.alternatives if a.expected is None]
    axes.barh(range(len(found)), [e.rows_per_s for _, e in found], color="#c8c8c8")
    for i, (_, one) in enumerate(found):
        text = f" {one.latency_s * 1e6:,.0f} us, {one.packets:,.0f} packets"
        axes.text(0, i, text, va="center", fontsize="small")
    axes.set_yticks(range(len(found)), [name for name, _ in found])
    axes.invert_yaxis()
    axes.set_xlabel("rows/s; text: a row alone")
    if missing:
        axes.set_title(f"does not fit: {', '.join(missing)}", fontsize="small")
