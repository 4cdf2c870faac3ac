# SPDX-License-Identifier: Apache-2.0
"""Functions of input bits as networks of look-up tables, and the trees that they compute.

A network is followed along every way of a model's tree: the bits that the tree asks are put in, and
at its end only constants may be left. So the leaves that are found are those of the Verilog, for
all inputs. Equal parts of a network are one node, and ways that leave the same network are followed
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from n3ic.model.graph.operations import Choose, Graph

State = tuple[int, tuple[int, ...]]  # a step of the graph, and the nodes that are left there
FALSE, TRUE = 0, 1
MOST_FREE = 8  # nodes that may be left at the end of a way


class Network:
    """Look-up tables of one bit each; a node is an index, 0 and 1 are the constants.

    Attributes:
        support: the input bits that each node depends on, as a mask.
    """

    def __init__(self) -> None:
        self._nodes: list[tuple[int, tuple[int, ...]]] = [(0, ()), (1, ())]  # table and inputs
        self._bits: dict[int, int] = {}
        self._inputs: dict[int, int] = {}
        self._made: dict[tuple[int, tuple[int, ...]], int] = {}
        self._set: dict[tuple[int, int, int], int] = {}
        self.support: list[int] = [0, 0]

    def bit(self, bit: int) -> int:
        """The node of an input bit."""
        if bit not in self._bits:
            self._bits[bit] = len(self._nodes)
            self._inputs[len(self._nodes)] = bit
            self._nodes.append((0b10, ()))
            self.support.append(1 << bit)
        return self._bits[bit]

    def table(self, table: int, inputs: Sequence[int]) -> int:
        """The node of a table, index 0 in its lowest bit, that nodes index, the lowest bit first.

        Inputs that are constants or on which it does not depend are left out.
        """
        used: list[int] = []
        for k in range(len(inputs)):
            node, width = inputs[k], len(used)
            rows = 1 << (len(inputs) - k - 1)  # of what is left after this input
            halves = [_half(table, width, rows, side) for side in (0, 1)]
            if node in (FALSE, TRUE) or halves[0] == halves[1]:
                table = halves[node if node == TRUE else 0]
            elif node in used:
                table = _same(table, used.index(node), width, rows)
            else:
                used.append(node)
        if len(used) < len(inputs):  # it may depend on fewer of those that were kept before
            return self.table(table, used)
        if not used:
            return table & 1
        if table == 0b10 and len(used) == 1:
            return used[0]
        key = (table, tuple(used))
        if key not in self._made:
            self._made[key] = len(self._nodes)
            self._nodes.append(key)
            mask = 0
            for node in used:
                mask |= self.support[node]
            self.support.append(mask)
        return self._made[key]

    def put(self, node: int, bit: int, value: int) -> int:
        """The node where an input bit has a value."""
        if not self.support[node] >> bit & 1:
            return node
        if node in self._inputs:
            return TRUE if value else FALSE
        key = (node, bit, value)
        if key not in self._set:
            table, inputs = self._nodes[node]
            self._set[key] = self.table(table, [self.put(k, bit, value) for k in inputs])
        return self._set[key]


def _half(table: int, width: int, rows: int, side: int) -> int:
    """The table where the index bit above the lowest ``width`` has a value, without that bit."""
    size, made = 1 << width, 0
    for row in range(rows):
        part = table >> ((2 * row + side) * size) & ((1 << size) - 1)
        made |= part << (row * size)
    return made


def _same(table: int, place: int, width: int, rows: int) -> int:
    """The table whose index bit ``width`` always equals the one at a place, without that bit."""
    size, made = 1 << width, 0
    for row in range(rows):
        for low in range(size):
            side = low >> place & 1
            made |= (table >> ((2 * row + side) * size + low) & 1) << (row * size + low)
    return made


class UnlikeError(Exception):
    """A network does not compute a tree; the text says where."""


def leaves_of(
    network: Network,
    graph: Graph,
    root: int,
    nodes: Sequence[int],
    leaf: Callable[[int, int], bool] = lambda step, number: True,
) -> Mapping[State, frozenset[int]]:
    """Follow a network along the ways of a tree of choices between constants.

    Args:
        network: holds the nodes.
        graph: the model's operations.
        root: the choice at the tree's root.
        nodes: bits of the number that the network gives, the lowest first.
        leaf: called with the constant at the end of a way, and a number there; False ends.

    Returns:
        The states that are met; for one at the end of a way, the numbers that are possible there.

    Raises:
        UnlikeError: too many bits are open at the end of a way, or ``leaf`` ended.
    """
    met: dict[State, frozenset[int]] = {}
    waiting: list[State] = [(root, tuple(nodes))]
    while waiting:
        at, left = state = waiting.pop()
        if state in met:
            continue
        step = graph.steps[at]
        if isinstance(step, Choose):
            met[state] = frozenset()
            waiting += followed(network, step, left)
            continue
        met[state] = numbers = _numbers(left)
        for number in numbers:
            if not leaf(at, number):
                raise UnlikeError("it gives other values")
    return met


def followed(network: Network, step: Choose, nodes: tuple[int, ...]) -> tuple[State, State]:
    """The states after a choice, for 0 and for 1."""
    zero, one = (tuple(network.put(k, step.bit, v) for k in nodes) for v in (0, 1))
    return (step.zero, zero), (step.one, one)


def _numbers(nodes: Sequence[int]) -> frozenset[int]:
    """The numbers whose bits nodes may be, where nodes that are no constants are open."""
    free = [k for k, node in enumerate(nodes) if node not in (FALSE, TRUE)]
    if len(free) > MOST_FREE:
        raise UnlikeError(f"{len(free)} bits of its number depend on what the tree does not ask")
    known = sum(1 << k for k, node in enumerate(nodes) if node == TRUE)
    return frozenset(
        known + sum(bit << k for bit, k in zip(bits, free, strict=True))
        for bits in product((0, 1), repeat=len(free))
    )
