# SPDX-License-Identifier: Apache-2.0

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import n3ic
from n3ic.families.binary.estimator import BinaryMLPClassifier
from n3ic.families.binary.fit import fit_network
from n3ic.model.bits import pack
from n3ic.model.inputs import Field, InputSpec

# Batches are drawn by row: a row of weight 2 is in one batch, two equal rows are in two.
FAIL = {
    "check_sample_weight_equivalence_on_dense_data": "batches and their order differ, as of any "
    "stochastic gradient descent"
}


@pytest.mark.first_case
@parametrize_with_checks(
    [BinaryMLPClassifier((8,), epochs=8, learning_rate=0.05, random_state=0)],
    expected_failed_checks=lambda estimator: FAIL,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    return make_classification(600, 8, n_informative=5, n_classes=3, random_state=0)


@pytest.mark.slow
def test_works_where_scikit_learn_expects_a_classifier(rows):
    X, y = rows
    pipeline = make_pipeline(
        StandardScaler(), BinaryMLPClassifier((16,), epochs=20, random_state=0)
    )
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.55
    grid = GridSearchCV(
        BinaryMLPClassifier(epochs=3, random_state=0), {"hidden_layer_sizes": [(4,), (16,)]}, cv=2
    )
    grid.fit(X, y)
    assert grid.best_params_["hidden_layer_sizes"] in [(4,), (16,)]


def test_predictions_are_the_integer_models(rows):
    bits = np.random.default_rng(0).random((400, 33)) < 0.5
    y = np.where(bits[:, :5].sum(axis=1) > 2, "attack", "benign")
    spec = InputSpec((Field.binary("a", 32), Field.binary("b", 1)))
    classifier = BinaryMLPClassifier((9,), epochs=5, random_state=0)
    classifier.fit(bits, y, input_spec=spec)
    assert classifier.model_.input == spec
    assert classifier.model_.classes == ("attack", "benign")
    trace = classifier.model_.infer(pack(bits))
    assert np.array_equal(classifier.predict(bits), classifier.classes_[trace.classes])
    scores = trace.scores.astype(float)
    assert np.array_equal(classifier.decision_function(bits), scores[:, 1] - scores[:, 0])
    odds = classifier.predict_proba(bits)
    assert np.allclose(odds.sum(axis=1), 1)
    assert (odds.argmax(axis=1) == trace.classes).all()


def test_validation_share_is_held_out(rows):
    X, y = rows
    classifier = BinaryMLPClassifier((8,), epochs=4, validation_fraction=0.2, random_state=0)
    classifier.fit(X, y)
    assert all(np.isfinite(e.validation_accuracy) for e in classifier.history_)


QUICK = BinaryMLPClassifier((4,), epochs=2, random_state=0)


@pytest.fixture(scope="module")
def flows():
    """Integers as a NIC has them, and three classes that depend on two of them."""
    rng = np.random.default_rng(0)
    k = rng.integers(0, 3, 240)
    data = {
        "bytes": rng.integers(40, 1500, 240) * (k + 1),
        "packets": rng.integers(1, 9, 240) + 2 * k,
        "largest": rng.choice([0, 2**32 - 1], 240),
        "same": np.full(240, 7),
    }
    return pd.DataFrame(data), pd.Series(np.array(["dns", "p2p", "web"])[k])


def test_the_model_reads_whole_columns_by_their_names(flows):
    X, y = flows
    classifier = clone(QUICK).fit(X, y)
    assert list(classifier.feature_names_in_) == list(X)
    assert classifier.model_.input.features == tuple(X)
    assert classifier.model_.classes == ("dns", "p2p", "web")
    predicted = n3ic.predict(classifier.model_, X)
    np.testing.assert_array_equal(predicted["class"], classifier.predict(X))
    np.testing.assert_array_equal(predicted.filter(like="score_"), classifier.scores(X))
    loose = X + 0.5  # no integers: the model reads bits
    assert clone(QUICK).fit(loose, y).model_.input.features[0] == "x0"
    unnamed = clone(QUICK).fit(X.to_numpy(), y)
    assert unnamed.model_.input.features == ("x0", "x1", "x2", "x3")
    np.testing.assert_array_equal(unnamed.predict(X.to_numpy()), classifier.predict(X))


def test_64_bits_are_compared_as_integers():
    rng = np.random.default_rng(0)
    X = 2**62 + rng.integers(0, 3, (90, 1))  # all the same as floats
    y = X[:, 0] % 3
    classifier = clone(QUICK).set_params(epochs=20, learning_rate=0.05).fit(X, y)
    assert (classifier.predict(X) == y).all()


def test_other_columns_are_refused(flows):
    X, y = flows
    classifier = clone(QUICK).fit(X, y)
    with pytest.raises(ValueError, match="feature names should match"):
        classifier.predict(X.rename(columns={"bytes": "octets"}))
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(X[list(reversed(list(X)))])
    np.testing.assert_array_equal(classifier.predict(pl.from_pandas(X)), classifier.predict(X))


def test_weights_count_by_their_ratios(flows):
    X, y = flows
    plain = clone(QUICK).fit(X, y)
    for equal in (np.ones(len(y)), np.full(len(y), 0.25)):
        assert clone(QUICK).fit(X, y, sample_weight=equal).model_ == plain.model_
    only = np.where(y == "web", 0.0, 1.0)
    pair = clone(QUICK).set_params(epochs=10).fit(X, y, sample_weight=only)
    assert "web" not in pair.predict(X)
    with pytest.raises(ValueError, match="one class: \\['web'\\]"):
        clone(QUICK).fit(X, y, sample_weight=1 - only)
    with pytest.raises(ValueError, match="0 or more"):
        clone(QUICK).fit(X, y, sample_weight=-only)
    classifier = clone(QUICK).set_params(validation_fraction=0.25)
    assert classifier.fit(X, y, sample_weight=only).model_ != classifier.fit(X, y).model_


def test_what_a_teacher_says_stays_with_its_rows(flows, monkeypatch):
    X, y = flows
    got = []

    def noted(bits, label, n_classes, *given, **more):
        got.append((label, more["teacher"]))
        return fit_network(bits, label, n_classes, *given, **more)

    monkeypatch.setattr("n3ic.families.binary.estimator.fit_network", noted)
    teacher = np.eye(3)[np.unique(y, return_inverse=True)[1]]
    clone(QUICK).set_params(validation_fraction=0.25).fit(X, y, teacher=teacher)
    ((label, scores),) = got
    np.testing.assert_array_equal(scores.argmax(axis=1), label)


def test_a_pipeline_hands_names_on_and_a_search_ends_in_a_model(flows, tmp_path):
    X, y = flows
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), clone(QUICK))
    pipeline.fit(X, y)
    assert list(pipeline[-1].feature_names_in_) == list(X)
    search = GridSearchCV(QUICK, {"hidden_layer_sizes": [(3,), (5,)]}, cv=2).fit(X, y)
    assert search.best_estimator_.model_.input.features == tuple(X)
    joblib.dump(search, tmp_path / "search.joblib")
    back = joblib.load(tmp_path / "search.joblib")
    assert back.best_estimator_.model_ == search.best_estimator_.model_
    np.testing.assert_array_equal(back.predict(X), search.predict(X))


def test_calibration_wraps_it(flows):
    X, y = flows
    calibrated = CalibratedClassifierCV(QUICK, cv=2).fit(X, y)
    odds = calibrated.predict_proba(X)
    assert odds.shape == (len(y), 3) and np.allclose(odds.sum(axis=1), 1)
    two = CalibratedClassifierCV(QUICK, cv=2).fit(X, y == "web")
    assert two.predict(X).dtype == np.bool_
