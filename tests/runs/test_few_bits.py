"""A run of few input bits, and the warning of a network that learned nothing."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.datasets.iscx_tor2016 import DATASET
from n3ic.runs.report import warnings_of
from n3ic.usecases.request import TrainRequest
from n3ic.usecases.training import train_use_case


@pytest.fixture(scope="module")
def table():
    return DATASET.load().rows(np.arange(0, 14_000, 5))


def run(table, out, **given):
    return train_use_case(TrainRequest("classification", table=table, overrides=given, out=out))


def test_few_bits_alone_give_a_network_and_all_its_figures(table, tmp_path):
    made = run(table, tmp_path / "run", bits=6)
    metrics = made.metrics
    assert metrics["model"]["shape"][0] == 6
    assert metrics["memory"]["input_bytes"] == 24
    tree = metrics["baselines"]["tree_same_cuts"]["accuracy"]
    assert metrics["test"]["accuracy"] > tree - 0.05
    assert metrics["test"]["accuracy"] > 1.2 * metrics["baselines"]["majority"]["accuracy"]
    assert "tree_same_cuts" in (tmp_path / "run" / "report.md").read_text()
    assert not (tmp_path / "run" / "plots" / "training.png").exists()  # there are no epochs
    assert warnings_of(metrics) == []


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
    (said,) = warnings_of(made.metrics)
    assert f"always saying {name}" in said
    assert "no better than" in (tmp_path / "run" / "report.md").read_text()
