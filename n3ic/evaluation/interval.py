# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals of shares that were counted on some rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
_CLEAR = 2.576  # standard deviations, which chance alone exceeds once in 200 cases


def share_interval(
    hits: ArrayLike, rows: ArrayLike, level: float = LEVEL
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The exact binomial interval of Clopper and Pearson (Biometrika 26, 1934) of a share.

    It covers the true share with a probability of at least ``level``, for any number of rows.

    Args:
        hits: number of rows with the property, integers of any shape.
        rows: number of rows, integers of the same shape or one for all.
        level: coverage probability, between 0 and 1.

    Returns:
        Lower and upper ends, float64 arrays of that shape; 0 and 1 for no rows.
    """
    from scipy.stats import beta

    k, n = np.broadcast_arrays(np.asarray(hits, np.float64), np.asarray(rows, np.float64))
    tail = (1 - level) / 2
    # Binomial tails are quantiles of beta distributions; at 0 and n these do not exist.
    low = np.where(k > 0, beta.ppf(tail, np.maximum(k, 1), n - k + 1), 0.0)
    high = np.where(k < n, beta.ppf(1 - tail, k + 1, np.maximum(n - k, 1)), 1.0)
    return low.astype(np.float64), high.astype(np.float64)


def clearly_better(right: NDArray[np.bool_], other: NDArray[np.bool_]) -> bool:
    """Whether a classifier is right on more rows than another by more than chance.

    McNemar's test (Psychometrika 12, 1947): rows with both right, or both wrong, do not count.

    Args:
        right: whether the first is right on each row, bool array of shape ``(rows,)``.
        other: the same for the other classifier.
    """
    gained, lost = int((right & ~other).sum()), int((other & ~right).sum())
    # If both were equally good, the difference would have mean 0 and variance gained + lost.
    return bool(gained - lost > _CLEAR * np.sqrt(gained + lost))
