"""Fair sharing of time: which rates instances that stand serve, and what is scarce."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import CardError
from n3ic.systems.card.demand import Demand
from n3ic.systems.card.drf import Floats
from n3ic.systems.card.resources import Resource

Scarce = int | Resource  # index of a task whose instances are full, or a resource

_BINDS = 1e-4  # share of the largest dual value from which on a row is taken to bind
_ROUNDING = 1e-9  # share by which a rate that was found may be missed when it is demanded again


@dataclass(frozen=True, eq=False)
class FairRates:
    """Rates, and what keeps them from being larger.

    Attributes:
        rates: packets a second, shape ``(graphs,)``.
        scarce: of each graph, what is used up, so that it could have more only if a graph of no
            higher level had less; or what it needs and there is nothing of. Empty for a graph
            that is served all its load.
    """

    rates: Floats
    scarce: tuple[tuple[Scarce, ...], ...]


def fair_rates(
    demand: Demand,
    instances: NDArray[np.bool_],
    weights: Floats,
    loads: Floats,
    guaranteed: Floats | None = None,
) -> FairRates:
    """Max-min fair packets a second, by weight, of graphs whose tasks stand where they stand.

    What dominant resource fair queueing converges to where packets are many and small (Ghodsi et
    al., "Multi-Resource Fair Queueing for Packet Processing", SIGCOMM 2012): every task's
    instances, every region's and the card's resources are a resource each, a packet takes its
    processing time of them, and the largest of a graph's shares, divided by its weight, is
    levelled.

    A row of linear programmes raises the level. A graph whose row has a dual value above 0 is at
    the level in every solution, so it stays there; each programme settles one graph or more. All
    columns are shares of what a graph can have at most and all rows shares of a capacity, so that
    the solver's tolerances are relative to both.

    Args:
        demand: the card's numbers.
        instances: bool, shape ``(tasks, regions)``.
        weights: of the graphs, above 0, shape ``(graphs,)``.
        loads: packets a second that arrive, shape ``(graphs,)``.
        guaranteed: packets a second that a graph has before any is levelled; none if None. The
            instances must serve them together.

    Returns:
        The rates, none above its load.

    Raises:
        CardError: the instances do not serve what is guaranteed.
    """
    dominant = dominant_shares(demand, instances)
    most = loads / demand.wanted
    served = np.where(dominant > 0, 0.0, most)
    scarce = [_missing(demand, instances, g) for g in range(len(most))]
    active = np.flatnonzero((dominant > 0) & np.isfinite(dominant) & (most > 0))
    unit = np.minimum(most[active], 1 / dominant[active])  # what a graph can have at most
    # above what the capacities let it have, a load must not be what binds
    cap = np.minimum(most[active] / unit, 2.0)
    floor = np.zeros(len(active))
    if guaranteed is not None:
        floor = np.minimum(guaranteed[active] / demand.wanted[active] / unit, cap)
    pace = weights[active] / dominant[active] / unit  # in units, at level 1
    table = _Capacities.of(demand.scaled(unit, active), instances)
    x = floor
    rising = np.ones(len(active), dtype=bool)
    while rising.any():
        speed = np.where(rising, pace / pace[rising].max(), 0.0)
        level, stuck, full = table.level(speed, x * (1 - _ROUNDING), np.where(rising, cap, x))
        for i in np.flatnonzero(stuck):
            x[i] = max(x[i], min(level * speed[i], cap[i]))
            rising[i] = False
            if x[i] < cap[i] * (1 - 10 * _ROUNDING):
                scarce[active[i]] = full[i]
    served[active] = x * unit
    return FairRates(served * demand.wanted, tuple(scarce))


def dominant_shares(demand: Demand, instances: NDArray[np.bool_]) -> Floats:
    """Largest share that all wanted packets of a graph take of a resource, shape ``(graphs,)``.

    A task's instances are one resource, however many there are; infinite where there is none. So
    is the time of all regions that hold tasks of the graph.
    """
    count = instances.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        pools = np.where(demand.occupancy > 0, demand.occupancy / count, 0.0)
        pools = np.where(demand.uses & (count == 0), np.inf, pools)
        hosts = np.maximum((demand.uses.astype(int) @ instances > 0).sum(axis=1), 1)
        work = demand.work.sum(axis=1)
        busy = np.where(work > 0, work / (demand.time_capacity * hosts[:, None]), 0.0)
        common = np.where(demand.load > 0, demand.load / demand.common_capacity, 0.0)
    parts = (pools.max(axis=1, initial=0), busy.max(axis=1, initial=0))
    return np.asarray(np.maximum.reduce([*parts, common.max(axis=1, initial=0)]))


def _missing(demand: Demand, instances: NDArray[np.bool_], g: int) -> tuple[Scarce, ...]:
    """What a graph needs and there is nothing of."""
    tasks = np.flatnonzero(demand.uses[g] & ~instances.any(axis=1))
    work = (demand.work[g] > 0).any(axis=0) & (demand.time_capacity == 0)
    load = (demand.load[g] > 0) & (demand.common_capacity == 0)
    times = (demand.time[s] for s in np.flatnonzero(work))
    commons = (demand.common[s] for s in np.flatnonzero(load))
    return (*map(int, tasks), *times, *commons)


@dataclass(frozen=True, eq=False)
class _Capacities:
    """Rows of the linear programme, each scaled to a capacity of 1.

    Its columns are the share of its unit that each graph is served; for each of a graph's tasks
    that take a region's time, the share that is served in each region; and the level.

    Attributes:
        what: they are of: a task's instances, or a resource.
        upper: what columns take of each capacity, shape ``(rows, columns)``.
        equal: rows by which the regions' shares add up to the graph's, shape ``(_, columns)``.
        graph: of each column but the level's.
    """

    what: tuple[Scarce, ...]
    upper: Floats
    equal: Floats
    graph: NDArray[np.int64]

    @classmethod
    def of(cls, demand: Demand, instances: NDArray[np.bool_]) -> _Capacities:
        graphs = len(demand.wanted)
        timed = np.asarray((demand.work > 0).any(axis=(0, 2)))
        # where it is served matters of tasks that take a region's time alone
        split = [
            (g, t, r)
            for g, t in np.argwhere(demand.uses & timed[None])
            for r in np.flatnonzero(instances[t])
        ]
        owner = np.array([*range(graphs), *(g for g, _, _ in split)], dtype=np.int64)
        rows: list[tuple[Scarce, Floats]] = []

        def row(what: Scarce, capacity: float, entries: dict[int, float]) -> None:
            if np.isfinite(capacity) and any(entries.values()):
                new = np.zeros(len(owner) + 1)
                new[list(entries)] = np.array(list(entries.values())) / capacity
                rows.append((what, new))

        for t in range(len(demand.tasks)):
            if not timed[t]:
                whole = dict(enumerate(map(float, demand.occupancy[:, t])))
                row(t, float(instances[t].sum()), whole)
                continue
            for r in np.flatnonzero(instances[t]):
                here = {
                    graphs + i: float(demand.occupancy[g, t])
                    for i, (g, task, region) in enumerate(split)
                    if (task, region) == (t, r)
                }
                row(t, 1.0, here)
        for s, resource in enumerate(demand.time):
            for region in range(demand.regions):
                here = {
                    graphs + i: float(demand.work[g, t, s])
                    for i, (g, t, r) in enumerate(split)
                    if r == region
                }
                row(resource, float(demand.time_capacity[s]), here)
        for s, resource in enumerate(demand.common):
            whole = dict(enumerate(map(float, demand.load[:, s])))
            row(resource, float(demand.common_capacity[s]), whole)
        pairs = list(dict.fromkeys((g, t) for g, t, _ in split))
        sums = np.zeros((len(pairs), len(owner) + 1))
        for i, pair in enumerate(pairs):
            sums[i, pair[0]] = -1.0
            sums[i, [graphs + k for k, (g, t, _) in enumerate(split) if (g, t) == pair]] = 1.0
        table = np.array([r for _, r in rows]).reshape(len(rows), len(owner) + 1)
        return cls(tuple(what for what, _ in rows), table, sums, owner)

    def level(
        self, speed: Floats, least: Floats, most: Floats
    ) -> tuple[float, NDArray[np.bool_], list[tuple[Scarce, ...]]]:
        """The highest level that those who rise reach together.

        Args:
            speed: share of its unit that each graph has at level 1; 0 for those who do not rise.
            least: share that each has at least.
            most: share that each has at most.

        Returns:
            The level; which graphs are at it in every solution; and for each graph whose
            capacities keep it there.
        """
        from scipy.optimize import linprog

        graphs, rising = len(speed), np.flatnonzero(speed > 0)
        reach = np.zeros((len(rising), self.upper.shape[1]))
        reach[np.arange(len(rising)), rising] = -1.0
        reach[:, -1] = speed[rising]
        goal = np.zeros(self.upper.shape[1])
        goal[-1] = -1.0
        split = [(0.0, None)] * (self.upper.shape[1] - 1 - graphs)
        found = linprog(
            goal,
            A_ub=np.concatenate([self.upper, reach]),
            b_ub=np.concatenate([np.ones(len(self.upper)), np.zeros(len(reach))]),
            A_eq=self.equal,
            b_eq=np.zeros(len(self.equal)),
            bounds=[*zip(least, most, strict=True), *split, (0.0, None)],
        )
        if found.x is None:
            raise CardError("the rates are beyond what the instances serve")
        dual = -np.asarray(found.ineqlin.marginals)
        takes = np.zeros((len(self.upper), graphs))
        np.maximum.at(takes.T, self.graph, self.upper[:, :-1].T)
        # a dual value is of a graph's unit; divided by its largest share, it does not depend on it
        price = np.zeros(graphs)
        price[rising] = dual[len(self.upper) :] / takes.max(axis=0)[rising]
        binds = takes * dual[: len(self.upper), None]
        rows = (np.flatnonzero(column > _BINDS * column.max(initial=0)) for column in binds.T)
        full = [tuple(dict.fromkeys(self.what[i] for i in row)) for row in rows]
        return float(found.x[-1]), price > _BINDS * price.max(), full
