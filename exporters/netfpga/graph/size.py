# SPDX-License-Identifier: Apache-2.0
"""The size of a pipeline, counted from its cells and registers without synthesis.

Tables of at most five different inputs share a site in pairs, where a table whose output enters a
carry chain needs the site's main output. Registers between two readers of a value that are at least
three clocks apart become shift registers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count, pairwise

from n3ic.exporters.netfpga.graph.choices import INPUTS, computed_columns, reads_of
from n3ic.exporters.netfpga.graph.pipeline import Pipeline, PipelineCell
from n3ic.exporters.netfpga.graph.verilog import class_width, latency
from n3ic.exporters.netfpga.lut_packing import lut_pairs
from n3ic.exporters.netfpga.resources import Resources
from n3ic.model.graph.arithmetic import Logarithms

DSP_A, DSP_B = 24, 17  # widths of unsigned factors that one DSP48E1 multiplies
SRL_MINIMUM = 3  # length of a register chain that synthesis turns into a shift register
SRL_LENGTH = 32
TABLE_SITES = 40  # look-up tables of log-add's table with 6 fractional bits
SOURCE = "count of the generator's cells"
_NO_REGISTER = ("bits", "constant", "more", "join")


@dataclass
class _Count:
    """Look-up tables, registers and multipliers so far.

    Attributes:
        supports: the inputs of each table that may share a site.
        carried: indices of those whose output enters a carry chain.
        alone: tables with a site of their own.
        unread: inputs of carry chains that no table drives; each takes a site.
    """

    supports: list[tuple[int, ...]] = field(default_factory=list)
    carried: list[int] = field(default_factory=list)
    alone: int = 0
    unread: int = 0
    srls: int = 0
    ffs: int = 0
    dsps: int = 0

    def table(self, *inputs: int, carried: bool = False) -> None:
        """Add a table; equal numbers stand for the same input."""
        if carried:
            self.carried.append(len(self.supports))
        self.supports.append(inputs)

    def chain(self, bits: int, clocks: int) -> None:
        """Add registers in series that nothing reads in between."""
        if clocks >= SRL_MINIMUM:
            self.srls += bits * -(-clocks // SRL_LENGTH)
        else:
            self.ffs += bits * clocks


def estimate(plan: Pipeline) -> Resources:
    """Estimate the resources of a pipeline on a 7-series FPGA."""
    counted = _Count()
    in_blocks = _cells_in_blocks(plan)
    for i, cell in enumerate(plan.cells):
        _add_tables(plan, i, counted)
        own = cell.kind not in _NO_REGISTER and i not in in_blocks
        _add_registers(plan, i, own, counted)
        if cell.kind in ("times", "scale"):
            blocks = _blocks(plan, cell)
            counted.dsps += blocks
            counted.alone += DSP_B * (blocks - 1)  # adders of the partial products
    _add_ranking(plan, counted)
    luts = len(counted.supports) + counted.alone + counted.srls
    pairs = lut_pairs(counted.supports, counted.carried)
    return Resources(
        luts=luts,
        lut_sites=luts - pairs + counted.unread,
        ffs=counted.ffs,
        bram36=0.0,
        carry=None,
        srls=counted.srls,
        source=SOURCE,
        kind="estimated",
        dsps=counted.dsps,
    )


def _add_tables(plan: Pipeline, index: int, counted: _Count) -> None:
    """Count the look-up tables of a cell."""
    cell = plan.cells[index]
    read = [_signals(plan, i) for i in cell.reads]
    if cell.kind == "lookup":
        inputs = [x for signals in read for x in signals]
        whole = (tuple(range(len(inputs))),) * cell.width
        for used in whole if cell.fields else _used(cell, len(inputs)):
            for _ in range(1 << max(0, len(used) - INPUTS)):
                counted.table(*(inputs[k] for k in used[:INPUTS]))
    elif cell.kind == "gate":
        counted.table(*(x for signals in read for x in signals))
    elif cell.kind == "mux":
        _add_mux(plan, cell, counted)
    elif cell.kind == "add":
        _add_adder(plan, cell, counted)
    elif cell.kind == "count":
        for _ in range(cell.width):
            counted.table(*read[0])
    elif cell.kind == "larger":
        counted.alone += 3 * cell.width + _table_sites(plan)
    elif cell.kind == "round":
        counted.alone += cell.width


def _used(cell: PipelineCell, bits: int) -> list[tuple[int, ...]]:
    """For each bit of a table of bits that needs logic, the places of what it reads."""
    columns = sorted(computed_columns(cell.table, cell.width))
    return [tuple(bits - 1 - k for k in reads_of(column, bits)) for column in columns]


def _add_mux(plan: Pipeline, cell: PipelineCell, counted: _Count) -> None:
    (bit,) = _signals(plan, cell.reads[0])
    sides = [_extended(plan, i, cell.width) for i in cell.reads[1:]]
    for pair in set(zip(*sides, strict=True)):
        known = [x for x in pair if x is not None]
        if known:
            counted.table(bit, *known)


def _add_adder(plan: Pipeline, cell: PipelineCell, counted: _Count) -> None:
    """Count a carry chain, to which the sums of two bits each are inputs."""
    sides = [_extended(plan, i, cell.width) for i in cell.reads]
    by = next((plan.cells[i].low for i in cell.reads if plan.cells[i].kind == "constant"), 0)
    for k, pair in enumerate(zip(*sides, strict=True)):
        known = [x for x in pair if x is not None]
        if len(known) == 2 or (known and by >> k & 1):
            counted.table(*known, carried=True)
        else:
            counted.unread += len(known)


def _extended(plan: Pipeline, index: int, width: int) -> list[int | None]:
    """The signals of a value's bits at a reader's width; None for constant bits."""
    cell = plan.cells[index]
    if cell.kind == "constant":
        return [None] * width
    own: list[int | None] = [*_signals(plan, index)]
    return own + [own[-1] if cell.sign == "+-" else None] * (width - len(own))


def _signals(plan: Pipeline, index: int) -> list[int]:
    """Numbers of the bits of a value, the lowest first."""
    cell = plan.cells[index]
    if cell.kind == "join":
        return [x for i in reversed(cell.reads) for x in _signals(plan, i)]
    return [64 * index + k for k in range(cell.width)]


def _add_registers(plan: Pipeline, index: int, own: bool, counted: _Count) -> None:
    """Count the register of a cell, and those that keep its value for later readers."""
    cell = plan.cells[index]
    if cell.kind == "larger":
        counted.ffs += 5 * cell.width + _table_sites(plan) // 2  # operands, differences, entries
    if cell.kind == "constant":
        return
    ends = [-int(own), *plan.taps[index]]
    for first, last in pairwise(ends):
        counted.chain(cell.width, last - first)


def _add_ranking(plan: Pipeline, counted: _Count) -> None:
    """Count the validity, the tag, the tournament of scores, and the delay of scores."""
    clocks, width = latency(plan), plan.score_width
    counted.ffs += clocks
    counted.chain(1, clocks)
    classes = class_width(len(plan.scores))
    constant = [plan.cells[i].kind == "constant" for i in plan.scores]
    # Of each group of scores: whether its best one is constant, and whether it has a second one.
    groups = [(known, False) for known in constant]
    late = clocks - plan.depth
    for known in constant:
        if not known:  # the first of these registers is the tournament's, but for the sign
            counted.chain(width - 1, late - 1)
            counted.chain(1, late)
    while len(groups) > 1:
        alone = groups.pop() if len(groups) % 2 else None
        matches = list(zip(groups[::2], groups[1::2], strict=True))
        for a, b in matches:
            values = sum(not known for known, _ in (a, b)) + a[1] + b[1]
            counted.ffs += width * (values + 2) + 2 + a[1] + b[1] + 2 * (classes > 1)
            if not (a[0] or b[0]):
                _add_match(width, 1 + a[1] + b[1], counted)
        groups = [(False, True)] * len(matches)
        if alone is not None:  # a match with nobody only delays
            counted.ffs += 2 * width * (not alone[0]) + 2 * width * alone[1]
            groups.append(alone)
    counted.ffs += width + classes
    for k in range(width):
        counted.table(-2 * k - 1, -2 * k - 2, carried=True)  # the margin
    if plan.model.shunt:
        counted.ffs += width + classes + 1
        counted.alone += width // 2


def _add_match(width: int, comparisons: int, counted: _Count) -> None:
    """Count the comparisons of a match, and the selection of its best and second score."""
    counted.alone += comparisons * (width // 2 + 1)
    own = count(-1_000_000 * (1 + len(counted.supports)))  # numbers of no other signal
    wins, keeps = next(own), next(own)
    for _ in range(width):
        a, b, second = next(own), next(own), next(own)
        counted.table(wins, a, b)
        counted.table(wins, a, b, *((keeps, second) if comparisons > 1 else ()))
        counted.alone += comparisons > 2


def _table_sites(plan: Pipeline) -> int:
    arithmetic = plan.graph.arithmetic
    fraction = arithmetic.fraction if isinstance(arithmetic, Logarithms) else 0
    return max(1, TABLE_SITES << max(0, fraction - 6) >> max(0, 6 - fraction))


def _blocks(plan: Pipeline, cell: PipelineCell) -> int:
    """Number of DSP blocks of a product."""
    widths = sorted(_factors(plan, cell))
    return -(-widths[0] // DSP_B) * -(-widths[1] // DSP_A)


def _cells_in_blocks(plan: Pipeline) -> set[int]:
    """Cells whose register is inside a DSP block: the product itself and its inputs."""
    alone = {
        i
        for i, cell in enumerate(plan.cells)
        if cell.kind in ("times", "scale") and _blocks(plan, cell) == 1
    }
    inputs = {i for product in alone for i in plan.cells[product].reads}
    lookups = {i for i in inputs if plan.cells[i].kind == "lookup" and not plan.delays[i]}
    return alone | lookups


def _factors(plan: Pipeline, cell: PipelineCell) -> list[int]:
    read = [plan.cells[i].width for i in cell.reads]
    return read if cell.kind == "times" else [*read, cell.table[0].bit_length()]
