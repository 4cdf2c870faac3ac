# SPDX-License-Identifier: Apache-2.0
"""From a table to a network: trees instead of gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from n3ic.datasets.ns3_tomography import DATASET
from n3ic.datasets.ns3_tomography.table import queue_tables
from n3ic.errors import ModelError
from n3ic.exporters.netfpga.unrolled import write as unrolled_write
from n3ic.exporters.netfpga.unrolled.decode import decode_core
from n3ic.model.passes import simplify
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment, prepare
from n3ic.targets.decoding import decoding_difference
from n3ic.training.recipe import Training
from n3ic.training.recipes import VOTING_TREES

SMALL = replace(VOTING_TREES, bits=48, training=Training(method="trees", leaves=12, distill=0.5))


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    (table,) = queue_tables(DATASET.load().rows(np.arange(2000)), "0").values()
    return Experiment(table, SMALL, protocol="time", name="x", with_baselines=False)


@pytest.mark.slow
def test_trees_are_trained_and_read_back_from_the_core(experiment):
    result = train(experiment)
    assert result.history == ()
    assert result.model.shape[2] <= 3
    assert result.validation.accuracy > 0.8
    model = simplify(result.model).model
    texts = unrolled_write.generate(model)
    decoded = decode_core(texts[unrolled_write.FILE], texts[unrolled_write.CELLS], model)
    assert decoded is not None
    assert not decoding_difference(model, decoded)


def test_a_name_that_no_model_may_have_is_refused_before_the_training(experiment):
    table = experiment.table
    bad = replace(table, classes=(*table.classes[:-1], "Web Attack \x96"))
    notes = []
    with pytest.raises(ModelError, match=r"name of a class .* got 'Web Attack \\x96'"):
        prepare(replace(experiment, table=bad), notes.append)
    assert notes == []
