# SPDX-License-Identifier: Apache-2.0
"""A sum-product network as operations of two operands, each of which is there once.

Targets are written from these: what they compute is what the network's nodes compute, value by
value at the scores. On the way, all exactly:

- in logarithms a constant that is added to a product may be added to one of its factors, and one
  that is added to a sum to all of its terms: so weights and biases sink into the leaves' tables;
- what depends on one feature alone becomes a table over its bins;
- an operand that another is always too far above to be changed by is dropped;
- equal operations are made once, and what no score needs is not made at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from n3ic.families.spn.arithmetic import LogArithmetic, pairwise_reduce
from n3ic.families.spn.network import CONSTANT, SpnModel
from n3ic.families.spn.nodes import Leaf, Product, Sum


@dataclass(frozen=True)
class Constant:
    """An integer."""

    value: int


@dataclass(frozen=True)
class Lookup:
    """The entry of a table for the bin of a field."""

    field: int
    table: tuple[int, ...]


@dataclass(frozen=True)
class Add:
    """The sum of two."""

    a: int
    b: int


@dataclass(frozen=True)
class Offset:
    """One and a constant."""

    a: int
    by: int


@dataclass(frozen=True)
class LogAdd:
    """The larger of two, and what the table of log-add says of their difference."""

    a: int
    b: int


@dataclass(frozen=True)
class Times:
    """The product of two, rounded to the arithmetic's step."""

    a: int
    b: int


@dataclass(frozen=True)
class Scale:
    """The exact product of one and a constant."""

    a: int
    by: int


@dataclass(frozen=True)
class Round:
    """An exact product, rounded to the arithmetic's step."""

    a: int


Operation = Constant | Lookup | Add | Offset | LogAdd | Times | Scale | Round
_Values = NDArray[np.int64]


def operands(operation: Operation) -> tuple[int, ...]:
    """Indices of what an operation reads."""
    if isinstance(operation, Constant | Lookup):
        return ()
    if isinstance(operation, Offset | Scale | Round):
        return (operation.a,)
    return (operation.a, operation.b)


