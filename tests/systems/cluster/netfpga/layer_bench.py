# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the card's binary layer; test_cluster_layer.py runs them under Icarus."""

import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

SLICE = 512
LATENCY = 11  # clocks from a question to the first result, beside one for each slice


async def start(dut):
    cocotb.start_soon(Clock(dut.clk, 5, unit="ns").start())
    for name in ("in_en", "ask_valid", "wr_weight", "wr_mask", "wr_bound"):
        getattr(dut, name).value = 0
    dut.room.value = 1
    dut.rst.value = 1
    for _ in range(4):
        await RisingEdge(dut.clk)
    dut.rst.value = 0


def number(bits):
    """Bits, the lowest first, as a number."""
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def padded(bits, slices, value):
    full = np.full(slices * SLICE, value, dtype=bool)
    full[: len(bits)] = bits
    return full.reshape(slices, SLICE)


async def write_rows(dut, at, weights, slices):
    """Weights (neurons, inputs) from row ``at`` on."""
    dut.wr_weight.value = 1
    for row in (r for neuron in weights for r in padded(neuron, slices, True)):
        dut.wr_row.value = at
        value = number(row)
        for word in range(SLICE // 32):
            dut.wr_word.value = word
            dut.wr_data.value = value >> 32 * word & 0xFFFFFFFF
            await RisingEdge(dut.clk)
        at += 1
    dut.wr_weight.value = 0


async def write_bounds(dut, at, thresholds):
    dut.wr_bound.value = 1
    for i, value in enumerate(thresholds):
        dut.wr_row.value = at + i
        dut.wr_data.value = int(value)
        await RisingEdge(dut.clk)
    dut.wr_bound.value = 0


async def write_input(dut, at, bits, slices, first=0):
    """An input from row ``at`` on, in pieces of 12 words; the first piece ends at word ``first``.

    A piece may begin in one row and end in the next.
    """
    words = np.packbits(padded(bits, slices, False), bitorder="little").view("<u4")
    ends = [*range(first, len(words), 12), len(words)]
    for begin, end in zip([0, *ends], ends, strict=False):
        row, enabled, later, value = at + begin // 16, 0, 0, 0
        for place in range(begin, end):
            bank = place % 16
            enabled |= 1 << bank
            later |= (bank < begin % 16) << bank
            value |= int(words[place]) << 32 * bank
        dut.in_en.value = enabled
        dut.in_next.value = later
        dut.in_row.value = row
        dut.in_next_row.value = row + 1
        dut.in_bits.value = value
        await RisingEdge(dut.clk)
    dut.in_en.value = 0


async def ask(dut, row, neuron, count, at, slices):
    dut.ask_valid.value = 1
    dut.ask_row.value = row
    dut.ask_neuron.value = neuron
    dut.ask_count.value = count
    dut.ask_input.value = at
    dut.ask_slices.value = slices
    while True:
        await RisingEdge(dut.clk)
        if dut.ask_ready.value == 1:
            break
    dut.ask_valid.value = 0


async def answers(dut, count, bounds):
    """Sums and bits of a question, and clocks to the first; scores and the end are checked."""
    outputs = []
    clocks = first = 0
    while len(outputs) < count:
        await RisingEdge(dut.clk)
        clocks += 1
        if dut.out_valid.value == 1:
            outputs.append((int(dut.out_sum.value), int(dut.out_fires.value)))
            first = first or clocks
            assert dut.out_score.value == (outputs[-1][0] + bounds[len(outputs) - 1]) % (1 << 32)
            assert (dut.out_last.value == 1) == (len(outputs) == count)
    return outputs, first


def expected(weights, bits, thresholds):
    sums = (weights == bits).sum(axis=1)
    return [(int(s), int(s >= t)) for s, t in zip(sums, thresholds, strict=True)]


def network(rng, neurons, inputs):
    """Random weights with thresholds at, below and above what occurs, an input among the rows."""
    weights = rng.random((neurons, inputs)) < 0.5
    bits = rng.random(inputs) < 0.5
    weights[0], weights[-1] = bits, ~bits  # sums of all inputs and of none
    sums = (weights == bits).sum(axis=1)
    thresholds = np.clip(sums + rng.integers(-1, 2, neurons), 0, inputs + 1)
    thresholds[0] = inputs + rng.integers(0, 2)
    return weights, bits, thresholds


@cocotb.test()
async def layers_of_many_shapes(dut):
    """4,096 inputs, a slice exactly, one bit more, and one bit."""
    rng = np.random.default_rng(1)
    await start(dut)
    for inputs, neurons in ((4096, 5), (512, 7), (513, 3), (1, 2), (1024, 1)):
        slices = -(-inputs // SLICE)
        weights, bits, thresholds = network(rng, neurons, inputs)
        row, neuron, at = int(rng.integers(0, 100)), int(rng.integers(0, 50)), 16
        await write_rows(dut, row, weights, slices)
        await write_bounds(dut, neuron, thresholds)
        await write_input(dut, at, bits, slices, int(rng.integers(0, 12)))
        await ask(dut, row, neuron, neurons, at, slices)
        outputs, first = await answers(dut, neurons, thresholds.tolist())
        assert outputs == expected(weights, bits, thresholds)
        assert first == slices + LATENCY


@cocotb.test()
async def questions_back_to_back(dut):
    """Parts of a layer for two inputs, a slice a clock, with a receiver that has no room at times.

    Without pauses the distance of results is the number of slices.
    """
    rng = np.random.default_rng(2)
    await start(dut)
    slices, inputs, neurons = 3, 1400, 12
    weights, bits, thresholds = network(rng, neurons, inputs)
    other = rng.random(inputs) < 0.5
    await write_rows(dut, 0, weights, slices)
    await write_bounds(dut, 0, thresholds)
    await write_input(dut, 0, bits, slices)
    await write_input(dut, slices, other, slices)
    pauses = random.Random(3)
    for shy in (False, True):
        parts = [(0, 12, 0), (5, 4, 1), (11, 1, 0), (0, 12, 1)]
        wanted = []
        for first, count, which in parts:
            all_ = expected(weights, other if which else bits, thresholds)
            wanted += all_[first : first + count]

        async def questions(parts=parts):
            for first, count, which in parts:
                await ask(dut, first * slices, first, count, which * slices, slices)

        cocotb.start_soon(questions())
        outputs, clocks = [], 0
        while len(outputs) < len(wanted):
            await RisingEdge(dut.clk)
            clocks += 1
            assert clocks < 5000
            if dut.out_valid.value == 1:
                outputs.append((int(dut.out_sum.value), int(dut.out_fires.value)))
            dut.room.value = int(not shy or pauses.random() < 0.5)
        assert outputs == wanted
        if not shy:
            assert clocks <= len(wanted) * slices + len(parts) + 30
