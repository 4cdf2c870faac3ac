# SPDX-License-Identifier: Apache-2.0
"""A run of few input bits, and the warning of a network that learned nothing."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.datasets.iscx_tor2016 import DATASET
from n3ic.model.network import binary_network
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.runs.report import warnings_of
from n3ic.training.recipe import Recipe, Training
from n3ic.usecases.request import TrainRequest
from n3ic.usecases.training import train_use_case


@pytest.fixture(scope="module")
def table():
    return DATASET.load().rows(np.arange(0, 14_000, 5))


def run(table, out, **given):
    return train_use_case(TrainRequest("classification", table=table, overrides=given, out=out))


@pytest.mark.exhaustive
def test_few_bits_alone_give_a_network_and_all_its_figures(table, tmp_path):
    made = run(table, tmp_path / "run", bits=6)
    metrics = made.metrics
    assert metrics["model"]["shape"][0] == 6
    assert 6 + 1 <= metrics["memory"]["input_bytes"] < 4 * 6
    tree = metrics["baselines"]["tree_same_cuts"]["accuracy"]
    assert metrics["test"]["accuracy"] > tree - 0.05
    assert metrics["test"]["accuracy"] > 1.2 * metrics["baselines"]["majority"]["accuracy"]
    assert "tree_same_cuts" in (tmp_path / "run" / "report.md").read_text()
    assert not (tmp_path / "run" / "plots" / "training.png").exists()  # there are no epochs
    assert warnings_of(metrics) == []


@pytest.mark.slow
@pytest.mark.usefixtures("small_baselines")
def test_a_network_that_is_the_majority_says_so(table, tmp_path):
    rng = np.random.default_rng(4)
    noise = {name: rng.integers(0, 9, len(table)) for name in table.features}
    made = run(
        replace(table, features=noise, label=(rng.random(len(table)) < 0.1) * 1),
        tmp_path / "run",
        bits=4,
    )
    name = table.classes[0]
    assert made.metrics["no_better_than"] == name
    (warning,) = warnings_of(made.metrics)
    assert f"always saying {name}" in warning
    assert "no better than" in (tmp_path / "run" / "report.md").read_text()


def stairs():
    """A table that a tree of few cuts tells exactly, and one neuron does not."""
    table = DATASET.load().rows(np.arange(0, 14_000, 7))
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 9, (2, len(table)))
    label = np.where(x < 4, y < 3, y >= 6) * 1
    return replace(
        table,
        features={**table.features, table.usable[0]: x, table.usable[1]: y},
        label=label,
        classes=("a", "b"),
    )


@pytest.mark.slow
@pytest.mark.usefixtures("small_baselines")
def test_a_tree_of_as_many_cuts_is_kept_where_it_is_right_on_more_validation_rows():
    table = stairs()
    training = Training(hidden=(1,), epochs=2, batch_size=64)
    recipe = Recipe(
        "r", "", "boosted", bits=3, columns=table.usable[:2], training=training, tree_bytes=64
    )
    experiment = Experiment(table, recipe, "random", seed=2, with_baselines=False)
    result = train(replace(experiment, with_baselines=True))
    assert result.baselines["tree_depth_3"].accuracy == 1  # on the bits of the tree
    assert result.model.provenance["weights"] == "a decision tree's"
    assert result.test.accuracy == result.validation.accuracy == 1
    tree = binary_network(result.model)
    assert tree.total_bytes <= 64
    assert result.history == ()
    assert all(sum(field.rates) for field in result.model.input.fields)  # those of its own bits
    assert train(experiment).model.to_bytes() == result.model.to_bytes()
    for other in (
        replace(recipe, tree_bytes=1),  # it does not fit
        replace(recipe, tree_bytes=0),
    ):
        tree_result = train(replace(experiment, recipe=other))
        assert "weights" not in tree_result.model.provenance and tree_result.model.shape[1:] == (
            1,
            2,
        )


def test_a_network_that_is_as_right_as_the_tree_stays():
    table = stairs()
    table = replace(table, label=(table.features[table.usable[0]] >= 4) * 1)
    recipe = Recipe(
        "r", "", "boosted", bits=1, columns=table.usable[:2], tree_bytes=64,
        training=Training(hidden=(2,), method="prototypes"),
    )  # fmt: skip
    result = train(Experiment(table, recipe, "random", seed=2, with_baselines=False))
    assert result.validation.accuracy == 1
    assert "weights" not in result.model.provenance
