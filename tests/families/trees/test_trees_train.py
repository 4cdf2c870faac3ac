# SPDX-License-Identifier: Apache-2.0
"""``--family trees`` from a table of flows to a run, within a budget of bytes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.data.table import Feature, FlowTable
from n3ic.errors import UsageError
from n3ic.families.trees.growth import (
    PRIOR,
    Derivatives,
    GroupedRows,
    GrownTrees,
    Growth,
    grown,
)
from n3ic.families.trees.learner import LEARNER
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.rounding import TreesRounder
from n3ic.families.trees.settings import TreesTraining
from n3ic.families.trees.sizing import GrowthSize, best_size, first_sizes
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
    assert model.leaves.min() >= -128 and model.leaves.max() <= 127
    assert all(len(f.rates) == f.width for f in model.input.fields)
    if classes == 4:
        scores = model.scores(pack(model.input.encode(table.features)))
        assert (scores[:, 3] < scores[:, :3].min(axis=1)).all()


def test_training_again_gives_the_same_model() -> None:
    assert learned(flows(3)).model.digest == learned(flows(3)).model.digest


SPEC = InputSpec(tuple(Field.thermometer(n, range(50, 1500, 50)) for n in NAMES))


def groups_of(classes: int, rows: int = 1500) -> GroupedRows:
    table = flows(classes, rows)
    return GroupedRows.of(SPEC.encode(table.features), table.label, SPEC, classes)


def rounder_of(classes: int, leaf_bits: int = 8, **how: float) -> TreesRounder:
    groups = groups_of(classes)
    trees = grown(groups, Growth(leaves=4, rounds=30, rate=0.5)._replace(**how))
    return TreesRounder(trees, groups, flows(classes).classes, leaf_bits)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("budget", [60, 200])
def test_splits_fit_a_budget_and_one_more_does_not(classes: int, budget: int) -> None:
    rounder = rounder_of(classes)
    count = rounder.fitting(budget)
    assert 0 < count < rounder.grown.splits == rounder.fitting(0)
    assert rounder.rounded(count).model.total_bytes <= budget
    assert rounder.rounded(count + 1).model.total_bytes > budget


def test_bytes_of_leaves_keep_the_decisions_of_real_ones() -> None:
    rounder = rounder_of(2)
    trees, groups = rounder.grown, rounder.rows
    whole = rounder.rounded(trees.splits)
    column, level = groups.bits.column, groups.bits.level
    bits = (groups.levels[:, column] > level)[:, list(whole.source_bits)]
    classes = whole.model.infer(pack(bits)).classes
    real = trees.base[1] + trees.values[trees.reached].sum(axis=1)
    assert (classes == (real > 0)).mean() > 0.99
    assert shares(whole.model, flows(2, 1500)) > 0.95


def test_fitted_biases_of_several_classes_are_right_as_often_as_real_leaves() -> None:
    """Of few leaves and classes of unequal sizes, where biases decide as much as leaves."""
    groups = groups_of(3)
    groups = replace(groups, counts=groups.counts * [[40, 1, 5]])
    trees = grown(groups, Growth(leaves=2, rounds=2, rate=0.3))
    whole = TreesRounder(trees, groups, flows(3).classes, 8).rounded(trees.splits)
    real = np.tile(trees.base, (len(trees.reached), 1))
    for tree, of_class in enumerate(trees.of_class.tolist()):
        real[:, of_class] += trees.values[trees.reached[:, tree]]
    column, level = groups.bits.column, groups.bits.level
    bits = (groups.levels[:, column] > level)[:, list(whole.source_bits)]
    classes = whole.model.infer(pack(bits)).classes
    right, of_real = (
        groups.counts[np.arange(len(bits)), each].sum() / groups.counts.sum()
        for each in (classes, real.argmax(axis=1))
    )
    assert right > of_real > 0.8


@pytest.mark.parametrize("best", range(-2, 3))
def test_the_bias_of_two_classes_is_the_best_within_two_of_the_fitted_one(best: int) -> None:
    """Of two rows whose sums are neighbours, only one bias sets the second one apart."""
    rounder = rounder_of(2)
    groups = replace(rounder.rows, counts=np.array([[1.0, 0.0], [0.0, 1.0]]))
    bias = replace(rounder, rows=groups)._best_bias(np.array([6, 7]) - best, -7 + 1)
    assert bias == best - 6


@pytest.mark.parametrize("leaf_bits", [1, 2, 4])
def test_leaves_of_few_bits_take_them_and_keep_their_signs(leaf_bits: int) -> None:
    rounder = rounder_of(2, leaf_bits, leaves=40, rounds=1, rate=1)
    model = rounder.rounded(rounder.grown.splits).model
    assert np.ptp(model.leaves) < 1 << leaf_bits
    # A single tree says the class of most training rows in a leaf, whatever the bits.
    assert shares(model, flows(2, 1500)) > 0.97


def test_a_leaf_of_one_bit_votes_for_the_class_of_most_of_its_rows() -> None:
    """Also where that is not the class that the leaf makes likelier than it was."""
    rows = np.repeat([[0], [1], [2]], [900, 100, 200], axis=0)
    label = np.concatenate([np.zeros(890), np.ones(10), np.zeros(60), np.ones(40), np.ones(200)])
    spec = InputSpec((Field.thermometer("a", (1, 2)),))
    groups = GroupedRows.of(spec.encode({"a": rows[:, 0]}),
                            label.astype(np.int64), spec, 2)  # fmt: skip
    trees = grown(groups, Growth(leaves=3, rounds=1, rate=1.0))
    model = TreesRounder(trees, groups, ("x", "y"), 1).rounded(trees.splits).model
    words = model.encode({"a": [0, 1, 2]})
    assert model.infer(words).classes.tolist() == [0, 0, 1]


def offsets_by_hand(
    scores: np.ndarray, begin: np.ndarray, counts: np.ndarray, free: list[int]
) -> np.ndarray:
    """What is added to each class's scores, by five Newton steps of at most 1, row by row."""
    offset = begin.copy()
    for _ in range(5):
        slopes, curves = np.zeros(len(begin)), np.zeros(len(begin))
        for score, of_classes in zip(scores, counts, strict=True):
            powers = [math.exp(v) for v in score + offset]
            chances = np.array(powers) / sum(powers)
            slopes += of_classes.sum() * chances - of_classes
            curves += of_classes.sum() * chances * (1 - chances)
        for k in free:
            offset[k] -= min(1, max(-1, slopes[k] / (curves[k] + 1e-6)))
    return offset


