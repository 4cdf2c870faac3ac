# SPDX-License-Identifier: Apache-2.0
"""Look-up tables for machines that add unsigned numbers in a tree.

Entries are stored with an excess of ``2 ** (width - 1)``: they are never negative, so no sign is
extended. A sum of a model is the sum of the stored entries plus an offset: its bias, less the
excesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from n3ic.model.graph.bit_tables import BitTable, BitTables


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
class StoredTable:
    """One look-up table.

    Attributes:
        index: its number in the model.
        inputs: the input bits that address it, the least significant first.
        width: bits of an entry.
        columns: its entries, for the sums that it adds to, one or more.
    """

    index: int
    inputs: tuple[int, ...]
    width: int
    columns: tuple[Column, ...]

    @property
    def size(self) -> int:
        """Number of indices."""
        return 1 << len(self.inputs)

    @property
    def half_bits(self) -> int:
        """Bits of half of the entries for one sum."""
        return self.width * self.size // 2


@dataclass(frozen=True)
class Total:
    """The last step of a sum.

    Attributes:
        score: the class whose score it is.
        root: the table in whose place the tree leaves its result; None if no table adds to it.
        offset: what is added to it.
    """

    score: int
    root: int | None
    offset: int


@dataclass(frozen=True)
class Level:
    """One level of the tree: triples (table, other table, sum); the other is added to the first."""

    index: int
    pairs: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class StoredTables:
    """A model as tables, a tree and offsets.

    Attributes:
        tables: its look-up tables.
        levels: levels of the tree, in order.
        totals: the last step of each sum.
        sum_bits: bits that hold any sum of stored entries.
    """

    tables: tuple[StoredTable, ...]
    levels: tuple[Level, ...]
    totals: tuple[Total, ...]
    sum_bits: int

    @property
    def entry_bits(self) -> int:
        """Bits of all entries."""
        return sum(len(t.columns) * t.size * t.width for t in self.tables)

    @property
    def additions(self) -> int:
        """Number of additions: one per column, of which a sum's last adds the offset."""
        return sum(len(t.columns) for t in self.tables)


def stored(added: BitTables, widths: Sequence[int], classes: int) -> StoredTables:
    """Convert look-up tables to stored tables.

    Args:
        added: the tables and biases.
        widths: bits of an entry of each table.
        classes: number of classes.
    """
    pairs = zip(added.tables, widths, strict=True)
    tables = tuple(_table(i, table, width) for i, (table, width) in enumerate(pairs))
    members = [
        [t.index for t in tables if any(c.sum == s for c in t.columns)]
        for s in range(len(added.bias))
    ]
    first = classes - len(added.bias)  # two classes have one sum, that of class 1
    totals = tuple(
        Total(
            first + s,
            of[0] if of else None,
            int(added.bias[s]) - sum(1 << (tables[t].width - 1) for t in of),
        )
        for s, of in enumerate(members)
    )
    most = sum((1 << t.width) - 1 for t in tables)
    return StoredTables(tables, levels_of(members), totals, most.bit_length())


def _table(index: int, table: BitTable, width: int) -> StoredTable:
    entries = table.entries.astype(int) + (1 << (width - 1))
    # A table that adds 0 throughout keeps one column, so that other entries can be loaded.
    columns = tuple(Column(s, tuple(entries[:, s].tolist())) for s in table.held or (0,))
    return StoredTable(index, table.bits, width, columns)


def levels_of(members: Sequence[Sequence[int]]) -> tuple[Level, ...]:
    """Pair the tables of each sum, level by level; its first table holds the sum at the end."""
    levels: list[Level] = []
    step, longest = 1, max(map(len, members), default=0)
    while step < longest:
        pairs = tuple(
            (of[at], of[at + step], s)
            for s, of in enumerate(members)
            for at in range(0, len(of) - step, 2 * step)
        )
        levels.append(Level(len(levels) + 1, pairs))
        step *= 2
    return tuple(levels)
