# SPDX-License-Identifier: Apache-2.0
"""The indices of look-up tables, from features and in words.

:func:`index_parts` leads from features to indices without input bits: a feature lies in one
interval between its cuts, and each interval sets some bits of the indices. The indices of all
tables are fields of words (:class:`Packing`), so a feature takes as many ORs as there are words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.model.bits import WORD_BITS
from n3ic.model.graph.bit_tables import BitTable
from n3ic.model.inputs import Field, InputSpec


@dataclass(frozen=True, eq=False)
class IndexPart:
    """What one feature contributes to the indices.

    A value below ``cuts[0]`` is in interval 0, one from ``cuts[j - 1]`` to below ``cuts[j]`` in
    interval ``j``. Index ``t`` is the OR of the parts of all features.

    Attributes:
        feature: the feature's name.
        cuts: the cuts that some table reads, strictly increasing, each once; empty for raw bits.
        indices: uint8 array of shape ``(intervals, tables)``: bits of each index that are set in
            each interval; interval 0 sets none. For raw bits, a row per bit of the clamped
            value, least significant first: the bits of the indices that this bit sets.
        clamp: for raw bits, the largest value; larger values become it. None for cuts.
    """

    feature: str
    cuts: tuple[int, ...]
    indices: NDArray[np.uint8]
    clamp: int | None = None


@dataclass(frozen=True)
class Packing:
    """Where the index of each table lies among words of 32 bits.

    Attributes:
        n_words: number of words.
        word: word of each table's index.
        shift: its least significant bit in that word.
        mask: ``2 ** d - 1`` for each table's ``d`` bits.
    """

    n_words: int
    word: tuple[int, ...]
    shift: tuple[int, ...]
    mask: tuple[int, ...]

    def pack(self, indices: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """Pack indices into words.

        Args:
            indices: uint8 array of shape ``(rows, tables)``.

        Returns:
            uint32 array of shape ``(rows, n_words)``.
        """
        out = np.zeros((len(indices), self.n_words), dtype=np.uint32)
        for t, (word, shift) in enumerate(zip(self.word, self.shift, strict=True)):
            out[:, word] |= indices[:, t].astype(np.uint32) << np.uint32(shift)
        return out

    def unpack(self, words: NDArray[np.uint32]) -> NDArray[np.uint8]:
        """Read indices back: uint8 array of shape ``(rows, tables)``; see :meth:`pack`."""
        columns = [
            words[:, word] >> np.uint32(shift) & np.uint32(mask)
            for word, shift, mask in zip(self.word, self.shift, self.mask, strict=True)
        ]
        return np.stack(columns, axis=1).astype(np.uint8)


def packing(tables: Sequence[BitTable]) -> Packing:
    """Place the indices in words: in order, with none across two words."""
    word, shift = [], []
    at, free = -1, 0
    for each in tables:
        size = len(each.bits)
        if size > free:
            at, free = at + 1, WORD_BITS
        word.append(at)
        shift.append(WORD_BITS - free)
        free -= size
    masks = tuple((1 << len(t.bits)) - 1 for t in tables)
    return Packing(at + 1, tuple(word), tuple(shift), masks)


def index_parts(spec: InputSpec, tables: Sequence[BitTable]) -> tuple[IndexPart, ...]:
    """List what each feature contributes to the indices; features that no table reads are left out.

    The thermometers of a feature are one part; each field of raw bits is a part of its own.

    Args:
        spec: the input.
        tables: the tables that read its bits.
    """
    reads = np.zeros((spec.n_bits, len(tables)), dtype=np.uint8)
    for t, each in enumerate(tables):
        for j, bit in enumerate(each.bits):
            reads[bit, t] |= 1 << j
    out = []
    placed = list(zip(spec.fields, spec.offsets, strict=True))
    for feature in spec.features:
        own = [(f, at) for f, at in placed if f.feature == feature]
        if part := _thermometers(feature, [p for p in own if p[0].kind == "thermometer"], reads):
            out.append(part)
        for f, at in own:
            rows = reads[at : at + f.width]
            if f.kind == "binary" and rows.any():
                out.append(IndexPart(feature, (), rows, f.clamp))
    return tuple(out)


def _thermometers(
    feature: str, fields: list[tuple[Field, int]], reads: NDArray[np.uint8]
) -> IndexPart | None:
    """Join the thermometers of a feature; None if no table reads them."""
    by_cut: dict[int, NDArray[np.uint8]] = {}
    for field, at in fields:
        for k, cut in enumerate(field.cuts):
            if reads[at + k].any():
                by_cut[cut] = by_cut.get(cut, np.zeros_like(reads[0])) | reads[at + k]
    if not by_cut:
        return None
    cuts = tuple(sorted(by_cut))
    none = np.zeros_like(reads[0])
    set_by = np.bitwise_or.accumulate(np.stack([none, *(by_cut[c] for c in cuts)]), axis=0)
    return IndexPart(feature, cuts, set_by)
