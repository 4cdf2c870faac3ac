# SPDX-License-Identifier: Apache-2.0
"""Choose the region of each task, and the order of the tasks in a region.

This is a mixed-integer programme, solved by HiGHS through :func:`scipy.optimize.milp`. Its
variables are:

- an instance of a task in a region (0 or 1);
- the tenant that owns a region (0 or 1);
- the share of a graph's packets that a task's instance in a region serves;
- the share that goes on to the next task without leaving the region.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import CardError
from n3ic.systems.card.demand import CardDemand
from n3ic.systems.card.drf import Floats

SLACK = 1e-7  # HiGHS's feasibility tolerance, by which a share may be missed
_NODES = 2_000  # branch-and-bound nodes: unlike a time limit, the same on every machine
_NODES_FOR_LATENCY = 50  # many placements are equal in latency, so a long search gains little
_GAP = 1e-6
_GAP_IN_LATENCY = 0.02
_NOT_FOUND = "no placement by HiGHS: expected fewer tasks, graphs or regions"


@dataclass(frozen=True, eq=False)
class ChainPlacement:
    """Instances of tasks in regions.

    Attributes:
        instances: bool array of shape ``(tasks, regions)``.
        exclusive: whether each region has a single tenant.
        served: share of each graph's wanted packets that the instances serve, float64 of shape
            ``(graphs,)``.
    """

    instances: NDArray[np.bool_]
    exclusive: bool
    served: Floats


@dataclass(frozen=True, eq=False)
class PacketShares:
    """Shares of each graph's wanted packets, by task and region; float64 arrays.

    Attributes:
        served: shape ``(graphs,)``.
        at: share that a task's instance in a region serves, shape ``(graphs, tasks, regions)``.
    """

    served: Floats
    at: Floats


class LinearProgram:
    """The rows and columns of the programme for one card.

    Args:
        demand: the card's demand in numbers.
        scheduling_ns: nanoseconds of one pass through the scheduler.
        most: upper bound of the share of each graph's wanted packets that is served, shape
            ``(graphs,)``.
        instances: fixed instances; None to let the programme choose them.
        exclusive: whether each region has a single tenant.
    """

    def __init__(
        self,
        demand: CardDemand,
        *,
        scheduling_ns: float = 0.0,
        most: Floats | None = None,
        instances: NDArray[np.bool_] | None = None,
        exclusive: bool = True,
    ) -> None:
        self.demand = demand
        self.scheduling_ns = scheduling_ns
        self.most = np.ones(len(demand.graphs)) if most is None else most
        self._columns = 0
        self._rows: list[tuple[dict[int, float], float, float]] = []
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._integer: list[int] = []
        shape = (len(demand.tasks), demand.regions)
        self.n = self._add(shape, 1, integer=instances is None)
        if instances is not None:
            self._fix(self.n, instances.astype(np.float64))
        self.f = self._add((len(demand.graphs),), np.inf)
        self._bound(self.f, self.most)
        self.y = self._flows(shape)
        self._capacities()
        self.level = self._add((1,), np.inf)[0]
        self.owned = np.zeros((len(demand.tenants), 0), dtype=np.int64)
        if instances is None:
            if exclusive:
                self.owned = self._ownership(shape)
            self._larger_regions_first()
        self.passes, self.makespans = self._staying()

    def solve(
        self, objective: Mapping[int, float], nodes: int = _NODES, gap: float = _GAP
    ) -> Floats | None:
        """Minimise an objective.

        Args:
            objective: weight of each column in the objective.
            nodes: maximum number of branch-and-bound nodes.
            gap: relative distance to the best bound at which the search stops.

        Returns:
            Values of all columns; None if the rows are infeasible or no solution was found.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        cost = np.zeros(self._columns)
        for column, value in objective.items():
            cost[column] += value
        data: list[float] = []
        at: list[int] = []
        ends = [0]
        for row, _, _ in self._rows:
            at += row.keys()
            data += row.values()
            ends.append(len(at))
        # HiGHS in SciPy before 1.15 accepts 32-bit indices only.
        indices, starts = np.array(at, dtype=np.int32), np.array(ends, dtype=np.int32)
        matrix = csr_array((data, indices, starts), shape=(len(self._rows), self._columns))
        result = milp(
            cost,
            integrality=np.array(self._integer),
            bounds=Bounds(np.array(self._lower), np.array(self._upper)),
            constraints=LinearConstraint(
                matrix, [low for _, low, _ in self._rows], [high for _, _, high in self._rows]
            ),
            options={"node_limit": nodes, "mip_rel_gap": gap},
        )
        return None if result.x is None else np.asarray(result.x)

    def at_least(self, terms: Mapping[int, float], low: float) -> None:
        """Require that a weighted sum of columns is at least ``low``."""
        self._rows.append((dict(terms), low, np.inf))

    def at_most(self, terms: Mapping[int, float], high: float) -> None:
        """Require that a weighted sum of columns is at most ``high``."""
        self._rows.append((dict(terms), -np.inf, high))

    def latency(self) -> dict[int, float]:
        """Return an objective: the part of the packets' latency that depends on the placement."""
        pass_ns = max(self.scheduling_ns, 1.0)  # at least 1, so that fewer passes break ties
        return {
            **dict.fromkeys(self.makespans, 1.0),
            **{column: -pass_ns * share for column, share in self.passes.items()},
        }

    def area(self) -> dict[int, float]:
        """Return an objective: the area of all instances, with a small cost per instance."""
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.nan_to_num(self.demand.area / self.demand.space_capacity, posinf=0.0)
        weight = part.max(axis=1, initial=0.0) + 1e-3
        return {int(c): float(w) for row, w in zip(self.n, weight, strict=True) for c in row}

    def regions_in_use(self) -> dict[int, float]:
        """Return an objective: the regions in use, with a weight so small that area comes first."""
        return dict.fromkeys(map(int, self.owned.ravel()), 1e-4)

    def keep_to_fair_regions(self, columns: Floats) -> None:
        """Limit each tenant to its fair number of regions, or to what it needs in a solution."""
        weights = np.array([t.weight for t in self.demand.tenants])
        fair = np.floor(self.demand.regions * weights / weights.sum())
        for owned, due in zip(self.owned, fair, strict=True):
            if len(owned):
                # A tenant that already needs more than its fair number keeps it, or the rows would
                # be infeasible.
                most = max(float(due), float(columns[owned].round().sum()))
                self.at_most({int(c): 1.0 for c in owned}, most)

    def flows(self, columns: Floats) -> PacketShares:
        """Extract the shares of packets from a solution."""
        return PacketShares(columns[self.f], np.where(self.y >= 0, columns[self.y], 0.0))

    def _add(
        self, shape: tuple[int, ...], upper: float, integer: bool = False
    ) -> NDArray[np.int64]:
        count = int(np.prod(shape))
        new = np.arange(self._columns, self._columns + count).reshape(shape)
        self._columns += count
        self._lower += [0.0] * count
        self._upper += [upper] * count
        self._integer += [int(integer)] * count
        return new

    def _bound(self, columns: NDArray[np.int64], upper: Floats) -> None:
        for column, value in zip(columns.ravel(), upper.ravel(), strict=True):
            self._upper[column] = float(value)

    def _fix(self, columns: NDArray[np.int64], values: Floats) -> None:
        self._bound(columns, values)
        for column, value in zip(columns.ravel(), values.ravel(), strict=True):
            self._lower[column] = float(value)

    def _flows(self, shape: tuple[int, int]) -> NDArray[np.int64]:
        """Add shares at tasks: every packet of a graph passes each of its tasks once."""
        d = self.demand
        columns = np.full((len(d.graphs), *shape), -1)
        for g, t in np.argwhere(d.uses):
            columns[g, t] = self._add((shape[1],), np.inf)
            row = {int(c): 1.0 for c in columns[g, t]} | {int(self.f[g]): -1.0}
            self._rows.append((row, 0.0, 0.0))
            for r in range(shape[1]):  # a share needs an instance: y <= most * n (big M)
                self.at_most(
                    {int(columns[g, t, r]): 1.0, int(self.n[t, r]): -float(self.most[g])}, 0.0
                )
        return columns

    def _capacities(self) -> None:
        """Limit what is taken to the capacities of instances, regions and card."""
        d = self.demand
        for t, r in np.ndindex(*self.n.shape):
            row = {
                int(self.y[g, t, r]): float(d.occupancy[g, t])
                for g in np.flatnonzero(d.uses[:, t])
                if d.occupancy[g, t] > 0
            }
            if row:
                self.at_most(row | {int(self.n[t, r]): -1.0}, 0.0)
        for r in range(d.regions):
            for s, bound in enumerate(d.space_capacity):
                needs = {int(self.n[t, r]): float(a) for t, a in enumerate(d.area[:, s]) if a > 0}
                if np.isfinite(bound) and needs:
                    self._bounded(needs, float(bound))
            for s, bound in enumerate(d.time_capacity):
                busy = {
                    int(self.y[g, t, r]): float(d.work[g, t, s])
                    for g, t in np.argwhere(d.work[:, :, s] > 0)
                }
                if np.isfinite(bound) and busy:
                    self._bounded(busy, float(bound))
        for s, bound in enumerate(d.common_capacity):
            load = {int(self.f[g]): float(v) for g, v in enumerate(d.load[:, s]) if v > 0}
            if np.isfinite(bound) and load:
                self._bounded(load, float(bound))

    def _bounded(self, terms: Mapping[int, float], bound: float) -> None:
        """Add a row scaled to its bound, which makes the solver's tolerance relative."""
        scale = bound or 1.0
        self.at_most({c: v / scale for c, v in terms.items()}, bound / scale)

    def _ownership(self, shape: tuple[int, int]) -> NDArray[np.int64]:
        """Give each region at most one tenant, and allow only tasks of that tenant's graphs."""
        d = self.demand
        owned = self._add((len(d.tenants), shape[1]), 1, integer=True)
        for r in range(shape[1]):
            self.at_most({int(c): 1.0 for c in owned[:, r]}, 1.0)
            for t in range(shape[0]):
                users = {int(d.owner[g]) for g in np.flatnonzero(d.uses[:, t])}
                row = {int(owned[u, r]): -1.0 for u in users}
                self.at_most(row | {int(self.n[t, r]): 1.0}, 0.0)
        return owned

    def _larger_regions_first(self) -> None:
        """Order equal regions, so that the solver need not search their permutations."""
        weight = range(1, len(self.demand.tasks) + 1)
        for larger, smaller in pairwise(range(self.demand.regions)):
            row = {int(c): float(w) for c, w in zip(self.n[:, larger], weight, strict=True)}
            row |= {int(c): -float(w) for c, w in zip(self.n[:, smaller], weight, strict=True)}
            self.at_least(row, 0.0)

    def _staying(self) -> tuple[dict[int, float], list[int]]:
        """Add columns for packets that stay in a region, and for the time of parallel branches."""
        d = self.demand
        index = {name: i for i, name in enumerate(d.tasks)}
        stays: dict[int, float] = {}
        makespans: list[int] = []
        for g, graph in enumerate(d.graphs):
            edges = list(graph.flow.edges())
            into = {b: sum(1 for _, other in edges if other == b) for _, b in edges}
            out = {a: sum(1 for other, _ in edges if other == a) for a, _ in edges}
            for a, b in edges:
                for r, column in enumerate(self._add((d.regions,), np.inf)):
                    for t in (index[a], index[b]):
                        self.at_most({int(column): 1.0, int(self.y[g, t, r]): -1.0}, 0.0)
                    # A packet that forks or joins counts as staying only in part, so that it saves
                    # one pass, not one per edge.
                    stays[int(column)] = 1.0 / max(into[b], out[a])
            for parallel in graph.flow.parallels:
                column = int(self._add((1,), np.inf)[0])
                inside = [index[n] for branch in parallel.branches for n in branch.tasks()]
                for r in range(d.regions):
                    # Branches in one region run one after another, so the time there is at least
                    # their sum.
                    row = {int(self.y[g, t, r]): -float(d.latency[t]) for t in inside}
                    self.at_least(row | {column: 1.0}, 0.0)
                makespans.append(column)
        return stays, makespans


