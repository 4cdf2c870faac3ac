# SPDX-License-Identifier: Apache-2.0
"""Flows on other time scales: what grows with time, what falls, and what stays."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.data.table import Feature, FlowTable
from n3ic.data.time_scale import mixed, power_of, powers, scaled, with_time_scales
from n3ic.model.inputs import UINT32_MAX


def feature(name, unit, bits=32):
    return Feature(name, name, unit, unit, 1.0, bits, True, "")


def flows(columns, *catalogue):
    rows = len(next(iter(columns.values())))
    features = {n: np.asarray(v, dtype=np.int64) for n, v in columns.items()}
    label = np.arange(rows) % 2
    return FlowTable("flows", features, catalogue, label, ("no", "yes"), False, "sha")


def timed(rows=4000):
    rng = np.random.default_rng(7)
    time, size = rng.integers(1000, 10_000_000, rows), rng.integers(40, 1500, rows)
    columns = {"time": time, "rate": size * 1_000_000 // time * 1000, "size": size}
    units = (feature("time", "us"), feature("rate", "1/1000 byte/s"), feature("size", "byte"))
    return flows(columns, *units)


@pytest.mark.parametrize(
    ("unit", "power"),
    [
        ("us", 1), ("ms", 1), ("s", 1), ("1/16 us", 1), ("1000 ns", 1),
        ("kbit/s", -1), ("packet/1000 s", -1), ("1/1000 packet/s", -1), ("byte/s", -1),
        ("byte", 0), ("flag", 0), ("packets", 0), ("1/1024", 0), ("", 0), ("mixed", 0),
        ("hops", 0), ("status", 0), ("1/64 octave", 0),
    ],
)  # fmt: skip
def test_a_unit_says_how_a_column_grows(unit, power):
    assert power_of(unit) == power


def test_times_grow_rates_fall_and_sizes_stay():
    table = timed()
    assert powers(table, [*table.features]) == {"time": 1, "rate": -1}
    slow = scaled(table, ["time", "rate", "size"], 10)
    assert np.array_equal(slow["time"], 10 * table.features["time"])
    assert np.array_equal(slow["rate"], np.rint(table.features["rate"] / 10))
    assert slow["size"] is table.features["size"]


@pytest.mark.parametrize("bits", [8, 28, 32])
def test_the_ends_of_a_column_hold(bits):
    most = (1 << bits) - 1
    columns = {"time": [0, 1, most - 1, most], "rate": [0, 1, most - 1, most]}
    table = flows(columns, feature("time", "us", bits), feature("rate", "byte/s", bits))
    slow, fast = (scaled(table, ["time", "rate"], factor) for factor in (10, 0.1))
    tenth = round((most - 1) / 10)
    # The largest integer stands for all larger values, and for unknown ones: it stays.
    assert slow["time"].tolist() == fast["rate"].tolist() == [0, 10, most, most]
    assert slow["rate"].tolist() == fast["time"].tolist() == [0, 1, tenth, most]


def test_values_wider_than_their_column_stay():
    table = flows({"time": [5, 9, UINT32_MAX]}, feature("time", "us", 3))
    assert scaled(table, ["time"], 0.1)["time"].tolist() == [1, 9, UINT32_MAX]


def test_a_time_of_day_stays_and_mixed_units_are_named():
    columns = {"stime": [1_500_000_000] * 3, "rtt": [1, 2, 3], "cross": [1, 2, 3]}
    units = (feature("stime", "s"), feature("rtt", "us"), feature("cross", "1/64 octave"))
    table = flows(columns, *units)
    assert powers(table, [*columns]) == {"rtt": 1}
    assert mixed(table, [*columns]) == ["cross"]


def test_each_row_has_a_copy_on_a_time_scale_of_its_own():
    table = timed()
    rows = len(table)
    twice = with_time_scales(table, 10, seed=3)
    first, second = twice.rows(np.arange(rows)), twice.rows(np.arange(rows, 2 * rows))
    for name, column in table.features.items():
        assert np.array_equal(first.features[name], column)
    assert np.array_equal(second.features["size"], table.features["size"])
    assert np.array_equal(first.label, table.label) and np.array_equal(second.label, table.label)
    factor = second.features["time"] / table.features["time"]
    large = table.features["rate"] > 100_000  # where rounding hides nothing
    inverse = table.features["rate"][large] / second.features["rate"][large]
    assert np.allclose(factor[large], inverse, rtol=1e-3)
    assert 0.0999 < factor.min() < 0.11 and 9 < factor.max() < 10.001
    shares = np.histogram(np.log10(factor), bins=4, range=(-1, 1))[0] / rows
    assert np.allclose(shares, 0.25, atol=0.03)  # uniform in the logarithm


def test_a_seed_gives_the_same_copies_and_another_one_others():
    one, again, other = (
        with_time_scales(timed(), 10, seed).features["time"].tolist() for seed in (1, 1, 2)
    )
    assert one == again != other


def test_no_copies_where_none_are_wanted_or_nothing_scales():
    table = timed(50)
    assert with_time_scales(table, 1, seed=0) is table
    sizes = table.only(["size"])
    assert with_time_scales(sizes, 10, seed=0) is sizes


def test_what_belongs_to_a_row_follows_its_copy():
    table = replace(timed(60), flow=np.arange(60), category=np.array(["a", "b"] * 30))
    twice = with_time_scales(table, 10, seed=0)
    assert twice.flow.tolist() == [*range(60)] * 2
    assert twice.category.tolist() == ["a", "b"] * 60
