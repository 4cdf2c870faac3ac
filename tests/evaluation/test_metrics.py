# SPDX-License-Identifier: Apache-2.0
"""Which class is counted: the named one, the second of two, or the mean over all."""

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    precision_recall_fscore_support,
    roc_auc_score,
)

from n3ic.evaluation.metrics import against_rest, counted_class, evaluate


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("positive", [0, 1, None])
def test_the_named_class_is_counted(classes, positive):
    rng = np.random.default_rng(classes)
    label = rng.integers(0, classes, 400)
    scores = rng.normal(size=(400, classes)) + np.eye(classes)[label] * np.arange(1, classes + 1)
    predicted = scores.argmax(axis=1)
    got = evaluate(label, predicted, scores, classes, positive=positive)
    counted = counted_class(classes, positive)
    assert counted == (positive if positive is not None else (1 if classes == 2 else None))
    columns = range(classes) if counted is None else [counted]
    rates = [float((predicted[label != c] == c).mean()) for c in columns]
    areas = [roc_auc_score(label == c, against_rest(scores, c)) for c in columns]
    assert got.fpr == pytest.approx(np.mean(rates))
    assert got.roc_auc == pytest.approx(np.mean(areas))
    steps = [average_precision_score(label == c, against_rest(scores, c)) for c in columns]
    assert got.average_precision == pytest.approx(np.mean(steps))


# Twelve rows of three classes, counted by hand.
LABEL = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2])
PREDICTED = np.array([0, 0, 0, 1, 2, 1, 1, 0, 0, 2, 2, 0])


def test_figures_of_a_confusion_that_was_counted_by_hand():
    unseen = np.array([True] * 4 + [False] * 8)
    got = evaluate(LABEL, PREDICTED, None, 3, unseen=unseen)
    assert got.rows == 12
    assert got.confusion == ((3, 1, 1), (2, 2, 0), (1, 0, 2))
    assert got.accuracy == pytest.approx(7 / 12)
    assert got.accuracy_unseen == pytest.approx(3 / 4)
    # precision and recall of the classes: 3/6 and 3/5, 2/3 and 2/4, 2/3 and 2/3
    assert got.macro_f1 == pytest.approx((6 / 11 + 4 / 7 + 2 / 3) / 3)
    # rows of other classes that are called one: 3 of 7, 1 of 8, 1 of 9
    assert got.fpr == pytest.approx((3 / 7 + 1 / 8 + 1 / 9) / 3)
    assert got.roc_auc is None
    assert evaluate(LABEL, PREDICTED, None, 3, positive=1).fpr == pytest.approx(1 / 8)
    assert got.to_dict()["confusion"] == [[3, 1, 1], [2, 2, 0], [1, 0, 2]]
    assert got.to_dict()["accuracy"] == got.accuracy


def test_figures_that_rows_do_not_tell_are_none():
    none = np.zeros(12, dtype=bool)
    scores = np.eye(4)[PREDICTED]
    got = evaluate(LABEL, PREDICTED, scores, 4, unseen=none)  # nobody is of class 3
    assert got.accuracy_unseen is None
    assert got.roc_auc is None
    assert got.confusion[3] == (0, 0, 0, 0)
    assert got.macro_f1 == pytest.approx((6 / 11 + 4 / 7 + 2 / 3) / 3)
    assert evaluate(LABEL, PREDICTED, None, 3).accuracy_unseen is None
    with np.errstate(all="raise"):  # nothing is divided by 0
        alone = evaluate(np.ones(4, int), np.array([1, 1, 0, 1]), None, 2)
    assert alone.fpr is None  # no row is of another class
    assert alone.accuracy == 0.75
    assert evaluate(np.ones(4, int), np.array([1, 1, 0, 1]), None, 2, positive=0).fpr == 0.25
    one = evaluate(np.array([1, 1, 0]), np.array([1, 1, 1]), None, 2)
    assert (one.fpr, one.macro_f1) == (1.0, pytest.approx(0.4))  # of one row, and F1 of 0.8 and 0


def test_the_score_against_the_rest_is_the_lead_over_the_best_other():
    scores = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 1.0]])
    assert against_rest(scores, 0).tolist() == [1.0, -5.0]
    assert against_rest(scores, 1).tolist() == [-2.0, 4.0]
    assert against_rest(scores, 2).tolist() == [-1.0, -4.0]


def test_the_area_under_the_curve_counts_pairs_in_order():
    label = np.array([0, 0, 1, 1])
    scores = np.array([[5, 1], [5, 4], [5, 3], [5, 6]])
    assert evaluate(label, scores.argmax(axis=1), scores, 2).roc_auc == 0.75
    assert evaluate(label, scores.argmax(axis=1), scores, 2, positive=0).roc_auc == 0.75


def test_precision_and_recall_of_rare_classes_are_those_of_scikit_learn():
    rng = np.random.default_rng(3)
    label = (rng.random(3000) < 0.01).astype(np.int64)
    predicted = np.where(rng.random(3000) < 0.02, 1 - label, label)
    figures = evaluate(label, predicted, None, 3).of_classes(("benign", "attack", "absent"))
    ours = [[of["precision"], of["recall"], of["rows"]] for of in figures.values()]
    precision, recall, _, rows = precision_recall_fscore_support(
        label, predicted, labels=[0, 1], zero_division=0.0
    )
    assert np.array(ours[:2], float) == pytest.approx(np.stack([precision, recall, rows], 1))
    assert ours[2] == [None, None, 0]  # nobody is absent, and nobody is called so
    assert list(figures) == ["benign", "attack", "absent"]


def test_a_score_that_tells_nothing_has_the_share_of_the_class():
    label = np.array([0] * 99 + [1])
    got = evaluate(label, np.zeros(100, int), np.zeros((100, 2)), 2)
    assert (got.accuracy, got.roc_auc) == (0.99, 0.5)
    assert got.average_precision == pytest.approx(0.01)


def test_a_class_without_false_positives_counts_in_their_mean_rate():
    label, predicted = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 0, 2, 2])
    assert evaluate(label, predicted, None, 3).fpr == pytest.approx(0.25 / 3)
