# SPDX-License-Identifier: Apache-2.0
"""A netlist of small cells, which the unrolled generator builds and then writes as Verilog.

A signal is a *literal*: twice a node's number, plus one if it is inverted. Inverters are free,
because the reading table absorbs them. A node is one output of a cell, that is, a look-up table.
Equal cells with equal inputs are one cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from n3ic.exporters.netfpga.unrolled.cells import MAX_INPUTS, MUX, Kind, at_least

FALSE = 0
TRUE = 1


@dataclass(frozen=True, slots=True)
class NetlistCell:
    """A cell with its inputs.

    Attributes:
        kind: kind of the cell.
        inputs: one literal per input of the kind.
    """

    kind: Kind
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A node: one output of a cell as a look-up table.

    Attributes:
        inputs: numbers of the nodes that the cell reads, ascending.
        cell: the cell of the output.
        port: index of the output.
        inverted: whether the node holds the inverted output, so that it is 0 if all inputs are 0.
        name: name in the Verilog, without the number that makes it unique.
    """

    inputs: tuple[int, ...]
    cell: NetlistCell
    port: int
    inverted: bool
    name: str


class Netlist:
    """Nodes in topological order: the constant 0, the inputs, then the look-up tables.

    Attributes:
        n_inputs: number of input bits; input ``i`` is node ``i + 1``.
        tables: the look-up tables; table ``i`` is node ``n_inputs + 1 + i``.
    """

    def __init__(self, n_inputs: int) -> None:
        self.n_inputs = n_inputs
        self.tables: list[LookupTable] = []
        self._outputs: dict[NetlistCell, tuple[int, ...]] = {}
        self._functions: dict[tuple[tuple[int, ...], int], int] = {}  # (nodes, table) to a literal
        self._levels: list[int] = [0] * (n_inputs + 1)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.n_inputs + 1 + len(self.tables)

    def fork(self) -> Netlist:
        """Copy the netlist, to try alternatives."""
        copy = Netlist(self.n_inputs)
        copy.tables = list(self.tables)
        copy._outputs = dict(self._outputs)
        copy._functions = dict(self._functions)
        copy._levels = list(self._levels)
        return copy

    def input(self, index: int) -> int:
        """Literal of an input bit."""
        return 2 * (index + 1)

    def level(self, literal: int) -> int:
        """Number of tables on the longest path from an input to a signal."""
        return self._levels[literal >> 1]

    def is_table(self, node: int) -> bool:
        """Whether a node is a look-up table."""
        return node > self.n_inputs

    def table(self, node: int) -> LookupTable:
        """The look-up table that is this node."""
        return self.tables[node - self.n_inputs - 1]

    def is_plain(self, literal: int) -> bool:
        """Whether a signal is an input or the output of a cell, not its inverse."""
        node = literal >> 1
        return literal & 1 == int(self.is_table(node) and self.table(node).inverted)

    def cell(self, kind: Kind, literals: Sequence[int], names: Sequence[str]) -> tuple[int, ...]:
        """Add a cell and return its outputs as literals.

        Args:
            kind: kind of the cell.
            literals: its inputs; missing ones are 0.
            names: one name per output, for the Verilog.
        """
        cell, inverted = _canonical(kind, (*literals, *[FALSE] * (kind.n_inputs - len(literals))))
        if cell not in self._outputs:
            self._outputs[cell] = tuple(
                self._output(cell, port, name) for port, name in enumerate(names)
            )
        return tuple(literal ^ inverted for literal in self._outputs[cell])

    def _output(self, cell: NetlistCell, port: int, name: str) -> int:
        nodes = tuple(sorted({literal >> 1 for literal in cell.inputs if literal > TRUE}))
        place = {node: k for k, node in enumerate(nodes)}
        wiring = tuple(
            (-1, literal) if literal <= TRUE else (place[literal >> 1], literal & 1)
            for literal in cell.inputs
        )
        table = _rewire(cell.kind.tables[port], wiring, len(nodes))
        needed = [k for k in range(len(nodes)) if _depends(table, k, len(nodes))]
        inverted = table & 1
        if len(needed) <= 1 and cell.kind.folds:  # a constant or a copy of an input
            return 2 * nodes[needed[0]] + inverted if needed else int(inverted)
        # Store the function with output 0 at inputs 0, so that a function and its inverse share a
        # table.
        function = (nodes, table ^ ((1 << (1 << len(nodes))) - 1 if inverted else 0))
        if cell.kind.merges and function in self._functions:
            return self._functions[function] ^ inverted
        self.tables.append(LookupTable(nodes, cell, port, bool(inverted), name))
        self._levels.append(1 + max(self._levels[node] for node in nodes))
        literal = 2 * (self.n_nodes - 1)
        if cell.kind.merges:
            self._functions[function] = literal
        return literal + inverted

    def at_least(
        self, bound: int, literals: Sequence[int], weights: Sequence[int], name: str
    ) -> int:
        """Build a literal that says whether a weighted sum of at most six reaches ``bound``."""
        total = sum(weights)
        if not 0 < bound <= total:
            return TRUE if bound <= 0 else FALSE
        # A bit that can never change the answer would only cost an input of the table.
        used = [k for k in range(len(weights)) if _counts(tuple(weights), bound, k)]
        kind = at_least(tuple(weights[k] for k in used), bound)
        return self.cell(kind, [literals[k] for k in used], [name])[0]

    def any_of(
        self, literals: Iterable[int], name: str, weights: Sequence[int] | None = None
    ) -> int:
        """Build the OR of literals as a tree of tables, with weights for the decoder to check."""
        listed = list(literals)
        counted: dict[int, int] = {}
        for literal, weight in zip(listed, weights or [1] * len(listed), strict=True):
            counted[literal] = counted.get(literal, 0) + weight
        # Early signals first: the tree then adds the least to the longest path, as in Huffman
        # coding.
        todo = sorted(counted, key=lambda literal: (self.level(literal), literal))
        while len(todo) > 1:
            now, todo = todo[:MAX_INPUTS], todo[MAX_INPUTS:]
            table = self.at_least(1, now, [counted.get(literal, 1) for literal in now], name)
            todo.append(table)
            todo.sort(key=self.level)
        return todo[0] if todo else FALSE

    def all_of(self, literals: Iterable[int], name: str) -> int:
        """AND of literals."""
        # De Morgan; inverted literals cost nothing.
        return self.any_of((literal ^ 1 for literal in literals), name) ^ 1

    def mux(self, select: int, one: int, zero: int, name: str) -> int:
        """``select ? one : zero``."""
        return self.cell(MUX, (select, zero, one), [name])[0]

    def live(self, literals: Iterable[int]) -> set[int]:
        """The nodes that signals depend on, including their own nodes."""
        nodes: set[int] = set()
        todo = [literal >> 1 for literal in literals]
        while todo:
            node = todo.pop()
            if node in nodes:
                continue
            nodes.add(node)
            if self.is_table(node):
                todo.extend(self.table(node).inputs)
        return nodes


