# SPDX-License-Identifier: Apache-2.0
"""Compares two graphs by the structure of their values, whatever the order of their operations.

Sums, offsets and scalings become one form, in which equal sums are equal: a constant, one table of
each field and of each set of input bits, whose first entry is 0, and other values with their
factors. A table by bits has them in ascending order, and only those that change an entry; sums that
are equal only if tables of different bits are added up are different. Other operations are equal if
their operands are, in any order where order has no effect; bits that do not count make no
difference between popcounts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import add

import numpy as np

from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    LogAdd,
    Lookup,
    Offset,
    Operation,
    Popcount,
    Round,
    Scale,
    Select,
    Threshold,
    Times,
    deciding,
    operands,
    with_article,
)
from n3ic.model.graph.popcounts import unpacked

_Entries = tuple[int, ...]
_Read = tuple[bool, tuple[int, ...]]
"""What a table reads: whether it is input bits, and these; otherwise a field."""


def graph_difference(own: Graph, other: Graph) -> str:
    """Describe where another graph differs from a model's; empty if nowhere.

    Args:
        own: the model's graph.
        other: the graph that is read back from an artefact.
    """
    unsaid = other.arithmetic is None and not own.kinds & {LogAdd, Times, Round}
    if own.arithmetic != other.arithmetic and not unsaid:  # an artefact may not say what none needs
        return "its values stand for other numbers, or its log-add table is another one"
    if len(own.scores) != len(other.scores):
        return f"{len(other.scores)} scores, the model has {len(own.scores)}"
    values = _Values()
    wanted, read = values.scores(own), values.scores(other)
    for c, (a, b) in enumerate(zip(wanted, read, strict=True)):
        if a != b:
            there = {*values.within(read)}
            lacking = next((each for each in values.within([a]) if each not in there), None)
            text = "adds other values" if lacking is None else f"lacks {values.texts[lacking]}"
            return f"the score of class {c} {text}"
    return ""


@dataclass(frozen=True)
class _Sum:
    """A constant, a table of each field and set of bits, and other values times their factors."""

    constant: int = 0
    tables: Mapping[_Read, _Entries] = field(default_factory=dict)
    terms: Mapping[int, int] = field(default_factory=dict)

    def plus(self, other: _Sum) -> _Sum:
        """The sum of two sums."""
        tables, terms = dict(self.tables), dict(self.terms)
        for at, entries in other.tables.items():
            mine = tables.pop(at, None)
            added = entries if mine is None else tuple(map(add, mine, entries))
            if any(added):
                tables[at] = added
        for value, factor in other.terms.items():
            if added_factor := terms.pop(value, 0) + factor:
                terms[value] = added_factor
        return _Sum(self.constant + other.constant, tables, terms)

    def times(self, by: int) -> _Sum:
        """The product with a constant."""
        if not by:
            return _Sum()
        tables = {at: tuple(by * e for e in entries) for at, entries in self.tables.items()}
        return _Sum(by * self.constant, tables, {v: by * f for v, f in self.terms.items()})


class _Values:
    """Gives equal sums, and equal operations other than sums, the same number.

    Attributes:
        texts: of each operation, what it is, in words.
    """

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self._numbers: dict[Hashable, int] = {}
        self._parts: dict[int, tuple[int, ...]] = {}  # what the value of a number is made of

    def scores(self, graph: Graph) -> list[int]:
        """The number of each class's score."""
        sums: list[_Sum] = []
        for step in graph.steps:
            sums.append(self._of(step, [sums[i] for i in operands(step)], graph))
        return [self._number(sums[i]) for i in graph.scores]

    def within(self, numbers: list[int]) -> Iterator[int]:
        """The operations that values are made of, each after those that it reads."""
        seen: set[int] = set()
        waiting = [*reversed(numbers)]
        while waiting:
            at = waiting[-1]
            more = [part for part in reversed(self._parts[at]) if part not in seen]
            if more and at not in seen:
                waiting += more
                continue
            waiting.pop()
            if at not in seen and at in self.texts:
                yield at
            seen.add(at)

    def _of(self, step: Operation, read: list[_Sum], graph: Graph) -> _Sum:
        if isinstance(step, Constant):
            return _Sum(step.value)
        if isinstance(step, Lookup):
            text = f"a look-up of {len(step.table):,} entries by {_feature(graph, step.field)}"
            return self._table((False, (step.field,)), step.table, text)
        if isinstance(step, Select):
            own = _ascending(deciding(step))
            names = ", ".join(dict.fromkeys(map(graph.input.feature_of, step.bits)))
            text = f"a look-up by the bits {', '.join(map(str, own.bits))}, of {names}"
            return self._table((True, own.bits), own.table, text)
        if isinstance(step, Add):
            return read[0].plus(read[1])
        if isinstance(step, Offset):
            return read[0].plus(_Sum(step.by))
        if isinstance(step, Scale):
            return read[0].times(step.by)
        parts = [self._number(each) for each in read]
        if isinstance(step, Popcount):
            return _Sum(terms={self._popcount(step, parts): 1})
        if isinstance(step, LogAdd | Times):
            parts.sort()
        text = with_article(type(step))
        if isinstance(step, Choose):
            at = max(i for i, start in enumerate(graph.input.offsets) if start <= step.bit)
            text = f"{text} by bit {step.bit}, of {_feature(graph, at)}"
        fact = step.bit if isinstance(step, Choose) else 0
        fact = step.limit if isinstance(step, Threshold) else fact
        return _Sum(terms={self._operation((type(step), fact, *parts), tuple(parts), text): 1})

    def _popcount(self, step: Popcount, values: list[int]) -> int:
        """The number of a popcount: of the bits that count, in any order, with their weights."""
        weights, counts = (unpacked(each, step.size) for each in (step.weights, step.mask))
        key, start = [], 0
        for read in (step.bits, values):
            part = slice(start, start := start + len(read))
            own, wanted = np.array(read, dtype=np.int64)[counts[part]], weights[part][counts[part]]
            order = np.lexsort((wanted, own))
            key += [own[order].tobytes(), wanted[order].tobytes()]
        counted = zip(values, counts[len(step.bits) :].tolist(), strict=True)
        parts = tuple(dict.fromkeys(value for value, counts_there in counted if counts_there))
        text = f"a popcount of {step.counted:,} bits"
        return self._operation((Popcount, *key), parts, text)

    def _table(self, read: _Read, table: _Entries, text: str) -> _Sum:
        first, entries = table[0], tuple(entry - table[0] for entry in table)
        if not any(entries):
            return _Sum(first)
        # A number of its own, so that a difference names the table.
        self._operation(("table", read, entries), (), text)
        return _Sum(first, {read: entries})

    def _number(self, value: _Sum) -> int:
        if len(value.terms) == 1 and not value.tables and not value.constant:
            ((term, factor),) = value.terms.items()
            if factor == 1:  # an operation alone
                return term
        tables, terms = sorted(value.tables.items()), sorted(value.terms.items())
        read = [self._numbers.get(("table", at, entries)) for at, entries in tables]
        parts = (*(part for part in read if part is not None), *(term for term, _ in terms))
        return self._numbered((value.constant, tuple(tables), tuple(terms)), parts)

    def _operation(self, key: Hashable, parts: tuple[int, ...], text: str) -> int:
        number = self._numbered(key, parts)
        self.texts.setdefault(number, text)
        return number

    def _numbered(self, key: Hashable, parts: tuple[int, ...]) -> int:
        number = self._numbers.setdefault(key, len(self._numbers))
        self._parts.setdefault(number, parts)
        return number


