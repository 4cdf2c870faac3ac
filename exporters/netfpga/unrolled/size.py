# SPDX-License-Identifier: Apache-2.0
"""Estimates the size of an unrolled core without synthesis.

The generator knows its look-up tables and registers. Only the chains of registers that Yosys turns
into shift registers must be predicted.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from n3ic.exporters.netfpga.lut_packing import lut_pairs
from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.unrolled import design as unrolled_design
from n3ic.exporters.netfpga.unrolled.cells import ADD7
from n3ic.exporters.netfpga.unrolled.netlist import TRUE
from n3ic.model.network import BinaryModel

SRL_MINIMUM = 3  # length of a chain of registers without a tap that becomes a shift register
SRL_LENGTH = 32
TAG_BITS = 1
SOURCE = "count of the generator's tables and registers"


def estimate(model: BinaryModel, *, pipeline: str | int = 1, outputs: str = "class") -> Resources:
    """Estimate the resources of a model's unrolled core."""
    return count(unrolled_design.design(model, pipeline=pipeline, outputs=outputs))


def count(logic: unrolled_design.Design) -> Resources:
    """Count the resources of a design, and predict its shift registers."""
    net, plan = logic.network.net, logic.plan
    tables = [net.table(node) for node in sorted(plan.core)]
    sevens = {table.cell: table.inputs for table in tables if table.cell.kind is ADD7}
    supports = [table.inputs for table in tables if table.cell.kind is not ADD7]
    # Per adder: the parity of six bits, and two functions of five, one of them no select input.
    own = [support for read in sevens.values() for support in (read[:6], read[:5], read[:5])]
    inverted = {x for x in logic.network.outputs if x & 1 and x > TRUE}
    chains = [*_chains(logic), *[plan.depth] * TAG_BITS]
    srls = sum(-(-n // SRL_LENGTH) for n in chains if n >= SRL_MINIMUM)
    ffs = sum(n for n in chains if n < SRL_MINIMUM) + plan.depth  # valid bits, which have a reset
    gate = int(plan.depth == 1)  # valid AND reset; a longer pipeline resets its registers instead
    luts = len(supports) + len(own) + len(inverted) + srls + gate
    pairs = lut_pairs([*supports, *[(x >> 1,) for x in sorted(inverted)]]) + len(sevens)
    return Resources(
        luts=luts,
        lut_sites=luts - pairs,
        ffs=ffs,
        bram36=0.0,
        carry=len(sevens),
        srls=srls,
        source=SOURCE,
        kind="estimated",
    )


def _chains(logic: unrolled_design.Design) -> list[int]:
    """Lengths of the register chains between two taps."""
    net, plan = logic.network.net, logic.plan
    taps: dict[int, set[int]] = defaultdict(set)
    for node in plan.core:
        for x in net.table(node).inputs:
            taps[x].add(plan.stage[node] - plan.stage.get(x, 1))
    for literal in logic.network.outputs:
        if literal > TRUE:
            taps[literal >> 1].add(plan.depth + 1 - plan.stage.get(literal >> 1, 1))
    runs: list[int] = []
    for places in taps.values():
        ends = sorted(places | {0})
        runs.extend(b - a for a, b in pairwise(ends))
    return runs
