# SPDX-License-Identifier: Apache-2.0
"""Plan a card from its description."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import CardError, UsageError
from n3ic.systems.card.chains import ChainPlacement, chain_order, place
from n3ic.systems.card.demand import CardDemand, demand_of
from n3ic.systems.card.description import Card, PacketTask, TaskGraph, Tenant
from n3ic.systems.card.drf import Floats, dominant_resource_fairness
from n3ic.systems.card.export import check_families, frames_held, joint_costs
from n3ic.systems.card.models import check_models
from n3ic.systems.card.parser import read_card
from n3ic.systems.card.plan import CardPlan, GraphPlan, PlannedRegion, TenantShare
from n3ic.systems.card.resources import Budget, TaskCost, budget_of, costs_of, uncounted
from n3ic.systems.card.routing import flows_of, latency_of, paths_of
from n3ic.systems.card.time_shares import Scarce, dominant_shares, fair_rates

BURST_FRAMES = 16  # frames that every token bucket holds
_SHORT = 1e-4  # share of a wanted rate that may be missing before it is a problem


def plan_card(card: Card, report_progress: Callable[[str], None] = lambda _: None) -> CardPlan:
    """Plan a card with the device and the reports of its target.

    Args:
        card: description of the card.
        report_progress: called with progress messages.

    Raises:
        CardError: the device does not support a task, or no placement was found.
    """
    check_models(card)
    check_families(card)
    frames_held(card)  # refuses a queue before anything is costed
    budget = budget_of(card)
    costs = joint_costs(card, costs_of(card, budget, report_progress))
    report_progress("dividing the card")
    return plan(card, budget, costs)


def plan_described(
    source: str | Path | Card,
    target: str | None = None,
    *,
    best_effort: bool,
    report_progress: Callable[[str], None] = lambda _: None,
) -> CardPlan:
    """Read and plan a card.

    Args:
        source: a ``card.toml``, or a description that was read.
        target: target that the card must be for; None for its own.
        best_effort: whether a plan may miss wanted rates.
        report_progress: called with progress messages.

    Raises:
        UsageError: the card is for another target.
        CardError: as :func:`plan_card`; or a wanted rate cannot be guaranteed.
    """
    card = source if isinstance(source, Card) else read_card(source)
    if target not in (None, card.device.target):
        raise UsageError(f"{source} is for target {card.device.target!r}, not {target!r}")
    planned = plan_card(card, report_progress)
    if not best_effort:
        check_guaranteed(planned, card.name if isinstance(source, Card) else str(source))
    return planned


def check_guaranteed(planned: CardPlan, name: str) -> None:
    """Check that a plan guarantees all wanted rates.

    Raises:
        CardError: it does not; the error begins with the card's name.
    """
    if planned.problems:
        raise CardError(
            f"{name}: {len(planned.problems)} graphs cannot be guaranteed what they want: "
            f"{planned.problems[0]}; ask for less, or add --best-effort"
        )


def plan(card: Card, budget: Budget, costs: Mapping[str, TaskCost]) -> CardPlan:
    """Plan a card from its budget and costs.

    Space is divided first. :func:`entitlements` divides it by
    dominant-resource fairness, and :func:`~n3ic.systems.card.chains.place` turns the shares into
    whole instances in regions. Then time is divided. Each graph is guaranteed the rate that
    dominant resource fair queueing gives it while all tenants send what they want.

    Args:
        card: description of the card.
        budget: resources of the card.
        costs: cost of each task; see :func:`~n3ic.systems.card.resources.costs_of`.

    Raises:
        CardError: no placement was found.
    """
    demand = demand_of(card, budget, costs)
    entitled = entitlements(demand)
    granted, short = _memory_granted(card, demand, entitled)
    placement = place(demand, entitled, budget.scheduling_ns)
    weights = time_weights(demand, entitled)
    fair = fair_rates(demand, placement.instances, weights, demand.wanted)
    # These rates hold while all tenants send; a graph gets more only while others are idle.
    rates = fair.rates
    regions = _regions(demand, placement.instances, rates, budget.spare)
    flows = flows_of(demand, placement.instances, rates, budget.scheduling_ns)
    latency = dict(zip(demand.tasks, map(float, demand.latency), strict=True))
    unknown = [
        n for n, c in costs.items() if c.latency_ns is None and n not in uncounted(card, costs)
    ]
    graphs = []
    for g, graph in enumerate(demand.graphs):
        paths = paths_of(demand, g, flows, [r.chain for r in regions], float(rates[g]))
        # One unknown task makes the sum of a path meaningless, so no latency is stated at all.
        is_known = not any(t in unknown for t in graph.flow.tasks())
        slowest = max(
            (latency_of(p.stages, latency, budget.scheduling_ns) for p in paths if is_known),
            default=None,
        )
        graphs.append(
            GraphPlan(
                tenant=demand.tenants[demand.owner[g]].name,
                graph=graph.name,
                uid=graph.uid,
                wanted=float(demand.wanted[g]),
                entitled=float(demand.wanted[g] * entitled[g]),
                guaranteed=float(rates[g]),
                packet_bytes=graph.packet_bytes,
                paths=paths,
                latency_ns=slowest,
                burst_bytes=_burst(demand.tenants[demand.owner[g]], graph, float(rates[g])),
            )
        )
    return CardPlan(
        card=granted,
        resources=demand.resources,
        costs=costs,
        regions=regions,
        shares=_shares(demand, entitled),
        graphs=tuple(graphs),
        problems=(*short, *_problems(demand, placement, graphs, fair.scarce)),
        notes=tuple(_notes(card, budget, costs, placement)),
    )


def entitlements(demand: CardDemand) -> Floats:
    """Compute the share of its wanted rate that each graph would get if regions were divisible.

    The graphs of a tenant are one user of
    :func:`~n3ic.systems.card.drf.dominant_resource_fairness`. A unit of its work is everything that
    the tenant wants.

    Returns:
        Array of shape ``(graphs,)``, from 0 to 1.
    """
    shares = demand.of_tenants(demand.shares)
    weights = np.array([t.weight for t in demand.tenants])
    whole = np.ones(shares.shape[1])
    shares_of_tenants = dominant_resource_fairness(shares, whole, weights, np.ones(len(weights)))
    return np.asarray(shares_of_tenants[demand.owner])


def time_weights(demand: CardDemand, entitled: Floats) -> Floats:
    """Compute the graphs' weights for sharing time: their dominant shares from sharing space.

    A graph that takes no counted resource gets its tenant's weight.

    Args:
        demand: the card's numbers.
        entitled: share of what it wants that each graph is entitled to, shape ``(graphs,)``.
    """
    weights = entitled * demand.shares.max(axis=1, initial=0.0)
    weight = np.array([t.weight for t in demand.tenants])
    return np.asarray(np.where(weights > 0, weights, (weight / weight.sum())[demand.owner]))


def time_shares(planned: CardPlan, budget: Budget, loads: Mapping[int, float]) -> dict[int, float]:
    """Compute the packets per second that each graph gets at monitored loads: the ingress rates.

    No tenant falls below the smaller of its load and its guarantee. Dominant resource fair queueing
    divides the rest: what tenants get beyond their guarantees.

    Args:
        planned: plan whose instances are in place.
        budget: resources of the card.
        loads: arriving packets per second, by UID; missing graphs send none.

    Returns:
        Packets per second, by UID.
    """
    demand = demand_of(planned.card, budget, planned.costs)
    entitled = np.array([g.entitled / g.wanted for g in planned.graphs])
    load = np.array([loads.get(g.uid, 0.0) for g in planned.graphs])
    guaranteed = np.array([g.guaranteed for g in planned.graphs])
    standing = instances_of(planned)
    fair = fair_rates(demand, standing, time_weights(demand, entitled), load, guaranteed)
    return {g.uid: float(rate) for g, rate in zip(planned.graphs, fair.rates, strict=True)}


def packet_shares(planned: CardPlan) -> dict[int, float]:
    """Compute the largest share of the card's time that a packet per second of each graph takes.

    The time is that of every resource that packets take, all regions together. This is the cost of
    a packet in dominant resource fair queueing where one queue feeds the whole card.

    Returns:
        Share by UID; 0 for a graph whose packets take no counted resource.
    """
    demand = demand_of(planned.card, budget_of(planned.card), planned.costs)
    shares = demand.time_shares.max(axis=1, initial=0.0) / demand.wanted
    return {g.uid: float(s) for g, s in zip(demand.graphs, shares, strict=True)}


def packet_costs(planned: CardPlan) -> dict[int, float]:
    """Compute the largest share of a resource's time that a packet per second of each graph takes.

    All instances of a task are one resource. This is the cost of a packet in dominant resource fair
    queueing where tasks stand in regions; see :func:`packet_shares`.

    Returns:
        Share by UID; 0 for a graph that takes no counted resource, or that has no instance.
    """
    demand = demand_of(planned.card, budget_of(planned.card), planned.costs)
    costs = dominant_shares(demand, instances_of(planned)) / demand.wanted
    return {
        g.uid: float(c)
        for g, c in zip(demand.graphs, np.nan_to_num(costs, posinf=0.0), strict=True)
    }


def instances_of(planned: CardPlan) -> NDArray[np.bool_]:
    """Return which regions hold each task, shape ``(tasks, regions that are not spare)``."""
    regions = planned.regions[: len(planned.regions) - planned.card.device.spare]
    return np.array([[t in r.chain for r in regions] for t in planned.card.tasks])


def _memory_granted(card: Card, demand: CardDemand, entitled: Floats) -> tuple[Card, list[str]]:
    """Limit the pages of tenants to their shares, if the on-board memory is too small for all.

    Returns:
        The card with the pages that its tasks get, each a power of two, and which tenants want
        more.

    Raises:
        CardError: a task would get no page.
    """
    (capacity,) = (r.capacity or 0.0 for r in demand.memory) if demand.memory else (math.inf,)
    if demand.pages.sum() <= capacity:
        return card, []
    wanted = demand.of_tenants(demand.pages)[:, 0]
    shares = demand.of_tenants(demand.pages * entitled[:, None])[:, 0]
    tasks, problems = dict(card.tasks), []
    for tenant, wants, share in zip(card.tenants, wanted, shares, strict=True):
        limit = math.floor(share + _SHORT)
        if wants <= limit:
            continue
        text = (
            f"{tenant.name} wants {wants:g} pages of on-board memory, {limit} of {capacity:g} are "
            "its share by dominant-resource fairness"
        )
        problems.append(text)
        for name, task in card.tasks.items():
            if isinstance(task, PacketTask) and task.pages and name.startswith(f"{tenant.name}/"):
                pages = int(task.pages * limit / wants)
                if not pages:
                    raise CardError(f"{card.source}:{task.line}: {text}: none is left for {name!r}")
                tasks[name] = replace(task, pages=1 << pages.bit_length() - 1)
    return replace(card, tasks=tasks), problems


def _burst(tenant: Tenant, graph: TaskGraph, rate: float) -> int:
    """Return the bytes that a graph adds to its tenant's bucket, for a rate in packets/s."""
    frames = max(BURST_FRAMES, rate * tenant.bucket_ms / 1000)
    return math.ceil(frames * graph.packet_bytes)


