# SPDX-License-Identifier: Apache-2.0
"""Second stages: any model decides what the card shunts, and a table shows both without leaks."""

import json
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import SHUNT
from n3ic.model.inputs import InputSpec
from n3ic.model.load import load_model
from n3ic.runs.refresh import columns_of
from n3ic.systems.stream.learning.second_stage import second_verdicts
from tests.support.changing_traffic import CLASSES, METER, NAMES, SPEC, tables, traffic, write_table


def batch_of(flows, model):
    """The flows as a meter gives them, with all its features."""
    names = METER.feature_names
    records = np.zeros(len(flows), np.dtype([("features", np.uint32, len(names))]))
    records["features"][:, [names.index(name) for name in NAMES]] = flows.features
    batch = flows.batch(model, slice(0, len(flows)))
    return type(batch)(**{**vars(batch), "records": records})


def test_only_shunted_flows_are_decided_by_the_second_stage():
    flows = traffic(300, 4)
    model = tables(rows=300).with_shunt(9)
    batch = batch_of(flows, model)
    stage = tables(seed=3, rows=300).changed(classes=CLASSES[::-1])  # a class has no place
    verdicts = second_verdicts(stage, batch, METER, CLASSES)
    own = 1 - predict(stage, stage.encode(columns_of(stage, flows.features))).classes
    shunted = batch.verdicts == SHUNT
    assert 0 < shunted.sum() < 300
    assert np.array_equal(verdicts[~shunted], batch.classes[~shunted])
    assert np.array_equal(verdicts[shunted], own[shunted])
    assert {*verdicts[shunted].tolist()} == {0, 1}
    with pytest.raises(ModelError, match="expected the model's classes benign, attack, got a, b"):
        second_verdicts(stage.changed(classes=("a", "b")), batch, METER, CLASSES)
    spec = InputSpec((replace(SPEC.fields[0], feature="x"), *SPEC.fields[1:]))
    with pytest.raises(ModelError, match="reads 'x', which the model's meter lacks"):
        second_verdicts(stage.changed(input=spec, meter=None), batch, METER, CLASSES)


@pytest.mark.exhaustive
def test_the_command_shows_both_stages_and_writes_one(n3ic, tmp_path):
    tables().with_shunt(9).save(tmp_path / "model.n3ic")
    flows = traffic(1200, 5)
    write_table(tmp_path / "flows.csv", flows)
    command = "stream second-stage --model model.n3ic --data flows.csv --dataset metered"
    report = json.loads(n3ic(f"{command} --write stage.n3ic --json").stdout)
    (own,) = [point for point in report["points"] if point["threshold"] == 9]
    assert 0 < own["host_load"] < 1
    everything = report["points"][-1]
    assert everything["host_load"] == 1 and everything["accuracy"] is None
    assert everything["end_to_end"] == everything["shunted_accuracy"] > 0.7
    stage = load_model(tmp_path / "stage.n3ic")
    assert report["costs"]["second stage"]["bytes"] == stage.total_bytes
    assert stage.classes == CLASSES
    batch = batch_of(flows, load_model(tmp_path / "model.n3ic"))
    assert (second_verdicts(stage, batch, METER, CLASSES) == flows.label).mean() > 0.8
    assert "exists" in n3ic(f"{command} --write stage.n3ic", expect=2).stderr
    assert "* 9" in n3ic(command).stdout
