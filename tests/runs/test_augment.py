# SPDX-License-Identifier: Apache-2.0
"""Training on copies of the rows on other time scales, and what says so."""

import json
from dataclasses import replace

import numpy as np
import pytest

from n3ic.data.table import Feature, FlowTable
from n3ic.data.time_scale import scaled
from n3ic.datasets.unsw_nb15.recipes import DEFAULT, RECIPES
from n3ic.errors import UsageError
from n3ic.model.bits import pack
from n3ic.runs.experiment import train
from n3ic.runs.experiment_spec import Experiment
from n3ic.runs.preparation import on_bits, prepare
from n3ic.runs.report import metrics_of, summary_markdown
from n3ic.training.input_bits.boosted import boosted_trees
from n3ic.training.recipe import Recipe, Training
from n3ic.usecases.base import use_case
from n3ic.usecases.request import TrainRequest

BINARY = Recipe("small", "", bits=32, training=Training(hidden=(12,), epochs=6, learning_rate=1e-2))
FAMILIES = {
    "binary": BINARY,
    "tables": BINARY.with_options({"family": "tables", "tables": 8, "table_bits": 4}),
}


@pytest.fixture
def few_rounds(monkeypatch):
    """Bits are chosen by few trees, for tests that look at no accuracy."""
    monkeypatch.setitem(boosted_trees.__kwdefaults__, "rounds", 5)


def feature(name, unit):
    return Feature(name, name, unit, unit, 1.0, 32, True, "")


def table(rows=3000):
    """Attacks are small and fast, and their rate is high."""
    rng = np.random.default_rng(5)
    label = (rng.random(rows) < 0.5).astype(np.int64)
    size = np.where(label, rng.gamma(3, 200, rows), rng.gamma(3, 600, rows)) + 40
    time = np.where(label, rng.gamma(4, 1000, rows), rng.gamma(4, 4000, rows)) + 100
    columns = {"time": time, "rate": size * 1e6 / time, "size": size}
    return FlowTable(
        "flows", {n: np.rint(v).astype(np.int64) for n, v in columns.items()},
        (feature("time", "us"), feature("rate", "byte/s"), feature("size", "byte")),
        label, ("benign", "attack"), False, "sha",
    )  # fmt: skip


def experiment(recipe, **changed):
    return Experiment(table(), recipe.with_options(changed), seed=4, with_baselines=False)


def accuracy(model, rows, factor):
    names = model.input.features
    scores = model.scores(pack(model.input.encode(scaled(rows, names, factor))))
    return float((scores.argmax(axis=1) == rows.label).mean())


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_trained_on_copies_travels(family):
    unseen = table().rows(prepare(experiment(FAMILIES[family]), lambda _: None).parts.test)
    home, abroad = {}, {}
    for most in (1.0, 10.0):
        result = train(experiment(FAMILIES[family], augment=most))
        home[most] = accuracy(result.model, unseen, 1.0)
        abroad[most] = min(accuracy(result.model, unseen, f) for f in (0.1, 10.0))
        assert result.model.provenance.get("augment") == (None if most == 1 else "10")
    assert abroad[1.0] < home[1.0] - 0.2
    assert abroad[10.0] > abroad[1.0] + 0.1


@pytest.mark.slow
def test_only_training_rows_have_copies():
    notes = []
    plain, twice = (prepare(experiment(BINARY, augment=m), notes.append) for m in (1.0, 10.0))
    count = len(plain.train.label)
    assert len(twice.train.label) == len(twice.training_table) == 2 * count
    assert np.array_equal(twice.train.columns[:count], plain.train.columns)
    assert "copying the training rows on time scales of 1/10 to 10" in notes
    for part in ("validation", "test"):
        one, other = getattr(plain, part), getattr(twice, part)
        assert np.array_equal(one.columns, other.columns)
        assert np.array_equal(one.label, other.label)
    again = on_bits(twice, plain.spec, notes.append)
    assert np.array_equal(again.train.bits, plain.spec.encode(twice.training_table.features))
    assert np.array_equal(again.train.bits[:count], plain.train.bits)


def test_the_same_seed_gives_the_same_copies(few_rounds):
    one, again, plain = (
        prepare(experiment(BINARY, augment=most), lambda _: None).train.columns
        for most in (10.0, 10.0, 1.0)
    )
    assert np.array_equal(one, again) and len(one) == 2 * len(plain)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes():
    one, again = (train(experiment(BINARY, augment=10.0)).model for _ in range(2))
    assert one.digest == again.digest != train(experiment(BINARY)).model.digest


@pytest.mark.slow
def test_a_model_knows_its_own_traffic_and_not_the_copies():
    """Else the warning of foreign traffic would stay silent on it."""
    own_experiment = experiment(BINARY, augment=10.0)
    result, prepared = train(own_experiment), prepare(own_experiment, lambda _: None)
    own = own_experiment.table.rows(prepared.parts.train)
    spec = result.model.input
    bits = spec.encode(own.features)
    assert spec == spec.with_rates(bits, own.label, {n: own.features[n] for n in spec.features})


def test_a_table_without_times_has_no_copies(few_rounds):
    sizes = replace(experiment(BINARY, augment=10.0), table=table().only(["size"]))
    prepared = prepare(sizes, lambda _: None)
    assert len(prepared.train.label) == len(prepared.parts.train)
    assert "augment" not in sizes.provenance


@pytest.mark.slow
def test_a_kept_input_is_copied_too():
    narrow_model = train(experiment(BINARY, columns=("time",))).model
    own_experiment = replace(
        experiment(BINARY, columns=("size",), augment=10.0), keeps=narrow_model
    )
    prepared = prepare(own_experiment, lambda _: None)
    count = len(prepared.parts.train)
    assert not np.array_equal(prepared.train.bits[:count], prepared.train.bits[count:])


@pytest.mark.parametrize("most", [0.5, 0.0, -1.0, float("nan"), float("inf"), 1e6])
def test_a_range_that_is_none_is_refused(most):
    with pytest.raises(UsageError, match=r"augment must be in 1\.\.1000, got"):
        BINARY.with_options({"augment": most})


@pytest.mark.slow
def test_the_report_says_it():
    for most, shown in ((10.0, True), (1.0, False)):
        own_experiment = experiment(BINARY, augment=most)
        result = train(own_experiment)
        metrics = metrics_of(
            "x", "", own_experiment.table, 4, {"random": {"": result}}, [], {"": []}
        )
        assert metrics["augment"] == most
        page = summary_markdown(json.loads(json.dumps(metrics)))
        assert ("random factor of 1/10 to 10" in page) == shown


def test_the_deployable_default_has_copies_and_what_is_published_has_none():
    assert DEFAULT.augment > 10  # so that a tenth and ten times are within
    for name in ("published", "paper", "published-voting-trees"):
        assert RECIPES[name].augment == 1


@pytest.mark.parametrize("given", [{}, {"augment": 3.0}])
def test_families_within_a_budget_learn_from_the_same_rows(given):
    """Their boosted trees are trained once."""
    case = use_case("anomaly")
    request = TrainRequest(case.name, budget_bytes=400, overrides=given)
    recipes = (request.chosen_recipe(case), *request.rivals(case))
    assert len(recipes) > 1
    assert {recipe.augment for recipe in recipes} == {given.get("augment", DEFAULT.augment)}