def place(demand: CardDemand, entitled: Floats, scheduling_ns: float) -> ChainPlacement:
    """Choose instances and their regions.

    Objectives are optimised in this order:

    1. the graph that is served least, relative to its entitlement;
    2. the other graphs;
    3. the area;
    4. the latency, by fewer passes of the scheduler and by branches in different regions, within a
       tenant's fair share of regions.

    Each region has a single tenant, unless that would serve less.

    Args:
        demand: the card's demand in numbers.
        entitled: share of its wanted rate that each graph is entitled to, shape ``(graphs,)``.
        scheduling_ns: nanoseconds of one pass through the scheduler.

    Raises:
        CardError: branch and bound reached its node limit without a placement.
    """
    alone, together = (_Chosen.of(demand, entitled, scheduling_ns, e) for e in (True, False))
    if alone.level >= together.level * (1 - 1e-6) - SLACK:
        return alone.finished()
    return together.finished()


@dataclass(frozen=True, eq=False)
class _Chosen:
    """A programme after its first objective."""

    programme: LinearProgram
    exclusive: bool
    entitled: Floats
    columns: Floats

    @classmethod
    def of(
        cls, demand: CardDemand, entitled: Floats, scheduling_ns: float, exclusive: bool
    ) -> _Chosen:
        programme = LinearProgram(
            demand, scheduling_ns=scheduling_ns, most=np.ones(len(entitled)), exclusive=exclusive
        )
        programme.at_most({int(programme.level): 1.0}, 1.0)
        for column, share in zip(programme.f, entitled, strict=True):
            programme.at_least({int(column): 1.0, int(programme.level): -float(share)}, 0.0)
        columns = programme.solve({int(programme.level): -1.0})
        if columns is None:
            raise CardError(_NOT_FOUND)
        return cls(programme, exclusive, entitled, columns)

    @property
    def level(self) -> float:
        """Smallest share that any graph is served, relative to its entitlement."""
        return float(self.columns[self.programme.level])

    def finished(self) -> ChainPlacement:
        p = self.programme
        p.at_least({int(p.level): 1.0}, max(0.0, self.level - SLACK))
        columns = p.solve({int(c): -1.0 for c in p.f})
        if columns is None:  # within HiGHS's tolerances, its own solution may look infeasible
            columns = self.columns
        for column in p.f:
            p.at_least({int(column): 1.0}, max(0.0, float(columns[column]) - SLACK))
        smallest = p.solve(p.area() | p.regions_in_use())
        if smallest is not None:
            columns = smallest
            bound = sum(v * columns[c] for c, v in p.area().items())
            # Each objective becomes a row before the next one is minimised (lexicographic
            # optimisation).
            p.at_most(p.area(), bound + SLACK * max(1.0, bound))
            p.keep_to_fair_regions(columns)
        quickest = p.solve(p.latency(), _NODES_FOR_LATENCY, _GAP_IN_LATENCY)
        if quickest is not None:
            columns = quickest
        # Integer columns are integral only up to the solver's tolerance.
        return ChainPlacement(columns[p.n] > 0.5, self.exclusive, columns[p.f])


