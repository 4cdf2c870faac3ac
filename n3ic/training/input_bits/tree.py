# SPDX-License-Identifier: Apache-2.0
"""Cuts of one decision tree that is grown best-first."""

from __future__ import annotations

from collections.abc import Mapping

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

_LEAVES_A_CUT = 2  # a first guess: a tree may use one cut in several places


def tree_cuts(
    columns: Columns, label: NDArray[np.int64], count: int, *, seed: int = 0
) -> list[Cut]:
    """The first distinct cuts of a tree that always splits the leaf of the largest gain.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        label: class index of each row, shape ``(rows,)``.
        count: number of cuts.
        seed: selects among equally good splits.

    Returns:
        Up to ``count`` cuts in the order of the splits; fewer if all leaves become pure first. The
        decision tree of the same cuts is a function of these bits.
    """
    with needed("choosing input bits"):
        from sklearn.tree import DecisionTreeClassifier
    names, matrix = matrix_of(columns, label)
    # scikit-learn compares float32, which cannot tell large integers apart, but can their ranks.
    values, ranks = [], np.empty(matrix.shape, dtype=np.float32)
    for j in range(len(names)):
        distinct, rank = np.unique(np.clip(matrix[:, j], 0, UINT32_MAX), return_inverse=True)
        values.append(distinct)
        ranks[:, j] = rank
    leaves = _LEAVES_A_CUT * count
    while True:
        tree = DecisionTreeClassifier(max_leaf_nodes=max(2, leaves), random_state=seed)
        nodes = tree.fit(ranks, label).tree_
        # scikit-learn appends both children when it makes a split, so their number tells its turn.
        splits = np.flatnonzero(nodes.children_left >= 0)
        cuts: dict[Cut, None] = {}
        for node in splits[np.argsort(nodes.children_left[splits])]:
            feature, below = int(nodes.feature[node]), int(nodes.threshold[node])
            low, high = (int(v) for v in values[feature][below : below + 2])
            cuts[names[feature], (low + high) // 2 + 1] = None  # least integer above the middle
        if len(cuts) >= count or len(splits) + 1 < leaves:  # enough, or all leaves are pure
            return list(cuts)[:count]
        leaves *= 2


def tree_fields(
    columns: Columns,
    label: NDArray[np.int64],
    bits: int,
    *,
    seed: int = 0,
    catalogue: Mapping[str, Feature] | None = None,
) -> tuple[Field, ...]:
    """Thermometer fields of the first ``bits`` cuts of a best-first tree.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        label: class index of each row, shape ``(rows,)``.
        bits: total bit budget.
        seed: selects among equally good splits.
        catalogue: what the features mean, for their units.

    Returns:
        Fields of ``bits`` bits in total, in the order of ``columns``. If the tree has fewer cuts,
        quantile cuts are added; if there are too few values, there are fewer bits.
    """
    if bits < 1:
        raise UsageError(f"expected at least 1 input bit, got {bits}")
    chosen = tree_cuts(columns, label, bits, seed=seed)
    if len(chosen) < bits:
        chosen += spare_cuts(columns, chosen, bits - len(chosen))
    return thermometer_fields(chosen, tuple(columns), catalogue=catalogue)
