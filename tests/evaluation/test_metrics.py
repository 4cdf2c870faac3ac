"""Which class is counted: the named one, the second of two, or the mean over all."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

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