def chain_order(demand: CardDemand, members: Iterable[int], rates: Floats) -> tuple[str, ...]:
    """Order the tasks of a region as in the graphs; the busiest graph wins a conflict.

    Args:
        demand: the card's numbers.
        members: indices of the tasks in the region.
        rates: packets per second of each graph, shape ``(graphs,)``.
    """
    names = [demand.tasks[t] for t in sorted(members)]
    after: dict[str, set[str]] = {name: set() for name in names}
    for g in sorted(range(len(rates)), key=lambda g: (-rates[g], g)):
        inside = [name for name in demand.graphs[g].flow.tasks() if name in after]
        wider = {name: set(before) for name, before in after.items()}
        for first, second in pairwise(inside):
            wider[second].add(first)
        # The order of a graph that contradicts a busier one is dropped; its packets take another
        # pass.
        if _acyclic(wider):
            after = wider
    out: list[str] = []
    while len(out) < len(names):  # repeatedly take the first task whose predecessors are placed
        out.append(next(n for n in names if n not in out and after[n] <= set(out)))
    return tuple(out)


def _acyclic(after: Mapping[str, Sequence[str] | set[str]]) -> bool:
    try:
        graphlib.TopologicalSorter(after).prepare()
    except graphlib.CycleError:
        return False
    return True
