# SPDX-License-Identifier: Apache-2.0
"""Compiles a network to a program: a list of steps that keeps few values live at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from n3ic.families.spn.network import SpnModel
from n3ic.families.spn.operations import (
    Add,
    Constant,
    LogAdd,
    Lookup,
    Offset,
    Operations,
    Round,
    Scale,
    Times,
    operands,
    operations,
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
class SpnProgram:
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


def program(model: SpnModel) -> SpnProgram:
    """Compile a network to its program; deterministic."""
    network = operations(model)
    writer = _Writer(network)
    for i, step in enumerate(network.steps):
        writer.write(i, step)
    return SpnProgram(
        tuple(writer.steps),
        tuple(writer.tables) or (0,),  # C has no empty arrays
        tuple(writer.slot[i] for i in network.scores),
        writer.slots,
        8 if model.arithmetic.one else 4,  # products need 64 bits; logarithms are only added
        len(model.input.fields),
    )


class _Writer:
    """Emits steps; frees a value's slot after its last read (linear-scan allocation)."""

    def __init__(self, network: Operations) -> None:
        self.network = network
        self.steps: list[Instruction] = []
        self.tables: list[int] = []
        self.slot: dict[int, int] = {}
        self.slots = 0
        self._free: list[int] = []
        self._readers_left = [len(readers) for readers in network.readers]
        for score in network.scores:
            self._readers_left[score] += 1  # an extra reader, so that a score's slot is never freed
        self._places: dict[tuple[int, ...], int] = {}
        self._fused = _fused(network)

    def write(self, index: int, step: object) -> None:
        """Emit the steps of an operation; a sum also looks up the tables that only it reads."""
        if index in self._fused:
            return
        read = operands(self.network.steps[index])
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
            self._step(_NAMES[type(self.network.steps[index])], to, slots[0], (*slots, 0)[1], by)
        self.slot[index] = to
        for i in plain:
            self._readers_left[i] -= 1
            if not self._readers_left[i]:
                self._free.append(self.slot[i])

    def _fuse(self, kind: str, to: int, a: int, index: int) -> None:
        lookup = self.network.steps[index]
        assert isinstance(lookup, Lookup)  # noqa: S101 - _fused returns only look-ups
        self._look_up(kind, to, a, lookup)

    def _look_up(self, kind: str, to: int, a: int, lookup: Lookup) -> None:
        """Emit a look-up; small tables are padded to the eight entries of a register."""
        table = lookup.table
        # No bin reaches the padding; the last entry keeps the values in range.
        if self.network.model.arithmetic.one == 0 and len(table) <= REGISTER:
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


def _fused(network: Operations) -> frozenset[int]:
    """Find the tables that a single sum reads, so that its step can look them up."""
    return frozenset(
        i
        for i, (step, readers) in enumerate(zip(network.steps, network.readers, strict=True))
        if isinstance(step, Lookup)
        and len(readers) == 1
        and i not in network.scores
        and isinstance(network.steps[readers[0]], Add)
    )
