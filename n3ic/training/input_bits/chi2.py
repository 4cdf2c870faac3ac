# SPDX-License-Identifier: Apache-2.0
"""Features by their chi-squared statistic, as the paper chose them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError, needed
from n3ic.training.input_bits.columns import Columns, matrix_of


def chi2_scores(columns: Columns, label: NDArray[np.int64]) -> dict[str, float]:
    """Chi-squared statistic of each feature against the label, scikit-learn's ``chi2``.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows, not negative.
        label: class index of each row, shape ``(rows,)``.

    Returns:
        The statistic per feature, in the order of ``columns``; 0 for a column of zeros.
    """
    with needed("choosing input bits"):
        from sklearn.feature_selection import chi2
    names, matrix = matrix_of(columns, label)
    clean = np.zeros(len(names))
    used = matrix.any(axis=0)  # chi2 divides by the sum of a column
    if used.any():
        clean[used] = chi2(matrix[:, used].astype(np.float64), label)[0]
    return dict(zip(names, clean.tolist(), strict=True))


def chi2_features(columns: Columns, label: NDArray[np.int64], k: int) -> tuple[str, ...]:
    """The ``k`` features with the largest chi-squared statistic, the largest first.

    The statistic grows with a feature's values, so it depends on their unit. The paper chose its
    features in this way, and the ``paper`` recipe follows it.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows, not negative.
        label: class index of each row, shape ``(rows,)``.
        k: how many to take.

    Raises:
        UsageError: ``k`` is below 1 or above the number of features.
    """
    if not 1 <= k <= len(columns):
        raise UsageError(f"expected 1 to {len(columns)} features, got {k}")
    scores = chi2_scores(columns, label)
    return tuple(sorted(scores, key=lambda name: -scores[name])[:k])  # stable: the first of equals
