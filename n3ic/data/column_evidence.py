# SPDX-License-Identifier: Apache-2.0
"""What the values of a column show: whether it names the classes, the capture or the time.

All functions take codes or numbers of the rows in the order of the file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]

_SAMPLE = 20_000  # rows that the evidence beyond the measurements is taken from
_DEPTH = 8  # of the tree of measurements
_LEAST = 20  # rows of a leaf
_LONG = 100  # rows below which going up may be chance
_RUNS = 0.995  # share of the steps along the file that go up
_SOME = 20  # different values below which a column that goes up may be one that was sorted by
_SELDOM = 200  # a block has this many rows on average
_OFTEN = 5  # changes of the class for each change of the value
_ENDS = 0.01  # of the range, by which the ends of evenly spread numbers may be missed
_FIRST = (0, 1024, 32768, 49152)  # of 16 bits, and the common ranges of ephemeral ports
_LAST = (60999, 65535)
_UNEVEN = 0.05  # distance to the uniform distribution


def balanced(label: Codes, answer: Codes) -> float:
    """Mean recall of the classes that occur."""
    sizes = np.bincount(label)
    right = np.bincount(label[label == answer], minlength=len(sizes))
    return float((right[sizes > 0] / sizes[sizes > 0]).mean())


def accuracy_alone(codes: Codes, label: Codes) -> float:
    """Balanced accuracy of the classes by a column's values, on rows that did not teach it."""
    return _held_out_accuracy(codes, label, np.random.default_rng(0).random(len(label)) < 0.5)


def _held_out_accuracy(codes: Codes, label: Codes, training: NDArray[np.bool_]) -> float:
    """Balanced accuracy, outside the training rows, of the class that is over-represented most."""
    if training.all() or not training.any():
        return 0.0
    counts = np.zeros((int(codes.max()) + 1, int(label.max()) + 1))
    np.add.at(counts, (codes[training], label[training]), 1)
    answer = (counts / np.maximum(counts.sum(axis=0), 1)).argmax(axis=1)  # each class counts alike
    return balanced(label[~training], answer[codes[~training]])


def accuracy_beyond(measurements: Sequence[Codes], codes: Codes, label: Codes) -> float:
    """How much a column tells of the classes that the measurements together leave open, 0 to 1.

    A shallow tree of the measurements divides the rows. In each leaf, the column's values may then
    tell the classes apart. Half of the rows teach, the others are counted.

    Args:
        measurements: the measurements in few bins, int64 of shape ``(rows,)`` each.
        codes: the column's values.
        label: the classes.
    """
    sample = np.arange(len(label))
    if len(sample) > _SAMPLE:  # spread evenly over the file
        sample = np.linspace(0, len(sample) - 1, _SAMPLE).astype(np.int64)
    sample = np.random.default_rng(0).permutation(sample)
    label, codes = label[sample], codes[sample]
    training = np.arange(len(sample)) % 2 == 0
    leaf = _leaves([m[sample] for m in measurements], label, training)
    joint = np.unique(leaf * (int(codes.max()) + 1) + codes, return_inverse=True)[1].reshape(-1)
    without, more = (
        _held_out_accuracy(leaf, label, training),
        _held_out_accuracy(joint.astype(np.int64), label, training),
    )
    more = max(more, _held_out_accuracy(codes, label, training))
    return max(0.0, more - without) / (1 - without) if without < 1 else 0.0


def _leaves(columns: Sequence[Codes], label: Codes, training: NDArray[np.bool_]) -> Codes:
    """The leaf of each row in a tree that is grown on the training rows."""
    leaf = np.zeros(len(label), dtype=np.int64)
    weight = 1 / np.maximum(np.bincount(label[training], minlength=int(label.max()) + 1), 1)
    waiting, leaves = [(np.arange(len(label)), 0)], 0
    while waiting:
        rows, depth = waiting.pop()
        best = _split(columns, label, weight, rows[training[rows]]) if depth < _DEPTH else None
        if best is None:
            leaf[rows], leaves = leaves, leaves + 1
            continue
        below = columns[best[0]][rows] <= best[1]
        waiting += [(rows[below], depth + 1), (rows[~below], depth + 1)]
    return leaf


def _split(
    columns: Sequence[Codes], label: Codes, weight: NDArray[np.float64], rows: Codes
) -> tuple[int, int] | None:
    """The column and the bin after which to divide the rows; None if nothing is gained."""
    best: tuple[float, int, int] | None = None
    classes = label[rows]
    if len(rows) < 2 * _LEAST or (classes == classes[0]).all():
        return None
    for i, column in enumerate(columns):
        codes = column[rows]
        counts = np.zeros((int(codes.max()) + 1, len(weight)))
        np.add.at(counts, (codes, classes), 1)
        sizes = counts.sum(axis=1).cumsum()[:-1]
        below = (counts * weight).cumsum(axis=0)
        above = below[-1] - below[:-1]
        below = below[:-1]
        # The less Gini's impurity of the two sides, the larger this sum.
        gain = (below**2).sum(axis=1) / np.maximum(below.sum(axis=1), 1e-12)
        gain += (above**2).sum(axis=1) / np.maximum(above.sum(axis=1), 1e-12)
        gain[(sizes < _LEAST) | (sizes > len(rows) - _LEAST)] = -1
        if len(gain) and (at := int(gain.argmax())) >= 0 and gain[at] > (best or (0.0,))[0]:
            best = (float(gain[at]), i, at)
    return best[1:] if best else None


def numbers_rows(values: NDArray[np.float64]) -> bool:
    """Whether each number is one more than the one before, also if the rows were shuffled."""
    if len(values) < 3:
        return False
    ordered = np.sort(values) if len(values) >= _LONG else values
    with np.errstate(over="ignore"):  # of numbers near the largest: infinity is not 1 either
        return bool((np.diff(ordered) == 1).all())


def rises(values: NDArray[np.float64]) -> bool:
    """Whether many numbers go up along the file, in a few runs, as times and counters do."""
    if len(values) < _LONG or len(np.unique(values)) < _SOME:
        return False
    with np.errstate(over="ignore"):
        steps = np.diff(values)
    return bool((steps >= 0).mean() >= _RUNS and (steps > 0).any())


def blocks(codes: Codes, label: Codes) -> bool:
    """Whether the values change seldom along the file while the classes change often."""
    changes = int((np.diff(codes) != 0).sum())
    of_class = int((np.diff(label) != 0).sum())
    return 0 < changes <= len(codes) // _SELDOM and of_class >= _OFTEN * changes


def spread(values: NDArray[np.float64]) -> int:
    """16 or 32 if integers are as evenly spread as random bits, a port or a checksum; or 0.

    Zeros are ignored: they stand for a field that the packet does not have.
    """
    positive = values[values > 0]
    if (
        len(positive) < 200
        or len(np.unique(positive)) < 100
        or (np.rint(positive) != positive).any()
    ):
        return 0
    low, high = float(positive.min()), float(positive.max())
    for bits, starts, ends in ((16, _FIRST, _LAST), (32, (0,), (2**32 - 1,))):
        near = _ENDS * 2**bits + 3 * 2**bits / len(positive)
        inside = any(abs(low - s) <= near for s in starts)
        if high < 2**bits and inside and any(abs(high - e) <= near for e in ends):
            place = (np.sort(positive) - low) / (high - low)
            even = np.abs(place - np.linspace(0, 1, len(place))).max()
            return bits if even <= _UNEVEN + 1 / np.sqrt(len(place)) else 0
    return 0