def _regions(
    demand: CardDemand, instances: NDArray[np.bool_], rates: Floats, spare: int
) -> tuple[PlannedRegion, ...]:
    out = []
    empty = {s.name: 0.0 for s in demand.space}
    for r in range(demand.regions):
        members = np.flatnonzero(instances[:, r])
        used = demand.area[members].sum(axis=0)
        amounts = {s.name: float(a) for s, a in zip(demand.space, used, strict=True)}
        out.append(PlannedRegion(r, chain_order(demand, members.tolist(), rates), amounts))
    return (*out, *(PlannedRegion(demand.regions + r, (), empty) for r in range(spare)))


def _shares(demand: CardDemand, entitled: Floats) -> tuple[TenantShare, ...]:
    demands = demand.of_tenants(demand.shares)
    granted = demand.of_tenants(demand.shares * entitled[:, None])
    names = [r.name for r in demand.resources]
    return tuple(
        TenantShare(
            tenant=tenant.name,
            weight=tenant.weight,
            demand=dict(zip(names, map(float, demands[i]), strict=True)),
            granted=dict(zip(names, map(float, granted[i]), strict=True)),
            dominant=names[int(demands[i].argmax())],
        )
        for i, tenant in enumerate(demand.tenants)
    )


def _problems(
    demand: CardDemand,
    placement: ChainPlacement,
    graphs: Sequence[GraphPlan],
    scarce: Sequence[Sequence[Scarce]],
) -> Iterator[str]:
    """Describe the graphs that get less than they want, and the resources that limit them."""
    for g, graph in enumerate(graphs):
        if graph.guaranteed >= graph.wanted * (1 - _SHORT):
            continue
        here = placement.instances.sum(axis=1) > 0
        missing = [demand.tasks[s] for s in scarce[g] if isinstance(s, int) and not here[s]]
        too_small = (_too_small(demand, placement.instances, s) for s in scarce[g])
        why = f"no room for {', '.join(missing)}" if missing else "; ".join(too_small)
        entitled = " (which is beyond its share)" if graph.entitled < graph.wanted * 0.9999 else ""
        yield (
            f"{graph.tenant}/{graph.graph} wants {rate_text(graph, graph.wanted)}{entitled}, "
            f"{rate_text(graph, graph.guaranteed)} can be guaranteed: {why}"
        )


