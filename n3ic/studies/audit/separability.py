# SPDX-License-Identifier: Apache-2.0
"""How well columns reveal the values of a mark, computed from tables of counts.

A column is cut into bins. A rule from all folds but one says which bins have more than their share
of a value, and is tested on the rows of the remaining fold. The figure is Youden's J (1950): the
share of the value's rows that the rule finds minus the share of the other rows that it finds.
J is 0 for a rule that knows nothing and 1 for a perfect one, however rare the value is.

J is also computed within groups of one class, protocol and state. A column that reveals the class
seems to reveal every mark that depends on the class; within one class this help is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]

FOLDS = 5
MOST_BINS = 256
_FEWEST_BINS = 16
LEAST = 30
"""Fewest rows with a value, and fewest without it, for a group to count."""


@dataclass(frozen=True, eq=False)
class CodedRows:
    """The rows of one stratum; the arrays are int64 of shape ``(rows,)``.

    Attributes:
        mark: value of the mark in each row, as an index below ``values``.
        values: number of values of the mark.
        label: class index of each row.
        group: group of each row, as a number from 0.
        fold: fold of each row, below :data:`FOLDS`.
    """

    mark: Codes
    values: int
    label: Codes
    group: Codes
    fold: Codes

    def permuted(self, rng: np.random.Generator) -> CodedRows:
        """Return the rows with the mark permuted within each group."""
        order = np.argsort(self.group, kind="stable")
        shuffled = np.lexsort((rng.random(len(order)), self.group))
        mark = np.empty_like(self.mark)
        mark[order] = self.mark[shuffled]
        return CodedRows(mark, self.values, self.label, self.group, self.fold)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Weight of each group for each value; 0 where a group has too few rows with or without it.

        The array is float64 of shape ``(groups, values)``.
        """
        present = np.zeros((int(self.group.max()) + 1, self.values))
        np.add.at(present, (self.group, self.mark), 1)
        absent = present.sum(axis=1, keepdims=True) - present
        enough = (present >= LEAST) & (absent >= LEAST)
        every = np.maximum(present.sum(axis=1, keepdims=True), 1)
        return np.where(enough, present * absent / every, 0.0)

    @cached_property
    def _numbers(self) -> Codes:
        """Number of each group among those that count; all others share the next number."""
        counts = self.weights.any(axis=1)
        return np.where(counts, np.cumsum(counts) - 1, counts.sum())

    @cached_property
    def place(self) -> Codes:
        """Group and fold of each row as one number, for :func:`separability_by`."""
        return self._numbers[self.group] * FOLDS + self.fold


@dataclass(frozen=True, eq=False)
class Separability:
    """How well the values of a mark are revealed.

    Attributes:
        overall: J of each value against all others, float64 of shape ``(values,)``.
        within: the same within the groups; NaN where no group has enough rows of both.
    """

    overall: NDArray[np.float64]
    within: NDArray[np.float64]

    @property
    def sure(self) -> NDArray[np.float64]:
        """The smaller of the two J; 0 where ``within`` is NaN."""
        return np.where(np.isnan(self.within), 0.0, np.minimum(self.overall, self.within))


