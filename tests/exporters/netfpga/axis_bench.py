# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet path; test_axis_packets.py runs them under Icarus."""

import itertools
import os
import random
from dataclasses import dataclass
from pathlib import Path

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.packet.wrapper import packet_format
from n3ic.exporters.netfpga.sequential.update import read_update
from n3ic.model.bits import Words, pack, unpack
from n3ic.targets.manifest import exported_network, read_manifest

DIRECTORY = Path(os.environ["N3IC_EXPORT"])
OTHER = Path(os.environ["N3IC_OTHER"])
MODEL = exported_network(DIRECTORY, read_manifest(DIRECTORY)).model
OPTIONS = EXPORTER.parse_options(read_manifest(DIRECTORY)["options"])
FORM = packet_format(MODEL, OPTIONS)
SIDE = OPTIONS["input"] == "side"
WRITE_PORT = OPTIONS["style"] == "sequential"
MACS = bytes.fromhex("020000000001020000000002")


def random_input(rng):
    """A random input: its bytes in a packet, and what the model says of it."""
    if OPTIONS["input-stage"] == "features":
        values = {
            name: np.array([rng.choice([0, 1, rng.getrandbits(6), rng.getrandbits(32)])])
            for name in MODEL.input.features
        }
        field = b"".join(int(v[0]).to_bytes(4, "big") for v in values.values())
        return field, MODEL.encode(values)
    n = MODEL.input.n_bits
    value = rng.getrandbits(n)
    bits = np.array([[value >> i & 1 for i in range(n)]], dtype=bool)
    return value.to_bytes(-(-n // 8), "big"), pack(bits)


def answer(model, words):
    """The ten bytes that the card writes, by the reference model."""
    trace = model.infer(words)
    label, margin = int(trace.classes[0]), int(trace.margins[0])
    return bytes.fromhex(model.digest[:8]) + label.to_bytes(2, "big") + margin.to_bytes(4, "big")


@dataclass
class Asked:
    """An input: its bytes as the side channel has them, and its words."""

    field: bytes
    words: Words


def packet(rng, extra, *, match=True):
    """A packet that asks, with ``extra`` bytes behind it, and its input."""
    asked = Asked(*random_input(rng))
    if FORM.udp:
        port = FORM.value if match else FORM.value ^ 1
        head = bytes.fromhex("080045000000000040004011") + bytes(10)
        head += b"\x12\x34" + port.to_bytes(2, "big") + b"\x00\x40\xab\xcd"
    else:
        head = (FORM.value if match else FORM.value ^ 0x100).to_bytes(2, "big")
    body = MACS + head
    body += bytes(max(0, (FORM.need if SIDE else FORM.offset) - len(body)))
    return body + (b"" if SIDE else asked.field) + rng.randbytes(extra), asked


def expected(data, asked, model=MODEL):
    """What must come back for a packet that asks."""
    out = bytearray(data)
    if FORM.in_packet:
        out[FORM.result_at : FORM.result_at + 10] = answer(model, asked.words)
        if FORM.udp:
            out[40:42] = b"\0\0"
    return bytes(out)


async def start(dut, rng, pauses):
    """Clock, reset, the two ends of the packet path, and the side channel where there is one."""
    cocotb.start_soon(Clock(dut.axis_aclk, 5, unit="ns").start())
    source = AxiStreamSource(
        AxiStreamBus.from_prefix(dut, "s_axis"),
        dut.axis_aclk,
        dut.axis_resetn,
        reset_active_level=False,
    )
    sink = AxiStreamSink(
        AxiStreamBus.from_prefix(dut, "m_axis"),
        dut.axis_aclk,
        dut.axis_resetn,
        reset_active_level=False,
    )
    side = None
    if SIDE:
        side = AxiStreamSource(
            AxiStreamBus.from_prefix(dut, "s_side"),
            dut.axis_aclk,
            dut.axis_resetn,
            reset_active_level=False,
        )
    if WRITE_PORT:
        dut.wr_en.value = 0
        dut.wr_swap.value = 0
    dut.axis_resetn.value = 0
    for _ in range(8):
        await RisingEdge(dut.axis_aclk)
    dut.axis_resetn.value = 1
    for _ in range(4):
        await RisingEdge(dut.axis_aclk)
    if pauses:
        source.set_pause_generator(rng.random() < 0.4 for _ in itertools.count())
        sink.set_pause_generator(rng.random() < 0.4 for _ in itertools.count())
        if side:
            side.set_pause_generator(rng.random() < 0.4 for _ in itertools.count())
    return source, sink, side


async def ask(source, side, data, asked=None, **signals):
    """Send a packet, and its input where that comes beside it."""
    if side and asked:
        await side.send(AxiStreamFrame(asked.field[::-1]))  # the first feature highest
    await source.send(AxiStreamFrame(data, **signals))


async def run(dut, rng, packets, pauses):
    """Send packets, and compare what comes back, in order."""
    source, sink, side = await start(dut, rng, pauses)
    for i, (sent, asked) in enumerate(packets):
        await ask(source, side, sent, asked, tuser=i)
    for i, (sent, asked) in enumerate(packets):
        wanted = expected(sent, asked) if asked else sent
        got = await sink.recv()
        assert bytes(got.tdata) == wanted, f"packet {i} of {len(sent)} bytes"
        user = got.tuser[0] if isinstance(got.tuser, list) else got.tuser
        result = 0
        if FORM.in_tuser and asked:
            written = answer(MODEL, asked.words)
            label, margin = written[4:6], written[6:]
            result = 1 << 48 | int.from_bytes(margin, "big") << 16 | int.from_bytes(label, "big")
        assert user == result << 32 | i


def mixed(rng, count):
    """Packets that ask, that do not, that are too short, and long ones, in random order.

    With each its input, None for those that do not ask.
    """
    packets = []
    for _ in range(count):
        kind = rng.randrange(5)
        if kind == 0:
            data, _ = packet(rng, rng.randrange(100), match=False)
            packets.append((data, None))
        elif kind == 1:  # too short by one byte or by many
            data, _ = packet(rng, 0)
            data = data[: rng.choice([FORM.need - 1, rng.randrange(1, FORM.need)])]
            packets.append((data, None))
        else:
            packets.append(packet(rng, rng.choice([0, 1, 31, 32, 33, rng.randrange(1500)])))
    return packets


@cocotb.test()
async def packets_with_pauses(dut):
    """Random packets with random pauses on both sides."""
    rng = random.Random(1)
    await run(dut, rng, mixed(rng, 60), pauses=True)


@cocotb.test()
async def packets_back_to_back(dut):
    """The same without a pause."""
    rng = random.Random(2)
    await run(dut, rng, mixed(rng, 60), pauses=False)


@cocotb.test()
async def packets_that_do_not_ask_pass_at_full_rate(dut):
    """One beat a clock, once the first packet is through."""
    rng = random.Random(3)
    data = [packet(rng, 200, match=False)[0] for _ in range(30)]
    source, sink, _ = await start(dut, rng, False)
    for item in data:
        source.send_nowait(AxiStreamFrame(item))
    beats = clocks = 0
    total = sum(-(-len(item) // 32) for item in data)
    while beats < total:
        await RisingEdge(dut.axis_aclk)
        if dut.m_axis_tvalid.value == 1 and dut.m_axis_tready.value == 1:
            beats += 1
        clocks += beats > 0
        assert clocks < 10 * total
    assert clocks <= total + 1
    for item in data:
        assert bytes((await sink.recv()).tdata) == item


@cocotb.test()
async def malformed_keep(dut):
    """A frame that lacks a byte of the input, in the middle of a beat, passes untouched."""
    rng = random.Random(4)
    source, sink, side = await start(dut, rng, True)
    data, asked = packet(rng, 40)
    keep = [1] * len(data)
    keep[FORM.need - 1] = 0
    await ask(source, side, data, tkeep=keep)
    await ask(source, side, data, asked)
    got = await sink.recv(compact=False)
    assert bytes(got.tdata)[: len(data)] == data
    assert bytes((await sink.recv()).tdata) == expected(data, asked)


@cocotb.test(skip=not WRITE_PORT)
async def weights_change_in_mid_stream(dut):
    """Every answer is wholly the old model's or wholly the new one's, with one switch."""
    rng = random.Random(5)
    source, sink, side = await start(dut, rng, True)
    other = exported_network(OTHER, read_manifest(OTHER)).model
    packets = [packet(rng, 0) for _ in range(120)]
    for data, asked in packets:
        await ask(source, side, data, asked)

    async def update():
        update = read_update(OTHER / "mem" / "update.hex", CorePorts.load(DIRECTORY))
        for address, word in update.writes:
            dut.wr_en.value = 1
            dut.wr_addr.value = address
            dut.wr_data.value = word
            await RisingEdge(dut.axis_aclk)
        dut.wr_en.value = 0
        dut.wr_swap.value = 1
        await RisingEdge(dut.axis_aclk)
        dut.wr_swap.value = 0
        # What comes while old inferences are under way must be ignored.
        dut.wr_en.value = 1
        dut.wr_data.value = 0
        await RisingEdge(dut.axis_aclk)
        while dut.wr_busy.value == 1:
            await RisingEdge(dut.axis_aclk)
        dut.wr_en.value = 0

    task = cocotb.start_soon(update())
    old, new = [], []
    for data, asked in packets:
        got = bytes((await sink.recv()).tdata)
        old.append(got == expected(data, asked))
        new.append(got == expected(data, asked, other))
        assert old[-1] or new[-1], "an answer of neither model"
    await task
    switch = old.index(False)
    assert 0 < switch < len(packets) - 10
    assert all(old[:switch])
    assert all(new[switch:])
    assert sum(o != n for o, n in zip(old, new, strict=True)) > 10
    assert unpack(packets[0][1].words, MODEL.input.n_bits).any()
