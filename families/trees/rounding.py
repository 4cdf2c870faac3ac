# SPDX-License-Identifier: Apache-2.0
"""Rounds grown trees to leaves of a byte, and finds how many of them fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from n3ic.families.trees.growth import PRIOR, Floats, GrownTrees
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.simplify import simplified
from n3ic.model.bits import Bits, pack
from n3ic.model.inputs import InputSpec
from n3ic.model.passes import Simplified
from n3ic.model.summed import n_sums

LARGEST_LEAF = 127
"""Largest magnitude of a leaf, which so takes a byte."""
_QUANTILE = 0.995  # this quantile of the leaves' sizes becomes the largest; few are clipped
_BIAS_STEPS = 5  # Newton steps
_REFITS = 2  # of all leaves
_REFIT_STEP = 0.5  # damping of their Newton steps
_BLOCK = 1 << 22  # rows times trees whose sums numpy holds at once

Rows = tuple[Bits, NDArray[np.int64]]
"""Input bits, bool array of shape ``(rows, n_bits)``, and the class index of each row."""


@dataclass(frozen=True, eq=False)
class TreesRounder:
    """Makes integer models of the first trees of a growth.

    Attributes:
        grown: the trees.
        spec: the input bits.
        classes: name of each class.
        rows: training rows, to which biases are fitted.
    """

    grown: GrownTrees
    spec: InputSpec
    classes: tuple[str, ...]
    rows: Rows

    @property
    def n_trees(self) -> int:
        """Number of trees that grew."""
        return len(self.grown.of_class)

    @cached_property
    def _whole(self) -> TreesModel:
        """All trees, without leaf values: finds the leaf that a row reaches."""
        return self._model(
            self.n_trees,
            np.zeros((len(self.grown.values), self._sums), dtype=np.int64),
            np.zeros(self._sums, dtype=np.int64),
        )

    @property
    def _sums(self) -> int:
        return n_sums(len(self.classes))

    @cached_property
    def _reached(self) -> NDArray[np.int32]:
        return self._whole.reached(pack(self.rows[0]))

    def _step(self, count: int) -> float:
        """What an integer of 1 stands for in log-odds, with the first trees."""
        sizes = np.abs(self.grown.values[: self._leaves(count)])
        return float(np.quantile(sizes, _QUANTILE)) / LARGEST_LEAF or 1.0

    def _integers(self, count: int) -> NDArray[np.int64]:
        """Leaves of all trees in the step of the first trees."""
        nearest = np.rint(self.grown.values / self._step(count)).astype(np.int64)
        return np.clip(nearest, -LARGEST_LEAF, LARGEST_LEAF)

    def _leaves(self, count: int) -> int:
        return int(np.sum(self.grown.trees.sizes[:count])) + count

    def fitting(self, limit: int) -> int:
        """Find how many of the first trees fit a limit, so that one more does not.

        Args:
            limit: bytes in total; 0 for no limit.
        """
        if not limit:
            return self.n_trees
        low, high = 0, self.n_trees + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.rounded(middle).model.total_bytes <= limit:
                low = middle
            else:
                high = middle
        return low

    def best_count(self, rows: Rows, most: int) -> int:
        """Choose the number of first trees that are right on most rows; the least of equals.

        Args:
            rows: the rows that choose.
            most: largest number of trees.
        """
        reached, right = self._whole.reached(pack(rows[0])), np.zeros(most, dtype=np.int64)
        integers = self._integers(most)
        base = self.grown.base / self._step(most)
        for start in range(0, len(reached), max(1, _BLOCK // most)):
            part = slice(start, start + max(1, _BLOCK // most))
            scores = np.tile(base, (len(reached[part]), 1))
            for tree, column in enumerate(reached[part, :most].T):
                scores[:, self.grown.of_class[tree]] += integers[column]
                right[tree] += (scores.argmax(axis=1) == rows[1][part]).sum()
        return int(right.argmax()) + 1

    def rounded(self, count: int) -> Simplified[TreesModel]:
        """Make a model of the first trees: leaves of a byte, biases fitted to the training rows.

        What makes no difference to a score, such as a node between two leaves that round to one
        integer, is gone.

        Args:
            count: number of trees.
        """
        step, of_class = self._step(count), self.grown.of_class[:count]
        integers = self._integers(count)[: self._leaves(count)]
        scores = np.zeros((len(self._reached), len(self.classes)))
        for tree, each in enumerate(of_class.tolist()):
            scores[:, each] += step * integers[self._reached[:, tree]]
        offset = self._fitted_offset(scores, self.grown.base)
        present = np.isfinite(offset)
        bias = np.zeros(len(self.classes), dtype=np.int64)
        bias[present] = np.rint(offset[present] / step)
        leaves = np.zeros((len(integers), len(self.classes)), dtype=np.int64)
        counts = np.add(self.grown.trees.sizes[:count], 1)
        leaves[np.arange(len(leaves)), np.repeat(of_class, counts)] = integers
        if self._sums == 1:
            leaves, bias = leaves[:, 1:], bias[1:] - bias[0]
        model = self._model(count, leaves, bias)
        if not present.all():  # classes without a training row never win
            bias[~present] = model.sum_bounds[0][present].min() - 1
            model = self._model(count, leaves, bias)
        return simplified(model)

    def refitted(self, count: int) -> TreesRounder:
        """Fit the leaves of the first trees anew, one tree after the other, by Newton steps.

        Args:
            count: number of trees.
        """
        values, base = self.grown.values.copy(), self.grown.base
        ends = np.cumsum(np.add(self.grown.trees.sizes, 1)).tolist()
        scores = np.zeros((len(self._reached), len(self.classes)))
        for tree, each in enumerate(self.grown.of_class[:count].tolist()):
            scores[:, each] += values[self._reached[:, tree]]
        for _ in range(_REFITS):
            base = self._fitted_offset(scores, base)
            for tree, each in enumerate(self.grown.of_class[:count].tolist()):
                own = slice(ends[tree - 1] if tree else 0, ends[tree])
                leaf = self._reached[:, tree] - own.start
                chances = _chances(scores + base)[:, each]
                slopes = np.bincount(leaf, chances - (self.rows[1] == each), own.stop - own.start)
                curves = np.bincount(leaf, chances * (1 - chances), own.stop - own.start)
                moved = -_REFIT_STEP * slopes / (curves + PRIOR)
                values[own] += moved
                scores[:, each] += moved[leaf]
        return replace(self, grown=replace(self.grown, values=values, base=base))

    def _fitted_offset(self, scores: Floats, base: Floats) -> Floats:
        """Fit what is added to each class's scores by Newton steps on the cross-entropy.

        Args:
            scores: in log-odds, shape ``(rows, classes)``.
            base: where it begins, shape ``(classes,)``.
        """
        offset, label = base.copy(), self.rows[1]
        shares = np.bincount(label, minlength=len(offset)) / len(label)
        moved = np.isfinite(offset)
        if self._sums == 1:
            moved[0] = False  # the score of the first of two classes is 0
        for _ in range(_BIAS_STEPS):
            chances = _chances(scores + offset)
            slopes = chances.mean(axis=0) - shares
            curves = (chances * (1 - chances)).mean(axis=0)
            offset[moved] -= np.clip(slopes / (curves + 1e-9), -1, 1)[moved]
        return offset

    def _model(self, count: int, leaves: NDArray[np.int64], bias: NDArray[np.int64]) -> TreesModel:
        trees = self.grown.trees
        nodes = int(np.sum(trees.sizes[:count]))
        return TreesModel(
            input=self.spec,
            sizes=np.array(trees.sizes[:count]),
            bits=np.array(trees.bits[:nodes]),
            zero_sizes=np.array(trees.zero_sizes[:nodes]),
            leaves=leaves,
            bias=bias,
            classes=self.classes,
        )


def _chances(logits: Floats) -> Floats:
    """Probabilities of all classes."""
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))
