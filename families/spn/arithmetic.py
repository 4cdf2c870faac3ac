# SPDX-License-Identifier: Apache-2.0
"""Represents probabilities as integers, and bounds the error of a result.

Both arithmetics combine several operands in pairs of neighbours, and keep an odd last one for the
next round. Every target combines in this order, so it gives the same integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError
from n3ic.model.graph.arithmetic import FixedPoint, Integers, Logarithms, pairwise_reduce


def levels(count: int) -> int:
    """Number of rounds that combine ``count`` operands."""
    return max(0, count - 1).bit_length()


@dataclass(frozen=True, eq=False)
class LogArithmetic:
    """Probabilities as logarithms of base 2, in steps of ``2^-fraction``.

    A product adds logarithms. A sum adds to the larger operand the table's entry for the difference
    ``d`` of both: ``log2(1 + 2^-d)``, rounded. Beyond the table that is 0.

    Attributes:
        fraction: bits after the binary point.
        table: int32 array of shape ``(entries,)``, not increasing.
    """

    name: ClassVar[str] = "log"
    fraction: int
    table: NDArray[np.int32]

    def __post_init__(self) -> None:
        table = np.array(self.table, dtype=np.int32)
        if table.ndim != 1:
            raise ModelError(
                f"the log-add table has the shape {table.shape}, not 1 to 2^20 entries"
            )
        Logarithms(self.fraction, tuple(table.tolist()))  # checks them
        table.setflags(write=False)
        object.__setattr__(self, "table", table)

    @classmethod
    def of(cls, fraction: int) -> LogArithmetic:
        """Make the arithmetic whose table is rounded to nearest and ends before its first 0."""
        step = 2.0**-fraction
        # log2(1 + 2^-d) is below half a step for d above fraction + 2, so the first 0 is inside.
        entries = (fraction + 3) << fraction
        table = np.rint(np.log2(1 + np.exp2(-np.arange(entries) * step)) / step).astype(np.int32)
        return cls(fraction, table[: int((table > 0).sum())])

    @cached_property
    def integers(self) -> Logarithms:
        """What the operations of a graph depend on."""
        return Logarithms(self.fraction, tuple(self.table.tolist()))

    @property
    def one(self) -> int:
        """The integer that stands for probability 1."""
        return 0

    def leaf(self, probability: NDArray[np.float64]) -> NDArray[np.int32]:
        """Convert probabilities above 0 to integers."""
        return np.rint(np.log2(probability) * 2.0**self.fraction).astype(np.int32)

    def weights(self, probability: NDArray[np.float64]) -> NDArray[np.int32]:
        """Convert the weights of a sum, all above 0, to integers."""
        return self.leaf(probability)

    def product(self, values: Sequence[Integers]) -> Integers:
        """Compute the product of operands."""
        return pairwise_reduce(values, np.add)

    def sum(self, values: Sequence[Integers], weights: NDArray[np.int32]) -> Integers:
        """Compute the weighted sum of operands."""
        return pairwise_reduce([v + int(w) for v, w in zip(values, weights, strict=True)], self.add)

    def add(self, a: Integers, b: Integers) -> Integers:
        """Compute ``log2(2^a + 2^b)``."""
        return self.integers.add(a, b)

    def product_bounds(self, bounds: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Bound the product of operands between bounds."""
        return sum(b[0] for b in bounds), sum(b[1] for b in bounds)

    def sum_bounds(
        self, bounds: Sequence[tuple[int, int]], weights: NDArray[np.int32]
    ) -> tuple[int, int]:
        """Bound the weighted sum of operands between bounds."""
        # A sum is at least its largest term, and each round adds at most the table's first entry.
        moved = [(lo + int(w), hi + int(w)) for (lo, hi), w in zip(bounds, weights, strict=True)]
        top = int(self.table[0]) * levels(len(moved))
        return max(lo for lo, _ in moved), max(hi for _, hi in moved) + top

    def leaf_error(self) -> float:
        """Bound the distance of a leaf's integer from the real logarithm, in steps."""
        return 0.5

    def product_error(self, errors: Sequence[float]) -> float:
        """Bound the distance of a product from the real one, given those of its operands."""
        return sum(errors)

    def sum_error(self, errors: Sequence[float]) -> float:
        """Bound the distance of a sum from the real one, given those of its operands."""
        # Log-add amplifies no error. The weight adds half a step, and each round's table another.
        return max(errors) + 0.5 + 0.5 * levels(len(errors))


@dataclass(frozen=True)
class LinearArithmetic:
    """Probabilities as unsigned fixed point numbers in steps of ``2^-fraction``.

    A product of two is rounded to nearest. A sum adds exact products with the weights and is
    rounded once. A probability below half a step is 0, so rare flows cannot be told apart.

    Attributes:
        fraction: bits after the binary point.
    """

    name: ClassVar[str] = "linear"
    fraction: int

    def __post_init__(self) -> None:
        FixedPoint(self.fraction)  # checks it

    @cached_property
    def integers(self) -> FixedPoint:
        """What the operations of a graph depend on."""
        return FixedPoint(self.fraction)

    @property
    def one(self) -> int:
        """The integer that stands for probability 1."""
        return 1 << self.fraction

    def leaf(self, probability: NDArray[np.float64]) -> NDArray[np.int32]:
        """Convert probabilities to integers."""
        return np.rint(probability * 2.0**self.fraction).astype(np.int32)

    def weights(self, probability: NDArray[np.float64]) -> NDArray[np.int32]:
        """Convert the weights of a sum to integers that also add to 1.

        All are rounded down; the steps that are left go to the largest remainders.
        """
        exact = probability * 2.0**self.fraction
        low = np.floor(exact).astype(np.int64)
        remainder = self.one - int(low.sum())
        low[np.argsort(low - exact, kind="stable")[:remainder]] += 1
        return low.astype(np.int32)

    def product(self, values: Sequence[Integers]) -> Integers:
        """Compute the product of operands."""
        return pairwise_reduce(values, self.integers.times)

    def sum(self, values: Sequence[Integers], weights: NDArray[np.int32]) -> Integers:
        """Compute the weighted sum of operands."""
        total = pairwise_reduce([v * int(w) for v, w in zip(values, weights, strict=True)], np.add)
        return self.integers.rounded(total)

    def product_bounds(self, bounds: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Bound the product of operands between bounds."""
        product = pairwise_reduce(
            [np.array(b, dtype=np.int64) for b in bounds],
            self.integers.times,
        )
        return int(product[0]), int(product[1])

    def sum_bounds(
        self, bounds: Sequence[tuple[int, int]], weights: NDArray[np.int32]
    ) -> tuple[int, int]:
        """Bound the weighted sum of operands between bounds."""
        weighted_sum = self.sum([np.array(b, dtype=np.int64) for b in bounds], weights)
        return int(weighted_sum[0]), int(weighted_sum[1])

    def leaf_error(self) -> float:
        """Bound the distance of a leaf's integer from the real probability, in steps."""
        return 0.5

    def product_error(self, errors: Sequence[float]) -> float:
        """Bound the distance of a product from the real one, given those of its operands."""
        # (x + a)(y + b) - xy <= a + b + ab, as x and y are at most 1; rounding adds half a step.
        step = 2.0**-self.fraction
        return pairwise_reduce(list(errors), lambda a, b: a + b + a * b * step + 0.5)

    def sum_error(self, errors: Sequence[float]) -> float:
        """Bound the distance of a sum from the real one, given those of its operands."""
        # Weights add to 1, so they average the operands' errors; each is off by at most a step.
        return max(errors) + len(errors) + 0.5


Arithmetic = LogArithmetic | LinearArithmetic
