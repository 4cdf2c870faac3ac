# SPDX-License-Identifier: Apache-2.0
"""Probabilities as integers, and bounds of the error of a result.

Both arithmetics reduce several operands pairwise, neighbours first, the odd one out last; so
every target adds and multiplies in the same order and gives the same integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError

Integers = NDArray[np.int64]
MAX_FRACTION = 30
MAX_LOG_FRACTION = 12
_T = TypeVar("_T")


def pairwise_reduce(values: Sequence[_T], combine: Callable[[_T, _T], _T]) -> _T:
    """Combine neighbours until one is left: ``((a b) (c d)) e`` for five values."""
    left = list(values)
    while len(left) > 1:
        pairs = [combine(a, b) for a, b in zip(left[::2], left[1::2], strict=False)]
        left = pairs + left[2 * len(pairs) :]
    return left[0]


def levels(count: int) -> int:
    """Number of times that the first of ``count`` operands is combined."""
    return max(0, count - 1).bit_length()


@dataclass(frozen=True, eq=False)
class LogArithmetic:
    """Probabilities as logarithms of base 2, in steps of ``2^-fraction``.

    A product adds; a sum takes the larger operand and adds what the table says of their
    difference ``d``: ``log2(1 + 2^-d)``, rounded. Beyond the table that is 0.

    Attributes:
        fraction: bits behind the point.
        table: int32 array of shape ``(entries,)``, not increasing.
    """

    name: ClassVar[str] = "log"
    fraction: int
    table: NDArray[np.int32]

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= MAX_LOG_FRACTION:
            raise ModelError(f"{self.fraction} bits behind the point: 0 to {MAX_LOG_FRACTION}")
        table = np.array(self.table, dtype=np.int32)
        if table.ndim != 1 or not 1 <= len(table) <= 1 << 20:
            raise ModelError(f"a table of log-add has 1 to 2^20 entries, got {table.shape}")
        if table[0] > 1 << self.fraction or table[-1] < 0 or (np.diff(table) > 0).any():
            raise ModelError("a table of log-add falls from at most 1 to at least 0")
        table.setflags(write=False)
        object.__setattr__(self, "table", table)

    @classmethod
    def of(cls, fraction: int) -> LogArithmetic:
        """The arithmetic whose table is rounded to nearest and ends before its first 0."""
        step = 2.0**-fraction
        entries = (fraction + 3) << fraction
        table = np.rint(np.log2(1 + np.exp2(-np.arange(entries) * step)) / step).astype(np.int32)
        return cls(fraction, table[: max(1, int((table > 0).sum()))])

    @property
    def one(self) -> int:
        """The integer of probability 1."""
        return 0

    def leaf(self, probability: NDArray[np.float64]) -> NDArray[np.int32]:
        """Integers of probabilities above 0."""
        return np.rint(np.log2(probability) * 2.0**self.fraction).astype(np.int32)

    def weights(self, probability: NDArray[np.float64]) -> NDArray[np.int32]:
        """Integers of the weights of a sum, all above 0."""
        return self.leaf(probability)

    def real(self, value: NDArray[np.int64]) -> NDArray[np.float64]:
        """Logarithm of base 2 of the probability that an integer stands for."""
        return value / 2.0**self.fraction

    def product(self, values: Sequence[Integers]) -> Integers:
        """The product of some operands."""
        return pairwise_reduce(values, np.add)

    def sum(self, values: Sequence[Integers], weights: NDArray[np.int32]) -> Integers:
        """The weighted sum of some operands."""
        return pairwise_reduce([v + int(w) for v, w in zip(values, weights, strict=True)], self.add)

    def add(self, a: Integers, b: Integers) -> Integers:
        """``log2(2^a + 2^b)`` of two operands."""
        distance = np.abs(a - b)
        more = self.table[np.minimum(distance, len(self.table) - 1)]
        return np.asarray(np.maximum(a, b) + np.where(distance < len(self.table), more, 0))

    def product_bounds(self, bounds: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Least and largest product of operands between bounds."""
        return sum(b[0] for b in bounds), sum(b[1] for b in bounds)

    def sum_bounds(
        self, bounds: Sequence[tuple[int, int]], weights: NDArray[np.int32]
    ) -> tuple[int, int]:
        """Bounds of the weighted sum of operands between bounds."""
        moved = [(lo + int(w), hi + int(w)) for (lo, hi), w in zip(bounds, weights, strict=True)]
        top = int(self.table[0]) * levels(len(moved))
        return max(lo for lo, _ in moved), max(hi for _, hi in moved) + top

    def leaf_error(self) -> float:
        """Largest distance of a leaf's integer from the real logarithm, in steps."""
        return 0.5

    def product_error(self, errors: Sequence[float]) -> float:
        """Largest distance of a product, given that of its operands, in steps."""
        return sum(errors)

    def sum_error(self, errors: Sequence[float]) -> float:
        """Largest distance of a sum: log-add spreads no error; weight and table add a half each."""
        return max(errors) + 0.5 + 0.5 * levels(len(errors))


