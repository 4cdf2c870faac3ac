# SPDX-License-Identifier: Apache-2.0
"""The class that a use case detects is the one that is counted, from training to the picture."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from n3ic.datasets.ns3_tomography import DATASET
from n3ic.datasets.ns3_tomography.table import queue_tables
from n3ic.errors import DataError
from n3ic.evaluation.metrics import against_rest
from n3ic.runs.pictures import writing
from n3ic.training.recipe import Recipe, Training
from n3ic.usecases import training, training_data
from n3ic.usecases.base import UseCase
from n3ic.usecases.request import TrainRequest

pytestmark = pytest.mark.usefixtures("small_baselines")
RECIPE = Recipe("default", "", "quantile", 32, training=Training(hidden=(8,), epochs=1))


@pytest.fixture(scope="module")
def queue():
    return queue_tables(DATASET.load().rows(np.arange(1500)), "0")["tor0_server0"]


def run(table, detected, monkeypatch, out):
    class Detector(UseCase):
        name, summary = "detector", "finds a class"
        dataset = default = "d"
        recipes: ClassVar = {"default": RECIPE}
        positive = detected

    results = []
    monkeypatch.setattr(training_data, "use_case", lambda name: Detector())
    monkeypatch.setattr(training, "write_pictures", lambda path, result, *_: results.append(result))
    made = training.train_use_case(TrainRequest("detector", table=table, out=out))
    return made, results[0]


@pytest.mark.slow
@pytest.mark.parametrize("index", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_figures_and_roc_are_those_of_the_named_class(queue, index, monkeypatch, tmp_path):
    name = queue.classes[index]
    made, result = run(queue, name, monkeypatch, tmp_path / "run")
    assert made.metrics["positive"] == name
    assert f"detection of class {name}" in (tmp_path / "run" / "report.md").read_text()
    truth = result.test_label == index
    for which, scores in result.test_scores.items():
        figures = made.metrics["test"] if which == "model" else made.metrics["baselines"][which]
        difference = scores[:, index] - scores[:, 1 - index]
        assert figures["roc_auc"] == pytest.approx(roc_auc_score(truth, difference))
        confusion = np.array(figures["confusion"])
        expected = confusion[1 - index, index] / confusion[1 - index].sum()
        assert figures["fpr"] == pytest.approx(expected)
    curve = writing.roc_curves(result)["binary network"]
    scores = result.test_scores["model"]
    fpr, tpr, _ = roc_curve(truth, against_rest(scores, index), drop_intermediate=False)
    assert np.allclose(curve.fpr, fpr) and np.allclose(curve.tpr, tpr)
    assert curve.area == pytest.approx(made.metrics["test"]["roc_auc"])


@pytest.mark.slow
def test_without_a_name_it_is_the_second_class(queue, monkeypatch, tmp_path):
    made, result = run(queue, "", monkeypatch, tmp_path / "run")
    assert (made.metrics["positive"], result.positive) == (queue.classes[1], 1)


def test_a_class_that_the_table_lacks_is_said(queue, monkeypatch, tmp_path):
    with pytest.raises(DataError, match=r"detects the class 'flood', .* its classes are"):
        run(queue, "flood", monkeypatch, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_was_assumed_of_the_data_is_kept_with_the_run(queue, monkeypatch, tmp_path):
    notes = ("field 9 | was taken for the label", "3 lines were left out")
    made, _ = run(replace(queue, notes=notes), queue.classes[0], monkeypatch, tmp_path / "run")
    assert made.metrics["data"]["notes"] == list(notes)
    page = (tmp_path / "run" / "report.md").read_text()
    assert "- field 9 \\| was taken for the label\n- 3 lines were left out\n" in page
