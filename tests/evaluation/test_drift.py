# SPDX-License-Identifier: Apache-2.0
"""Drift: the population stability index against its definition, and what a sample's noise is."""

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.evaluation.drift import _level, _quantile, drift
from n3ic.model.inputs import RATE_UNIT, Field, InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.passes import simplify

SPEC = InputSpec((Field.thermometer("a", [10, 20, 30]), Field.binary("flags", 3)))


def rows(rng, low, high, count=20_000):
    return {"a": rng.integers(low, high, count), "flags": rng.integers(0, 8, count)}


def trained():
    return SPEC.with_rates(SPEC.encode(rows(np.random.default_rng(0), 0, 40)))


def test_rates_are_those_of_the_rows_and_survive_the_file(tmp_path):
    bits = np.array([[1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]], dtype=bool)
    spec = SPEC.with_rates(bits)
    assert spec.fields[0].rates == (RATE_UNIT, RATE_UNIT // 2, 0)
    assert spec.fields[1].rates == (RATE_UNIT // 2, 0, 0)
    assert spec == SPEC  # they say nothing about what is computed
    assert InputSpec.from_dict(spec.to_dict()).fields[0].rates == spec.fields[0].rates
    assert "rates" not in SPEC.to_dict()["fields"][0]


@pytest.mark.parametrize("rates", [(1, 2), (1, 2, RATE_UNIT + 1), (1, 2, -1)])
def test_rates_that_cannot_be_are_refused(rates):
    with pytest.raises(ModelError, match="rates"):
        Field("a", "thermometer", 3, 30, (10, 20, 30), rates=rates)


def test_the_index_is_that_of_its_definition():
    spec = InputSpec((Field("a", "thermometer", 1, 5, (5,), rates=(RATE_UNIT // 2,)),))
    (feature_drift,) = drift(spec, [75_000], 100_000)
    expected = 0.25 * np.log(0.75 / 0.5) - 0.25 * np.log(0.25 / 0.5)
    assert feature_drift.psi == pytest.approx(expected, rel=1e-3)
    assert (feature_drift.trained, feature_drift.live, feature_drift.level) == (0.5, 0.75, "large")


def test_equal_traffic_does_not_drift_and_other_traffic_does():
    spec, rng = trained(), np.random.default_rng(1)
    same = spec.encode(rows(rng, 0, 40))
    assert {d.level for d in drift(spec, same.sum(axis=0), len(same))} == {"none"}
    moved = spec.encode(rows(rng, 15, 55))
    first = drift(spec, moved.sum(axis=0), len(moved))[0]
    assert (first.feature, first.level) == ("a", "large")
    assert first.psi > 0.25 > first.bound


def test_a_few_rows_are_not_taken_for_drift():
    spec, rng = trained(), np.random.default_rng(2)
    alarms = 0
    for _ in range(200):
        few = spec.encode(rows(rng, 0, 40, 30))
        alarms += sum(d.psi > d.bound for d in drift(spec, few.sum(axis=0), 30))
    assert alarms < 0.05 * 400


def test_without_rows_or_without_rates_nothing_is_said():
    assert drift(trained(), np.zeros(6, int), 0) == []
    assert drift(SPEC, np.ones(6, int), 1) == []
    with pytest.raises(ValueError, match="shape"):
        drift(SPEC, np.ones(5, int), 1)


def test_bits_that_a_pass_leaves_out_take_their_rates_along():
    mask = np.ones((2, 6), dtype=bool)
    mask[:, 1] = False
    hidden = HiddenLayer(np.ones((2, 6), dtype=bool), mask=mask, thresholds=np.array([2, 4]))
    output = OutputLayer(np.eye(2, dtype=bool), bias=np.zeros(2, int))
    model = BinaryModel(trained(), (hidden,), output, ("x", "y"))
    first = simplify(model).model.input.fields[0]
    assert first.cuts == (10, 30)
    assert first.rates == (trained().fields[0].rates[0], trained().fields[0].rates[2])


def test_cells_are_those_between_cuts_with_a_half_added_to_each():
    """Two cuts make three cells; a binary field's bits make two each and are added up."""
    half, quarter = RATE_UNIT // 2, RATE_UNIT // 4
    spec = InputSpec(
        (
            Field("a", "thermometer", 2, 9, (5, 9), rates=(half, quarter)),
            Field("b", "binary", 2, 3, rates=(half, quarter)),
            Field("unknown", "binary", 1, 1),
        )
    )
    by_feature = {d.feature: d for d in drift(spec, [80, 20, 50, 60, 1], 100)}
    assert set(by_feature) == {"a", "b"}

    def smoothed(shares, of):
        return (np.array(shares) * of + 0.5) / (of + 0.5 * len(shares))

    def index(trained, live):
        p, q = smoothed(trained, RATE_UNIT), smoothed(live, 100)
        return float(((q - p) * np.log(q / p)).sum())

    assert by_feature["a"].psi == pytest.approx(index([0.5, 0.25, 0.25], [0.2, 0.6, 0.2]))
    bits = index([0.5, 0.5], [0.5, 0.5]) + index([0.75, 0.25], [0.4, 0.6])
    assert by_feature["b"].psi == pytest.approx(bits)
    assert (by_feature["a"].bit, by_feature["a"].trained, by_feature["a"].live) == (0, 0.5, 0.8)
    assert (by_feature["b"].bit, by_feature["b"].trained, by_feature["b"].live) == (3, 0.25, 0.6)
    # chi-squared of two degrees stays below 9.21 in 99 % of the cases
    assert [by_feature[f].bound for f in "ab"] == pytest.approx([0.0921] * 2, rel=0.005)


def test_cuts_of_several_fields_of_a_feature_are_ordered():
    def field(cut, share):
        return Field("a", "thermometer", 1, 99, (cut,), rates=(int(share * RATE_UNIT),))

    two = InputSpec((field(20, 0.25), field(10, 0.5)))
    one = InputSpec(
        (Field("a", "thermometer", 2, 99, (10, 20), rates=(RATE_UNIT // 2, RATE_UNIT // 4)),)
    )
    (mixed,), (plain,) = drift(two, [300, 700], 1000), drift(one, [700, 300], 1000)
    assert mixed.psi == pytest.approx(plain.psi)
    assert mixed.bound == plain.bound
    assert (mixed.bit, plain.bit) == (1, 0)


@pytest.mark.parametrize(
    ("psi", "bound", "level"),
    [
        (0.0999, 0, "none"),
        (0.1, 0, "moderate"),
        (0.1, 0.1, "moderate"),
        (0.1, 0.1001, "none"),
        (0.2499, 0.2, "moderate"),
        (0.25, 0.2, "large"),
        (0.3, 0.4, "none"),
    ],
)
def test_levels(psi, bound, level):
    assert _level(psi, bound) == level


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 6.635), (2, 9.210), (10, 23.209)])
def test_the_bound_is_chi_squared(degrees, quantile):
    assert _quantile(degrees) == pytest.approx(quantile, rel=0.01)


def test_the_largest_drift_stands_first_and_equal_ones_by_name():
    rates = (RATE_UNIT // 2,)
    spec = InputSpec(tuple(Field(name, "binary", 1, 1, rates=rates) for name in "cab"))
    assert [d.feature for d in drift(spec, [60, 60, 90], 100)] == ["b", "a", "c"]
    assert len(drift(spec, [1, 0, 1], 1)) == 3
    assert drift(spec, [0, 0, 0], 0) == []
    with pytest.raises(ValueError, match=r"expected counts of shape \(3,\), got \(2,\)"):
        drift(spec, [0, 0], 1)
