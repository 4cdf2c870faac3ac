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
from n3ic.model.inputs import UINT32_MAX, Field
from n3ic.training.input_bits.columns import (
    Columns,
    Cut,
    matrix_of,
    thermometer_fields,
)
from n3ic.training.input_bits.quantile import spare_cuts
from n3ic.training.input_bits.tree import tree_fields

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

_JUDGED = 4096  # rows drawn to judge the rounds: a collapse shows on most rows


def boosted_trees(
    columns: Columns,
    label: NDArray[np.int64],
    *,
    rounds: int = 200,
    leaves: int = 31,
    seed: int = 0,
) -> HistGradientBoostingClassifier:
    """Gradient-boosted trees, fitted to integer columns; the same on any number of cores.

    Boosting of many classes may collapse: a class that is rare in a leaf gets a huge Newton step,
    and later rounds overshoot ever further. If all rounds are worse on training rows than some
    tenths of them, by accuracy and by log loss, the trees end at the round of least log loss; see
    :func:`collapsed`.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        label: class index of each row, shape ``(rows,)``.
        rounds: boosting rounds.
        leaves: largest number of leaves per tree.
        seed: seed of the boosting.
    """
    with needed("choosing input bits"):
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits
    _, matrix = matrix_of(columns, label)
    trees = HistGradientBoostingClassifier(
        max_iter=rounds, max_leaf_nodes=leaves, early_stopping=False, random_state=seed
    )
    # One thread: parallel sums of floats would make the cuts depend on the number of cores.
    with threadpool_limits(1):
        matrix = np.clip(matrix, 0, UINT32_MAX)
        trees.fit(matrix, label)
        judged = np.arange(len(label))
        if len(label) > _JUDGED:
            judged = np.random.default_rng(seed).choice(len(label), _JUDGED, replace=False)
        # On training rows: on others, trees that merely overfit would be worse, too.
        sound = _sound_rounds(trees, matrix[judged], label[judged])
    trees._predictors = trees._predictors[:sound]
    return trees


def collapsed(trees: HistGradientBoostingClassifier) -> bool:
    """Whether :func:`boosted_trees` dropped later rounds; such trees neither teach nor choose."""
    return bool(trees.n_iter_ < trees.max_iter)


def collapse_text(trees: HistGradientBoostingClassifier) -> str:
    """The note about trees that :func:`collapsed`."""
    return (
        f"boosted trees do worse after {trees.max_iter} rounds than after {trees.n_iter_}: they "
        "end there, and neither teach nor choose cuts"
    )


def _sound_rounds(
    trees: HistGradientBoostingClassifier,
    matrix: NDArray[np.int64],
    label: NDArray[np.int64],
) -> int:
    """Number of rounds to keep: fewer than all if fewer are right on more training rows."""
    column = np.searchsorted(trees.classes_, label)
    rows, right, losses = np.arange(len(label)), [], []
    for odds in trees.staged_predict_proba(matrix):
        right.append(int((odds.argmax(axis=1) == column).sum()))
        floor = np.finfo(np.float64).tiny
        losses.append(float(-np.log(np.maximum(odds[rows, column], floor)).mean()))
    tenths = range(max(1, len(losses) // 10) - 1, len(losses), max(1, len(losses) // 10))
    if not any(right[t] > right[-1] and losses[t] < losses[-1] for t in tenths):
        return len(losses)
    return int(np.argmin(losses)) + 1


def boosted_cuts(names: Sequence[str], trees: HistGradientBoostingClassifier) -> dict[Cut, float]:
    """Cuts at which gradient-boosted trees split, with the total loss that each saves.

    Args:
        names: the features that the trees were fitted to, in that order.
        trees: see :func:`boosted_trees`.

    Returns:
        Gain per cut ``(feature, value)``, ``value >= cut`` being the right branch.
    """
    gains: dict[Cut, float] = {}
    # scikit-learn keeps the trees of this estimator in `_predictors` alone: one list a round,
    # one tree a class, each with its nodes as a record array.
    for round_ in trees._predictors:
        for tree in round_:
            for node in tree.nodes:
                threshold = float(node["num_threshold"])
                if node["is_leaf"] or not math.isfinite(threshold):
                    continue
                # value <= threshold goes left, so the least integer on the right is this.
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
        boosting collapsed, the cuts are those of one tree (:func:`.tree.tree_fields`).
    """
    if bits < 1:
        raise UsageError(f"expected at least 1 input bit, got {bits}")
    trees = trees or boosted_trees(columns, label, seed=seed)
    if collapsed(trees):
        return tree_fields(columns, label, bits, seed=seed, catalogue=catalogue)
    gains = boosted_cuts(tuple(columns), trees)
    chosen = sorted(gains, key=lambda cut: (-gains[cut], cut))[:bits]
    if len(chosen) < bits:
        chosen += spare_cuts(columns, chosen, bits - len(chosen))
    return thermometer_fields(chosen, tuple(columns), catalogue=catalogue)
