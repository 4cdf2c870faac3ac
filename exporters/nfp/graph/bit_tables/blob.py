# SPDX-License-Identifier: Apache-2.0
"""The weight blob of look-up tables: all their parameters as 32-bit words.

Layout, in words (``weights.bin`` holds them little-endian):

- 0..20, header: magic ``N3NT`` (0x544E334E), layout version, number of words, tables, input bits,
  parts, word of the first part, features; SHA-256 of the model file (8 words); sums, words that
  hold the indices of all tables, groups, word of the first input bit, word of the first bias.
- 21.., four words per group of neighbouring tables of equal sizes: number of tables; bits of an
  index, of a stored entry (from bit 8) and of a row (from bit 16); mask of the sums that they
  add to; word of the first table's rows.
- input bits: the number of each input bit that addresses a table, 16 bits each, the lower half
  first, by table and bit of the index.
- rows, by table: one per index, with the entries of its sums side by side, lowest bits first.
  A stored entry has 1, 2, 4 or 8 bits and is the entry plus half of their range. A row has a power
  of two of bits up to 32, or a multiple of 32. Each table begins with a word of its own.
- biases, one word per sum in two's complement, less the halves that the stored entries add.
- parts, three words per feature that some table reads: index of the feature, kind (bit 15: 0
  binary, 1 thermometer) and number of bits or cuts (from bit 16); word of the first cut, or the
  largest value of a binary field; word of the first mark. Then the cuts, one word each, and the
  marks.
- marks: words that are OR-ed into the indices. A thermometer has one mark for each interval from
  its first cut on; a binary field has one for each bit of the number.
- in layout version 2, for a model that shunts flows: the smallest margin that is not shunted.

The indices are packed into 32-bit words in the order of tables, lowest bits first. No index crosses
two words.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from n3ic.exporters.nfp.graph.bit_tables.indices import index_parts, packing
from n3ic.exporters.nfp.graph.sections import SectionedWords, halves
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.graph.arithmetic import Integers
from n3ic.model.graph.bit_tables import BitTables, entry_widths

MAGIC = int.from_bytes(b"N3NT", "little")
VERSION = 1
SHUNT_VERSION = 2
HEADER_WORDS = 21
GROUP_WORDS = 4
PART_WORDS = 3
MAX_SUMS = 32
"""Maximum number of sums, because a mask of one word names those that a table adds to."""


@dataclass(frozen=True, eq=False)
class TablesBlob(SectionedWords):
    """The words of look-up tables and the positions of their parts.

    Attributes:
        groups: number of groups.
        index_words: words that hold the indices of all tables.
        row_words: words that one inference reads from the rows of all tables.
        encoding_words: maximum number of words that one inference reads from the input stage.
    """

    groups: int
    index_words: int
    row_words: int
    encoding_words: int


@dataclass(frozen=True)
class _Sizes:
    """Sizes of a table: bits of an index, of a stored entry and of a row; the sums it adds to."""

    inputs: int
    slot: int
    row: int
    sums_with_entries: tuple[int, ...]


def build(model: Classifier, own: BitTables) -> TablesBlob:
    """Build the blob of a model that adds up tables in at most ``MAX_SUMS`` sums; deterministic."""
    widths = entry_widths(model, own)
    sizes = [_sizes(w, len(t.bits), t.held) for t, w in zip(own.tables, widths, strict=True)]
    rows = [_rows(t.entries, s) for t, s in zip(own.tables, sizes, strict=True)]
    pairs = halves([b for t in own.tables for b in t.bits])
    groups = [list(g) for _, g in groupby(range(len(sizes)), key=lambda t: sizes[t])]
    starts = {"header": 0, "tables": HEADER_WORDS}
    starts["indices"] = HEADER_WORDS + GROUP_WORDS * len(groups)
    starts["entries"] = starts["indices"] + len(pairs)
    places = np.cumsum([starts["entries"], *map(len, rows)]).tolist()
    starts["biases"] = places[-1]
    starts["input"] = places[-1] + len(own.bias)
    described = []
    for of in groups:
        s = sizes[of[0]]
        mask = sum(1 << h for h in s.sums_with_entries)
        described += [len(of), s.inputs | s.slot << 8 | s.row << 16, mask, places[of[0]]]
    excess = np.zeros(len(own.bias), dtype=np.int64)
    for s in sizes:
        excess[list(s.sums_with_entries)] += 1 << (s.slot - 1)
    how = packing(own.tables)
    parts, read = _parts(model, own, starts["input"])
    shunt = [model.shunt] if model.shunt else []
    end = starts["input"] + len(parts)
    if shunt:
        starts["shunt"] = end
    header = [
        *(MAGIC, SHUNT_VERSION if shunt else VERSION, end + len(shunt), len(own.tables)),
        *(
            model.input.n_bits,
            len(index_parts(model.input, own.tables)),
            starts["input"],
            len(model.input.features),
        ),
        *np.frombuffer(bytes.fromhex(model.digest), "<u4").tolist(),
        *(len(own.bias), how.n_words, len(groups), starts["indices"], starts["biases"]),
    ]
    biases = (own.bias - excess).astype(np.int32).view(np.uint32)
    words = np.concatenate(
        [
            np.array(header + described + pairs, np.uint32),
            *rows,
            biases,
            np.array(parts + shunt, np.uint32),
        ]
    )
    row_words = sum(max(1, -(-len(s.sums_with_entries) * s.slot // 32)) for s in sizes)
    return TablesBlob(words, starts, len(groups), how.n_words, row_words, read)


def _sizes(width: int, inputs: int, sums: tuple[int, ...]) -> _Sizes:
    slot = _power(width)
    bits = slot * len(sums)
    row = _power(bits) if bits <= 32 else 32 * -(-bits // 32)
    return _Sizes(inputs, slot, row, sums)


def _power(bits: int) -> int:
    """Round up to a power of two; 0 stays 0."""
    return 1 << (bits - 1).bit_length() if bits else 0


def _rows(entries: Integers, sizes: _Sizes) -> Words:
    """Return the words of a table's rows, uint32 array of shape ``(words,)``."""
    stored = entries[:, list(sizes.sums_with_entries)].astype(np.int16) + (1 << (sizes.slot - 1))
    bits = np.zeros((len(entries), sizes.row), dtype=np.uint8)
    for place in range(len(sizes.sums_with_entries)):
        for k in range(sizes.slot):
            bits[:, place * sizes.slot + k] = stored[:, place] >> k & 1
    octets = np.packbits(bits.reshape(-1), bitorder="little").tobytes()
    return np.frombuffer(octets + bytes(-len(octets) % 4), "<u4").astype(np.uint32)


def _parts(model: Classifier, own: BitTables, start: int) -> tuple[list[int], int]:
    """Return the words of the input stage, and the maximum number that one inference reads."""
    parts = index_parts(model.input, own.tables)
    how, features = packing(own.tables), model.input.features
    cut = start + PART_WORDS * len(parts)
    mark = cut + sum(len(p.cuts) for p in parts)
    described: list[int] = []
    cuts: list[int] = []
    marks: list[int] = []
    read = 0
    for part in parts:
        # Below its first cut a feature sets no bit, so that interval has no mark.
        rows = part.indices if part.clamp is not None else part.indices[1:]
        described += [
            features.index(part.feature) | (part.clamp is None) << 15 | len(rows) << 16,
            cut + len(cuts) if part.clamp is None else part.clamp,
            mark + len(marks),
        ]
        cuts += part.cuts
        marks += how.pack(rows).astype(np.int64).ravel().tolist()
        ored = len(rows) if part.clamp is not None else 1
        read += PART_WORDS + len(part.cuts).bit_length() + ored * how.n_words
    return described + cuts + marks, read
