# SPDX-License-Identifier: Apache-2.0
"""Cuts that gradient-boosted trees split at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import Feature
from n3ic.errors import UsageError, needed
from n3ic.evaluation.interval import clearly_better
from n3ic.model.inputs import UINT32_MAX, Field
from n3ic.training.input_bits.columns import (
    Columns,
    Cut,
    matrix_of,
    thermometer_fields,
)
from n3ic.training.input_bits.quantile import spare_cuts
from n3ic.training.input_bits.tree import tree_fields
from n3ic.util.markdown import percent

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

_JUDGED = 4096  # rows; a sample suffices, as a collapse shows on most rows
_MARKS = (1, 2, 5, *range(10, 101, 10))  # per cent of the rounds, compared with all
_DEPTH = 6  # of the tree that boosting is compared with
_THEY = "they neither teach nor choose cuts"


def boosted_trees(
    columns: Columns,
    label: NDArray[np.int64],
    *,
    held: tuple[Columns, NDArray[np.int64]] | None = None,
    rounds: int = 200,
    leaves: int = 31,
    seed: int = 0,
) -> HistGradientBoostingClassifier:
    """Gradient-boosted trees, fitted to integer columns; the same on any number of cores.

    Boosting of many classes may collapse: a class that is rare in a leaf gets a huge Newton step,
    and later rounds overshoot further and further. The trees end at the round of least log loss if
    fewer rounds do better than all on training rows or, with more than two classes, clearly better
    on validation rows. :func:`fault_of` reports this, and trees that are clearly worse on
    validation rows than a single tree or the most frequent class.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        label: class index of each row, shape ``(rows,)``.
        held: columns and labels of validation rows, or None.
        rounds: largest number of boosting rounds.
        leaves: largest number of leaves per tree.
        seed: seed of the boosting.
    """
    with needed("choosing input bits"):
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits
    _, matrix = matrix_of(columns, label)
    matrix = np.clip(matrix, 0, UINT32_MAX)
    trees = HistGradientBoostingClassifier(
        max_leaf_nodes=leaves, early_stopping=False, random_state=seed, warm_start=True
    )
    seen, unseen = _drawn(matrix, label, seed), None
    if held is not None and np.isin(held[1], label).any():  # else no row can be judged
        unseen = _drawn(np.clip(matrix_of(*held)[1], 0, UINT32_MAX), held[1], seed)
    # Of two classes, boosting does not collapse; of more, all rounds may be a waste of time.
    many = len(np.unique(label)) > 2
    stops = sorted({max(1, rounds // 10), max(1, 3 * rounds // 10)}) if many else []
    # One thread: parallel sums of floats would make the cuts depend on the number of cores.
    with threadpool_limits(1):
        for stop in (*stops, rounds):
            trees.max_iter = stop
            sound = _sound_rounds(trees.fit(matrix, label), seen, unseen if many else None, rounds)
            if sound < stop:
                break
        trees._predictors = trees._predictors[:sound]
        trees.fault_ = ""
        if sound < stop:
            trees.fault_ = (
                f"boosted trees do worse after {stop} rounds than after {sound}, where they end: "
                f"{_THEY}"
            )
        elif unseen is not None:
            trees.fault_ = _no_better(trees, matrix, label, *unseen)
    return trees


def fault_of(trees: HistGradientBoostingClassifier) -> str:
    """The fault of :func:`boosted_trees` as a sentence; empty without one.

    Trees with a fault neither teach nor choose cuts.
    """
    return str(trees.fault_)


def _drawn(
    matrix: NDArray[np.int64], label: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """At most ``_JUDGED`` rows, drawn at random."""
    if len(label) <= _JUDGED:
        return matrix, label
    rows = np.random.default_rng(seed).choice(len(label), _JUDGED, replace=False)
    return matrix[rows], label[rows]


def _no_better(
    trees: HistGradientBoostingClassifier,
    matrix: NDArray[np.int64],
    label: NDArray[np.int64],
    validation_matrix: NDArray[np.int64],
    held_label: NDArray[np.int64],
) -> str:
    """A sentence if a simpler classifier is clearly better on validation rows; else empty."""
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=_DEPTH, random_state=trees.random_state)
    right = {
        "boosted trees": trees.predict(validation_matrix) == held_label,
        f"one tree of depth {_DEPTH}": tree.fit(matrix, label).predict(validation_matrix)
        == held_label,
        "always saying the most frequent class": held_label == np.bincount(label).argmax(),
    }
    own_name, *smaller = right
    for other in smaller:
        if clearly_better(right[other], right[own_name]):
            share, more = (percent(float(right[name].mean())) for name in (own_name, other))
            return (
                f"{own_name} are right on {share} of the validation rows, {other} on {more}: "
                f"{_THEY}"
            )
    return ""


def _sound_rounds(
    trees: HistGradientBoostingClassifier,
    seen: tuple[NDArray[np.int64], NDArray[np.int64]],
    unseen: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    rounds: int,
) -> int:
    """Number of rounds to keep: fewer than all if fewer are right on more rows.

    Args:
        trees: fitted.
        seen: training rows, on which any gain counts.
        unseen: validation rows, on which only a clear gain counts; or None.
        rounds: number of rounds whose shares ``_MARKS`` are compared with the fitted ones.
    """
    marks = {max(1, share * rounds // 100) - 1 for share in _MARKS}
    for part in (seen, unseen):
        if part is None:
            continue
        matrix, label = part
        right, losses = [], []
        # Validation rows may have classes that the trees have not seen: `known` leaves them out.
        column = np.searchsorted(trees.classes_, label).clip(max=len(trees.classes_) - 1)
        known = trees.classes_[column] == label
        for odds in trees.staged_predict_proba(matrix):
            right.append(known & (odds.argmax(axis=1) == column))
            # A probability that underflows to 0 would make the loss infinite.
            own = np.maximum(odds[np.arange(len(label)), column], np.finfo(np.float64).tiny)
            losses.append(float(-np.log(own[known]).mean()))
        for mark in marks & {*range(len(right))}:
            better = right[mark].sum() > right[-1].sum()
            if part is unseen:
                better = clearly_better(right[mark], right[-1])
            if better and losses[mark] < losses[-1]:
                return int(np.argmin(losses)) + 1
    return len(right)


def boosted_cuts(names: Sequence[str], trees: HistGradientBoostingClassifier) -> dict[Cut, float]:
    """Cuts at which gradient-boosted trees split, with the total loss that each saves.

    Args:
        names: the features that the trees were fitted to, in that order.
        trees: see :func:`boosted_trees`.

    Returns:
        Gain per cut ``(feature, value)``, ``value >= cut`` being the right branch.
    """
    gains: dict[Cut, float] = {}
    # scikit-learn keeps the trees of this estimator only in `_predictors`: one list per round with
    # one tree per class, each with its nodes as a record array.
    for round_ in trees._predictors:
        for tree in round_:
            for node in tree.nodes:
                threshold = float(node["num_threshold"])
                if node["is_leaf"] or not math.isfinite(threshold):
                    continue
                # value <= threshold goes left, so this is the smallest integer that goes right.
                cut = (names[int(node["feature_idx"])], math.floor(threshold) + 1)
                if 1 <= cut[1] <= UINT32_MAX:
                    gains[cut] = gains.get(cut, 0.0) + float(node["gain"])
    return gains


def boosted_fields(
    columns: Columns,
    label: NDArray[np.int64],
    bits: int,
    *,
    seed: int = 0,
    trees: HistGradientBoostingClassifier | None = None,
    catalogue: Mapping[str, Feature] | None = None,
) -> tuple[Field, ...]:
    """Thermometer fields of the ``bits`` cuts that serve gradient-boosted trees best.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        label: class index of each row, shape ``(rows,)``.
        bits: total bit budget.
        seed: seed of the boosting.
        trees: fitted trees of :func:`boosted_trees` on these columns, if any.
        catalogue: what the features mean, for their units.

    Returns:
        Fields of ``bits`` bits in total, in the order of ``columns``. If the trees split at fewer
        places, quantile cuts are added; if there are too few values, there are fewer bits. If
        boosting has a fault, the cuts are those of one tree (:func:`.tree.tree_fields`).
    """
    if bits < 1:
        raise UsageError(f"expected at least 1 input bit, got {bits}")
    trees = trees or boosted_trees(columns, label, seed=seed)
    if fault_of(trees):
        return tree_fields(columns, label, bits, seed=seed, catalogue=catalogue)
    gains = boosted_cuts(tuple(columns), trees)
    chosen = sorted(gains, key=lambda cut: (-gains[cut], cut))[:bits]
    if len(chosen) < bits:
        chosen += spare_cuts(columns, chosen, bits - len(chosen))
    return thermometer_fields(chosen, tuple(columns), catalogue=catalogue)
