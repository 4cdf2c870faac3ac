# SPDX-License-Identifier: Apache-2.0
"""Who gets what of random cards, against linear programmes of the definitions alone.

Max-min fairness by its definition (Ghodsi et al., NSDI 2011 and SIGCOMM 2012): nobody can have
more unless somebody of no higher level has less. The programmes are written from the formulas of
``docs/explanation/card.md`` and call nothing of the planner.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from n3ic.systems.card.parser import parse_card
from n3ic.systems.card.planner import plan
from n3ic.systems.card.resources import Amount, Resource, TaskCost, budget_of, costs_of

BYTES = 500
GBPS = 1e9 / (8 * BYTES)  # packets a second
CLOSE = 1e-6  # of a capacity, or of what is wanted


@dataclass(frozen=True)
class Case:
    """A card in numbers; rates in Gb/s.

    ``tasks`` are (units of area, rate of an instance or None, cycles of a gigabit), ``graphs`` are
    (tenant, wanted rate, tasks). A region has ``units`` and ``cycles`` a second.
    """

    regions: int
    units: float
    cycles: float
    ingress: float
    tasks: tuple[tuple[float, float | None, float], ...]
    weights: tuple[float, ...]
    graphs: tuple[tuple[int, float, tuple[int, ...]], ...]

    def planned(self):
        device = f"[device]\nregions = {self.regions}\ningress = '{self.ingress} Gb/s'\n"
        text = device + f"resources = {{ units = {self.units * self.regions} }}\n"
        for t, (area, rate, _) in enumerate(self.tasks):
            text += f"[[tasks]]\nname = 'a{t}'\nkind = 'verilog'\nsources = ['a.v']\ntop = 'a'\n"
            text += f"needs = {{ units = {area} }}\nrate = '{rate or 1} Gb/s'\n"
        for i, weight in enumerate(self.weights):
            text += f"[[tenants]]\nname = 't{i}'\nweight = {weight}\n"
            for uid, (tenant, wanted, flow) in enumerate(self.graphs, start=1):
                if tenant == i:
                    text += f"[[tenants.graphs]]\nname = 'g{uid}'\nuid = {uid}\n"
                    text += f"packet_bytes = {BYTES}\nwants = '{wanted} Gb/s'\n"
                    text += f"flow = {[f'a{t}' for t in flow]}\n"
        card = parse_card(text)
        budget = budget_of(card)
        costs = costs_of(card, budget)
        time = Resource("cycles", "cycle/s", "packet", "region", self.cycles)
        for t, (_, rate, cycles) in enumerate(self.tasks):
            needs = dict(costs[f"a{t}"].needs)
            if cycles:
                needs["cycles"] = Amount(cycles / GBPS, "estimated", "here")
            known = costs[f"a{t}"].rate if rate else None
            costs[f"a{t}"] = TaskCost(needs, known, "estimated", "here", None)
        return plan(card, replace(budget, resources=(*budget.resources, time)), costs)


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    tasks = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(("rate", "rate", "rate", "cycles", "both", "endless"))
        rate = None if kind in ("cycles", "endless") else rng.choice((5.0, 10.0, 3.3))
        cycles = rng.choice((10.0, 7.0)) if kind in ("cycles", "both") else 0.0
        tasks.append((float(rng.randint(1, 3)), rate, cycles))
    tenants = rng.randint(1, 3)
    wide = rng.random() < 0.2  # wants that lie far apart
    graphs = []
    for g in range(rng.randint(tenants, 4)):
        wanted = 10 ** rng.uniform(-4, 4) if wide else rng.uniform(0.5, 12)
        wanted = round(wanted) or 1 if rng.random() < 0.3 else float(f"{wanted:.3g}")
        flow = rng.sample(range(len(tasks)), rng.randint(1, len(tasks)))
        graphs.append((g if g < tenants else rng.randrange(tenants), wanted, tuple(flow)))
    used = sorted({t for _, _, flow in graphs for t in flow})
    # the planner reports graphs in the order of the tenants
    return Case(
        regions=rng.randint(1, 3),
        units=float(rng.randint(2, 6)),
        cycles=rng.choice((100.0, 60.0)),
        ingress=rng.choice((1e6, 1e6, 15.0)),
        tasks=tuple(tasks[t] for t in used),
        weights=tuple(float(rng.randint(1, 3)) for _ in range(tenants)),
        graphs=tuple(
            (i, w, tuple(used.index(t) for t in flow))
            for i, w, flow in sorted(graphs, key=lambda g: g[0])
        ),
    )


class Rates:
    """What instances that stand can serve.

    Columns are Gb/s of each graph, as a share of what it wants or, if that is less, of what could
    be served of it alone; then Gb/s of each graph at each task in each region.
    """

    def __init__(self, case: Case, stands: np.ndarray) -> None:
        self.case = case
        ways = [
            (g, t, r)
            for g, (_, _, flow) in enumerate(case.graphs)
            for t in flow
            for r in np.flatnonzero(stands[t])
        ]
        graphs = len(case.graphs)
        self.rows: dict[tuple[str, int, int], np.ndarray] = {}
        self.columns = graphs + len(ways)
        for i, (_, t, r) in enumerate(ways):
            _, rate, cycles = case.tasks[t]
            if rate:
                self._row(("task", t, r))[graphs + i] = 1 / rate
            if cycles:
                self._row(("cycles", 0, r))[graphs + i] = cycles / case.cycles
        self._row(("ingress", 0, 0))[:graphs] = 1 / case.ingress
        self.sums = []
        for g, (_, _, flow) in enumerate(case.graphs):
            for t in flow:
                row = np.zeros(self.columns)
                row[g] = -1.0
                row[[graphs + i for i, (h, u, _) in enumerate(ways) if (h, u) == (g, t)]] = 1.0
                self.sums.append(row)
        alone = [
            self._solve(g, np.zeros(graphs), np.full(graphs, np.inf))[0] for g in range(graphs)
        ]
        self.unit = np.minimum([w for _, w, _ in case.graphs], alone)

    def keep(self, names: set[str | int]) -> None:
        """Leave the capacities of some tasks, by index, and resources, by name, alone."""
        rows = {k: v for k, v in self.rows.items() if (k[1] if k[0] == "task" else k[0]) in names}
        self.rows = rows or {("none", 0, 0): np.zeros(self.columns)}

    def _row(self, key) -> np.ndarray:
        return self.rows.setdefault(key, np.zeros(self.columns))

    def _solve(self, goal, least, most):
        graphs = len(self.case.graphs)
        scale = np.ones(self.columns)
        scale[:graphs] = getattr(self, "unit", np.ones(graphs))
        scale[scale == 0] = 1.0
        cost = np.zeros(self.columns)
        cost[goal] = -1.0
        # a column of 1 for a graph at its own unit, so that tolerances are shares of it
        bounds = [
            *zip(least / scale[:graphs], most / scale[:graphs], strict=True),
            *[(0, None)] * (self.columns - graphs),
        ]
        solution = linprog(
            cost,
            A_ub=np.array(list(self.rows.values())) * scale,
            b_ub=np.ones(len(self.rows)),
            A_eq=np.array(self.sums) * scale,
            b_eq=np.zeros(len(self.sums)),
            bounds=bounds,
        )
        assert solution.status in (0, 2), solution.message
        return (solution.x[goal] * scale[goal] if solution.status == 0 else None), solution.x

    def largest(self, g: int, least: np.ndarray) -> float | None:
        """The largest rate of one graph while all have at least so much; None if they cannot."""
        wanted = np.array([w for _, w, _ in self.case.graphs])
        return self._solve(g, np.minimum(least, wanted), wanted)[0]


def dominant_shares(case: Case, stands: np.ndarray) -> np.ndarray:
    """d_g of step 2: the largest share of a resource that all wanted packets of a graph take."""
    out = []
    for _, wanted, flow in case.graphs:
        shares = [wanted / case.ingress]
        if not stands[list(flow)].any(axis=1).all():
            out.append(np.inf)
            continue
        shares += [wanted / case.tasks[t][1] / stands[t].sum() for t in flow if case.tasks[t][1]]
        hosts = stands[list(flow)].any(axis=0).sum()
        shares.append(sum(wanted * case.tasks[t][2] for t in flow) / case.cycles / hosts)
        out.append(max(shares))
    return np.array(out)


def space_demands(case: Case) -> np.ndarray:
    """D_gj / C_j of step 1, for units, cycles and ingress."""
    users = [sum(t in flow for _, _, flow in case.graphs) for t in range(len(case.tasks))]
    out = []
    for _, wanted, flow in case.graphs:
        units = cycles = 0.0
        for t in flow:
            area, rate, work = case.tasks[t]
            instances = max(wanted / rate if rate else 0.0, wanted * work / case.cycles)
            units += area * (instances or 1 / users[t]) / (case.regions * case.units)
            cycles += wanted * work / (case.regions * case.cycles)
        out.append([units, cycles, wanted / case.ingress])
    return np.array(out)


def check_space(case: Case, entitled: np.ndarray) -> None:
    """Tenants' shares of what they want are max-min fair, by definition."""
    tenants = len(case.weights)
    owner = np.array([i for i, _, _ in case.graphs])
    demand = np.array([space_demands(case)[owner == i].sum(axis=0) for i in range(tenants)])
    share = np.array([entitled[owner == i][0] for i in range(tenants)])
    assert entitled == pytest.approx(share[owner])
    assert (share @ demand <= 1 + CLOSE).all()
    level = share * demand.max(axis=1) / case.weights
    reach = 1 / np.maximum(demand.max(axis=1), 1)  # of each alone; shares of it are the columns
    for i in range(tenants):
        least = [
            s / r * (1 - 1e-7) if j != i and level[j] <= level[i] * (1 + CLOSE) else 0.0
            for j, (s, r) in enumerate(zip(share, reach, strict=True))
        ]
        solution = linprog(
            -np.eye(tenants)[i],
            A_ub=(demand * reach[:, None]).T,
            b_ub=np.ones(3),
            bounds=list(zip(least, 1 / reach, strict=True)),
        )
        assert solution.status == 0, solution.message
        assert solution.x[i] * reach[i] <= share[i] * (1 + 10 * CLOSE) + CLOSE * reach[i], i


