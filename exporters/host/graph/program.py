# SPDX-License-Identifier: Apache-2.0
"""Compiles a graph to a program: a list of steps that keeps few values live at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from n3ic.exporters.host.graph.trees import TreeNode, comparison, trees
from n3ic.model.graph.arithmetic import FixedPoint
from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    LogAdd,
    Lookup,
    Offset,
    Operation,
    Round,
    Scale,
    Times,
    operands,
)

CACHE_BYTES = 24 << 10  # for bins and values of a block, so that they stay in the L1 cache
MOST_ROWS, LEAST_ROWS = 128, 16
REGISTER = 8  # entries of 32 bits that an AVX2 register holds
_NAMES = {
    Constant: "CONSTANT",
    Lookup: "LOOKUP",
    Choose: "CHOOSE",
    Add: "ADD",
    Offset: "OFFSET",
    LogAdd: "LOG_ADD",
    Times: "TIMES",
    Scale: "SCALE",
    Round: "ROUND",
}


WRITTEN = tuple(_NAMES)
"""The operations that the C computes."""


@dataclass(frozen=True)
class Instruction:
    """One step: sets ``to`` to the result of operation ``kind`` on ``a``, ``b`` and ``by``.

    ``spn_tables.c.j2`` defines the operations.
    """

    kind: str
    to: int
    a: int = 0
    b: int = 0
    by: int = 0


@dataclass(frozen=True)
class PlacedTree:
    """Where the nodes of a tree begin, and the most choices from its root to a leaf."""

    first: int
    depth: int


@dataclass(frozen=True)
class Program:
    """The program that the C interprets.

    Attributes:
        steps: steps in order of execution.
        tables: entries of all tables, concatenated.
        nodes: comparisons of choices, and the nodes of all trees.
        trees: where each tree lies among the nodes.
        scores: slot of each class's score.
        slots: maximum number of values of a row that are live at once.
        value_bytes: bytes of one value.
        fields: number of features.
    """

    steps: tuple[Instruction, ...]
    tables: tuple[int, ...]
    nodes: tuple[TreeNode, ...]
    trees: tuple[PlacedTree, ...]
    scores: tuple[int, ...]
    slots: int
    value_bytes: int
    fields: int

    @property
    def block(self) -> int:
        """Number of rows computed at a time, a power of two."""
        rows = MOST_ROWS
        while rows > LEAST_ROWS and self.scratch_bytes(rows) > CACHE_BYTES:
            rows //= 2
        return rows

    def scratch_bytes(self, rows: int) -> int:
        """Bytes of the bins, features and values of ``rows`` rows."""
        inputs = 1 + self.chooses  # bins, and the features that choices compare
        return rows * (4 * inputs * self.fields + self.value_bytes * self.slots)

    @property
    def reads_bins(self) -> bool:
        """Whether steps look up tables by bins."""
        return any("LOOKUP" in step.kind for step in self.steps)

    @property
    def chooses(self) -> bool:
        """Whether steps compare features."""
        return bool(self.nodes)


def program(graph: Graph) -> Program:
    """Compile a graph to its program; deterministic."""
    writer = _Writer(graph)
    for i, step in enumerate(graph.steps):
        writer.write(i, step)
    return Program(
        tuple(writer.steps),
        tuple(writer.tables) or (0,),  # C has no empty arrays
        tuple(writer.nodes),
        tuple(writer.placed),
        tuple(writer.slot[i] for i in graph.scores),
        writer.slots,
        8 if needs_64_bits(graph) else 4,
        len(graph.input.fields),
    )


def needs_64_bits(graph: Graph) -> bool:
    """Whether the C computes in 64 bits: for products, and where a value exceeds 32 bits."""
    return isinstance(graph.arithmetic, FixedPoint) or Scale in graph.kinds or not graph.fits(32)


class _Writer:
    """Emits steps; frees a value's slot after its last read (linear-scan allocation)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[Instruction] = []
        self.tables: list[int] = []
        self.nodes: list[TreeNode] = []
        self.placed: list[PlacedTree] = []
        self.slot: dict[int, int] = {}
        self.slots = 0
        self._free: list[int] = []
        self._trees = trees(graph)
        self._readers_left = _readers(graph, self._trees)
        self._places: dict[tuple[int, ...], int] = {}
        self._fused = _fused(graph, self._trees, self._readers_left)
        self._wide = needs_64_bits(graph)

    def write(self, index: int, step: Operation) -> None:
        """Emit the steps of an operation; a sum also looks up the tables that only it reads."""
        if index in self._fused or not self._readers_left[index]:
            return
        read = () if index in self._trees else operands(step)
        fused = [i for i in read if i in self._fused]
        plain = [i for i in read if i not in self._fused]
        to = self._take()  # before operands are freed: the C's loops must not write what they read
        if index in self._trees or isinstance(step, Lookup):
            self._leaf("", to, 0, index)
        elif isinstance(step, Constant):
            self._step("CONSTANT", to, by=step.value)
        elif isinstance(step, Choose):
            self._step("CHOOSE", to, self.slot[step.zero], self.slot[step.one], len(self.nodes))
            field, most = comparison(self.graph, step.bit)
            self.nodes.append(TreeNode(most, field, 0))
        elif fused:
            self._leaf("ADD_" if plain else "", to, self.slot[plain[0]] if plain else 0, fused[0])
            for i in fused[1:]:
                self._leaf("ADD_", to, to, i)  # entry by entry, so in place is safe
        else:
            slots = [self.slot[i] for i in plain]
            by = step.by if isinstance(step, Offset | Scale) else 0
            self._step(_NAMES[type(step)], to, slots[0], (*slots, 0)[1], by)
        self.slot[index] = to
        for i in plain:
            self._readers_left[i] -= 1
            if not self._readers_left[i]:
                self._free.append(self.slot[i])

    def _leaf(self, prefix: str, to: int, a: int, index: int) -> None:
        """Emit a look-up or a tree; small tables are padded to the eight entries of a register."""
        if index in self._trees:
            tree = self._trees[index]
            self._step(f"{prefix}TREE", to, a, 0, len(self.placed))
            self.placed.append(PlacedTree(len(self.nodes), tree.depth))
            self.nodes.extend(tree.nodes)
            return
        lookup = self.graph.steps[index]
        assert isinstance(lookup, Lookup)  # noqa: S101 - _fused returns only look-ups and trees
        kind, table = f"{prefix}LOOKUP", lookup.table
        # No bin reaches the padding; the last entry keeps the values in range.
        if not self._wide and len(table) <= REGISTER:
            kind, table = f"{kind}_{REGISTER}", table + table[-1:] * (REGISTER - len(table))
        self._step(kind, to, a, lookup.field, self._place(table))

    def _step(self, kind: str, to: int, a: int = 0, b: int = 0, by: int = 0) -> None:
        self.steps.append(Instruction(kind, to, a, b, by))

    def _take(self) -> int:
        if self._free:
            return self._free.pop()
        self.slots += 1
        return self.slots - 1

    def _place(self, table: Sequence[int]) -> int:
        key = tuple(table)
        if key not in self._places:
            self._places[key] = len(self.tables)
            self.tables.extend(key)
        return self._places[key]


def _readers(graph: Graph, roots: Collection[int]) -> list[int]:
    """Number of steps that read each value; 0 for what lies only within trees."""
    readers = [0] * len(graph.steps)
    for score in graph.scores:
        readers[score] += 1  # an extra reader, so that a score's slot is never freed
    for i in reversed(range(len(graph.steps))):
        if readers[i] and i not in roots:
            for k in operands(graph.steps[i]):
                readers[k] += 1
    return readers


def _fused(graph: Graph, roots: Collection[int], readers: Sequence[int]) -> frozenset[int]:
    """Find the tables and trees that a single sum reads, so that its step can look them up."""
    sums = (step for i, step in enumerate(graph.steps) if isinstance(step, Add) and readers[i])
    read = {k for step in sums for k in operands(step)}
    return frozenset(
        i
        for i in read - {*graph.scores}
        if readers[i] == 1 and (isinstance(graph.steps[i], Lookup) or i in roots)
    )