@dataclass(frozen=True, eq=False)
class Operations:
    """What a network computes.

    Attributes:
        model: the network.
        steps: the operations, operands before what reads them.
        bounds: least and largest value of each, over all inputs.
        scores: index of the operation that gives the score of each class.
    """

    model: SpnModel
    steps: tuple[Operation, ...]
    bounds: tuple[tuple[int, int], ...]
    scores: tuple[int, ...]

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The operations that read each one, in order; one that reads it twice is there twice."""
        found: list[list[int]] = [[] for _ in self.steps]
        for i, step in enumerate(self.steps):
            for operand in operands(step):
                found[operand].append(i)
        return tuple(map(tuple, found))

    def count(self, kind: type[Operation]) -> int:
        """How many operations are of that kind."""
        return sum(isinstance(step, kind) for step in self.steps)

    def evaluate(self, bins: _Values) -> _Values:
        """Scores of bins, by the operations: int64 array of shape ``(rows, classes)``.

        Args:
            bins: int64 array of shape ``(rows, fields)``.
        """
        values: list[_Values] = []
        for step in self.steps:
            if isinstance(step, Lookup):
                values.append(np.array(step.table, dtype=np.int64)[bins[:, step.field]])
            elif isinstance(step, Constant):
                values.append(np.full(len(bins), step.value, dtype=np.int64))
            else:
                values.append(_apply(self.model, step, [values[i] for i in operands(step)]))
        return np.stack([values[i] for i in self.scores], axis=1)


def operations(model: SpnModel) -> Operations:
    """The operations of a network; the same network gives the same ones."""
    builder = _Builder(model)
    log = isinstance(model.arithmetic, LogArithmetic)
    scores = _log_scores(builder) if log else _linear_scores(builder)
    return _without_unread(model, builder.steps, builder.bounds, scores)


def _apply(model: SpnModel, step: Operation, values: Sequence[_Values]) -> _Values:
    """The values of an operation that reads others."""
    arithmetic = model.arithmetic
    if isinstance(step, Add):
        return values[0] + values[1]
    if isinstance(step, Offset):
        return values[0] + step.by
    if isinstance(step, LogAdd):
        assert isinstance(arithmetic, LogArithmetic)  # noqa: S101 - only there
        return arithmetic.add(values[0], values[1])
    if isinstance(step, Times):
        return arithmetic.product(values)
    if isinstance(step, Scale):
        return values[0] * step.by
    half = 1 << (arithmetic.fraction - 1)
    return (values[0] + half) >> arithmetic.fraction


class _Builder:
    """Makes operations, each once."""

    def __init__(self, model: SpnModel) -> None:
        self.model = model
        self.steps: list[Operation] = []
        self.bounds: list[tuple[int, int]] = []
        self._made: dict[Operation, int] = {}
        self._depth: list[int] = []
        arithmetic = model.arithmetic
        self._table = (
            arithmetic.table if isinstance(arithmetic, LogArithmetic) else np.zeros(1, np.int32)
        )
        # Where the table falls by no more than 1 a step, log-add never falls as an operand grows.
        falls = np.diff(self._table, append=0)
        self._monotone = bool((falls >= -1).all())

    def lookup(self, field: int, table: Sequence[int]) -> int:
        """A table's entry; a constant where all are equal."""
        entries = tuple(int(entry) for entry in table)
        if min(entries) == max(entries):
            return self._make(Constant(entries[0]))
        return self._make(Lookup(field, entries))

    def constant(self, value: int) -> int:
        return self._make(Constant(int(value)))

    def offset(self, a: int, by: int) -> int:
        step = self.steps[a]
        if isinstance(step, Offset):
            return self.offset(step.a, step.by + int(by))
        return self._make(Offset(a, int(by))) if by else a

    def add(self, a: int, b: int) -> int:
        for one, other in ((a, b), (b, a)):
            step = self.steps[one]
            if isinstance(step, Constant):
                return self.offset(other, step.value)
        return self._make(Add(min(a, b), max(a, b)))

    def log_add(self, a: int, b: int) -> int:
        reach = len(self._table)
        for one, other in ((a, b), (b, a)):
            if self.bounds[one][0] - self.bounds[other][1] >= reach:
                return one
        return self._make(LogAdd(min(a, b), max(a, b)))

    def times(self, a: int, b: int) -> int:
        one = Constant(self.model.arithmetic.one)
        for this, other in ((a, b), (b, a)):
            if self.steps[this] == one:
                return other
            if self.bounds[this] == (0, 0):
                return self.constant(0)
        return self._make(Times(min(a, b), max(a, b)))

    def weighted(self, terms: Sequence[tuple[int, int]]) -> int:
        """The sum of operands by weights, rounded once; weights of 0 are left out."""
        kept = [(a, weight) for a, weight in terms if weight]
        if not kept:
            return self.constant(0)
        if len(kept) == 1 and kept[0][1] == self.model.arithmetic.one:
            return kept[0][0]
        scaled = [self._make(Scale(a, weight)) for a, weight in kept]
        return self._make(Round(self.total(scaled)))

    def total(self, values: Sequence[int]) -> int:
        """The exact sum of some: those of one field first, then those that are there first."""
        fields: dict[int, list[int]] = {}
        rest: list[int] = []
        for value in values:
            step = self.steps[value]
            if isinstance(step, Lookup):
                fields.setdefault(step.field, []).append(value)
            else:
                rest.append(value)
        rest += [pairwise_reduce(of, self.add) for of in fields.values()]
        waiting = [(self._depth[value], i, value) for i, value in enumerate(rest)]
        heapify(waiting)
        while len(waiting) > 1:
            one, other = heappop(waiting), heappop(waiting)
            made = self.add(one[2], other[2])
            heappush(waiting, (self._depth[made], len(self.steps) + made, made))
        return waiting[0][2]

    def _make(self, step: Operation) -> int:
        step = self._folded(step)
        if step not in self._made:
            self._made[step] = len(self.steps)
            self.bounds.append(self._bounds_of(step))
            below = [self._depth[i] for i in operands(step)]
            cost = 0 if isinstance(step, Constant) else 4 if isinstance(step, LogAdd | Times) else 1
            self._depth.append(cost + max(below, default=0))
            self.steps.append(step)
        return self._made[step]

    def _folded(self, step: Operation) -> Operation:
        """A table or a constant instead of an operation on one feature alone."""
        read = [self.steps[i] for i in operands(step)]
        lookups = [each for each in read if isinstance(each, Lookup)]
        known = all(isinstance(each, Lookup | Constant) for each in read)
        if not read or not known or len({each.field for each in lookups}) > 1:
            return step
        bins = len(lookups[0].table) if lookups else 1
        tables = [
            np.array(each.table, dtype=np.int64)
            if isinstance(each, Lookup)
            else np.full(bins, each.value, dtype=np.int64)
            for each in read
            if isinstance(each, Lookup | Constant)
        ]
        table = tuple(int(v) for v in _apply(self.model, step, tables))
        if not lookups or min(table) == max(table):
            return Constant(table[0])
        return Lookup(lookups[0].field, table)

    def _bounds_of(self, step: Operation) -> tuple[int, int]:
        if isinstance(step, Constant):
            return step.value, step.value
        if isinstance(step, Lookup):
            return min(step.table), max(step.table)
        found = [self.bounds[i] for i in operands(step)]
        low, high = (_apply(self.model, step, [np.array([b[k]]) for b in found]) for k in (0, 1))
        if isinstance(step, LogAdd) and not self._monotone:
            high = np.array([max(b[1] for b in found) + int(self._table[0])])
            low = np.array([max(b[0] for b in found)])
        return int(low[0]), int(high[0])


