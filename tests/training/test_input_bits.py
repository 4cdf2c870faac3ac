# SPDX-License-Identifier: Apache-2.0
"""Choice of input bits from training rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.data.table import Feature
from n3ic.errors import UsageError
from n3ic.model.inputs import UINT32_MAX, InputSpec
from n3ic.training.input_bits import (
    binary_fields,
    boosted_cuts,
    boosted_fields,
    boosted_trees,
    chi2_features,
    chi2_scores,
    quantile_fields,
    share_bits,
    thermometer_fields,
    weighted_fields,
)

CATALOGUE = {"size": Feature("size", "bytes", "byte", "byte", 1.0, 32, True, "counted")}


def _flows(rows: int = 2000) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(7)
    size = rng.integers(0, 5000, rows)
    noise = rng.integers(0, 5000, rows)
    label = ((size >= 1460) & (size < 3000)).astype(np.int64)
    return {"noise": noise, "size": size, "zero": np.zeros(rows, dtype=np.int64)}, label


def test_chi2_agrees_with_its_definition() -> None:
    pytest.importorskip("sklearn")
    columns, label = _flows()
    scores = chi2_scores(columns, label)
    for name in ("noise", "size"):
        values = columns[name].astype(float)
        seen = np.array([values[label == c].sum() for c in (0, 1)])
        due = values.sum() * np.array([(label == c).mean() for c in (0, 1)])
        assert scores[name] == pytest.approx(((seen - due) ** 2 / due).sum())
    assert scores["zero"] == 0.0


def test_chi2_takes_the_largest_first_and_ties_by_order() -> None:
    pytest.importorskip("sklearn")
    columns, label = _flows()
    columns["copy"] = columns["size"].copy()
    ranked = chi2_features(columns, label, 4)
    scores = chi2_scores(columns, label)
    assert list(ranked) == sorted(scores, key=lambda n: (-scores[n], list(columns).index(n)))
    assert ranked.index("size") < ranked.index("copy")
    with pytest.raises(UsageError, match="got 5"):
        chi2_features(columns, label, 5)


def test_binary_fields_clamp_to_what_fits() -> None:
    fields = binary_fields(("size", "other"), catalogue=CATALOGUE)
    assert [f.feature for f in fields] == ["size", "other"]
    assert (fields[0].unit, fields[1].unit) == ("byte", "")
    bits = fields[0].encode(np.array([65535, 70000, 5]))
    assert bits[0].all() and bits[1].all()
    assert bits[2].nonzero()[0].tolist() == [0, 2]


def test_thermometer_fields_follow_the_order_and_drop_repeats() -> None:
    fields = thermometer_fields([("b", 9), ("a", 3), ("b", 2), ("b", 9)], ("a", "b", "c"))
    assert [(f.feature, f.cuts) for f in fields] == [("a", (3,)), ("b", (2, 9))]


@settings(max_examples=60, deadline=None)
@given(
    data=st.lists(
        st.lists(st.integers(0, UINT32_MAX), min_size=30, max_size=30), min_size=1, max_size=4
    ),
    bits=st.integers(1, 40),
)
def test_quantile_fields_spend_the_budget_on_cuts_that_split(
    data: list[list[int]], bits: int
) -> None:
    columns = {f"f{i}": np.array(c, dtype=np.int64) for i, c in enumerate(data)}
    room = sum(len(np.unique(c)) - 1 for c in columns.values())
    if room == 0:
        assert quantile_fields(columns, bits) == ()
        return
    spec = InputSpec(quantile_fields(columns, bits))
    assert spec.n_bits == min(bits, room)
    encoded = spec.encode(columns)
    assert encoded.any(axis=0).all() and not encoded.all(axis=0).any()


def test_quantile_cuts_share_the_rows_equally() -> None:
    columns = {"size": np.arange(1000, dtype=np.int64)}
    (field,) = quantile_fields(columns, 3, catalogue=CATALOGUE)
    assert field.unit == "byte"
    assert np.abs(np.array(field.cuts) - [250, 500, 750]).max() <= 1


def test_boosted_cuts_find_where_the_label_changes() -> None:
    pytest.importorskip("sklearn")
    columns, label = _flows()
    gains = boosted_cuts(tuple(columns), boosted_trees(columns, label, rounds=5))
    best = sorted(gains, key=lambda cut: -gains[cut])[:2]
    assert {feature for feature, _ in best} == {"size"}
    near = sorted(cut for _, cut in best)
    assert abs(near[0] - 1460) < 40 and abs(near[1] - 3000) < 40


def test_boosted_fields_fill_the_budget_and_repeat_themselves() -> None:
    pytest.importorskip("sklearn")
    columns, label = _flows()
    trees = boosted_trees(columns, label, rounds=3)
    fields = boosted_fields(columns, label, 300, trees=trees, catalogue=CATALOGUE)
    spec = InputSpec(fields)
    assert spec.n_bits == 300
    assert len({f.feature for f in fields}) == len(fields)
    again = boosted_trees(columns, label, rounds=3)
    assert fields == boosted_fields(columns, label, 300, trees=again, catalogue=CATALOGUE)


def test_boosted_fields_give_fewer_bits_where_values_are_few() -> None:
    pytest.importorskip("sklearn")
    flag = np.tile(np.arange(4, dtype=np.int64), 100)
    fields = boosted_fields({"flag": flag}, (flag > 1).astype(np.int64), 16)
    assert [f.cuts for f in fields] == [(1, 2, 3)]


def test_a_cut_means_at_least() -> None:
    pytest.importorskip("sklearn")
    value = np.repeat(np.array([3, 4, 5, 6], dtype=np.int64), 100)
    (field,) = boosted_fields({"v": value}, (value >= 5).astype(np.int64), 1)
    assert field.cuts == (5,)


@pytest.mark.parametrize("call", [lambda c: quantile_fields(c, 4), lambda c: boosted_trees(c, L)])
def test_nothing_to_choose_from_is_an_error(call: object) -> None:
    pytest.importorskip("sklearn")
    with pytest.raises(UsageError):
        call({})  # type: ignore[operator]


def test_columns_must_fit_the_label() -> None:
    pytest.importorskip("sklearn")
    with pytest.raises(UsageError, match="column a"):
        chi2_scores({"a": np.zeros(3, dtype=np.int64)}, L)


L = np.array([0, 1], dtype=np.int64)


@given(
    weight=st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=12),
    bits=st.integers(0, 40),
    most=st.integers(1, 5),
)
def test_shared_bits_add_up_and_follow_the_weights(
    weight: list[float], bits: int, most: int
) -> None:
    values = np.array(weight)
    copies = share_bits(values, bits, most)
    assert copies.sum() == min(bits, most * len(weight))
    assert copies.min() >= 0 and copies.max() <= most
    order = np.argsort(-values, kind="stable")
    assert (np.diff(copies[order]) <= 0).all()


def test_shared_bits_by_hand() -> None:
    assert share_bits(np.array([6.0, 3.0, 1.0]), 4, 9).tolist() == [3, 1, 0]
    # Thirds of these two weights are one number.
    assert share_bits(np.array([999999.9999999999, 1000000.0]), 5, 3).tolist() == [2, 3]


def test_weighted_fields_repeat_what_earns_more() -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    columns, label = _flows()
    fields = weighted_fields(columns, label, 48, candidates=16, catalogue=CATALOGUE)
    spec = InputSpec(fields)
    assert spec.n_bits == 48
    assert fields == weighted_fields(columns, label, 48, candidates=16, catalogue=CATALOGUE)
    cuts = [(f.feature, c) for f in fields for c in f.cuts]
    counts = {cut: cuts.count(cut) for cut in cuts}
    assert max(counts.values()) > 1
    assert max(counts, key=lambda cut: counts[cut])[0] == "size"
