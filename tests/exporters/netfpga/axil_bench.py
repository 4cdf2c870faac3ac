# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the AXI4-Lite slave; test_registers.py runs them under Icarus."""

import itertools
import os
import random
from pathlib import Path

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.handle import Force, Release
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiResp,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)

from n3ic.exporters.netfpga.block.registers import registers
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.sequential.update import read_update
from n3ic.model.bits import pack
from n3ic.targets.manifest import exported_network, read_manifest

OLD, NEW = Path(os.environ["N3IC_EXPORT"]), Path(os.environ["N3IC_OTHER"])
MODELS = [exported_network(path, read_manifest(path)).model for path in (OLD, NEW)]
CORE = CorePorts.load(OLD)
TABLE = {r.name: r for r in registers(CORE, MODELS[0].digest, front=False)}
AT = {name: r.offset for name, r in TABLE.items()}


class Card:
    """A card in simulation: its registers, and the two ends of its packet path."""

    def __init__(self, dut, seed):
        cocotb.start_soon(Clock(dut.axis_aclk, 5, unit="ns").start())
        ends = dut.axis_aclk, dut.axis_resetn
        self.dut, self.rng = dut, random.Random(seed)
        self.master = AxiLiteMaster(
            AxiLiteBus.from_prefix(dut, "s_axil"), *ends, reset_active_level=False
        )
        self.source = AxiStreamSource(
            AxiStreamBus.from_prefix(dut, "s_axis"), *ends, reset_active_level=False
        )
        self.sink = AxiStreamSink(
            AxiStreamBus.from_prefix(dut, "m_axis"), *ends, reset_active_level=False
        )

    async def start(self, pauses=True):
        self.dut.axis_resetn.value = 0
        await ClockCycles(self.dut.axis_aclk, 8)
        self.dut.axis_resetn.value = 1
        await ClockCycles(self.dut.axis_aclk, 4)
        if pauses:
            write, read = self.master.write_if, self.master.read_if
            for channel in (
                write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel
            ):  # fmt: skip
                channel.set_pause_generator(self._pauses(random.Random(self.rng.random())))

    @staticmethod
    def _pauses(rng):
        """Runs of clocks, so that each channel is at times far ahead of the others."""
        while True:
            busy = rng.random() < 0.5
            yield from itertools.repeat(busy, rng.randrange(1, 12))

    async def write(self, address, value, length=4):
        """Write the lowest bytes of a value; say whether it was taken."""
        done = await self.master.write(address, value.to_bytes(4, "little")[:length])
        assert done.resp in (AxiResp.OKAY, AxiResp.SLVERR)
        return done.resp == AxiResp.OKAY

    async def read(self, address):
        """Read a register; None if there is none."""
        done = await self.master.read(address, 4)
        assert done.resp in (AxiResp.OKAY, AxiResp.SLVERR)
        return int.from_bytes(done.data, "little") if done.resp == AxiResp.OKAY else None

    async def load(self, writes):
        for address, word in writes:
            assert await self.write(AT["update_address"], address)
            assert await self.write(AT["update_data"], word)

    async def answers(self, model, count):
        """Send inputs, and compare the answers with a model's."""
        drawn = np.random.default_rng(self.rng.getrandbits(32))
        inputs = pack(drawn.integers(0, 2, (count, model.input.n_bits)).astype(bool))
        trace = model.infer(inputs)
        octets = -(-model.input.n_bits // 8)
        for row in inputs:
            number = int.from_bytes(row.tobytes(), "little").to_bytes(octets, "big")
            body = bytes(12) + b"\x23\x23" + bytes(12) + number
            await self.source.send(AxiStreamFrame(body + bytes(max(0, 60 - len(body)))))
        for label, margin in zip(trace.verdicts, trace.margins, strict=True):
            got = bytes((await self.sink.recv()).tdata)
            wanted = bytes.fromhex(model.digest[:8]) + (int(label) & 0xFFFF).to_bytes(2, "big")
            assert got[16:26] == wanted + int(margin).to_bytes(4, "big")


@cocotb.test(timeout_time=200, timeout_unit="us")
async def every_address_is_a_register_or_an_error(dut):
    card = Card(dut, 1)
    await card.start()
    by_offset = {r.offset: r for r in TABLE.values()}
    addresses = [*range(0, 0x100, 4), 0x400, 0xFFC]
    card.rng.shuffle(addresses)
    for address in addresses:
        register = by_offset.get(address)
        if register is None:
            assert await card.read(address) is None
        elif not register.counter:
            assert await card.read(address) == (register.reset or 0), register
        if register is None or register.access == "ro":
            assert not await card.write(address, card.rng.getrandbits(32)), register
    assert await card.read(AT["update_address"]) == 0


@cocotb.test(timeout_time=200, timeout_unit="us")
async def a_write_is_whole_or_refused(dut):
    card = Card(dut, 2)
    await card.start()
    for length in (1, 2, 3):
        assert not await card.write(AT["update_address"], 0xFF, length)
    assert await card.read(AT["update_address"]) == 0
    largest = (1 << CORE.wr_aw) - 1
    assert await card.write(AT["update_address"], largest)
    assert not await card.write(AT["update_address"], largest + 1)
    assert await card.read(AT["update_address"]) & largest == 0
    assert await card.read(AT["count_refused"]) == 4


@cocotb.test(timeout_time=200, timeout_unit="us")
async def every_write_has_an_answer_of_its_own(dut):
    """Writes that are offered together, of which every third is refused."""
    card = Card(dut, 6)
    await card.start()
    places = [AT["count_words"] if i % 3 == 0 else AT["update_address"] for i in range(60)]
    waiting = [cocotb.start_soon(card.write(place, i)) for i, place in enumerate(places)]
    taken = [await task for task in waiting]
    assert taken == [place == AT["update_address"] for place in places]
    assert await card.read(AT["count_refused"]) == 20
    assert await card.read(AT["update_address"]) == 59


@cocotb.test(timeout_time=200, timeout_unit="us")
async def new_weights_give_the_new_scores(dut):
    """In a packet path under way, and an update that is not whole changes nothing."""
    card = Card(dut, 3)
    await card.start()
    old, new = MODELS
    await card.answers(old, 20)
    writes = read_update(NEW / "mem" / "update.hex", CORE).writes
    await card.load(writes[:-1])
    assert not await card.write(AT["commit"], 1)
    await card.answers(old, 20)
    await card.load(writes[-1:])
    assert await card.write(AT["commit"], 0)
    await card.answers(old, 5)
    assert await card.write(AT["commit"], 1)
    await card.answers(new, 40)
    assert await card.read(AT["model"]) == int(new.digest[:8], 16)
    counted = {name: await card.read(AT[name]) for name in TABLE if name.startswith("count")}
    shunted = counted.pop("count_shunted", None)
    assert (shunted is None) == (not CORE.shunts)
    assert counted == {
        "count_packets_in": 85,
        "count_packets_out": 85,
        "count_results": 85,
        "count_words": len(writes),
        "count_swaps": 1,
        "count_refused": 1,
    }


@cocotb.test(timeout_time=200, timeout_unit="us")
async def a_busy_core_refuses(dut):
    card = Card(dut, 4)
    await card.start(pauses=False)
    writes = read_update(NEW / "mem" / "update.hex", CORE).writes
    await card.load(writes)
    dut.wr_busy.value = Force(1)
    assert await card.read(AT["status"]) == 1
    assert not await card.write(AT["update_data"], 1)
    assert not await card.write(AT["commit"], 1)
    dut.wr_busy.value = Release()
    await RisingEdge(dut.axis_aclk)
    assert await card.read(AT["status"]) == 0
    assert await card.read(AT["count_words"]) == len(writes)
    assert await card.write(AT["commit"], 1)
    await card.answers(MODELS[1], 5)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def a_reset_leaves_no_answer_behind(dut):
    card = Card(dut, 5)
    await card.start(pauses=False)
    for _ in range(20):
        clocks = card.rng.randrange(1, 9)
        pending = cocotb.start_soon(card.master.write(AT["update_address"], bytes(4)))
        await ClockCycles(dut.axis_aclk, clocks)
        dut.axis_resetn.value = 0
        await ClockCycles(dut.axis_aclk, 3)
        assert dut.s_axil_bvalid.value == 0 and dut.s_axil_rvalid.value == 0
        assert dut.s_axil_awready.value == 0 and dut.s_axil_wready.value == 0
        dut.axis_resetn.value = 1
        await ClockCycles(dut.axis_aclk, 3)
        pending.cancel()
        assert await card.read(AT["update_address"]) == 0
        assert await card.write(AT["update_address"], 5)
        assert await card.read(AT["update_address"]) == 5
        assert await card.write(AT["update_address"], 0)
