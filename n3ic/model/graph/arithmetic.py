# SPDX-License-Identifier: Apache-2.0
"""How integers of a graph stand for numbers, where its operations depend on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError

Integers = NDArray[np.int64]
MAX_FRACTION = 30
MAX_LOG_FRACTION = 12
MAX_LOG_TABLE = 1 << 20
_T = TypeVar("_T")


def pairwise_reduce(values: Sequence[_T], combine: Callable[[_T, _T], _T]) -> _T:
    """Combine neighbours until one is left: ``((a b) (c d)) e`` for five values."""
    left = list(values)
    while len(left) > 1:
        pairs = [combine(a, b) for a, b in zip(left[::2], left[1::2], strict=False)]
        left = pairs + left[2 * len(pairs) :]
    return left[0]


@dataclass(frozen=True)
class Logarithms:
    """Values are logarithms of base 2 in steps of ``2^-fraction``; log-add reads the table.

    Attributes:
        fraction: bits after the binary point.
        table: ``log2(1 + 2^-d)`` for each distance ``d`` of two operands, in steps; 0 beyond its
            end. It does not increase.
    """

    fraction: int
    table: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= MAX_LOG_FRACTION:
            raise ModelError(f"{self.fraction} fraction bits, 0 to {MAX_LOG_FRACTION} expected")
        table = self.table
        if not 1 <= len(table) <= MAX_LOG_TABLE:
            raise ModelError(f"the log-add table has {len(table)} entries, not 1 to 2^20 entries")
        if table[0] > 1 << self.fraction or table[-1] < 0 or (np.diff(self.entries) > 0).any():
            raise ModelError("the log-add table must fall from at most 1 to at least 0")

    @property
    def text(self) -> str:
        """What a value stands for, in words."""
        return f"logarithms of base 2 in steps of 2^-{self.fraction}"

    @cached_property
    def entries(self) -> Integers:
        """The table as an array."""
        return np.array(self.table, dtype=np.int64)

    @cached_property
    def monotone(self) -> bool:
        """Whether log-add never falls as an operand grows: the table falls by at most 1 a step."""
        return bool((np.diff(self.entries, append=0) >= -1).all())

    def add(self, a: Integers, b: Integers) -> Integers:
        """Compute ``log2(2^a + 2^b)``."""
        distance = np.abs(a - b)
        more = self.entries[np.minimum(distance, len(self.table) - 1)]
        return np.asarray(np.maximum(a, b) + np.where(distance < len(self.table), more, 0))


@dataclass(frozen=True)
class FixedPoint:
    """Values are numbers in steps of ``2^-fraction``; products are rounded to a step.

    Attributes:
        fraction: bits after the binary point.
    """

    fraction: int

    def __post_init__(self) -> None:
        if not 1 <= self.fraction <= MAX_FRACTION:
            raise ModelError(f"{self.fraction} fraction bits, 1 to {MAX_FRACTION} expected")

    @property
    def text(self) -> str:
        """What a value stands for, in words."""
        return f"numbers in steps of 2^-{self.fraction}"

    @property
    def one(self) -> int:
        """The integer that stands for 1."""
        return 1 << self.fraction

    @property
    def half(self) -> int:
        """Half a step of an exact product, which rounding adds."""
        return 1 << (self.fraction - 1)

    def rounded(self, exact: Integers) -> Integers:
        """Round exact products to nearest, halves up."""
        return np.asarray((exact + self.half) >> self.fraction)

    def times(self, a: Integers, b: Integers) -> Integers:
        """Compute a product, rounded."""
        return self.rounded(a * b)


Arithmetic = Logarithms | FixedPoint
