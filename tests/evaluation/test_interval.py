# SPDX-License-Identifier: Apache-2.0
"""Clopper and Pearson's interval against its definition by the binomial."""

import numpy as np
import pytest
from scipy.stats import binom

from n3ic.evaluation.interval import LEVEL, clearly_better, share_interval


@pytest.mark.parametrize(("hits", "rows"), [(1, 10), (3, 10), (9, 10), (50, 400)])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_each_end_leaves_half_of_the_rest(hits, rows, level):
    low, high = share_interval(hits, rows, level)
    assert binom.sf(hits - 1, rows, low) == pytest.approx((1 - level) / 2)
    assert binom.cdf(hits, rows, high) == pytest.approx((1 - level) / 2)
    assert low < hits / rows < high


def test_known_intervals():
    low, high = share_interval([0, 1, 10], 10)
    assert np.allclose(low, [0, 0.0025286, 0.6915029], atol=1e-7)
    assert np.allclose(high, [0.3084971, 0.4450161, 1], atol=1e-7)
    assert low.dtype == high.dtype == np.float64
    assert LEVEL == 0.95
    for got, want in zip(share_interval(3, 10), share_interval(3, 10, 0.95), strict=True):
        assert got == want


@pytest.mark.parametrize(
    ("gained", "lost", "clear"),
    [(7, 0, True), (6, 0, False), (0, 0, False), (0, 50, False), (50, 28, False), (50, 27, True)],
)
def test_what_one_gains_over_the_other_must_be_more_than_chance(gained, lost, clear):
    """2.576 deviations of a coin that is thrown once for each row on which one alone is right."""
    assert clear == (gained - lost > 2.576 * (gained + lost) ** 0.5)
    one = np.array([1] * gained + [0] * lost + [1] * 90 + [0] * 5, dtype=bool)
    other = np.array([0] * gained + [1] * lost + [1] * 90 + [0] * 5, dtype=bool)
    assert clearly_better(one, other) is clear
    assert not clearly_better(other, one) or lost > gained
