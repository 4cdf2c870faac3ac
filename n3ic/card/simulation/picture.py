"""Plots of simulated cards: throughput, latency, fairness and utilisation over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from n3ic.card.simulation.report import PolicyFigures
from n3ic.util.files import new_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 120


def comparison(found: Sequence[PolicyFigures], seconds: float) -> Figure:
    """A column a policy; rows: tenants' bandwidth, their latency, fairness, regions' use.

    Args:
        found: figures of the policies.
        seconds: that were simulated.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(found), 11), layout="constrained")
    axes = figure.subplots(4, len(found), squeeze=False)
    bins = len(found[0].jain_over_time)
    middles = (np.arange(bins) + 0.5) * seconds / bins * 1e3
    slowest = max(t.latency_ns.get("p99.9", 1e3) for f in found for t in f.tenants) / 1e3 * 2
    for column, policy in enumerate(found):
        speed, latency, fair, use = axes[:, column]
        for tenant in policy.tenants:
            (line,) = speed.plot(middles, tenant.timeline_gbps, label=tenant.name)
            speed.axhline(tenant.entitled_gbps, color=line.get_color(), linestyle=":", linewidth=1)
        names = [t.name for t in policy.tenants]
        at = np.arange(len(names))
        for i, (key, colour) in enumerate((("p50", "C7"), ("p99", "C1"), ("p99.9", "C3"))):
            heights = [t.latency_ns.get(key, 0.0) / 1e3 for t in policy.tenants]
            latency.bar(at + (i - 1) * 0.27, heights, 0.25, label=key, color=colour)
        latency.set_xticks(at, names)
        fair.plot(middles, policy.jain_over_time, color="C2")
        image = use.imshow(
            np.asarray(policy.utilisation_over_time).T,
            aspect="auto",
            origin="lower",
            vmin=0,
            vmax=1,
            extent=(0, seconds * 1e3, -0.5, len(policy.regions) - 0.5),
            cmap="viridis",
        )
        use.set_yticks(range(len(policy.regions)))
        speed.set_title(policy.policy)
        fair.set_ylim(0, 1.05)
        latency.set_yscale("log")
        latency.set_ylim(0.1, slowest)
        use.set_xlabel("ms")
        if column == 0:
            speed.set_ylabel("Gb/s (dotted: due)")
            latency.set_ylabel("latency, us")
            fair.set_ylabel("Jain's index")
            use.set_ylabel("region")
            speed.legend(fontsize="small")
            latency.legend(fontsize="small")
    top = max(ax.get_ylim()[1] for ax in axes[0])
    for ax in axes[0]:
        ax.set_ylim(0, top)
    figure.colorbar(image, ax=axes[3, :].tolist(), label="busy")
    figure.suptitle("simulated")
    return figure


def write(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG whose bytes depend on the picture alone."""
    with new_file(path) as stream:
        figure.savefig(stream, format="png", dpi=DPI, metadata={"Software": None})