def _too_small(demand: CardDemand, instances: NDArray[np.bool_], scarce: Scarce) -> str:
    """Describe the demand and the capacity of a scarce task or resource."""
    if isinstance(scarce, int):
        demanded, count = demand.occupancy[:, scarce].sum(), instances[scarce].sum()
        return f"{demand.tasks[scarce]} ({demanded:.3g} instances are wanted, {count} fit)"
    if scarce in demand.common:
        s = demand.common.index(scarce)
        demanded, available = demand.load[:, s].sum(), demand.common_capacity[s]
    else:
        s = demand.time.index(scarce)
        demanded, available = demand.work[:, :, s].sum(), demand.time_capacity[s] * demand.regions
    return f"{scarce.name} ({demanded:.3g} {scarce.unit} are wanted, {available:.3g} are available)"


def _notes(
    card: Card, budget: Budget, costs: Mapping[str, TaskCost], placement: ChainPlacement
) -> Iterator[str]:
    yield f"Device: {budget.source}."
    none = uncounted(card, costs)
    if none:
        yield f"Counted as taking nothing, because no figure is known: {', '.join(none)}."
    if not placement.exclusive and budget.regions > 1:
        yield (
            "Some regions hold tasks of several tenants, because regions of their own would serve "
            "less; reconfiguring such a region interrupts all its tenants."
        )


def rate_text(graph: GraphPlan, packets: float) -> str:
    """Format a graph's rate in Gb/s and packets per second."""
    return f"{packets * graph.packet_bytes * 8e-9:.4g} Gb/s ({packets:.4g} packets/s)"
