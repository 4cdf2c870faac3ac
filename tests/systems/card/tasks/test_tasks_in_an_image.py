# SPDX-License-Identifier: Apache-2.0
"""Packet tasks beside networks on one card in Verilog."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from n3ic.systems.card.netfpga import simulation, verify
from n3ic.systems.card.netfpga.image import (
    CardGraph,
    CardRegion,
    CardTenant,
    HardwarePass,
    HardwareRule,
    NetfpgaCardImage,
    PacketStage,
)
from n3ic.systems.card.netfpga.write import write_card
from n3ic.systems.card.tasks.kind import DENIED, kind_of, kinds
from tests.support import small_cards as cards

needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
MEMORY = {"memory_pages": 5, "page_w": 2}
DROP = HardwareRule((DENIED,), drop=True)


def stage(name: str, seed: int = 3) -> PacketStage:
    """A packet task with a random table."""
    kind, rng = kind_of(name), np.random.default_rng(seed)
    entries = {i: kind.random_entry(rng) for i in range(kind.entries)}
    return PacketStage(f"alpha/{name}", name, entries, pages=2 if kind.memory else 0)


def beside_networks(name: str) -> NetfpgaCardImage:
    """A task in a chain before two networks, by itself, and beside another branch's network."""
    nets = cards.core(*(cards.net((24, 8, 2), seed) for seed in (1, 2)))
    regions = (
        CardRegion((stage(name), nets)),
        CardRegion((cards.core(cards.net((40, 8, 4, 3), 4)),)),
    )
    both = HardwarePass((0,), (0, 1), 1)
    graphs = (
        CardGraph("alpha/chain", 0, 5001, 3, ((both,),), rules=(DROP,)),
        CardGraph("alpha/alone", 0, 5002, 0, ((HardwarePass((0,), (0,)),),), rules=(DROP,)),
        CardGraph("beta/net", 1, 5003, 5, ((HardwarePass((1,)),),)),
        CardGraph("beta/skips", 1, 5004, 3, ((HardwarePass((0,), (1,)),),)),
        CardGraph("alpha/fork", 0, 5005, 3, ((both,), (HardwarePass((0,), (1,)),)), rules=(DROP,)),
    )  # fmt: skip
    tenants = (CardTenant("alpha"), CardTenant("beta"))
    return NetfpgaCardImage("tasks", tenants, graphs, regions, "udp-port", **MEMORY)


@needs_icarus
@pytest.mark.first_case
@pytest.mark.parametrize("name", kinds())
def test_a_task_runs_in_a_chain_beside_networks(name: str, tmp_path: Path) -> None:
    image = beside_networks(name)
    write_card(image, tmp_path)
    run = verify.verify_card(tmp_path, image, 12)
    assert run.inferences >= 12


@pytest.mark.skipif(shutil.which("verilator") is None, reason="needs verilator")
def test_a_card_with_all_tasks_has_no_warnings(tmp_path: Path) -> None:
    image = beside_networks("firewall")
    more = CardRegion(tuple(stage(name) for name in kinds()))
    graph = CardGraph("alpha/all", 0, 5009, 0, ((HardwarePass((2,), tuple(range(len(kinds())))),),))
    image = NetfpgaCardImage(
        "all", image.tenants, (*image.graphs, graph), (*image.regions, more), "udp-port", **MEMORY
    )
    write_card(image, tmp_path)
    sources = sorted(str(p) for p in (tmp_path / "rtl").rglob("*.v"))
    command = ["verilator", "--lint-only", "-Wall", "-Wno-WIDTH", "-Wno-VARHIDDEN",
               "-Wno-UNUSEDSIGNAL"]  # fmt: skip
    command += ["--top-module", "n3ic_card", *sources]
    done = subprocess.run(
        command, cwd=tmp_path / "mem", capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.slow
@needs_icarus
def test_a_table_changes_while_packets_flow(tmp_path: Path) -> None:
    """Each packet meets the old rules or the new ones, whole, and the networks lose no bit."""
    image = beside_networks("firewall")
    write_card(image, tmp_path)
    packets = verify.packets_of(image, 20)
    deny = dict.fromkeys(range(32), (0,) * 8 + (3,))
    program = [simulation.wait_sent(40), *simulation.load_table(0, 0, deny)]
    log = simulation.run(tmp_path, image, packets, program)
    left = {p.number for p in log.departures}
    tasks = verify.traffic.tasks_of(image)
    outcomes = [verify.traffic.outcome(image, packet, tasks=tasks) for packet in packets]
    mine = [n for n, o in enumerate(outcomes) if o.graph in (0, 1, 4)]
    assert [n for n in mine if n < 36 and n in left] == [
        n for n in mine if n < 36 and not outcomes[n].dropped
    ]
    assert not {n for n in mine if n > 60} & left
    assert all(outcomes[p.number].data == p.data for p in log.departures)


@needs_icarus
def test_the_card_reads_what_a_task_counts(tmp_path: Path) -> None:
    image = beside_networks("counters")
    write_card(image, tmp_path)
    packets = verify.packets_of(image, 6)
    state = kind_of("counters").state()
    for packet in packets:
        if verify.traffic.named(image, packet) in (0, 1, 4):
            state.run(bytearray(packet.frame.data[: image.head_w // 8]))
    at = [a for a in range(512) if state.read(a)][:6]
    assert at
    program = [op for a in at for op in simulation.read_count(0, 0, a)]
    program = [simulation.wait_sent(len(packets)), simulation.wait_clocks(400), *program]
    log = simulation.run(tmp_path, image, packets, program)
    assert [value for _, _, value in log.registers] == [state.read(a) for a in at]


@needs_icarus
def test_go_back_n_delivers_all_in_order_over_a_lossy_path() -> None:
    """A sender and a receiver, each with the task; the host sends again what is asked for."""
    rng = np.random.default_rng(4)
    sender, receiver = kind_of("transport").state(), kind_of("transport").state()
    got: list[int] = []
    at, turns = 0, 0
    while len(got) < 200:
        turns += 1
        assert turns < 2000
        head = bytearray(44) + bytes([0, 0, 0, 7]) + bytes(4)
        number, at = at, at + 1
        assert sender.run(head) == 0
        if number >= 200 or rng.random() < 0.1:  # the path loses it, or the host waits too long
            if number >= 200:
                head[44:52] = bytes([2, 0, 0, 7]) + len(got).to_bytes(4, "big")
                assert sender.run(head) == 2
                at = len(got)
            continue
        verdict = receiver.run(head)
        if verdict == 0:
            assert int.from_bytes(head[48:52], "big") == len(got) == number
            got.append(number)
        elif verdict == 1:
            assert sender.run(head) == 2
            at = int.from_bytes(head[48:52], "big")
    assert got == [*range(200)]
