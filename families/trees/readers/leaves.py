# SPDX-License-Identifier: Apache-2.0
"""Leaf values of floats as integers, by one scale, and what its rounding can change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError
from n3ic.families.trees.network import MAX_SUM
from n3ic.families.trees.readers.ensemble import Ensemble, Floats, Ints

WIDTHS = (16, 20, 24, 28, 32)
"""Bits of the largest leaf value that are tried, in this order."""
_MOST_PLACES = 30


@dataclass(frozen=True, eq=False)
class RoundedLeaves:
    """Leaf values as integers.

    Attributes:
        leaves: int64 array of shape ``(leaves, sums)``.
        bias: int64 array of shape ``(sums,)``.
        places: the integers are the values times ``2 ** places``.
        lead: the class can differ from that of exact sums only where the lead of the best class is
            at most this, in the values' own unit; 0 if nothing is rounded.
    """

    leaves: Ints
    bias: Ints
    places: int
    lead: float

    @property
    def steps(self) -> str:
        """The unit of the integers in words, such as ``1/4,096``."""
        return f"1/{2**self.places:,}" if self.places >= 0 else f"{2**-self.places:,}"


def roundings(ensemble: Ensemble, tree_of: Ints, bits: int | None) -> Iterator[RoundedLeaves]:
    """Round leaf values, by ever finer scales, up to the finest whose sums fit.

    Values that need no rounding have only the scale at which they are whole.

    Args:
        ensemble: the trees.
        tree_of: the tree of each leaf, int64 array of shape ``(leaves,)``.
        bits: bits of the largest leaf value; None to try some.

    Raises:
        ModelError: a value is not finite, or no scale fits.
    """
    values = np.concatenate([ensemble.leaves, ensemble.base[None]])
    if not np.isfinite(values).all():
        raise ModelError("a leaf value is not finite (NaN or infinite)")
    largest = float(np.abs(ensemble.leaves).max(initial=0))
    total = _largest_sum(ensemble, tree_of)
    # Each leaf and the base round by up to a half, and the second of two classes may win a tie.
    room = MAX_SUM - len(ensemble.roots) - 2
    finest = _MOST_PLACES if not total else int(np.floor(np.log2(room / total)))
    widths = WIDTHS if bits is None else (bits,)
    places = [min(finest, _places(largest, width)) for width in widths]
    exact = next((k for k in range(-_MOST_PLACES, max(places) + 1) if _whole(values, k)), None)
    for k in [min(max(exact, 0), finest)] if exact is not None else sorted({*places}):
        yield _rounded(ensemble, tree_of, k)


def _places(largest: float, width: int) -> int:
    """The largest power of two by which a value fits so many bits, with its sign."""
    if not largest:
        return 0
    return int(np.floor(np.log2(((1 << (width - 1)) - 1) / largest)))


def _whole(values: Floats, places: int) -> bool:
    scaled = np.ldexp(values, places)
    return bool((np.rint(scaled) == scaled).all())


def _largest_sum(ensemble: Ensemble, tree_of: Ints) -> float:
    """The largest magnitude that a sum of some trees can have."""
    most = np.zeros((len(ensemble.roots), ensemble.leaves.shape[1]))
    np.maximum.at(most, tree_of, np.abs(ensemble.leaves))
    return float((most.sum(axis=0) + np.abs(ensemble.base)).max())


def _rounded(ensemble: Ensemble, tree_of: Ints, places: int) -> RoundedLeaves:
    leaves, base = np.ldexp(ensemble.leaves, places), np.ldexp(ensemble.base, places)
    whole, bias = np.rint(leaves), np.rint(base)
    span = _error_span(whole - leaves)
    most = np.zeros(len(ensemble.roots))
    np.maximum.at(most, tree_of, span)
    lead = float(most.sum() + _error_span((bias - base)[None])[0])
    if ensemble.second_wins and ensemble.n_classes == 2:
        bias = bias + 1  # the sum 0 is the second class's
    return RoundedLeaves(
        whole.astype(np.int64), bias.astype(np.int64), places, float(np.ldexp(lead, -places))
    )


def _error_span(errors: Floats) -> NDArray[np.float64]:
    """The most by which errors change the difference of two classes."""
    if errors.shape[1] == 1:
        return np.abs(errors[:, 0])
    return np.asarray(errors.max(axis=1) - errors.min(axis=1))


def exact_lead(ensemble: Ensemble, reached: Ints) -> float:
    """The lead of the best class over the next at some leaves, without rounding.

    Args:
        ensemble: the trees.
        reached: a leaf of each tree, int64 array of shape ``(trees,)``.
    """
    sums = [
        sum((Fraction(v) for v in column), Fraction(b))
        for column, b in zip(
            ensemble.leaves[reached].T.tolist(), ensemble.base.tolist(), strict=True
        )
    ]
    if len(sums) == 1:
        return float(abs(sums[0]))
    *_, second, best = sorted(sums)
    return float(best - second)
