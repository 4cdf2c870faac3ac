# SPDX-License-Identifier: Apache-2.0
"""Boosting of many classes that collapses: it ends before, and neither teaches nor chooses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from n3ic.data.table import Feature, FlowTable
from n3ic.runs.experiment import train_prepared
from n3ic.runs.preparation import Experiment, prepare
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.report import warnings_of
from n3ic.training.input_bits import (
    boosted_fields,
    boosted_trees,
    fault_of,
    greedy_fields,
    tree_cuts,
    tree_fields,
)
from n3ic.training.recipe import Recipe, Training

pytest.importorskip("sklearn")
ROUNDS = 20


@pytest.fixture(scope="module", name="table")
def table_fixture() -> FlowTable:
    """30 classes, most of them rare, in few cells of three columns; one label of 100 is wrong."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 31)
    label = rng.choice(30, 6000, p=share / share.sum())
    rows = rng.integers(0, 6, (30, 3))[label]
    label = np.where(rng.random(6000) < 0.01, rng.integers(0, 30, 6000), label)
    return FlowTable(
        name="rare",
        features=dict(zip("abc", rows.T.astype(np.int64), strict=True)),
        catalogue=tuple(Feature(n, n, "", "", 1.0, 8, True, "counted") for n in "abc"),
        label=label.astype(np.int64),
        classes=tuple(f"class{i:02}" for i in range(30)),
        synthetic=True,
        sha256="rare",
    )


@pytest.fixture(scope="module", name="trees")
def trees_fixture(table):
    return boosted_trees(table.features, table.label, rounds=ROUNDS)


@pytest.mark.slow
def test_boosting_that_collapses_ends_before(table, trees):
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    columns = table.matrix(tuple(table.features))
    every = HistGradientBoostingClassifier(max_iter=ROUNDS, early_stopping=False, random_state=0)
    with threadpool_limits(1):
        worst = (every.fit(columns, table.label).predict(columns) == table.label).mean()
    accuracy = (trees.predict(columns) == table.label).mean()
    assert worst < 0.6 < 0.9 < accuracy
    assert fault_of(trees)
    assert 1 <= trees.n_iter_ < ROUNDS


def test_boosting_that_does_not_collapse_keeps_its_rounds():
    rng = np.random.default_rng(1)
    columns = {"a": rng.integers(0, 50, 600), "b": rng.integers(0, 50, 600)}
    label = ((columns["a"] > 25) ^ (rng.random(600) < 0.2)).astype(np.int64)  # it overfits
    trees = boosted_trees(columns, label, rounds=30)
    assert (trees.n_iter_, fault_of(trees)) == (30, "")


def noisy(seed, rows, classes, right):
    """One column of four tells the class of a share of the rows."""
    rng = np.random.default_rng(seed)
    columns = {name: rng.integers(0, 40, rows) for name in "abcd"}
    classes_of_rows = columns["a"] * classes // 40
    label = np.where(rng.random(rows) < right, classes_of_rows, rng.integers(0, classes, rows))
    return columns, label


def test_rounds_that_do_worse_on_validation_rows_are_left_out():
    (columns, label), validation = noisy(0, 400, 4, 0.4), noisy(1, 2000, 4, 0.4)
    every = boosted_trees(columns, label, rounds=30)
    ended = boosted_trees(columns, label, held=validation, rounds=30)
    assert (every.n_iter_, fault_of(every)) == (30, "")
    assert 1 <= ended.n_iter_ < 30
    matrix = np.stack([*validation[0].values()], 1)
    right, more = ((trees.predict(matrix) == validation[1]).mean() for trees in (every, ended))
    assert more > right + 0.02
    assert "do worse" in fault_of(ended)


@pytest.mark.parametrize("classes", [2, 3])
def test_rounds_that_are_sound_are_those_of_one_fit(classes):
    from sklearn.ensemble import HistGradientBoostingClassifier

    (columns, label), validation = noisy(0, 400, classes, 0.95), noisy(1, 2000, classes, 0.95)
    mine = boosted_trees(columns, label, held=validation, rounds=20)
    one = HistGradientBoostingClassifier(max_iter=20, early_stopping=False, random_state=0)
    one.fit(np.stack([*columns.values()], 1), label)
    assert (mine.n_iter_, fault_of(mine)) == (20, "")
    for rounds in zip(mine._predictors, one._predictors, strict=True):
        for tree, other in zip(*rounds, strict=True):
            assert np.array_equal(tree.nodes, other.nodes)


def test_trees_that_are_worse_than_the_majority_choose_no_cuts():
    columns, _ = noisy(0, 600, 2, 0)
    validation, _ = noisy(1, 3000, 2, 0)
    rare, rare_validation = (np.random.default_rng(n).random(n) < 0.3 for n in (600, 3000))
    label, validation_label = rare.astype(np.int64), rare_validation.astype(np.int64)
    trees = boosted_trees(columns, label, held=(validation, validation_label), rounds=40)
    accuracy = (trees.predict(np.stack([*validation.values()], 1)) == validation_label).mean()
    assert accuracy < (validation_label == 0).mean() - 0.02
    assert trees.n_iter_ == 40
    assert f"{100 * accuracy:.1f}" in fault_of(trees)
    assert boosted_fields(columns, label, 6, trees=trees) == tree_fields(columns, label, 6)


def test_a_collapsed_boosting_chooses_no_cuts(table, trees):
    columns, label = table.features, table.label
    of_tree = tree_fields(columns, label, 6)
    assert boosted_fields(columns, label, 6, trees=trees) == of_tree
    known = {*tree_cuts(columns, label, 128)}
    chosen = greedy_fields(columns, label, 6, trees=trees)
    assert {(f.feature, cut) for f in chosen for cut in f.cuts} <= known


def test_a_collapsed_teacher_teaches_nobody_and_the_report_says_so(table, trees):
    training = Training(hidden=(8,), epochs=1, batch_size=1024, distill=0.5)
    experiment = Experiment(table, Recipe("r", "", "quantile", 8, training=training))
    notes: list[str] = []
    prepared = prepare(replace(experiment, with_baselines=False), notes.append, trees)
    assert prepared.teacher is None
    result = train_prepared(prepared, TrainingProgress())
    (note,) = result.notes
    assert note == fault_of(trees)
    assert note in notes
    assert note in warnings_of({"no_better_than": "", "notes": list(result.notes)})
