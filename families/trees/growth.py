# SPDX-License-Identifier: Apache-2.0
"""Grows boosted trees over input bits: scikit-learn's histogram boosting, on one thread."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import needed
from n3ic.families.trees.arrays import Ints, Preorder
from n3ic.families.trees.simplify import possible
from n3ic.model.bits import Bits
from n3ic.model.inputs import InputSpec

Floats = NDArray[np.float64]
PRIOR = 3.0
"""Curvature that is added to each leaf's, so that few rows move it only a little."""


@dataclass(frozen=True, eq=False)
class GrownTrees:
    """Boosted trees in the order in which they grew, with real leaf values.

    Attributes:
        trees: the trees; each leaf has a number of its own.
        values: the value of each leaf in log-odds, float64 array of shape ``(leaves,)``.
        of_class: the class to whose score each tree adds, int64 array of shape ``(trees,)``.
        base: the score of each class without trees, float64 array of shape ``(classes,)``;
            ``-inf`` for a class without a training row.
        gains: what each input bit has gained, float64 array of shape ``(n_bits,)``.
    """

    trees: Preorder
    values: Floats
    of_class: Ints
    base: Floats
    gains: Floats


def grown(
    bits: Bits,
    label: NDArray[np.int64],
    spec: InputSpec,
    n_classes: int,
    *,
    asked: Collection[int],
    leaves: int,
    rounds: int,
    rate: float,
    seed: int,
) -> GrownTrees:
    """Grow boosted trees on training rows.

    Args:
        bits: training rows, bool array of shape ``(rows, n_bits)``.
        label: class index of each row, of two classes at least.
        spec: the input bits.
        n_classes: number of classes.
        asked: the input bits that nodes may ask.
        leaves: largest number of leaves of a tree.
        rounds: number of boosting rounds.
        rate: share of each tree's leaf values that counts.
        seed: seed of the boosting.

    Raises:
        MissingDependencyError: the training libraries are not installed.
    """
    with needed("growing trees"):
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits
    groups = ordered_bits(spec, asked)
    columns = np.stack([bits[:, group].sum(axis=1) for group in groups], axis=1)
    booster = HistGradientBoostingClassifier(
        max_iter=rounds,
        max_leaf_nodes=leaves,
        learning_rate=rate,
        l2_regularization=PRIOR,
        early_stopping=False,
        random_state=seed,
    )
    # One thread: parallel sums of floats would make the cuts depend on the number of cores.
    with threadpool_limits(1):
        booster.fit(columns, label)
    present = booster.classes_.astype(np.int64)
    own = present if len(present) > 2 else present[1:]  # two classes share a sum
    base = np.full(n_classes, -np.inf)
    base[present] = 0.0
    # scikit-learn keeps trees and base only in these: lists of a round's trees, one per sum.
    base[own] = booster._baseline_prediction.ravel()
    nodes = _Nodes([], [], [], [], np.zeros(spec.n_bits))
    roots, of_class = [], []
    for round_ in booster._predictors:
        for tree, each in zip(round_, own.tolist(), strict=True):
            roots.append(nodes.add(tree.nodes, groups))
            of_class.append(each)
    laid = possible(spec, roots, nodes.bits, nodes.zero, nodes.one)
    values = np.array(nodes.values)[laid.leaves]
    return GrownTrees(laid, values, np.array(of_class, dtype=np.int64), base, nodes.gains)


def ordered_bits(spec: InputSpec, asked: Collection[int]) -> list[list[int]]:
    """Group input bits into columns: the number of bits that are set tells which are.

    Args:
        spec: the input bits.
        asked: the bits to group. Those of a thermometer are a column, every other is one alone.
    """
    groups: list[list[int]] = []
    for start, field in zip(spec.offsets, spec.fields, strict=True):
        own = [b for b in range(start, start + field.width) if b in asked]
        groups += ([own] if own else []) if field.kind == "thermometer" else [[b] for b in own]
    return groups


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Nodes of all trees (sides are a node or ``~leaf``), and the leaves' values."""

    bits: list[int]
    zero: list[int]
    one: list[int]
    values: list[float]
    gains: Floats

    def add(self, nodes: Any, groups: list[list[int]]) -> int:
        """Add a tree of scikit-learn's; return its root, a node or ``~leaf``."""
        place: list[int] = []
        for node in nodes:
            if node["is_leaf"]:
                self.values.append(float(node["value"]))
                place.append(~(len(self.values) - 1))
                continue
            # A column at most the threshold goes left: the bit of the next higher number is 0.
            bit = groups[int(node["feature_idx"])][math.floor(float(node["num_threshold"]))]
            self.gains[bit] += float(node["gain"])
            place.append(len(self.bits))
            self.bits.append(bit)
            self.zero.append(0)
            self.one.append(0)
        for at, node in zip(place, nodes, strict=True):
            if at >= 0:
                self.zero[at], self.one[at] = place[int(node["left"])], place[int(node["right"])]
        return place[0]
