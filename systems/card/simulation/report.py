# SPDX-License-Identifier: Apache-2.0
"""Report a simulation as figures, tables and plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from n3ic.systems.card.control.loop import Event
from n3ic.systems.card.simulation.bounds import latency_bound
from n3ic.systems.card.simulation.figures import (
    TenantFigures,
    binned,
    jain_index,
    percentiles,
    served_share,
)
from n3ic.systems.card.simulation.trace import CardTrace

Table = tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]  # title, head, rows


@dataclass(frozen=True)
class PolicyFigures:
    """Simulated figures of a card under one policy.

    Attributes:
        policy: name of the policy.
        title: description of the policy in one line.
        tenants: figures of the tenants, in the scenario's order.
        gbps: bandwidth of all tenants together.
        jain: Jain's index of the tenants' service over their due, each capped at 1.
        jain_over_time: the same for each bin of time.
        utilisation: share of time in which tasks accepted packets, over all bins and regions.
        regions: the same for each region.
        utilisation_over_time: the same for each bin and region; shape (bins, regions).
        work_over_time: area that a tenant kept busy, over the whole area; shape (bins, tenants).
        launches: number of events of each kind; launches are counted by their way.
        events: launches and failures.
    """

    policy: str
    title: str
    tenants: tuple[TenantFigures, ...]
    gbps: float
    jain: float
    jain_over_time: tuple[float, ...]
    utilisation: float
    regions: tuple[float, ...]
    utilisation_over_time: tuple[tuple[float, ...], ...]
    work_over_time: tuple[tuple[float, ...], ...]
    launches: Mapping[str, int]
    events: tuple[Event, ...]


def figures_of(trace: CardTrace) -> PolicyFigures:
    """Compute the figures of a simulation."""
    scenario = trace.scenario
    edges = np.linspace(0, scenario.seconds, scenario.bins + 1)
    tenants = tuple(_tenant(trace, t.name, edges) for t in scenario.tenants)
    dues = np.array([_due(trace, t.name, edges) for t in scenario.tenants])
    over_time = []
    for i in range(scenario.bins):
        # Capped: a tenant that gets what others left must not count as unfair to them.
        satisfied = [min(1.0, served_share(t.timeline_gbps[i], *dues[j, :, i]))
               for j, t in enumerate(tenants)]  # fmt: skip
        over_time.append(jain_index(satisfied))
    launches: dict[str, int] = {}
    for event in trace.events:
        launches[event.what] = launches.get(event.what, 0) + 1
    used = trace.utilisation
    return PolicyFigures(
        trace.policy.name,
        trace.policy.title,
        tenants,
        sum(t.gbps for t in tenants),
        jain_index([min(1.0, t.share) for t in tenants]),
        tuple(over_time),
        float(used.mean()) if used.size else 0.0,
        tuple(float(x) for x in used.mean(axis=0)),
        tuple(tuple(float(x) for x in row) for row in used),
        tuple(tuple(float(x) for x in row) for row in trace.work),
        launches,
        trace.events,
    )


def _due(
    trace: CardTrace, tenant: str, edges: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Compute the Gb/s that a tenant offered and was entitled to in each bin of time."""
    owner = trace.scenario.tenant_of[tenant]
    hz = trace.scenario.board.clock_hz
    offered, entitled = np.zeros(len(edges) - 1), 0.0
    for graph in trace.scenario.graphs:
        if graph.tenant == tenant:
            arrivals = trace.graphs[graph.name].arrivals
            offered += binned(arrivals["arrived"] / hz, arrivals["bytes"] * 8 / 1e9, edges)
            entitled += graph.entitled * graph.load.mean_bytes * 8 / 1e9
    middles = (edges[:-1] + edges[1:]) / 2
    there = (owner.arrives <= middles) & (middles < owner.leaves)
    return offered, np.where(there, entitled, 0.0)


