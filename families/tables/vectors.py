# SPDX-License-Identifier: Apache-2.0
"""Makes the inputs for verifying look-up tables, and counts the entries that they decide.

A sum adds exactly one entry of each table, so an input decides every entry that it addresses:
another value there changes a score. All entries are decided as soon as every index of every table
occurs. Inputs of verification are free bits, so indices that no input stage gives occur as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.families.tables.network import TablesModel
from n3ic.model.bits import Bits, Words, pack


@dataclass(frozen=True)
class TablesCoverage:
    """The entries that some vectors decide.

    Attributes:
        total: number of entries, counted for each sum.
        decided: number of them that some vector decides.
        undecided: descriptions of the tables with undecided entries.
    """

    total: int
    decided: int
    undecided: tuple[str, ...]


def tables_coverage(model: TablesModel, words: Words) -> TablesCoverage:
    """Count the entries that a set of vectors addresses.

    Args:
        model: the model.
        words: packed inputs, uint32 array of shape ``(rows, n_words)``.
    """
    indices, sums = model.indices(words), len(model.bias)
    address_counts = [
        len(np.unique(indices[:, t])) if len(indices) else 0 for t in range(len(model.tables))
    ]
    sizes = [len(t.entries) for t in model.tables]
    undecided = tuple(
        f"table {t}: {size - addressed} of {size} indices"
        for t, (addressed, size) in enumerate(zip(address_counts, sizes, strict=True))
        if addressed < size
    )
    return TablesCoverage(sum(sizes) * sums, sum(address_counts) * sums, undecided)


def tables_vectors(model: TablesModel, count: int, seed: int = 0) -> Words:
    """Make vectors that address every entry, edges, then random ones: ``count`` or a few more.

    Returns:
        Packed inputs, uint32 array of shape ``(rows, n_words)``. Half of the random vectors are
        valid thermometer codes; the bits of the other half are independent.
    """
    rng = np.random.default_rng(seed)
    n = model.input.n_bits
    deciding = deciding_bits(model, rng)
    edges = np.concatenate([np.zeros((1, n), bool), np.ones((1, n), bool), np.eye(n, dtype=bool)])
    extra = max(0, count - len(deciding) - len(edges))
    coded = np.concatenate(
        [
            np.arange(f.width) < rng.integers(0, f.width + 1, (extra - extra // 2, 1))
            for f in model.input.fields
        ],
        axis=1,
    )
    stray = rng.random((extra // 2, n)) < rng.random((extra // 2, 1))
    return pack(np.concatenate([deciding, edges, coded, stray]))


def deciding_bits(model: TablesModel, rng: np.random.Generator) -> Bits:
    """Find inputs that address every entry of every table.

    Each input is filled table by table, in random order: the bits that are still free are set so
    that a further entry is addressed. The search ends, because the first table of an input always
    finds one.

    Returns:
        bool array of shape ``(rows, n_bits)``.
    """
    n = model.input.n_bits
    bits_of = [np.array(t.bits) for t in model.tables]
    left: list[NDArray[np.int64]] = [rng.permutation(len(t.entries)) for t in model.tables]
    rows = []
    while open_tables := [t for t, indices in enumerate(left) if len(indices)]:
        row = rng.random(n) < 0.5
        free = np.ones(n, dtype=np.bool_)
        for t in sorted(rng.permutation(open_tables).tolist(), key=lambda t: -len(left[t])):
            bits = bits_of[t]
            places = np.arange(len(bits))
            fixed = ~free[bits]
            cell = int((row[bits][fixed].astype(np.int64) << places[fixed]).sum())
            mask = int((fixed.astype(np.int64) << places).sum())
            fits = np.flatnonzero((left[t] & mask) == cell)
            if len(fits):
                row[bits] = (left[t][fits[0]] >> places) & 1
                free[bits] = False
        rows.append(row)
        bits_of_row = np.array(row)
        left = [
            np.delete(
                indices,
                np.flatnonzero(indices == int((bits_of_row[bits] << np.arange(len(bits))).sum())),
            )
            if len(indices)
            else indices
            for indices, bits in zip(left, bits_of, strict=True)
        ]
    return np.array(rows, dtype=np.bool_)
