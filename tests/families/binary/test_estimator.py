# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from n3ic.families.binary.estimator import BinaryMLPClassifier
from n3ic.model.bits import pack
from n3ic.model.inputs import Field, InputSpec


@parametrize_with_checks([BinaryMLPClassifier((8,), epochs=12, learning_rate=0.05, random_state=0)])
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
