# SPDX-License-Identifier: Apache-2.0
"""The scores of a graph in numpy: the reference of what targets write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.model.bits import Words, checked_words, pack, popcounts, unpack
from n3ic.model.graph.arithmetic import Arithmetic, Integers
from n3ic.model.graph.operations import (
    Choose,
    Constant,
    Graph,
    Lookup,
    Offset,
    Operation,
    Popcount,
    Scale,
    Select,
    Threshold,
    applied,
    operands,
)
from n3ic.model.graph.popcounts import popcount_rows

_VALUES = 1 << 21  # values that a block holds at once: 16 MiB
_MOST_ROWS, _LEAST_ROWS = 4096, 64


def scores(graph: Graph, words: ArrayLike) -> NDArray[np.int32]:
    """Compute the scores of packed inputs: int32 array of shape ``(rows, classes)``.

    Args:
        graph: the operations.
        words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.

    Raises:
        ModelError: the inputs are not packed inputs of the graph.
    """
    packed = checked_words(words, graph.input.n_bits, "packed inputs")
    plan = _plan(graph)
    rows = int(np.clip(_VALUES // plan.columns, _LEAST_ROWS, _MOST_ROWS))
    out = np.empty((len(packed), len(graph.scores)), dtype=np.int32)
    at = plan.column[list(graph.scores)]
    for start in range(0, len(packed), rows):
        part = slice(start, start + rows)
        out[part] = _values(graph, plan, packed[part])[at].T
    return out


@dataclass(frozen=True, eq=False)
class _Popcounts:
    """Popcounts of the same bits: of those that any of them lists.

    Attributes:
        bits: the input bits.
        values: columns of the values, which follow them.
        weights: packed weights, of shape ``(steps, words)``, padded with 1.
        mask: packed mask, of the same shape; None if every bit counts.
    """

    bits: Integers
    values: Integers
    weights: Words
    mask: Words | None

    @classmethod
    def of(cls, steps: Sequence[Popcount], column: Integers) -> _Popcounts:
        """Pack popcounts, whose values lie in some columns."""
        rows = popcount_rows(steps)
        bits, values = (np.array(each, dtype=np.int64) for each in (rows.bits, rows.values))
        mask = None if rows.mask.all() else pack(rows.mask)
        # Bits that do not count have the weight 0; pad bits are 1.
        return cls(bits, column[values], pack(rows.weights, pad=True), mask)

    def computed(self, bits: NDArray[np.bool_], values: Integers, words: Words) -> Integers:
        """The popcounts of a block of rows, of shape ``(steps, rows)``.

        Args:
            bits: the input bits, of shape ``(bits, rows)``.
            values: the values that are known, of shape ``(columns, rows)``.
            words: the packed input bits, of shape ``(rows, words)``.
        """
        if len(self.values) or len(self.bits) != len(bits) or (np.diff(self.bits) < 0).any():
            words = pack(np.concatenate([bits[self.bits], values[self.values] > 0]).T)
        return popcounts(words, self.weights, self.mask).T.astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Plan:
    """The order in which a block's values are computed.

    Choices are not values: from each choice that another operation or a score reads, a row descends
    to the operation whose value it chooses. Constants that only such descents reach have no column.

    Attributes:
        columns: number of values of a row.
        column: index of each step's value; -1 for a step without one.
        groups: steps that are computed together, in order.
        bit: input bit that each step's choice reads; 0 for other steps.
        child: for each step twice, where a row goes: if the bit is 0 and if it is 1. Steps that are
            no choices lead to themselves.
        drops: for each step, the most choices on a path down from it, itself included.
        whole: choices that lead to constants only.
        constant: the value of each constant; 0 for other steps.
        counted: for each group of popcounts, under its first step, what it counts.
        selected: for each group of look-ups by bits, under its first step, their bits of shape
            ``(steps, bits)``, and where the entries of each begin, and all entries.
    """

    columns: int
    column: NDArray[np.int64]
    groups: tuple[tuple[int, ...], ...]
    bit: NDArray[np.int64]
    child: NDArray[np.int64]
    drops: tuple[int, ...]
    whole: frozenset[int]
    constant: NDArray[np.int64]
    selected: Mapping[int, tuple[Integers, Integers, Integers]]
    counted: Mapping[int, _Popcounts]

    @classmethod
    def of(cls, graph: Graph) -> _Plan:
        """Order the steps of a graph."""
        n = len(graph.steps)
        level, drops = [0] * n, [0] * n
        groups: dict[tuple[int, bool, str], list[int]] = defaultdict(list)
        column, bit = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
        constant, child = np.zeros(n, dtype=np.int64), np.arange(n, dtype=np.int64).repeat(2)
        whole: set[int] = set()
        for i, step in enumerate(graph.steps):
            below = operands(step)
            level[i] = max((level[k] for k in below), default=-1) + (not isinstance(step, Choose))
            if isinstance(step, Constant):
                constant[i] = step.value
            if isinstance(step, Choose):
                drops[i] = 1 + max(drops[k] for k in below)
                bit[i], child[2 * i : 2 * i + 2] = step.bit, below
                if all(k in whole or isinstance(graph.steps[k], Constant) for k in below):
                    whole.add(i)
        # A row that descends from another choice reads the value where it ends from its column.
        mixed = {i for i, _ in graph.places(Choose)} - whole
        for i in reversed(range(n)):
            if i in mixed and isinstance(graph.steps[i], Choose):
                mixed.update(operands(graph.steps[i]))
        scores, count = {*graph.scores}, 0
        for i, step in enumerate(graph.steps):
            passed = isinstance(step, Choose) or (isinstance(step, Constant) and i not in mixed)
            readers = (graph.steps[k] for k in graph.readers[i])
            if passed and i not in scores and all(isinstance(k, Choose) for k in readers):
                continue
            column[i] = count
            count += 1
            kind = f"{type(step)} {len(step.bits) if isinstance(step, Select) else i in whole}"
            groups[level[i], isinstance(step, Choose), kind].append(i)
        ordered = tuple(tuple(groups[key]) for key in sorted(groups))
        selected = {g[0]: _joined([s for s in (graph.steps[i] for i in g) if isinstance(s, Select)])
                    for g in ordered if isinstance(graph.steps[g[0]], Select)}  # fmt: skip
        counted = {
            group[0]: _Popcounts.of(
                [s for s in (graph.steps[i] for i in group) if isinstance(s, Popcount)], column
            )
            for group in ordered if isinstance(graph.steps[group[0]], Popcount)
        }  # fmt: skip
        return cls(
            count, column, ordered, bit, child, tuple(drops), frozenset(whole), constant, selected,
            counted,
        )  # fmt: skip


def _joined(steps: Sequence[Select]) -> tuple[Integers, Integers, Integers]:
    """The bits, the starts and the entries of look-ups of equally many bits."""
    bits = np.array([step.bits for step in steps], dtype=np.int64)
    entries = np.array([step.table for step in steps], dtype=np.int64)
    return bits, np.arange(len(steps)) << bits.shape[1], entries.reshape(-1)


@lru_cache(maxsize=4)  # rows often come one at a time
def _plan(graph: Graph) -> _Plan:
    return _Plan.of(graph)


def _values(graph: Graph, plan: _Plan, words: NDArray[np.uint32]) -> Integers:
    """The values of a block of rows, of shape ``(columns, rows)``."""
    bits = np.ascontiguousarray(unpack(words, graph.input.n_bits).T)
    out = np.empty((plan.columns, len(words)), dtype=np.int64)
    for group in plan.groups:
        steps = [graph.steps[i] for i in group]
        if isinstance(steps[0], Choose):
            values = _chosen(plan, group, bits, out)
        elif isinstance(steps[0], Select):
            values = _selected(*plan.selected[group[0]], bits)
        elif isinstance(steps[0], Popcount):
            values = plan.counted[group[0]].computed(bits, out, words)
        elif isinstance(steps[0], Constant | Lookup):
            values = _leaves(graph, steps, bits)
        else:
            values = _computed(graph.arithmetic, plan, steps, out)
        out[plan.column[list(group)]] = values
    return out


def _chosen(
    plan: _Plan, group: Sequence[int], bits: NDArray[np.bool_], values: Integers
) -> Integers:
    rows = np.arange(bits.shape[1])
    first = plan.bit * len(rows)  # of each step, where its bit's rows begin
    flat = bits.ravel().astype(np.int64)
    at = np.repeat(np.array(group, dtype=np.int64)[:, None], len(rows), axis=1)
    for _ in range(max(plan.drops[i] for i in group)):
        at = plan.child.take(2 * at + flat.take(first.take(at) + rows))
    if group[0] in plan.whole:
        return plan.constant.take(at)
    return np.asarray(values[plan.column[at], rows])


def _selected(
    of: Integers, starts: Integers, entries: Integers, bits: NDArray[np.bool_]
) -> Integers:
    index = np.zeros((len(of), bits.shape[1]), dtype=np.uint8)
    for j in range(of.shape[1]):
        index |= bits.view(np.uint8)[of[:, j]] << np.uint8(j)
    return entries.take(starts[:, None] + index)


def _leaves(graph: Graph, steps: Sequence[Operation], bits: NDArray[np.bool_]) -> Integers:
    out = np.empty((len(steps), bits.shape[1]), dtype=np.int64)
    bins: dict[int, NDArray[np.int64]] = {}
    for to, step in zip(out, steps, strict=True):
        if isinstance(step, Constant):
            to[:] = step.value
        elif isinstance(step, Lookup):
            if step.field not in bins:
                start = graph.input.offsets[step.field]
                width = graph.input.fields[step.field].width
                bins[step.field] = bits[start : start + width].sum(axis=0, dtype=np.int64)
            to[:] = np.array(step.table, dtype=np.int64)[bins[step.field]]
    return out


def _computed(
    arithmetic: Arithmetic | None, plan: _Plan, steps: Sequence[Operation], values: Integers
) -> Integers:
    read = zip(*(operands(step) for step in steps), strict=True)
    parts = [values[plan.column[list(each)]] for each in read]
    if isinstance(steps[0], Threshold):
        limits = np.array([s.limit for s in steps if isinstance(s, Threshold)], dtype=np.int64)
        return np.asarray(parts[0] >= limits[:, None], dtype=np.int64)
    if isinstance(steps[0], Offset | Scale):
        by = np.array([s.by for s in steps if isinstance(s, Offset | Scale)], dtype=np.int64)
        by = by[:, None]
        return np.asarray(parts[0] + by if isinstance(steps[0], Offset) else parts[0] * by)
    return applied(steps[0], parts, arithmetic)
