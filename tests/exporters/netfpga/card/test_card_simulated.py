"""The model of ``n3ic card simulate`` against the card's Verilog, packet by packet."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import small_cards as cards

from n3ic.card.description import Series
from n3ic.card.simulation.baselines import POLICIES
from n3ic.card.simulation.engine import simulate
from n3ic.card.simulation.loads import Load
from n3ic.card.simulation.scenario import Board, Placed, Scenario, SimGraph, SimTask, SimTenant
from n3ic.exporters.netfpga.card import simulation
from n3ic.exporters.netfpga.card.image import CardGraph, CardImage, CardRegion, CardTenant, Leg
from n3ic.exporters.netfpga.card.write import write_card

pytest.importorskip("simpy")
pytestmark = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")

HZ = 200e6
NAMES = ("a", "b")
FRAME = 29  # bytes: one beat


@dataclass(frozen=True)
class Case:
    """Packets a clock of either tenant, and the largest relative errors that are allowed."""

    first: float
    second: float
    kind: str
    mean: float
    tail: float


CASES = {
    "half": Case(0.04, 0.04, "poisson", 0.02, 0.03),
    "much": Case(0.07, 0.07, "poisson", 0.02, 0.03),
    "uneven": Case(0.03, 0.12, "poisson", 0.06, 0.13),
    "bursts": Case(0.05, 0.05, "bursts", 0.02, 0.04),
    "overload": Case(0.12, 0.12, "poisson", 0.02, 0.04),
}


def shared() -> CardImage:
    """Two tenants whose networks share one executor."""
    graphs = tuple(CardGraph(n, i, 1 + i, 3, ((Leg((0,), model=i),),)) for i, n in enumerate(NAMES))
    region = CardRegion((cards.core(*(cards.net((24, 8, 2), seed) for seed in (1, 2))),))
    return CardImage("shared", tuple(CardTenant(n) for n in NAMES), graphs, (region,))


def modelled(case: Case, seconds: float, latency: int, interval: int) -> Scenario:
    """The same as the simulation has it.

    What a packet takes alone and what the executor takes from packet to packet are measured on
    the Verilog; credits and the depth of a tenant's queue are the image's parameters.
    """
    schedule, fixed = 2, 20
    task = SimTask("net", latency - schedule - fixed, interval, credits=8)
    loads = (
        Load(rate * HZ, case.kind, FRAME, phase=phase / HZ, until=seconds)
        for rate, phase in ((case.first, 0.3), (case.second, 2.7))
    )
    return Scenario(
        Board(HZ, schedule, fixed=fixed, link_gbps=1e4, ingress_queue=1, store=31),
        {"net": task},
        tuple(SimTenant(n) for n in NAMES),
        tuple(SimGraph(n, n, Series(("net",)), x, HZ) for n, x in zip(NAMES, loads, strict=True)),
        1,
        1.0,
        (Placed(("net",)),),
        seconds + 2000 / HZ,  # until all have left
        bins=1,
    )


@pytest.mark.parametrize(
    "name", ["bursts", *(pytest.param(n, marks=pytest.mark.slow) for n in CASES if n != "bursts")]
)
def test_latency_and_throughput_are_the_verilog_s(tmp_path: Path, name: str) -> None:
    image, rng, case = shared(), np.random.default_rng(0), CASES[name]
    write_card(image, tmp_path)

    def run(gaps: list[int], who: list[int]) -> tuple[simulation.Log, list[np.ndarray]]:
        packets = [cards.ask(image, w, rng, gap=g) for g, w in zip(gaps, who, strict=True)]
        log = simulation.run(tmp_path, image, packets)
        of = ([i for i, w in enumerate(who) if w == t] for t in (0, 1))
        return log, [np.array(log.latencies(numbers)) for numbers in of]

    _, alone = run([100] * 4, [0, 1] * 2)
    log, _ = run([0] * 40, [0, 1] * 20)
    interval = round(float(np.mean(np.diff([p.clock for p in log.left]))))
    assert len(set(np.concatenate(alone))) == 1  # every packet alone takes the same

    seconds = 500 / (case.first + case.second) / HZ
    scenario = modelled(case, seconds, int(alone[0][0]), interval)
    trace = simulate(scenario, POLICIES["chains"])
    arrivals = sorted(
        (at, i) for i, n in enumerate(NAMES) for at, _ in trace.counts[n].arrivals
    )  # the same packets for both
    gaps, clock = [], 0
    for at, _ in arrivals:
        gaps.append(max(0, at - clock))
        clock += gaps[-1] + 1
    log, found = run(gaps, [i for _, i in arrivals])
    for i, tenant in enumerate(NAMES):
        served = trace.served[tenant]
        ours = np.asarray(served.left) - np.asarray(served.arrived)
        assert len(ours) == pytest.approx(len(found[i]), rel=0.02)
        assert ours.mean() == pytest.approx(found[i].mean(), rel=case.mean)
        assert np.percentile(ours, 99) == pytest.approx(np.percentile(found[i], 99), rel=case.tail)
        dropped = trace.counts[tenant].dropped.get("ingress", 0)
        assert dropped == pytest.approx(log.counters[i]["overflow"], rel=0.1, abs=1)
