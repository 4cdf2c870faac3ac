# SPDX-License-Identifier: Apache-2.0
"""ROC curves no finer than the rows allow, with a confidence band."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import DataError
from n3ic.evaluation.interval import LEVEL, share_interval


@dataclass(frozen=True, eq=False)
class RocCurve:
    """True and false positive rates of each threshold of a score.

    With N negatives, a false positive rate is a multiple of 1/N: no point lies between 0 and 1/N,
    and a rate of 0 on these rows may well be 3/N on others.

    Attributes:
        fpr: false positive rates of the thresholds, rising, float64 of shape ``(points,)``; the
            first is 0 (no row is called positive), the last 1.
        tpr: true positive rates, of the same shape.
        positives: number of positive rows.
        negatives: number of the others.
        area: area under the curve, which is straight between its points.
    """

    fpr: NDArray[np.float64] = field(repr=False)
    tpr: NDArray[np.float64] = field(repr=False)
    positives: int
    negatives: int
    area: float

    @property
    def least(self) -> float:
        """The smallest false positive rate above 0 that these rows can show: 1/negatives."""
        return 1 / self.negatives

    def found_at(self, fpr: float) -> float:
        """The largest true positive rate at a false positive rate of at most ``fpr``."""
        return float(self.tpr[np.searchsorted(self.fpr, fpr, side="right") - 1])

    def steps(self, points: int = 400) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The curve from a false positive rate of 1/negatives on, for plotting as steps.

        Args:
            points: largest number, 2 or more; points closest together on a logarithmic axis are
                left out.

        Returns:
            False positive rates from 1/negatives to 1, and the largest true positive rate up to
            each, float64 arrays of one shape.
        """
        grid = np.geomspace(self.least, 1.0, points)
        # The factor keeps a rate that equals a point of the grid on its left, despite rounding.
        at = np.unique(np.searchsorted(self.fpr, grid * (1 + 1e-12), side="right") - 1)
        return np.maximum(self.fpr[at], self.least), self.tpr[at]

    def band(
        self, level: float = LEVEL, points: int = 400
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """A confidence band of the true positive rate at a false positive rate.

        False and true positives are counted on different rows. Intervals of both rates at
        ``sqrt(level)`` therefore form a rectangle that holds a threshold's true point with a
        probability of at least ``level`` (Pepe, The Statistical Evaluation of Medical Tests for
        Classification and Prediction, 2003, section 2.2; the intervals are Clopper and Pearson's).
        The band holds for each threshold by itself, not for all at once.

        Args:
            level: the probability, between 0 and 1.
            points: largest number of points, 2 or more.

        Returns:
            False positive rates from 1/negatives to 1, rising, and the lowest and highest true
            positive rate at each, float64 arrays of shape ``(points,)``.
        """
        each = float(np.sqrt(level))
        left, right = share_interval(np.rint(self.fpr * self.negatives), self.negatives, each)
        low, high = share_interval(np.rint(self.tpr * self.positives), self.positives, each)
        for ends in (left, right, low, high):  # with no or all rows called positive, 0 or 1 is sure
            ends[0], ends[-1] = 0.0, 1.0
        grid = np.geomspace(self.least, 1.0, points)
        # Below: the last rectangle that ends left of a rate; above: the first that begins right.
        under = np.searchsorted(right, grid, side="right") - 1
        over = np.searchsorted(left, grid, side="left")
        return grid, low[under], high[over]


def roc_curve(positive: NDArray[np.bool_], score: NDArray[np.floating]) -> RocCurve:
    """Compute the ROC of a score, one point per threshold that separates rows.

    Args:
        positive: whether each held-out row is positive, bool array of shape ``(rows,)``.
        score: score of each row, the higher the more positive, shape ``(rows,)``.

    Raises:
        DataError: all rows are of one kind.
    """
    positives = int(np.count_nonzero(positive))
    negatives = len(positive) - positives
    if not positives or not negatives:
        raise DataError(
            f"a ROC needs rows of both kinds; {positives} are positive, {negatives} are not"
        )
    values, index = np.unique(score, return_inverse=True)
    # From the highest score down; rows of one score are called positive together.
    true_positives = np.bincount(index[positive], minlength=len(values))[::-1].cumsum()
    every = np.bincount(index, minlength=len(values))[::-1].cumsum()
    tpr = np.concatenate([[0.0], true_positives / positives])
    fpr = np.concatenate([[0.0], (every - true_positives) / negatives])
    area = float((np.diff(fpr) * (tpr[1:] + tpr[:-1])).sum() / 2)
    return RocCurve(fpr, tpr, positives, negatives, area)
