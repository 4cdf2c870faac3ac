# SPDX-License-Identifier: Apache-2.0
"""A planned card under load: its scenario."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from n3ic.errors import UsageError
from n3ic.systems.card.control.loads import Load, number, parse_load
from n3ic.systems.card.control.scenario import (
    Board,
    Failure,
    PlacedChain,
    Scenario,
    SimGraph,
    SimTask,
    SimTenant,
)
from n3ic.systems.card.demand import demand_of, of_every_packet
from n3ic.systems.card.export import frames_held, taking_turns
from n3ic.systems.card.plan import CardPlan, GraphPlan
from n3ic.systems.card.planner import time_weights
from n3ic.systems.card.resources import Budget, budget_of
from n3ic.targets.base import exporter

DEFAULT_CLOCK_HZ = 250e6  # SuperNIC's clock, for a target without one
_EVENT = re.compile(r"(?P<who>.+):(?P<what>arrives|leaves|stuck|lost)@(?P<at>[0-9.eE+-]+)")


def scenario_of(planned: CardPlan, budget: Budget, seconds: float) -> Scenario:
    """Make a scenario of a planned card, with a constant load of what each graph wants.

    A region is one unit of area. The latency of a task is that of its report. Its interval follows
    from what one instance sustains, in clock cycles of the target.

    Args:
        planned: the plan.
        budget: resources of the card.
        seconds: simulated time.
    """
    target = planned.card.device.target
    clock = exporter(target).device.clock_mhz * 1e6 if target else 0.0
    hz = clock or DEFAULT_CLOCK_HZ
    demand = demand_of(planned.card, budget, planned.costs)
    entitled = [g.entitled / g.wanted for g in planned.graphs]
    # demand.wanted has the shape and order that the weights need; only the entitled shares replace
    # it.
    weights = time_weights(demand, demand.wanted * 0 + entitled)
    graphs = tuple(
        _graph(planned, g, max(float(w), 1e-9))
        for g, w in zip(planned.graphs, weights, strict=True)
    )
    ingress = next((r.capacity for r in planned.resources if r.name == "ingress"), None)
    board = Board(
        clock_hz=hz,
        schedule=max(1, round(budget.scheduling_ns * hz / 1e9)) if budget.scheduling_ns else 16,
        link_gbps=ingress or Board.link_gbps,
    )
    # A target without queues is simulated with those of SuperNIC.
    if queue := frames_held(planned.card):
        board = replace(board, ingress_queue=1, store=queue - 1)
    sharing = taking_turns(planned)
    return Scenario(
        board,
        {name: _task(planned, name, hz, name in sharing) for name in planned.card.tasks},
        tuple(SimTenant(t.name, t.weight) for t in planned.card.tenants),
        graphs,
        len(planned.regions),
        1.0,
        tuple(PlacedChain(r.chain) for r in planned.regions),
        seconds,
    )


def scenario_under(
    plan: CardPlan, seconds: float, load: Sequence[str], event: Sequence[str]
) -> Scenario:
    """A planned card with loads and events, as they are typed.

    Raises:
        UsageError: a load or an event is malformed, or names no tenant or region.
    """
    scenario = scenario_of(plan, budget_of(plan.card), seconds)
    return with_events(with_loads(scenario, load), event)


def with_loads(scenario: Scenario, texts: Sequence[str]) -> Scenario:
    """Return a scenario with other loads, given as for :func:`parse_load`.

    Raises:
        UsageError: a load is malformed or unknown.
    """
    names = tuple(scenario.tenant_of)
    graphs = list(scenario.graphs)
    for text in texts:
        for i, graph in enumerate(graphs):
            tenant, load = parse_load(text, graph.load, names)
            if tenant in ("", graph.tenant):
                graphs[i] = replace(graph, load=load)
    return replace(scenario, graphs=tuple(graphs))


def with_events(scenario: Scenario, texts: Sequence[str]) -> Scenario:
    """Return a scenario with events.

    Args:
        scenario: scenario without the events.
        texts: events, each ``TENANT:arrives@SECOND``, ``TENANT:leaves@SECOND``,
            ``REGION:stuck@SECOND`` or ``REGION:lost@SECOND``.

    Raises:
        UsageError: an event is malformed, or names an unknown tenant or region.
    """
    tenants = dict(scenario.tenant_of)
    failures = list(scenario.failures)
    for text in texts:
        event = _EVENT.fullmatch(text)
        at = number(event["at"]) if event else math.nan
        if event is None or not 0 <= at < scenario.seconds:
            raise UsageError(
                f"--event {text!r}: expected TENANT:arrives@SECOND, TENANT:leaves@SECOND, "
                f"REGION:stuck@SECOND or REGION:lost@SECOND, before {scenario.seconds:g} s"
            )
        # A region is named by its number, a tenant by its name; the kind of event says which is
        # meant.
        who, what = event["who"], event["what"]
        if what in ("stuck", "lost"):
            if not who.isdecimal() or int(who) >= scenario.regions:
                raise UsageError(
                    f"--event {text!r}: no region {who!r}, expected 0 to {scenario.regions - 1}"
                )
            failures.append(Failure(at, int(who), "stuck" if what == "stuck" else "lost"))
        elif who not in tenants:
            raise UsageError(
                f"--event {text!r}: no tenant {who!r}, expected one of {', '.join(tenants)}"
            )
        else:
            arrives = at if what == "arrives" else tenants[who].arrives
            leaves = at if what == "leaves" else tenants[who].leaves
            tenants[who] = replace(tenants[who], arrives=arrives, leaves=leaves)
    return replace(scenario, tenants=tuple(tenants.values()), failures=tuple(failures))


def _graph(planned: CardPlan, graph_plan: GraphPlan, weight: float) -> SimGraph:
    tenant, graph = planned.card.graphs[graph_plan.uid]
    length = round(graph.packet_bytes)
    return SimGraph(
        f"{tenant.name}/{graph.name}",
        tenant.name,
        graph.flow,
        Load(graph_plan.wanted, bytes=length),
        graph_plan.guaranteed,
        weight=weight,
        burst=max(1.0, graph_plan.burst_bytes / graph.packet_bytes),
        deciding=min(1.0, graph.inferences_per_packet),
    )


def _task(planned: CardPlan, name: str, hz: float, turns: bool) -> SimTask:
    cost = planned.costs[name]
    resources = {r.name: r for r in planned.resources}
    area, interval = 0.0, 1
    for need, amount in cost.needs.items():
        resource = resources[need]
        if resource.within != "region" or not resource.capacity:
            continue
        if resource.per == "instance":
            # A region is full when its scarcest resource is, so the largest share counts as area.
            area = max(area, amount.value / resource.capacity)
        else:  # a rate: a packet takes its part of what the region has per second
            interval = max(interval, math.ceil(amount.value / resource.capacity * hz))
            turns = True
    gbps = math.inf
    if cost.rate is not None and cost.rate.unit == "Gb/s":
        gbps = cost.rate.value
    elif cost.rate is not None:
        # The tolerance keeps a quotient of 4.0000000001 from costing a fifth cycle.
        interval = max(interval, math.ceil(hz / cost.rate.value - 1e-9))
    # Without a reported latency, a task takes at least as long as the gap between its packets.
    latency = interval
    if cost.latency_ns is not None:
        latency = max(1, math.ceil(cost.latency_ns.value * hz / 1e9 - 1e-9))
    return SimTask(
        name,
        latency,
        interval,
        gbps,
        area=area,
        per_inference=not of_every_packet(planned.card.tasks[name]),
        turns=turns,
    )


def packets_offered(scenario: Scenario) -> Mapping[str, float]:
    """Compute the mean number of packets that each graph offers during the simulation."""
    out = {}
    for graph in scenario.graphs:
        tenant = scenario.tenant_of[graph.tenant]
        length = min(tenant.leaves, scenario.seconds) - tenant.arrives
        out[graph.name] = graph.load.offered(length)
    return out
