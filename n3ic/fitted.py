# SPDX-License-Identifier: Apache-2.0
"""Fitted estimators of scikit-learn's interface, alone, in a pipeline or found by a search.

scikit-learn is never imported here: an estimator of n3ic has its network as ``model_`` and integer
``scores`` of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.dataframes import like, names_column
from n3ic.errors import ArgumentError, did_you_mean
from n3ic.evaluation.metrics import Evaluation, evaluate
from n3ic.model.classifier import Classifier, classes_of, margins_of

EXPECTED = (
    "expected a model, the path of one or of a run, a run, or a fitted n3ic.BinaryMLPClassifier "
    "or a pipeline that ends in one"
)


@dataclass(frozen=True, eq=False)
class FittedEstimator:
    """A fitted estimator with a network.

    Attributes:
        estimator: the estimator.
        before: the steps in front of it, as one transformer; None if there are none.
        steps: names of these steps.
    """

    estimator: Any
    before: Any = None
    steps: tuple[str, ...] = ()

    @property
    def network(self) -> Classifier:
        """The integer network."""
        network: Classifier = self.estimator.model_
        return network

    def scores(self, rows: Any) -> NDArray[np.int32]:
        """Integer scores of rows as the first step takes them, shape ``(rows, classes)``.

        Raises:
            ArgumentError: a step does not take the rows.
        """
        try:
            transformed = rows if self.before is None else self.before.transform(rows)
            scores: NDArray[np.int32] = self.estimator.scores(transformed)
        except (TypeError, ValueError) as error:
            problem = " ".join(str(error).split())
            raise ArgumentError(f"the estimator does not take these rows: {problem}") from None
        return scores

    def predict(self, flows: Any) -> Any:
        """Classes, margins and scores of a table, as :func:`n3ic.predict` returns them."""
        scores, model = self.scores(flows), self.network
        columns = {
            "class": np.array(model.verdict_names)[model.verdicts(scores)],
            "margin": margins_of(scores),
        }
        score_columns = zip(model.classes, scores.T, strict=True)
        return like(flows, columns | {f"score_{name}": column for name, column in score_columns})

    def evaluate(self, flows: Any, label: Any) -> Evaluation:
        """Figures on labelled rows.

        Args:
            flows: the rows, with the column of the class if ``label`` is its name.
            label: name of that column, or the class of each row, shape ``(rows,)``.

        Raises:
            ArgumentError: no label is named, the table lacks it, or the classifier its classes.
        """
        if label is None:
            raise ArgumentError("label: expected the column of the class, or the class of each row")
        rows, classes = (flows, label) if not names_column(label) else _without(flows, label)
        labels = np.asarray(classes).reshape(-1).astype(str)
        known = list(self.network.classes)
        if unknown := sorted({*labels.tolist()} - {*known}):
            raise ArgumentError(
                f"label: class {unknown[0]!r} is not one of the classifier's: {', '.join(known)}"
            )
        scores = self.scores(rows)
        if len(labels) != len(scores):
            raise ArgumentError(f"label: {len(labels):,} classes for {len(scores):,} rows")
        index = np.array([known.index(name) for name in labels], dtype=np.int64)
        return evaluate(index, classes_of(scores), scores.astype(np.float64), len(known))


def _without(flows: Any, label: Any) -> tuple[Any, Any]:
    """A table without the column of the class, and that column."""
    names = [str(n) for n in getattr(flows, "column_names", getattr(flows, "columns", ()))]
    if str(label) not in names:
        hint = did_you_mean(str(label), names)
        listed = ", ".join(names[:60]) or "none; give the class of each row"
        raise ArgumentError(f"label: no column {label!r}; {hint}its columns are {listed}")
    if hasattr(flows, "iloc"):
        return flows.drop(columns=[label]), flows[label]
    features = flows.drop_columns([label]) if hasattr(flows, "drop_columns") else flows.drop(label)
    return features, flows[label]


def fitted(model: Any) -> FittedEstimator | None:
    """The estimator with a network that something is or holds; None if it has no ``fit``.

    Raises:
        ArgumentError: an estimator is not fitted, or is none of n3ic.
    """
    if not hasattr(model, "fit"):
        return None
    name = type(model).__name__
    if isinstance(model, type):
        raise ArgumentError(f"{model.__name__} is a class: make one, and fit it to rows")
    estimator = getattr(model, "best_estimator_", model)
    steps = getattr(estimator, "steps", None)
    last = estimator.steps[-1][1] if steps else estimator
    if not hasattr(last, "scores"):
        which = "" if last is model else f" of a {type(last).__name__}"
        raise ArgumentError(f"a {name}{which} has no network: {EXPECTED}")
    if not isinstance(getattr(last, "model_", None), Classifier):
        raise ArgumentError(f"{name} is not fitted: call its fit(X, y) first")
    before = estimator[:-1] if steps and len(steps) > 1 else None
    return FittedEstimator(last, before, tuple(n for n, _ in (steps or ())[:-1]))
