# SPDX-License-Identifier: Apache-2.0
"""The part of look-up tables that is compiled into the program.

An interval of a feature sets some bits of the indices, and no other feature sets these bits. The
indices of all tables are fields of 64-bit words, so they are the sum of one row of words per
feature, as in the first layer of a binary network. The scores are then sums of entries. Tables with
neighbouring indices are read by one look-up if the table of their sums is small.

A feature's row holds only the words of the tables that read the feature. So tables that read the
same features are put into one word, as far as there is room.

The program has compiled in the number of tables, the bits of each index, the number of classes, and
the words of each feature's row. The map has the input bits that address each table, the entries and
all cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from n3ic.errors import ExportError
from n3ic.exporters.xdp.graph.bit_tables.arrange import (
    WORD,
    ProgramTables,
    arranged,
    by_size,
    index_places,
    touched_words,
)
from n3ic.exporters.xdp.network.sums import (
    LayerPlan,
    Structure,
    outline_of,
    score_offset,
    within_reach,
)
from n3ic.model.classifier import Classifier

MAX_BYTE = 255
BLOCK = 5  # index words that are summed at once; no registers are needed for scores meanwhile
MAX_SCORE_WORDS = 4  # more sums would not fit BPF's registers beside the indices
MAX_JOINT_BYTES = 1024  # table bytes per look-up: 52 tables of 5 bits then stay in 32 KiB


def tables_structure(models: Sequence[Classifier], *, bits: bool = False) -> Structure:
    """Compute the structure that several models whose graphs add up look-up tables share.

    Args:
        models: one or more models with the same number of classes.
        bits: whether the features are the packed input bits.

    Raises:
        ExportError: a model exceeds the limits of BPF, or the numbers of classes differ.
    """
    counts = sorted({len(model.classes) for model in models})
    if len(counts) > 1:
        raise ExportError(
            f"look-up tables of {counts[0]} and {counts[1]} classes cannot share a program"
        )
    own = [ProgramTables.of(model, bits=bits) for model in models]
    outline = outline_of([each.input for each in own], bits)
    ordered = [[each.tables[t] for t in by_size(each)] for each in own]
    sizes, widths = (
        [max(each) for each in zip_longest(*of_models, fillvalue=0)]
        for of_models in (
            [[len(t.bits) for t in tables] for tables in ordered],
            [[each.width] * len(each.tables) for each in own],
        )
    )
    lane = next((lane for lane in (16, 32) if all(fits_lane(each, lane) for each in own)), 32)
    scores = LayerPlan(counts[0], lane if counts[0] > 2 else 32)
    if scores.words > MAX_SCORE_WORDS:
        most = MAX_SCORE_WORDS * WORD // lane
        raise ExportError(
            f"look-up tables of {counts[0]} classes, an XDP program has room for {most} "
            f"whose scores have {lane} bits"
        )
    tables = _joined(sizes, widths, 1 if counts[0] == 2 else 8 * scores.words)
    words = index_places([sum(joint) for joint in tables])[-1][0] + 1
    layers = (LayerPlan(8 * words, 8, block=BLOCK), scores)
    structure = Structure(outline.features, outline.selectors, layers, bits, tables)
    touched = np.any(
        [touched_words(structure, each, arranged(structure, each)) for each in own], axis=0
    )
    return within_reach(
        replace(structure, touched=tuple(tuple(np.flatnonzero(row).tolist()) for row in touched))
    )


def _joined(
    sizes: Sequence[int], widths: Sequence[int], stride: int
) -> tuple[tuple[int, ...], ...]:
    """Group neighbouring tables into look-ups, and return the index bits of each.

    Args:
        sizes: bits of each index.
        widths: bits of each table's entries.
        stride: bytes of an entry; if it is 1, sums of entries must fit a byte.
    """
    out: list[tuple[int, ...]] = []
    largest_sum = 0
    for size, width in zip(sizes, widths, strict=True):
        most = (1 << width) - 1
        fits = stride > 1 or largest_sum + most <= MAX_BYTE
        if out and fits and stride << (sum(out[-1]) + size) <= MAX_JOINT_BYTES:
            out[-1] += (size,)
            largest_sum += most
        else:
            out.append((size,))
            largest_sum = most
    return tuple(out)


def fits_lane(own: ProgramTables, lane: int) -> bool:
    """Return whether lanes of ``lane`` bits hold all scores and their partial sums."""
    return own.largest < score_offset(lane)