def servable(case: Case) -> bool:
    """Whether any choice of instances serves all that is wanted: a programme of its own."""
    tasks, regions, graphs = len(case.tasks), case.regions, len(case.graphs)
    stands = np.arange(tasks * regions).reshape(tasks, regions)
    flow = tasks * regions + np.arange(graphs * tasks * regions).reshape(graphs, tasks, regions)
    columns = tasks * regions * (1 + graphs)
    rows, low, high = [], [], []

    def row(terms, least, most):
        rows.append(np.zeros(columns))
        for column, value in terms:
            rows[-1][column] += value
        low.append(least)
        high.append(most)

    if sum(w for _, w, _ in case.graphs) > case.ingress * (1 + CLOSE):
        return False
    for g, (_, _, own) in enumerate(case.graphs):
        for t in own:
            row([(flow[g, t, r], 1) for r in range(regions)], 1, 1)
            for r in range(regions):
                row([(flow[g, t, r], 1), (stands[t, r], -1)], -np.inf, 0)
    for r in range(regions):
        row([(stands[t, r], a / case.units) for t, (a, _, _) in enumerate(case.tasks)], 0, 1)
        busy = [
            (flow[g, t, r], w * case.tasks[t][2] / case.cycles)
            for g, (_, w, own) in enumerate(case.graphs)
            for t in own
        ]
        row(busy, 0, 1)
        for t, (_, rate, _) in enumerate(case.tasks):
            if rate:
                load = [
                    (flow[g, t, r], w / rate)
                    for g, (_, w, own) in enumerate(case.graphs)
                    if t in own
                ]
                row([*load, (stands[t, r], -1)], -np.inf, 0)
    solution = milp(
        np.zeros(columns),
        integrality=np.arange(columns) < tasks * regions,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(np.array(rows), low, high),
    )
    assert solution.status in (0, 2), solution.message
    return bool(solution.status == 0)


