# SPDX-License-Identifier: Apache-2.0
"""Plots of simulated cards: throughput, latency, fairness and utilisation over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from n3ic.systems.card.simulation.report import PolicyFigures
from n3ic.util.pictures import PALE, legend, look, new_page, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def comparison(policies: Sequence[PolicyFigures], seconds: float) -> Figure:
    """Draw a column for each policy, with bandwidth, latency, fairness and utilisation as rows.

    Args:
        policies: figures of the policies.
        seconds: simulated time.
    """
    figure = new_page(max(8.0, 4.2 * len(policies)), 13)
    axes = figure.subplots(4, len(policies), squeeze=False)
    bins = len(policies[0].jain_over_time)
    middles = (np.arange(bins) + 0.5) * seconds / bins * 1e3
    # One latency axis for all columns; twice the slowest percentile leaves room above its bar.
    slowest = max(t.latency_ns.get("p99.9", 1e3) for f in policies for t in f.tenants) / 1e3 * 2
    for column, policy in enumerate(policies):
        speed, latency, fair, use = axes[:, column]
        names = [plain(t.name, 12) for t in policy.tenants]
        for number, tenant in enumerate(policy.tenants):
            own, marks = look(number), {"markevery": max(1, bins // 6), "markersize": 5}
            speed.plot(middles, tenant.timeline_gbps, **own.curve, **marks, label=names[number])
            speed.axhline(tenant.entitled_gbps, color=own.colour, linestyle=":", linewidth=1.2)
        at = np.arange(len(names))
        for i, key in enumerate(("p50", "p99", "p99.9")):
            heights = [t.latency_ns.get(key, 0.0) / 1e3 for t in policy.tenants]
            latency.bar(at + (i - 1) * 0.27, heights, 0.25, label=key, **look(4 + i).area)
        latency.set_xticks(at, names)
        fair.plot(middles, policy.jain_over_time, **look(0).line)
        image = use.imshow(
            np.asarray(policy.utilisation_over_time).T,
            aspect="auto",
            origin="lower",
            vmin=0,
            vmax=1,
            extent=(0, seconds * 1e3, -0.5, len(policy.regions) - 0.5),
            cmap="cividis",
        )
        use.set_yticks(range(len(policy.regions)))
        speed.set_title(plain(policy.policy, 24))
        for panel in (speed, latency, fair):
            panel.grid(color=PALE)
        fair.set_ylim(0, 1.05)
        latency.set_yscale("log")
        latency.set_ylim(0.1, slowest)
        use.set_xlabel("ms")
        if column == 0:
            speed.set_ylabel("Gb/s (dotted: due)")
            latency.set_ylabel("latency, us")
            fair.set_ylabel("Jain's index")
            use.set_ylabel("region")
    # Columns compare only if all share the scale of the bandwidth axis.
    top = max(ax.get_ylim()[1] for ax in axes[0])
    for ax in axes[0]:
        ax.set_ylim(0, top)
    figure.colorbar(image, ax=axes[3, :].tolist(), label="busy")
    figure.suptitle("simulated")
    legend(figure, axes[0, 0], axes[1, 0], columns=8)
    return figure
