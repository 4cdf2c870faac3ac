# SPDX-License-Identifier: Apache-2.0
"""ROC curves no finer than the negatives allow, and bands that hold."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from n3ic.errors import DataError
from n3ic.evaluation.interval import share_interval
from n3ic.evaluation.roc import roc_curve


def rows(positives, negatives, seed=0, shift=1.5):
    rng = np.random.default_rng(seed)
    positive = np.arange(positives + negatives) < positives
    return positive, rng.normal(size=len(positive)) + shift * positive


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_interval_covers_the_true_share_at_least_as_often_as_it_says(n, level):
    k = np.arange(n + 1)
    low, high = share_interval(k, n, level)
    for share in np.linspace(0, 1, 101):
        covers = (low <= share) & (share <= high)
        assert binom.pmf(k, n, share)[covers].sum() >= level - 1e-12


def test_the_interval_of_no_rows_says_nothing():
    assert [float(v) for v in share_interval(0, 0)] == [0.0, 1.0]
    low, high = share_interval(0, 100)
    assert low == 0 and high == pytest.approx(1 - 0.025 ** (1 / 100))


@pytest.mark.parametrize("score", ["fine", "tied", "constant"])
def test_the_roc_is_that_of_scikit_learn(score):
    metrics = pytest.importorskip("sklearn.metrics")
    positive, values = rows(60, 90)
    values = {"fine": values, "tied": np.rint(values), "constant": np.zeros(150)}[score]
    curve = roc_curve(positive, values)
    fpr, tpr, _ = metrics.roc_curve(positive, values, drop_intermediate=False)
    assert np.allclose(curve.fpr, fpr) and np.allclose(curve.tpr, tpr)
    assert curve.area == pytest.approx(metrics.roc_auc_score(positive, values))
    assert (curve.positives, curve.negatives) == (60, 90)


@pytest.mark.parametrize(("positives", "negatives"), [(1, 1), (3, 5), (500, 37), (40, 2000)])
@pytest.mark.parametrize("points", [2, 10, 400])
def test_nothing_is_drawn_below_one_in_so_many_negatives(positives, negatives, points):
    curve = roc_curve(*rows(positives, negatives))
    for x, *y in (curve.steps(points), curve.band(points=points)):
        assert x[0] == pytest.approx(1 / negatives) and x.min() >= 1 / negatives * (1 - 1e-12)
        assert x[-1] == 1 and np.all(np.diff(x) >= 0) and len(x) <= points + 1
        assert all(np.all((v >= 0) & (v <= 1)) and np.all(np.diff(v) >= 0) for v in y)


def test_a_step_is_what_a_threshold_of_at_most_that_rate_finds():
    curve = roc_curve(*rows(80, 300))
    for x, y in zip(*curve.steps(50), strict=True):
        assert y == curve.tpr[curve.fpr <= x + 1e-12].max() == curve.found_at(x + 1e-12)


def test_steps_are_the_rates_up_to_points_at_equal_distances_of_a_logarithmic_axis():
    negatives = 2000
    grid = np.geomspace(1 / negatives, 1, 20) * (1 + 1e-9)
    x, _ = roc_curve(*rows(300, negatives)).steps(20)
    assert np.allclose(x, np.unique(np.floor(grid * negatives)) / negatives)


def test_400_points_are_drawn_if_nothing_else_is_said():
    curve = roc_curve(*rows(300, 2000))
    for one, other in ((curve.steps(), curve.steps(400)), (curve.band(), curve.band(points=400))):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert len(curve.band()[0]) == 400
    for points in (399, 401):
        assert not np.array_equal(curve.steps()[0], curve.steps(points)[0])


def test_the_band_holds_the_true_curve():
    """Of two normal scores the curve is known: Phi(shift + Phi^-1(rate))."""
    shift, inside, tries = 1.5, [], 200
    for seed in range(tries):
        x, low, high = roc_curve(*rows(60, 200, seed, shift)).band(points=30)
        true = norm.cdf(shift + norm.ppf(x[:-1]))
        inside.append((low[:-1] <= true) & (true <= high[:-1]))
    assert np.mean(inside, axis=0).min() >= 0.95
    x, low, high = roc_curve(*rows(6000, 20000)).band()
    assert (high - low)[(x > 0.01)].max() < 0.1  # and says something


def test_rows_of_one_kind_have_none():
    with pytest.raises(DataError, match=r"3 are positive, 0 are not"):
        roc_curve(np.ones(3, dtype=bool), np.arange(3.0))


def four_thresholds():
    """Scores 4, 3, 2, 1 of 1, 2, 0, 1 positives and 0, 1, 2, 1 negatives."""
    positive = np.array([1, 1, 1, 0, 0, 0, 1, 0], dtype=bool)
    return roc_curve(positive, np.array([4, 3, 3, 3, 2, 2, 1, 1]))


def test_a_curve_that_was_counted_by_hand():
    curve = four_thresholds()
    assert curve.fpr.tolist() == [0, 0, 0.25, 0.75, 1]
    assert curve.tpr.tolist() == [0, 0.25, 0.75, 0.75, 1]
    assert curve.area == 0.125 + 0.375 + 0.21875
    assert curve.least == 0.25
    rates = (0.0, 0.24, 0.25, 0.5, 0.75, 0.99, 1.0)
    assert [curve.found_at(rate) for rate in rates] == [0.25, 0.25, 0.75, 0.75, 0.75, 0.75, 1]


@pytest.mark.parametrize("points", [2, 100])
def test_steps_begin_at_one_negative_and_end_at_all(points):
    x, y = four_thresholds().steps(points)
    assert x.tolist() == ([0.25, 1] if points <= 2 else [0.25, 0.75, 1])
    assert y.tolist() == ([0.75, 1] if points <= 2 else [0.75, 0.75, 1])


def test_steps_go_on_to_a_rate_of_1():
    """Where the highest threshold calls all negatives positive, its step is the only one."""
    positive = np.array([0, 0, 1, 1], dtype=bool)
    x, y = roc_curve(positive, np.array([2, 2, 1, 1])).steps()
    assert (x.tolist(), y.tolist()) == ([0.5, 1], [0, 1])


def test_a_band_is_made_of_the_intervals_beside_a_rate():
    curve, level = four_thresholds(), 0.5
    x, low, high = curve.band(level, 2)
    assert x.tolist() == [0.25, 1]
    each = np.sqrt(level)
    false_low, false_high = share_interval([0, 0, 1, 3, 4], 4, each)
    true_low, true_high = share_interval([0, 1, 3, 3, 4], 4, each)
    left_of = [0] + [i for i in range(1, 4) if false_high[i] <= 0.25]
    right_of = [i for i in range(1, 4) if false_low[i] >= 0.25]
    assert low.tolist() == [max([0, *(true_low[i] for i in left_of[1:])]), 1]
    assert high[0] == true_high[right_of[0]]
    assert high[1] == 1
