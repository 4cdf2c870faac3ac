# SPDX-License-Identifier: Apache-2.0
"""Tests by betting, whose result may be read after every bet.

A gambler who starts with a capital of 1 bets on each block of flows that one model is right more
often than another. If the expected gain of a block is at most 0, whatever the blocks before it
were, the expected capital never grows. How flows of one block depend on each other does not
matter. The probability that it ever reaches ``1 / alpha`` is then at most ``alpha``, however long
the test runs and whenever it is stopped (Ville's inequality; Waudby-Smith and Ramdas, "Estimating
means of bounded random variables by betting", JRSS B 2024). The capital is the mean over several
stakes, because the best stake is not known in advance.
"""

from __future__ import annotations

from math import log
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

STAKES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


class PairedBet:
    """Whether one model is right more often than another, by betting.

    Args:
        alpha: largest probability of a wrong yes.

    Attributes:
        blocks: number of blocks so far.
        better: number of blocks on which the first model is right more often.
        worse: number of blocks on which the second model is right more often.
    """

    def __init__(self, alpha: float) -> None:
        if not 0 < alpha < 1:
            raise ValueError(f"expected an error in (0, 1), got {alpha}")
        self.alpha = alpha
        self.blocks = self.better = self.worse = 0
        self._capital = np.zeros(len(STAKES))  # logarithms, one per stake
        self._most = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, from which :meth:`from_dict` makes the same test."""
        counts = {"blocks": self.blocks, "better": self.better, "worse": self.worse}
        capital = {"capital": self._capital.tolist(), "most": self._most}
        return {"alpha": self.alpha, **counts, **capital}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The test of :meth:`to_dict`."""
        test = cls(data["alpha"])
        test.blocks, test.better, test.worse = data["blocks"], data["better"], data["worse"]
        test._capital, test._most = np.array(data["capital"]), data["most"]
        return test

    @property
    def won(self) -> bool:
        """Whether the capital has ever reached ``1 / alpha``."""
        return self._most >= -log(self.alpha)

    @property
    def capital(self) -> float:
        """Logarithm of the capital now."""
        return float(_mean(self._capital[None])[0])

    def add(self, gains: NDArray[np.float64]) -> int:
        """Bet on blocks, up to the one that decides.

        Args:
            gains: by how much the first model's share of right flows exceeds the second's in each
                block, in [-1, 1], shape ``(blocks,)``; see :func:`block_gains`.

        Returns:
            Number of blocks that were used.
        """
        if self.won or not len(gains):
            return 0
        steps = np.log1p(gains[:, None] * np.array(STAKES))
        capitals = np.cumsum(np.concatenate([self._capital[None], steps]), axis=0)[1:]
        means = _mean(capitals)
        reached = np.flatnonzero(means >= -log(self.alpha))
        count = int(reached[0]) + 1 if len(reached) else len(gains)
        self._capital = capitals[count - 1]
        self._most = max(self._most, float(means[:count].max()))
        self.blocks += count
        self.better += int((gains[:count] > 0).sum())
        self.worse += int((gains[:count] < 0).sum())
        return count


def block_gains(
    one: NDArray[np.bool_], other: NDArray[np.bool_], starts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """By how much one model's share of right flows exceeds another's in each block.

    Args:
        one: whether the first model is right on each flow, shape ``(flows,)``.
        other: whether the second model is right on each flow, shape ``(flows,)``.
        starts: the first flow of each block, shape ``(blocks,)``, rising from 0.

    Returns:
        float64 in [-1, 1], shape ``(blocks,)``.
    """
    if not len(starts):
        return np.empty(0)
    sums = np.add.reduceat(one.astype(np.int64) - other, starts)
    return np.asarray(sums / np.diff(starts, append=len(one)))


def spent(alpha: float, number: int) -> float:
    """The error of one of many tests, chosen so that the errors of all add up to ``alpha``.

    Args:
        alpha: error of all tests together, however many there will be.
        number: the number of this test, from 1.
    """
    return alpha / (number * (number + 1))


def _mean(capitals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of the mean capital over the stakes, shape ``(blocks, stakes)`` to ``(blocks,)``."""
    return np.asarray(np.logaddexp.reduce(capitals, axis=1) - log(capitals.shape[1]))
