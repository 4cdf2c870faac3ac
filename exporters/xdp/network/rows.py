# SPDX-License-Identifier: Apache-2.0
"""Converts selected rows to input bits, and row counts to counts of set bits.

A row of a group stands for a pattern of bits, so the rows that a program selects give the bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.xdp.network.sums import Structure, input_of, layer_groups
from n3ic.model.bits import Bits
from n3ic.model.classifier import Classifier


def row_starts(structure: Structure) -> tuple[int, ...]:
    """Return the index of each selector's first row among the rows of all selectors."""
    starts = np.cumsum([0, *(s.rows for s in structure.selectors)])[:-1]
    return tuple(int(start) for start in starts)


def bits_of(structure: Structure, model: Classifier, selected: NDArray[np.uint8]) -> Bits:
    """Convert the rows that a program selected to input bits.

    Args:
        structure: structure that the program was compiled for.
        model: the network that ran.
        selected: row number of each selector, uint8 array of shape ``(rows, selectors)``.

    Returns:
        bool array of shape ``(rows, n_bits)``.

    Raises:
        ExportError: the network does not fit the structure.
    """
    out = np.zeros((len(selected), model.input.n_bits), dtype=np.bool_)
    for i, (bits, patterns) in enumerate(_groups(structure, model)):
        out[:, list(bits)] = patterns[selected[:, i]]
    return out


def bit_counts(
    structure: Structure, model: Classifier, counts: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Count how often each input bit was 1.

    Args:
        structure: structure that the program was compiled for.
        model: the network that ran.
        counts: number of selections of each row, concatenated over the selectors.

    Returns:
        int64 array of shape ``(n_bits,)``.

    Raises:
        ExportError: the network does not fit the structure.
    """
    out = np.zeros(model.input.n_bits, dtype=np.int64)
    groups = _groups(structure, model)
    for start, (bits, patterns) in zip(row_starts(structure), groups, strict=True):
        pattern_counts = np.asarray(counts[start : start + len(patterns)], dtype=np.int64)
        out[list(bits)] = pattern_counts @ patterns
    return out


def bit_rows(structure: Structure, model: Classifier) -> dict[int, list[tuple[int, int]]]:
    """Return the ranges of rows in which each input bit is 1, numbered over all selectors.

    A range is a pair of its first row and the row after its last.

    Raises:
        ExportError: the network does not fit the structure.
    """
    out = {}
    for start, (bits, patterns) in zip(
        row_starts(structure), _groups(structure, model), strict=True
    ):
        for column, bit in enumerate(bits):
            edges = np.flatnonzero(
                np.diff(patterns[:, column].astype(np.int8), prepend=0, append=0)
            )
            out[bit] = [(int(a), int(b)) for a, b in (start + edges).reshape(-1, 2)]
    return out


def _groups(structure: Structure, model: Classifier) -> list[tuple[tuple[int, ...], Bits]]:
    return layer_groups(structure, None, input_of(structure, model))
