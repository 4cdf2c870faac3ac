# SPDX-License-Identifier: Apache-2.0
"""Makes a graph of integer operations in its normal form.

- Operations on constants are constants, and those that depend on one field are a table over its
  bins.
- A look-up by bits has only bits that change an entry, unless its shape is kept.
- A popcount has only bits that count and may differ, in ascending order, unless its shape is kept.
- Equal operations are made once; operations that no score needs are left out.
- A choice whose branches are equal is its branch. A branch leaves out the choices that the choices
  above it decide: those of the same bit, and of cuts of the same field below or above it.
- Log-add drops an operand that is always too small to change the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import ArrayLike

from n3ic.errors import ModelError
from n3ic.model.bits import Bits
from n3ic.model.graph.arithmetic import Arithmetic, FixedPoint, Logarithms, pairwise_reduce
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
    applied,
    bounds_of,
    check_reads,
    deciding,
    moved,
    operands,
)
from n3ic.model.inputs import InputSpec

_Range = tuple[int, int]  # the least and largest number of a field's bits that may be set


class GraphBuilder:
    """Collects operations; each method gives the index of a value, which other methods take.

    Args:
        spec: the input whose bits and bins operations read.
        arithmetic: what log-adds, products and roundings depend on; None if there are none.
    """

    def __init__(self, spec: InputSpec, arithmetic: Arithmetic | None = None) -> None:
        self.input = spec
        self.arithmetic = arithmetic
        self.steps: list[Operation] = []
        self.bounds: list[tuple[int, int]] = []
        self._made: dict[Operation, int] = {}
        self._depth: list[int] = []
        # Of each input bit, its group and its place there. In a group, a set bit sets those below.
        self._groups: list[tuple[int, int]] = []
        for at, field in enumerate(spec.fields):
            ordered = field.kind == "thermometer"
            first = len(self._groups) + len(spec.fields)
            self._groups += [(at, k) if ordered else (first + k, 0) for k in range(field.width)]
        self._chosen: list[frozenset[int]] = []  # of each value, the groups that its choices read
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}  # equal ones are one object

    def constant(self, value: int) -> int:
        """An integer."""
        return self._make(Constant(int(value)))

    def lookup(self, field: int, table: Sequence[int]) -> int:
        """The entry of a table for the bin of a field.

        Args:
            field: index of a thermometer field.
            table: an entry for each bin, one more than the field has cuts.

        Raises:
            ModelError: the input has no such field.
        """
        entries = tuple(int(entry) for entry in table)
        if min(entries) == max(entries):
            return self.constant(entries[0])
        return self._make(Lookup(int(field), entries))

    def select(self, bits: Sequence[int], table: Sequence[int], *, shaped: bool = False) -> int:
        """The entry of a table for the number that some input bits make.

        Args:
            bits: 1 to ``MAX_SELECT_BITS`` different input bits, the least significant first.
            table: an entry for each number.
            shaped: whether a look-up of its own is made by all these bits, even if fewer decide the
                entry or an equal one was made: a device may load other entries of this shape.

        Raises:
            ModelError: the input has no such bits, or the table has another size.
        """
        step = Select(tuple(int(bit) for bit in bits), tuple(int(entry) for entry in table))
        check_reads(self.input, step)
        if shaped:
            self._made.pop(step, None)
            return self._make(step)
        step = deciding(step)
        return self._make(step) if step.bits else self.constant(step.table[0])

    def popcount(
        self,
        bits: Sequence[int],
        values: Sequence[int],
        weights: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        shaped: bool = False,
    ) -> int:
        """How many of some bits agree with weights.

        Args:
            bits: different input bits.
            values: values of 0 or 1, which are bits too.
            weights: 0 or 1 for each of these, input bits first.
            mask: whether each counts, of the weights' shape; None if all do.
            shaped: whether it keeps bits that do not count or that are constant: a device may load
                other weights of this shape.

        Raises:
            ModelError: there are no bits, the input lacks one, a value may be neither 0 nor 1, or
                weights and mask have another size or other numbers.
        """
        own, count = np.asarray(weights), len(bits) + len(values)
        counts = np.ones(count, np.bool_) if mask is None else np.asarray(mask)
        if own.shape != (count,) or counts.shape != (count,):
            raise ModelError(
                f"a popcount of {count} bits has weights of shape {own.shape}, and a mask of shape "
                f"{counts.shape}"
            )
        if not all(((each == 0) | (each == 1)).all() for each in (own, counts)):
            raise ModelError("weights of a popcount are 0 or 1; a weight of -1 is written 0")
        own, counts = own.astype(np.bool_), counts.astype(np.bool_)
        step = self._popcount(bits, values, own, counts)
        if shaped:
            return self._make(step)
        check_reads(self.input, step)
        bounds_of(step, [self.bounds[value] for value in values], self.arithmetic)
        order = np.argsort(bits, kind="stable")
        order = order[counts[order]]
        places = np.array(bits, dtype=np.int64)[order].tolist()
        split = len(bits)
        at, of_values, known = self._varying(values, own[split:], counts[split:])
        own = np.concatenate([own[order], of_values])
        if not len(own):
            return self.constant(known)
        varying = self._popcount(places, at, own, np.ones(len(own), np.bool_))
        return self.offset(self._make(varying), known)

    def _varying(
        self, values: Sequence[int], weights: Bits, counts: Bits
    ) -> tuple[list[int], Bits, int]:
        """The values that count and vary, in order, their weights, and how many others agree."""
        known = 0
        balance: Counter[int] = Counter()  # how often a value is wanted more than its opposite
        for value, weight, counted in zip(values, weights.tolist(), counts.tolist(), strict=True):
            low, high = self.bounds[value]
            if counted and low == high:
                known += weight == low
            elif counted:
                known += balance[value] * (1 if weight else -1) < 0  # one of both agrees
                balance[value] += 1 if weight else -1
        at = [value for value in sorted(balance) for _ in range(abs(balance[value]))]
        return at, np.array([balance[value] > 0 for value in at], dtype=np.bool_), known

    def _popcount(
        self, bits: Sequence[int], values: Sequence[int], weights: Bits, counts: Bits
    ) -> Popcount:
        number, mask = (
            int.from_bytes(np.packbits(each, bitorder="little").tobytes(), "little")
            for each in (weights & counts, counts)
        )
        return Popcount(self._tuple(bits), self._tuple(values), number, mask)

    def _tuple(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Equal tuples as one object: neurons of a layer read the same bits."""
        own = numbers if isinstance(numbers, tuple) else tuple(int(n) for n in numbers)
        return self._tuples.setdefault(own, own)

    def threshold(self, a: int, limit: int, *, shaped: bool = False) -> int:
        """1 where a value reaches a limit, else 0.

        Args:
            a: the value.
            limit: what it reaches.
            shaped: whether it stays where it is constant.
        """
        step, (low, high) = self.steps[a], self.bounds[a]
        if shaped:
            return self._make(Threshold(a, int(limit)))
        if isinstance(step, Offset):
            return self.threshold(step.a, int(limit) - step.by)
        if low >= limit or high < limit:
            return self.constant(int(low >= limit))
        return a if (low, high, limit) == (0, 1, 1) else self._make(Threshold(a, int(limit)))

    def choose(self, bit: int, zero: int, one: int) -> int:
        """The value ``one`` where an input bit is 1, else the value ``zero``.

        Args:
            bit: index among the input bits.
            zero: the value where it is 0.
            one: the value where it is 1.

        Raises:
            ModelError: the input has no such bit.
        """
        check_reads(self.input, Choose(bit, zero, one))
        group, place = self._groups[bit]
        zero = self._within(zero, group, (0, place))
        one = self._within(one, group, (place + 1, len(self._groups)))
        return self._chosen_of(int(bit), zero, one)

    def _chosen_of(self, bit: int, zero: int, one: int) -> int:
        return zero if zero == one else self._make(Choose(bit, zero, one))

    def _within(self, value: int, group: int, known: _Range) -> int:
        """The value where as many bits of a group are set as is known."""
        seen: dict[tuple[int, _Range], int] = {}
        waiting = [(value, known)]  # no recursion, as trees may be deep
        while waiting:
            at, within = waiting[-1]
            step = self.steps[at]
            if not isinstance(step, Choose) or group not in self._chosen[at]:
                seen[waiting.pop()] = at
                continue
            branches = self._branches(step, group, within)
            if missing := [branch for branch in reversed(branches) if branch not in seen]:
                waiting += missing
                continue
            values = [seen[branch] for branch in branches]
            seen[waiting.pop()] = self._chosen_of(step.bit, values[0], values[-1])
        return seen[value, known]

    def _branches(self, step: Choose, group: int, known: _Range) -> list[tuple[int, _Range]]:
        """The branches that can be taken, with the number of the group's bits that may be set."""
        own, place = self._groups[step.bit]
        if own != group:
            return [(step.zero, known), (step.one, known)]
        low, high = known
        zero = [(step.zero, (low, min(place, high)))] if low <= place else []
        return zero + ([(step.one, (max(place + 1, low), high))] if place < high else [])

    def offset(self, a: int, by: int) -> int:
        """The sum of a value and a constant."""
        step = self.steps[a]
        if isinstance(step, Offset):  # one offset instead of two
            return self.offset(step.a, step.by + int(by))
        return self._make(Offset(a, int(by))) if by else a

    def add(self, a: int, b: int) -> int:
        """The sum of two values."""
        for one, other in ((a, b), (b, a)):
            step = self.steps[one]
            if isinstance(step, Constant):
                return self.offset(other, step.value)
        return self._make(Add(min(a, b), max(a, b)))  # ordered, so that a + b equals b + a

    def log_add(self, a: int, b: int) -> int:
        """The logarithm of the sum of two numbers, given theirs."""
        reach = len(self.arithmetic.table) if isinstance(self.arithmetic, Logarithms) else 0
        for one, other in ((a, b), (b, a)):
            # At this distance and beyond, the table adds 0 for every input.
            if reach and self.bounds[one][0] - self.bounds[other][1] >= reach:
                return one
        return self._make(LogAdd(min(a, b), max(a, b)))

    def times(self, a: int, b: int) -> int:
        """The product of two values, rounded to a step."""
        for one, other in ((a, b), (b, a)):
            if self.steps[one] == Constant(self._one):
                return other
            if self.bounds[one] == (0, 0):
                return self.constant(0)
        return self._make(Times(min(a, b), max(a, b)))

    def weighted(self, terms: Sequence[tuple[int, int]]) -> int:
        """The sum of values with constant weights, rounded once.

        Args:
            terms: values with their weights; those of weight 0 are left out.
        """
        nonzero = [(a, weight) for a, weight in terms if weight]
        if not nonzero:
            return self.constant(0)
        # A weight of 1 scales by 2^fraction and rounding divides by it: the operand itself.
        if len(nonzero) == 1 and nonzero[0][1] == self._one:
            return nonzero[0][0]
        scaled = [self._make(Scale(a, int(weight))) for a, weight in nonzero]
        return self._make(Round(self.total(scaled)))

    @property
    def _one(self) -> int:
        return self.arithmetic.one if isinstance(self.arithmetic, FixedPoint) else 1

    def total(self, values: Sequence[int]) -> int:
        """The exact sum of values; of none, 0.

        Tables of one field are added first, then the values that are computed earliest.
        """
        if not values:
            return self.constant(0)
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

    def build(self, scores: Sequence[int]) -> Graph:
        """The graph of the operations that scores need, in the order in which they were made.

        Args:
            scores: the value of each class's score.

        Raises:
            ModelError: a score or a margin may exceed 32 bits.
        """
        needed = set(scores)
        for i in reversed(range(len(self.steps))):
            if i in needed:
                needed.update(operands(self.steps[i]))
        order = sorted(needed)
        place = {old: new for new, old in enumerate(order)}
        return Graph(
            self.input,
            tuple(self._moved(self.steps[i], place.__getitem__) for i in order),
            tuple(place[i] for i in scores),
            self.arithmetic,
        )

    def _moved(self, step: Operation, place: Callable[[int], int]) -> Operation:
        own = moved(step, place)
        return replace(own, values=self._tuple(own.values)) if isinstance(own, Popcount) else own

    def _make(self, step: Operation) -> int:
        check_reads(self.input, step)
        step = self._folded(step)
        if step not in self._made:
            read = operands(step)
            bounds = bounds_of(step, [self.bounds[i] for i in read], self.arithmetic)
            self._made[step] = len(self.steps)
            self.bounds.append(bounds)
            # Pipeline stages, roughly: a log-add or a multiplier is as deep as four adders.
            cost = 0 if isinstance(step, Constant) else 4 if isinstance(step, LogAdd | Times) else 1
            self._depth.append(cost + max((self._depth[i] for i in read), default=0))
            self._chosen.append(
                self._chosen[read[0]] | self._chosen[read[1]] | {self._groups[step.bit][0]}
                if isinstance(step, Choose)
                else frozenset()
            )
            self.steps.append(step)
        return self._made[step]

    def _folded(self, step: Operation) -> Operation:
        """Replace an operation on a single field by a table or a constant."""
        if isinstance(step, Choose | Popcount):
            return step
        read = [self.steps[i] for i in operands(step)]
        lookups = [each for each in read if isinstance(each, Lookup)]
        known = all(isinstance(each, Lookup | Constant) for each in read)
        if not known or len({each.field for each in lookups}) > 1:
            return step
        if not read:
            return step
        bounds_of(step, [self.bounds[i] for i in operands(step)], self.arithmetic)
        bins = len(lookups[0].table) if lookups else 1
        tables = [
            np.array(each.table, dtype=np.int64)
            if isinstance(each, Lookup)
            else np.full(bins, each.value, dtype=np.int64)
            for each in read
            if isinstance(each, Lookup | Constant)
        ]
        table = tuple(int(v) for v in applied(step, tables, self.arithmetic))
        if min(table) == max(table):
            return Constant(table[0])
        return Lookup(lookups[0].field, table)
