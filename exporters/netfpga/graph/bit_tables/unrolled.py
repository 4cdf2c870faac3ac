# SPDX-License-Identifier: Apache-2.0
"""Turns a model's tables into look-up tables of the FPGA: bits of entries, and their adders.

An offset makes the entries of a table unsigned, and each of their bits is a function of the index
bits. Two such functions of five index bits share one site. The bits of all tables form one heap
per sum, which adders of seven bits compress.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import ExportError
from n3ic.exporters.netfpga.unrolled.bit_heap import BitHeap, BitHeapCompressor
from n3ic.exporters.netfpga.unrolled.cells import MAX_INPUTS, lookup
from n3ic.exporters.netfpga.unrolled.design import Design
from n3ic.exporters.netfpga.unrolled.netlist import FALSE, Netlist
from n3ic.exporters.netfpga.unrolled.network import LutNetwork
from n3ic.exporters.netfpga.unrolled.ranking import Ranking, below_threshold, ranked
from n3ic.exporters.netfpga.unrolled.schedule import schedule
from n3ic.exporters.netfpga.unrolled.verilog import cells_text, core_text, of_bit
from n3ic.exporters.netfpga.unrolled.write import CELLS, FILE
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.bit_tables import BitTables, bit_tables
from n3ic.targets.identifiers import comment

NAMES = "t3_b1 is bit 1 of the entry of table 3, score0_b2 bit 2 of class 0's score."
_SELECT = 0xCA  # in[2] ? in[1] : in[0]


def added(model: Classifier) -> BitTables:
    """The look-up tables that a model's graph adds up.

    Raises:
        ExportError: its scores are other values.
    """
    own = bit_tables(graph_of(model))
    if own is None:
        raise ExportError(f"{model.name!r} adds up no look-up tables")
    return own


@lru_cache(maxsize=4)
def design(model: Classifier, outputs: str = "scores", pipeline: int = 1) -> Design:
    """Build the look-up tables and the pipeline of a model.

    Args:
        model: the model.
        outputs: ``class`` for the class alone, ``scores`` for scores and margin too.
        pipeline: look-up tables in series between two registers.
    """
    network = build(model, scores=outputs == "scores")
    return Design(network, schedule(network.net, network.outputs, network.traced, pipeline))


def write(model: Classifier, out: Path, *, outputs: str, pipeline: int) -> dict[str, Any]:
    """Write the Verilog of an unrolled core into ``out/rtl``; see :func:`design`.

    Returns:
        Port widths of the core, for the test bench and the wrapper.
    """
    logic = design(model, outputs, pipeline)
    (out / "rtl").mkdir(exist_ok=True)
    core = core_text(logic.network, logic.plan, model, comments(model), NAMES)
    (out / "rtl" / FILE).write_text(core, encoding="utf-8")
    (out / "rtl" / CELLS).write_text(cells_text(logic.network, logic.plan), encoding="utf-8")
    return {
        "class_w": class_width(model),
        "score_w": score_width(model),
        "write_port": False,
        "wr_aw": 0,
        "wr_dw": 0,
        "shunts": model.shunt > 0,
    }


def score_width(model: Classifier) -> int:
    """Width of a score in two's complement, in bits; a margin fits the same width unsigned."""
    own = added(model)
    # The first of two classes may score 0.
    bounds = [*own.sum_bounds.ravel().tolist(), *([0] if len(own.bias) == 1 else [])]
    low, high = min(bounds), max(bounds)
    return max((-low - 1).bit_length() if low < 0 else 0, max(0, high).bit_length()) + 1


def class_width(model: Classifier) -> int:
    """Width of a class index, in bits."""
    return max(1, (len(model.classes) - 1).bit_length())


