# SPDX-License-Identifier: Apache-2.0
"""Learns structure and parameters of a sum-product network (LearnSPN, Gens and Domingos 2013).

Nearly independent groups of features become the factors of a product. If there is only one group,
rows are clustered, and the clusters become the terms of a sum. Rows are bins of integer features.
Equal rows are stored once with their count, so tens of thousands of flows take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.families.spn.settings import SpnTraining

Reals = NDArray[np.float64]
_PARTS = 50  # by default, clusters below this fraction of all rows are not divided further
_ROUNDS = 25  # of expectation and maximisation for one sum


@dataclass(frozen=True, eq=False)
class RealNode:
    """A node with real parameters.

    Attributes:
        children: indices of earlier nodes; empty for a leaf.
        parameters: probability of each bin of a leaf, weight of each term of a sum; empty for a
            product.
        field: index of a leaf's feature; -1 for other nodes.
    """

    children: tuple[int, ...]
    parameters: Reals
    field: int = -1


@dataclass(frozen=True, eq=False)
class RealSpn:
    """A sum-product network with real parameters; its last node is the root."""

    nodes: tuple[RealNode, ...]

    def log2(self, bins: NDArray[np.int64]) -> Reals:
        """Compute log2 of the probability of rows: int ``(rows, fields)`` to ``(rows,)``."""
        values: list[Reals] = []
        for node in self.nodes:
            if node.field >= 0:
                values.append(np.log2(node.parameters)[bins[:, node.field]])
            elif not len(node.parameters):
                values.append(np.sum([values[c] for c in node.children], axis=0))
            else:
                terms = np.stack([values[c] for c in node.children])
                terms += np.log2(node.parameters)[:, None]
                values.append(np.logaddexp2.reduce(terms, axis=0))
        return values[-1]


def learn_spn(
    bins: NDArray[np.int64], sizes: Sequence[int], settings: SpnTraining, *, seed: int = 0
) -> RealSpn:
    """Learn a network from rows.

    Args:
        bins: the bin of each feature of each row, int array of shape ``(rows, features)``.
        sizes: number of bins of each feature.
        settings: when to stop, and which features count as dependent.
        seed: seed of the clustering.
    """
    rows, counts = np.unique(bins, axis=0, return_counts=True)
    learner = _Learner(rows, counts.astype(np.float64), tuple(sizes), settings, seed)
    learner.grow(np.arange(len(rows)), tuple(range(len(sizes))), settings.depth)
    return RealSpn(tuple(learner.nodes))


class _Learner:
    """State of one run: distinct rows, their counts, and the nodes so far."""

    def __init__(
        self,
        rows: NDArray[np.int64],
        counts: Reals,
        sizes: tuple[int, ...],
        settings: SpnTraining,
        seed: int,
    ) -> None:
        self.rows, self.counts, self.sizes, self.settings = rows, counts, sizes, settings
        self.rng = np.random.default_rng(seed)
        self.min_rows = settings.min_rows or counts.sum() / _PARTS
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.one_hot = np.zeros((len(rows), int(self.starts[-1])), dtype=np.float32)
        for j, start in enumerate(self.starts[:-1]):
            self.one_hot[np.arange(len(rows)), start + rows[:, j]] = 1
        self.nodes: list[RealNode] = []

    def grow(self, index: NDArray[np.int64], scope: tuple[int, ...], depth: int) -> int:
        """Add the network of some rows and features, and return the index of its root."""
        if len(scope) == 1:
            return self._leaf(index, scope[0])
        few = self.counts[index].sum() < self.min_rows
        if few or depth == 0 or len(index) < 2:
            return self._factors([self._leaf(index, f) for f in scope])
        groups = self._independent(index, scope)
        if len(groups) > 1:
            return self._factors([self.grow(index, group, depth) for group in groups])
        parts = self._clusters(index, scope)
        if len(parts) < 2:  # the rows do not separate: features count as independent
            return self._factors([self._leaf(index, f) for f in scope])
        terms = tuple(self.grow(part, scope, depth - 1) for part in parts)
        weights = np.array([self.counts[part].sum() for part in parts])
        return self._add(RealNode(terms, weights / weights.sum()))

    def _add(self, node: RealNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _factors(self, children: list[int]) -> int:
        return self._add(RealNode(tuple(children), np.empty(0)))

    def _leaf(self, index: NDArray[np.int64], field: int) -> int:
        bin_counts = np.bincount(
            self.rows[index, field], weights=self.counts[index], minlength=self.sizes[field]
        )
        chances = bin_counts + self.settings.smoothing  # so that no bin has probability 0
        return self._add(RealNode((), chances / chances.sum(), field))

    def _columns(self, scope: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Select the one-hot columns of some features; return the start of each feature too."""
        columns = np.concatenate([np.arange(self.starts[f], self.starts[f + 1]) for f in scope])
        sizes = [self.sizes[f] for f in scope]
        return columns, np.concatenate([[0], np.cumsum(sizes)])[:-1]

    def _independent(
        self, index: NDArray[np.int64], scope: tuple[int, ...]
    ) -> list[tuple[int, ...]]:
        """Find groups of features with little mutual information between them.

        In a sample, independent features too have an information above 0. The expected bias, half
        the degrees of freedom per row (Miller 1955), is subtracted.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        columns, starts = self._columns(scope)
        x = self.one_hot[np.ix_(index, columns)]
        total = self.counts[index].sum()
        joint = ((x * self.counts[index][:, None]).T @ x).astype(np.float64) / total
        single = np.diag(joint).copy()
        occurs = joint > 0
        # 0 log 0 is 0: pairs of bins that no row has keep the ratio 1.
        ratio = np.divide(joint, np.outer(single, single), out=np.ones_like(joint), where=occurs)
        information = np.add.reduceat(
            np.add.reduceat(joint * np.log2(ratio), starts, axis=0), starts, axis=1
        )
        # Bins that no row has add no degree of freedom; log(2) converts nats to bits.
        free = np.add.reduceat((single > 0).astype(np.float64), starts) - 1
        information -= np.outer(free, free) / (2 * total * np.log(2))
        count, group = connected_components(
            csr_array(information > self.settings.dependence), directed=False
        )
        return [tuple(scope[i] for i in np.flatnonzero(group == g)) for g in range(count)]

    def _clusters(
        self, index: NDArray[np.int64], scope: tuple[int, ...]
    ) -> list[NDArray[np.int64]]:
        """Cluster rows by a mixture of independent features, fitted by EM."""
        columns, starts = self._columns(scope)
        x = self.one_hot[np.ix_(index, columns)]
        counts = self.counts[index]
        centres = self._apart(x, counts, len(scope))
        nearest = (x @ x[centres].T).argmax(axis=1)
        share = np.eye(len(centres))[nearest]
        ends = [*starts[1:], len(columns)]
        for _ in range(_ROUNDS):
            weighted = share * counts[:, None]
            prior = weighted.sum(axis=0) + 1e-9  # an empty cluster must not give log(0)
            chances = (x.T @ weighted).T + self.settings.smoothing
            for start, end in zip(starts, ends, strict=True):
                chances[:, start:end] /= chances[:, start:end].sum(axis=1, keepdims=True)
            logs = x @ np.log(chances).T + np.log(prior / prior.sum())
            logs -= logs.max(
                axis=1, keepdims=True
            )  # exp() of the largest is 1: no underflow to 0/0
            share = np.exp(logs)
            share /= share.sum(axis=1, keepdims=True)
        best = share.argmax(axis=1)
        parts = [index[best == k] for k in range(len(centres))]
        return [part for part in parts if len(part)]

    def _apart(self, x: NDArray[np.float32], counts: Reals, features: int) -> list[int]:
        """Choose rows far from each other as a start (k-means++, Arthur and Vassilvitskii 2007)."""
        chosen = [int(self.rng.choice(len(x), p=counts / counts.sum()))]
        distance = np.full(len(x), float(features))
        while len(chosen) < self.settings.clusters:
            # A dot product of one-hot rows counts equal features: the rest is a Hamming distance.
            distance = np.minimum(distance, features - x @ x[chosen[-1]])
            chance = counts * distance
            if chance.sum() <= 0:
                break
            chosen.append(int(self.rng.choice(len(x), p=chance / chance.sum())))
        return chosen
