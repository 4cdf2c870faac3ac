# SPDX-License-Identifier: Apache-2.0
"""The picture of a plan: memory use of each node, and estimates of other placements."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from n3ic.model.network import shape_text
from n3ic.systems.cluster.costs import weight_bytes
from n3ic.systems.cluster.plan import ClusterPlan
from n3ic.util.pictures import INK, PALE, legend, look, new_page, plain, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LABELS = 24  # nodes whose names are written out


@styled
def plan_figure(plan: ClusterPlan) -> Figure:
    """Draw the nodes' memory, one colour per layer, and rates and latencies of other placements."""
    height = max(4.4, 0.34 * min(len(plan.cluster.nodes), 60) + 1.5)
    figure = new_page(12, height)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_memory(left, plan)
    _draw_alternatives(right, plan)
    legend(figure, left, columns=2)
    figure.suptitle(
        f"{shape_text(plan.placement.shape)} on {len(plan.cluster.nodes)} nodes, estimated"
    )
    return figure


def _draw_memory(axes: Axes, plan: ClusterPlan) -> None:
    nodes = plan.cluster.nodes
    begun = [0.0] * len(nodes)
    layers = zip(plan.placement.layers, pairwise(plan.placement.shape), strict=True)
    for number, (layer, (inputs, neurons)) in enumerate(layers):
        bytes_of = weight_bytes(layer, inputs, neurons)
        widths = [bytes_of.get(i, 0) / 1e6 for i in range(1, len(nodes) + 1)]
        axes.barh(
            range(len(nodes)),
            widths,
            left=begun,
            **look(number).area,
            label=f"layer {number}: {inputs}-{neurons}, {layer.split.value}",
        )
        # Bars of the layers are stacked, so each starts where the one before ends.
        begun = [a + b for a, b in zip(begun, widths, strict=True)]
    for i, node in enumerate(nodes):
        axes.plot([node.bytes / 1e6] * 2, [i - 0.45, i + 0.45], color=INK, linewidth=2.5)
    if len(nodes) <= _MOST_LABELS:
        axes.set_yticks(range(len(nodes)), [plain(f"{n.name} ({n.target})", 24) for n in nodes])
    axes.invert_yaxis()
    axes.set_xlabel("MB of weights (line: what the memory holds)")


def _draw_alternatives(axes: Axes, plan: ClusterPlan) -> None:
    estimates = [("this plan", plan.expected)]
    estimates += [(a.name, a.expected) for a in plan.alternatives if a.expected is not None]
    missing = [a.name for a in plan.alternatives if a.expected is None]
    axes.barh(range(len(estimates)), [e.rows_per_s for _, e in estimates], color=PALE)
    for i, (_, one) in enumerate(estimates):
        text = f" {one.latency_s * 1e6:,.0f} us, {one.packets:,.0f} packets"
        axes.text(0, i, text, va="center")
    axes.set_yticks(range(len(estimates)), [plain(name, 24) for name, _ in estimates])
    axes.invert_yaxis()
    axes.set_xlabel("rows/s; text: a row alone")
    if missing:
        axes.set_title(plain(f"does not fit: {', '.join(missing)}", 60))
