"""The size of a sequential core, counted from its structure without any tool."""

from __future__ import annotations

from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.sequential.layout import (
    LayerLayout,
    SequentialLayout,
    clog2,
    distributed_luts,
)

TAG_BITS = 8
# What is left beside counters, comparators and memories: fitted to Yosys on five shapes.
LAYER_LUTS = 40
CORE_LUTS = 40
SITES_OF_LUTS = 0.72  # two small tables share a site


def resources(layout: SequentialLayout) -> Resources:
    """What the executors of a layout take, estimated."""
    one = sum(_layer_luts(p, tables=layout.tables) for p in layout.layers) + 4 * layout.score_w
    tags = distributed_luts(1 << layout.depth_w, TAG_BITS)
    luts = CORE_LUTS + tags + layout.modules * round(one)
    return Resources(
        luts=luts,
        lut_sites=round(SITES_OF_LUTS * luts),
        ffs=layout.modules * sum(_layer_ffs(p) for p in layout.layers),
        bram36=layout.modules * sum(p.bram36 for p in layout.layers),
        carry=None,
        srls=0,
        source="structure of the blocks, constants fitted to Yosys 0.70",
        kind="estimated",
    )


def _layer_luts(p: LayerLayout, *, tables: bool) -> float:
    memory = 0 if p.block else distributed_luts(2 << p.row_w, 32 * p.row_words)
    memory *= 2 if p.masked else 1
    side = 0 if p.block_side else p.lanes * distributed_luts(2 << p.group_w, p.count_w)
    select = p.part * -(-p.chunks // 4) if p.chunks > 1 else 0
    add = 2 * p.count_w if p.chunks > 1 else 0
    lane = _popcount(p.part, masked=p.masked, tables=tables) + p.count_w + add
    return p.lanes * lane + memory + side + select + p.row_words + LAYER_LUTS


def _popcount(n: int, *, masked: bool, tables: bool) -> float:
    if tables:
        octets = -(-n // 8)
        return 8 * octets + 16 * octets + 6 * octets
    groups = -(-n // (2 if masked else 3))
    return 2 * groups + 2 * _count(groups) + clog2(n + 1)


def _count(n: int) -> float:
    if n <= 6:
        return 1 if n <= 3 else 3
    groups = -(-n // 6)
    return 3 * groups + 3 * _count(groups) + 2 * clog2(groups + 1)


def _layer_ffs(p: LayerLayout) -> int:
    groups = -(-p.part // 3)
    popcount = 4 * groups + 20
    return p.n + 2 * p.m + 2 * 32 * p.row_words + p.lanes * popcount + 60
