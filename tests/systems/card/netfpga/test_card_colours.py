# SPDX-License-Identifier: Apache-2.0
"""Packets within a guarantee come first, and what is idle is divided, in the card's Verilog."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.systems.card.netfpga import simulation
from n3ic.systems.card.netfpga.bounds import added_latency
from n3ic.systems.card.netfpga.image import RATE_UNIT, CardTenant, NetfpgaCardImage
from n3ic.systems.card.netfpga.write import write_card
from tests.support import small_cards as cards

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog"),
]
ALPHA, BETA = 0, 1


def shared(*tenants: CardTenant, steps: tuple[int, int] = (1, 1)) -> NetfpgaCardImage:
    """Two tenants, whose networks share one executor; both may use any port."""
    image = cards.guarded(shared=True)
    graphs = (*image.graphs[:3], replace(image.graphs[3], sources=0xFF))
    stepped = (replace(g, step=steps[g.tenant]) for g in graphs)
    return replace(image, graphs=tuple(stepped), tenants=tenants)


def sent(folder: Path, image: NetfpgaCardImage, order, gap: int) -> simulation.SimulationLog:
    """Run packets of tenants in an order; every answer is checked."""
    rng = np.random.default_rng(2)
    packets = [cards.ask(image, (0, 3)[tenant], rng, gap=gap) for tenant in order]
    folder.mkdir(exist_ok=True)
    write_card(image, folder)
    log = simulation.run(folder, image, packets, trace=False)
    cards.check(image, packets, log)
    return log


@pytest.mark.parametrize("times", [1, 2, 5, 10])
def test_a_lone_tenant_has_all_that_its_region_sustains(tmp_path: Path, times: int) -> None:
    """Beside what it has with a bucket that never ends."""
    clocks = 50  # between packets of one beat at the guarantee; the executor takes 6
    little = CardTenant("alpha", RATE_UNIT // clocks, burst=8)
    order, gap = [ALPHA] * 150, clocks // times - 1
    one = sent(tmp_path / "one", shared(little, CardTenant("beta")), order, gap)
    endless = shared(CardTenant("alpha"), CardTenant("beta"))
    other = sent(tmp_path / "other", endless, order, gap)
    assert one.counters[ALPHA]["left"] >= 0.95 * other.counters[ALPHA]["left"]
    assert (one.counters[ALPHA]["beyond"] > 0) == (times > 1)
    assert other.counters[ALPHA]["beyond"] == 0


def test_the_example_of_dominant_resource_fair_queueing(tmp_path: Path) -> None:
    """SuperNIC at 13 Gb/s: 7.27, and 2.73 beside the 10 of the second's own region.

    A packet of the first takes twice as long as one of the second, their weights are as 32 to 28.
    """
    tenants = (CardTenant(name, 1, burst=1) for name in ("alpha", "beta"))
    log = sent(tmp_path, shared(*tenants, steps=(56, 32)), [ALPHA, BETA] * 400, 0)
    # While both send; the packet of a number is the first's if the number is even.
    left = [p.number % 2 for p in log.departures if 200 < p.clock < log.sent[-1]]
    first, second = left.count(ALPHA), left.count(BETA)
    assert first + second > 60
    assert log.counters[ALPHA]["overflow"] > 100 and log.counters[BETA]["overflow"] > 100
    full = 20 / (first + second)
    assert first * full == pytest.approx(80 / 11, rel=0.05)
    assert second * full == pytest.approx(140 / 11, rel=0.05)


@pytest.mark.exhaustive
@pytest.mark.parametrize("beside", [0, 1])
def test_bursts_of_a_thousand_below_the_guarantee_are_admitted(tmp_path: Path, beside: int) -> None:
    """At line rate, though the guarantee is a twentieth of it; alone and beside a flood."""
    clocks = 20
    image = shared(
        CardTenant("alpha", RATE_UNIT // clocks, burst=1024),
        CardTenant("beta", RATE_UNIT // clocks, burst=8),
    )
    image = replace(image, seq_w=10, beats_w=12)
    burst = [ALPHA] * 1000
    flood = [BETA] * 4000 * beside
    log = sent(tmp_path, image, burst + flood, 0)
    assert (log.counters[ALPHA]["admitted"], log.counters[ALPHA]["overflow"]) == (1000, 0)
    assert log.counters[ALPHA]["beyond"] == 0
    assert (log.counters[BETA]["overflow"] > 1000) == bool(beside)
    few = sent(tmp_path / "few", replace(image, seq_w=5, beats_w=7), burst, 0)
    assert few.counters[ALPHA]["overflow"] > 500


def test_a_flood_beyond_takes_no_packet_within_and_adds_no_more_than_the_bound(
    tmp_path: Path,
) -> None:
    """A tenant at its guarantee, in bursts that its bucket holds, beside one at the line rate."""
    clocks, burst = 50, 5  # clocks between packets at the guarantee
    image = shared(
        CardTenant("alpha", RATE_UNIT // clocks + 1, burst=burst + 1),
        CardTenant("beta", RATE_UNIT // clocks, burst=8),
    )
    group = [ALPHA] * burst + [BETA] * (clocks - 1) * burst
    log = sent(tmp_path / "beside", image, group * 8, 0)
    mine = [i for i, t in enumerate(group * 8) if t == ALPHA]
    assert log.counters[BETA]["overflow"] > 100 and log.counters[BETA]["beyond"] > 100
    assert (log.counters[ALPHA]["overflow"], log.counters[ALPHA]["beyond"]) == (0, 0)
    alone = sent(tmp_path / "alone", image, [ALPHA] * burst, 0)
    bound = added_latency(image, image.graphs[0], longest=2)
    worst = max(alone.latencies(range(burst)))
    assert max(log.latencies(mine)) <= worst + burst * bound
