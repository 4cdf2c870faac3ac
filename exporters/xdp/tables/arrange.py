# SPDX-License-Identifier: Apache-2.0
"""Arranges look-up tables among a program's words of indices, so that features touch few words.

A feature's row is added to each word that holds the index of a table that reads it. Tables of one
size and width may change places: they do, two by two, as long as that takes a word from a row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ExportError
from n3ic.exporters.xdp.network.structure import Structure, layer_groups
from n3ic.families.tables.network import Table, TablesModel

WORD = 64
_LEAST_GAIN = 1e-9  # of a swap: what is less is an error of floats
_MOST = 512  # tables that are arranged: the search takes their number squared


def index_places(sizes: list[int]) -> list[tuple[int, int]]:
    """The word and the lowest bit of each look-up: in order, and none across two words.

    Args:
        sizes: bits of the indices that each look-up reads, together.
    """
    out, word, used = [], 0, 0
    for size in sizes:
        if used + size > WORD:
            word, used = word + 1, 0
        out.append((word, used))
        used += size
    return out


def words_of_tables(structure: Structure) -> list[int]:
    """The word that holds the index of each table, in the program's order."""
    places = index_places([sum(joint) for joint in structure.tables])
    return [word for joint, (word, _) in zip(structure.tables, places, strict=True) for _ in joint]


def by_size(model: TablesModel) -> list[int]:
    """The tables by number: the largest first, then as in the model."""
    return sorted(range(len(model.tables)), key=lambda t: -len(model.tables[t].bits))


def arranged(structure: Structure, model: TablesModel) -> list[int]:
    """The number of the table in each place of a program: it depends on indices and sizes alone.

    Args:
        structure: structure with as many places as the model has tables, or more.
        model: the model, over packed bits if the structure is.

    Raises:
        ExportError: the structure reads other features.
    """
    order = by_size(model)
    if len(order) > _MOST:
        return order
    word = np.array(words_of_tables(structure)[: len(order)])
    reads = _reads(structure, model, order)
    count = _by_word(structure, reads)
    kinds = [(len(model.tables[t].bits), model.tables[t].width) for t in order]
    kind = np.array([kinds.index(each) for each in kinds])
    # Many swaps only make a word rarer in a row. So at first a word costs the more, the more tables
    # need it; at last it costs as much for one as for many.
    numbers = np.arange(reads.sum(axis=1).max() + 2)
    prices = ((1 - 0.6**numbers).astype(np.float64), (numbers > 0).astype(np.float64))
    for price in prices:
        before = np.inf
        while (now := float(price[count].sum())) < before:
            before = now
            for a in range(len(order)):
                b, gain = _best_swap(reads, count, price, word, kind, a)
                if gain > _LEAST_GAIN:
                    moved = reads[:, b] - reads[:, a]
                    count[:, word[a]] += moved
                    count[:, word[b]] -= moved
                    reads[:, [a, b]] = reads[:, [b, a]]
                    order[a], order[b] = order[b], order[a]
    return order


def _best_swap(
    reads: NDArray[np.int64],
    count: NDArray[np.int64],
    price: NDArray[np.float64],
    word: NDArray[np.int64],
    kind: NDArray[np.int64],
    a: int,
) -> tuple[int, float]:
    """The place with which a place best changes tables, and by how much the price falls."""
    moved = reads - reads[:, a, None]  # what each table takes to this place
    here, there = count[:, word[a], None] + moved, count[:, word] - moved
    paid = price[count].sum(axis=0)
    gains = paid[word[a]] + paid[word] - (price[here] + price[there]).sum(axis=0)
    gains[(word == word[a]) | (kind != kind[a])] = 0
    b = int(gains.argmax())
    return b, float(gains[b])


def touched_words(structure: Structure, model: TablesModel, order: list[int]) -> NDArray[np.bool_]:
    """The words that hold indices of the tables that read a selector's bits.

    Returns:
        bool array of shape ``(selectors, words)``.
    """
    return np.asarray(_by_word(structure, _reads(structure, model, order)) > 0)


def placed(structure: Structure, model: TablesModel) -> list[Table | None]:
    """The table in each place of a program, None where it stays empty.

    Raises:
        ExportError: the model has another number of classes, more tables, larger ones, or tables
            that read features where the program adds no word.
    """
    if len(model.classes) != structure.classes:
        raise ExportError(f"{len(model.classes)} classes, the program has {structure.classes}")
    room = [bits for joint in structure.tables for bits in joint]
    if len(model.tables) > len(room):
        raise ExportError(f"{len(model.tables)} tables, the program has room for {len(room)}")
    for t, bits in zip(by_size(model), room, strict=False):
        if len(model.tables[t].bits) > bits:
            raise ExportError(
                f"a table of {len(model.tables[t].bits)} bits, the program has room for {bits} "
                "there"
            )
    order = arranged(structure, model)
    for row, words, selector in zip(
        touched_words(structure, model, order),
        structure.touched,
        structure.selectors,
        strict=True,
    ):
        if more := sorted({*np.flatnonzero(row).tolist()} - {*words}):
            raise ExportError(
                f"a table reads {structure.features[selector.feature]!r}, for which the program "
                f"adds nothing to word {more[0]} of the indices: it has other tables"
            )
    return [*(model.tables[t] for t in order), *[None] * (len(room) - len(order))]


def _reads(structure: Structure, model: TablesModel, order: list[int]) -> NDArray[np.int64]:
    """1 where a table reads a bit of a selector: shape ``(selectors, tables)``, in an order."""
    owner = np.zeros(model.input.n_bits, dtype=np.int64)
    for i, (bits, _) in enumerate(layer_groups(structure, None, model)):
        owner[list(bits)] = i
    out = np.zeros((len(structure.selectors), len(order)), dtype=np.int64)
    for place, t in enumerate(order):
        out[owner[list(model.tables[t].bits)], place] = 1
    return out


def _by_word(structure: Structure, reads: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tables in each word that read a selector's bits: shape ``(selectors, words)``."""
    out = np.zeros((len(reads), structure.layers[0].words), dtype=np.int64)
    for word, column in zip(words_of_tables(structure), reads.T, strict=False):
        out[:, word] += column
    return out
