# SPDX-License-Identifier: Apache-2.0
"""Trees as flat arrays: nodes before their children, the side of 0 first.

In this order a tree needs no pointers. Node ``i`` is followed by the nodes of its zero side, whose
number it holds, and then by those of its one side; leaves lie in the order in which they are met.
A side without nodes is a leaf. No arrays of this form have a circle or a part that no root reaches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError

Ints = NDArray[np.int64]
MAX_DEPTH = 1024
"""The most nodes on the way to a leaf."""


class Preorder(NamedTuple):
    """Trees in the order of this module.

    Attributes:
        sizes: number of nodes of each tree, shape ``(trees,)``.
        bits: the input bit of each node, shape ``(nodes,)``.
        zero_sizes: number of nodes on the zero side of each node, shape ``(nodes,)``.
        leaves: for each leaf its number in the arrays that the trees were made from.
    """

    sizes: list[int]
    bits: list[int]
    zero_sizes: list[int]
    leaves: list[int]


def preorder(
    roots: Iterable[int], bits: Sequence[int], zero: Sequence[int], one: Sequence[int]
) -> Preorder:
    """Lay out trees whose nodes are in any order, and may be parts of several trees.

    Args:
        roots: the root of each tree: a node, or ``~leaf``.
        bits: the input bit of each node.
        zero: what follows each node where its bit is 0: a node, or ``~leaf``.
        one: what follows where it is 1.
    """
    out = Preorder([], [], [], [])
    for root in roots:
        start = len(out.bits)
        # What comes next, and the node whose one side it is.
        stack: list[tuple[int, int | None]] = [(root, None)]
        while stack:
            place, above = stack.pop()
            if above is not None:
                out.zero_sizes[above] = len(out.bits) - above - 1
            if place < 0:
                out.leaves.append(~place)
                continue
            stack += [(one[place], len(out.bits)), (zero[place], None)]
            out.bits.append(bits[place])
            out.zero_sizes.append(0)
        out.sizes.append(len(out.bits) - start)
    return out


@dataclass(frozen=True, eq=False)
class Links:
    """Where the ways of trees lead, as arrays.

    Attributes:
        roots: the root of each tree, a node or ``~leaf``, int64 of shape ``(trees,)``.
        children: what follows each node where its bit is 0 and where it is 1, a node or ``~leaf``,
            int64 of shape ``(2, nodes)``.
        parents: the node above each node, -1 above a root, int64 of shape ``(nodes,)``.
        sides: the value of the parent's bit on the way to each node, int64 of shape ``(nodes,)``.
        depth: the most nodes on the way to a leaf.
    """

    roots: Ints
    children: Ints
    parents: Ints
    sides: Ints
    depth: int


def links(sizes: Ints, zero_sizes: Ints) -> Links:
    """Find the children of all nodes, level by level.

    Args:
        sizes: number of nodes of each tree.
        zero_sizes: number of nodes on the zero side of each node.

    Raises:
        ModelError: a side has more nodes than its tree, or a tree is too deep.
    """
    starts = np.cumsum(sizes) - sizes
    first_leaves = starts + np.arange(len(sizes))  # a tree has one leaf more than nodes
    nodes = len(zero_sizes)
    children = np.zeros((2, nodes), dtype=np.int64)
    parents, sides = np.full(nodes, -1, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    inner = sizes > 0
    at, size, leaf = starts[inner], sizes[inner], first_leaves[inner]
    depth = 0
    while len(at):
        depth += 1
        if depth > MAX_DEPTH:
            raise ModelError(f"a tree of more than {MAX_DEPTH:,} levels")
        below = zero_sizes[at]
        if ((below < 0) | (below >= size)).any():
            wrong = int(at[(below < 0) | (below >= size)][0])
            raise ModelError(f"node {wrong}: its zero side has more nodes than its tree")
        levels = []
        for side, (start, count, first) in enumerate(
            (
                (at + 1, below, leaf),
                (at + 1 + below, size - 1 - below, leaf + below + 1),
            )
        ):
            children[side, at] = np.where(count > 0, start, ~first)
            more = count > 0
            parents[start[more]], sides[start[more]] = at[more], side
            levels.append((start[more], count[more], first[more]))
        at, size, leaf = (np.concatenate(parts) for parts in zip(*levels, strict=True))
    return Links(np.where(inner, starts, ~first_leaves), children, parents, sides, depth)
