# SPDX-License-Identifier: Apache-2.0
"""Finds look-up tables in a graph: scores that are sums of look-ups by bits and constants.

Targets have a kernel for such graphs, whichever family gives them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.model.classifier import Classifier
from n3ic.model.graph.arithmetic import Integers
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import Add, Constant, Graph, Offset, Select
from n3ic.model.inputs import InputSpec

MAX_TABLES = 4096
MAX_ENTRY_BITS = 8
MAX_BIAS = 1 << 29  # margins fit 32 bits with any entries


@dataclass(frozen=True, eq=False)
class BitTable:
    """A table of integers for each sum.

    Attributes:
        bits: the input bits that address it, the least significant first.
        entries: int64 array of shape ``(2 ** len(bits), sums)``; 0 for sums that it adds nothing
            to.
    """

    bits: tuple[int, ...]
    entries: Integers

    @property
    def held(self) -> tuple[int, ...]:
        """The sums to which it adds anything but 0."""
        return tuple(np.flatnonzero(self.entries.any(axis=0)).tolist())

    @property
    def width(self) -> int:
        """Bits of an entry in two's complement, 1 or more."""
        low, high = int(self.entries.min()), int(self.entries.max())
        return 1 + max(high, -1 - low, 0).bit_length()


@dataclass(frozen=True, eq=False)
class BitTables:
    """Sums of a bias and one entry of each table.

    Attributes:
        tables: the tables, one or more.
        bias: int64 array of shape ``(sums,)``. There is one sum for each class; or one for two
            classes if the first scores 0.
    """

    tables: tuple[BitTable, ...]
    bias: Integers

    @property
    def width(self) -> int:
        """Bits that hold each entry of each table."""
        return max(table.width for table in self.tables)

    @cached_property
    def sum_bounds(self) -> Integers:
        """Least and largest value of each sum: int64 array of shape ``(2, sums)``."""
        low = sum(table.entries.min(axis=0) for table in self.tables)
        high = sum(table.entries.max(axis=0) for table in self.tables)
        return np.array([self.bias + low, self.bias + high])

    @property
    def beyond(self) -> str:
        """What the kernels of targets do not take, in words; empty if nothing."""
        half = 1 << (MAX_ENTRY_BITS - 1)
        low = min(int(table.entries.min()) for table in self.tables)
        high = max(int(table.entries.max()) for table in self.tables)
        if low < -half or high >= half:
            return f"entries of {low:,} to {high:,} in look-ups by bits, not {-half} to {half - 1}"
        if len(self.tables) > MAX_TABLES:
            return f"{len(self.tables):,} look-ups by bits are added, not up to {MAX_TABLES:,}"
        if (most := int(np.abs(self.bias).max())) > MAX_BIAS:
            return f"a constant of {most:,} is added to look-ups by bits, not up to 2^29"
        return ""


@lru_cache(maxsize=4)  # an export asks for the same tables several times
def bit_tables(graph: Graph) -> BitTables | None:
    """The look-up tables that a graph adds up; None if its scores are other values.

    Look-ups by the same bits that follow each other, for ascending sums, are one table. The tables
    have the order of their look-ups in the graph.

    Args:
        graph: the operations of a model.
    """
    scores = graph.scores
    if len(scores) == 2 and graph.steps[scores[0]] == Constant(0):
        scores = scores[1:]
    sums = [_terms(graph, score) for score in scores]
    terms = [each for each in sums if each is not None]
    if len(terms) < len(sums) or not any(added for added, _ in terms):
        return None
    columns: list[tuple[tuple[int, ...], dict[int, Integers]]] = []
    for i, step in graph.places(Select):
        left = Counter({s: added[i] for s, (added, _) in enumerate(terms) if added[i]})
        while left:  # more than once if a sum adds the same look-up several times
            own = dict.fromkeys(left, np.array(step.table, dtype=np.int64))
            if columns and columns[-1][0] == step.bits and min(own) > max(columns[-1][1]):
                columns[-1][1].update(own)
            else:
                columns.append((step.bits, own))
            left -= Counter([*own])
    tables = tuple(_table(bits, own, len(terms)) for bits, own in columns)
    return BitTables(tables, np.array([bias for _, bias in terms], dtype=np.int64))


def added_tables(
    spec: InputSpec,
    tables: Iterable[tuple[Sequence[int], NDArray[np.integer]]],
    bias: ArrayLike,
) -> Graph:
    """The graph that adds up look-up tables, in which :func:`bit_tables` finds them again.

    A table has a look-up for each sum to which it adds. One that adds 0 throughout keeps one, for
    the first sum, and all read all bits: a device may load other entries of that shape.

    Args:
        spec: the input.
        tables: the input bits of each table, the least significant first, and its entries of shape
            ``(2 ** bits, sums)``.
        bias: what is added to each sum, of shape ``(sums,)``; of one sum, two classes score 0 and
            that sum.

    Raises:
        ModelError: a table reads what the input lacks, or a score or a margin exceeds 32 bits.
    """
    builder, biases = GraphBuilder(spec), np.asarray(bias).tolist()
    sums: list[list[int]] = [[] for _ in biases]
    for bits, entries in tables:
        for s in np.flatnonzero(entries.any(axis=0)).tolist() or [0]:
            sums[s].append(builder.select(bits, entries[:, s].tolist(), shaped=True))
    scores = [builder.offset(builder.total(of), by) for of, by in zip(sums, biases, strict=True)]
    return builder.build(scores if len(scores) > 1 else [builder.constant(0), *scores])


def entry_widths(model: Classifier, tables: BitTables) -> tuple[int, ...]:
    """The bits of an entry of each table.

    A model may state them, so that a device may load other entries of that width; if it does not
    state them for these tables, they are as many as the entries need.

    Args:
        model: the model.
        tables: the look-up tables that its graph adds up.
    """
    own, stated = tuple(t.width for t in tables.tables), model.entry_widths
    holds = len(stated) == len(own) and all(a >= b for a, b in zip(stated, own, strict=True))
    return stated if holds else own


def _table(bits: tuple[int, ...], columns: dict[int, Integers], sums: int) -> BitTable:
    entries = np.zeros((1 << len(bits), sums), dtype=np.int64)
    for s, column in columns.items():
        entries[:, s] = column
    return BitTable(bits, entries)


def _terms(graph: Graph, score: int) -> tuple[Counter[int], int] | None:
    """How often a score adds each look-up, and the sum of its constants; None if it is no sum."""
    count, bias = Counter({score: 1}), 0
    added: Counter[int] = Counter()
    for i in reversed(range(score + 1)):
        times, step = count.pop(i, 0), graph.steps[i]
        if not times:
            continue
        if isinstance(step, Constant):
            bias += times * step.value
        elif isinstance(step, Select):
            added[i] = times
        elif isinstance(step, Add):
            count[step.a] += times
            count[step.b] += times
        elif isinstance(step, Offset):
            count[step.a] += times
            bias += times * step.by
        else:
            return None
        if times > MAX_TABLES:  # sums of sums of themselves
            return None
    return added, bias
