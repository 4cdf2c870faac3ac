# SPDX-License-Identifier: Apache-2.0
"""Rare classes: weights of classes, and the bias that keeps a false-alarm rate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from n3ic.data.table import Feature, FlowTable
from n3ic.errors import UsageError
from n3ic.evaluation.false_alarms import with_false_alarms
from n3ic.families.binary.class_imbalance import class_weights
from n3ic.model.bits import pack
from n3ic.model.random_models import random_model
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.training.recipe import Recipe, Training

pytest.importorskip("sklearn")


@pytest.mark.parametrize("positive", [0, 1, 2])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.2])
def test_the_bias_is_the_highest_that_keeps_the_rate(positive, share):
    rng = np.random.default_rng(positive)
    model = random_model((12, 9, 3), rng, extremes=False)
    words, label = pack(rng.random((400, 12)) < 0.5), rng.integers(0, 3, 400)

    def alarms(network):
        classes = network.scores(words).argmax(axis=1)
        return (classes[label != positive] == positive).mean()

    shifted_model = with_false_alarms(model, model.scores(words), label, positive, share)
    bias = shifted_model.output.bias
    assert alarms(shifted_model) <= share
    higher = bias + (np.arange(3) == positive).astype(np.int32)
    assert alarms(replace(shifted_model, output=replace(shifted_model.output, bias=higher))) > share
    others = np.arange(3) != positive
    assert np.array_equal(bias[others], model.output.bias[others])
    assert f"{100 * alarms(shifted_model):.1f} %, with" in shifted_model.provenance["false_alarms"]


def test_a_flow_that_is_decided_often_counts_once():
    """A tenth of the flows may be called so, at any of their eight decisions."""
    rng = np.random.default_rng(0)
    model = random_model((12, 9, 2), rng, extremes=False)
    words, flow = pack(rng.random((800, 12)) < 0.5), rng.permutation(np.repeat(np.arange(100), 8))
    label = (flow < 20).astype(int)

    def alarms(network):
        classes = network.scores(words).argmax(axis=1)
        return len({*flow[(classes == 1) & (label == 0)].tolist()})

    shifted_model = with_false_alarms(model, model.scores(words), label, 1, 0.1, flow)
    assert alarms(shifted_model) <= 8
    higher = shifted_model.output.bias + np.array([0, 1], np.int32)
    assert alarms(replace(shifted_model, output=replace(shifted_model.output, bias=higher))) > 8
    assert "at most of 80 validation flows" in shifted_model.provenance["false_alarms"]
    by_row = with_false_alarms(model, model.scores(words), label, 1, 0.1)
    assert alarms(by_row) > 8


def test_a_rate_needs_a_class_that_is_looked_for():
    model = random_model((12, 9, 3), np.random.default_rng(0), extremes=False)
    scores, label = np.zeros((4, 3), np.int32), np.array([0, 1, 2, 0])
    with pytest.raises(UsageError, match="--positive"):
        with_false_alarms(model, scores, label, None, 0.1)
    with pytest.raises(UsageError, match="rows of other classes"):
        with_false_alarms(model, scores, np.ones(4, int), 1, 0.1)


def test_balanced_weights_are_those_of_scikit_learn():
    from sklearn.utils.class_weight import compute_class_weight

    label = np.array([0] * 90 + [1] * 9 + [2])
    wanted = compute_class_weight("balanced", classes=np.arange(3), y=label)
    assert class_weights("balanced", ("a", "b", "c"), label) == pytest.approx(wanted)
    named = class_weights("c=20, a=0.5", ("a", "b", "c"), label)
    assert named / named[1] == pytest.approx([0.5, 1, 20])
    assert named[label].mean() == pytest.approx(1)
    assert class_weights("none", ("a", "b", "c"), label) is None


@pytest.mark.parametrize(
    ("weights", "why"), [("d=2", "'d' is not one of a, b, c"), ("a=2,a=3", "'a' is named twice")]
)
def test_weights_of_unknown_classes_are_refused(weights, why):
    with pytest.raises(UsageError, match=why):
        class_weights(weights, ("a", "b", "c"), np.array([0, 1, 2]))


@pytest.mark.parametrize("weights", ["", "much", "a", "a=0", "a=-1", "a=1,,b=2", "a=nan", "a=0.0"])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(UsageError, match="class_weight must be none, balanced or CLASS=WEIGHT"):
        Training(class_weight=weights)


@pytest.fixture(scope="module", name="rare")
def rare_fixture() -> FlowTable:
    """Attacks are one row in 33, and look like many more of the benign rows."""
    rng = np.random.default_rng(0)
    label = (rng.random(5000) < 0.03).astype(np.int64)
    rows = rng.normal(20 + 6 * label[:, None], 6, (5000, 3)).clip(0, 63).astype(np.int64)
    return FlowTable(
        name="rare",
        features=dict(zip("abc", rows.T, strict=True)),
        catalogue=tuple(Feature(n, n, "", "", 1.0, 8, True, "counted") for n in "abc"),
        label=label,
        classes=("benign", "attack"),
        synthetic=True,
        sha256="rare",
    )


METHODS = {
    "gradient": {"hidden": (6,), "epochs": 4, "learning_rate": 0.02, "batch_size": 64},
    "polished": {"hidden": (4,), "epochs": 1, "polish": 3},
    "prototypes": {"hidden": (8,), "method": "prototypes"},
    "trees": {"method": "trees", "trees": 1, "leaves": 12},
}


def trained(table, **options):
    recipe = Recipe("r", "", "quantile", 24).with_options(options)
    return train(Experiment(table, recipe, with_baselines=False))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_weights_find_more_of_a_rare_class(rare, method):
    plain, balanced = (
        trained(rare, **METHODS[method], class_weight=weight) for weight in ("none", "balanced")
    )

    def recall(result):
        return result.test.of_classes(result.model.classes)["attack"]["recall"]

    assert recall(balanced) >= recall(plain) + 0.2
    named = trained(rare, **METHODS[method], class_weight="benign=1,attack=32")
    assert recall(named) >= recall(plain) + 0.2
    assert "attack" not in balanced.no_better_than + named.no_better_than


@pytest.mark.slow
def test_a_false_alarm_rate_holds_on_validation_rows_and_changes_one_bias(rare):
    plain = trained(rare, **METHODS["gradient"])
    asked = trained(rare, **METHODS["gradient"], false_alarms=0.05)
    assert 0 < asked.validation.fpr <= 0.05
    assert "false_alarms" not in plain.model.provenance
    assert f"{100 * asked.validation.fpr:.1f} %" in asked.model.provenance["false_alarms"]
    again = replace(asked.model, output=plain.model.output, provenance=plain.model.provenance)
    assert again.digest == plain.model.digest
    changed = np.flatnonzero(asked.model.output.bias != plain.model.output.bias)
    assert changed.tolist() == [1]
    assert asked.test.roc_auc == plain.test.roc_auc  # the same order of rows
    assert asked.test.average_precision == plain.test.average_precision


def test_other_families_say_what_they_have_instead(rare):
    recipe = Recipe("r", "", family="spn").with_options({"class_weight": "balanced"})
    with pytest.raises(UsageError, match="false_alarms bounds the rate"):
        train(Experiment(rare, recipe, with_baselines=False))
