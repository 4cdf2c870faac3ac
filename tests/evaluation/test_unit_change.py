# SPDX-License-Identifier: Apache-2.0
"""A column in another unit than in training is told by its factor, other traffic is not."""

import numpy as np
import pytest

from n3ic.evaluation.out_of_distribution import OodMonitor
from n3ic.evaluation.plugin import WARNING
from n3ic.evaluation.unit_change import ScaleHistogram
from n3ic.model.inputs import RATE_UNIT, Field, InputSpec

CUTS = (0.9, 0.7, 0.5, 0.3, 0.1)


def drawn(rows, seed, middle=13.0, spread=2.0):
    """Durations in us, from fractions of a millisecond to minutes."""
    return np.exp(np.random.default_rng(seed).normal(middle, spread, rows)).astype(np.int64)


def trained(kind="thermometer"):
    values = drawn(50_000, 1)
    if kind == "binary":
        field = Field.binary("dur", 32, unit="us")
        rates = tuple((field.encode(values).mean(axis=0) * RATE_UNIT).astype(int).tolist())
    else:
        field = Field.thermometer("dur", np.quantile(values, [1 - c for c in CUTS]).astype(int))
        rates = tuple(int(c * RATE_UNIT) for c in CUTS)
    ends = np.quantile(values, (0.0005, 0.9995)).astype(int).tolist()
    return InputSpec((Field(**{**vars(field), "rates": rates, "span": tuple(ends)}),))


def changes(values, kind="thermometer"):
    histogram = ScaleHistogram(trained(kind))
    for part in np.array_split(values, 3):
        histogram.add({"dur": np.minimum(part, 2**32 - 1)})
    return [str(change) for change in histogram.changes()]


@pytest.mark.parametrize("rows", [40, 500, 20_000])
@pytest.mark.parametrize(
    ("factor", "size"),
    [(1e-3, "1,000 times smaller"), (1e3, "1,000 times larger")],
)
def test_another_unit_is_told_by_its_factor(rows, factor, size):
    lines = changes(np.rint(drawn(rows, 2) * factor).astype(np.int64))
    assert lines == [f"dur: {size} than in training: another unit?"]


@pytest.mark.parametrize("shift", [0.4, 0.6, 1.7, 2.5])
def test_another_unit_is_told_of_other_traffic_too(shift):
    """Flows of another site are longer or shorter, beside the unit."""
    lines = changes(np.rint(drawn(20_000, 2) * shift * 1e-3).astype(np.int64))
    assert lines == ["dur: 1,000 times smaller than in training: another unit?"]


def test_flows_of_one_unit_count_and_those_of_none_do_not():
    lines = changes(np.ones(500, dtype=np.int64))
    assert lines and lines == changes(np.append(np.ones(500, dtype=np.int64), np.zeros(500)))


def test_the_upper_bits_of_a_binary_field_tell_it_too():
    lines = changes(drawn(20_000, 2) // 1000, "binary")
    assert lines == ["dur: 1,000 times smaller than in training: another unit?"]


def test_a_million_times_smaller_is_told_from_what_rounding_leaves():
    lines = changes(drawn(20_000, 2) // 1_000_000)
    assert lines == ["dur: 1,000,000 times smaller than in training: another unit?"]


def test_values_that_saturate_give_a_lower_bound():
    lines = changes(drawn(500, 2, middle=20.0) * 1_000_000)
    assert lines == ["dur: at least 3,480 times larger than in training: another unit?"]


@pytest.mark.parametrize("rows", [5, 20, 40, 500, 20_000])
@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 30), marks=pytest.mark.slow)])
def test_the_same_unit_is_never_told(rows, seeds):
    for seed in seeds:
        assert not changes(drawn(rows, seed))
        assert not changes(drawn(rows, seed, middle=10.0))  # twenty times shorter
        assert not changes(drawn(rows, seed, middle=6.0, spread=0.2))  # a scan: all alike
    assert not changes(np.zeros(rows, dtype=np.int64))
    assert not changes(np.zeros(0, dtype=np.int64))


def test_a_prediction_warns_before_all_else():
    watch = OodMonitor(trained())
    watch.add({"dur": drawn(2000, 2) // 1000})
    first, second = watch.lines()
    assert first == f"{WARNING}dur: 1,000 times smaller than in training: another unit?"
    assert "not the traffic of the training" in second
    assert watch.to_dict()["scales"] == {"dur": pytest.approx(1e-3, rel=0.3)}