def _canonical(kind: Kind, literals: Sequence[int]) -> tuple[NetlistCell, int]:
    """The cell with its inputs in canonical order, and whether its outputs are inverted."""
    ordered: list[int] = []
    start = 0
    for run in kind.swaps:
        ordered += sorted(literals[start : start + run])
        start += run
    ordered += literals[start:]
    if kind.self_dual:
        # Self-dual: inverting all inputs inverts all outputs, so the first variable input can be
        # made uninverted, and a cell and its inverse become one.
        first = next((literal for literal in ordered if literal > TRUE), FALSE)
        if first & 1:
            cell, _ = _canonical(kind, [literal ^ 1 for literal in ordered])
            return cell, 1
    return NetlistCell(kind, tuple(ordered)), 0


@cache
def _counts(weights: tuple[int, ...], bound: int, k: int) -> bool:
    """Whether the answer of a weighted sum depends on bit ``k``."""
    others = [w for i, w in enumerate(weights) if i != k]
    sums = {0}
    for weight in others:
        sums |= {total + weight for total in sums}
    # It does iff some sum of the other bits is below the bound without bit k and not with it.
    return any(total < bound <= total + weights[k] for total in sums)


@cache
def _rewire(table: int, wiring: tuple[tuple[int, int], ...], n_nodes: int) -> int:
    """The table over nodes; ``wiring`` holds per literal (place, inverted) or (-1, constant)."""
    out = 0
    for index in range(1 << n_nodes):
        source = 0
        for k, (place, flip) in enumerate(wiring):
            source |= (flip if place < 0 else index >> place & 1 ^ flip) << k
        out |= (table >> source & 1) << index
    return out


@cache
def _depends(table: int, k: int, n: int) -> bool:
    """Whether a table of ``n`` inputs depends on input ``k``."""
    return any(table >> index & 1 != table >> (index ^ 1 << k) & 1 for index in range(1 << n))
