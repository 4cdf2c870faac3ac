# SPDX-License-Identifier: Apache-2.0
"""The size of a pipeline, counted from its cells and registers without synthesis."""

from __future__ import annotations

from n3ic.exporters.netfpga.graph.pipeline import COUNTED, Pipeline, PipelineCell
from n3ic.exporters.netfpga.graph.verilog import class_width, latency
from n3ic.exporters.netfpga.resources import Resources
from n3ic.model.graph.arithmetic import Logarithms

DSP_A, DSP_B = 24, 17  # widths of unsigned factors that one DSP48E1 multiplies
SRL_MINIMUM = 3  # length of a register chain that synthesis turns into a shift register
SRL_LENGTH = 32
TABLE_SITES = 40  # look-up tables of log-add's table with 6 fractional bits
SOURCE = "count of the generator's cells"


def estimate(plan: Pipeline) -> Resources:
    """Estimate the resources of a pipeline on a 7-series FPGA."""
    arithmetic = plan.graph.arithmetic
    fraction = arithmetic.fraction if isinstance(arithmetic, Logarithms) else 0
    table = max(1, TABLE_SITES << max(0, fraction - 6) >> max(0, 6 - fraction))
    luts, ffs, dsps = 0.0, 0, 0
    in_blocks = _cells_in_blocks(plan)
    for i, cell in enumerate(plan.cells):
        luts += _luts(plan, cell, table)
        ffs += 0 if cell.kind in ("bits", "constant", "more") or i in in_blocks else cell.width
        if cell.kind == "larger":
            ffs += 5 * cell.width + table // 2  # operands, differences, table entries
        if cell.kind in ("times", "scale"):
            blocks = _blocks(plan, cell)
            dsps += blocks
            luts += DSP_B * (blocks - 1)  # adders of the partial products
    chains = [(c.width, n) for c, n in zip(plan.cells, plan.delays, strict=True) if n]
    clocks, score_w = latency(plan), plan.score_width
    chains += [(score_w * len(plan.scores), clocks - plan.depth), (1, clocks)]
    srls = sum(w * -(-n // SRL_LENGTH) for w, n in chains if n >= SRL_MINIMUM)
    ffs += sum(w * n for w, n in chains if n < SRL_MINIMUM) + clocks
    matches = len(plan.scores) - 1
    ffs += matches * (6 * score_w + 3 * class_width(len(plan.scores)) + 3) + score_w
    luts += matches * 4 * score_w + score_w
    total = round(luts) + srls
    return Resources(total, total, ffs, 0.0, None, srls, SOURCE, "estimated", dsps)


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


def _luts(plan: Pipeline, cell: PipelineCell, table: int) -> float:
    if cell.kind == "lookup":
        inputs = sum(plan.cells[i].width for i in cell.reads)
        # Two functions of up to five inputs share a site.
        return cell.width * (0.5 if inputs < COUNTED else 1 << (inputs - COUNTED))
    if cell.kind == "larger":
        return 3 * cell.width + table
    return cell.width if cell.kind in ("add", "count", "round") else 0