@pytest.mark.parametrize(("classes", "leaf_bits", "splits"), [(2, 8, 30), (2, 2, 7), (2, 4, 3),
                                                              (3, 8, 40), (3, 3, 13)])  # fmt: skip
def test_a_rounded_model_is_that_of_the_formulas(classes: int, leaf_bits: int, splits: int) -> None:
    """Leaves are whole steps below, the largest but 0.5 % fill the range; biases are fitted."""
    rounder = rounder_of(classes, leaf_bits)
    trees, rows = rounder.grown, rounder.rows
    model = rounder.rounded(splits)
    used = [t for t in range(len(trees.roots)) if trees.turns[trees.roots[t]] < splits]
    ends = trees.reached[:, used].copy()  # the place where a row stops after so many splits
    for row, column in np.ndindex(*ends.shape):
        while (above := trees.parents[ends[row, column]]) >= 0 and trees.turns[above] >= splits:
            ends[row, column] = above
    values, base = trees.values, trees.base
    if len(used) == classes - 1 == 1:
        values, base = values + base[1], np.zeros(2)
    half = 2 ** (leaf_bits - 1)
    sizes = sorted(abs(values[place]) for place in {*ends.ravel().tolist()})
    at = 0.995 * (len(sizes) - 1)
    low = sizes[int(at)]
    step = (low + (at - int(at)) * (sizes[min(int(at) + 1, len(sizes) - 1)] - low)) / half
    sums = np.zeros((len(ends), classes), dtype=np.int64)
    begin = base.copy()
    for column, tree in enumerate(used):
        for row, place in enumerate(ends[:, column].tolist()):
            whole = min(half - 1, max(-half, math.floor(values[place] / step)))
            sums[row, trees.of_class[tree]] += whole
        begin[trees.of_class[tree]] += step / 2
    free = [1] if classes == 2 else [*range(classes)]
    offset = offsets_by_hand(step * sums, begin, rows.counts, free)
    bias = [round(o / step) for o in offset]
    if classes == 2:
        best = max(
            (0, -1, 1, -2, 2),
            key=lambda k: sum(
                each[int(total + bias[1] + k > 0)]
                for each, total in zip(rows.counts, sums[:, 1], strict=True)
            ),
        )
        bias[1] += best
    column, level = rows.bits.column, rows.bits.level
    bits = (rows.levels[:, column] > level)[:, list(model.source_bits)]
    scores = model.model.scores(pack(bits))
    expected = sums + bias
    assert (scores[:, -1] - scores[:, 0]).tolist() == (expected[:, -1] - expected[:, 0]).tolist()
    assert (
        classes == 2 or (scores - scores[:, :1]).tolist() == (expected - expected[:, :1]).tolist()
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_the_best_count_of_splits_is_that_of_the_fewest_errors(classes: int) -> None:
    rounder = rounder_of(classes, rounds=8)
    trees, rows = rounder.grown, rounder.rows
    right = []
    for count in trees.ends().tolist():
        whole = [t for t in range(len(trees.roots)) if trees.turns[trees.roots[t]] < count]
        hits = 0.0
        for row, of_classes in enumerate(rows.counts):
            scores = trees.base.copy()
            for tree in whole:
                scores[trees.of_class[tree]] += trees.values[trees.reached[row, tree]]
            hits += of_classes[int(np.argmax(scores))]
        right.append(hits)
    assert rounder.best_count(rows) == trees.ends()[right.index(max(right))]


@pytest.mark.parametrize("classes", [2, 3])
def test_training_rows_reach_the_leaves_that_growth_says(classes: int) -> None:
    rounder = rounder_of(classes)
    assert np.array_equal(rounder.grown.reached, rounder.grown.reach(rounder.rows))


def test_the_first_splits_are_a_growth_that_stopped_there() -> None:
    whole, short = rounder_of(2, rounds=9).grown, rounder_of(2, rounds=2).grown
    assert short.splits < whole.splits
    ends = whole.stops(short.splits)[whole.reached[:, : len(short.roots)]]
    assert np.array_equal(ends, short.reached)
    assert whole.trees_of(short.splits) == len(short.roots)
    part = whole.stops(1)[whole.reached[:, :1]]
    assert {*part.ravel().tolist()} == {1, 2}  # the root's sides


def test_a_first_split_is_the_one_of_least_loss() -> None:
    """Against a search over all bits, with the sums of each side written out."""
    groups = groups_of(2)
    trees = grown(groups, Growth(leaves=2, rounds=1, rate=1.0))
    table = flows(2, 1500)
    bits, label = SPEC.encode(table.features), table.label
    share = label.mean()

    def worth(rows: np.ndarray) -> float:
        return float((label[rows] - share).sum() ** 2 / (rows.sum() * share * (1 - share) + PRIOR))

    gains = [worth(bits[:, b]) + worth(~bits[:, b]) for b in range(SPEC.n_bits)]
    assert trees.bits[0] == int(np.argmax(gains))
    ones = bits[:, trees.bits[0]]
    step = (label[ones] - share).sum() / (ones.sum() * share * (1 - share) + PRIOR)
    assert trees.values[2] == pytest.approx(step)


def test_a_price_and_a_limit_of_cuts_make_trees_share_them() -> None:
    free, priced, limited = (rounder_of(2, **how).grown
                             for how in ({}, {"price": 1.0}, {"cuts": 5}))  # fmt: skip

    def cuts(trees: GrownTrees) -> int:
        return len(np.unique(trees.bits[trees.turns < min(priced.splits, free.splits)]))

    assert cuts(priced) < cuts(free)
    assert len(np.unique(limited.bits)) == 1 + 5  # and -1 for leaves
    assert len(limited.roots) > 5


def test_packed_derivatives_are_those_that_were_packed() -> None:
    rng = np.random.default_rng(0)
    slopes, curves = rng.normal(size=5000), rng.random(5000)
    both = Derivatives.of(slopes, curves)
    for rows in (slice(None), slice(0, 1), slice(70, 900)):
        sums = both.unpacked(both.packed[rows].sum())
        assert sums[0] == pytest.approx(slopes[rows].sum(), abs=0.01)
        assert sums[1] == pytest.approx(curves[rows].sum(), abs=0.01)


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
    ("given", "budget", "message"),
    [
        ({}, 10, "10 bytes hold no tree for 2 classes; take 12 bytes or more"),
        ({"boosted_bytes": 300}, 400, "sets the boosted_bytes of trees"),
        ({"class_weight": "balanced"}, 400, "only binary networks weigh classes"),
    ],
)
def test_budgets_that_cannot_be_kept_are_refused(
    given: dict[str, object], budget: int, message: str
) -> None:
    request = TrainRequest("anomaly", overrides={"family": "trees", **given}, budget_bytes=budget)
    with pytest.raises(UsageError, match=message):
        request.chosen_recipe(use_case("anomaly"))


