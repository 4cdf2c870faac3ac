# SPDX-License-Identifier: Apache-2.0
"""Frames within a guarantee come first, and what is idle is divided: in virtual time."""

import heapq
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.optimize import linprog

from n3ic.systems.card.compile import LONGEST_FRAME, software_card
from n3ic.systems.card.control.loads import Load
from n3ic.systems.card.control.scenario import (
    Board,
    PlacedChain,
    Scenario,
    SimGraph,
    SimTask,
    SimTenant,
)
from n3ic.systems.card.description import Series
from n3ic.systems.card.frames import traffic
from n3ic.systems.card.host.library import CallStatus, CardLibrary
from n3ic.systems.card.host.verify import shape_of
from n3ic.systems.card.host.write import write_card
from n3ic.systems.card.resources import Amount
from n3ic.systems.card.simulation.baselines import POLICIES
from n3ic.systems.card.simulation.engine import simulate
from tests.support import software_cards as cards

pytestmark = pytest.mark.usefixtures("quick_build")
SECOND = 10**9
CAPACITY = 1_000_000  # frames a second that the card computes
TENANTS = 4
WEIGHTS = (32, 28, 10, 5)
EXACT_WEIGHTS = (32, 16, 8, 4)  # no turn is rounded
COSTS = (2, 1, 1, 4)  # of a frame at the resource that it takes longest
GUARANTEED = (150_000, 100_000, 200_000, 50_000)  # frames a second
QUEUE = 1024
SIZE = 80  # bytes of a frame
BURSTS = [max(2 * LONGEST_FRAME, g * SIZE // 1000) for g in GUARANTEED]  # bytes of a bucket


@dataclass
class Served:
    """Frames of a tenant: those offered and refused, and nanoseconds from arrival to answer."""

    offered: int
    refused: int
    beyond: int
    latencies: list[int]

    @property
    def answered(self) -> int:
        return len(self.latencies)


@pytest.fixture(name="asked", scope="module")
def asked_fixture(tmp_path_factory):
    return library_of(tmp_path_factory.mktemp("colours"), WEIGHTS)


@pytest.fixture(name="asked_exactly", scope="module")
def asked_exactly_fixture(tmp_path_factory):
    return library_of(tmp_path_factory.mktemp("exact"), EXACT_WEIGHTS)


def library_of(folder, weights):
    """A library of four tenants, and a frame of each, all of one length."""
    cards.differing_models(folder)
    plan = cards.plan(folder, cards.alone("host", "pqrs"))
    card = software_card(plan, "host")
    frames = {card.graphs[r.graph].tenant: r.frame.ljust(SIZE, b"\0") for r in traffic(card, 1)}
    tenants = [
        replace(t, weight=w, rate=g * SIZE, burst=b)
        for t, w, g, b in zip(card.tenants, weights, GUARANTEED, BURSTS, strict=True)
    ]
    card = replace(card, tenants=tuple(tenants))
    needs = zip(plan.costs.items(), COSTS, strict=True)
    costs = {
        name: replace(c, needs=dict(c.needs) | {"cycles": Amount(1000 * n, "measured", "")})
        for (name, c), n in needs
    }
    (folder / "out").mkdir()
    write_card(card, replace(plan, costs=costs), folder / "out")
    return CardLibrary(folder / "out", shape_of(card)), frames


def served(asked, arrivals, seconds, capacity=CAPACITY) -> list[Served]:
    """What a card does that computes one frame after another, for frames as (ns, tenant)."""
    library, frames = asked
    running = library.open(0)
    step, free = SECOND // capacity, 0
    out = [Served(0, 0, 0, []) for _ in range(TENANTS)]

    def work(until: int) -> None:
        nonlocal free
        while free <= until:
            for answer in (running.next(t) for t in range(TENANTS)):
                if answer is not None:
                    out[answer.graph].latencies.append(free - answer.cookie)
            # The library reads the time of frames only; this one is for no graph.
            running.submit(b"", free)
            if not running.work(1):
                break
            free += step

    for at, tenant in heapq.merge(*arrivals):
        work(at)
        free = max(free, at)
        out[tenant].offered += 1
        status = running.submit(frames[tenant], at, at)
        assert status in (CallStatus.OK, CallStatus.FULL)
        out[tenant].refused += status == CallStatus.FULL
    work(int(seconds * SECOND) - 1)
    for tenant, each in enumerate(out):
        each.beyond = running.counters(tenant)["beyond"]
    return out


def steady(tenant: int, rate: float, seconds: float):
    """Frames at equal distances, of tenants that do not begin in the same nanosecond."""
    return [(int(i * SECOND / rate) + tenant, tenant) for i in range(int(rate * seconds))]


def bursts(tenant: int, frames: int, rate: float, seconds: float):
    """Frames at one moment, so often that the mean rate is ``rate``."""
    count = int(rate * seconds / frames)
    return [
        (int(i * frames * SECOND / rate) + tenant, tenant)
        for i in range(count)
        for _ in range(frames)
    ]


@pytest.mark.first_case
@pytest.mark.parametrize("times", [2, 1, 5, 10, 50])
def test_a_lone_tenant_has_the_whole_card(asked, times):
    offered = times * GUARANTEED[0]
    (alone, *_) = served(asked, [steady(0, offered, 0.05)], 0.05)
    assert alone.answered >= 0.95 * 0.05 * min(offered, CAPACITY)
    assert (alone.beyond > 0) == (times > 1)


@pytest.mark.parametrize("flooding", [0, 3])
def test_floods_delay_no_frame_within_a_guarantee_by_more_than_the_bound(asked, flooding):
    """Each sends as much as its guarantee and bucket allow; one floods at ten times the card's."""
    depth = 16  # frames, of which all buckets hold at least as many
    others = [t for t in range(TENANTS) if t != flooding]
    within = [bursts(t, depth, GUARANTEED[t], 0.02) for t in others]
    out = served(asked, [*within, steady(flooding, 10 * CAPACITY, 0.02)], 0.02)
    for tenant in others:
        assert (out[tenant].refused, out[tenant].beyond) == (0, 0)
        # One frame is computed already. Then come all buckets, and what others are guaranteed
        # meanwhile: of frames within, a tenant of little weight may come last.
        ahead = 1 + 3 * depth + GUARANTEED[flooding] // 1000
        left = CAPACITY - sum(GUARANTEED) + GUARANTEED[tenant]
        assert max(out[tenant].latencies) <= (ahead + 1) * SECOND // left
    spare = CAPACITY - sum(GUARANTEED[t] for t in others)
    assert out[flooding].answered >= 0.95 * 0.02 * spare
    assert out[flooding].refused > 0


def test_bursts_below_the_guarantee_are_admitted(asked):
    """A thousand frames at once are far more than the bucket holds."""
    rate, seconds = 0.75 * GUARANTEED[0], 0.03
    (alone, *_) = served(asked, [bursts(0, 1000, rate, seconds)], seconds)
    assert alone.offered - alone.refused >= 0.95 * alone.offered
    flood = [steady(t, CAPACITY, seconds) for t in (1, 2, 3)]
    (beside, *_) = served(asked, [bursts(0, 1000, rate, seconds), *flood], seconds)
    assert beside.offered - beside.refused >= 0.95 * beside.offered


def test_a_burst_that_waits_loses_nothing_of_the_guarantee(asked):
    """All that a bucket holds waits behind a flood; what comes later is within, too."""
    flood = [steady(t, CAPACITY, 0.01) for t in (1, 2, 3)]
    out = served(asked, [bursts(0, 150, GUARANTEED[0], 0.01), *flood], 0.01)
    assert (out[0].refused, out[0].beyond) == (0, 0)


def fair_spare(loads, spare) -> np.ndarray:
    """Frames a second beyond the guarantees: max-min dominant shares, by linear programmes.

    Columns are the rates, and the level that all tenants reach that are not settled. A tenant is
    settled if no rates of that level give it more.
    """
    most = np.maximum(np.array(loads) - GUARANTEED, 0.0)
    pace = np.array(WEIGHTS) / COSTS  # rate at level 1
    settled = np.full(TENANTS, np.nan)
    while np.isnan(settled).any():
        rising = np.flatnonzero(np.isnan(settled))
        reach = [[*-np.eye(TENANTS)[t], pace[t]] for t in rising]
        low = np.nan_to_num(settled, nan=0.0)
        bounds = [*zip(low, np.where(np.isnan(settled), most, settled), strict=True)]

        def largest(column, least, reach=reach, bounds=bounds) -> float:
            done = linprog(
                -np.eye(TENANTS + 1)[column],
                A_ub=[[*np.ones(TENANTS), 0.0], *reach],
                b_ub=[spare, *np.zeros(len(reach))],
                bounds=[*bounds, (least, None)],
            )
            assert done.status == 0, done.message
            return done.x[column]

        level = largest(TENANTS, 0.0)
        for t in rising:
            if largest(t, level * (1 - 1e-9)) <= level * pace[t] * (1 + 1e-6) + 1e-3:
                settled[t] = level * pace[t]
    return settled


@pytest.mark.first_case
@pytest.mark.parametrize(
    "offered",
    [
        (1e6, 1e6, 1e6, 1e6),
        (1e6, 0.0, 1e6, 1e6),
        (200_000, 1e6, 220_000, 1e6),
        (0.0, 120_000, 1e6, 60_000),
    ],
)
def test_what_is_idle_is_divided_as_a_linear_programme_divides_it(asked, offered):
    seconds = 0.05
    out = served(asked, [steady(t, r, seconds) for t, r in enumerate(offered) if r], seconds)
    taken = np.minimum(offered, GUARANTEED)
    expected = taken + fair_spare(offered, CAPACITY - taken.sum())
    rates = np.array([each.answered for each in out]) / seconds
    queued = QUEUE / seconds  # frames that wait at the end
    assert rates == pytest.approx(expected, rel=0.05, abs=queued * 0.02)
    assert rates.sum() >= 0.99 * min(CAPACITY, sum(offered))


@pytest.mark.slow
def test_the_example_of_dominant_resource_fair_queueing(asked):
    """SuperNIC at 13 Gb/s: 7.27, and 2.73 beside the 10 of the second's own region.

    A frame of the first takes twice as long of its scarcest task as one of the second. A Gb/s is
    ten million frames a second, so that the guarantees hardly matter.
    """
    seconds, gbps = 2e-4, 10**7
    loads = [steady(0, 8 * gbps, seconds), steady(1, 13 * gbps, seconds)]
    (first, second, *_) = served(asked, loads, seconds, capacity=20 * gbps)
    assert first.answered / seconds / gbps == pytest.approx(80 / 11, rel=0.01)
    assert second.answered / seconds / gbps - 10 == pytest.approx(30 / 11, rel=0.03)


LOADS = [  # kind, and the rate of each tenant as a multiple of its guarantee
    ("bursts", (5, 5, 5, 5)),
    ("constant", (1, 0, 10, 2)),
    ("poisson", (0.9, 0.9, 0.9, 0.9)),
    *[
        pytest.param(kind, times, marks=pytest.mark.slow)
        for kind in ("constant", "poisson", "bursts", "heavy-tailed")
        for times in ((50, 0, 0, 0), (10, 1, 1, 1), (0.75, 0.75, 20, 20), (3, 2, 0, 8))
    ],
    pytest.param("bursts", (0.75, 0.75, 0.75, 0.75), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kind", "times"), LOADS)
def test_the_simulator_does_what_the_image_does(asked_exactly, kind, times):
    """One core computes the frames of all tenants; both get the same packets."""
    seconds, hz = 0.05, 250e6
    rates = [n * g for n, g in zip(times, GUARANTEED, strict=True)]
    names = [str(t) for t in range(TENANTS)]
    # The simulator measures a packet's cost itself, and all take the core equally long here.
    graphs = tuple(
        SimGraph(n, n, Series(("t",)), Load(r, kind, SIZE), g, weight=w / c, burst=b / SIZE)
        for n, r, g, w, c, b in zip(
            names, rates, GUARANTEED, EXACT_WEIGHTS, COSTS, BURSTS, strict=True
        )
    )
    cycles = int(hz / CAPACITY)
    scenario = Scenario(
        Board(hz, schedule=0, fixed=0, ingress_queue=1, store=QUEUE - 1),
        {"t": SimTask("t", cycles, cycles, credits=1)},
        tuple(SimTenant(n) for n in names),
        graphs,
        1,
        1.0,
        (PlacedChain(("t",)),),
        seconds,
    )
    trace = simulate(scenario, POLICIES["chains"])
    arrivals = [
        [(int(at) * SECOND // int(hz), t) for at in trace.graphs[n].arrivals["arrived"]]
        for t, n in enumerate(names)
    ]
    for each, name in zip(served(asked_exactly, arrivals, seconds), names, strict=True):
        graph = trace.graphs[name]
        left = graph.left
        assert graph.arrived == each.offered
        assert graph.dropped.get("ingress", 0) == each.refused
        assert ((left["departed"] - left["arrived"]) * 4).tolist() == each.latencies
        assert graph.arrivals["beyond"].sum() == each.beyond