def bins(values: NDArray[np.int64] | NDArray[np.float64], most: int = MOST_BINS) -> Codes:
    """Assign values to bins of about equal size; equal values share a bin.

    Args:
        values: a column, of shape ``(rows,)``.
        most: largest number of bins; there are fewer where a bin would have less than 32 rows.

    Returns:
        The bin of each row, int64 of shape ``(rows,)``.
    """
    most = min(most, max(_FEWEST_BINS, len(values) // 32))
    distinct, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    places = places.reshape(-1).astype(np.int64)
    if len(distinct) <= most:
        return places
    half = most // 2  # a frequent value has a bin of its own, so it ends one and begins another
    below = np.cumsum(counts) - counts
    frequent = counts * half >= len(values)
    steps = below * half // len(values)
    starts = np.r_[True, (np.diff(steps) > 0) | frequent[1:] | frequent[:-1]]
    return (np.cumsum(starts) - 1)[places]


def separability_by(codes: Codes, rows: CodedRows) -> tuple[Separability, Separability]:
    """Measure how well a column reveals each value by one threshold and by a table of bins.

    Args:
        codes: bin of each row, int64 of shape ``(rows,)``.
        rows: the rows.

    Returns:
        The figures of one threshold on the bin numbers, and those of the set of bins that have
        more than their share of the value.
    """
    n, weights = int(codes.max()) + 1, rows.weights[rows.weights.any(axis=1)]
    shape = (len(weights) + 1, FOLDS, n, rows.values)
    place = (rows.place * n + codes) * rows.values + rows.mark
    counts = np.bincount(place, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
    overall, total = _j(counts.sum(axis=0)), weights.sum(axis=0)
    of_groups = [_j(group_counts) for group_counts in counts[:-1]]
    out = []
    for way in (0, 1):
        parts = [weight * j[way] for weight, j in zip(weights, of_groups, strict=True)]
        within = np.full(rows.values, np.nan)
        np.divide(sum(parts, np.zeros(rows.values)), total, where=total > 0, out=within)
        out.append(Separability(overall[way], within))
    return out[0], out[1]


def _j(counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute J of each value by one threshold and by bins, testing each fold on the others' rule.

    Args:
        counts: number of rows, float64 of shape ``(FOLDS, bins, values)``.

    Returns:
        Two arrays, float64 of shape ``(values,)``.
    """
    training = counts.sum(axis=2, keepdims=True) - counts
    own = counts.sum(axis=0) - counts
    training_others = training.sum(axis=0) - training
    sizes = own.sum(axis=1, keepdims=True), training_others.sum(axis=1, keepdims=True)
    excess = own / np.maximum(sizes[0], 1) - training_others / np.maximum(sizes[1], 1)
    below = np.cumsum(excess, axis=1)
    at = np.abs(below).argmax(axis=1)[:, None]
    side = np.sign(np.take_along_axis(below, at, axis=1))
    rules = (
        np.where(np.arange(counts.shape[1])[:, None] <= at, side, -side),
        np.sign(excess),
    )
    every, left = counts.sum(axis=(0, 1)), training.sum(axis=(0, 1))
    true_shares, false = counts / np.maximum(every, 1), training / np.maximum(left, 1)
    # A bin without training rows has rule 0 and counts half, like a coin toss.
    a, b = (((true_shares - false) * (1 + rule) / 2).sum(axis=(0, 1)) for rule in rules)
    return a, b


@dataclass(frozen=True)
class Cut:
    """The threshold on a column that reveals a value best on given rows.

    Attributes:
        at: the threshold.
        below: whether the value's rows lie below the threshold rather than at or above it.
        agree: share of the rows that the threshold classifies correctly.
    """

    at: int
    below: bool
    agree: float


def best_cut(values: NDArray[np.int64], positive: NDArray[np.bool_]) -> Cut:
    """Return the cut with the largest absolute J.

    Args:
        values: a column of at least two different values, int64 of shape ``(rows,)``.
        positive: whether each row has the mark's value, bool of shape ``(rows,)``; both must occur.
    """
    distinct, places = np.unique(values, return_inverse=True)
    own = np.bincount(places.reshape(-1), weights=positive, minlength=len(distinct))
    every = np.bincount(places.reshape(-1), minlength=len(distinct))
    negatives = every - own
    below = np.cumsum(own / own.sum() - negatives / negatives.sum())[:-1]
    at = int(np.abs(below).argmax())
    threshold, is_below = int(distinct[at + 1]), bool(below[at] > 0)
    says = (values < threshold) == is_below
    return Cut(threshold, is_below, float((says == positive).mean()))
