# SPDX-License-Identifier: Apache-2.0
"""Rounds grown trees to leaves of few bits, and finds how many of their splits fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.families.trees.growth import Floats, GroupedRows, GrownTrees, chances_of
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.simplify import simplified
from n3ic.model.passes import Simplified
from n3ic.model.summed import n_sums

_QUANTILE = 0.995  # this quantile of the leaves' sizes becomes the largest; few are clipped
_BIAS_STEPS = 5  # Newton steps
_BIASES = 2  # integers on each side of the fitted bias that are tried


@dataclass(frozen=True, eq=False)
class TreesRounder:
    """Makes integer models of the first splits of a growth.

    Attributes:
        grown: the trees.
        rows: training rows, to which biases are fitted.
        classes: name of each class.
        leaf_bits: number of bits of a leaf.
    """

    grown: GrownTrees
    rows: GroupedRows
    classes: tuple[str, ...]
    leaf_bits: int

    @property
    def _sums(self) -> int:
        return n_sums(len(self.classes))

    def fitting(self, limit: int) -> int:
        """Find how many of the first splits fit a limit, so that one more does not.

        Args:
            limit: bytes in total; 0 for no limit.
        """
        if not limit:
            return self.grown.splits
        low, high = 0, self.grown.splits + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.rounded(middle).model.total_bytes <= limit:
                low = middle
            else:
                high = middle
        return low

    def best_count(self, rows: GroupedRows) -> int:
        """Choose the number of splits after which a tree is whole and most rows are right.

        Args:
            rows: the rows that choose; the least of equals wins.
        """
        grown, reached = self.grown, self.grown.reach(rows)
        scores = np.tile(grown.base, (len(reached), 1))
        right = []
        for tree, of_class in enumerate(grown.of_class.tolist()):
            scores[:, of_class] += grown.values[reached[:, tree]]
            right.append(rows.counts[np.arange(len(reached)), scores.argmax(axis=1)].sum())
        return int(grown.ends()[int(np.argmax(right))]) if right else 0

    def rounded(self, splits: int) -> Simplified[TreesModel]:
        """Make a model of the first splits: leaves of few bits, biases fitted to training rows.

        What makes no difference to a score, such as a node between two leaves that round to one
        integer, is gone.

        Args:
            splits: number of splits.
        """
        grown = self.grown
        of_class = grown.of_class[: grown.trees_of(splits)]
        stops = grown.stops(splits)
        reached = stops[grown.reached[:, : len(of_class)]]
        half = 1 << self.leaf_bits - 1
        values, base = grown.values, grown.base
        if len(of_class) == self._sums == 1:  # the sign of a single tree's leaf is its class
            values, base = values + base[1], np.zeros_like(base)
        step = float(np.quantile(np.abs(values[np.unique(reached)]), _QUANTILE)) / half or 1.0
        # An integer stands for the middle of its interval, so that no value rounds to neither sign.
        integers = np.clip(np.floor(values[stops] / step), -half, half - 1).astype(np.int64)
        sums = np.zeros((len(reached), len(self.classes)), dtype=np.int64)
        for tree, each in enumerate(of_class.tolist()):
            sums[:, each] += integers[reached[:, tree]]
        trees = np.bincount(of_class, minlength=len(self.classes))
        scores: Floats = step * sums.astype(np.float64)
        offset = self._fitted_offset(scores, base + step / 2 * trees.astype(np.float64))
        present = np.isfinite(offset)
        bias = np.zeros(len(self.classes), dtype=np.int64)
        bias[present] = np.rint(offset[present] / step)
        if self._sums == 1:
            bias[1] = self._best_bias(sums[:, 1], int(bias[1]))
        return self._model(splits, of_class, integers, bias, present)

    def _fitted_offset(self, scores: Floats, base: Floats) -> Floats:
        """Fit what is added to each class's scores by Newton steps on the cross-entropy.

        Args:
            scores: in log-odds, shape ``(groups, classes)``.
            base: where it begins, shape ``(classes,)``.
        """
        offset, weights = base.copy(), self.rows.weights
        totals = self.rows.counts.sum(axis=0)
        moved = np.isfinite(offset)
        if self._sums == 1:
            moved[0] = False  # the score of the first of two classes is 0
        for _ in range(_BIAS_STEPS):
            chances = chances_of(scores + offset)
            slopes = weights @ chances - totals
            curves = weights @ (chances * (1 - chances))
            offset[moved] -= np.clip(slopes / (curves + 1e-6), -1, 1)[moved]
        return offset

    def _best_bias(self, sums: NDArray[np.int64], fitted: int) -> int:
        """Choose the bias of two classes, near a fitted one, that is right on most rows."""
        near = sorted(range(-_BIASES, _BIASES + 1), key=abs)
        counts = self.rows.counts
        right = [float(np.where(sums + fitted + k > 0, counts[:, 1], counts[:, 0]).sum())
                 for k in near]  # fmt: skip
        return fitted + near[int(np.argmax(right))]

    def _model(
        self,
        splits: int,
        of_class: NDArray[np.int64],
        integers: NDArray[np.int64],
        bias: NDArray[np.int64],
        present: NDArray[np.bool_],
    ) -> Simplified[TreesModel]:
        laid = self.grown.laid(self.rows.spec, splits)
        leaves = np.zeros((len(laid.leaves), len(self.classes)), dtype=np.int64)
        counts = np.add(laid.sizes, 1)
        leaves[np.arange(len(leaves)), np.repeat(of_class, counts)] = integers[laid.leaves]
        if not len(of_class):  # a model has a tree at least
            laid, leaves = laid._replace(sizes=[0]), np.zeros((1, len(self.classes)), np.int64)
        if self._sums == 1:
            leaves, bias = leaves[:, 1:], bias[1:]  # the first class's is 0
        model = TreesModel(
            input=self.rows.spec,
            sizes=np.array(laid.sizes),
            bits=np.array(laid.bits),
            zero_sizes=np.array(laid.zero_sizes),
            leaves=leaves,
            bias=bias,
            classes=self.classes,
        )
        if not present.all():  # classes without a training row never win
            bias[~present] = model.sum_bounds[0][present].min() - 1
            model = model.changed(bias=bias)
        return simplified(model)
