# SPDX-License-Identifier: Apache-2.0
"""Computes how much further input bits lower the loss, summed over the cells of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from n3ic.families.tables.loss import Floats, WeightedRows

_AT_ONCE = 48  # most columns of cell sums that one matrix product computes


class CellGains:
    """Gains ``sum of G^2 / (H + prior)`` over cells, with gradient ``G`` and curvature ``H``."""

    def __init__(
        self,
        rows: WeightedRows,
        columns: NDArray[np.float32],
        slopes: Floats,
        curves: Floats,
        prior: float,
    ) -> None:
        """Keep what a Newton step needs to know about the rows.

        Args:
            rows: the rows.
            columns: their bits as numbers, shape ``(rows, n_bits)``.
            slopes: gradient of each row and sum, shape ``(rows, sums)``.
            curves: curvatures, likewise.
            prior: curvature that is added to each cell.
        """
        self._rows, self._columns, self._prior = rows, columns, prior
        self._values = np.concatenate([slopes, curves], axis=1).astype(np.float32)

    def of(self, base: Sequence[int]) -> Floats:
        """Compute the gains of the cells of some bits and each further bit.

        Args:
            base: the bits so far.

        Returns:
            float64 array of shape ``(sums, n_bits)``.
        """
        return self._halved(*self._sums(base))

    def replacement_gains(self, bits: Sequence[int]) -> list[Floats]:
        """Compute what each input bit gains in the place of each bit of a table.

        Without one of the bits, cells are sums of pairs of cells, so one pass over the rows is
        enough.

        Args:
            bits: the bits of the table.

        Returns:
            For each bit, what :meth:`of` returns for the other bits.
        """
        ones, totals = self._sums(bits)
        return [self._halved(_without(ones, j), _without(totals, j)) for j in range(len(bits))]

    def _sums(self, base: Sequence[int]) -> tuple[Floats, Floats]:
        """Sum slopes and curvatures over the rows of each cell of some bits.

        Returns:
            The sums of the rows with each input bit set, shape ``(cells, 2 * sums, n_bits)``, and
            of all rows, shape ``(cells, 2 * sums)``.
        """
        size, (rows, columns) = 1 << len(base), self._values.shape
        cells = cells_of(self._rows, base)
        if size * columns <= _AT_ONCE:
            spread = np.zeros((rows, size, columns), dtype=np.float32)
            spread[np.arange(rows), cells] = self._values
            ones = (spread.reshape(rows, -1).T @ self._columns).reshape(size, columns, -1)
            return ones.astype(np.float64), spread.sum(axis=0, dtype=np.float64)
        ones = np.empty((size, columns, self._columns.shape[1]))
        totals = np.empty((size, columns))
        for cell in range(size):
            in_cell = np.flatnonzero(cells == cell)
            ones[cell] = self._values[in_cell].T @ self._columns[in_cell]
            totals[cell] = self._values[in_cell].sum(axis=0, dtype=np.float64)
        return ones, totals

    def _halved(self, ones: Floats, totals: Floats) -> Floats:
        """Compute gains where each input bit halves the cells, from :meth:`_sums`."""
        sums = totals.shape[1] // 2

        def gain(part: Floats) -> Floats:
            slopes, curves = part[:, :sums], np.maximum(part[:, sums:], 0)
            return np.asarray((slopes**2 / (curves + self._prior)).sum(axis=0))

        return gain(ones) + gain(totals[:, :, None] - ones)


def cells_of(rows: WeightedRows, bits: Sequence[int]) -> NDArray[np.int64]:
    """Index of each row in a table that some bits address; bit 0 is the first of them."""
    out = np.zeros(len(rows.bits), dtype=np.int64)
    for j, bit in enumerate(bits):
        out |= rows.bits[:, bit].astype(np.int64) << j
    return out


def _without(sums: Floats, j: int) -> Floats:
    """Add up the sums of cells that differ only in bit j."""
    # C order has the most significant bit first: axis 1 is bit j.
    pairs = sums.reshape(-1, 2, 1 << j, *sums.shape[1:])
    return np.asarray(pairs.sum(axis=1)).reshape(-1, *sums.shape[1:])
