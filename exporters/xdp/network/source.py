# SPDX-License-Identifier: Apache-2.0
"""Generates the C header of a network, which the XDP program includes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from n3ic.exporters.xdp.network.groups import fired_groups
from n3ic.exporters.xdp.network.sums import (
    BLOCK,
    LayerPlan,
    Selector,
    Structure,
)
from n3ic.exporters.xdp.network.values import layout
from n3ic.model.network import shape_text
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
ROWS = "network_rows.h"
_MAX_LOG2 = 8  # network_lanes() scales a sum of lanes by at most 2^8


@dataclass(frozen=True)
class RowAddition:
    """The addition of one row, in the form that the template needs.

    Attributes:
        row: offset of the selector's first row, in bytes.
        ends_segment: whether the sums are widened after this addition.
        index: index of the selector.
        feature: index of the selector's feature.
        form: form of the selector.
        at: offset of its cuts, table or clamp, in bytes.
        count: number of cuts, or of words of lanes.
        lane: width of a lane in bits; 0 without lanes.
        log2: base-2 logarithm of the bytes per row, if the row number is already multiplied by
            them; otherwise 0.
        reads: for raw bits, whether this selector is the first to read its value.
        clamped: for raw bits, whether the value is clamped.
        shift: position of the bits that form the row number.
        mask: mask of those bits.
        block: block of neurons of the previous layer, or of index words.
        word: for a table, the word of the block that holds its index.
        stride: bytes of a row.
        parts: for each block, a mask of the words that the row holds, and their offset in the row
            in bytes.
        again: whether a later block also reads the row number.
    """

    row: int
    ends_segment: bool
    index: int = 0
    feature: int = 0
    form: str = ""
    at: int = 0
    count: int = 0
    lane: int = 0
    log2: int = 0
    stride: int = 0
    parts: tuple[tuple[int, int], ...] = ()
    again: bool = False
    reads: bool = False
    clamped: bool = False
    shift: int = 0
    mask: int = 0
    block: int = 0
    word: int = 0


def network_source(structure: Structure, *, prefix: str = "network") -> dict[str, str]:
    """Generate the files of a network by name: ``PREFIX.h`` includes ``network_rows.h``.

    Args:
        structure: structure that is compiled in.
        prefix: prefix of the C names, which must differ for two networks in one program.
    """
    rows = {ROWS: (FOLDER / ROWS).read_text(encoding="utf-8")}
    if structure.walks:
        from n3ic.exporters.xdp.graph.source import graph_source

        return rows | graph_source(structure, prefix)
    values = _values(structure) | {"p": prefix, "P": prefix.upper()}
    return {
        **rows,
        f"{prefix}.h": render(FOLDER, "network.h.j2", values),
    }


def _values(structure: Structure) -> dict[str, Any]:
    where = layout(structure)
    first, *rest = structure.layers
    steps = [list(_input_steps(structure))]
    if structure.tables:
        steps.append(list(_table_steps(structure)))
    else:
        for before, plan in zip(structure.layers, rest, strict=False):
            steps.append(list(_fired_steps(before, plan)))
    return {
        "shape": f"{sum(map(len, structure.tables))} look-up tables"
        if structure.tables
        else f"{shape_text([p.outputs for p in structure.layers])} network",
        "tables": structure.tables,
        "features": structure.features,
        "bits": structure.bits,
        "classes": structure.classes,
        "selectors": structure.selectors,
        "keeps": len(first.blocks) > 1 and any(s.cuts for s in structure.selectors),
        "members": where.members,
        "bytes": where.bytes,
        "rows0": where.offset("rows0"),
        "layers": structure.layers,
        "widens": any(p.segments and not p.halves for p in structure.layers),
        "halves": any(plan.halves for plan in structure.layers),
        "steps": steps,
    }


def _input_steps(structure: Structure) -> Iterator[RowAddition]:
    where = layout(structure)
    first = structure.layers[0]
    ends = set(accumulate(first.segments))
    before: Selector | None = None
    each = zip(structure.selectors, where.places, structure.row_words, strict=True)
    for i, (s, place, words) in enumerate(each):
        parts = tuple(_parts(first, words))
        power = len(words).bit_count() == 1 and len(words) <= 1 << _MAX_LOG2 - 3
        same = before is not None and (before.feature, before.part) == (s.feature, s.part)
        lane = {"lanes16": 16, "lanes32": 32}.get(s.form, 0)
        yield RowAddition(
            place.row,
            i + 1 in ends,
            index=i,
            feature=s.feature,
            form=s.form,
            at=place.at,
            count=s.words if lane else s.cuts,
            lane=lane,
            log2=len(words).bit_length() + 2 if lane and power else 0,
            reads=before is None or before.form != "bits" or not same,
            clamped=s.clamped,
            shift=s.shift,
            mask=(1 << s.width) - 1,
            stride=8 * len(words),
            parts=parts,
            again=bool(s.cuts) and any(mask for mask, _ in parts[1:]),
        )
        before = s


def _parts(plan: LayerPlan, words: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield, for each block of a layer, a mask of the row's words and their offset in bytes."""
    for low in range(0, plan.words, plan.block):
        inside = [w - low for w in words if low <= w < low + plan.block]
        yield sum(1 << w for w in inside), 8 * sum(w < low for w in words)


def _table_steps(structure: Structure) -> Iterator[RowAddition]:
    """Yield the additions of the entries that the look-ups read."""
    from n3ic.exporters.xdp.graph.bit_tables.arrange import index_places

    row, stride = 0, 1 if structure.classes == 2 else 8 * structure.layers[-1].words
    sizes = [sum(joint) for joint in structure.tables]
    for bits, (word, shift) in zip(sizes, index_places(sizes), strict=True):
        block, inside = divmod(word, structure.layers[0].block)
        yield RowAddition(row, False, shift=shift, mask=(1 << bits) - 1, block=block, word=inside)
        row += stride << bits


def _fired_steps(before: LayerPlan, plan: LayerPlan) -> Iterator[RowAddition]:
    row, i = 0, 0
    ends = set(accumulate(plan.segments))
    for block, words in enumerate(before.blocks):
        for column, nibble in enumerate(fired_groups(words)):
            i += 1
            # The nibbles of a full block are in the high halves of its bytes.
            shift = 8 * column + (4 if words == BLOCK else 0)
            parts = tuple(_parts(plan, range(plan.words)))
            yield RowAddition(
                row, i in ends, block=block, shift=shift, stride=8 * plan.words, parts=parts
            )
            row += 8 * plan.words << len(nibble)
