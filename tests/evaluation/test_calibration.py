# SPDX-License-Identifier: Apache-2.0
"""Groups of margins hold every row once, and their intervals are those of their counts."""

from itertools import pairwise

import numpy as np
import pytest

from n3ic.evaluation.calibration import calibration, calibration_table
from n3ic.evaluation.interval import share_interval


@pytest.mark.parametrize("groups", [1, 3, 10, 1000])
def test_every_row_is_in_one_group_and_rows_of_a_margin_stay_together(groups):
    rng = np.random.default_rng(0)
    margins = rng.geometric(0.2, 5000).astype(np.int32) * 2
    right = rng.random(5000) < 0.5 + margins / 100
    margin_groups = calibration(right, margins, groups)
    assert len(margin_groups) <= groups and sum(g.rows for g in margin_groups) == 5000
    assert all(a.most < b.least for a, b in pairwise(margin_groups))
    for g in margin_groups:
        mine = (margins >= g.least) & (margins <= g.most)
        assert (g.rows, g.right) == (mine.sum(), right[mine].sum())
        assert g.accuracy == right[mine].mean()
        assert (g.low, g.high) == tuple(map(float, share_interval(g.right, g.rows)))
        assert g.low <= g.accuracy <= g.high


def test_few_rows_have_a_wide_interval():
    margins = np.array([0] * 1000 + [9] * 4, dtype=np.int32)
    many, few = calibration(np.ones(1004, dtype=bool), margins)
    assert few.accuracy == many.accuracy == 1 and few.low < 0.5 < 0.99 < many.low
    assert (many.name, few.name) == ("0", "9") and few.accuracy == 1


def test_no_rows_have_no_groups():
    assert calibration(np.zeros(0, dtype=bool), np.zeros(0, dtype=np.int32)) == ()


def test_groups_that_were_counted_by_hand():
    """Middles of the margins' rows at 1, 3, 4.5, 6.5 of 8: three groups end at 8/3 and 16/3."""
    margins = np.array([1, 1, 2, 2, 4, 7, 7, 7], dtype=np.int32)
    right = np.array([0, 1, 1, 0, 1, 1, 1, 0], dtype=bool)
    groups = calibration(right, margins, 3)
    assert [(g.name, g.least, g.most, g.rows, g.right) for g in groups] == [
        ("1", 1, 1, 2, 1),
        ("2-4", 2, 4, 3, 2),
        ("7", 7, 7, 3, 2),
    ]
    assert [(g.name, g.rows) for g in calibration(right, margins, 1)] == [("1-7", 8)]
    each = np.arange(990, dtype=np.int32)
    assert [g.rows for g in calibration(each > 3, each)] == [99] * 10


def test_the_table_says_what_the_groups_say():
    margins = np.array([0] * 1000 + [9] * 4, dtype=np.int32)
    right = np.arange(1004) % 4 > 0
    table = calibration_table(calibration(right, margins), "rows of a test")
    assert table.title == "How often it is right by margin, on rows of a test"
    assert table.rows == (
        ("0", "1,000", "75.0 %", "72.2 to 77.7 %"),
        ("9", "4", "75.0 %", "19.4 to 99.4 %"),
    )
    assert table.head[-1] == "95% interval"
