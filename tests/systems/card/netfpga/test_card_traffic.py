# SPDX-License-Identifier: Apache-2.0
"""Cards of several tenants in simulated traffic: every byte that leaves, every counter."""

import shutil
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from n3ic.systems.card.netfpga import simulation
from n3ic.systems.card.netfpga.verify import verify_card
from n3ic.systems.card.netfpga.write import write_card
from tests.support import small_cards as cards

pytestmark = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")


@pytest.mark.slow
def test_two_tenants_at_random(tmp_path: Path) -> None:
    image = cards.two_tenants()
    write_card(image, tmp_path)
    packets = cards.mixed(image, 80, gap=30)
    log = simulation.run(tmp_path, image, packets)
    cards.check(image, packets, log)
    assert len(log.departures) == len(packets)
    assert len({p.model for p in log.inferred}) == 4


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("carrier", "credit_w", "gap"), [("header", 3, 60), ("vlan", 1, 20), ("udp-port", 1, 60)]
)
def test_everything_at_random(tmp_path: Path, carrier: str, credit_w: int, gap: int) -> None:
    """Chains, instances, branches with joins, policies, a user's task; few credits send back."""
    image = cards.everything(carrier=carrier, credit_w=credit_w)
    write_card(image, tmp_path)
    packets = cards.mixed(image, 80, gap)
    log = simulation.run(tmp_path, image, packets, pauses=True)
    outcomes = cards.check(image, packets, log)
    assert {o.graph for o in outcomes} == {None, *range(len(image.graphs))}


@pytest.mark.slow
@pytest.mark.parametrize(("simulator", "credit_w"), [("icarus", 1), ("verilator", 3)])
def test_verification_of_chains(
    tmp_path: Path, simulator: Literal["icarus", "verilator"], credit_w: int
) -> None:
    """Scores and hidden bits of packets that share sequence numbers with other graphs' ones."""
    if shutil.which(simulator if simulator == "verilator" else "iverilog") is None:
        pytest.skip(f"needs {simulator}")
    image = cards.chains(credit_w=credit_w)
    write_card(image, tmp_path)
    seen = verify_card(tmp_path, image, 16, simulator)
    assert seen.requests == (16, 16, 16, 16)
    assert seen.inferences == 16 * (2 + 3 + 1 + 1)


def test_same_card_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_card(cards.everything(), tmp_path / name)
    files = [p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file()]
    assert len(files) > 30
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.slow
def test_a_flood_overruns_its_own_queue_alone(tmp_path: Path) -> None:
    """Nothing of a tenant that floods at line rate is answered wrongly; the rest is counted."""
    image = cards.two_tenants(seq_w=3)
    write_card(image, tmp_path)
    rng = np.random.default_rng(5)
    packets = [cards.ask(image, 3 if i % 40 == 7 else 0, rng, tail=4) for i in range(120)]
    log = simulation.run(tmp_path, image, packets)
    cards.check(image, packets, log)
    assert log.counters[0]["overflow"] > 10
    assert log.counters[1]["overflow"] == 0
    assert log.counters[1]["left"] == 3
