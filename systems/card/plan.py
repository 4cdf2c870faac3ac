# SPDX-License-Identifier: Apache-2.0
"""The plan of a card: the tasks in each region, and each tenant's share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from n3ic.systems.card.description import Card
from n3ic.systems.card.resources import Resource, TaskCost
from n3ic.util.display import Displayed, TextTable, View

PLAN_VERSION = 1


@dataclass(frozen=True)
class PlannedRegion:
    """A region of the card with its chain of tasks.

    Attributes:
        index: index of the region, from 0.
        chain: names of its tasks in order; a packet skips tasks that are not in its graph.
        used: amount of each resource that the tasks use.
    """

    index: int
    chain: tuple[str, ...]
    used: Mapping[str, float]


@dataclass(frozen=True)
class RegionPass:
    """A packet's pass through a region's chain, with the tasks that it does not skip, in order."""

    region: int
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class PacketPath:
    """A path of a graph's packets through the card.

    Attributes:
        rate: packets per second on the path; the scheduler divides a graph's packets among its
            paths in proportion.
        stages: passes through the scheduler in sequence; visits of one stage run at the same time,
            each with a copy of the packet's header.
    """

    rate: float
    stages: tuple[tuple[RegionPass, ...], ...]


@dataclass(frozen=True)
class GraphPlan:
    """The plan for one graph.

    Attributes:
        tenant: owner of the graph.
        graph: name of the graph.
        uid: identifier in its packets.
        wanted: packets per second that the tenant wants.
        entitled: packets per second that space sharing would give it if regions were divisible.
        guaranteed: packets per second that the regions serve, whatever the others send.
        packet_bytes: mean length of its frames.
        paths: its paths through the card; their rates sum to ``guaranteed``.
        latency_ns: latency of a packet that is alone on the card, on its slowest path, with all
            tasks and passes of the scheduler; None if a task's latency is unknown.
        burst_bytes: size of its token bucket at the ingress.
    """

    tenant: str
    graph: str
    uid: int
    wanted: float
    entitled: float
    guaranteed: float
    packet_bytes: float
    paths: tuple[PacketPath, ...]
    latency_ns: float | None
    burst_bytes: int

    @property
    def gbps(self) -> float:
        """The guaranteed rate in Gb/s of frames: the rate of its token bucket."""
        return self.guaranteed * self.packet_bytes * 8 / 1e9


@dataclass(frozen=True)
class TenantShare:
    """A tenant's share of the card's space.

    Attributes:
        tenant: name of the tenant.
        weight: as in ``card.toml``.
        demand: share of the whole card that it wants of each resource.
        granted: share of the whole card that it gets of each resource.
        dominant: the resource of which it wants the largest share.
    """

    tenant: str
    weight: float
    demand: Mapping[str, float]
    granted: Mapping[str, float]
    dominant: str

    @property
    def dominant_share(self) -> float:
        """Share that it is granted of its dominant resource: its weight when time is shared."""
        return self.granted[self.dominant]


@dataclass(frozen=True, repr=False)
class CardPlan(Displayed):
    """The plan of a card: what each tenant gets.

    Attributes:
        card: the planned card.
        resources: divided resources, with the capacity of one region or of the whole card.
        costs: cost of an instance of each task, by name.
        regions: all regions, including empty ones.
        shares: shares of the tenants, in the card's order.
        graphs: plans of all graphs, in the card's order.
        problems: reasons why the wanted rates cannot all be guaranteed; empty if they can.
        notes: remarks for the reader.
    """

    card: Card
    resources: tuple[Resource, ...]
    costs: Mapping[str, TaskCost]
    regions: tuple[PlannedRegion, ...]
    shares: tuple[TenantShare, ...]
    graphs: tuple[GraphPlan, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def instances(self) -> Mapping[str, tuple[int, ...]]:
        """The regions that hold each task, by its name."""
        return {
            name: tuple(r.index for r in self.regions if name in r.chain)
            for name in self.card.tasks
        }

    def view(self) -> View:
        """Return the view that a notebook or terminal shows."""
        met = "does not meet every rate" if self.problems else "meets every rate"
        return View(
            f"{self.card.name} ({self.card.device.target}): {len(self.shares)} tenants, "
            f"{len(self.graphs)} graphs in {len(self.regions)} regions, {met}",
            self.tables,
            (*self.notes, *self.problems),
        )

    @property
    def tables(self) -> tuple[TextTable, ...]:
        """Tables of the tasks' costs, and of regions, tenants and graphs."""
        return (self._tasks(), self._regions(), self._tenants(), self._graphs())

    def _tasks(self) -> TextTable:
        names = tuple(r.name for r in self.resources)
        rows = tuple(
            (
                name,
                self.card.tasks[name].kind,
                *(f"{cost.needs[n].value:,.4g}" if n in cost.needs else "" for n in names),
                str(cost.rate) if cost.rate else "",
                ", ".join(cost.known_by),
                ", ".join(map(str, self.instances[name])),
            )
            for name, cost in self.costs.items()
        )
        head = ("task", "kind", *names, "sustains", "known by", "regions")
        return TextTable("what an instance of each task takes", head, rows, left=2)

    def _regions(self) -> TextTable:
        bounded = [
            r for r in self.resources if r.within == "region" and r.per == "instance" and r.capacity
        ]
        rows = tuple(
            (
                str(r.index),
                " > ".join(r.chain) or "(free)",
                *(f"{r.used[b.name]:,.6g}" for b in bounded),
            )
            for r in self.regions
        )
        head = ("region", "chain", *(f"{b.name} of {b.capacity:,.6g}" for b in bounded))
        return TextTable("regions", head, rows, left=2)

    def _tenants(self) -> TextTable:
        rows = tuple(
            (
                s.tenant,
                s.dominant,
                f"{s.weight:g}",
                f"{s.demand[s.dominant]:.4%}",
                f"{s.dominant_share:.4%}",
            )
            for s in self.shares
        )
        head = ("tenant", "dominant", "weight", "wanted", "granted")
        return TextTable("space: dominant-resource fairness", head, rows, left=2)

    def _graphs(self) -> TextTable:
        rows = tuple(
            (
                f"{g.tenant}/{g.graph}",
                str(g.uid),
                f"{g.wanted:,.6g}",
                f"{g.guaranteed:,.6g}",
                f"{g.gbps:.4g}",
                str(len(g.paths)),
                str(max((len(p.stages) for p in g.paths), default=0)),
                "" if g.latency_ns is None else f"{g.latency_ns:,.0f} ns",
            )
            for g in self.graphs
        )
        head = ("graph", "uid", "wanted/s", "guaranteed/s", "Gb/s", "ways", "passes", "latency")
        return TextTable("time: what the ingress lets pass", head, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data for JSON."""
        device = self.card.device
        return {
            "version": PLAN_VERSION,
            "card": self.card.name,
            "target": device.target,
            "uid": device.uid,
            "resources": [asdict(r) for r in self.resources],
            "tasks": {
                name: asdict(cost) | {"kind": self.card.tasks[name].kind}
                for name, cost in self.costs.items()
            },
            "regions": [asdict(r) for r in self.regions],
            "tenants": [asdict(s) | {"dominant_share": s.dominant_share} for s in self.shares],
            "graphs": [asdict(g) | {"gbps": g.gbps} for g in self.graphs],
            "problems": list(self.problems),
            "notes": list(self.notes),
        }
