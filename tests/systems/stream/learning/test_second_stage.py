# SPDX-License-Identifier: Apache-2.0
"""Second stages: the same odds as the trained ones, whole files, and a table without leaks."""

import json

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.model.classifier import SHUNT
from n3ic.model.inputs import UINT32_MAX
from n3ic.systems.stream.learning.host_models import (
    HostMlp,
    HostTrees,
    fit_host_mlp,
    load_host_model,
)
from n3ic.systems.stream.learning.second_stage import second_verdicts
from n3ic.training.input_bits import boosted_trees
from tests.support.changing_traffic import CLASSES, METER, NAMES, tables, traffic, write_table

RNG = np.random.default_rng(0)
COLUMNS = RNG.integers(0, UINT32_MAX, (400, 3), dtype=np.int64) >> RNG.integers(0, 32, (400, 3))


def boosted(classes, rows=300):
    """Trees of scikit-learn, and the same as arrays; one class may be absent from training."""
    label = (COLUMNS[:rows, 0] > 900).astype(np.int64) + (COLUMNS[:rows, 1] > 70) * (classes > 2)
    names = ("a", "b", "c")
    trees = boosted_trees(dict(zip(names, COLUMNS[:rows].T, strict=True)), label, rounds=8)
    told = tuple(f"class {i}" for i in range(classes))
    return trees, HostTrees.of_boosted(trees, names, told)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_trees_give_the_odds_of_scikit_learn(classes):
    trees, stage = boosted(classes)
    odds = np.zeros((len(COLUMNS), classes))
    odds[:, trees.classes_] = trees.predict_proba(COLUMNS)
    assert np.abs(stage.odds(COLUMNS) - odds).max() < 1e-12
    cuts = stage.cut[stage.feature >= 0]
    edges = np.stack([np.concatenate([cuts - 1, cuts])] * 3, axis=1)
    odds = trees.predict_proba(edges)
    assert np.abs(stage.odds(edges)[:, trees.classes_] - odds).max() < 1e-12


def a_network():
    label = (COLUMNS[:, 0] > 900).astype(np.int64)
    rows = COLUMNS[:300], label[:300], (COLUMNS[300:], label[300:])
    return fit_host_mlp(*rows, ("a", "b", "c"), CLASSES, seed=1), label


def test_a_float_network_learns_and_is_the_same_again():
    network, label = a_network()
    assert (network.odds(COLUMNS[300:]).argmax(1) == label[300:]).mean() > 0.9
    assert network.to_bytes() == a_network()[0].to_bytes()
    assert np.allclose(network.odds(COLUMNS).sum(axis=1), 1)


@pytest.mark.parametrize("kind", [HostTrees, HostMlp])
def test_a_file_gives_the_same_model_and_a_damaged_one_says_so(kind, tmp_path):
    stage = boosted(3)[1] if kind is HostTrees else a_network()[0]
    stage.save(tmp_path / "stage.n3ic")
    again = load_host_model(tmp_path / "stage.n3ic")
    assert type(again) is kind
    assert again.to_bytes() == stage.to_bytes()
    assert np.array_equal(again.odds(COLUMNS), stage.odds(COLUMNS))
    data = bytearray(stage.to_bytes())
    data[-5] ^= 1
    (tmp_path / "damaged.n3ic").write_bytes(data)
    with pytest.raises(ModelError, match=r"damaged\.n3ic"):
        load_host_model(tmp_path / "damaged.n3ic")


@pytest.mark.parametrize(
    ("name", "value"),
    [("left", 0), ("right", 10**6), ("feature", 3), ("roots", -1), ("known", 3), ("base", np.nan)],
)
def test_trees_of_a_file_are_checked(name, value, tmp_path):
    """A tree that goes in a circle, or out of its arrays, is refused before it is asked."""
    stage = boosted(3)[1]
    array = getattr(stage, name)
    at = int(np.argmax(stage.feature >= 0)) if array.shape == stage.feature.shape else 0
    array.reshape(-1)[at] = value
    stage.save(tmp_path / "forged.n3ic")
    with pytest.raises(ModelError, match=r"forged\.n3ic"):
        load_host_model(tmp_path / "forged.n3ic")


def test_a_model_of_the_card_is_no_second_stage(tmp_path):
    tables(rows=300).save(tmp_path / "card.n3ic")
    with pytest.raises(ModelError, match="expected host-trees or host-mlp"):
        load_host_model(tmp_path / "card.n3ic")


def test_only_shunted_flows_are_asked_about():
    flows = traffic(300, 4)
    model = tables(rows=300).with_shunt(9)
    names = METER.feature_names
    features = np.zeros((300, len(names)), np.uint32)
    features[:, [names.index(name) for name in NAMES]] = flows.features
    kind = np.dtype([("features", np.uint32, len(names))])
    records = np.zeros(300, kind)
    records["features"] = features
    batch = flows.batch(model, slice(0, 300))
    batch = type(batch)(**{**vars(batch), "records": records})
    columns = dict(zip(NAMES, flows.features.astype(np.int64).T, strict=True))
    stage = HostTrees.of_boosted(
        boosted_trees(columns, 1 - flows.label, rounds=5), NAMES, model.classes
    )  # it says the opposite, so that it is seen where it spoke
    found = second_verdicts(stage, batch, METER)
    shunted = batch.verdicts == SHUNT
    assert 0 < shunted.sum() < 300
    assert np.array_equal(found[~shunted], batch.classes[~shunted])
    assert (found[shunted] != flows.label[shunted]).mean() > 0.8
    with pytest.raises(ModelError, match="lack"):
        second_verdicts(boosted(2)[1], batch, METER)


@pytest.mark.slow
def test_the_command_shows_both_stages_and_writes_one(n3ic, tmp_path):
    tables().with_shunt(9).save(tmp_path / "model.n3ic")
    write_table(tmp_path / "flows.csv", traffic(1200, 5))
    command = "stream second-stage --model model.n3ic --data flows.csv --dataset metered"
    told = json.loads(n3ic(f"{command} --kind trees --write stage.n3ic --json").stdout)
    (own,) = [point for point in told["points"] if point["threshold"] == 9]
    assert 0 < own["shunted"] < 1
    everything = told["points"][-1]
    assert everything["shunted"] == 1 and everything["card"] is None
    assert everything["right"]["trees"] == everything["host"]["trees"]
    assert told["costs"]["trees"]["bytes"] == load_host_model(tmp_path / "stage.n3ic").size
    assert load_host_model(tmp_path / "stage.n3ic").classes == ("benign", "attack")
    assert "exists" in n3ic(f"{command} --kind trees --write stage.n3ic", expect=2).stderr
    assert "--kind" in n3ic(f"{command} --write other.n3ic", expect=2).stderr


@pytest.mark.slow
def test_the_command_shows_a_float_network(n3ic, tmp_path):
    tables().with_shunt(9).save(tmp_path / "model.n3ic")
    write_table(tmp_path / "flows.csv", traffic(1200, 5))
    command = "stream second-stage --model model.n3ic --data flows.csv --dataset metered"
    shown = n3ic(f"{command} --kind mlp").stdout
    assert "* 9" in shown and "second stage" in shown
