# SPDX-License-Identifier: Apache-2.0
"""The model of ``n3ic card simulate`` against the card's Verilog, packet by packet."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.systems.card.control.loads import Load
from n3ic.systems.card.control.scenario import (
    Board,
    PlacedChain,
    Scenario,
    SimGraph,
    SimTask,
    SimTenant,
)
from n3ic.systems.card.description import Parallel, Series
from n3ic.systems.card.netfpga import simulation
from n3ic.systems.card.netfpga.image import (
    RATE_UNIT,
    CardGraph,
    CardRegion,
    CardTenant,
    HardwarePass,
    NetfpgaCardImage,
)
from n3ic.systems.card.netfpga.write import write_card
from n3ic.systems.card.simulation.baselines import POLICIES
from n3ic.systems.card.simulation.engine import simulate
from tests.support import small_cards as cards

pytestmark = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")

HZ = 200e6
NAMES = ("a", "b")
SCHEDULE, FIXED = 2, 20  # how the clocks outside the executor are divided makes no difference
HEAD = 5  # clocks in which the scheduler has the next packet of a tenant
ONE, TWO = Series(("x",)), Series(("y",))


@dataclass(frozen=True)
class Side:
    """A card as Verilog, and the ways of its tenants' packets in the model."""

    image: NetfpgaCardImage
    flows: tuple[Series, Series]
    chains: tuple[str, ...]


def core(*seeds: int) -> CardRegion:
    return CardRegion((cards.core(*(cards.net((24, 8, 2), seed) for seed in seeds)),))


def one_executor() -> Side:
    """Two tenants whose networks share one executor."""
    graphs = tuple(
        CardGraph(n, i, 1 + i, 3, ((HardwarePass((0,), model=i),),)) for i, n in enumerate(NAMES)
    )
    image = NetfpgaCardImage("one", tuple(CardTenant(n) for n in NAMES), graphs, (core(1, 2),))
    return Side(image, (ONE, ONE), ("x",))


def branches() -> Side:
    """A tenant with branches in two regions, of which it shares one with the other tenant."""
    both = ((HardwarePass((0,), model=0),), (HardwarePass((1,), model=0),))
    graphs = (
        CardGraph("a", 0, 1, 3, both, "both"),
        CardGraph("b", 1, 2, 3, ((HardwarePass((1,), model=1),),)),
    )
    image = NetfpgaCardImage(
        "both", tuple(CardTenant(n) for n in NAMES), graphs, (core(1), core(2, 3))
    )
    return Side(image, (Series((Parallel((ONE, TWO), "both"),)), TWO), ("x", "y"))


@dataclass(frozen=True)
class Tenant:
    """What the Verilog and the model say of a tenant: latencies in clocks, and dropped packets."""

    verilog: np.ndarray
    ours: np.ndarray
    overflow: int
    lost: int