def test_a_budget_chooses_among_cuts_of_boosting_and_of_one_tree() -> None:
    """Values of which boosting's quantiles tell 255 apart, and whose class depends on one value."""
    rng = np.random.default_rng(2)
    values = rng.permutation(np.arange(1, 8001))
    table = replace(
        flows(2, 8000),
        features=dict(zip(NAMES, [values, *rng.integers(0, 9, (2, 8000))], strict=True)),
        label=(values >= 4321).astype(np.int64),
    )
    recipe = replace(QUICK, encoding="boosted").with_options({"boosted_bytes": 60})
    model = learned(table, recipe).model
    assert shares(model, table) > 0.9995 and model.total_bytes <= 60


def test_the_least_budget_holds_a_tree() -> None:
    table = flows(3)
    least = 8 + 4 * 3
    recipe = LEARNER.within(replace(QUICK, encoding="quantile"), set(), least, 3)
    assert 0 < learned(table, recipe).model.total_bytes <= least


def test_sizes_are_those_given_or_several_that_fit() -> None:
    given = TreesTraining(boosted_leaves=6, boosting_rate=0.5, boosted_bytes=400)
    (size,) = first_sizes(given, 1)
    assert size[:2] == (6, 0.5)
    assert {s.leaves for s in first_sizes(TreesTraining(boosted_bytes=300), 1)} == {31, 63, 4096}
    assert {s.leaves for s in first_sizes(TreesTraining(), 1)} == {8, 31}
    single = first_sizes(TreesTraining(boosted_bytes=300, boosting_rounds=50), 1)[-1]
    assert (single.rounds, single.leaf_bits) == (1, 1)
    large = first_sizes(TreesTraining(boosted_bytes=50_000), 1)
    assert {s.leaves for s in large} == {31, 63, 127} and all(s.rate < 0.5 for s in large)


def test_a_search_finds_a_size_that_is_best_in_each_value() -> None:
    settings = TreesTraining(boosted_bytes=8000)
    tried = []

    def worth(size: GrowthSize) -> float:
        tried.append(size)
        return (size.leaves == 63) + (size.price == 0.02) + (size.leaf_bits == 4) - size.rate

    best = best_size(settings, 1, worth)
    assert (best.leaves, best.price, best.leaf_bits) == (63, 0.02, 4)
    assert best.rate == min(size.rate for size in tried if size.leaves == 63)
    assert len({*tried}) == len(tried)


@pytest.mark.parametrize(
    "wrong",
    [{"boosting_rounds": 0}, {"boosting_rate": 1.5}, {"boosted_leaves": 1}, {"boosted_cuts": -1}],
)
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} must be"):
        TreesTraining(**wrong)
