# SPDX-License-Identifier: Apache-2.0
"""Reads a graph back from the steps, tables and nodes that the C interprets.

The code shares nothing with the writer. It follows the steps in order as the C does, and refuses a
number that no step reads, so that any other number is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from n3ic.errors import ModelError, VerifyError
from n3ic.model.graph.arithmetic import Arithmetic
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
)
from n3ic.model.inputs import InputSpec

PADDED = 8  # entries of a table whose steps' names end with this number


@dataclass(frozen=True)
class CStep:
    """A step: its kind, the value that it sets, and what it reads."""

    kind: str
    to: int
    a: int
    b: int
    by: int


@dataclass(frozen=True)
class CNode:
    """A comparison, or a leaf.

    Attributes:
        field: the field whose bin is compared.
        cut: the cut of the field that a row reaches to go on beside ``next``; None for a leaf.
        next: place in the tree of the first of two nodes.
        leaf: the value of a leaf.
    """

    field: int
    cut: int | None
    next: int = 0
    leaf: int = 0


@dataclass(frozen=True, eq=False)
class CProgram:
    """What the C interprets.

    Attributes:
        artefact: the file's name, for errors.
        steps: the steps in order.
        slots: values of a row that it has room for.
        tables: entries of all tables.
        nodes: comparisons of steps, and the nodes of all trees.
        trees: of each tree, its first node and the comparisons down to its deepest leaf.
        scores: slot of each class's score.
    """

    artefact: str
    steps: Sequence[CStep]
    slots: int
    tables: Sequence[int]
    nodes: Sequence[CNode]
    trees: Sequence[tuple[int, int]]
    scores: Sequence[int]


def graph_in(program: CProgram, spec: InputSpec, arithmetic: Arithmetic | None) -> Graph:
    """The graph that a program computes.

    Args:
        program: the program.
        spec: the model's input.
        arithmetic: what the C's log-adds, products and roundings depend on.

    Raises:
        VerifyError: a step, a table or a node reads what does not exist, or none reads it.
    """
    return _Reader(program, spec).graph(arithmetic)


class _Reader:
    def __init__(self, program: CProgram, spec: InputSpec) -> None:
        self.program = program
        self.spec = spec
        self.steps: list[Operation] = []
        self.known: dict[Operation, int] = {}
        self.slots: dict[int, int] = {}  # of each slot, the operation whose value it holds
        self.entries: set[int] = set()  # tables, nodes and trees that steps read
        self.nodes: set[int] = set()
        self.trees: set[int] = set()

    def graph(self, arithmetic: Arithmetic | None) -> Graph:
        program = self.program
        for i, step in enumerate(program.steps):
            self.slots[step.to] = self._value(step, f"step {i}, {step.kind}")
        for name, read, number in (
            ("value", {*self.slots}, program.slots),
            ("entry of the tables", self.entries | self._padding(), len(program.tables)),
            ("node", self.nodes, len(program.nodes)),
            ("tree", self.trees, len(program.trees)),
        ):
            if read != {*range(number)}:
                wrong = min(read ^ {*range(number)})
                state = "does not exist" if wrong >= number else "is not read"
                raise self._wrong(f"{name} {wrong} {state}")
        scores = tuple(self._slot(slot, "the scores") for slot in program.scores)
        try:
            return Graph(self.spec, tuple(self.steps), scores, arithmetic)
        except ModelError as error:
            raise self._wrong(str(error)) from error

    def _wrong(self, text: str) -> VerifyError:
        return VerifyError(f"{self.program.artefact}: {text}")

    def _made(self, step: Operation) -> int:
        if step not in self.known:
            self.known[step] = len(self.steps)
            self.steps.append(step)
        return self.known[step]

    def _slot(self, slot: int, where: str) -> int:
        if slot not in self.slots:
            raise self._wrong(f"{where}: value {slot} is not set before")
        return self.slots[slot]

    def _value(self, step: CStep, where: str) -> int:
        """The operation of a step; operands that its kind does not have must be 0."""
        kind = step.kind.removeprefix("ADD_")
        a = {"ADD", "OFFSET", "LOG_ADD", "TIMES", "SCALE", "ROUND", "CHOOSE"}
        b = {"ADD", "LOG_ADD", "TIMES", "CHOOSE", "LOOKUP", f"LOOKUP_{PADDED}"}
        by = {"CONSTANT", "OFFSET", "SCALE", "CHOOSE", "LOOKUP", f"LOOKUP_{PADDED}", "TREE"}
        reads_a = kind in a or kind != step.kind
        for reads, name, number in (
            (reads_a, "a", step.a), (kind in b, "b", step.b), (kind in by, "by", step.by)
        ):  # fmt: skip
            if number and not reads:
                raise self._wrong(f"{where}: has no {name}, but {number}")
        one = self._slot(step.a, where) if reads_a else 0
        if kind.startswith("LOOKUP"):
            own = self._lookup(step, kind, where)
            return own if kind == step.kind else self._made(Add(one, own))
        if kind == "TREE":
            own = self._tree(step.by, where)
            return own if kind == step.kind else self._made(Add(one, own))
        if kind == "CONSTANT":
            return self._made(Constant(step.by))
        if kind == "OFFSET":
            return self._made(Offset(one, step.by))
        if kind == "SCALE":
            return self._made(Scale(one, step.by))
        if kind == "ROUND":
            return self._made(Round(one))
        if kind not in b:
            raise self._wrong(f"{where}: an unknown kind of step")
        other = self._slot(step.b, where)
        if kind == "CHOOSE":
            node = self._node(step.by, where)
            if node.cut is None or node.next or node.leaf:
                raise self._wrong(f"{where}: node {step.by} is no comparison of a step")
            return self._made(Choose(self._bit(node, where), one, other))
        if kind == "LOG_ADD":
            return self._made(LogAdd(one, other))
        return self._made((Add if kind == "ADD" else Times)(one, other))

    def _lookup(self, step: CStep, kind: str, where: str) -> int:
        if step.b >= len(self.spec.fields):
            raise self._wrong(f"{where}: reads field {step.b}, which does not exist")
        size = self.spec.fields[step.b].width + 1
        padded = kind.endswith(f"_{PADDED}")
        end = step.by + (PADDED if padded else size)
        if step.by < 0 or end > len(self.program.tables) or (padded and size > PADDED):
            raise self._wrong(f"{where}: no table of {size} entries at {step.by}")
        self.entries.update(range(step.by, step.by + size))
        return self._made(Lookup(step.b, tuple(self.program.tables[step.by : step.by + size])))

    def _padding(self) -> set[int]:
        """Entries that no bin reaches, which repeat the one before."""
        tables = self.program.tables
        if not self.entries:
            return {0} if list(tables) == [0] else set()  # C has no empty arrays
        return {k for k in range(1, len(tables)) if tables[k] == tables[k - 1]}

    def _node(self, at: int, where: str) -> CNode:
        if not 0 <= at < len(self.program.nodes):
            raise self._wrong(f"{where}: node {at} does not exist")
        self.nodes.add(at)
        return self.program.nodes[at]

    def _bit(self, node: CNode, where: str) -> int:
        """The input bit that is set where a comparison holds."""
        fields = self.spec.fields
        if node.cut is not None and node.field < len(fields):
            place = {cut: k for k, cut in enumerate(fields[node.field].cuts)}.get(node.cut)
            if place is not None:
                return self.spec.offsets[node.field] + place
        raise self._wrong(f"{where}: compares field {node.field} with {node.cut}")

    def _tree(self, tree: int, where: str) -> int:
        """The choices of a tree, whose depth must be that of its deepest leaf."""
        if not 0 <= tree < len(self.program.trees):
            raise self._wrong(f"{where}: tree {tree} does not exist")
        self.trees.add(tree)
        first, depth = self.program.trees[tree]
        where = f"{where}, tree {tree}"
        read: dict[int, tuple[int, int]] = {}  # of each node, its operation and its height
        above: set[int] = set()
        waiting = [0]  # no recursion, as trees may be deep
        while waiting:
            at = waiting[-1]
            node = self._node(first + at, where)
            below = [] if node.cut is None else [node.next, node.next + 1]
            if at not in read and (more := [k for k in below if k not in read]):
                above.add(at)
                if above & {*more}:
                    raise self._wrong(f"{where}: its nodes lead to each other in a circle")
                waiting += more
                continue
            waiting.pop()
            above.discard(at)
            if at not in read:
                read[at] = self._of_node(node, at, [read[k] for k in below], where)
        if read[0][1] != depth:
            raise self._wrong(f"{where}: has {read[0][1]} comparisons, {depth} are made")
        return read[0][0]

    def _of_node(
        self, node: CNode, at: int, below: Sequence[tuple[int, int]], where: str
    ) -> tuple[int, int]:
        if below:
            if node.leaf:
                raise self._wrong(f"{where}: node {at} has a value, but is no leaf")
            choice = Choose(self._bit(node, where), below[0][0], below[1][0])
            return self._made(choice), 1 + max(height for _, height in below)
        if node.next != at or node.field:
            raise self._wrong(f"{where}: leaf {at} does not lead to itself")
        return self._made(Constant(node.leaf)), 0
