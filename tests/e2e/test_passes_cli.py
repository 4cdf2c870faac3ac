# SPDX-License-Identifier: Apache-2.0
"""What the passes find is said by ``inspect``, and ``export`` does it unless told not to."""

import json

import numpy as np
import pytest

from n3ic.model.layers import HiddenLayer
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from tests.support.command_line import n3ic


@pytest.fixture
def path(tmp_path):
    base = random_model((24, 5, 2), np.random.default_rng(1), extremes=False)
    thresholds = base.hidden[0].thresholds.copy()
    thresholds[3] = 0
    hidden = HiddenLayer(base.hidden[0].weights, thresholds=thresholds)
    model = BinaryModel(base.input, (hidden,), base.output, base.classes, "spare")
    model.save(tmp_path / "spare.n3ic")
    return tmp_path / "spare.n3ic"


def test_inspect_tells_what_makes_no_difference(path):
    assert (
        "passes: layer 0: 1 constant neuron removed"
        in n3ic("inspect", path, cwd=path.parent).stdout
    )
    (inspection,) = json.loads(n3ic("inspect", path, "--json", cwd=path.parent).stdout).values()
    assert inspection["passes"]["neurons"] == [
        {"layer": 0, "neuron": 3, "cause": "constant", "other": 1}
    ]


@pytest.mark.parametrize(("flag", "shape"), [((), [24, 4, 2]), (("--no-simplify",), None)])
def test_export_leaves_it_out_unless_told_not_to(path, flag, shape):
    n3ic("export", "-t", "p4", "--model", path, "--out", "out", *flag, cwd=path.parent)
    manifest = json.loads((path.parent / "out" / "manifest.json").read_text())
    assert manifest["simplify"] is (not flag)
    assert manifest["model"]["shape"] == [24, 5, 2]
    assert (manifest["exported"] or {}).get("shape") == shape
