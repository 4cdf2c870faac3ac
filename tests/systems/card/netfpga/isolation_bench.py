# SPDX-License-Identifier: Apache-2.0
"""cocotb: a tenant's packets alone, then beside one that does its worst.

test_card_isolation.py runs it under Icarus. The victim's packets come at the same clocks both
times; the other one fills every clock between them.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from n3ic.exporters.netfpga.packet.traffic import BEAT, Frame
from n3ic.systems.card.netfpga.bounds import added_latency
from n3ic.systems.card.netfpga.image import NetfpgaCardImage
from n3ic.systems.card.netfpga.simulation import COUNTER, COUNTERS, register
from n3ic.systems.card.netfpga.traffic import TrafficPacket, outcome
from tests.support import small_cards as cards

SCENARIO = os.environ["N3IC_SCENARIO"]
VICTIM, OTHER = 1, 0  # tenants; the victim comes from port 4, the other one from port 1
CLOCKS = 1600
EVERY = 110  # clocks between the victim's packets
LONG = 300  # bytes


@dataclass
class Seen:
    """What left: clock and bytes by the packet's number, and all counters."""

    left: dict[int, tuple[int, bytes]]
    counters: list[dict[str, int]]


def others(image: NetfpgaCardImage, rng: np.random.Generator) -> list[TrafficPacket]:
    """What the other tenant sends, again and again."""
    mine = cards.ask(image, 0, rng, tail=4)
    if SCENARIO in ("flood", "shared"):
        return [mine]
    if SCENARIO == "long":
        return [cards.ask(image, 0, rng, tail=LONG - image.need)]
    if SCENARIO == "no-graph":
        return [TrafficPacket(Frame(bytes(12) + b"\x08\x00" + rng.bytes(60)))]
    if SCENARIO == "stolen":  # the victim's UID, from a port that its graph is closed to
        return [cards.ask(image, 3, rng, tail=4)]
    whole = mine.frame.data
    uid = (3).to_bytes(2, "big")
    return [
        TrafficPacket(Frame(whole[: int(rng.integers(1, len(whole)))])),
        TrafficPacket(Frame(whole, hole=len(whole) - 1)),
        TrafficPacket(Frame(whole[:18] + uid + whole[20:22])),
        TrafficPacket(Frame(whole[:12] + b"\x81\x00" + whole[12:])),
        TrafficPacket(Frame(rng.bytes(int(rng.integers(14, 90))))),
        TrafficPacket(Frame(whole[:14])),
        TrafficPacket(cards.ask(image, 3, rng).frame, source=0),
    ]


def slots(
    victim: Sequence[TrafficPacket], rest: Sequence[TrafficPacket]
) -> list[tuple[int, TrafficPacket | None]]:
    """Packets by number with the clock of each beat filled: the victim's own places first."""
    out: list[tuple[int, TrafficPacket | None]] = []
    clock = at = turn = 0
    while clock < CLOCKS:
        due = EVERY * (at + 1)
        if at < len(victim) and clock == due:
            out.append((at, victim[at]))
            clock += victim[at].frame.beats
            at += 1
            continue
        if rest:
            packet = rest[turn % len(rest)]
            if at >= len(victim) or clock + packet.frame.beats <= due:
                out.append((1000 + turn, packet))
                clock += packet.frame.beats
                turn += 1
                continue
        out.append((-1, None))
        clock += 1
    return out


