# SPDX-License-Identifier: Apache-2.0
"""How well columns tell the values of a mark apart, from tables of counts.

A column is cut into bins. From the rows of all folds but one, a rule says which bins have more than
their share of a value; the rows of that fold are told by it. The figure is Youden's J (1950): the
share of the value's rows that the rule finds, less the share of the other rows that it finds, too.
It is 0 for a rule that knows nothing and 1 for one that knows all, however rare the value is.

It is also taken within groups of rows: of one class, protocol and state. Whoever tells the
class seems to tell every mark that depends on the class, too; within a class that help is gone.
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
"""Rows with a value, and without it, from which on a group counts."""


@dataclass(frozen=True, eq=False)
class CodedRows:
    """The rows of one stratum.

    Attributes:
        mark: value of the mark of each row, as a number below ``values``.
        values: number of values of the mark.
        label: class of each row.
        group: group of each row, as a number from 0.
        fold: fold of each row, below :data:`FOLDS`.
    """

    mark: Codes
    values: int
    label: Codes
    group: Codes
    fold: Codes

    def permuted(self, rng: np.random.Generator) -> CodedRows:
        """The rows with the mark permuted within each group."""
        order = np.argsort(self.group, kind="stable")
        shuffled = np.lexsort((rng.random(len(order)), self.group))
        mark = np.empty_like(self.mark)
        mark[order] = self.mark[shuffled]
        return CodedRows(mark, self.values, self.label, self.group, self.fold)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Weight of each group for each value; 0 where a group has too few rows of either kind."""
        there = np.zeros((int(self.group.max()) + 1, self.values))
        np.add.at(there, (self.group, self.mark), 1)
        others = there.sum(axis=1, keepdims=True) - there
        enough = (there >= LEAST) & (others >= LEAST)
        every = np.maximum(there.sum(axis=1, keepdims=True), 1)
        return np.where(enough, there * others / every, 0.0)

    @cached_property
    def _numbers(self) -> Codes:
        """Number of each group among those that count; all others have the number after these."""
        counts = self.weights.any(axis=1)
        return np.where(counts, np.cumsum(counts) - 1, counts.sum())

    @cached_property
    def place(self) -> Codes:
        """Number of the group and the fold of each row, for :func:`separability_by`."""
        return self._numbers[self.group] * FOLDS + self.fold


@dataclass(frozen=True, eq=False)
class Separability:
    """How well the values of a mark are told.

    Attributes:
        overall: J of each value against all others, float64 of shape ``(values,)``.
        within: the same within the groups; NaN where no group has both.
    """

    overall: NDArray[np.float64]
    within: NDArray[np.float64]

    @property
    def sure(self) -> NDArray[np.float64]:
        """The lesser of the two; 0 where no group has rows with the value and others."""
        return np.where(np.isnan(self.within), 0.0, np.minimum(self.overall, self.within))


def bins(values: NDArray[np.int64] | NDArray[np.float64], most: int = MOST_BINS) -> Codes:
    """Numbers of bins of about equal size; equal values share one, and frequent ones have one.

    Args:
        values: a column, of shape ``(rows,)``.
        most: at most that many bins; fewer where a bin would have less than 32 rows.
    """
    most = min(most, max(_FEWEST_BINS, len(values) // 32))
    distinct, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    places = places.reshape(-1).astype(np.int64)
    if len(distinct) <= most:
        return places
    half = most // 2  # a frequent value takes a bin, and begins another
    below = np.cumsum(counts) - counts
    frequent = counts * half >= len(values)
    steps = below * half // len(values)
    starts = np.r_[True, (np.diff(steps) > 0) | frequent[1:] | frequent[:-1]]
    return (np.cumsum(starts) - 1)[places]


def separability_by(codes: Codes, rows: CodedRows) -> tuple[Separability, Separability]:
    """How well a column tells each value: by one threshold, and by a table of bins.

    Args:
        codes: bin of each row.
        rows: the rows.

    Returns:
        The figures of the threshold on the bins' numbers, and of the bins that have more than
        their share of the value.
    """
    n, weights = int(codes.max()) + 1, rows.weights[rows.weights.any(axis=1)]
    shape = (len(weights) + 1, FOLDS, n, rows.values)
    place = (rows.place * n + codes) * rows.values + rows.mark
    counts = np.bincount(place, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
    overall, total = _j(counts.sum(axis=0)), weights.sum(axis=0)
    of_groups = [_j(one) for one in counts[:-1]]
    out = []
    for way in (0, 1):
        parts = [weight * j[way] for weight, j in zip(weights, of_groups, strict=True)]
        within = np.full(rows.values, np.nan)
        np.divide(sum(parts, np.zeros(rows.values)), total, where=total > 0, out=within)
        out.append(Separability(overall[way], within))
    return out[0], out[1]


def _j(counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """J of each value by one threshold and by bins, each fold told by the others.

    Args:
        counts: rows by fold, bin and value.
    """
    others = counts.sum(axis=2, keepdims=True) - counts
    own = counts.sum(axis=0) - counts
    rest = others.sum(axis=0) - others
    sizes = own.sum(axis=1, keepdims=True), rest.sum(axis=1, keepdims=True)
    excess = own / np.maximum(sizes[0], 1) - rest / np.maximum(sizes[1], 1)
    below = np.cumsum(excess, axis=1)
    at = np.abs(below).argmax(axis=1)[:, None]
    side = np.sign(np.take_along_axis(below, at, axis=1))
    rules = (
        np.where(np.arange(counts.shape[1])[:, None] <= at, side, -side),
        np.sign(excess),
    )
    every, left = counts.sum(axis=(0, 1)), others.sum(axis=(0, 1))
    found, false = counts / np.maximum(every, 1), others / np.maximum(left, 1)
    # A bin of which nothing is known is half a guess.
    a, b = (((found - false) * (1 + rule) / 2).sum(axis=(0, 1)) for rule in rules)
    return a, b


@dataclass(frozen=True)
class Cut:
    """The threshold on a column that tells a value best on given rows.

    Attributes:
        at: the threshold.
        below: whether the value's rows lie below it; otherwise they are at least as large.
        agree: share of the rows that it tells right.
    """

    at: int
    below: bool
    agree: float


def best_cut(values: NDArray[np.int64], positive: NDArray[np.bool_]) -> Cut:
    """The cut of largest J.

    Args:
        values: a column of at least two different values, of shape ``(rows,)``.
        positive: whether a row has the mark's value; some rows have it, and some do not.
    """
    distinct, places = np.unique(values, return_inverse=True)
    own = np.bincount(places.reshape(-1), weights=positive, minlength=len(distinct))
    every = np.bincount(places.reshape(-1), minlength=len(distinct))
    rest = every - own
    below = np.cumsum(own / own.sum() - rest / rest.sum())[:-1]
    at = int(np.abs(below).argmax())
    threshold, is_below = int(distinct[at + 1]), bool(below[at] > 0)
    says = (values < threshold) == is_below
    return Cut(threshold, is_below, float((says == positive).mean()))
