# SPDX-License-Identifier: Apache-2.0
"""``--family spn`` from the command line to a run that commands take."""

import json
import shlex

import pytest

import n3ic
from n3ic.families.spn.network import SpnModel
from tests.support.command_line import typed

pytest.importorskip("sklearn")
pytestmark = pytest.mark.slow  # calls the command line many times


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spn")
    typed("data generate unsw-nb15-synthetic --rows 300 --out flows.csv", folder)
    typed("data generate unsw-nb15-synthetic --rows 6000 --out train.csv", folder)
    small = "--family spn --data train.csv --min-rows 200 --leaf-cuts 5"
    output = typed(f"train anomaly {small} --out run", folder).stdout
    return folder / "run", output


def test_a_run_says_what_it_is_and_what_it_is_compared_with(run):
    folder, output = run
    assert "sum-product network" in output and "isolation forest" in output
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["model"]["family"] == "sum-product-network"
    assert {"isolation_forest", "one_class_svm", "autoencoder"} <= set(metrics["baselines"])
    assert 0.5 < metrics["test"]["roc_auc"] <= 1
    assert metrics["no_better_than"] == ""
    assert metrics["test"]["fpr"] < 0.15
    assert "sum-product network" in (folder / "report.md").read_text()


def test_training_again_gives_the_same_bytes(run, tmp_path):
    folder, _ = run
    words = json.loads((folder / "options.json").read_text())["command"]
    assert "--family=spn" in words and "--leaf-cuts=5" in words
    typed(shlex.join([*words[1:], f"--out={tmp_path / 'again'}"]), folder.parent)
    assert (tmp_path / "again" / "model.n3ic").read_bytes() == (folder / "model.n3ic").read_bytes()


def test_one_class_is_learned_and_the_other_is_a_threshold(run):
    model = n3ic.load(run[0])
    assert isinstance(model, SpnModel) and model.classes == ("normal", "attack")
    assert model.roots[1] == -1


@pytest.mark.parametrize(
    "words",
    [
        "inspect run",
        "inspect run --json",
        "predict flows.csv --model run",
        "evaluate flows.csv --model run",
        "shunt --model run --data flows.csv",
    ],
)
def test_commands_take_it(run, words):
    typed(words, run[0].parent)


@pytest.mark.exhaustive
def test_the_other_task_learns_each_class(tmp_path):
    typed("data generate unsw-nb15-synthetic --rows 6000 --out train.csv", tmp_path)
    small = "--family spn --data train.csv --spn-task classes --min-rows 300"
    metrics = json.loads(typed(f"train anomaly {small} --json --out run", tmp_path).stdout)
    model = n3ic.load(tmp_path / "run")
    assert isinstance(model, SpnModel)
    assert -1 not in model.roots and len(set(model.roots)) == 2
    assert metrics["test"]["accuracy"] > 0.8
