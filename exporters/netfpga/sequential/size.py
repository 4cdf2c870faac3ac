# SPDX-License-Identifier: Apache-2.0
"""The size of a sequential core, counted from its structure without synthesis."""

from __future__ import annotations

from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.sequential.layout import (
    LayerLayout,
    SequentialLayout,
    clog2,
    distributed_luts,
    score_bits_needed,
)
from n3ic.model.bits import WORD_BITS
from n3ic.model.network import BinaryModel
from n3ic.targets.device import Placement, Problem

TAG_BITS = 8
# Logic beside counters, comparators and memories, fitted to Yosys on seven shapes.
CORE_LUTS = 32
ROW_BIT_LUTS = 0.53
SELECT_LUTS = 0.68  # of each choice between two bits, fitted to three lengths of rows
# Two small tables may share a site; the ratio is fitted to the same seven shapes.
SITES_OF_LUTS = 0.7
CORE_SITES = 25


def check(
    model: BinaryModel, layout: SequentialLayout, room: float
) -> tuple[list[Placement], list[Problem]]:
    """Check that the weights fit the block RAM, and the scores their width.

    Args:
        model: the network.
        layout: sizes of its executors.
        room: BRAM36 that are free beside the reference NIC.
    """
    placements = [
        Placement(
            f"layer {p.index}, {p.rows} rows of {32 * p.row_words} bits, two banks, "
            f"{layout.modules} modules",
            "bram" if p.block else "distributed",
            2 * p.rows * 4 * p.row_words * (1 + p.masked) * layout.modules,
        )
        for p in layout.layers
    ]
    problems = []
    needed = score_bits_needed(model)
    if needed > layout.score_w:
        problems.append(
            Problem(f"scores need {needed} bits, they have {layout.score_w}: --score-bits {needed}")
        )
    blocks = sum(p.bram36 for p in layout.layers) * layout.modules
    if blocks > room:
        worst = max(layout.layers, key=lambda p: p.bram36)
        problems.append(
            Problem(
                f"weights need {blocks:g} BRAM36, {room:g} are free beside the reference "
                f"NIC; layer {worst.index} needs {worst.bram36 * layout.modules:g} of them",
                layer=worst.index,
                memory="bram",
                missing_bytes=int((blocks - room) * 4608),
            )
        )
    return placements, problems


def resources(layout: SequentialLayout) -> Resources:
    """Estimate the resources of a layout's executors."""
    one = sum(_layer_luts(p, tables=layout.tables) for p in layout.layers) + 4 * layout.score_w
    tags = distributed_luts(1 << layout.depth_w, TAG_BITS)
    # Each bank holds a threshold, and one comparator compares it with the margin.
    shunting = distributed_luts(2, layout.score_w) + layout.score_w if layout.shunts else 0
    luts = CORE_LUTS + tags + shunting + layout.modules * round(one)
    return Resources(
        luts=luts,
        lut_sites=CORE_SITES + round(SITES_OF_LUTS * luts),
        ffs=_core_ffs(layout) + layout.modules * sum(_layer_ffs(p, layout) for p in layout.layers),
        bram36=layout.modules * sum(p.bram36 for p in layout.layers),
        carry=None,
        srls=0,
        source="structure of the blocks, constants fitted to Yosys 0.70",
        kind="estimated",
    )


def _layer_luts(p: LayerLayout, *, tables: bool) -> float:
    memory = 0 if p.block else distributed_luts(1 << p.row_w + p.bank_w, 32 * p.row_words)
    memory *= 2 if p.masked else 1
    side = 0 if p.block_side else p.lanes * distributed_luts(1 << p.group_w + p.bank_w, p.count_w)
    select = SELECT_LUTS * (p.n - p.part)  # of the row's part of the input
    add = 2 * p.count_w if p.chunks > 1 else 0
    lane = _popcount(p.part, masked=p.masked, tables=tables) + p.count_w + add
    return p.lanes * lane + memory + side + select + p.row_words + ROW_BIT_LUTS * p.lanes * p.part


def _popcount(n: int, *, masked: bool, tables: bool) -> float:
    if tables:
        return 20 * -(-n // 8)  # agreements, tables and adders per eight inputs, fitted to Yosys
    groups = -(-n // (2 if masked else 3))
    return 2 * groups + 2 * _count(groups) + clog2(n + 1)


def _count(n: int) -> float:
    if n <= 6:
        return 1 if n <= 3 else 3
    groups = -(-n // 6)
    return 3 * groups + 3 * _count(groups) + 2 * clog2(groups + 1)


# --- flip-flops, block by block as the Verilog has them ------------------------------------------


def _core_ffs(layout: SequentialLayout) -> int:
    """Flip-flops of banks, the registered write, the FIFO of tags, and the module's turn."""
    banks = 6 + layout.depth_w + 1
    write = 2 + layout.address_map.width + WORD_BITS
    tags = 3 * layout.depth_w + 1
    return banks + write + tags + (layout.modules if layout.modules > 1 else 0)


def _layer_ffs(p: LayerLayout, layout: SequentialLayout) -> int:
    """Flip-flops of ``n3ic_rows`` with its lanes, then of ``n3ic_hidden`` or ``n3ic_output``."""
    chunk_w = clog2(p.chunks)
    # Delays of two clocks are too short for shift registers, so they count as flip-flops.
    rows = p.n + 5 + (p.row_w if p.chunks > 1 else 0) + p.group_w + 3 * chunk_w
    side = 2 * (1 + p.group_w) + (2 if p.chunks > 1 else 0)
    # A read takes two clocks; in block RAM the first register is part of the memory.
    weights = (1 if p.block else 2) * p.lanes * p.part * (1 + p.masked)
    sum_ = 1 + p.count_w + 2 * (1 + p.group_w) if p.chunks > 1 else 0
    lane, latency = _popcount_ffs(p.part, masked=p.masked, tables=layout.tables)
    first = rows + side + weights + sum_ + p.lanes * lane + latency
    if not p.output:
        limits = (1 if p.block_side else 2) * p.lanes * p.count_w
        return first + limits + p.groups * p.lanes + p.m + 6
    bias = (1 if p.block_side else 2) * layout.score_w
    scores = layout.score_w * (6 + 2 * p.m)
    return first + bias + scores + 2 * layout.class_w + p.group_w + 6


def _popcount_ffs(n: int, *, masked: bool, tables: bool) -> tuple[int, int]:
    """Flip-flops of a popcount, and its latency in clocks, which its valid bits must match."""
    if tables:
        octets = -(-n // 8)
        flip_flops, level, bits = n, octets, min(4, clog2(n + 1))
        latency = 2
        while True:
            flip_flops += level * bits
            if level == 1:
                return flip_flops, max(3, latency)
            level, bits, latency = -(-level // 2), bits + 1, latency + 1
    groups = -(-n // (2 if masked else 3))
    counts, latency = _count_ffs(groups)
    return 2 * groups + 2 * counts + clog2(n + 1), 2 + latency


def _count_ffs(n: int) -> tuple[int, int]:
    """Flip-flops and latency of ``n3ic_count``."""
    if n <= 6:
        return clog2(n + 1), 1
    groups = -(-n // 6)
    inner, latency = _count_ffs(groups)
    return 3 * groups + 3 * inner + clog2(n + 1), 2 + latency
