# SPDX-License-Identifier: Apache-2.0
"""Tenants with on-board memory on one card: one tries to reach the other's, or goes and returns."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from n3ic.exporters.netfpga.packet.traffic import Frame
from n3ic.systems.card.netfpga import control, simulation, traffic
from n3ic.systems.card.netfpga.image import (
    CardGraph,
    CardRegion,
    CardTenant,
    HardwarePass,
    NetfpgaCardImage,
    PacketStage,
)
from n3ic.systems.card.netfpga.simulation import PAGE_COUNT, read_register, register
from n3ic.systems.card.netfpga.traffic import TrafficPacket
from n3ic.systems.card.netfpga.write import write_card
from n3ic.systems.card.tasks.cache.task import FOUND, GET, SET

pytestmark = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
PAGE_W, GAP = 2, 70
AT = 44 + 10  # a packet's own header: operation, key, value


def two_caches() -> NetfpgaCardImage:
    """Two tenants with two pages of four words each."""
    regions = tuple(
        CardRegion((PacketStage(f"{name}/pairs", "memory_cache", {}, 2, t),))
        for t, name in enumerate(("alpha", "beta"))
    )
    graphs = tuple(
        CardGraph(f"{name}/asks", t, 5001 + t, 0, ((HardwarePass((t,)),),))
        for t, name in enumerate(("alpha", "beta"))
    )
    tenants = (CardTenant("alpha"), CardTenant("beta"))
    return NetfpgaCardImage(
        "caches", tenants, graphs, regions, "udp-port", memory_pages=5, page_w=PAGE_W
    )


def packet(
    image: NetfpgaCardImage, tenant: int, operation: int, key: bytes, value: bytes = bytes(16)
) -> TrafficPacket:
    frame = bytearray(traffic.build(image, image.graphs[tenant], b"", np.random.default_rng(1)))
    frame[AT : AT + 25] = bytes([operation]) + key.ljust(8, b"\0") + value
    return TrafficPacket(Frame(bytes(frame)), gap=GAP)


def reads() -> list[simulation.Operation]:
    """Reads of both tenants' faults and served requests."""
    return [read_register(register(PAGE_COUNT, t, word)) for t in range(2) for word in range(2)]


def values(log: simulation.SimulationLog) -> list[int]:
    return [value for _, _, value in log.registers]


def hostile(directory: Path) -> None:
    """Let the first tenant's task access what its packets say, and show what it reads."""
    name = "n3ic_task_memory_cache"
    text = (directory / f"rtl/{name}.v").read_text()
    for old, new in (
        (name, "n3ic_task_hostile"),
        ("assign mem_addr  = {{(32 - SLOT_W) {1'b0}}, hash[SLOT_W-1:0]};",
         "assign mem_addr  = head[AT+8 +: 32];"),
        ("mem_read[192] && mem_read[63:0] == key", "1'b1"),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    (directory / "rtl/n3ic_task_hostile.v").write_text(text)
    region = directory / "rtl/n3ic_card_region0.v"
    region.write_text(region.read_text().replace(name, "n3ic_task_hostile"))


def test_a_hostile_task_gets_no_byte_of_another_tenant(tmp_path: Path) -> None:
    """It asks for every address near its pages and for wild ones, to read and to write."""
    image = two_caches()
    write_card(image, tmp_path)
    hostile(tmp_path)
    wild = [*range(20), 1 << 8, 1 << 16, 1 << 31, 0xFFFFFFFF, 0xFFFFFFF8, 0x80000008]
    secrets = [packet(image, 1, SET, bytes([k]), b"\xb7" * 16) for k in range(6)]
    tried = [
        packet(image, 0, operation, a.to_bytes(4, "little"), b"\xa5" * 16)
        for a in wild
        for operation in (GET, SET, GET)
    ]
    asked = [packet(image, 1, GET, bytes([k])) for k in range(6)]
    packets = [*secrets, *tried, *asked]
    program = [
        simulation.wait_sent(len(packets)), simulation.wait_clocks(4 * GAP), *reads()
    ]  # fmt: skip
    log = simulation.run(tmp_path, image, packets, program, simulator="icarus")
    left = {p.number: p.data[AT : AT + 25] for p in log.departures}
    assert sorted(left) == [*range(len(packets))]
    shown = [left[n][9:] for n in range(len(secrets), len(secrets) + len(tried))]
    own = 2 << PAGE_W
    for n, address in enumerate(wild):
        before, _, after = shown[3 * n : 3 * n + 3]
        assert before == bytes(16)
        assert after == (b"\xa5" * 16 if address < own else bytes(16))
    # What the second tenant has written is there, and nobody else's.
    kept = [left[len(packets) - 6 + k] for k in range(6)]
    hits = [text[9:] for text in kept if text[0] == FOUND]
    assert hits
    assert set(hits) == {b"\xb7" * 16}
    mine = 3 * sum(a < own for a in wild)
    assert values(log) == [len(tried) - mine, mine, 0, len(secrets) + len(asked)]


def _answered(log: simulation.SimulationLog, numbers: Sequence[int]) -> list[bool]:
    left = {p.number: p.data for p in log.departures}
    return [left[n][AT] == FOUND for n in numbers]


@pytest.mark.slow
def test_a_tenant_that_returns_finds_zeros(tmp_path: Path) -> None:
    """Its pages are taken when it goes; the other one keeps its pairs."""
    image = two_caches()
    write_card(image, tmp_path)
    pairs = [packet(image, t, SET, b"key", b"\xee" * 16) for t in range(2)]
    gets = [packet(image, t, GET, b"key") for t in range(2)]
    later = [TrafficPacket(p.frame, gap=p.gap + 1200 * (n == 0)) for n, p in enumerate(gets)]
    packets = [*pairs, *gets, *later]
    program = [
        simulation.wait_sent(4),
        simulation.wait_clocks(2 * GAP),
        *control.remove_graphs(image, [0]),
        *control.bring_graphs(image, [0], [], 10),
        simulation.wait_sent(6),
        simulation.wait_clocks(4 * GAP),
        *reads(),
    ]
    log = simulation.run(tmp_path, image, packets, program, simulator="icarus")
    assert _answered(log, range(2, 6)) == [True, True, False, True]
    assert values(log) == [0, 3, 0, 3]
    moved = [op for op in program if op[0] == 0 and op[1] == register(simulation.PAGE, 0)]
    assert [op[2] for op in moved] == [0, 0x10001, 0x80000000, 0x80010001]
