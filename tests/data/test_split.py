# SPDX-License-Identifier: Apache-2.0

from dataclasses import replace

import numpy as np
import pytest
from sklearn import metrics

from n3ic.data.split import (
    PROTOCOLS,
    duplicate_share,
    protocols_of,
    seen_in_training,
    split,
    stratified,
)
from n3ic.data.table import Feature, FlowTable
from n3ic.errors import DataError
from n3ic.evaluation.metrics import evaluate


def table(rows=1000, *, partition=False, time_order=False, conversations=0, distinct=10**6, seed=0):
    rng = np.random.default_rng(seed)
    feature = Feature("a", "a", "", "", 1.0, 32, True, "x")
    parts = np.where(np.arange(rows) < rows * 3 // 4, "train", "test") if partition else None
    return FlowTable(
        name="toy",
        features={"a": rng.integers(0, distinct, rows)},
        catalogue=(feature,),
        label=(rng.random(rows) < 0.2).astype(np.int64),
        classes=("no", "yes"),
        synthetic=True,
        sha256="0" * 64,
        partition=parts,
        time_order=time_order,
        conversation=rng.integers(0, conversations, rows) if conversations else None,
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_parts_are_disjoint_and_complete(protocol):
    flows = table(partition=True, time_order=True, conversations=40)
    parts = split(flows, protocol, 3)
    every = np.concatenate([parts.train, parts.validation, parts.test])
    assert np.array_equal(np.sort(every), np.arange(len(flows)))
    again = split(flows, protocol, 3)
    assert np.array_equal(parts.test, again.test)
    if protocol == "partition":
        assert set(flows.partition[parts.test]) == {"test"}
        assert set(flows.partition[parts.train]) == {"train"}
    if protocol == "time":
        assert parts.train.max() < parts.validation.min()
        assert parts.validation.max() < parts.test.min()
    if protocol == "random":
        share = flows.label.mean()
        assert abs(flows.label[parts.test].mean() - share) < 0.01
        assert not np.array_equal(split(flows, protocol, 4).test, parts.test)


def test_protocols_that_the_data_does_not_allow_are_refused():
    assert protocols_of(table()) == ("random",)
    with pytest.raises(DataError, match="'partition' needs rows of the publisher's train"):
        split(table(), "partition", 0)
    with pytest.raises(DataError, match="rows in time order"):
        split(table(), "time", 0)
    with pytest.raises(DataError, match="10 rows are too few"):
        split(table(10), "random", 0)


def test_conversations_are_never_on_both_sides_and_five_seeds_test_all():
    flows = table(2000, conversations=60)
    tested = []
    for seed in range(7, 12):
        parts = split(flows, "conversation", seed)
        ours, theirs = (
            set(flows.conversation[np.concatenate(rows)].tolist())
            for rows in ([parts.train, parts.validation], [parts.test])
        )
        assert not ours & theirs
        assert abs(flows.label[parts.test].mean() - flows.label.mean()) < 0.03
        assert 0.15 < len(parts.test) / len(flows) < 0.25
        tested += parts.test.tolist()
    assert sorted(tested) == list(range(len(flows)))


def test_rows_keep_their_conversation():
    flows = table(conversations=40)
    assert np.array_equal(flows.rows(np.array([5, 3])).conversation, flows.conversation[[5, 3]])


def test_conversations_that_are_too_few_or_not_known_allow_no_such_split():
    for flows in (table(), table(conversations=4)):
        assert "conversation" not in protocols_of(flows)
        with pytest.raises(DataError, match="'conversation' needs rows of 5 conversations"):
            split(flows, "conversation", 0)


def test_stratified_parts_keep_rare_classes():
    label = np.array([0] * 990 + [1] * 10)
    large, small = stratified(np.arange(1000), label, 0.1, 0)
    assert label[small].sum() == 1
    assert label[large].sum() == 9


def test_twins_are_test_rows_seen_in_training():
    flows = table(distinct=200)
    parts = split(flows, "random", 0)
    seen = set(flows.features["a"][parts.train].tolist())
    want = [v in seen for v in flows.features["a"][parts.test].tolist()]
    assert seen_in_training(flows, parts.train, parts.test).tolist() == want
    assert 0 < np.mean(want) < 1


def test_duplicates_count_repeats_with_their_label():
    flows = table(distinct=50)
    pairs = set(zip(flows.features["a"].tolist(), flows.label.tolist(), strict=True))
    assert duplicate_share(flows) == 1 - len(pairs) / 1000


@pytest.mark.parametrize("classes", [2, 4])
def test_figures_are_scikit_learns(classes):
    rng = np.random.default_rng(0)
    label = rng.integers(0, classes, 500)
    scores = rng.integers(0, 9, (500, classes)) + 3.0 * np.eye(classes)[label]
    predicted = scores.argmax(axis=1)
    unseen = rng.random(500) < 0.5
    got = evaluate(label, predicted, scores, classes, unseen=unseen)
    assert got.accuracy == metrics.accuracy_score(label, predicted)
    assert got.accuracy_unseen == metrics.accuracy_score(label[unseen], predicted[unseen])
    assert got.macro_f1 == pytest.approx(metrics.f1_score(label, predicted, average="macro"))
    assert np.array_equal(got.confusion, metrics.confusion_matrix(label, predicted))
    if classes == 2:
        assert got.fpr == np.mean(predicted[label == 0] == 1)
        assert got.roc_auc == metrics.roc_auc_score(label, scores[:, 1] - scores[:, 0])


def test_what_cannot_be_computed_is_none():
    got = evaluate(np.zeros(5, int), np.zeros(5, int), None, 2, unseen=np.zeros(5, bool))
    assert (got.accuracy, got.accuracy_unseen, got.roc_auc) == (1.0, None, None)


@pytest.mark.parametrize("protocol", ["random", "partition", "conversation"])
def test_all_rows_of_a_flow_are_on_one_side_and_classes_keep_their_share(protocol):
    flows = np.random.default_rng(1).permutation(np.repeat(np.arange(400), 3))
    every = table(1200, conversations=40)
    label = (flows % 5 == 0).astype(np.int64)
    sides = np.where(flows < 300, "train", "test")
    every = replace(every, flow=flows, label=label, conversation=flows // 4, partition=sides)
    parts = split(every, protocol, 2)
    of = [set(flows[rows]) for rows in (parts.train, parts.validation, parts.test)]
    assert sum(map(len, of)) == len(set().union(*of)) == 400
    assert len(parts.train) + len(parts.validation) + len(parts.test) == 1200
    assert abs(label[parts.test].mean() - 0.2) < 0.02
    assert abs(label[parts.validation].mean() - 0.2) < 0.02


def test_flows_of_several_decisions_are_not_split_by_time():
    every = replace(table(time_order=True), flow=np.arange(1000) // 2)
    assert "time" not in protocols_of(every)
    assert "time" in protocols_of(table(time_order=True))
