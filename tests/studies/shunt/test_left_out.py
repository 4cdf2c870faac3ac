# SPDX-License-Identifier: Apache-2.0
"""The threshold by kinds that the network has not seen."""

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.studies.shunt.left_out import LeftOutKind, threshold_for_kinds
from n3ic.studies.shunt.result import ThresholdObjective


def kinds(*blocked_to):
    return [LeftOutKind(f"kind {i}", 9, 5, to) for i, to in enumerate(blocked_to)]


def test_no_kind_may_be_blocked_if_they_are_few():
    found = kinds(15, 11, -1, -1, -1, -1, -1, -1, -1, -1)  # none of 10 shows 25.9 % at most
    assert threshold_for_kinds(found, 0.26, 0.95) == 16
    # One of ten blocked shows 39.4 % at most, two show 50.7 %.
    assert threshold_for_kinds(found, 0.40, 0.95) == 12
    assert threshold_for_kinds(found, 0.51, 0.95) == 0


def test_the_first_threshold_that_fails_ends_the_tests():
    found = kinds(9, 9, -1, -1, -1, -1, -1, -1, -1, -1)
    assert threshold_for_kinds(found, 0.40, 0.95) == 10


def test_too_few_kinds_show_nothing():
    with pytest.raises(
        UsageError, match=r"2 left-out kinds .* at most 77.6 % .* record more kinds"
    ):
        threshold_for_kinds(kinds(-1, -1), 0.3, 0.95)
    with pytest.raises(UsageError, match="0 left-out kinds"):
        threshold_for_kinds([], 0.3, 0.95)


def test_the_promise_holds_for_kinds_that_are_drawn_alike():
    rng = np.random.default_rng(5)
    broken = 0
    for _ in range(400):
        found = kinds(*np.where(rng.random(20) < 0.5, rng.integers(0, 30, 20), -1).tolist())
        threshold = threshold_for_kinds(found, 0.2, 0.95)
        broken += 0.5 * max(0, 30 - threshold) / 30 > 0.2
    assert broken <= 400 * 0.05 + 15  # three deviations


def test_only_one_aim_is_given():
    with pytest.raises(UsageError, match="only one of them"):
        ThresholdObjective(margin=3, left_out=0.2)
    with pytest.raises(UsageError, match="share of left-out kinds must be"):
        ThresholdObjective(left_out=2)
    with pytest.raises(UsageError, match="blocked after 1 flow"):
        ThresholdObjective(left_out=0.1, times=0)
    assert "30.0 % at most of left-out kinds" in str(ThresholdObjective(left_out=0.3))
