"""A network of look-up tables: what the unrolled generator builds and then prints as Verilog.

A signal is a *literal*: twice a node's number, plus one where it is inverted. Inverters cost
nothing, since a table absorbs them; equal tables of equal inputs are one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

FALSE = 0
TRUE = 1
MAX_INPUTS = 6  # of a look-up table


@dataclass(frozen=True, slots=True)
class Table:
    """A look-up table.

    Attributes:
        inputs: node numbers, rising; at most six.
        table: bit ``i`` is the output where input ``k`` is bit ``k`` of ``i``; bit 0 is 0.
    """

    inputs: tuple[int, ...]
    table: int


class Netlist:
    """Nodes in topological order: the constant 0, the inputs, then the look-up tables.

    Attributes:
        n_inputs: number of input bits; input ``i`` is node ``i + 1``.
        tables: the look-up tables; table ``i`` is node ``n_inputs + 1 + i``.
    """

    def __init__(self, n_inputs: int) -> None:
        self.n_inputs = n_inputs
        self.tables: list[Table] = []
        self._nodes: dict[Table, int] = {}
        self._levels: list[int] = [0] * (n_inputs + 1)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.n_inputs + 1 + len(self.tables)

    def fork(self) -> Netlist:
        """A copy to try something on."""
        copy = Netlist(self.n_inputs)
        copy.tables = list(self.tables)
        copy._nodes = dict(self._nodes)
        copy._levels = list(self._levels)
        return copy

    def input(self, index: int) -> int:
        """Literal of an input bit."""
        return 2 * (index + 1)

    def level(self, literal: int) -> int:
        """Tables on the longest way from an input to this signal."""
        return self._levels[literal >> 1]

    def is_table(self, node: int) -> bool:
        """Whether a node is a look-up table."""
        return node > self.n_inputs

    def table(self, node: int) -> Table:
        """The look-up table that is this node."""
        return self.tables[node - self.n_inputs - 1]

    def lut(self, table: int, literals: Sequence[int]) -> int:
        """A function of literals, as a literal.

        Args:
            table: bit ``i`` is the output where literal ``k`` is bit ``k`` of ``i``.
            literals: at most six different signals, constants aside.
        """
        nodes = tuple(sorted({literal >> 1 for literal in literals if literal > TRUE}))
        place = {node: k for k, node in enumerate(nodes)}
        wiring = tuple(
            (-1, literal) if literal <= TRUE else (place[literal >> 1], literal & 1)
            for literal in literals
        )
        table = _rewire(table, wiring, len(nodes))
        nodes, table = _without_idle(nodes, table)
        if not nodes:
            return TRUE if table else FALSE
        inverted = table & 1
        if inverted:
            table ^= (1 << (1 << len(nodes))) - 1
        if len(nodes) == 1:  # a wire
            return 2 * nodes[0] + inverted
        return 2 * self._node(Table(nodes, table)) + inverted

    def _node(self, table: Table) -> int:
        if table not in self._nodes:
            self._nodes[table] = self.n_inputs + 1 + len(self.tables)
            self.tables.append(table)
            self._levels.append(1 + max(self._levels[node] for node in table.inputs))
        return self._nodes[table]

    def sum_bit(self, bit: int, literals: Sequence[int], weights: Sequence[int]) -> int:
        """Bit ``bit`` of a weighted sum of at most six literals."""
        return self.lut(_sum_bit_table(tuple(weights), bit), literals)

    def at_least(self, bound: int, literals: Sequence[int], weights: Sequence[int]) -> int:
        """Whether a weighted sum of at most six literals reaches ``bound``."""
        return self.lut(_at_least_table(tuple(weights), bound), literals)

    def any_of(self, literals: Iterable[int]) -> int:
        """OR of literals, in as few tables as it takes."""
        todo = sorted(set(literals), key=self.level)
        while len(todo) > 1:
            now, todo = todo[:MAX_INPUTS], todo[MAX_INPUTS:]
            todo.append(self.at_least(1, now, (1,) * len(now)))
            todo.sort(key=self.level)
        return todo[0] if todo else FALSE

    def all_of(self, literals: Iterable[int]) -> int:
        """AND of literals."""
        return self.any_of(literal ^ 1 for literal in literals) ^ 1

    def mux(self, select: int, one: int, zero: int) -> int:
        """``select ? one : zero``."""
        return self.lut(0b11100100, (select, zero, one))

    def live(self, literals: Iterable[int]) -> set[int]:
        """The nodes that these signals are computed from, themselves included."""
        seen: set[int] = set()
        todo = [literal >> 1 for literal in literals]
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if self.is_table(node):
                todo.extend(self.table(node).inputs)
        return seen


@cache
def _sum_bit_table(weights: tuple[int, ...], bit: int) -> int:
    return _table(weights, lambda total: total >> bit & 1 == 1)


@cache
def _at_least_table(weights: tuple[int, ...], bound: int) -> int:
    return _table(weights, lambda total: total >= bound)


def _table(weights: tuple[int, ...], holds: Callable[[int], bool]) -> int:
    table = 0
    for index in range(1 << len(weights)):
        if holds(sum(w for k, w in enumerate(weights) if index >> k & 1)):
            table |= 1 << index
    return table


@cache
def _rewire(table: int, wiring: tuple[tuple[int, int], ...], n_nodes: int) -> int:
    """The table over nodes; ``wiring`` has (node's place, inverted) or (-1, constant) a literal."""
    out = 0
    for index in range(1 << n_nodes):
        source = 0
        for k, (place, flip) in enumerate(wiring):
            source |= (flip if place < 0 else index >> place & 1 ^ flip) << k
        out |= (table >> source & 1) << index
    return out


def _without_idle(nodes: tuple[int, ...], table: int) -> tuple[tuple[int, ...], int]:
    """Leave out the inputs that a table does not depend on."""
    for k in reversed(range(len(nodes))):
        low, high = _cofactors(table, k, len(nodes))
        if low == high:
            nodes, table = nodes[:k] + nodes[k + 1 :], low
    return nodes, table


@cache
def _cofactors(table: int, k: int, n: int) -> tuple[int, int]:
    halves = [0, 0]
    for index in range(1 << n):
        rest = (index >> k + 1) << k | index & (1 << k) - 1
        halves[index >> k & 1] |= (table >> index & 1) << rest
    return halves[0], halves[1]
