# SPDX-License-Identifier: Apache-2.0
"""Compiles a sum-product network to operations of at most two operands.

Exporters write these operations. They give exactly the scores of the network's nodes. The
compilation simplifies the network without changing a score:

- With logarithms, adding a constant to a product equals adding it to one factor, and adding it to a
  sum equals adding it to every term. Thus weights and biases move down into the leaves' tables.
- Operations that depend on one feature become a table over its bins.
- Log-add drops an operand that is always too small to change the result.
- Equal operations are made once, and operations that no score needs are dropped.
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
    """The sum of two values."""

    a: int
    b: int


@dataclass(frozen=True)
class Offset:
    """The sum of a value and a constant."""

    a: int
    by: int


@dataclass(frozen=True)
class LogAdd:
    """The larger of two values plus the log-add table's entry for their difference."""

    a: int
    b: int


@dataclass(frozen=True)
class Times:
    """The product of two values, rounded to the arithmetic's step."""

    a: int
    b: int


@dataclass(frozen=True)
class Scale:
    """The exact product of a value and a constant."""

    a: int
    by: int


@dataclass(frozen=True)
class Round:
    """An exact product, rounded to the arithmetic's step."""

    a: int


Operation = Constant | Lookup | Add | Offset | LogAdd | Times | Scale | Round
_Values = NDArray[np.int64]


def operands(operation: Operation) -> tuple[int, ...]:
    """Indices of the operations that an operation reads."""
    if isinstance(operation, Constant | Lookup):
        return ()
    if isinstance(operation, Offset | Scale | Round):
        return (operation.a,)
    return (operation.a, operation.b)


