# SPDX-License-Identifier: Apache-2.0
"""A budget of bytes: every family within it, the best by validation rows, trees beside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from n3ic import plugins
from n3ic.datasets.iscx_tor2016 import DATASET
from n3ic.errors import UsageError
from n3ic.families.binary.learner import BinaryLearner
from n3ic.runs.checkpoints import experiment_digest, training_checkpoints
from n3ic.runs.experiment import train
from n3ic.runs.model_selection import select_within_budget
from n3ic.runs.preparation import Experiment
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.report import metrics_of, summary_markdown
from n3ic.training.recipe import Recipe, Training
from n3ic.usecases.base import use_case
from n3ic.usecases.request import TrainRequest, command_words
from n3ic.usecases.training import train_use_case

WEAK = Training(hidden=(2,), epochs=1, batch_size=64)


class Toy(BinaryLearner):
    """A family whose models are right on the stairs."""

    name, summary = "toy", "trees by another name"
    least = 16

    def within(self, recipe, given, budget, n_classes):
        if budget < self.least:
            raise UsageError("too few")
        return recipe.with_options(
            {"encoding": "tree", "bits": 3, "method": "trees", "trees": 1, "leaves": 9,
             "tree_bytes": 0}
        )  # fmt: skip


@pytest.fixture
def toy(monkeypatch):
    named, loaded, own = plugins.names, plugins.load, Toy()

    def load(group, name):
        return own if (group, name) == ("n3ic.learners", "toy") else loaded(group, name)

    def names(group):
        return (*named(group), "toy") if group == "n3ic.learners" else named(group)

    monkeypatch.setattr(plugins, "load", load)
    monkeypatch.setattr(plugins, "names", names)
    return own


@pytest.fixture(scope="module")
def stairs():
    """A table that a tree of three cuts tells exactly."""
    table = DATASET.load().rows(np.arange(0, 14_000, 14))
    x, y = np.random.default_rng(3).integers(0, 9, (2, len(table)))
    label = np.where(x < 4, y < 3, y >= 6) * 1
    columns = {**table.features, table.usable[0]: x, table.usable[1]: y}
    return replace(table, features=columns, label=label, classes=("a", "b"))


def experiment(table, **changed):
    recipe = Recipe("r", "", "quantile", bits=2, columns=table.usable[:2], training=WEAK)
    base_experiment = Experiment(table, recipe, seed=2, with_baselines=False, budget=120)
    return replace(base_experiment, **changed)


@pytest.mark.slow
def test_the_family_that_is_right_on_more_validation_rows_is_kept(stairs, toy, tmp_path):
    alone = experiment(stairs)
    weak = train(alone)
    other = toy.within(replace(alone.recipe, family="toy"), set(), 120, 2)
    both = replace(alone, rivals=(other,))
    result = train(both)
    assert result.recipe.family == "toy"
    assert result.validation.accuracy == 1 > weak.validation.accuracy
    winner, *others = result.candidates
    assert winner.kept and winner.bytes == result.model.total_bytes <= 120
    assert not any(c.kept for c in others)
    shares = [c.accuracy for c in others]
    assert shares == sorted(shares, reverse=True)
    assert {c.name: c.exported for c in others} == {
        "binary network": True, "tree, packed": False, "forest, packed": False,
    }  # fmt: skip
    assert experiment_digest(both) != experiment_digest(alone)
    with training_checkpoints(tmp_path / "run", lambda text: None) as parts:
        parts.write(both, ((2,),), {(2,): result})
        read = parts.find(both, ((2,),))[2,]
    assert (read.candidates, read.recipe) == (result.candidates, result.recipe)


def test_a_packed_tree_that_is_better_is_said_and_not_kept(stairs):
    result = train(experiment(stairs))
    winner = result.candidates[0]
    assert winner.name == "binary network"
    (tree,) = (c for c in result.candidates if c.name == "tree, packed")
    assert tree.accuracy == 1 > winner.accuracy
    notes = " ".join(result.notes)
    assert "tree, packed: better on validation rows" in notes and "no target takes it" in notes


@pytest.mark.slow
def test_classes_that_are_weighed_are_compared_by_their_mean_share(stairs, toy):
    rare = stairs.rows(np.flatnonzero((stairs.label == 0) | (np.arange(len(stairs)) % 5 == 0)))
    own_experiment = experiment(rare)
    other = toy.within(replace(own_experiment.recipe, family="toy"), set(), 120, 2)
    weighed = own_experiment.recipe.with_options({"class_weight": "balanced"})
    for recipe, figure in ((own_experiment.recipe, "accuracy"), (weighed, "balanced")):
        _, tried, _ = select_within_budget(
            replace(own_experiment, recipe=recipe, rivals=(other,)), TrainingProgress()
        )
        exported = [c for c in tried if c.exported]
        assert getattr(tried[0], figure) == max(getattr(c, figure) for c in exported)


def test_a_model_that_takes_more_than_the_budget_is_not_kept(stairs):
    with pytest.raises(UsageError, match="no model fits 4 bytes: binary network"):
        train(experiment(stairs, budget=4))


def test_a_new_family_takes_part_by_itself_unless_one_is_named(toy):
    case = use_case("anomaly")
    asked = TrainRequest("anomaly", budget_bytes=200)
    others = {other.family: other for other in asked.rivals(case, 2)}
    assert set(others) == {"tables", "toy", "trees"}
    assert others["toy"].training.method == "trees"
    assert asked.chosen_recipe(case).family == "binary"
    assert TrainRequest("anomaly", overrides={"family": "toy"}, budget_bytes=200).rivals(case) == ()
    assert TrainRequest("anomaly").rivals(case) == ()
    toy.least = 300  # it has no model of 200 bytes: the others go on
    assert [other.family for other in asked.rivals(case, 2)] == ["tables", "trees"]


def test_a_family_without_sizes_has_no_budget():
    request = TrainRequest("anomaly", overrides={"family": "spn"}, budget_bytes=200)
    with pytest.raises(UsageError, match="does not choose the size of family spn; take binary"):
        request.chosen_recipe(use_case("anomaly"))


def checked_metrics(result, budget, table):
    """The metrics of a result, checked against its budget."""
    every = {"random": {"": result}}
    metrics = metrics_of("x", "", table, 0, every, [], {"": []})
    assert 0 < metrics["memory"]["total_bytes"] <= budget
    names = {c["name"]: c for c in metrics["candidates"]}
    assert {"binary network", "tree, packed", "forest, packed"} <= set(names)
    assert all(c["bytes"] == sum(c["memory"].values()) <= budget for c in names.values())
    forest = metrics["baselines"]["random_forest"]
    assert forest["bytes"] > budget and forest["accuracy"] > 0.9
    assert metrics["baselines"]["tree_same_cuts"]["bytes"] is None
    page = summary_markdown(metrics)
    assert all(name in page for name in (*names, "random_forest"))
    return names


@pytest.mark.slow
def test_metrics_and_report_tell_all_that_was_tried_and_the_bytes(stairs, small_baselines):
    result = train(experiment(stairs, with_baselines=True))
    # The encoding was asked for.
    assert "tree as a binary network" not in checked_metrics(result, 120, stairs)
    grown = replace(result.recipe, tree_bytes=120)
    result = train(experiment(stairs, with_baselines=True, recipe=grown))
    assert result.model.provenance["weights"] == "a decision tree's"
    names = checked_metrics(result, 120, stairs)
    assert names["tree as a binary network"]["kept"] and not names["binary network"]["kept"]


@pytest.mark.slow
@pytest.mark.parametrize("budget", [30, 240])
def test_a_run_fits_its_budget(stairs, budget, tmp_path, small_baselines):
    few = {"columns": stairs.usable[:4]}
    request = TrainRequest(
        "classification", table=stairs, overrides=few, budget_bytes=budget, out=tmp_path / "run"
    )
    metrics = train_use_case(request).metrics
    assert 0 < metrics["memory"]["total_bytes"] <= budget
    assert {c["name"] for c in metrics["candidates"]} > {"binary network", "tree, packed"}
    assert "tree, packed" in (tmp_path / "run" / "report.md").read_text()


def test_the_command_asks_for_the_budget_again():
    case = use_case("anomaly")
    request = TrainRequest("anomaly", budget_bytes=200, overrides={"gce_q": 0.5, "bits": None})
    words = command_words(request, case, request.chosen_recipe(case), {}, "random") or []
    assert {"--budget-bytes=200", "--gce-q=0.5"} <= {*words}
    assert not any(word.startswith(("--bits", "--hidden", "--tree-bytes")) for word in words)
