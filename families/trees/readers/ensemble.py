# SPDX-License-Identifier: Apache-2.0
"""Trees as another library fitted them: comparisons of floats, and leaves of floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Fitted trees, and how their library computes with them.

    A node leads to the left where its column's value, in floats of ``precision``, is at most its
    threshold, or below it if the node is ``strict``.

    Attributes:
        columns: the column that each node compares, int64 array of shape ``(nodes,)``.
        thresholds: float64 array of shape ``(nodes,)``.
        strict: bool array of shape ``(nodes,)``.
        left: what follows on the left, a node or ``~leaf``, int64 array of shape ``(nodes,)``.
        right: the same on the right.
        roots: the root of each tree, a node or ``~leaf``.
        leaves: values of the leaves for each sum, float64 array of shape ``(leaves, sums)``: one
            sum for two classes, one a class for more.
        base: what is added to each sum, float64 array of shape ``(sums,)``.
        n_columns: number of columns of the rows.
        n_classes: number of classes.
        precision: the floats of a comparison, ``np.float32`` or ``np.float64``.
        second_wins: whether, of two classes, the second wins where the sum is exactly 0.
    """

    columns: Ints
    thresholds: Floats
    strict: NDArray[np.bool_]
    left: Ints
    right: Ints
    roots: Ints
    leaves: Floats
    base: Floats
    n_columns: int
    n_classes: int
    precision: type[np.floating]
    second_wins: bool = False


@dataclass(frozen=True, eq=False)
class FittedTrees:
    """Fitted trees beside the library that computes them.

    Attributes:
        ensemble: the trees.
        library: what the fitted model is called in messages.
        predict: class index of each row, from float64 rows of shape ``(rows, columns)``; None if
            the library is not there to be asked.
        seen: what the trees see of such rows, behind scalers in front of them.
    """

    ensemble: Ensemble
    library: str
    predict: Callable[[Floats], Ints] | None
    seen: Callable[[Floats], Floats] = np.asarray