def check(case: Case) -> bool:
    """Hold a plan against the definitions; whether the card is refused."""
    planned = case.planned()
    wanted = np.array([w for _, w, _ in case.graphs])
    rates = np.array([g.guaranteed for g in planned.graphs]) / GBPS
    entitled = np.array([g.entitled / g.wanted for g in planned.graphs])
    stands = np.array(
        [[f"a{t}" in region.chain for region in planned.regions] for t in range(len(case.tasks))]
    )
    check_space(case, entitled)
    weights = entitled * space_demands(case).max(axis=1)
    dominant = dominant_shares(case, stands)
    with np.errstate(invalid="ignore"):
        level = np.where(np.isinf(dominant), 0.0, dominant * rates / wanted / weights)
    programme = Rates(case, stands)
    assert programme.largest(0, rates * (1 - CLOSE)) is not None, "more than there is"
    short = rates < wanted * (1 - 1e-4)
    for g in range(len(rates)):
        others = np.arange(len(rates)) != g
        # no more without less for somebody; no more without less for somebody of no higher level
        for least in (others, others & (level <= level[g] * (1 + CLOSE))):
            most = programme.largest(g, np.where(least, rates * (1 - CLOSE), 0.0))
            assert most is not None
            room = 100 * CLOSE * programme.unit[g] + 10 * CLOSE * rates.sum()  # that others leave
            assert most <= rates[g] + room, (g, most, rates[g])
    reasons = {}
    for line in planned.problems:
        graph, why = re.fullmatch(r"t\d/g(\d+) wants .* can be guaranteed: (.+)", line).groups()
        reasons[int(graph) - 1] = why
    assert list(reasons) == list(np.flatnonzero(short))
    scarce = {g: scarce_of(case, stands, g, why) for g, why in reasons.items()}
    for names in scarce.values():
        for t in names - {"ingress", "cycles"}:  # one that takes a region's time may be full in one
            load = sum(r for r, (_, _, f) in zip(rates, case.graphs, strict=True) if t in f)
            room = case.tasks[t][1] * stands[t].sum()
            assert load == pytest.approx(room, rel=1e-4) or (case.tasks[t][2] and load < room)
        if "ingress" in names:
            assert rates.sum() == pytest.approx(case.ingress, rel=1e-4)
    # what is named is all that is scarce: were there no end of the rest, it would be the same
    programme.keep(set().union(*scarce.values()))
    for g, names in scarce.items():
        least = (np.arange(len(rates)) != g) & (level <= level[g] * (1 + CLOSE))
        most = programme.largest(g, np.where(least, rates * (1 - CLOSE), 0.0))
        room = 100 * CLOSE * programme.unit[g] + 10 * CLOSE * rates.sum()
        assert not names or most <= rates[g] + room, (g, names, most, rates[g])
    assert not (reasons and servable(case)), "refused, though it could be served"
    return bool(reasons)