@dataclass(frozen=True, eq=False)
class Operations:
    """The operations of a network.

    Attributes:
        model: the network.
        steps: the operations; operands come before the operations that read them.
        bounds: least and largest value of each operation, over all inputs.
        scores: for each class, the index of the operation that gives its score.
    """

    model: SpnModel
    steps: tuple[Operation, ...]
    bounds: tuple[tuple[int, int], ...]
    scores: tuple[int, ...]

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The readers of each operation, in order; one that reads it twice is listed twice."""
        reader_steps: list[list[int]] = [[] for _ in self.steps]
        for i, step in enumerate(self.steps):
            for operand in operands(step):
                reader_steps[operand].append(i)
        return tuple(map(tuple, reader_steps))

    def count(self, kind: type[Operation]) -> int:
        """Count the operations of a kind."""
        return sum(isinstance(step, kind) for step in self.steps)


def operations(model: SpnModel) -> Operations:
    """Compile a network to operations; deterministic."""
    builder = _Builder(model)
    log = isinstance(model.arithmetic, LogArithmetic)
    scores = _log_scores(builder) if log else _linear_scores(builder)
    return _without_unread(model, builder.steps, builder.bounds, scores)


def _apply(model: SpnModel, step: Operation, values: Sequence[_Values]) -> _Values:
    """Compute an operation from the values that it reads."""
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
    """Makes operations; equal operations are made once."""

    def __init__(self, model: SpnModel) -> None:
        self.model = model
        self.steps: list[Operation] = []
        self.bounds: list[tuple[int, int]] = []
        self._made: dict[Operation, int] = {}
        self._depth: list[int] = []
        arithmetic = model.arithmetic
        self._table = arithmetic.table if isinstance(arithmetic, LogArithmetic) else np.array([0])
        # If the table falls by at most 1 per step, log-add never falls as an operand grows.
        falls = np.diff(self._table, append=0)
        self._monotone = bool((falls >= -1).all())

    def lookup(self, field: int, table: Sequence[int]) -> int:
        """Make a look-up, or a constant if all entries are equal."""
        entries = tuple(int(entry) for entry in table)
        if min(entries) == max(entries):
            return self._make(Constant(entries[0]))
        return self._make(Lookup(field, entries))

    def constant(self, value: int) -> int:
        return self._make(Constant(int(value)))

    def offset(self, a: int, by: int) -> int:
        step = self.steps[a]
        if isinstance(step, Offset):  # one offset instead of two
            return self.offset(step.a, step.by + int(by))
        return self._make(Offset(a, int(by))) if by else a

    def add(self, a: int, b: int) -> int:
        for one, other in ((a, b), (b, a)):
            step = self.steps[one]
            if isinstance(step, Constant):
                return self.offset(other, step.value)
        return self._make(Add(min(a, b), max(a, b)))  # ordered, so that a + b equals b + a

    def log_add(self, a: int, b: int) -> int:
        reach = len(self._table)
        for one, other in ((a, b), (b, a)):
            # At this distance and beyond, the table adds 0 for every input.
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
        """Make the weighted sum of operands, rounded once; terms of weight 0 are left out."""
        nonzero = [(a, weight) for a, weight in terms if weight]
        if not nonzero:
            return self.constant(0)
        # A weight of 1 scales by 2^fraction and rounding divides by it: the operand itself.
        if len(nonzero) == 1 and nonzero[0][1] == self.model.arithmetic.one:
            return nonzero[0][0]
        scaled = [self._make(Scale(a, weight)) for a, weight in nonzero]
        return self._make(Round(self.total(scaled)))

    def total(self, values: Sequence[int]) -> int:
        """Make the exact sum of values: first those of one field, then those computed earliest."""
        fields: dict[int, list[int]] = {}
        rest: list[int] = []
        for value in values:
            step = self.steps[value]
            if isinstance(step, Lookup):
                fields.setdefault(step.field, []).append(value)
            else:
                rest.append(value)
        rest += [pairwise_reduce(of, self.add) for of in fields.values()]
        # Shallow values first (as in Huffman's tree), which keeps the depth of the sum small. The
        # second number breaks ties in a fixed order.
        waiting = [(self._depth[value], i, value) for i, value in enumerate(rest)]
        heapify(waiting)
        while len(waiting) > 1:
            one, other = heappop(waiting), heappop(waiting)
            partial_sum = self.add(one[2], other[2])
            heappush(
                waiting, (self._depth[partial_sum], len(self.steps) + partial_sum, partial_sum)
            )
        return waiting[0][2]

    def _make(self, step: Operation) -> int:
        step = self._folded(step)
        if step not in self._made:
            self._made[step] = len(self.steps)
            self.bounds.append(self._bounds_of(step))
            below = [self._depth[i] for i in operands(step)]
            # Pipeline stages, roughly: a log-add or a multiplier is as deep as four adders.
            cost = 0 if isinstance(step, Constant) else 4 if isinstance(step, LogAdd | Times) else 1
            self._depth.append(cost + max(below, default=0))
            self.steps.append(step)
        return self._made[step]

    def _folded(self, step: Operation) -> Operation:
        """Replace an operation on a single feature by a table or a constant."""
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
        if min(table) == max(table):
            return Constant(table[0])
        return Lookup(lookups[0].field, table)

    def _bounds_of(self, step: Operation) -> tuple[int, int]:
        if isinstance(step, Constant):
            return step.value, step.value
        if isinstance(step, Lookup):
            return min(step.table), max(step.table)
        operand_bounds = [self.bounds[i] for i in operands(step)]
        # Operations never fall as an operand grows, so bounds go to bounds.
        low, high = (
            _apply(self.model, step, [np.array([b[k]]) for b in operand_bounds]) for k in (0, 1)
        )
        if isinstance(step, LogAdd) and not self._monotone:
            high = np.array([max(b[1] for b in operand_bounds) + int(self._table[0])])
            low = np.array([max(b[0] for b in operand_bounds)])
        return int(low[0]), int(high[0])


def _log_scores(builder: _Builder) -> list[int]:
    """Make the scores in logarithms: move constants down to the leaves, then compute upwards."""
    model = builder.model
    references = Counter(root for root in model.roots if root != CONSTANT)
    for i in reversed(range(len(model.nodes))):
        node = model.nodes[i]
        if i in references and not isinstance(node, Leaf):
            references.update(node.children)
    # A constant may move into a node that one parent reads; others would see the change too.
    own = dict.fromkeys(references, 0)
    for root, bias in zip(model.roots, model.bias, strict=True):
        if references[root] == 1:  # never true of CONSTANT
            own[root] = int(bias)
    edges: dict[int, list[int]] = {}
    for i in reversed(range(len(model.nodes))):
        node = model.nodes[i]
        if i not in references or isinstance(node, Leaf):
            continue
        if isinstance(node, Sum):
            offsets = [int(weight) + own[i] for weight in node.weights]
        else:
            # The factor that takes the constant at no cost: a table, or one without other readers.
            free = [references[c] == 1 or isinstance(model.nodes[c], Leaf) for c in node.children]
            offsets = [0] * len(node.children)
            offsets[free.index(True) if any(free) else 0] = own[i]
        edges[i] = [
            0 if references[c] == 1 else by for c, by in zip(node.children, offsets, strict=True)
        ]
        for child, by in zip(node.children, offsets, strict=True):
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
    """Make the scores in fixed point, without moving constants: products are rounded."""
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
    """Keep the operations that scores need, in order."""
    needed = set(scores)
    for i in reversed(range(len(steps))):
        if i in needed:
            needed.update(operands(steps[i]))
    order = sorted(needed)
    place = {old: new for new, old in enumerate(order)}
    return Operations(
        model,
        tuple(_moved(steps[i], place.__getitem__) for i in order),
        tuple(bounds[i] for i in order),
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
