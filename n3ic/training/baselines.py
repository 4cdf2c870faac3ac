# SPDX-License-Identifier: Apache-2.0
"""Baselines on the same rows, to compare a model with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from n3ic.model.bits import Bits
from n3ic.util.signals import held

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier

TREE_DEPTHS = (3, 6, 9)
MAJORITY = "majority"
BOOSTED = "hist_gradient_boosting"
TREE_OF_CUTS = "tree_same_cuts"
"""The baseline of equal comparisons: a tree with as many distinct cuts as the network."""


class FittedBaseline(Protocol):
    """A fitted scikit-learn classifier."""

    classes_: NDArray[np.int64]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """A baseline's output on the test rows.

    Attributes:
        name: the baseline's name.
        predicted: class index of each row, int64, shape ``(rows,)``.
        scores: class probabilities or votes, float64, shape ``(rows, classes)``; None without.
        bytes: its size if it is packed, else 0.
    """

    name: str
    predicted: NDArray[np.int64]
    scores: NDArray[np.float64] | None
    bytes: int = 0


@dataclass(frozen=True, eq=False)
class BaselineRows:
    """Rows as baselines see them.

    Attributes:
        bits: bool, shape ``(rows, inputs)``.
        columns: features as int64, shape ``(rows, features)``.
        label: class index of each row, int64, shape ``(rows,)``.
    """

    bits: Bits
    columns: NDArray[np.int64]
    label: NDArray[np.int64]


def non_neural_baselines(
    train: BaselineRows,
    test: BaselineRows,
    n_classes: int,
    seed: int,
    boosted: FittedBaseline,
    cuts: int,
) -> Iterator[Prediction]:
    """Yield the predictions of the baselines without neurons on the test rows.

    They are the majority class, decision trees of depth 3, 6 and 9 on the network's input bits,
    a best-first tree on the integer columns with as many distinct cuts as the network, and
    gradient-boosted trees on these columns.

    Args:
        train: rows to fit.
        test: rows to predict.
        n_classes: number of classes.
        seed: seed of every baseline.
        boosted: boosted trees, fitted to the integer columns of the training rows.
        cuts: number of distinct cuts of the network's input; 0 (raw bits) skips the tree of cuts.
    """
    from sklearn.tree import DecisionTreeClassifier

    majority = int(np.bincount(train.label, minlength=n_classes).argmax())
    yield Prediction(MAJORITY, np.full(len(test.label), majority, dtype=np.int64), None)
    for depth in TREE_DEPTHS:
        tree = DecisionTreeClassifier(max_depth=depth, random_state=seed)
        tree.fit(train.bits, train.label)
        yield _prediction(f"tree_depth_{depth}", tree.predict_proba(test.bits), tree, n_classes)
    if cuts:
        tree = best_first_tree(train.columns, train.label, cuts, seed)
        yield _prediction(TREE_OF_CUTS, tree.predict_proba(test.columns), tree, n_classes)
    odds = boosted.predict_proba(test.columns)
    yield _prediction(BOOSTED, odds, boosted, n_classes)


def best_first_tree(
    columns: NDArray[np.int64],
    label: NDArray[np.int64],
    cuts: int,
    seed: int,
    weight: NDArray[np.floating] | None = None,
) -> DecisionTreeClassifier:
    """A best-first decision tree with a bounded number of distinct cuts.

    Args:
        columns: integers of training rows, shape ``(rows, features)``.
        label: class index of each row, shape ``(rows,)``.
        cuts: largest number of distinct pairs of a feature and a threshold.
        seed: selects among equally good splits.
        weight: weight of each row, shape ``(rows,)``; None for equal weights.

    Returns:
        The largest such tree.
    """
    from sklearn.tree import DecisionTreeClassifier

    leaves = 2 * cuts  # a first guess: a tree may use one cut in several places
    while True:
        tree = DecisionTreeClassifier(max_leaf_nodes=max(2, leaves), random_state=seed)
        nodes = tree.fit(columns, label, weight).tree_
        # scikit-learn appends both children when it makes a split, so their number tells its turn.
        splits = np.flatnonzero(nodes.children_left >= 0)
        distinct: set[tuple[int, float]] = set()
        for split_count, node in enumerate(splits[np.argsort(nodes.children_left[splits])]):
            distinct.add((int(nodes.feature[node]), float(nodes.threshold[node])))
            if len(distinct) > cuts:
                # Best-first: the tree of fewer leaves is a prefix of this one.
                smaller = DecisionTreeClassifier(max_leaf_nodes=split_count + 1, random_state=seed)
                return smaller.fit(columns, label, weight)
        if len(splits) + 1 < leaves:  # all leaves are pure: there are no more cuts
            return tree
        leaves *= 2


def class_probabilities(
    odds: NDArray[np.float64], model: FittedBaseline, n_classes: int
) -> NDArray[np.float64]:
    """Probabilities of all classes, ``(rows, n_classes)``; 0 for those absent from training."""
    out = np.zeros((len(odds), n_classes))
    out[:, model.classes_] = odds
    return out


def _prediction(
    name: str, odds: NDArray[np.float64], model: FittedBaseline, n_classes: int
) -> Prediction:
    scores = class_probabilities(odds, model, n_classes)
    return Prediction(name, scores.argmax(axis=1).astype(np.int64), scores)


def float_mlp(
    train: BaselineRows,
    validation: BaselineRows,
    test: BaselineRows,
    n_classes: int,
    hidden: tuple[int, ...],
    seed: int,
) -> Prediction:
    """Prediction of a float MLP of the network's shape, from its input bits, on the test rows.

    Args:
        train: rows to fit.
        validation: rows that choose the epoch.
        test: rows to predict.
        n_classes: number of classes.
        hidden: neurons of the hidden layers.
        seed: seed of the weights and the shuffling.
    """
    with held():  # a signal within PyTorch's import would end the process in C++
        from n3ic.training.float_mlp import fit_float_mlp

    scores = fit_float_mlp(
        (train.bits, train.label),
        (validation.bits, validation.label),
        test.bits,
        n_classes,
        hidden,
        seed,
    )
    return Prediction("float_mlp", scores.argmax(axis=1).astype(np.int64), scores)
