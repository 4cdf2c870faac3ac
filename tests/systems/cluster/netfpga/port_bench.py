# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the card's two ports; test_cluster_ports.py runs them under Icarus."""

import itertools
import os
import random
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

from n3ic.systems.cluster.protocol import Datagram
from tests.support.card_rig import frame, opened
from tests.support.lone_card import CARD, START, bits

SESSION = 9
STEADY = []  # packets of the run without pauses


async def start(dut, pauses):
    """The card with its image, and the two ends of its ports."""
    cocotb.start_soon(Clock(dut.axis_aclk, 5, unit="ns").start())
    ends = [
        kind(
            AxiStreamBus.from_prefix(dut, name),
            dut.axis_aclk,
            dut.axis_resetn,
            reset_active_level=False,
        )
        for kind, name in ((AxiStreamSource, "s_axis"), (AxiStreamSink, "m_axis"))
    ]
    dut.tick.value = dut.wr_en.value = 0
    dut.axis_resetn.value = 0
    for _ in range(8):
        await RisingEdge(dut.axis_aclk)
    dut.axis_resetn.value = 1
    dut.wr_en.value = 1
    for line in Path(os.environ["N3IC_IMAGE"]).read_text().splitlines():
        address, word = (int(number, 16) for number in line.split())
        dut.wr_addr.value, dut.wr_data.value = address, word
        await RisingEdge(dut.axis_aclk)
    dut.wr_en.value = 0
    for _ in range(4):
        await RisingEdge(dut.axis_aclk)
    if pauses:
        for i, end in enumerate(ends):
            rng = random.Random(i)
            end.set_pause_generator(rng.random() < 0.5 for _ in itertools.count())
    return ends


def numbered_frame(sequence, packet):
    return frame(
        Datagram(SESSION, 1, CARD, sequence, begin=not sequence, packets=(packet,)).encode()
    )


async def session(dut, pauses):
    """A session and a row of it, with a damaged ``tkeep`` between; packets to the successor."""
    source, sink = await start(dut, pauses)
    hole = [1] * 132
    hole[70] = 0
    await source.send(AxiStreamFrame(numbered_frame(0, START)))
    await source.send(AxiStreamFrame(numbered_frame(1, bits(0)[0]), tkeep=hole))
    for i, packet in enumerate(bits(0)):
        await source.send(AxiStreamFrame(numbered_frame(1 + i, packet)))
    packets = []
    while len(packets) < 2 + 6 + 2:
        datagram = Datagram.decode(opened(bytes((await sink.recv()).tdata))[1])
        if datagram.packets:
            assert datagram.sequence == len(packets)
            packets += datagram.packets
    assert dut.counters.value.to_unsigned() & 0xFFFFFFFF == 1  # the frame with the hole
    return packets


@cocotb.test()
async def without_pauses(dut):
    """Splits of three packets to both sides, and 480 bits in two packets."""
    packets = await session(dut, pauses=False)
    assert [packet.array for packet in packets[2:]] == [0] * 6 + [1] * 2
    STEADY.extend(packets)


@cocotb.test()
async def pauses_change_nothing(dut):
    """What leaves is the same with random pauses at both ports."""
    assert await session(dut, pauses=True) == STEADY
