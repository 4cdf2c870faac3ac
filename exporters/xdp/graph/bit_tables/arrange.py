# SPDX-License-Identifier: Apache-2.0
"""Arranges look-up tables among a program's index words, so that each feature touches few words.

A feature's row is added to each word that holds the index of a table that reads the feature. Two
tables of the same size may swap places. The search swaps pairs of tables as long as a
swap lowers a price, which at last is the number of words that the features touch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ExportError
from n3ic.exporters.xdp.network.sums import Structure, layer_groups
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.arithmetic import Integers
from n3ic.model.graph.bit_tables import BitTable, bit_tables
from n3ic.model.inputs import InputSpec

WORD = 64
_LEAST_GAIN = 1e-9  # a smaller gain of a swap is rounding error
_MOST = 512  # maximum number of tables to arrange, because a pass of the search is quadratic


@dataclass(frozen=True, eq=False)
class ProgramTables:
    """The look-up tables that a program adds up.

    Attributes:
        input: the input that the program computes, maybe the packed bits themselves.
        classes: number of classes.
        tables: the tables.
        bias: what is added to each sum, int64 array.
        width: bits that hold each entry.
        largest: the largest sum, without regard to its sign.
    """

    input: InputSpec
    classes: int
    tables: tuple[BitTable, ...]
    bias: Integers
    width: int
    largest: int

    @classmethod
    def of(cls, model: Classifier, *, bits: bool) -> ProgramTables:
        """The tables that a model's graph adds up.

        Args:
            model: the model.
            bits: whether the program computes it from the packed bits.

        Raises:
            ExportError: a program does not add them up; the error says why.
        """
        own = bit_tables(graph_of(model))
        if own is None:
            raise ExportError(f"{model.name!r} adds up no look-up tables")
        if own.beyond:
            raise ExportError(own.beyond)
        if len(model.classes) == len(own.bias) == 2:
            raise ExportError(
                "the first of two classes is a sum of look-up tables: XDP programs compute one sum "
                "for two classes, and the first scores 0"
            )
        spec = InputSpec.raw(model.input.n_bits) if bits else model.input
        largest = int(np.abs(own.sum_bounds).max())
        return cls(spec, len(model.classes), own.tables, own.bias, own.width, largest)


def index_places(sizes: list[int]) -> list[tuple[int, int]]:
    """Return the word and lowest bit of each look-up, in order; no look-up crosses two words.

    Args:
        sizes: for each look-up, the total bits of the indices that it reads.
    """
    out, word, used = [], 0, 0
    for size in sizes:
        if used + size > WORD:
            word, used = word + 1, 0
        out.append((word, used))
        used += size
    return out


def words_of_tables(structure: Structure) -> list[int]:
    """Return the word that holds each table's index, in the program's order."""
    places = index_places([sum(joint) for joint in structure.tables])
    return [word for joint, (word, _) in zip(structure.tables, places, strict=True) for _ in joint]


def by_size(model: ProgramTables) -> list[int]:
    """Return the numbers of the tables, by decreasing size and then in the model's order."""
    return sorted(range(len(model.tables)), key=lambda t: -len(model.tables[t].bits))


def arranged(structure: Structure, model: ProgramTables) -> list[int]:
    """Return the number of the table in each place of a program.

    The result depends only on the tables' index bits and sizes.

    Args:
        structure: structure with at least as many places as the model has tables.
        model: the tables, over packed bits if the structure is.

    Raises:
        ExportError: the structure reads other features.
    """
    order = by_size(model)
    if len(order) > _MOST:
        return order
    word = np.array(words_of_tables(structure)[: len(order)])
    reads = _reads(structure, model, order)
    count = _by_word(structure, reads)
    kind = np.array([len(model.tables[t].bits) for t in order])
    # Many swaps do not remove a word from a row, but leave fewer tables that need it. So the price
    # of a word at first grows with the number of those tables; in the end it is 1 for any number.
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
    """Return the best place to swap with place ``a``, and by how much the price falls."""
    moved = reads - reads[:, a, None]  # change of the reads at this place, for each swap
    here, there = count[:, word[a], None] + moved, count[:, word] - moved
    paid = price[count].sum(axis=0)
    gains = paid[word[a]] + paid[word] - (price[here] + price[there]).sum(axis=0)
    gains[(word == word[a]) | (kind != kind[a])] = 0
    b = int(gains.argmax())
    return b, float(gains[b])


def touched_words(
    structure: Structure, model: ProgramTables, order: list[int]
) -> NDArray[np.bool_]:
    """Find the words that hold indices of the tables that read each selector's bits.

    Returns:
        bool array of shape ``(selectors, words)``.
    """
    return np.asarray(_by_word(structure, _reads(structure, model, order)) > 0)


def placed(structure: Structure, model: ProgramTables) -> list[BitTable | None]:
    """Return the table in each place of a program, None for an empty place.

    Raises:
        ExportError: the model has another number of classes, more or larger tables, or tables
            that read features for which the program adds no such word.
    """
    if model.classes != structure.classes:
        raise ExportError(f"{model.classes} classes, the program has {structure.classes}")
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


def _reads(structure: Structure, model: ProgramTables, order: list[int]) -> NDArray[np.int64]:
    """Mark by 1 the tables that read each selector: shape ``(selectors, tables)``, in ``order``."""
    owner = np.zeros(model.input.n_bits, dtype=np.int64)
    for i, (bits, _) in enumerate(layer_groups(structure, None, model.input)):
        owner[list(bits)] = i
    out = np.zeros((len(structure.selectors), len(order)), dtype=np.int64)
    for place, t in enumerate(order):
        out[owner[list(model.tables[t].bits)], place] = 1
    return out


def _by_word(structure: Structure, reads: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the tables in each word that read a selector: shape ``(selectors, words)``."""
    out = np.zeros((len(reads), structure.layers[0].words), dtype=np.int64)
    for word, column in zip(words_of_tables(structure), reads.T, strict=False):
        out[:, word] += column
    return out
