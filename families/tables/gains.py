# SPDX-License-Identifier: Apache-2.0
"""What further input bits gain of the loss, summed over the cells of a look-up table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from n3ic.families.tables.loss import Floats, MergedRows

_AT_ONCE = 48  # most columns of sums of cells that one product of matrices takes


class CellGains:
    """Gains ``sum of G^2 / (H + prior)`` over cells, of gradient ``G`` and curvature ``H``."""

    def __init__(
        self,
        rows: MergedRows,
        columns: NDArray[np.float32],
        slopes: Floats,
        curves: Floats,
        prior: float,
    ) -> None:
        """Take what a Newton step knows of the rows.

        Args:
            rows: the rows.
            columns: their bits as numbers, shape ``(rows, n_bits)``.
            slopes: of each row and sum, shape ``(rows, sums)``.
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

    def beside(self, bits: Sequence[int]) -> list[Floats]:
        """Compute what each input bit gains in the place of each bit of a table.

        The cells of all bits but one are pairs of the cells of all, so one pass over the rows is
        enough.

        Args:
            bits: the bits of the table.

        Returns:
            What :meth:`of` returns for the others, for each bit.
        """
        ones, both = self._sums(bits)
        return [self._halved(_without(ones, j), _without(both, j)) for j in range(len(bits))]

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
        both = np.empty((size, columns))
        for cell in range(size):
            here = np.flatnonzero(cells == cell)
            ones[cell] = self._values[here].T @ self._columns[here]
            both[cell] = self._values[here].sum(axis=0, dtype=np.float64)
        return ones, both

    def _halved(self, ones: Floats, both: Floats) -> Floats:
        """Compute gains where each input bit halves the cells, from :meth:`_sums`."""
        sums = both.shape[1] // 2

        def gain(part: Floats) -> Floats:
            slopes, curves = part[:, :sums], np.maximum(part[:, sums:], 0)
            return np.asarray((slopes**2 / (curves + self._prior)).sum(axis=0))

        return gain(ones) + gain(both[:, :, None] - ones)


def cells_of(rows: MergedRows, bits: Sequence[int]) -> NDArray[np.int64]:
    """Index of each row in a table that some bits address; bit 0 is the first of them."""
    out = np.zeros(len(rows.bits), dtype=np.int64)
    for j, bit in enumerate(bits):
        out |= rows.bits[:, bit].astype(np.int64) << j
    return out


def _without(sums: Floats, j: int) -> Floats:
    """Sums of cells, of those that differ in bit j alone together."""
    # C order has the most significant bit first: axis 1 is bit j.
    pairs = sums.reshape(-1, 2, 1 << j, *sums.shape[1:])
    return np.asarray(pairs.sum(axis=1)).reshape(-1, *sums.shape[1:])
