# SPDX-License-Identifier: Apache-2.0
"""Compiles a graph to a pipeline: its cells, and the clock of each cell's inputs.

One input enters every clock, so all inputs of a cell must belong to the same network input: values
that are ready early wait in registers. Cells are scheduled as late as their readers allow. Values
then wait in the form of bins, which are a few bits wide and shared by all tables of a field, or of
input bits, which are shared by all choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from n3ic.errors import ExportError
from n3ic.exporters.netfpga.graph.choices import Signal, Trees
from n3ic.model.classifier import Classifier
from n3ic.model.graph.arithmetic import Logarithms, pairwise_reduce
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
    Select,
    Times,
    applied,
    in_words,
    operands,
)

COUNTED = 6  # inputs of one look-up table
WRITTEN = (Constant, Lookup, Select, Choose, Add, Offset, LogAdd, Times, Scale, Round)
"""The operations that the pipeline computes."""
LATENCY = {
    "bits": 0,
    "count": 1,
    "constant": 0,
    "lookup": 1,
    "add": 1,
    "larger": 4,
    "more": 0,  # computed together with the larger operand
    "times": 3,
    "scale": 2,
    "round": 1,
    "gate": 1,
    "join": 0,
    "mux": 1,
}


@dataclass(frozen=True)
class PipelineCell:
    """One cell of the pipeline, which computes one value.

    Attributes:
        kind: a key of ``LATENCY``.
        low, high: bounds of the value over all network inputs.
        width: width of the value in two's complement, in bits, without the sign bit if the sign is
            constant.
        reads: indices of the cells that it reads.
            A ``lookup`` in its bins or bits, a ``join`` in its bits: the highest first. A ``gate``
            reads its lowest bit first; a ``mux`` a bit, then the values for 0 and 1.
        table: entries of a ``lookup``; for two bins, all entries of the first one's first bin come
            first. The factor of a ``scale``. The table of a ``gate`` as one number.
        first: index of the first input bit of ``bits``.
        fields: one or two fields whose bins a ``lookup`` reads; none if it reads bits.
    """

    kind: str
    low: int
    high: int
    width: int
    reads: tuple[int, ...] = ()
    table: tuple[int, ...] = ()
    first: int = 0
    fields: tuple[int, ...] = ()

    @property
    def sign(self) -> str:
        """``+`` for values that are never negative, ``-`` for always negative ones, else both."""
        return "+" if self.low >= 0 else "-" if self.high < 0 else "+-"


def width_of(low: int, high: int) -> int:
    """Bits of all integers between bounds, without a sign bit if the sign is constant."""
    if low >= 0:
        return max(1, high.bit_length())
    if high < 0:
        return max(1, (-low - 1).bit_length())
    return max((-low - 1).bit_length(), high.bit_length()) + 1


@dataclass(frozen=True, eq=False)
class Pipeline:
    """The cells of a network and their schedule.

    Attributes:
        model: the model.
        graph: its operations.
        cells: cells in topological order.
        start: clock in which each cell has its inputs; network inputs arrive in clock 0.
        scores: index of the cell of each class's score.
        depth: clock in which all scores are ready.
        bins: index of the cell with each field's bin; None if no cell reads it.
    """

    model: Classifier
    graph: Graph
    cells: tuple[PipelineCell, ...]
    start: tuple[int, ...]
    scores: tuple[int, ...]
    depth: int
    bins: tuple[int | None, ...]

    def ready(self, index: int) -> int:
        """Clock in which a cell's value is ready."""
        return self.start[index] + LATENCY[self.cells[index].kind]

    @cached_property
    def taps(self) -> tuple[tuple[int, ...], ...]:
        """How many clocks after each value is ready its readers read it, in ascending order."""
        taps: list[set[int]] = [set() for _ in self.cells]
        for i, cell in enumerate(self.cells):
            for read in cell.reads:
                taps[read].add(self.start[i] - self.ready(read))
        for score in self.scores:
            taps[score].add(self.depth - self.ready(score))
        return tuple(tuple(sorted(clocks)) for clocks in taps)

    @cached_property
    def delays(self) -> tuple[int, ...]:
        """Number of clocks that each value is kept for its last reader."""
        return tuple(
            0 if cell.kind == "constant" else max(taps, default=0)
            for cell, taps in zip(self.cells, self.taps, strict=True)
        )

    def count(self, kind: str) -> int:
        """Number of cells of a kind."""
        return sum(cell.kind == kind for cell in self.cells)

    @property
    def score_width(self) -> int:
        """Width of a score in two's complement, in bits; a margin fits the same width unsigned."""
        scores = [self.cells[i] for i in self.scores]
        low, high = min(c.low for c in scores), max(c.high for c in scores)
        width = max((-low - 1).bit_length() if low < 0 else 0, high.bit_length()) + 1
        # A cell may be wider than its value, as it is as wide as what it reads.
        cells = (c.width + (c.sign != "+-") for c in scores if c.kind != "constant")
        return max(width, *cells, 0)


