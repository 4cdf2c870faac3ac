# SPDX-License-Identifier: Apache-2.0
"""A target says which families of models it takes, and is asked before anything is written."""

import numpy as np
import pytest

from n3ic import api, plugins
from n3ic.errors import ExportError
from n3ic.families.spn.network import SpnModel
from n3ic.families.spn.random_models import random_spn
from n3ic.targets.base import exporter


def test_a_target_that_takes_no_such_model_says_so_and_writes_nothing(tmp_path):
    model = random_spn(np.random.default_rng(0))
    refusing = [
        name
        for name in plugins.names("n3ic.exporters")
        if SpnModel.family not in exporter(name).families
    ]
    assert refusing
    assert all(exporter(name).refusals[SpnModel.family] for name in refusing)
    for name in refusing:
        with pytest.raises(ExportError, match=f"{name} takes no model of family sum-product"):
            api.export(model, name, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_every_target_takes_binary_networks():
    for name in plugins.names("n3ic.exporters"):
        tool = exporter(name)
        assert tool.families[0] == "binary-network"
        assert tool.for_family("binary-network") is tool


def test_prediction_of_the_other_family_is_the_models(tmp_path):
    model = random_spn(np.random.default_rng(1), features=3)
    model.save(tmp_path / "m.n3ic")
    features = {name: np.arange(0, 1000, 7) for name in model.input.features}
    inference = api.predict(tmp_path / "m.n3ic", features)
    assert (inference.scores == model.scores(model.encode(features))).all()
    assert inference.scores.std() > 0