@dataclass(frozen=True)
class LinearArithmetic:
    """Probabilities as unsigned fixed point in steps of ``2^-fraction``: multipliers and adders.

    A product of two is rounded to nearest; a sum adds exact products with the weights and is
    rounded once. What is less likely than half a step is 0, so that rare flows are all alike.

    Attributes:
        fraction: bits behind the point.
    """

    name: ClassVar[str] = "linear"
    fraction: int

    def __post_init__(self) -> None:
        if not 1 <= self.fraction <= MAX_FRACTION:
            raise ModelError(f"{self.fraction} bits behind the point: 1 to {MAX_FRACTION}")

    @property
    def one(self) -> int:
        """The integer of probability 1."""
        return 1 << self.fraction

    def leaf(self, probability: NDArray[np.float64]) -> NDArray[np.int32]:
        """Integers of probabilities."""
        return np.rint(probability * 2.0**self.fraction).astype(np.int32)

    def weights(self, probability: NDArray[np.float64]) -> NDArray[np.int32]:
        """Integers of the weights of a sum, which add to 1 as these do.

        Rounded down; the steps that are left go to the largest remainders.
        """
        exact = probability * 2.0**self.fraction
        low = np.floor(exact).astype(np.int64)
        rest = self.one - int(low.sum())
        low[np.argsort(low - exact, kind="stable")[:rest]] += 1
        return low.astype(np.int32)

    def real(self, value: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability that an integer stands for."""
        return value / 2.0**self.fraction

    def product(self, values: Sequence[Integers]) -> Integers:
        """The product of some operands."""
        return pairwise_reduce(values, self._times)

    def _times(self, a: Integers, b: Integers) -> Integers:
        return np.asarray((a * b + (1 << (self.fraction - 1))) >> self.fraction)

    def sum(self, values: Sequence[Integers], weights: NDArray[np.int32]) -> Integers:
        """The weighted sum of some operands."""
        total = pairwise_reduce([v * int(w) for v, w in zip(values, weights, strict=True)], np.add)
        return np.asarray((total + (1 << (self.fraction - 1))) >> self.fraction)

    def product_bounds(self, bounds: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Least and largest product of operands between bounds."""
        both = pairwise_reduce(
            [np.array(b, dtype=np.int64) for b in bounds],
            self._times,
        )
        return int(both[0]), int(both[1])

    def sum_bounds(
        self, bounds: Sequence[tuple[int, int]], weights: NDArray[np.int32]
    ) -> tuple[int, int]:
        """Bounds of the weighted sum of operands between bounds."""
        both = self.sum([np.array(b, dtype=np.int64) for b in bounds], weights)
        return int(both[0]), int(both[1])

    def leaf_error(self) -> float:
        """Largest distance of a leaf's integer from the real probability, in steps."""
        return 0.5

    def product_error(self, errors: Sequence[float]) -> float:
        """Largest distance of a product of probabilities of at most 1, in steps."""
        step = 2.0**-self.fraction
        return pairwise_reduce(list(errors), lambda a, b: a + b + a * b * step + 0.5)

    def sum_error(self, errors: Sequence[float]) -> float:
        """Largest distance of a sum: its weights add to 1, and each is off by a step at most."""
        return max(errors) + len(errors) + 0.5


Arithmetic = LogArithmetic | LinearArithmetic
