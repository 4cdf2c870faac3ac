# SPDX-License-Identifier: Apache-2.0
"""Policies of sharing a card: n3ic's, after SuperNIC, and the baselines it is compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from n3ic.systems.card.control.scenario import PlacedChain, Scenario, SimTenant
from n3ic.systems.card.driver import Chain


@dataclass(frozen=True)
class SharingPolicy:
    """How a card is shared.

    Attributes:
        name: name on the command line.
        title: one line for tables.
        spaces: how regions are assigned. ``plan`` takes the plan as it is. The others give tenants
            regions of their own: the same number each (``equal``), or by dominant shares of area
            and bandwidth (``drf``).
        chained: whether a packet runs through a chain at once; else it passes the scheduler for
            each task.
        adapts: whether ingress rates follow the load, and regions are launched and given back.
    """

    name: str
    title: str
    spaces: str
    chained: bool
    adapts: bool


POLICIES: Mapping[str, SharingPolicy] = {
    p.name: p
    for p in (
        SharingPolicy("chains", "chains of tasks, DRF and DRFQ (the plan)", "plan", True, True),
        SharingPolicy("drf", "own regions by DRF, no time sharing", "drf", True, False),
        SharingPolicy("static", "the same number of own regions each", "equal", True, False),
        SharingPolicy(
            "per-task", "scheduling per task, after PANIC; fair queueing", "plan", False, False
        ),
    )
}


def placement(policy: SharingPolicy, scenario: Scenario) -> tuple[PlacedChain, ...]:
    """Return the chain of each region at the start, from region 0."""
    if policy.spaces == "plan":
        # A chain that nobody uses yet is launched when its tenant arrives.
        return scenario.chains_used(at_start=policy.adapts)
    counts = _regions_of(policy, scenario)
    placed: list[PlacedChain] = []
    for tenant in scenario.tenants:
        chains = own_regions(scenario, tenant, counts[tenant.name])
        placed += [PlacedChain(c, tenant.name) for c in chains]
        # A tenant's own region stays empty if the tenant cannot use it.
        placed += [PlacedChain((), tenant.name)] * (counts[tenant.name] - len(chains))
    return tuple(placed)


def own_regions(scenario: Scenario, tenant: SimTenant, count: int) -> tuple[Chain, ...]:
    """Choose the chains of a tenant's own regions: one of each, then the fullest ones again.

    Returns:
        One chain per region; empty if the regions are too few for the tenant's graphs.
    """
    needed = packed(scenario, tenant)
    if not needed or len(needed) > count:
        return ()
    fills: dict[str, float] = {}  # instances of each task that the entitled rate fills
    for graph in scenario.graphs:
        if graph.tenant == tenant.name:
            for task, seconds in scenario.times(graph).items():
                fills[task] = fills.get(task, 0.0) + graph.entitled * seconds
    have = dict.fromkeys(needed, 1)
    # A graph is as fast as its slowest chain, so further instances go to the fullest chain.
    while sum(have.values()) < count:
        have[max(needed, key=lambda c: (max(fills[t] for t in c) / have[c], c))] += 1
    return tuple(chain for chain, n in have.items() for _ in range(n))


def packed(scenario: Scenario, tenant: SimTenant) -> tuple[Chain, ...]:
    """Pack the tasks of a tenant's graphs into regions by first fit.

    A packet passes tasks of one region at once if its graph has them in series. Parallel branches
    may share a region, too; they then pass the scheduler one by one.
    """
    chains: list[Chain] = []
    for graph in scenario.graphs:
        if graph.tenant != tenant.name:
            continue
        for whole in graph.chains:
            for chain in scenario.split(whole):
                # A task that two graphs use is placed once: both run through the same instance.
                new = tuple(t for t in chain if not any(t in c for c in chains))
                room = next((i for i, c in enumerate(chains) if _fits(c + new, scenario)), None)
                if not new:
                    continue
                if room is None:
                    chains.append(new)
                else:
                    chains[room] += new
    return tuple(chains)


def _fits(chain: Chain, scenario: Scenario) -> bool:
    return sum(scenario.tasks[t].area for t in chain) <= scenario.region_area + 1e-9


def _regions_of(policy: SharingPolicy, scenario: Scenario) -> dict[str, int]:
    """Return the number of own regions of each tenant."""
    tenants = scenario.tenants
    if policy.spaces == "equal":
        return {t.name: scenario.regions // len(tenants) for t in tenants}
    demand = {}
    for tenant in tenants:
        graphs = [g for g in scenario.graphs if g.tenant == tenant.name]
        # area times wanted over greatest bandwidth (SuperNIC, section IV-E, step 1)
        demand[tenant.name] = sum(
            scenario.tasks[task].area * seconds * g.entitled
            for g in graphs
            for task, seconds in scenario.times(g).items()
        )
    # Below this number of regions a tenant's graphs cannot run at all.
    least = {t.name: len(packed(scenario, t)) for t in tenants}
    room = scenario.regions * scenario.region_area
    dominant = _equal_shares(demand, {t.name: t.weight for t in tenants}, room)
    return _whole(dominant, least, scenario.regions, scenario.region_area)


def _equal_shares(
    demand: Mapping[str, float], weight: Mapping[str, float], room: float
) -> dict[str, float]:
    """Compute the area of each tenant: by weight up to its demand, then the rest by weight."""
    shares = dict.fromkeys(demand, 0.0)
    for caps in (demand, dict.fromkeys(demand, math.inf)):
        open_ = {t for t in demand if shares[t] < caps[t]}
        # Water filling: each round meets a demand or uses up the area, so it ends after n rounds.
        while open_ and room > 1e-9:
            total = sum(weight[t] for t in open_)
            step = min(room / total, *((caps[t] - shares[t]) / weight[t] for t in open_))
            for tenant in open_:
                shares[tenant] += step * weight[tenant]
            room -= step * total
            open_ = {t for t in open_ if caps[t] - shares[t] > 1e-9}
    return shares


def _whole(
    area: Mapping[str, float], least: Mapping[str, int], regions: int, region_area: float
) -> dict[str, int]:
    """Round areas to regions by the largest remainders, with enough for each tenant to run."""
    exact = {t: a / region_area for t, a in area.items()}
    counts = {t: max(int(x + 1e-9), min(least[t], regions)) for t, x in exact.items()}
    order: Sequence[str] = sorted(exact, key=lambda t: (counts[t] - exact[t], t))
    for tenant in order:
        if sum(counts.values()) < regions:
            counts[tenant] += 1
    # The minima may add up to more than there is. The tenant furthest above its minimum gives
    # first.
    while sum(counts.values()) > regions:
        largest = max(counts, key=lambda t: (counts[t] - least[t], counts[t], t))
        counts[largest] -= 1
    return counts
