# SPDX-License-Identifier: Apache-2.0
"""The picture of a planned card: regions with their chains, and the tenants' shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from n3ic.systems.card.plan import CardPlan
from n3ic.util.pictures import INK, PALE, Look, legend, look, new_page, plain, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NAMES = 12  # task names of a chain to write out


@styled
def plan_figure(planned: CardPlan) -> Figure:
    """Draw regions on the left, and the tenants' shares and rates on the right."""
    longest = max(min(len(r.chain), _MOST_NAMES) for r in planned.regions)
    height = max(4.5, 0.32 * len(planned.regions) * (longest + 2))
    figure = new_page(12, min(height, 30))
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_regions(left, planned)
    _draw_shares(right, planned)
    figure.suptitle(f"{plain(planned.card.name)}: {len(planned.shares)} tenants")
    legend(figure, right, columns=4)
    return figure


def _draw_regions(axes: Axes, planned: CardPlan) -> None:
    """Draw one box per region, with its chain from left to right in the tenant's style."""
    from matplotlib.patches import Rectangle

    looks = _looks(planned)
    # Only a region's own area can fill up; rates are drawn on the right.
    bounded = [r for r in planned.resources if r.within == "region" and r.per == "instance"]
    for i, region in enumerate(planned.regions):
        y = len(planned.regions) - 1 - i
        axes.add_patch(Rectangle((0, y + 0.08), 1, 0.84, fill=False, linewidth=1.2))
        used = [
            f"{r.name} {100 * region.used[r.name] / r.capacity:.3g} %"
            for r in bounded
            if r.capacity
        ]
        title = f"region {region.index}: " + (", ".join(used) if region.chain else "free")
        axes.text(0.01, y + 0.86, plain(title, 60), va="top", fontsize=10)
        shown = region.chain[:_MOST_NAMES]
        width = 0.98 / max(len(shown), 1)
        for k, name in enumerate(shown):
            x = 0.01 + k * width
            more = len(region.chain) - len(shown)
            # The last box stands for all tasks that have no room.
            last = more and k == len(shown) - 1
            owner = name.partition("/")[0] if "/" in name else ""
            area = looks[owner].area if owner in looks else {"facecolor": PALE}
            axes.add_patch(Rectangle((x, y + 0.14), width * 0.9, 0.42, **area))
            label = f"+{more + 1}" if last else plain(name.rpartition("/")[2], 12)
            axes.text(
                x + 0.45 * width,
                y + 0.35,
                label,
                ha="center",
                va="center",
                fontsize=10,
                rotation=90 if len(shown) > 6 else 0,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
            )
    axes.set_xlim(0, 1)
    axes.set_ylim(0, len(planned.regions))
    axes.set_axis_off()
    axes.set_title("regions and chains")


def _draw_shares(axes: Axes, planned: CardPlan) -> None:
    """Draw bars of each resource's shares by tenant, and the wanted shares beyond them."""
    looks = _looks(planned)
    names = [r.name for r in planned.resources if r.capacity is not None]
    height = 0.8 / len(planned.shares)
    for i, share in enumerate(planned.shares):
        at = [k + (i + 0.5) * height - 0.4 for k in range(len(names))]
        demands = [100 * share.demand[n] for n in names]
        granted = [100 * share.granted[n] for n in names]
        axes.barh(at, demands, height, color="none", edgecolor=INK, linestyle=":")
        axes.barh(at, granted, height, **looks[share.tenant].area, label=plain(share.tenant, 24))
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("share of the card in % (dotted: wanted)")
    axes.set_title("shares")


def _looks(planned: CardPlan) -> dict[str, Look]:
    """Assign a style to each tenant; shared tasks stay grey."""
    return {s.tenant: look(i) for i, s in enumerate(planned.shares)}
