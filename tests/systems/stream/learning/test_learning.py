# SPDX-License-Identifier: Apache-2.0
"""A learner promotes what is better, keeps what is not, and does not believe a feed that lies."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.kernel.prediction import predict
from n3ic.runs.refresh import columns_of, refreshed
from n3ic.systems.stream.learning.learner import LearnSettings, OnlineLearner
from n3ic.systems.stream.learning.rows import LabelledRows, Reservoir, held_out, key_hash
from tests.support.changing_traffic import labelled, network, tables, traffic

SETTINGS = LearnSettings(every=300)
BATCH = 200


@pytest.fixture(name="model", scope="module")
def trained_before():
    return tables()


def learning(model, settings=SETTINGS, push=lambda model: ""):
    """A learner, and its decisions."""
    decisions = []
    learner = OnlineLearner(
        model,
        settings,
        train=lambda *rows: refreshed(*rows),
        push=push,
        record_decision=lambda what, **facts: decisions.append({"what": what, **facts}),
    )
    return learner, decisions


def feed(learner, batches, *, changed=False, lie=None, seed=0):
    """Give a learner labelled flows, batch by batch."""
    for i in range(batches):
        rows = labelled(traffic(BATCH, seed + i, changed=changed), seed + i)
        if lie is not None:
            rows = replace(rows, label=lie(rows.label, np.random.default_rng(seed + i)))
        learner.add_rows(rows)


def accuracy(model, flows):
    inference = predict(model, model.encode(columns_of(model, flows.features)))
    return float((inference.classes == flows.label).mean())


def pushes(decisions):
    return [each for each in decisions if each["what"] == "push"]


def check_recovers(model, settings=SETTINGS):
    """The running model is refreshed after a change of the traffic, and fits the card's swap."""
    after = traffic(2000, 900, changed=True)
    learner, decisions = learning(model, settings)
    feed(learner, 5)
    assert learner.running == model, "promoted although the traffic is as before"
    before = accuracy(learner.running, after)
    feed(learner, 12, changed=True, seed=50)
    assert pushes(decisions)
    assert accuracy(learner.running, after) > before + 0.2
    assert learner.running.input == model.input
    assert learner.running.shape == model.shape
    assert learner.running.provenance["refreshed"].startswith("from ")


@pytest.mark.slow
def test_look_up_tables_recover_after_a_change(model):
    check_recovers(model)
    assert structure_of([refreshed_once(model)]) == structure_of([model])


def refreshed_once(model):
    flows = traffic(300, 7, changed=True)
    return refreshed(model, flows.features, flows.label, np.ones(2))


@pytest.mark.slow
def test_a_binary_network_recovers_after_a_change():
    check_recovers(network(), replace(SETTINGS, rounds=1))


def test_a_refreshed_model_shunts_no_more_flows_than_before(model):
    flows = traffic(600, 8)
    shunting = model.with_shunt(6)
    new = refreshed(shunting, flows.features, flows.label, np.ones(2))

    def shunted(of):
        scores = of.scores(of.encode(columns_of(of, flows.features)))
        return int((of.verdicts(scores) < 0).sum())

    assert 0 < shunted(new) <= shunted(shunting)


@pytest.mark.slow
@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lambda label, rng: rng.permutation(label), id="random"),
        pytest.param(lambda label, rng: rng.integers(0, 2, len(label)), id="fair coin"),
        pytest.param(lambda label, rng: 0 * label, id="all benign"),
        pytest.param(lambda label, rng: 1 - label, id="turned round"),
        pytest.param(lambda label, rng: label * (rng.random(len(label)) < 0.3), id="hides attacks"),
    ],
)
def test_a_feed_that_lies_changes_nothing(model, lie):
    learner, decisions = learning(model)
    learner.anchor(labelled(traffic(600, 77), 77))
    feed(learner, 8, lie=lie)
    assert any(each["what"] == "candidate" for each in decisions)
    assert not pushes(decisions)
    assert learner.running == model


@pytest.mark.slow
def test_without_anchors_a_lie_that_can_be_learned_is_believed_and_the_truth_brings_it_back(model):
    learner, decisions = learning(model)
    feed(learner, 8, lie=lambda label, rng: 1 - label)
    assert pushes(decisions), "the anchors are what kept the lie out"
    honest = traffic(2000, 901)
    assert accuracy(learner.running, honest) < 0.5
    feed(learner, 12, seed=30)
    assert accuracy(learner.running, honest) > 0.8


@pytest.mark.slow
def test_a_failed_push_keeps_the_running_model_and_is_tried_again(model):
    there = {"gone": True}
    learner, decisions = learning(model, push=lambda new: "no such device" if there["gone"] else "")
    feed(learner, 12, changed=True)
    failed = pushes(decisions)
    assert failed and all(each["error"] == "no such device" for each in failed)
    assert learner.running == model and not learner.former
    there["gone"] = False
    feed(learner, 1, changed=True, seed=40)
    assert pushes(decisions)[-1] == {**failed[-1], "error": ""}
    assert learner.running.digest == failed[-1]["model"]


@pytest.mark.slow
def test_the_former_model_comes_back_by_order_and_by_its_own_test(model):
    learner, _ = learning(model)
    with pytest.raises(UsageError, match="no former model"):
        learner.roll_back("test")
    feed(learner, 6, changed=True)
    assert learner.former[0] == model
    back = len(learner.former)
    for _ in range(back):
        learner.roll_back("test")
    assert learner.running == model and not learner.former
    feed(learner, 6, changed=True, seed=60)
    assert learner.running != model
    feed(learner, 12, seed=80)  # the traffic is as before again
    assert accuracy(learner.running, traffic(2000, 902)) > 0.75


def test_a_reservoir_is_bounded_recent_and_the_same_again():
    rows = LabelledRows(
        np.arange(5000, dtype=np.uint32)[:, None],
        (np.arange(5000) % 50 == 0).astype(np.int64),
        np.zeros(5000, np.uint64),
    )
    one, other = Reservoir(200, 1, 2, seed=3), Reservoir(200, 1, 2, seed=3)
    one.add(rows)
    for start in range(0, 5000, 130):
        other.add(rows.select(slice(start, start + 130)))
    features, label, weight = one.rows()
    assert all(np.array_equal(a, b) for a, b in zip(one.rows(), other.rows(), strict=True))
    assert np.bincount(label).tolist() == [100, 100]  # the rare class has as much room
    assert np.median(features[label == 0]) > 4700
    assert weight[0] / weight[1] == pytest.approx(49, rel=0.35)  # by their shares of the stream
    assert not np.array_equal(Reservoir(200, 1, 2, seed=4).rows()[0], features)


def test_both_directions_of_a_flow_are_on_one_side():
    keys = [((b"\1", port), (b"\2", 80)) for port in range(2000)]
    hashes = np.array([key_hash((ends, 6), 5) for ends in keys], np.uint64)
    assert held_out(hashes, 0.3).mean() == pytest.approx(0.3, abs=0.04)
    other = np.array([key_hash((ends, 6), 6) for ends in keys], np.uint64)
    assert (held_out(hashes, 0.3) != held_out(other, 0.3)).any()


def test_a_family_that_cannot_be_trained_further_says_so():
    from n3ic.families.spn.random_models import random_spn

    model = random_spn(np.random.default_rng(0))
    with pytest.raises(UsageError, match="family sum-product-network"):
        refreshed(
            model,
            np.zeros((4, len(model.input.features)), np.uint32),
            np.array([0, 1, 0, 1]),
            np.ones(len(model.classes)),
        )