def _log_scores(builder: _Builder) -> list[int]:
    """Scores in logarithms: constants are handed down to the leaves, then values up."""
    model = builder.model
    references = Counter(root for root in model.roots if root != CONSTANT)
    for i in reversed(range(len(model.nodes))):
        node = model.nodes[i]
        if i in references and not isinstance(node, Leaf):
            references.update(node.children)
    own = dict.fromkeys(references, 0)
    for root, bias in zip(model.roots, model.bias, strict=True):
        if root != CONSTANT and references[root] == 1:
            own[root] = int(bias)
    edges: dict[int, list[int]] = {}
    for i in reversed(range(len(model.nodes))):
        node = model.nodes[i]
        if i not in references or isinstance(node, Leaf):
            continue
        if isinstance(node, Sum):
            given = [int(weight) + own[i] for weight in node.weights]
        else:
            # Whoever takes it at no cost: a table, or a part that nothing else reads.
            free = [references[c] == 1 or isinstance(model.nodes[c], Leaf) for c in node.children]
            given = [0] * len(node.children)
            given[free.index(True) if any(free) else 0] = own[i]
        edges[i] = [
            0 if references[c] == 1 else by for c, by in zip(node.children, given, strict=True)
        ]
        for child, by in zip(node.children, given, strict=True):
            if references[child] == 1:
                own[child] = by
    values: dict[int, int] = {}
    for i, node in enumerate(model.nodes):
        if i not in references:
            continue
        if isinstance(node, Leaf):
            values[i] = builder.lookup(node.field, [int(entry) + own[i] for entry in node.table])
            continue
        parts = [
            builder.offset(values[c], by) for c, by in zip(node.children, edges[i], strict=True)
        ]
        values[i] = (
            builder.total(parts)
            if isinstance(node, Product)
            else pairwise_reduce(parts, builder.log_add)
        )
    return [
        builder.constant(bias)
        if root == CONSTANT
        else values[root]
        if references[root] == 1
        else builder.offset(values[root], bias)
        for root, bias in zip(model.roots, model.bias.tolist(), strict=True)
    ]


def _linear_scores(builder: _Builder) -> list[int]:
    """Scores in fixed point."""
    model = builder.model
    values: list[int] = []
    for node in model.nodes:
        if isinstance(node, Leaf):
            values.append(builder.lookup(node.field, node.table.tolist()))
        elif isinstance(node, Product):
            values.append(pairwise_reduce([values[c] for c in node.children], builder.times))
        else:
            terms = zip((values[c] for c in node.children), node.weights.tolist(), strict=True)
            values.append(builder.weighted(list(terms)))
    return [
        builder.constant(bias) if root == CONSTANT else builder.offset(values[root], bias)
        for root, bias in zip(model.roots, model.bias.tolist(), strict=True)
    ]


def _without_unread(
    model: SpnModel,
    steps: Sequence[Operation],
    bounds: Sequence[tuple[int, int]],
    scores: Sequence[int],
) -> Operations:
    """The operations that scores need, in order."""
    needed = set(scores)
    for i in reversed(range(len(steps))):
        if i in needed:
            needed.update(operands(steps[i]))
    kept = sorted(needed)
    place = {old: new for new, old in enumerate(kept)}
    return Operations(
        model,
        tuple(_moved(steps[i], place.__getitem__) for i in kept),
        tuple(bounds[i] for i in kept),
        tuple(place[i] for i in scores),
    )


def _moved(step: Operation, place: Callable[[int], int]) -> Operation:
    if isinstance(step, Constant | Lookup):
        return step
    if isinstance(step, Round):
        return Round(place(step.a))
    if isinstance(step, Offset | Scale):
        return type(step)(place(step.a), step.by)
    return type(step)(place(step.a), place(step.b))