def build(model: Classifier, *, scores: bool) -> LutNetwork:
    """Turn a model into look-up tables of the FPGA.

    Args:
        model: the model.
        scores: whether to output scores and margin in addition to the class.
    """
    net = Netlist(model.input.n_bits)
    adder = BitHeapCompressor(net)
    width = score_width(model)
    heaps = [adder.sevens(heap, f"sum{s}") for s, heap in enumerate(_heaps(added(model), net))]
    two = len(heaps) == 1
    shunt: tuple[int, ...] = ()
    classes: tuple[int, ...] = ()
    if two and not scores:
        # Only comparisons are built, so the low bits of the sum are not computed.
        classes = (adder.reaches(heaps[0], 1, "class1_over0"),)
        if model.shunt:
            decided = adder.reaches(heaps[0], model.shunt, "class1_decided")
            undecided = adder.reaches(heaps[0], 1 - model.shunt, "class0_undecided")
            shunt = (net.all_of((undecided, decided ^ 1), "shunt"),)
    sums = tuple(
        adder.number(heap, f"score{s + two}", heap.offset % (1 << width), width).bits
        for s, heap in enumerate(heaps)
    )
    ranking = _of_two(net, sums[0]) if two else ranked(adder, sums, width)
    classes = classes or ranking.index
    if model.shunt and not shunt:
        shunt = (below_threshold(adder, ranking.margin, model.shunt),)
    return LutNetwork(
        net, classes, ranking.scores, ranking.margin, (), with_scores=scores, shunt=shunt
    )


def _heaps(own: BitTables, net: Netlist) -> list[BitHeap]:
    """The sums as heaps of bits."""
    heaps = [BitHeap(offset=int(bias)) for bias in own.bias]
    for t, table in enumerate(own.tables):
        index = [net.input(bit) for bit in table.bits]
        for s, heap in enumerate(heaps):
            entries = table.entries[:, s]
            least = int(entries.min())
            heap.offset += least
            for power in range(int(entries.max() - least).bit_length()):
                rows = np.flatnonzero((entries - least) >> power & 1).tolist()
                column = "" if len(heaps) == 1 else f"_{s}"
                name = f"t{t}{column}_b{power}"
                heap.add_bit(_function(net, sum(1 << r for r in rows), index, name), 1 << power)
    return heaps


def _function(net: Netlist, table: int, index: list[int], name: str) -> int:
    """A function of index bits; more than six of them select between functions of six."""
    if len(index) <= MAX_INPUTS:
        return net.cell(lookup(table, len(index)), index, [name])[0]
    rows = 1 << len(index) - 1
    halves = [
        _function(net, part, index[:-1], name) for part in (table % (1 << rows), table >> rows)
    ]
    return net.cell(lookup(_SELECT, 3), [*halves, index[-1]], [name])[0]


def _of_two(net: Netlist, total: tuple[int, ...]) -> Ranking:
    """Rank two classes whose scores are 0 and a number in two's complement."""
    sign = total[-1]
    margin: list[int] = []
    below: list[int] = []  # one of these is 1 if any bit below the current one is
    for power, bit in enumerate(total):
        # -x inverts the bits above the lowest 1 of x.
        size = len(below) + 2
        rows = [row for row in range(1 << size) if row & 1 ^ int(row >> 1 & 1 and row >> 2 > 0)]
        cell = lookup(sum(1 << row for row in rows), size)
        margin += net.cell(cell, [bit, sign, *below], [f"margin_b{power}"])
        below = [net.any_of(below, "low"), bit] if len(below) == MAX_INPUTS - 2 else [*below, bit]
    wins = net.all_of((sign ^ 1, net.any_of(total[:-1], "positive")), "class1_over0")
    return Ranking((wins,), ((FALSE,) * len(total), total), tuple(margin))


def comments(model: Classifier) -> dict[str, tuple[str, ...]]:
    """Describe the sections of the Verilog, by name."""
    out: dict[str, tuple[str, ...]] = {}
    own = added(model)
    for t, table in enumerate(own.tables):
        for s in range(len(own.bias)):
            column = "" if len(own.bias) == 1 else f"_{s}"
            of = "" if len(own.bias) == 1 else f" for class {s}"
            out[f"t{t}{column}"] = (
                f"table {t}{of}: {', '.join(map(str, table.entries[:, s]))}, by",
                *(f"bit {j}: {of_bit(model, bit)}" for j, bit in enumerate(table.bits)),
            )
    for s, name in enumerate(model.classes):
        out[f"score{s}"] = (f"score of class {s} ({comment(name)})",)
    return out
