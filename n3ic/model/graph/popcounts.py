# SPDX-License-Identifier: Apache-2.0
"""Several popcounts as the rows of one matrix of weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from n3ic.errors import ModelError
from n3ic.model.bits import Bits
from n3ic.model.graph.arithmetic import Integers
from n3ic.model.graph.operations import Popcount


@dataclass(frozen=True, eq=False)
class PopcountRows:
    """Popcounts as rows over the bits that any of them reads.

    Attributes:
        bits: the input bits.
        values: the values, which follow them; one that a popcount reads repeatedly is there as
            often.
        weights: bool array of shape ``(popcounts, bits and values)``; 0 where none counts.
        mask: which of them count, of the same shape.
    """

    bits: tuple[int, ...]
    values: tuple[int, ...]
    weights: Bits
    mask: Bits


def popcount_rows(steps: Sequence[Popcount]) -> PopcountRows:
    """Put popcounts in the rows of one matrix.

    If all read the same bits, these keep their order; otherwise they are in ascending order.

    Args:
        steps: one popcount or more.

    Raises:
        ModelError: there is none.
    """
    if not steps:
        raise ModelError("no popcount")
    bits, values = _all({s.bits for s in steps}), _all({s.values for s in steps})
    columns: dict[tuple[tuple[int, ...], tuple[int, ...]], Integers] = {}
    weights, mask = np.zeros((2, len(steps), len(bits) + len(values)), dtype=np.bool_)
    for row, step in enumerate(steps):
        read = (step.bits, step.values)
        if read not in columns:
            at = _places(bits, step.bits), len(bits) + _places(values, step.values)
            columns[read] = np.concatenate(at)
        weights[row, columns[read]] = unpacked(step.weights, step.size)
        mask[row, columns[read]] = unpacked(step.mask, step.size)
    return PopcountRows(bits, values, weights, mask)


def _all(tuples: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The numbers of all tuples, each as often as the tuple has it that has most of it."""
    first, *others = tuples
    if not others:
        return first
    most = Counter(first)
    for other in others:
        most |= Counter(other)
    return tuple(sorted(most.elements()))


def _places(every: tuple[int, ...], own: tuple[int, ...]) -> Integers:
    """Where each number of a tuple lies among all; a repeated one has several places."""
    if own == every:
        return np.arange(len(own))
    places: dict[int, list[int]] = {}
    for place in reversed(range(len(every))):
        places.setdefault(every[place], []).append(place)
    return np.array([places[number].pop() for number in own], dtype=np.int64)


def unpacked(number: int, size: int) -> Bits:
    """The lowest bits of an integer: bool array of shape ``(size,)``, the lowest first."""
    octets = np.frombuffer(number.to_bytes(-(-size // 8), "little"), dtype=np.uint8)
    return np.unpackbits(octets, count=size, bitorder="little").view(np.bool_)
