# SPDX-License-Identifier: Apache-2.0
"""Tests by betting, whose result may be read after every row.

A gambler who starts with a capital of 1 bets on each row that one model is right and the other is
wrong. If the model is no better, the expected capital never grows. The probability that it ever
reaches ``1 / alpha`` is then at most ``alpha``, however long the test runs and whenever it is
stopped (Ville's inequality; Waudby-Smith and Ramdas, "Estimating means of bounded random variables
by betting", JRSS B 2024). The capital is the mean over several stakes, because the best stake is
not known in advance.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

STAKES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


class PairedBet:
    """Whether one model is right on more rows than another, by betting.

    Args:
        alpha: largest probability of a wrong yes.

    Attributes:
        rows: number of rows so far.
        better: number of rows on which only the first model is right.
        worse: number of rows on which only the second model is right.
    """

    def __init__(self, alpha: float) -> None:
        if not 0 < alpha < 1:
            raise ValueError(f"expected an error in (0, 1), got {alpha}")
        self.alpha = alpha
        self.rows = self.better = self.worse = 0
        self._capital = np.zeros(len(STAKES))  # logarithms, one per stake
        self._most = 0.0

    @property
    def won(self) -> bool:
        """Whether the capital has ever reached ``1 / alpha``."""
        return self._most >= -log(self.alpha)

    @property
    def capital(self) -> float:
        """Logarithm of the capital now."""
        return float(_mean(self._capital[None])[0])

    def add(self, one: NDArray[np.bool_], other: NDArray[np.bool_]) -> int:
        """Bet on rows, up to the one that decides.

        Args:
            one: whether the first model is right on each row, shape ``(rows,)``.
            other: whether the second model is right on each row, shape ``(rows,)``.

        Returns:
            Number of rows that were used.
        """
        if self.won or not len(one):
            return 0
        moves = one.astype(np.int64) - other
        steps = np.log1p(moves[:, None] * np.array(STAKES))
        capitals = self._capital + np.cumsum(steps, axis=0)
        means = _mean(capitals)
        reached = np.flatnonzero(means >= -log(self.alpha))
        count = int(reached[0]) + 1 if len(reached) else len(moves)
        self._capital = capitals[count - 1]
        self._most = max(self._most, float(means[:count].max()))
        self.rows += count
        self.better += int((moves[:count] > 0).sum())
        self.worse += int((moves[:count] < 0).sum())
        return count


def spent(alpha: float, number: int) -> float:
    """The error of one of many tests, chosen so that the errors of all add up to ``alpha``.

    Args:
        alpha: error of all tests together, however many there will be.
        number: the number of this test, from 1.
    """
    return alpha / (number * (number + 1))


def _mean(capitals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the mean capital over the stakes, shape ``(rows, stakes)`` to ``(rows,)``."""
    return np.asarray(np.logaddexp.reduce(capitals, axis=1) - log(capitals.shape[1]))