def _tenant(trace: CardTrace, name: str, edges: np.ndarray[Any, Any]) -> TenantFigures:
    scenario = trace.scenario
    hz, seconds = scenario.board.clock_hz, scenario.seconds
    graphs = [g for g in scenario.graphs if g.tenant == name]
    counts = [trace.graphs[g.name] for g in graphs]
    left = np.concatenate([c.left for c in counts])
    arrived, admitted, departed, size = (
        left[key].astype(float) for key in ("arrived", "admitted", "departed", "bytes")
    )
    bits = size * 8 / 1e9
    timeline = binned(departed / hz, bits, edges)
    gbps = float(bits.sum()) / seconds
    offered_gbps, due = _due(trace, name, edges)
    offered, entitled = float(offered_gbps.mean()), float(due.mean())
    dropped: dict[str, int] = {}
    for count in counts:
        for reason, n in count.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + n
    latency = (departed - arrived) / hz * 1e9
    return TenantFigures(
        name=name,
        offered=sum(c.arrived for c in counts),
        served=len(departed),
        dropped=dropped,
        inside=sum(c.queued + c.inside for c in counts),
        offered_gbps=offered,
        gbps=gbps,
        entitled_gbps=entitled,
        share=served_share(gbps, offered, entitled),
        latency_ns=percentiles(latency),
        core_ns=percentiles((departed - admitted) / hz * 1e9),
        # Only the adapting policy knows guarantees, and the bound rests on them.
        bound_ns=_bound(trace, name) if trace.policy.adapts else None,
        mean_ns=float(latency.mean()) if len(latency) else 0.0,
        most_queued=(max(c.most_queued for c in counts), max(c.most_inside for c in counts)),
        timeline_gbps=tuple(float(x) for x in timeline),
    )


def _bound(trace: CardTrace, tenant: str) -> float:
    longest = max(int(g.arrivals["bytes"].max(initial=0)) for g in trace.graphs.values()) or 64
    return max(
        latency_bound(trace.scenario, g, longest)
        for g in trace.scenario.graphs
        if g.tenant == tenant
    )


def tables(policies: Sequence[PolicyFigures]) -> tuple[Table, ...]:
    """Make tables of several policies, side by side; every figure in them is simulated."""
    cards = tuple(
        (
            f.policy,
            f"{f.gbps:.3f}",
            f"{f.jain:.4f}",
            f"{min(f.jain_over_time):.4f}",
            f"{f.utilisation:.1%}",
            f"{sum(n for way, n in f.launches.items() if way in _RECONFIGURE)}",
            f.title,
        )
        for f in policies
    )
    rows = tuple(
        (
            f.policy,
            t.name,
            f"{t.offered_gbps:.3f}",
            f"{t.entitled_gbps:.3f}",
            f"{t.gbps:.3f}",
            f"{t.share:.1%}",
            *(_time(t.latency_ns.get(p)) for p in ("p50", "p99", "p99.9")),
            _time(t.core_ns.get("p99")),
            _time(t.bound_ns),
            f"{sum(t.dropped.values()):,}",
        )
        for f in policies
        for t in f.tenants
    )
    return (
        (
            "The card (simulated)",
            ("policy", "Gb/s", "Jain", "worst Jain", "busy", "reconfigured", "what it is"),
            cards,
        ),
        (
            "Tenants (simulated)",
            (
                *("policy", "tenant", "offers Gb/s", "due Gb/s", "got Gb/s", "of what is due"),
                *("p50", "p99", "p99.9", "p99 in the card", "bound", "dropped"),
            ),
            rows,
        ),
    )


_RECONFIGURE = ("pre-launch", "free", "context-switch", "cut-off")


def _time(nanoseconds: float | None) -> str:
    if nanoseconds is None:
        return "-"
    if nanoseconds < 1e4:
        return f"{nanoseconds:.0f} ns"
    return f"{nanoseconds / 1e3:.1f} us" if nanoseconds < 1e7 else f"{nanoseconds / 1e6:.1f} ms"
