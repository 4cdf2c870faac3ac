# SPDX-License-Identifier: Apache-2.0
"""Orders the index bits of tables so that blocks of packed bits need few planes.

A plane is an octet of packed bits, shifted. The C finds bit ``j`` of an index at place ``j`` of a
plane, and all bits from the fifth on at the highest place. If a table's entries are permuted along
with its index bits, it remains the same table, so the order of the bits is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from math import perm

import numpy as np

from n3ic.model.graph.bit_tables import BitTable

LOW = 4  # index bits by which a shuffle selects
SIGN = 7  # place of all further index bits: the sign of a byte, by which it blends
_MOST = 1 << 16  # maximum number of orders to try; with more, the tables keep their order
_ROUNDS = 3

Plane = tuple[int, int]
"""Number of an octet, and the right shift of its bits (a left shift if negative)."""


def plane_of(bit: int, place: int) -> Plane:
    """Return the plane that holds an input bit where the code looks for index bit ``place``."""
    return bit // 8, bit % 8 - (place if place < LOW else SIGN)


def ordered(tables: Sequence[BitTable]) -> tuple[BitTable, ...]:
    """Order the index bits of each table so that all tables together use few planes.

    The search is greedy, one table after the other, in a few rounds.

    Args:
        tables: tables of any sizes.

    Returns:
        The same tables, with index bits and entries permuted.
    """
    orders = [table.bits for table in tables]
    if sum(perm(len(bits), min(LOW, len(bits))) for bits in orders) > _MOST:
        return tuple(tables)
    used = Counter(plane for bits in orders for plane in _planes(bits))
    for _ in range(_ROUNDS):
        for t, bits in enumerate(orders):
            used.subtract(_planes(bits))
            orders[t] = min(_orders(bits), key=lambda order: _price(order, used))
            used.update(_planes(orders[t]))
    return tuple(_with_bits(*each) for each in zip(tables, orders, strict=True))


def _planes(bits: tuple[int, ...]) -> list[Plane]:
    return [plane_of(bit, place) for place, bit in enumerate(bits)]


def _orders(bits: tuple[int, ...]) -> list[tuple[int, ...]]:
    """List the orders of index bits that differ in their planes, the given order first."""
    low = permutations(bits, min(LOW, len(bits)))
    return [bits, *((*first, *(b for b in bits if b not in first)) for first in low)]


def _price(bits: tuple[int, ...], used: Counter[Plane]) -> float:
    """Price of an order: a plane costs less, the more other tables use it."""
    return sum(0.5 ** used[plane] for plane in {*_planes(bits)})


def _with_bits(table: BitTable, bits: tuple[int, ...]) -> BitTable:
    """The same table, addressed by its bits in another order."""
    index = np.arange(len(table.entries))
    source_index = np.zeros_like(index)
    for place, bit in enumerate(bits):
        source_index |= (index >> place & 1) << table.bits.index(bit)
    return replace(table, bits=bits, entries=table.entries[source_index])
