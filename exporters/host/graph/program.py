# SPDX-License-Identifier: Apache-2.0
"""Compiles a graph to a program: a list of steps that keeps few values live at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from n3ic.model.graph.arithmetic import FixedPoint
from n3ic.model.graph.operations import (
    Add,
    Constant,
    Graph,
    LogAdd,
    Lookup,
    Offset,
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
class Program:
    """The program that the C interprets.

    Attributes:
        steps: steps in order of execution.
        tables: entries of all tables, concatenated.
        scores: slot of each class's score.
        slots: maximum number of values of a row that are live at once.
        value_bytes: bytes of one value.
        fields: number of features.
    """

    steps: tuple[Instruction, ...]
    tables: tuple[int, ...]
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
        """Bytes of the bins and values of ``rows`` rows."""
        return rows * (4 * self.fields + self.value_bytes * self.slots)


def program(graph: Graph) -> Program:
    """Compile a graph to its program; deterministic."""
    writer = _Writer(graph)
    for i, step in enumerate(graph.steps):
        writer.write(i, step)
    return Program(
        tuple(writer.steps),
        tuple(writer.tables) or (0,),  # C has no empty arrays
        tuple(writer.slot[i] for i in graph.scores),
        writer.slots,
        8 if needs_64_bits(graph) else 4,
        len(graph.input.fields),
    )


def needs_64_bits(graph: Graph) -> bool:
    """Whether the C computes in 64 bits: for products, and where a value exceeds 32 bits."""
    return isinstance(graph.arithmetic, FixedPoint) or any(
        low < -(1 << 31) or high >= 1 << 31 for low, high in graph.bounds
    )


class _Writer:
    """Emits steps; frees a value's slot after its last read (linear-scan allocation)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[Instruction] = []
        self.tables: list[int] = []
        self.slot: dict[int, int] = {}
        self.slots = 0
        self._free: list[int] = []
        self._readers_left = [len(readers) for readers in graph.readers]
        for score in graph.scores:
            self._readers_left[score] += 1  # an extra reader, so that a score's slot is never freed
        self._places: dict[tuple[int, ...], int] = {}
        self._fused = _fused(graph)
        self._wide = needs_64_bits(graph)

    def write(self, index: int, step: object) -> None:
        """Emit the steps of an operation; a sum also looks up the tables that only it reads."""
        if index in self._fused:
            return
        read = operands(self.graph.steps[index])
        fused = [i for i in read if i in self._fused]
        plain = [i for i in read if i not in self._fused]
        to = self._take()  # before operands are freed: the C's loops must not write what they read
        if isinstance(step, Lookup):
            self._look_up("LOOKUP", to, 0, step)
        elif isinstance(step, Constant):
            self._step("CONSTANT", to, by=step.value)
        elif fused:
            first = "ADD_LOOKUP" if plain else "LOOKUP"
            self._fuse(first, to, self.slot[plain[0]] if plain else 0, fused[0])
            for i in fused[1:]:
                self._fuse("ADD_LOOKUP", to, to, i)  # entry by entry, so in place is safe
        else:
            slots = [self.slot[i] for i in plain]
            by = step.by if isinstance(step, Offset | Scale) else 0
            self._step(_NAMES[type(self.graph.steps[index])], to, slots[0], (*slots, 0)[1], by)
        self.slot[index] = to
        for i in plain:
            self._readers_left[i] -= 1
            if not self._readers_left[i]:
                self._free.append(self.slot[i])

    def _fuse(self, kind: str, to: int, a: int, index: int) -> None:
        lookup = self.graph.steps[index]
        assert isinstance(lookup, Lookup)  # noqa: S101 - _fused returns only look-ups
        self._look_up(kind, to, a, lookup)

    def _look_up(self, kind: str, to: int, a: int, lookup: Lookup) -> None:
        """Emit a look-up; small tables are padded to the eight entries of a register."""
        table = lookup.table
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


def _fused(graph: Graph) -> frozenset[int]:
    """Find the tables that a single sum reads, so that its step can look them up."""
    return frozenset(
        i
        for i, (step, readers) in enumerate(zip(graph.steps, graph.readers, strict=True))
        if isinstance(step, Lookup)
        and len(readers) == 1
        and i not in graph.scores
        and isinstance(graph.steps[readers[0]], Add)
    )