def _ascending(step: Select) -> Select:
    """The same look-up by its bits in ascending order."""
    order = sorted(range(len(step.bits)), key=step.bits.__getitem__)
    number = np.arange(len(step.table))
    own = sum((number >> j & 1) << place for j, place in enumerate(order))
    table = np.array(step.table, dtype=object)[own] if order else step.table
    return Select(tuple(step.bits[place] for place in order), tuple(table))


def _feature(graph: Graph, at: int) -> str:
    return graph.input.fields[at].feature


class ValuesRead:
    """Values that are read back one after the other, and whether a graph has them.

    Args:
        graph: the model's graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values = _Values()
        sums: list[_Sum] = []
        for step in graph.steps:
            sums.append(self._values._of(step, [sums[i] for i in operands(step)], graph))
        self._own = [self._values._number(each) for each in sums]
        self._known = {*self._own}
        self._read: list[_Sum] = []

    def append(self, step: Operation) -> None:
        """Add an operation, whose operands are places among those that were added before."""
        self._read.append(self._sum(step))

    def known(self, step: Operation) -> bool:
        """Whether an operation on values that were added is a value of the graph."""
        return self._values._number(self._sum(step)) in self._known

    def same(self, place: int, step: int) -> bool:
        """Whether a value that was added is that of a step of the graph."""
        return self._values._number(self._read[place]) == self._own[step]

    def _sum(self, step: Operation) -> _Sum:
        return self._values._of(step, [self._read[i] for i in operands(step)], self._graph)
