# SPDX-License-Identifier: Apache-2.0
"""The demand of a card's graphs, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from n3ic.systems.card.description import Card, Meter, Task, TaskGraph, Tenant, UserVerilog
from n3ic.systems.card.drf import Floats
from n3ic.systems.card.resources import INGRESS, Budget, Resource, TaskCost, pages_of


@dataclass(frozen=True, eq=False)
class CardDemand:
    """Demand of a card's graphs and tasks, in numbers; arrays are float64 unless stated otherwise.

    Attributes:
        tenants: tenants in the card's order.
        graphs: graphs of all tenants, in the card's order.
        owner: index of each graph's tenant, integer array of shape ``(graphs,)``.
        tasks: names of the tasks, in the card's order.
        regions: number of regions, without spare ones.
        wanted: wanted packets per second, shape ``(graphs,)``.
        uses: whether a graph uses a task, bool array of shape ``(graphs, tasks)``.
        occupancy: share of one instance that all wanted packets of a graph occupy, shape
            ``(graphs, tasks)``; 0 for a task without a rate limit.
        whole: instances that a graph needs regardless of its rate. A task without a rate limit
            needs one, divided among the graphs that use it; shape ``(graphs, tasks)``.
        space: resources that an instance takes.
        area: amount of each that an instance of each task takes, shape ``(tasks, space)``.
        space_capacity: capacity of one region, shape ``(space,)``; infinite without a limit.
        time: resources that packets take within a region.
        work: amount of each that all wanted packets of a graph take at a task, shape ``(graphs,
            tasks, time)``.
        time_capacity: capacity of one region, shape ``(time,)``.
        common: resources of the whole card.
        load: amount of each that all wanted packets of a graph take, shape ``(graphs, common)``.
        common_capacity: capacity of the card, shape ``(common,)``.
        memory: the on-board memory, if a task has some; it belongs to the card, not to a region.
        pages: pages of it that a graph's tasks have, whatever its rate, shape ``(graphs, memory)``.
            Graphs that use the same task divide its pages.
        latency: latency of each task in nanoseconds, 0 if unknown, shape ``(tasks,)``.
    """

    tenants: tuple[Tenant, ...]
    graphs: tuple[TaskGraph, ...]
    owner: NDArray[np.int64]
    tasks: tuple[str, ...]
    regions: int
    wanted: Floats
    uses: NDArray[np.bool_]
    occupancy: Floats
    whole: Floats
    space: tuple[Resource, ...]
    area: Floats
    space_capacity: Floats
    time: tuple[Resource, ...]
    work: Floats
    time_capacity: Floats
    common: tuple[Resource, ...]
    load: Floats
    common_capacity: Floats
    memory: tuple[Resource, ...]
    pages: Floats
    latency: Floats

    @property
    def shares(self) -> Floats:
        """Share of the whole card that all wanted packets of a graph take of each resource.

        For area, this is the area of an instance times the wanted rate, divided by the highest rate
        that one instance sustains (SuperNIC, section IV-E, step 1). A task without a rate limit
        counts with the area of one instance.

        Returns:
            Array of shape ``(graphs, space + time + common + memory)``, in the order of
            ``resources``.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            busy = np.where(self.work > 0, self.work / self.time_capacity, 0.0)
            instances = np.maximum(self.occupancy, busy.max(axis=2, initial=0.0)) + self.whole
            # Area is charged by the fraction of instances that a rate fills: amounts are divisible
            # in DRF.
            space = instances @ self.area / (self.regions * self.space_capacity)
            time = self.work.sum(axis=1) / (self.regions * self.time_capacity)
            common = np.where(self.load > 0, self.load / self.common_capacity, 0.0)
        # 0 / 0 gives NaN: a resource of no capacity that nobody needs counts as no share.
        memory = self.pages / _capacities(self.memory)
        whole: Floats = np.concatenate([space, time, common, memory], axis=1)
        return np.where(np.isnan(whole), 0.0, whole)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The divided resources: space, time, common and memory."""
        return (*self.space, *self.time, *self.common, *self.memory)

    @property
    def time_shares(self) -> Floats:
        """The columns of :attr:`shares` that packets take, shape ``(graphs, time + common)``."""
        first = len(self.space)
        return self.shares[:, first : first + len(self.time) + len(self.common)]

    def scaled(self, by: Floats, graphs: NDArray[np.int64] | None = None) -> CardDemand:
        """Return the same demand with scaled wanted rates.

        Args:
            by: factor for each graph's wanted rate, shape of ``graphs``.
            graphs: indices of the graphs to keep; None for all.
        """
        members = np.arange(len(self.graphs)) if graphs is None else graphs
        return replace(
            self,
            graphs=tuple(self.graphs[g] for g in members),
            owner=self.owner[members],
            wanted=self.wanted[members] * by,
            uses=self.uses[members],
            occupancy=self.occupancy[members] * by[:, None],
            whole=self.whole[members],
            work=self.work[members] * by[:, None, None],
            load=self.load[members] * by[:, None],
            pages=self.pages[members],
        )

    def of_tenants(self, per_graph: Floats) -> Floats:
        """Sum over the graphs of each tenant, shape ``(tenants, ...)``."""
        total = np.zeros((len(self.tenants), *per_graph.shape[1:]))
        # Unbuffered, because a tenant's index occurs once for each of its graphs.
        np.add.at(total, self.owner, per_graph)
        return total


def demand_of(card: Card, budget: Budget, costs: Mapping[str, TaskCost]) -> CardDemand:
    """Compute the demand of a card.

    Args:
        card: description of the card.
        budget: resources to divide, without spare regions.
        costs: cost of each task, by name.
    """
    resources = budget.resources
    graphs = tuple(g for t in card.tenants for g in t.graphs)
    tasks = tuple(card.tasks)
    space = tuple(r for r in resources if r.per == "instance" and r.within == "region")
    time = tuple(r for r in resources if r.per == "packet" and r.within == "region")
    common = tuple(r for r in resources if r.per == "packet" and r.within == "card")
    memory = tuple(r for r in resources if r.per == "instance" and r.within == "card")
    rates = np.array([g.wanted for g in graphs])
    members = [set(g.flow.tasks()) for g in graphs]
    uses = np.array([[name in m for name in tasks] for m in members])
    occupancy = np.zeros(uses.shape)
    work = np.zeros((*uses.shape, len(time)))
    for i, j in np.argwhere(uses):
        graph, cost = graphs[i], costs[tasks[j]]
        ratio = graph.inferences_per_packet
        if cost.rate is not None:
            occupancy[i, j] = rates[i] / cost.rate.packets(graph.packet_bytes, ratio)
        visits = rates[i] * (1.0 if of_every_packet(card.tasks[tasks[j]]) else ratio)
        work[i, j] = [visits * _value(cost, r) for r in time]
    own = np.array([pages_of(card.tasks[name]) for name in tasks])
    pages = uses @ (own / np.maximum(uses.sum(axis=0), 1))
    # These tasks have no rate that could fill them, so their graphs divide one instance.
    endless = uses & (occupancy == 0) & ~(work > 0).any(axis=2)
    return CardDemand(
        tenants=card.tenants,
        graphs=graphs,
        owner=np.array([i for i, t in enumerate(card.tenants) for _ in t.graphs]),
        tasks=tasks,
        regions=budget.regions - budget.spare,
        wanted=rates,
        uses=uses,
        occupancy=occupancy,
        whole=endless / np.maximum(uses.sum(axis=0), 1),
        space=space,
        area=_table([[_value(costs[t], r) for r in space] for t in tasks], len(space)),
        space_capacity=_capacities(space),
        time=time,
        work=work,
        time_capacity=_capacities(time),
        common=common,
        load=_table([[_load(g, r) for r in common] for g in graphs], len(common)),
        common_capacity=_capacities(common),
        memory=memory,
        pages=_table([[pages[g] for _ in memory] for g in range(len(graphs))], len(memory)),
        latency=np.array([c.latency_ns.value if c.latency_ns else 0.0 for c in costs.values()]),
    )


def of_every_packet(task: Task) -> bool:
    """Whether a task processes every packet, not only those at which a flow is decided."""
    return isinstance(task, Meter | UserVerilog)


def _value(cost: TaskCost, resource: Resource) -> float:
    amount = cost.needs.get(resource.name)
    return 0.0 if amount is None else amount.value


def _load(graph: TaskGraph, resource: Resource) -> float:
    if resource.name == INGRESS:
        return graph.wanted * graph.packet_bytes * 8 / 1e9
    return graph.needs.get(resource.name, 0.0)


def _capacities(resources: Sequence[Resource]) -> Floats:
    return np.array([np.inf if r.capacity is None else r.capacity for r in resources])


def _table(rows: Sequence[Sequence[float]], columns: int) -> Floats:
    return np.array(rows, dtype=np.float64).reshape(len(rows), columns)
