# SPDX-License-Identifier: Apache-2.0
"""Figures of merit of a classifier on labelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Evaluation:
    """Figures of a classifier on some rows.

    Attributes:
        rows: number of rows.
        accuracy: share of correctly classified rows.
        accuracy_unseen: accuracy on rows without a duplicate among the training rows; None if every
            row has one, or duplicates were not searched.
        macro_f1: mean of the classes' F1.
        fpr: false positive rate: share of the other rows that are called positive. Without a
            positive class, the mean over the classes, each against the rest.
        roc_auc: area under the ROC curve of the positive class's score less the best of the
            others, or the mean as above; None if a class is absent.
        confusion: number of rows by true class (first index) and predicted class.
        average_precision: area under the precision-recall curve (PR AUC) of the same scores, in
            steps. For an uninformative score, it is the share of the class.
    """

    rows: int
    accuracy: float
    accuracy_unseen: float | None
    macro_f1: float
    fpr: float | None
    roc_auc: float | None
    confusion: tuple[tuple[int, ...], ...]
    average_precision: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"confusion": [list(row) for row in self.confusion]}

    def of_classes(self, classes: Sequence[str]) -> dict[str, dict[str, int | float | None]]:
        """Rows, precision and recall of each class, by its name.

        Args:
            classes: names, as many as the confusion has rows.

        Returns:
            The figures by name; precision is None for a class never predicted, recall without rows.
        """
        matrix = np.array(self.confusion)
        rows, predicted = matrix.sum(axis=1).tolist(), matrix.sum(axis=0).tolist()
        return {
            name: {
                "rows": rows[i],
                "precision": float(matrix[i, i] / predicted[i]) if predicted[i] else None,
                "recall": float(matrix[i, i] / rows[i]) if rows[i] else None,
            }
            for i, name in enumerate(classes)
        }


def evaluate(
    label: NDArray[np.int64],
    predicted: NDArray[np.int64],
    scores: NDArray[np.floating] | None,
    n_classes: int,
    *,
    unseen: NDArray[np.bool_] | None = None,
    positive: int | None = None,
) -> Evaluation:
    """Evaluate predictions.

    Args:
        label: true class indices, shape ``(rows,)``.
        predicted: predicted class indices, shape ``(rows,)``.
        scores: score of each class, shape ``(rows, classes)``, for the ROC; or None.
        n_classes: number of classes.
        unseen: whether each row equals no training row, bool, shape ``(rows,)``; or None.
        positive: index of the positive class; see :func:`counted_class` for None.
    """
    from sklearn.metrics import (
        average_precision_score,
        confusion_matrix,
        f1_score,
        roc_auc_score,
    )

    matrix = confusion_matrix(label, predicted, labels=np.arange(n_classes))
    right = label == predicted
    false_positives = matrix.sum(axis=0) - np.diag(matrix)
    negatives = matrix.sum() - matrix.sum(axis=1)
    # NaN marks a class that all rows belong to: it has no false positive rate.
    none = np.full(n_classes, np.nan)
    rates = np.divide(false_positives, negatives, where=negatives > 0, out=none)
    counted = counted_class(n_classes, positive)
    columns = range(n_classes) if counted is None else [counted]
    class_rates = [float(rates[c]) for c in columns if rates[c] >= 0]
    present = np.unique(label)
    auc: float | None = None
    precision: float | None = None
    if scores is not None and len(present) == n_classes:  # an absent class has no ROC
        leads = {c: against_rest(scores, c) for c in columns}
        auc = float(np.mean([roc_auc_score(label == c, lead) for c, lead in leads.items()]))
        steps = [average_precision_score(label == c, lead) for c, lead in leads.items()]
        precision = float(np.mean(steps))
    return Evaluation(
        rows=len(label),
        accuracy=float(right.mean()),
        accuracy_unseen=float(right[unseen].mean())
        if unseen is not None and unseen.any()
        else None,
        macro_f1=float(f1_score(label, predicted, labels=present, average="macro")),
        fpr=float(np.mean(class_rates)) if class_rates else None,
        roc_auc=auc,
        confusion=tuple(tuple(int(v) for v in row) for row in matrix),
        average_precision=precision,
    )


def counted_class(n_classes: int, positive: int | None) -> int | None:
    """Choose the class whose detection is counted.

    Args:
        n_classes: number of classes.
        positive: the class that the user named, or None.

    Returns:
        That class, or the second of two; None for several classes without a named one.
    """
    return 1 if positive is None and n_classes == 2 else positive


def against_rest(scores: NDArray[np.floating], c: int) -> NDArray[np.floating]:
    """Score of class ``c`` minus the best of the others, shape ``(rows,)``."""
    rival = np.delete(scores, c, axis=1).max(axis=1)  # the lead decides, not the score alone
    return np.asarray(scores[:, c] - rival)
