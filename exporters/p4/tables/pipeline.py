# SPDX-License-Identifier: Apache-2.0
"""Converts look-up tables to steps of a match-action pipeline, for the P4 templates.

All indices are made at once, then every table is looked up, then a tree adds the entries. The
tables do not depend on each other, so a device may put many of them into one stage.

Entries are stored with an excess of ``2 ** (width - 1)``: they are never negative, so no sign is
extended. A sum of a model is the sum of the stored entries plus an offset: its bias, less the
excesses.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from n3ic.exporters.p4.shared.pipeline import MODEL_BITS
from n3ic.families.tables.network import TablesModel
from n3ic.families.tables.operations import LookUp, lookups
from n3ic.targets.packets import SCORE_BITS


@dataclass(frozen=True)
class IndexBit:
    """A bit of an index: ``(x >> right) << left``, masked by ``mask``; one of both shifts is 0."""

    right: int
    left: int
    mask: int


@dataclass(frozen=True)
class Column:
    """The entries of a table for one sum.

    Attributes:
        sum: the sum that they are added to.
        stored: the entries by index, each plus the excess.
    """

    sum: int
    stored: tuple[int, ...]

    def word(self, width: int) -> int:
        """All entries of ``width`` bits as one integer, that of index 0 in the lowest bits."""
        return sum(entry << (i * width) for i, entry in enumerate(self.stored))


@dataclass(frozen=True)
class TableStep:
    """One look-up table.

    Attributes:
        index: its number in the model.
        inputs: the input bits that address it, the least significant first.
        bits: the same as shifts and masks of the input word.
        width: bits of an entry.
        columns: its entries, for the sums that it adds to.
    """

    index: int
    inputs: tuple[int, ...]
    bits: tuple[IndexBit, ...]
    width: int
    columns: tuple[Column, ...]

    @property
    def size(self) -> int:
        """Number of indices."""
        return 1 << len(self.inputs)


@dataclass(frozen=True)
class SumStep:
    """The last step of a sum: class, the table whose field holds the total, and the offset.

    ``root`` is None if no table adds to the sum; ``offset`` is 32 bits in two's complement.
    """

    score: int
    root: int | None
    offset: int


@dataclass(frozen=True)
class Level:
    """One level of the tree that adds entries: triples (table, other table, sum)."""

    index: int
    pairs: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class TablesPipeline:
    """A model as the templates need it.

    Attributes:
        tables: its look-up tables.
        levels: levels of the tree of sums.
        sums: the last step of each sum.
        sum_bits: width of a field that holds a partial sum.
        input_bits: number of input bits.
        pad_bits: number of bits that pad the input to whole bytes.
        classes: number of classes.
        model_id: number in answers: the start of the model's digest, never 0.
        shunts: whether the program has a shunting threshold.
        shunt: smallest margin that is not shunted.
        layers: none; the templates that binary networks share loop over them.
    """

    tables: tuple[TableStep, ...]
    levels: tuple[Level, ...]
    sums: tuple[SumStep, ...]
    sum_bits: int
    input_bits: int
    pad_bits: int
    classes: int
    model_id: int
    shunts: bool
    shunt: int
    layers: tuple[()] = ()

    @property
    def signature(self) -> str:
        """The properties on which the tables of a v1model program depend, hashed.

        These are the number of input bits and classes, and each table's input bits, entry width and
        sums; an ``s`` is added for a shunting threshold.
        """
        wiring = [
            [step.inputs, step.width, [column.sum for column in step.columns]]
            for step in self.tables
        ]
        text = json.dumps([self.input_bits, self.classes, wiring], separators=(",", ":"))
        told = hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
        return f"{self.input_bits}_{len(self.tables)}_{told}" + ("s" if self.shunts else "")


def tables_pipeline(model: TablesModel, *, shunts: bool = False) -> TablesPipeline:
    """Convert a model to a pipeline.

    Args:
        model: the look-up tables.
        shunts: whether to include a threshold even if the model's is 0.
    """
    steps = tuple(_table(t, table, model.tables[t].width) for t, table in enumerate(lookups(model)))
    most = max(sum((1 << s.width) - 1 for s in steps), 1)
    members = [
        [s.index for s in steps if any(c.sum == i for c in s.columns)]
        for i in range(len(model.bias))
    ]
    excess = {s.index: 1 << (s.width - 1) for s in steps}
    first = len(model.classes) - len(model.bias)  # two classes have one sum, that of class 1
    n = model.input.n_bits
    return TablesPipeline(
        tables=steps,
        levels=_levels(members),
        sums=tuple(
            SumStep(
                first + i,
                of[0] if of else None,
                (int(model.bias[i]) - sum(excess[t] for t in of)) % (1 << SCORE_BITS),
            )
            for i, of in enumerate(members)
        ),
        sum_bits=most.bit_length(),
        input_bits=n,
        pad_bits=-n % 8,
        classes=len(model.classes),
        # 0 in an answer means that no model answered, so the id must not be 0.
        model_id=int(model.digest[: MODEL_BITS // 4], 16) or 1,
        shunts=shunts or model.shunt > 0,
        shunt=model.shunt,
    )


def _table(index: int, table: LookUp, width: int) -> TableStep:
    excess = 1 << (width - 1)
    bits = tuple(
        IndexBit(max(bit - j, 0), max(j - bit, 0), 1 << j) for j, bit in enumerate(table.bits)
    )
    # A table that adds 0 throughout keeps one column, so that other entries can be loaded.
    columns = tuple(
        Column(s, tuple((table.entries[:, s].astype(int) + excess).tolist()))
        for s in table.held or (0,)
    )
    return TableStep(index, table.bits, bits, width, columns)


def _levels(members: list[list[int]]) -> tuple[Level, ...]:
    """Compute the levels that add the fields of each sum into that of its first table."""
    levels: list[Level] = []
    step, longest = 1, max(map(len, members))
    while step < longest:
        pairs = tuple(
            (of[at], of[at + step], i)
            for i, of in enumerate(members)
            for at in range(0, len(of) - step, 2 * step)
        )
        levels.append(Level(len(levels) + 1, pairs))
        step *= 2
    return tuple(levels)


def table_operations(network: TablesPipeline) -> int:
    """Count the statements of a program: bits of indices, and additions."""
    index_bits = sum(len(step.inputs) for step in network.tables)
    return index_bits + sum(len(step.columns) for step in network.tables)