def pipeline(model: Classifier, graph: Graph) -> Pipeline:
    """Build the pipeline of a model's operations; deterministic."""
    builder = _Builder(graph)
    pairs = _pairs(graph)
    inside = {i for pair in pairs.values() for i in pair} | builder.trees.inside
    for i, (step, bounds) in enumerate(zip(graph.steps, graph.bounds, strict=True)):
        if i in inside:
            builder.place.append(-1)  # only a fused table or the tables of a tree read it
        elif i in pairs:
            builder.write_pair(step, [graph.steps[k] for k in pairs[i]], *bounds)
        elif i in builder.trees.roots:
            builder.write_choices(i, *bounds)
        else:
            builder.write(step, *bounds)
    scores = tuple(builder.place[i] for i in graph.scores)
    cells = tuple(builder.cells)
    start, depth = _schedule(cells, scores, builder.early)
    bins = tuple(builder.bins.get(i) for i in range(len(graph.input.fields)))
    return Pipeline(model, graph, cells, start, scores, depth, bins)


class _Builder:
    """Creates the cells of operations."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.trees = Trees(graph)
        self.cells: list[PipelineCell] = []
        self.place: list[int] = []
        self.bins: dict[int, int] = {}
        self.inputs: dict[int, int] = {}  # cells of single input bits
        self.gates: dict[tuple[tuple[int, ...], int], int] = {}
        self.early: set[int] = set()  # cells that are scheduled as soon as possible

    def write(self, step: Operation, low: int, high: int) -> None:
        """Create the cells of an operation whose value has the given bounds."""
        if isinstance(step, Constant):
            cell = self._add("constant", low, high)
        elif isinstance(step, Lookup):
            cell = self._lookup((step.field,), step.table, low, high)
        elif isinstance(step, Select):
            bits = tuple(self._input(bit) for bit in reversed(step.bits))
            cell = self._add("lookup", low, high, bits, step.table)
        elif isinstance(step, LogAdd):
            cell = self._log_add(self.place[step.a], self.place[step.b], low, high)
        elif isinstance(step, Add):
            cell = self._add("add", low, high, (self.place[step.a], self.place[step.b]))
        elif isinstance(step, Offset):
            by = self._add("constant", step.by, step.by)
            cell = self._add("add", low, high, (self.place[step.a], by))
        elif isinstance(step, Scale):
            cell = self._add("scale", low, high, (self.place[step.a],), (step.by,))
        elif isinstance(step, Round):
            cell = self._add("round", low, high, (self.place[step.a],))
        elif isinstance(step, Times):
            cell = self._add("times", low, high, (self.place[step.a], self.place[step.b]))
        elif isinstance(step, Choose):
            sides = (self.place[step.zero], self.place[step.one])
            cell = self._add("mux", low, high, (self._input(step.bit), *sides))
        else:
            raise ExportError(f"the pipeline has no cell for a {in_words(type(step))}")
        self.place.append(cell)

    def write_pair(
        self, step: Operation, lookups: Sequence[Operation], low: int, high: int
    ) -> None:
        """Create one table in place of two tables and the operation that joins them."""
        tables = [each for each in lookups if isinstance(each, Lookup)]
        first, second = (np.array(each.table, dtype=np.int64) for each in tables)
        # The bins' bits index the table, so it has an entry for every value of those bits.
        padded = np.pad(second, (0, (1 << _bin_bits(len(second))) - len(second)), mode="edge")
        values = [first.repeat(len(padded)), np.tile(padded, len(first))]
        joined = applied(step, values, self.graph.arithmetic)
        table = tuple(int(value) for value in joined)
        fields = tuple(each.field for each in tables)
        self.place.append(self._lookup(fields, table, low, high))

    def write_choices(self, root: int, low: int, high: int) -> None:
        """Create the tables of a tree of choices among constants."""
        width = width_of(low, high)
        logic = self.trees.logic(root, width)
        gates: list[int] = []
        for gate in logic.gates:
            gates.append(self._gate(self._signals(gate.inputs, gates), gate.table))
        reads = self._signals(logic.number, gates)[::-1]
        kind = "lookup" if logic.entries else "join"
        self.place.append(len(self.cells))
        self.cells.append(PipelineCell(kind, low, high, width, reads, logic.entries))

    def _signals(self, signals: Sequence[Signal], gates: Sequence[int]) -> tuple[int, ...]:
        """The cells of signals."""
        cells = []
        for kind, index in signals:
            if kind == "gate":
                cells.append(gates[index])
            elif kind == "input":
                cells.append(self._input(index))
            else:
                cells.append(self._add("constant", index, index))
        return tuple(cells)

    def _gate(self, reads: tuple[int, ...], table: int) -> int:
        if (reads, table) not in self.gates:
            self.gates[reads, table] = self._add("gate", 0, 1, reads, (table,))
        return self.gates[reads, table]

    def _input(self, bit: int) -> int:
        """Return the cell of an input bit; create it once."""
        if bit not in self.inputs:
            self.inputs[bit] = len(self.cells)
            self.early.add(len(self.cells))
            self.cells.append(PipelineCell("bits", 0, 1, 1, first=bit))
        return self.inputs[bit]

    def _lookup(self, fields: tuple[int, ...], table: tuple[int, ...], low: int, high: int) -> int:
        bins = tuple(self._bin(field) for field in fields)
        width = width_of(low, high)
        self.cells.append(PipelineCell("lookup", low, high, width, bins, table, fields=fields))
        return len(self.cells) - 1

    def _add(
        self,
        kind: str,
        low: int,
        high: int,
        reads: tuple[int, ...] = (),
        table: tuple[int, ...] = (),
    ) -> int:
        width = width_of(low, high)
        if kind in ("add", "larger", "mux"):
            width = max(width, *(self.cells[i].width for i in reads))
        self.cells.append(PipelineCell(kind, low, high, width, reads, table))
        return len(self.cells) - 1

    def _log_add(self, a: int, b: int, low: int, high: int) -> int:
        arithmetic = self.graph.arithmetic
        assert isinstance(arithmetic, Logarithms)  # noqa: S101 - no other has log-adds
        operands = [self.cells[i] for i in (a, b)]
        bounds = max(c.low for c in operands), max(c.high for c in operands)
        least = min(c.low for c in operands)
        # The unit compares its operands, so its width must also hold the lower one.
        width = max(width_of(least, bounds[1]), *(c.width for c in operands))
        self.cells.append(PipelineCell("larger", least, bounds[1], width, (a, b)))
        larger = len(self.cells) - 1
        more = self._add("more", 0, max(1, arithmetic.table[0]), (larger,))
        return self._add("add", low, high, (larger, more))

    def _bin(self, field: int) -> int:
        """Return the cell that counts the set bits of a field; create it once."""
        if field not in self.bins:
            first, width = self.graph.input.offsets[field], self.graph.input.fields[field].width
            before = len(self.cells)
            parts = []
            for at in range(first, first + width, COUNTED):
                count = min(COUNTED, first + width - at)
                self.cells.append(PipelineCell("bits", 0, (1 << count) - 1, count, first=at))
                if count > 1:
                    self._add("count", 0, count, (len(self.cells) - 1,))
                parts.append(len(self.cells) - 1)
            self.bins[field] = pairwise_reduce(parts, self._sum)
            self.early.update(range(before, len(self.cells)))
        return self.bins[field]

    def _sum(self, a: int, b: int) -> int:
        return self._add("add", 0, self.cells[a].high + self.cells[b].high, (a, b))


def _bin_bits(entries: int) -> int:
    return width_of(0, entries - 1)


def _pairs(graph: Graph) -> dict[int, tuple[int, int]]:
    """Find sums and products of two tables that together fit one look-up table per bit."""
    pairs = {}
    for i, step in enumerate(graph.steps):
        if not isinstance(step, Add | Times):
            continue
        a, b = operands(step)
        parts = [graph.steps[a], graph.steps[b]]
        tables = [part.table for part in parts if isinstance(part, Lookup)]
        alone = all(len(graph.readers[k]) == 1 and k not in graph.scores for k in (a, b))
        if len(tables) == 2 and alone and sum(_bin_bits(len(t)) for t in tables) <= COUNTED:
            pairs[i] = (a, b)
    return pairs


def _schedule(
    cells: Sequence[PipelineCell], scores: Sequence[int], early: set[int]
) -> tuple[tuple[int, ...], int]:
    """Clock in which each cell has its inputs, and the clock in which all scores are ready."""
    soonest: list[int] = []
    for cell in cells:
        ready = [soonest[i] + LATENCY[cells[i].kind] for i in cell.reads]
        soonest.append(max(ready, default=0))
    depth = max(1, *(soonest[i] + LATENCY[cells[i].kind] for i in scores))
    needed = [depth] * len(cells)
    start = list(soonest)
    for i in reversed(range(len(cells))):
        if i not in early:
            start[i] = needed[i] - LATENCY[cells[i].kind]
        for read in cells[i].reads:
            needed[read] = min(needed[read], start[i])
    return tuple(start), depth
