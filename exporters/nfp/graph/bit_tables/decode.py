# SPDX-License-Identifier: Apache-2.0
"""Reads look-up tables back from the words of an NFP export.

The code shares nothing with the writer, constants included, so that a mistake there shows here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.targets.decoded_graphs import DecodedGraph, graph_of_tables


@dataclass(frozen=True)
class _Index:
    """A table's index: its input bits, and the position of its lowest bit in the index words."""

    bits: tuple[int, ...]
    place: int


def decode_words(artefact: str, words: Words, model: Classifier) -> DecodedGraph:
    """Decode the tables in the words of a weights file; see docs/how-to/nfp.md.

    Groups, entries and the input stage are read at the positions that the words give, as the
    micro-C does. A cut that no table reads is not in the file; it is taken from the model.

    Raises:
        VerifyError: the words are not a weights file of this version and size, or their input
            stage is not the model's.
    """
    header = _numbers(words, artefact, 0, 21)
    if header[0] != 0x544E334E or header[1] not in (1, 2) or header[2] != len(words):
        raise VerifyError(f"{artefact}: not look-up tables for the NFP of this version and size")
    count, n_bits, parts, part, features = header[3:8]
    sums, index_words, groups, numbers, biases = header[16:21]
    classes = len(model.classes)
    if (n_bits, features) != (model.input.n_bits, len(model.input.features)) or (
        sums != classes and (sums, classes) != (1, 2)
    ):
        raise VerifyError(f"{artefact}: the header does not match the sizes of the model")
    stored = np.array(_numbers(words, artefact, biases, sums), np.uint32).view(np.int32)
    bias = np.array(stored, dtype=np.int64)
    indices: list[_Index] = []
    entries: list[NDArray[np.int64]] = []
    read = place = 0
    for g in range(groups):
        where = f"{artefact}, group {g}"
        of, sizes, sum_mask, first = _numbers(words, artefact, 21 + 4 * g, 4)
        size, slot, row = sizes & 0xFF, sizes >> 8 & 0xFF, sizes >> 16
        own = [s for s in range(sums) if sum_mask >> s & 1]
        if not (
            1 <= size <= 8 and slot in (1, 2, 4, 8) and not sum_mask >> sums and 1 <= of <= count
        ):
            raise VerifyError(f"{where}: unknown sizes or sums")
        if row != _row_bits(slot * len(own)):
            raise VerifyError(f"{where}: rows of {row} bits for {len(own)} entries of {slot}")
        span = -(-(row << size) // 32)
        for _ in range(of):
            if place % 32 + size > 32:
                place += -place % 32
            pairs = _numbers(
                words, artefact, numbers + read // 2, (read + size + 1) // 2 - read // 2
            )
            halves = [half for pair in pairs for half in (pair & 0xFFFF, pair >> 16)]
            indices.append(_Index(tuple(halves[read % 2 :][:size]), place))
            read, place = read + size, place + size
            stream = _bits(_numbers(words, artefact, first, span))
            rows = stream[: row << size].reshape(1 << size, row)
            if stream[row << size :].any() or rows[:, slot * len(own) :].any():
                raise VerifyError(f"{where}: bits beside the entries are not 0")
            table = np.zeros((1 << size, sums), dtype=np.int64)
            fields = rows[:, : slot * len(own)].reshape(1 << size, len(own), slot)
            table[:, own] = fields @ (1 << np.arange(slot)) - (1 << (slot - 1))
            bias[own] += 1 << (slot - 1)
            entries.append(table)
            first += span
    if len(entries) != count or index_words != -(-place // 32):
        raise VerifyError(f"{artefact}: the header does not match the sizes of the tables")
    if read % 2 and _numbers(words, artefact, numbers + read // 2, 1)[0] >> 16:
        raise VerifyError(f"{artefact}: bits beside the input bits are not 0")
    cuts = _cuts(artefact, words, model, indices, (parts, part, index_words))
    shunt = int(words[-1]) if header[1] == 2 else 0
    digest = struct.pack("<8I", *header[8:16]).hex()
    tables = [(index.bits, table) for index, table in zip(indices, entries, strict=True)]
    graph = graph_of_tables(artefact, model.input, tables, bias)
    return DecodedGraph(artefact, graph, cuts, shunt, digest)


def _cuts(
    artefact: str,
    words: Words,
    model: Classifier,
    indices: list[_Index],
    place: tuple[int, int, int],
) -> tuple[tuple[int, ...], ...]:
    """Return the cuts of every input field, after a check of the parts and their marks.

    Each mark must set exactly the index bits that its interval of values sets.
    """
    parts, part, index_words = place
    # For each input bit, the index bits that it sets, as a bit mask. The masks are disjoint.
    sets = [0] * model.input.n_bits
    for index in indices:
        for j, bit in enumerate(index.bits):
            if bit >= len(sets):
                raise VerifyError(f"{artefact}: input bit {bit} of {len(sets)}")
            sets[bit] |= 1 << (index.place + j)
    cuts = [list(field.cuts) for field in model.input.fields]
    placed = list(zip(model.input.fields, model.input.offsets, cuts, strict=True))
    missing = {bit for bit, marked in enumerate(sets) if marked}
    for p in range(parts):
        where = f"{artefact}, part {p}"
        first, limit, mark = _numbers(words, artefact, part + 3 * p, 3)
        feature, kind, count = first & 0x7FFF, first >> 15 & 1, first >> 16
        if feature >= len(model.input.features):
            raise VerifyError(f"{where}: unknown feature {feature}")
        values = _numbers(words, artefact, limit, count) if kind else []
        if kind and (not values or values != sorted(set(values))):
            raise VerifyError(f"{where}: the cuts do not increase")
        marks = []
        for k in range(count):
            row = _numbers(words, artefact, mark + k * index_words, index_words)
            marks.append(sum(word << 32 * i for i, word in enumerate(row)))
        name = "thermometer" if kind else "binary"
        own = [
            (field, range(at, at + field.width), of)
            for field, at, of in placed
            if (field.feature, field.kind) == (model.input.features[feature], name)
            and missing & set(range(at, at + field.width))
        ]
        expected = [0] * count
        for field, bits, of in own if kind else own[:1]:  # each field of raw bits has its own part
            if not kind and (field.width, field.clamp) != (count, limit):
                raise VerifyError(f"{where}: {count} bits up to {limit}, not those of the model")
            for j, bit in enumerate(bits):
                if not kind:
                    expected[j] = sets[bit]
                elif bit in missing:
                    # A bit's cut is the one whose mark is the first to set its index bits.
                    at = next((k for k, m in enumerate(marks) if not sets[bit] & ~m), None)
                    if at is None:
                        raise VerifyError(f"{where}: no mark sets input bit {bit}")
                    of[j] = values[at]
                    expected[at:] = [m | sets[bit] for m in expected[at:]]
            missing -= set(bits)
        if marks != expected:
            raise VerifyError(f"{where}: the marks do not set the indices of their input bits")
    if missing:
        raise VerifyError(f"{artefact}: no part sets input bit {min(missing)}")
    return tuple(tuple(of) for of in cuts)


def _row_bits(need: int) -> int:
    """Round the bits that a row's entries need up to a power of two, or to whole words."""
    return next((bits for bits in (0, 1, 2, 4, 8, 16) if bits >= need), 32 * -(-need // 32))


def _numbers(words: Words, artefact: str, start: int, count: int) -> list[int]:
    """Read ``count`` words as integers, and check that the file has them."""
    if start + count > len(words):
        raise VerifyError(f"{artefact}: ends at word {len(words)}, before {start + count - 1}")
    return [int(word) for word in words[start : start + count]]


def _bits(words: list[int]) -> NDArray[np.int64]:
    """Unpack words to bits, least significant first."""
    octets = np.array(words, dtype="<u4").view(np.uint8)
    return np.unpackbits(octets, bitorder="little").astype(np.int64)
