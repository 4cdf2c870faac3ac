# SPDX-License-Identifier: Apache-2.0
r"""The loss that look-up tables minimise, on merged rows.

Scores ``s`` give probabilities ``p = softmax(s)``; with two classes, the first score is 0. A row of
class ``c`` costs ``(1 - p_c^q) / q``, which is bounded (Zhang and Sabuncu, NeurIPS 2018), or
``-log p_c``, its limit, for ``q = 0``. With a weight ``w_c`` of each class a row costs the weighted
sum, whose gradient is ``p_k sum_c w_c p_c^q - w_k p_k^q``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.model.bits import Bits

Floats = NDArray[np.float64]
_LARGEST = 60.0  # largest score: its exponential, and the sum of many, stay finite


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Distinct rows of bits, with the weight of each class among the rows that were merged.

    Attributes:
        bits: bool array of shape ``(rows, n_bits)``, all different.
        weights: float64 array of shape ``(rows, classes)``.
        q: exponent of the loss; 0 for the cross-entropy.
    """

    bits: Bits
    weights: Floats
    q: float = 0.0

    @property
    def sums(self) -> int:
        """Number of sums of a model of these classes."""
        classes = self.weights.shape[1]
        return 1 if classes == 2 else classes

    def gradients(self, sums: Floats) -> tuple[Floats, Floats]:
        """Compute gradient and curvature of the loss by each sum.

        The curvature is ``p_k (1 - p_k) sum_c w_c p_c^q``, which is positive; it is the second
        derivative for ``q = 0``.

        Args:
            sums: float64 array of shape ``(rows, sums)``.

        Returns:
            Two float64 arrays of shape ``(rows, sums)``.
        """
        chances = self._chances(sums)
        drawn = self.weights * chances**self.q if self.q else self.weights
        total = drawn.sum(axis=1, keepdims=True)
        own = chances[:, -sums.shape[1] :]
        return own * total - drawn[:, -sums.shape[1] :], own * (1 - own) * total

    def loss(self, sums: Floats) -> float:
        """Compute the loss of all rows."""
        chances = np.maximum(self._chances(sums), 1e-30)
        costs = (1 - chances**self.q) / self.q if self.q else -np.log(chances)
        return float((self.weights * costs).sum())

    def column_losses(
        self, sums: Floats, column: int, steps: Floats, cells: NDArray[np.int64], size: int
    ) -> Floats:
        """Compute the loss of each cell of rows for several values of one sum.

        Args:
            sums: float64 array of shape ``(rows, sums)``.
            column: the sum that varies.
            steps: what is added to it, shape ``(values,)``.
            cells: cell of each row, int64 array of shape ``(rows,)``.
            size: number of cells.

        Returns:
            float64 array of shape ``(values, size)``, up to a constant in each cell.
        """
        logits = np.clip(_logits(sums), -_LARGEST, _LARGEST)
        own = logits.shape[1] - sums.shape[1] + column
        each = np.exp(logits)
        own_sum, other_sums = each[:, own], each.sum(axis=1) - each[:, own]
        weight = self.weights[:, own]
        out = np.empty((len(steps), size))
        if self.q:
            powers = self.weights * each**self.q
            other_powers = powers.sum(axis=1) - powers[:, own]
            for i, step in enumerate(steps):
                factor = np.exp(step)
                gained = powers[:, own] * factor**self.q + other_powers
                costs = -gained / self.q * (other_sums + own_sum * factor) ** -self.q
                out[i] = np.bincount(cells, costs, size)
        else:
            total = self.weights.sum(axis=1)
            class_weights = np.bincount(cells, weight, size)
            for i, step in enumerate(steps):
                costs = total * np.log(other_sums + own_sum * np.exp(step))
                out[i] = np.bincount(cells, costs, size) - class_weights * step
        return out

    @staticmethod
    def _chances(sums: Floats) -> Floats:
        logits = _logits(sums)
        each = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(each / each.sum(axis=1, keepdims=True))


def _logits(sums: Floats) -> Floats:
    """Scores of all classes; with two classes, the first score is 0."""
    return sums if sums.shape[1] > 1 else np.concatenate([np.zeros_like(sums), sums], axis=1)


def merged(bits: Bits, weights: Floats, q: float = 0.0) -> WeightedRows:
    """Merge rows of equal bits.

    Args:
        bits: bool array of shape ``(rows, n_bits)``.
        weights: float64 array of shape ``(rows, classes)``.
        q: exponent of the loss; 0 for the cross-entropy.
    """
    packed = np.ascontiguousarray(np.packbits(bits, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, of = np.unique(keys, return_index=True, return_inverse=True)
    summed = [np.bincount(of, column, len(first)) for column in weights.T]
    return WeightedRows(bits[first], np.stack(summed, axis=1), q)
