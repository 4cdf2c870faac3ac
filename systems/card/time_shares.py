# SPDX-License-Identifier: Apache-2.0
"""Fair sharing of time: the rates that given instances serve, and the scarce resources."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import CardError
from n3ic.systems.card.demand import CardDemand
from n3ic.systems.card.drf import Floats
from n3ic.systems.card.resources import Resource

Scarce = int | Resource  # index of a task whose instances are full, or an exhausted resource

_BINDS = 1e-4  # share of the largest dual value above which a row counts as binding
_ROUNDING = 1e-9  # relative slack for rates that an earlier programme found


@dataclass(frozen=True, eq=False)
class FairRates:
    """Rates of the graphs, and what limits them.

    Attributes:
        rates: packets per second, float64 array of shape ``(graphs,)``.
        scarce: for each graph, the resources that limit it. They are exhausted, so the graph could
            get more only if a graph at no higher level got less, or they have no capacity. Empty
            for a graph whose whole load is served.
    """

    rates: Floats
    scarce: tuple[tuple[Scarce, ...], ...]


def fair_rates(
    demand: CardDemand,
    instances: NDArray[np.bool_],
    weights: Floats,
    loads: Floats,
    guaranteed: Floats | None = None,
) -> FairRates:
    """Compute max-min fair rates in packets per second, by weight, for fixed instances.

    Dominant resource fair queueing converges to these rates if packets are many and small (Ghodsi
    et al., "Multi-Resource Fair Queueing for Packet Processing", SIGCOMM 2012). All instances of a
    task count as one resource, as does every resource of a region or of the card. A packet takes
    processing time of them. The largest share of each graph, divided by its weight, is equalised.

    A sequence of linear programmes raises the common level. A graph whose row has a positive dual
    value is at that level in every solution, so it is settled. Each programme settles at least one
    graph. Columns are shares of the most that a graph can get, and rows are shares of a capacity,
    so that the solver's tolerances are relative to both.

    Args:
        demand: the card's demand in numbers.
        instances: bool array of shape ``(tasks, regions)``.
        weights: weights of the graphs, above 0, shape ``(graphs,)``.
        loads: arriving packets per second, shape ``(graphs,)``.
        guaranteed: packets per second that each graph gets before levels rise; None for none. The
            instances must be able to serve them together.

    Returns:
        The rates, which do not exceed the loads.

    Raises:
        CardError: the instances cannot serve the guaranteed rates.
    """
    dominant = dominant_shares(demand, instances)
    most = loads / demand.wanted
    served = np.where(dominant > 0, 0.0, most)
    scarce = [_missing(demand, instances, g) for g in range(len(most))]
    active = np.flatnonzero((dominant > 0) & np.isfinite(dominant) & (most > 0))
    unit = np.minimum(most[active], 1 / dominant[active])  # upper bound of what a graph can get
    # A load above the capacities must not be the binding bound, or the cause would be hidden.
    cap = np.minimum(most[active] / unit, 2.0)
    floor = np.zeros(len(active))
    if guaranteed is not None:
        floor = np.minimum(guaranteed[active] / demand.wanted[active] / unit, cap)
    pace = weights[active] / dominant[active] / unit  # rate in units at level 1
    table = _Capacities.of(demand.scaled(unit, active), instances)
    # Bounds of later programmes are what earlier ones found, so no settled graph loses its rate.
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


def dominant_shares(demand: CardDemand, instances: NDArray[np.bool_]) -> Floats:
    """Compute the largest share of any resource that all wanted packets of a graph take.

    All instances of a task are one resource, and so is the time of all regions that hold tasks of
    the graph. The share is infinite if a task has no instance.

    Returns:
        Array of shape ``(graphs,)``.
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


def _missing(demand: CardDemand, instances: NDArray[np.bool_], g: int) -> tuple[Scarce, ...]:
    """Return the resources without capacity that a graph needs."""
    tasks = np.flatnonzero(demand.uses[g] & ~instances.any(axis=1))
    work = (demand.work[g] > 0).any(axis=0) & (demand.time_capacity == 0)
    load = (demand.load[g] > 0) & (demand.common_capacity == 0)
    times = (demand.time[s] for s in np.flatnonzero(work))
    commons = (demand.common[s] for s in np.flatnonzero(load))
    return (*map(int, tasks), *times, *commons)


@dataclass(frozen=True, eq=False)
class _Capacities:
    """Rows of the linear programme, each scaled to a capacity of 1.

    There is a column for the share of its unit that each graph is served, then one for the share
    served in each region by each task that takes the region's time, and one for the level.

    Attributes:
        what: resource of each row: a task's instances, or a resource.
        upper: part of each capacity that the columns take, shape ``(rows, columns)``.
        equal: rows that make the regions' shares sum to the graph's, shape ``(_, columns)``.
        graph: index of each column's graph; the level's column has none.
    """

    what: tuple[Scarce, ...]
    upper: Floats
    equal: Floats
    graph: NDArray[np.int64]

    @classmethod
    def of(cls, demand: CardDemand, instances: NDArray[np.bool_]) -> _Capacities:
        graphs = len(demand.wanted)
        timed = np.asarray((demand.work > 0).any(axis=(0, 2)))
        # The region matters only for tasks that take a region's time.
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
        """Find the highest level that the rising graphs reach together.

        Args:
            speed: share of its unit that each graph has at level 1; 0 for graphs that do not rise.
            least: lower bound of each graph's share.
            most: upper bound of each graph's share.

        Returns:
            The level; for each graph, whether it is at the level in every solution; and for each
            graph, the capacities that keep it there.
        """
        from scipy.optimize import linprog

        graphs, rising = len(speed), np.flatnonzero(speed > 0)
        reach = np.zeros((len(rising), self.upper.shape[1]))
        reach[np.arange(len(rising)), rising] = -1.0
        reach[:, -1] = speed[rising]
        goal = np.zeros(self.upper.shape[1])
        goal[-1] = -1.0
        split = [(0.0, None)] * (self.upper.shape[1] - 1 - graphs)
        result = linprog(
            goal,
            A_ub=np.concatenate([self.upper, reach]),
            b_ub=np.concatenate([np.ones(len(self.upper)), np.zeros(len(reach))]),
            A_eq=self.equal,
            b_eq=np.zeros(len(self.equal)),
            bounds=[*zip(least, most, strict=True), *split, (0.0, None)],
        )
        if result.x is None:
            raise CardError("the instances cannot serve these rates")
        dual = -np.asarray(result.ineqlin.marginals)
        use = np.zeros((len(self.upper), graphs))
        np.maximum.at(use.T, self.graph, self.upper[:, :-1].T)
        # A dual value depends on the graph's unit; dividing by its largest share makes values
        # comparable between graphs.
        # By complementary slackness a positive price means that the graph's row is tight in all
        # optima.
        price = np.zeros(graphs)
        price[rising] = dual[len(self.upper) :] / use.max(axis=0)[rising]
        binds = use * dual[: len(self.upper), None]
        rows = (np.flatnonzero(column > _BINDS * column.max(initial=0)) for column in binds.T)
        full = [tuple(dict.fromkeys(self.what[i] for i in row)) for row in rows]
        return float(result.x[-1]), price > _BINDS * price.max(), full