async def play(dut, victim: Sequence[TrafficPacket], rest: Sequence[TrafficPacket]) -> Seen:
    """Reset the card and send both; returns what left."""
    dut.axis_resetn.value = 0
    for name in ("cfg_wr", "wr_en", "wr_swap", "wr_region", "wr_model", "s_axis_tvalid"):
        getattr(dut, name).value = 0
    dut.cfg_addr.value = 0
    dut.m_axis_tready.value = 1
    for _ in range(40):
        await RisingEdge(dut.axis_aclk)
    dut.axis_resetn.value = 1
    for _ in range(8):
        await RisingEdge(dut.axis_aclk)
    left: dict[int, tuple[int, bytes]] = {}
    clock = [0]

    async def watch() -> None:
        data = b""
        while True:
            await ReadOnly()
            clock[0] += 1
            assert dut.s_axis_tready.value == 1
            if dut.m_axis_tvalid.value == 1:
                keep = int(dut.m_axis_tkeep.value)
                beat = int(dut.m_axis_tdata.value).to_bytes(BEAT, "little")
                data += beat[: keep.bit_length()]
                if dut.m_axis_tlast.value == 1:
                    number = int(dut.m_axis_tuser.value) >> 32 & 0xFFFFFFFF
                    assert number not in left
                    left[number] = (clock[0], data)
                    data = b""
            await RisingEdge(dut.axis_aclk)

    watching = cocotb.start_soon(watch())
    for number, packet in slots(victim, rest):
        for beat in range(packet.frame.beats if packet else 1):
            dut.s_axis_tvalid.value = int(packet is not None)
            if packet:
                frame = packet.frame
                octets = frame.data[BEAT * beat : BEAT * beat + BEAT]
                dut.s_axis_tdata.value = int.from_bytes(octets, "little")
                dut.s_axis_tkeep.value = frame.keep(beat)
                dut.s_axis_tlast.value = int(beat == frame.beats - 1)
                dut.s_axis_tuser.value = number << 32 | packet.source << 16 | len(frame.data)
            await RisingEdge(dut.axis_aclk)
    dut.s_axis_tvalid.value = 0
    for _ in range(700):
        await RisingEdge(dut.axis_aclk)
    watching.cancel()
    counters = []
    for queue in range(3):
        counters.append({})
        for word, name in enumerate(COUNTERS):
            dut.cfg_addr.value = register(COUNTER, queue, word)
            for _ in range(3):
                await RisingEdge(dut.axis_aclk)
            counters[queue][name] = int(dut.cfg_rdata.value)
    return Seen(left, counters)


@cocotb.test(skip=SCENARIO != "flood")  # no other tenant sends, so once is enough
async def scheduling_takes_seven_clocks(dut) -> None:
    """From a packet's admission to its region, its credits reserved."""
    image = cards.guarded()
    rng = np.random.default_rng(1)
    packets = [cards.ask(image, 3, rng, source=4) for _ in range(5)]
    cocotb.start_soon(Clock(dut.axis_aclk, 5, unit="ns").start())
    took: list[int] = []

    async def watch() -> None:
        clock = admitted = 0
        while True:
            await RisingEdge(dut.axis_aclk)
            clock += 1
            if dut.admit.value == 1:
                admitted = clock
            if dut.job_valid.value.is_resolvable and int(dut.job_valid.value):
                took.append(clock - admitted)

    watching = cocotb.start_soon(watch())
    await play(dut, packets, [])
    watching.cancel()
    assert took == [7] * len(packets)


@cocotb.test()
async def nothing_of_a_tenant_depends_on_another(dut) -> None:
    image = cards.guarded(shared=SCENARIO == "shared")
    rng = np.random.default_rng(3)
    victim = [cards.ask(image, 3, rng, tail=int(rng.integers(40)), source=4) for _ in range(12)]
    rest = others(image, rng)
    cocotb.start_soon(Clock(dut.axis_aclk, 5, unit="ns").start())
    alone = await play(dut, victim, [])
    beside = await play(dut, victim, rest)
    longest = max(p.frame.beats for p in rest)
    bound = added_latency(image, image.graphs[3], longest)
    added = []
    for number, packet in enumerate(victim):
        clock, data = alone.left[number]
        later, same = beside.left[number]
        assert data == same == outcome(image, packet).data
        added.append(later - clock)
    assert max(added) <= bound, (added, bound)
    assert alone.counters[VICTIM] == beside.counters[VICTIM]
    assert beside.counters[VICTIM]["left"] == len(victim)
    order = [n for n in beside.left if n < 1000]
    assert order == sorted(order)
    refused = sum(c["overflow"] for c in beside.counters)
    sent = len([n for n, p in slots(victim, rest) if p and n >= 1000])
    dut._log.info(
        f"{SCENARIO}: {sent} packets beside, {refused} refused, "
        f"latency +{min(added)} to +{max(added)} of at most {bound} clocks"
    )
    if SCENARIO == "flood":
        assert beside.counters[OTHER]["beyond"] > 100
    if SCENARIO == "shared":
        assert beside.counters[OTHER]["overflow"] > 100
    if SCENARIO == "stolen":
        assert beside.counters[2]["beyond"] == sent  # counted as closed to their port
