# SPDX-License-Identifier: Apache-2.0
"""Thresholds that keep a promise with a stated confidence.

A threshold chosen as the best of many on some rows looks better than it is. Learn then Test with a
fixed sequence (Angelopoulos et al., 2021) is exact for any number of rows. Thresholds are tested in
an order that does not depend on the rows, each by the exact Clopper-Pearson bound, until one fails.
A false promise requires that the first threshold in that order that breaks the promise passes its
test, so no correction for the number of tests is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.evaluation.interval import share_interval

_POWER = 0.9  # probability that a network with half of the allowed errors passes the first test
_ROWS = np.unique(np.geomspace(10, 1e7, 400).astype(np.int64))


@dataclass(frozen=True)
class KindRow:
    """What becomes of the test rows of a kind at the chosen threshold.

    Attributes:
        name: their class.
        kind: their category, such as the attack, or protocol and source; empty without one.
        flows: number of rows.
        right: number of rows that the card gives their class.
        wrong: number of rows that the card gives another class.
    """

    name: str
    kind: str
    flows: int
    right: int
    wrong: int

    @property
    def shunted(self) -> int:
        """Number of rows that the card leaves to the host."""
        return self.flows - self.right - self.wrong

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return vars(self) | {"shunted": self.shunted}


@dataclass(frozen=True)
class ClaimRow:
    """The card's decisions on some rows at the chosen threshold.

    Attributes:
        rows: which rows, in words.
        flows: number of rows.
        decided: number of rows that the card decides.
        right: number of these that it decides correctly.
    """

    rows: str
    flows: int
    decided: int
    right: int

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 % interval of the share of correct decisions."""
        low, high = share_interval(self.right, self.decided)
        return float(low), float(high)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return vars(self) | {"interval": list(self.interval)}


def claim_row(
    rows: str, right: NDArray[np.bool_], margins: NDArray[np.int32], threshold: int
) -> ClaimRow:
    """Count the rows that the card decides, and its correct decisions."""
    decided = margins >= threshold
    return ClaimRow(rows, len(right), int(decided.sum()), int((decided & right).sum()))


def at_least(hits: ArrayLike, rows: ArrayLike, confidence: float) -> NDArray[np.float64]:
    """The exact one-sided lower bound of shares, float64 of the shape of ``hits``."""
    return share_interval(hits, rows, 2 * confidence - 1)[0]


def first_threshold(
    margins: NDArray[np.int32], rows: int, accuracy: float, confidence: float
) -> int:
    """Return the threshold that is tested first: the highest with enough rows to pass.

    The rows are enough if a network with half of the allowed errors passes nine times in ten; half
    of all rows are always enough. Higher thresholds decide fewer rows, and too few would end the
    tests at once.

    Args:
        margins: margins of rows that the tests do not use, int32 of shape ``(others,)``, not empty.
        rows: number of rows in the tests.
        accuracy: the promised accuracy.
        confidence: probability that the promise holds.
    """
    from scipy.stats import binom

    errors = binom.ppf(1 - confidence, _ROWS, 1 - accuracy) - 1  # the most errors that pass
    able = _ROWS[binom.cdf(errors, _ROWS, (1 - accuracy) / 2) >= _POWER]
    share = min(able[0] / max(rows, 1) if len(able) else 1.0, 0.5)
    return int(np.sort(margins)[::-1][int(np.ceil(share * len(margins))) - 1])


def threshold_for_accuracy(
    right: NDArray[np.bool_],
    margins: NDArray[np.int32],
    accuracy: float,
    confidence: float,
    first: int,
) -> int | None:
    """Return the lowest threshold whose decisions are right often enough, or None.

    With a probability of at least ``confidence``, the true accuracy of the card's decisions is at
    least ``accuracy``. This holds if the rows are drawn like later ones, and neither trained the
    network nor chose ``first``.

    Args:
        right: whether the network is right on each row, bool of shape ``(rows,)``.
        margins: the network's margins, int32 of shape ``(rows,)``.
        accuracy: least accuracy of the card's decisions.
        confidence: probability that the promise holds, from 0.5 to 1.
        first: the threshold that is tested first; lower ones follow.
    """
    # All thresholds between two adjacent margins decide the same rows.
    order = np.unique(np.append(margins[margins <= first], [0, first]))[::-1]
    decided, correct = (_at_or_above(m, order) for m in (margins, margins[right]))
    passed = (at_least(correct, decided, confidence) >= accuracy) & (decided > 0)
    count = len(passed) if passed.all() else int(np.argmin(passed))
    return int(order[count - 1]) if count else None


def threshold_for_load(margins: NDArray[np.int32], allowed: float, confidence: float) -> int:
    """Return the highest threshold that shunts few enough rows.

    With a probability of at least ``confidence``, the true share of shunted rows is at most
    ``allowed``. The load grows with the threshold, so the tests run in increasing order.

    Args:
        margins: the network's margins, int32 of shape ``(rows,)``.
        allowed: largest share of the rows sent to the host.
        confidence: probability that the promise holds, from 0.5 to 1.
    """
    highest = int(margins.max(initial=0)) + 1
    if allowed >= 1:
        return highest
    order = np.append(np.unique(margins).astype(np.int64), highest)
    decided = _at_or_above(margins, order)
    passed = at_least(decided, len(margins), confidence) >= 1 - allowed
    return int(order[passed].max(initial=0))


def _at_or_above(margins: NDArray[np.int32], thresholds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of margins at or above each threshold."""
    return len(margins) - np.searchsorted(np.sort(margins), thresholds, side="left")
