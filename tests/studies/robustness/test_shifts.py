# SPDX-License-Identifier: Apache-2.0
"""Rows of another site: what is scaled, what is permuted, what is trained again."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.evaluation.held_out import held_out
from n3ic.options import parse_options
from n3ic.studies.robustness.column_permutation import exchanged_rows
from n3ic.studies.robustness.retrained import by_time, seed_of, without_category
from n3ic.studies.robustness.shifts import EVALUATION, cheap_rows
from n3ic.usecases.config import recipe_of
from tests.support.small_flows import CATALOGUE, RECIPE, feature, flows


def test_a_scaled_row_is_what_the_model_says_of_a_slower_site(model, table):
    holdout = held_out(model, table)
    rows = {row.shift: row for row in cheap_rows(holdout, 0)}
    columns = {n: v[holdout.rows] for n, v in table.features.items()}
    columns["rtt"], columns["load"] = columns["rtt"] * 2, np.rint(columns["load"] / 2)
    columns["load"] = columns["load"].astype(np.int64)
    classes = model.infer(model.encode(columns)).classes
    row = rows["times x 2, rates x 0.5"]
    assert row.accuracy == (classes == holdout.label).mean() < rows["none"].accuracy
    assert row.recall == (classes[holdout.label == 1] == 1).mean()
    assert row.same == (classes == holdout.inference.classes).mean()
    assert rows["none"].same == 1.0 and rows["none"].accuracy == holdout.right.mean()


def test_the_worst_column_is_one_that_the_model_rests_on(model, table):
    worst, every = list(cheap_rows(held_out(model, table), 0))[-2:]
    assert worst.shift.endswith("permuted within a class") and "noise" not in worst.shift
    assert every.accuracy < held_out(model, table).right.mean()


def test_a_seed_gives_the_same_rows(model, table):
    holdout = held_out(model, table)
    assert [*cheap_rows(holdout, 3)] == [*cheap_rows(holdout, 3)]
    assert [*cheap_rows(holdout, 3)] != [*cheap_rows(holdout, 4)]


@pytest.mark.parametrize(
    ("seed_text", "seed"), [("7", 7), ("", 0), ("-1", 0), ("0x7", 0), ("seven", 0)]
)
def test_a_seed_is_a_number_or_zero(model, table, seed_text, seed):
    """Provenance is text that anyone may have written."""
    seeded_model = model.changed(provenance={"seed": seed_text})
    assert seed_of(seeded_model) == seed
    holdout = held_out(seeded_model, table)
    options = parse_options(EVALUATION.options, {"shift": True}, "test")
    figures = EVALUATION.requested_figures(holdout, options, Path("m.n3ic"), None)
    assert [*figures["rows"]] == [asdict(row) for row in cheap_rows(holdout, seed)]


def test_every_run_has_them(model):
    holdout = held_out(model, flows(500, seed=1))
    figures = EVALUATION.figures(holdout, 0)
    scales = [
        f"times x {by}, rates x {rate}" for by, rate in ((0.1, 10), (0.5, 2), (2, 0.5), (10, 0.1))
    ]
    assert [r["shift"] for r in figures["rows"]][:5] == ["none", *scales]
    (shown,) = EVALUATION.tables(figures)
    assert len(shown.rows) == len(figures["rows"])
    assert all(len(row) == len(shown.head) for row in shown.rows)


@pytest.mark.slow
def test_an_unseen_category_is_found_less(model, table):
    holdout = held_out(model, table)
    on, off = without_category(holdout, RECIPE, "probe")
    assert on.shift == "probe, trained on" and off.shift == "probe, not trained on"
    assert off.recall < on.recall
    of = (table.category == "probe") & (table.label == 1)
    assert off.rows > np.count_nonzero(of)
    names = [
        row.shift for row in without_category(holdout, RECIPE.with_options({"epochs": 1}), "each")
    ]
    assert len(names) == 4 and names[2:] == [on.shift, off.shift]
    with pytest.raises(UsageError, match="expected each or one of flood, probe"):
        [*without_category(holdout, RECIPE, "worm")]
    with pytest.raises(UsageError, match="no categories"):
        [*without_category(held_out(model, replace(table, category=None)), RECIPE, "each")]


def test_columns_exchanged_with_marked_rows_tell_what_is_learned(model):
    """Near benign hosts answer as fast as attackers do: the network knows the distance."""
    plain = flows(2000, seed=21)
    near = (plain.label == 0) & (np.arange(2000) % 3 == 0)
    rtt = np.where(near, 1 + np.arange(2000) % 50, plain.features["rtt"])
    table = replace(
        plain,
        features={**plain.features, "rtt": rtt, "ttl": np.where(near, 31, 254)},
        catalogue=(*CATALOGUE, feature("ttl", "hops")),
    )
    holdout = held_out(model, table)
    before, after, marked, far = exchanged_rows(holdout, "rtt:ttl=31", 3)
    assert before.rows == after.rows == int(plain.label.sum())
    assert marked.rows == far.rows == int(near.sum())
    classes = holdout.inference.classes
    assert before.recall == pytest.approx((classes[plain.label == 1] == 1).mean())
    assert marked.false_alarms == pytest.approx((classes[near] == 1).mean())
    assert after.recall != before.recall and far.false_alarms < marked.false_alarms
    assert [*exchanged_rows(holdout, "rtt:ttl=31", 3)] == [before, after, marked, far]
    same = [*exchanged_rows(holdout, "ttl:ttl=31", 3)]  # the network does not read it
    assert same[1].same == same[3].same == 1.0
    for asked, message in (
        ("rtt", "expected columns, a colon"), ("rtt:ttl=x", "expected columns, a colon"),
        ("hop:ttl=31", "no column hop"), ("rtt:ttl=32", "found 9"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            list(exchanged_rows(holdout, asked, 0))


def test_time_order_trains_on_earlier_rows(model, table):
    """The later fifth has other times: a random split would have seen such rows."""
    moved = np.where(np.arange(len(table)) < 0.8 * len(table), 1, 10)
    features = {**table.features, "rtt": table.features["rtt"] * moved}
    holdout = held_out(model, replace(table, features=features))
    (row,) = by_time(holdout, RECIPE)
    assert row.rows == round(len(table) * 0.2)
    assert row.accuracy < held_out(model, table).right.mean() - 0.1
    with pytest.raises(UsageError, match="no order in time"):
        [*by_time(held_out(model, replace(table, time_order=False)), RECIPE)]


def test_a_run_says_its_recipe(tmp_path):
    words = ["n3ic", "train", "anomaly", "--epochs=3", "--bits=64"]
    (tmp_path / "options.json").write_text(json.dumps({"command": words}))
    recipe = recipe_of(tmp_path, 2)
    assert (recipe.bits, recipe.training.epochs) == (64, 3)
    with pytest.raises(UsageError, match="expected a run folder"):
        recipe_of(tmp_path / "model.n3ic", 2)


def test_what_is_asked_for_needs_the_shift(model, table):
    holdout = held_out(model, table)

    def ask(**typed):
        given = {name.replace("_", "-"): value for name, value in typed.items()}
        options = parse_options(EVALUATION.options, given, "test")
        return EVALUATION.requested_figures(holdout, options, None, None)

    with pytest.raises(UsageError, match="--time-order: expected beside --shift"):
        ask(time_order=True)
    assert ask(shift=True) == EVALUATION.figures(holdout, 0)
    with pytest.raises(UsageError, match="names no meter"):
        ask(shift=True, capture="x.pcap")
