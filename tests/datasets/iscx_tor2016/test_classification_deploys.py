# SPDX-License-Identifier: Apache-2.0
"""A network of eight classes trains, folds, exports and verifies like one of two."""

import numpy as np
import pytest

from n3ic.datasets.iscx_tor2016 import DATASET, USECASE
from n3ic.kernel.prediction import predict
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory

pytestmark = pytest.mark.slow


def trained(recipe, **changed):
    recipe = USECASE.recipes[recipe].with_options({"epochs": 3, "polish": 0, **changed})
    experiment = Experiment(DATASET.load(), recipe, name="classification", with_baselines=False)
    return train(experiment)


@pytest.fixture(scope="module")
def small():
    return trained("default", encoding="quantile")  # boosted trees of eight classes take long


def test_eight_classes_are_learned(small):
    assert small.model.classes == DATASET.load().classes
    assert small.model.shape == (256, 32, 8)
    assert small.model.weight_bytes == 1056
    assert small.test.accuracy > 0.6  # the majority class has 31 %
    assert small.positive is None


@pytest.mark.parametrize("target", ["host", "nfp", "p4", "onnx"])
def test_eight_classes_on_a_target(small, target, tmp_path):
    table = DATASET.load().rows(np.arange(0, 14508, 300))
    out = export(small.model, target, tmp_path / "export", verify=False)
    result = verify_directory(out.path, vectors=50, rows=table.features)
    if result.missing:
        pytest.skip(result.missing)
    assert result.ok, str(result)
    assert result.rows == len(table)


@pytest.mark.exhaustive
def test_the_papers_shape_on_the_host(tmp_path):
    result = trained("paper")
    assert result.model.shape == (256, 256, 256, 8)
    out = export(result.model, "host", tmp_path / "export", verify=False)
    verification = verify_directory(out.path, vectors=50)
    if verification.missing:
        pytest.skip(verification.missing)
    assert verification.ok, str(verification)
    table = DATASET.load()
    classes = predict(result.model, result.model.encode(table.features)).classes
    assert len(np.unique(classes)) > 1
