# SPDX-License-Identifier: Apache-2.0
"""Both arithmetics on numbers that are worked out by hand."""

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.families.spn.arithmetic import (
    LinearArithmetic,
    LogArithmetic,
    levels,
)
from n3ic.model.graph.arithmetic import MAX_FRACTION, MAX_LOG_FRACTION, pairwise_reduce

LOG, LINEAR = LogArithmetic(2, [4, 2, 1]), LinearArithmetic(4)


@pytest.mark.parametrize(
    ("count", "way"),
    [(1, "a"), (2, "(ab)"), (3, "((ab)c)"), (4, "((ab)(cd))"), (5, "(((ab)(cd))e)"),
     (7, "(((ab)(cd))((ef)g))")],
)  # fmt: skip
def test_neighbours_are_combined(count, way):
    assert pairwise_reduce("abcdefg"[:count], lambda a, b: f"({a}{b})") == way
    assert levels(count) == max(way.find("a"), 0)
    assert levels(0) == 0


def ints(*values):
    return np.array(values, dtype=np.int64)


def test_log_add_takes_the_larger_and_what_the_table_says():
    a, b = ints(10, 10, 10, 10, 7, 0), ints(10, 9, 8, 7, 10, 99)
    assert LOG.add(a, b).tolist() == [14, 12, 11, 10, 10, 99]
    assert LOG.product([ints(1), ints(2), ints(-4)]).tolist() == [-1]
    # 3 - 1 = 2 and 5 - 3 = 2 are 6 together, and 9 - 8 = 1 is beyond the table
    assert LOG.sum([ints(3), ints(5), ints(9)], np.array([-1, -3, -8])).tolist() == [6]
    assert LOG.sum([ints(3)], np.array([-1])).tolist() == [2]
    assert LOG.one == 0
    assert LOG.leaf(np.array([1.0, 0.5, 0.1])).tolist() == [0, -4, -13]
    assert LOG.weights(np.array([0.25])).tolist() == [-8]


def test_bounds_and_errors_of_logarithms():
    bounds = [(-9, -2), (-7, -3), (-20, -4)]
    assert LOG.product_bounds(bounds) == (-36, -9)
    assert LOG.sum_bounds(bounds, np.array([-1, -2, 0])) == (-9, -3 + 2 * 4)
    assert LOG.sum_bounds(bounds[:1], np.array([-1])) == (-10, -3)
    assert LOG.leaf_error() == 0.5
    assert LOG.product_error([0.5, 0.5, 1.5]) == 2.5
    assert LOG.sum_error([0.5, 1.5]) == 2.5
    assert LOG.sum_error([0.5, 1.5, 0.5]) == 3


@pytest.mark.parametrize(
    ("fraction", "table"),
    [(0, [1, 1]), (1, [2, 2, 1, 1, 1]), (2, [4, 4, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1])],
)
def test_the_table_of_log_add(fraction, table):
    assert LogArithmetic.of(fraction).table.tolist() == table
    assert LogArithmetic.of(fraction).fraction == fraction
    last = len(table) - 1
    exact = np.log2(1 + 2.0 ** (-np.arange(last + 2) / 2**fraction)) * 2**fraction
    assert np.abs(exact[:-1] - table).max() <= 0.5
    assert exact[-1] <= 0.5


@pytest.mark.parametrize(
    ("fraction", "table", "message"),
    [
        (-1, [1], "fraction bits"),
        (MAX_LOG_FRACTION + 1, [1], "fraction bits"),
        (2, [], "1 to 2\\^20 entries"),
        (2, [[1]], "1 to 2\\^20 entries"),
        (2, np.zeros((1 << 20) + 1), "1 to 2\\^20 entries"),
        (2, [5], "must fall from at most 1"),
        (2, [4, -1], "must fall from at most 1"),
        (2, [3, 4], "must fall from at most 1"),
        (2, [4, 1, 2], "must fall from at most 1"),
        (2, [4, 2, -1], "must fall from at most 1"),
    ],
)
def test_tables_that_are_refused(fraction, table, message):
    with pytest.raises(ModelError, match=message):
        LogArithmetic(fraction, table)


def test_the_edges_of_tables():
    assert MAX_LOG_FRACTION == 12
    assert LogArithmetic(MAX_LOG_FRACTION, np.zeros(1 << 20)).fraction == MAX_LOG_FRACTION
    assert LogArithmetic(0, [1, 1, 0, 0]).table.tolist() == [1, 1, 0, 0]
    assert not LogArithmetic(2, [4]).table.flags.writeable


def test_fixed_point_is_rounded_to_nearest():
    """In sixteenths: 8 * 3 / 16 is 1.5, 7 * 3 / 16 is 1.3."""
    assert LINEAR.one == 16
    assert LINEAR.product([ints(8, 7, 16, 1), ints(3, 3, 5, 7)]).tolist() == [2, 1, 5, 0]
    assert LINEAR.product([ints(8), ints(8), ints(8)]).tolist() == [2]
    # a sum is rounded once: 3 * 4 + 5 * 12 is 72, 4.5 sixteenths
    assert LINEAR.sum([ints(3), ints(5)], np.array([4, 12])).tolist() == [5]
    assert LINEAR.sum([ints(3), ints(5)], np.array([5, 11])).tolist() == [4]
    assert LINEAR.leaf(np.array([0.5, 0.03, 0.04, 1.0])).tolist() == [8, 0, 1, 16]


@pytest.mark.parametrize(
    ("probability", "weights"),
    [([0.5, 0.5], [8, 8]), ([1 / 3] * 3, [6, 5, 5]), ([0.9, 0.06, 0.04], [14, 1, 1]),
     ([0.97, 0.03], [16, 0])],
)  # fmt: skip
def test_weights_of_fixed_point_add_to_one(probability, weights):
    assert LINEAR.weights(np.array(probability)).tolist() == weights


def test_bounds_and_errors_of_fixed_point():
    assert LINEAR.product_bounds([(2, 8), (4, 16), (8, 16)]) == (1, 8)
    assert LINEAR.sum_bounds([(0, 8), (4, 16)], np.array([4, 12])) == (3, 14)
    assert LINEAR.leaf_error() == 0.5
    assert LINEAR.product_error([0.5, 0.5]) == 1.5 + 0.25 / 16
    assert LINEAR.product_error([0.5]) == 0.5
    assert LINEAR.sum_error([0.5, 2.0]) == 4.5


def test_the_edges_of_fixed_point():
    assert MAX_FRACTION == 30
    assert [LinearArithmetic(f).one for f in (1, MAX_FRACTION)] == [2, 2**30]
    for wrong in (0, MAX_FRACTION + 1):
        with pytest.raises(ModelError, match="fraction bits"):
            LinearArithmetic(wrong)
