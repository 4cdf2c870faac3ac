# SPDX-License-Identifier: Apache-2.0
"""The test of a promotion is wrong as seldom as stated, however often it is looked at."""

import numpy as np
import pytest

from n3ic.systems.stream.learning.betting_tests import PairedBet, block_gains, spent

RUNS, ROWS, ALPHA = 400, 2000, 0.1


def pairs(rng, better, rows=ROWS):
    """Whether each of two models is right; where they differ, the first is so often right."""
    differ, first = rng.random(rows) < 0.2, rng.random(rows) < better
    both = rng.random(rows) < 0.9
    return np.where(differ, first, both), np.where(differ, ~first, both)


def of_rows(one, other):
    """The gains if each row is a block."""
    return block_gains(one, other, np.arange(len(one)))


def looks_better(one, other):
    """The rule without betting: after any row, two deviations more of the pairs that differ."""
    moves = one.astype(np.int64) - other
    gained, differ = np.cumsum(moves), np.cumsum(moves != 0)
    return bool((gained[20:] > 1.645 * np.sqrt(differ[20:] + 1)).any())


@pytest.mark.parametrize("better", [0.5, pytest.param(0.45, marks=pytest.mark.slow)])
def test_a_model_that_is_no_better_wins_as_seldom_as_stated(better):
    rng = np.random.default_rng(1)
    won = {"bet": 0, "looked at": 0}
    for _ in range(RUNS):
        one, other = pairs(rng, better)
        bet, gains = PairedBet(ALPHA), of_rows(one, other)
        for start in range(0, ROWS, 100):
            bet.add(gains[start : start + 100])
        won["bet"] += bet.won
        won["looked at"] += looks_better(one, other)
    assert won["bet"] / RUNS <= ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / RUNS)
    if better == 0.5:
        assert won["looked at"] / RUNS > 2 * ALPHA


def test_a_better_model_wins_soon():
    rng = np.random.default_rng(2)
    took = []
    for _ in range(100):
        bet = PairedBet(0.01)
        bet.add(of_rows(*pairs(rng, 0.8)))
        assert bet.won
        took.append(bet.blocks)
    assert np.median(took) < 250


def test_the_decision_does_not_depend_on_how_rows_are_batched():
    gains = of_rows(*pairs(np.random.default_rng(3), 0.7))
    whole, parts = PairedBet(0.01), PairedBet(0.01)
    whole.add(gains)
    for start in range(0, ROWS, 7):
        parts.add(gains[start : start + 7])
    assert (whole.blocks, whole.better, whole.worse) == (parts.blocks, parts.better, parts.worse)
    assert whole.won and whole.blocks < ROWS


def test_the_errors_of_all_tests_together_stay_below_the_stated_one():
    assert sum(spent(0.05, number) for number in range(1, 100_000)) < 0.05