def scarce_of(case: Case, stands: np.ndarray, g: int, why: str) -> set[str | int]:
    """What is said to be scarce; it is of the graph's own. Nothing where there is no instance."""
    flow = case.graphs[g][2]
    if why.startswith("no room for "):
        missing = why.removeprefix("no room for ").split(", ")
        assert missing == [f"a{t}" for t in sorted(flow) if not stands[t].any()]
        return set()
    names = {part.split(" (")[0] for part in why.split("; ")}
    own = {f"a{t}": t for t in flow if case.tasks[t][1]} | {"ingress": "ingress"}
    if any(case.tasks[t][2] for t in flow):
        own["cycles"] = "cycles"
    assert names and names <= own.keys()
    return {own[name] for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 20, 10))
def test_random_cards(first):
    """Levels, Pareto efficiency and refusals of a few cards; many of them are slow."""
    refused = [check(random_case(seed)) for seed in range(first, first + 10)]
    assert 0 < sum(refused) < 10


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(20, 160, 70))
def test_many_random_cards(first):
    refused = [check(random_case(seed)) for seed in range(first, first + 70)]
    assert 0 < sum(refused) < 70


def test_a_graph_that_meets_no_full_task_is_served():
    """The first two fill task 0; the third, alone with half of task 1, goes on to what it wants."""
    graphs = ((0, 7.27, (0, 1)), (1, 2.89, (0,)), (2, 10.55, (1,)))
    tasks = ((1.0, 5.0, 0.0), (1.0, 10.0, 0.0))
    case = Case(2, 2.0, 1.0, 1e6, tasks, (1.0, 1.0, 1.0), graphs)
    planned = case.planned()
    assert planned.graphs[2].guaranteed == pytest.approx(planned.graphs[2].wanted)
    assert all("a0 (2.03 instances are wanted, 2 fit)" in line for line in planned.problems)
    assert check(case)


def test_what_is_scarce_is_named_though_it_is_no_task():
    """Ports and a core's cycles, which packets take."""
    ports = Case(1, 2.0, 100.0, 15.0, ((1.0, None, 0.0),), (1.0,), ((0, 20.0, (0,)),))
    assert "ingress (20 Gb/s are wanted, 15 are available)" in ports.planned().problems[0]
    cycles = replace(ports, ingress=1e6, tasks=((1.0, None, 10.0),))
    assert "cycles (200 cycle/s are wanted, 100 are available)" in cycles.planned().problems[0]


@pytest.mark.parametrize("wanted", [1e-3, 1e3, 1e6])
def test_tolerances_are_of_capacities_not_of_what_is_wanted(wanted):
    """One asks for far more, or far less, than a task has; 11 of 20 Gb/s are due to it at most."""
    graphs = ((0, wanted, (0,)), (1, 9.0, (0,)))
    case = Case(1, 2.0, 1.0, 1e9, ((1.0, 10.0, 0.0),), (1.0, 1.0), graphs)
    rates = [g.guaranteed / GBPS for g in case.planned().graphs]
    assert rates == pytest.approx([wanted, 9.0] if wanted < 1 else [5.5, 4.5], rel=1e-5)
