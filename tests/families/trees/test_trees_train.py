# SPDX-License-Identifier: Apache-2.0
"""``--family trees`` from a table of flows to a run, within a budget of bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.data.table import Feature, FlowTable
from n3ic.errors import UsageError
from n3ic.families.trees.growth import grown
from n3ic.families.trees.learner import LEARNER
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.rounding import TreesRounder
from n3ic.families.trees.settings import TreesTraining
from n3ic.families.trees.sizing import sizes
from n3ic.model.bits import pack
from n3ic.model.inputs import Field, InputSpec
from n3ic.runs.experiment import TrainingResult, train
from n3ic.runs.preparation import Experiment
from n3ic.training.recipe import Recipe
from n3ic.usecases.base import use_case
from n3ic.usecases.request import TrainRequest
from n3ic.usecases.training import train_use_case

pytest.importorskip("sklearn")
NAMES = ("left", "middle", "right")
SMALL = {"boosting_rounds": 6, "boosted_leaves": 4, "boosting_rate": 0.5}
QUICK = Recipe("quick", "", "quantile", 24, family="trees").with_options(SMALL)


def flows(classes: int = 2, rows: int = 400) -> FlowTable:
    """Flows whose class tells on which side of some planes their values lie."""
    rng = np.random.default_rng(1)
    values = rng.gamma(2, 300, (rows, 3)).astype(np.int64)
    label = (values[:, 0] + values[:, 1] > 1200).astype(np.int64)
    label += (classes > 2) * (values[:, 2] > 700)
    return FlowTable(
        name="flows",
        features=dict(zip(NAMES, values.T, strict=True)),
        catalogue=tuple(Feature(n, n, "", "", 1.0, 32, True, "counted") for n in NAMES),
        label=label,
        classes=("mail", "web", "call", "none")[:classes],
        synthetic=True,
        sha256="1",
    )


def learned(table: FlowTable, recipe: Recipe = QUICK) -> TrainingResult:
    return train(Experiment(table, recipe, with_baselines=False))


def shares(model: TreesModel, table: FlowTable) -> float:
    scores = model.scores(pack(model.input.encode(table.features)))
    return float((scores.argmax(axis=1) == table.label).mean())


@pytest.mark.parametrize(("classes", "least"), [(2, 0.85), (3, 0.75), (4, 0.75)])
def test_a_table_of_flows_gives_a_model_with_its_figures(classes: int, least: float) -> None:
    """Of four classes, the last has no row: it never wins."""
    table = flows(classes)
    result = learned(table)
    model = result.model
    assert isinstance(model, TreesModel) and model.classes == table.classes
    assert 1 <= len(model.sizes) <= 6 * (classes if classes < 4 else 3) * (classes > 2) + 6
    assert (model.sizes < 4).all()
    assert result.test.accuracy > least - 0.1 and shares(model, table) > least
    # Cuts that no node asks are gone, leaves take a byte, and rates are those of the cuts left.
    assert model.input.n_bits == len(np.unique(model.bits)) < 24
    assert np.abs(model.leaves).max() <= 127
    assert all(len(f.rates) == f.width for f in model.input.fields)
    if classes == 4:
        scores = model.scores(pack(model.input.encode(table.features)))
        assert (scores[:, 3] < scores[:, :3].min(axis=1)).all()


def test_training_again_gives_the_same_model() -> None:
    assert learned(flows(3)).model.digest == learned(flows(3)).model.digest


def rounder_of(classes: int) -> TreesRounder:
    table = flows(classes, 1500)
    spec = InputSpec(tuple(Field.thermometer(n, range(50, 1500, 50)) for n in NAMES))
    bits = spec.encode(table.features)
    trees = grown(bits, table.label, spec, classes, asked=range(spec.n_bits),
                  leaves=4, rounds=30, rate=0.5, seed=0)  # fmt: skip
    return TreesRounder(trees, spec, table.classes, (bits, table.label))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("budget", [60, 200])
def test_trees_fit_a_budget_and_one_more_does_not(classes: int, budget: int) -> None:
    rounder = rounder_of(classes)
    count = rounder.fitting(budget)
    assert 0 < count < rounder.n_trees == rounder.fitting(0)
    assert rounder.rounded(count).model.total_bytes <= budget
    assert rounder.rounded(count + 1).model.total_bytes > budget


def test_bytes_of_leaves_keep_the_decisions_of_real_ones() -> None:
    rounder = rounder_of(2)
    bits, label = rounder.rows
    whole = rounder.rounded(rounder.n_trees)
    classes = whole.model.infer(pack(bits[:, list(whole.source_bits)])).classes
    real = np.full(len(bits), rounder.grown.base[1])
    reached = rounder._whole.reached(pack(bits))
    real += rounder.grown.values[reached].sum(axis=1)
    assert (classes == (real > 0)).mean() > 0.99
    assert (classes == label).mean() > 0.95


def test_nodes_ask_only_the_cuts_that_are_allowed() -> None:
    rounder = rounder_of(2)
    bits, label = rounder.rows
    asked = {3, 7, 40, 60}
    trees = grown(bits, label, rounder.spec, 2, asked=asked, leaves=4, rounds=5, rate=0.5, seed=0)
    assert {*trees.trees.bits} <= asked
    assert {*np.flatnonzero(trees.gains).tolist()} == {*trees.trees.bits}


@pytest.mark.slow
def test_a_run_has_a_report_and_keeps_its_budget(tmp_path: Path) -> None:
    given = {"family": "trees", "boosted_leaves": 4, "boosting_rate": 0.5, "boosted_cuts": 9}
    request = TrainRequest(
        "flows", table=flows(), recipe=replace(QUICK, encoding="boosted"), overrides=given,
        budget_bytes=120, out=tmp_path / "run",
    )  # fmt: skip
    run = train_use_case(request)
    assert 0 < run.metrics["memory"]["total_bytes"] <= 120
    assert run.metrics["candidates"][0]["name"] == "decision trees"
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["model"]["family"] == "decision-trees" and metrics["test"]["accuracy"] > 0.6
    assert "decision trees" in (tmp_path / "run" / "report.md").read_text()


def test_a_budget_takes_part_of_the_trees_by_itself() -> None:
    case = use_case("anomaly")
    rivals = {r.family: r for r in TrainRequest("anomaly", budget_bytes=400).rivals(case)}
    assert rivals["trees"].settings.boosted_bytes == 400
    weighed = {"class_weight": "balanced"}
    other = TrainRequest("anomaly", budget_bytes=400, overrides=weighed).rivals(case)
    assert "trees" not in {r.family for r in other}


@pytest.mark.parametrize(
    ("given", "budget", "said"),
    [
        ({}, 12, "12 bytes hold no tree for 2 classes; take 14 bytes or more"),
        ({"boosted_bytes": 300}, 400, "sets the boosted_bytes of trees"),
        ({"class_weight": "balanced"}, 400, "applies to binary networks only"),
    ],
)
def test_budgets_that_cannot_be_kept_are_refused(
    given: dict[str, object], budget: int, said: str
) -> None:
    request = TrainRequest("anomaly", overrides={"family": "trees", **given}, budget_bytes=budget)
    with pytest.raises(UsageError, match=said):
        request.chosen_recipe(use_case("anomaly"))


def test_the_least_budget_holds_a_tree() -> None:
    table = flows(3)
    least = 9 + 1 + 4 * 3
    recipe = LEARNER.within(replace(QUICK, encoding="quantile"), set(), least, 3)
    assert 0 < learned(table, recipe).model.total_bytes <= least


def test_sizes_are_those_given_or_several_that_fit() -> None:
    given = TreesTraining(boosted_leaves=6, boosted_cuts=9, boosting_rate=0.5, boosted_bytes=400)
    (size,) = sizes(given, 50)
    assert size == (6, 9, 24, 0.5)
    several = sizes(TreesTraining(boosted_bytes=2000), 256)
    assert {s.leaves for s in several} == {16, 31, 63}
    assert {s.rate for s in several} == {0.3, 0.8}
    assert {s.cuts for s in several} == {125, 200}
    assert {s.cuts for s in sizes(TreesTraining(), 77)} == {77}
    assert {s.leaves for s in sizes(TreesTraining(boosted_bytes=50_000), 256)} == {63}


@pytest.mark.parametrize(
    "wrong",
    [{"boosting_rounds": 0}, {"boosting_rate": 1.5}, {"boosted_leaves": 1}, {"boosted_cuts": -1}],
)
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} must be"):
        TreesTraining(**wrong)