def both(
    folder: Path, side, rates: tuple[float, float], kind: str, due: tuple[float, float] = (1.0, 1.0)
) -> list[Tenant]:
    """Run the same packets through the Verilog and the model.

    Rates and what is due are packets per clock of either tenant. What is read off the Verilog is
    what one packet takes.
    """
    made, rng = side(), np.random.default_rng(0)
    first, second = rates
    tenants = (
        CardTenant(n, round(d * RATE_UNIT), burst=8) for n, d in zip(NAMES, due, strict=True)
    )
    made = replace(made, image=replace(made.image, tenants=tuple(tenants)))
    write_card(made.image, folder)
    beats = -(-len(cards.ask(made.image, 0, rng).frame.data) // 32)

    def run(gaps: list[int], who: list[int]) -> tuple[simulation.SimulationLog, list[np.ndarray]]:
        packets = [cards.ask(made.image, w, rng, gap=g) for g, w in zip(gaps, who, strict=True)]
        log = simulation.run(folder, made.image, packets)
        of = ([i for i, w in enumerate(who) if w == t] for t in (0, 1))
        return log, [np.array(log.latencies(numbers)) for numbers in of]

    _, alone = run([100] * 4, [0, 1] * 2)
    assert len(set(alone[1])) == 1  # every packet alone takes the same
    assert alone[0][0] - alone[1][0] == (HEAD if side is branches else 0)
    log, _ = run([0] * 40, [1] * 40)
    interval = round(float(np.mean(np.diff([p.clock for p in log.departures]))))

    seconds = 500 / (first + second) / HZ
    task = SimTask("", int(alone[1][0]) - SCHEDULE - FIXED, interval, credits=8)
    phases = ((first, 0.3), (second, 2.7))
    loads = (Load(r * HZ, kind, 29, phase=p / HZ, until=seconds) for r, p in phases)
    scenario = Scenario(
        # queue and store: the 32 packets that a tenant's queue holds from ingress to egress
        Board(HZ, SCHEDULE, head_interval=HEAD, fixed=FIXED, link_gbps=1e4, ingress_queue=1,
              store=31),
        dict.fromkeys(made.chains, task),
        tuple(SimTenant(n) for n in NAMES),
        tuple(SimGraph(n, n, f, load, d * HZ, burst=8)
              for n, f, load, d in zip(NAMES, made.flows, loads, due, strict=True)),
        len(made.chains),
        1.0,
        tuple(PlacedChain((name,)) for name in made.chains),
        seconds + 3000 / HZ,  # until all have left
        bins=1,
    )  # fmt: skip
    trace = simulate(scenario, POLICIES["chains"])
    arrivals = sorted(
        (int(at), i) for i, n in enumerate(NAMES) for at in trace.graphs[n].arrivals["arrived"]
    )
    gaps, clock = [], 0  # the same packets for both
    for at, _ in arrivals:
        gaps.append(max(0, at - clock))
        clock += gaps[-1] + beats
    log, latencies = run(gaps, [i for _, i in arrivals])
    out = []
    for i, tenant in enumerate(NAMES):
        left = trace.graphs[tenant].left
        ours = (left["departed"] - left["arrived"]).astype(int)
        lost = trace.graphs[tenant].dropped.get("ingress", 0)
        out.append(Tenant(latencies[i], ours, log.counters[i]["overflow"], lost))
    return out


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("side", "first", "second", "kind"),
    [
        (one_executor, 0.05, 0.05, "bursts"),
        (one_executor, 0.04, 0.04, "poisson"),
        (one_executor, 0.03, 0.12, "poisson"),
        (one_executor, 0.12, 0.12, "poisson"),
        (branches, 0.02, 0.1, "poisson"),
        (branches, 0.08, 0.08, "poisson"),
        (branches, 0.03, 0.03, "bursts"),
    ],
)
def test_latency_and_losses_are_the_verilog_s(
    tmp_path: Path, side, first: float, second: float, kind: str
) -> None:
    for t in both(tmp_path, side, (first, second), kind):
        figures = (t.verilog.mean(), t.ours.mean(), np.percentile(t.verilog, 99),
                np.percentile(t.ours, 99), t.overflow, t.lost)  # fmt: skip
        assert t.lost == pytest.approx(t.overflow, abs=3), figures
        assert t.ours.mean() == pytest.approx(t.verilog.mean(), rel=0.04), figures
        assert np.percentile(t.ours, 99) == pytest.approx(np.percentile(t.verilog, 99), rel=0.1), (
            figures
        )


LOADS = [
    (side, (first, second), kind, due)
    for side, due in ((one_executor, (0.06, 0.02)), (branches, (0.02, 0.03)))
    for kind, most in (("poisson", 0.3), ("bursts", 0.1))  # the input takes a packet a clock
    for first, second in ((0.02, 0.02), (0.02, most), (most, 0.02), (0.08, most), (most, most))
]


@pytest.mark.parametrize(
    ("side", "rates", "kind", "due"),
    [
        pytest.param(*load, marks=pytest.mark.slow if n == 1 else pytest.mark.exhaustive)
        for n, load in enumerate(LOADS)
    ],
)
def test_as_many_are_admitted_as_by_the_verilog(tmp_path: Path, side, rates, kind, due) -> None:
    """With guarantees that the loads exceed up to fifteen times."""
    error = 0.1 if side is branches else 0.05
    for t in both(tmp_path, side, rates, kind, due):
        assert len(t.ours) == pytest.approx(len(t.verilog), rel=error), (t.overflow, t.lost)
