# SPDX-License-Identifier: Apache-2.0
"""The integer operations of a graph, and the graph: the only thing that targets are written from.

An operation names its operands by their index among the graph's steps, where operands come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from n3ic.errors import ModelError
from n3ic.model.graph.arithmetic import Arithmetic, FixedPoint, Integers, Logarithms
from n3ic.model.inputs import InputSpec


@dataclass(frozen=True)
class Constant:
    """An integer."""

    value: int


@dataclass(frozen=True)
class Lookup:
    """The entry of a table for the bin of a field: the number of its cuts that the value reaches.

    Attributes:
        field: index of a thermometer field.
        table: one entry more than the field has cuts.
    """

    field: int
    table: tuple[int, ...]


@dataclass(frozen=True)
class Select:
    """The entry of a table for the number that some input bits make.

    Attributes:
        bits: 1 to ``MAX_SELECT_BITS`` different input bits; ``bits[j]`` is bit ``j`` of the number.
        table: ``2 ** len(bits)`` entries.
    """

    bits: tuple[int, ...]
    table: tuple[int, ...]


@dataclass(frozen=True)
class Choose:
    """The value ``one`` where an input bit is 1, else the value ``zero``: a node of a tree.

    Attributes:
        bit: index among the input bits.
        zero, one: the two values.
    """

    bit: int
    zero: int
    one: int


@dataclass(frozen=True)
class Popcount:
    """How many of some bits agree with weights: ``popcount(XNOR(bits, weights) & mask)``.

    Popcounts of the same bits may share the tuples that list them.

    Attributes:
        bits: different input bits.
        values: values of 0 or 1, which are bits that follow the input bits; maybe some repeatedly.
        weights: bit ``j`` is the weight of bit ``j`` of these; 0 where it does not count.
        mask: bit ``j`` says whether bit ``j`` of these counts.
    """

    bits: tuple[int, ...]
    values: tuple[int, ...]
    weights: int
    mask: int

    @property
    def size(self) -> int:
        """How many bits it reads, those included that do not count."""
        return len(self.bits) + len(self.values)

    @property
    def counted(self) -> int:
        """How many bits count."""
        return self.mask.bit_count()


@dataclass(frozen=True)
class Threshold:
    """1 where a value reaches a limit, else 0: a neuron that fires."""

    a: int
    limit: int


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
    """The larger of two values plus the log-add table's entry for their distance."""

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


Operation = (
    Constant | Lookup | Select | Choose | Popcount | Threshold | Add | Offset | LogAdd | Times
    | Scale | Round
)  # fmt: skip
OperationT = TypeVar("OperationT", bound=Operation)
MAX_SELECT_BITS = 8
"""The most input bits of a look-up by bits."""
_NAMES: dict[type[Operation], str] = {
    Constant: "constant",
    Lookup: "look-up",
    Select: "look-up by bits",
    Choose: "choice",
    Popcount: "popcount",
    Threshold: "threshold",
    Add: "sum",
    Offset: "offset",
    LogAdd: "log-add",
    Times: "product",
    Scale: "scaling",
    Round: "rounding",
}
_INT32, _INT64 = 1 << 31, 1 << 63


def operands(operation: Operation) -> tuple[int, ...]:
    """Indices of the steps that an operation reads."""
    if isinstance(operation, Constant | Lookup | Select):
        return ()
    if isinstance(operation, Popcount):
        return operation.values
    if isinstance(operation, Threshold | Offset | Scale | Round):
        return (operation.a,)
    if isinstance(operation, Choose):
        return (operation.zero, operation.one)
    return (operation.a, operation.b)


def moved(step: Operation, place: Callable[[int], int]) -> Operation:
    """The operation whose operands lie at other places."""
    if isinstance(step, Constant | Lookup | Select):
        return step
    if isinstance(step, Choose):
        return Choose(step.bit, place(step.zero), place(step.one))
    if isinstance(step, Popcount):
        return replace(step, values=tuple(map(place, step.values)))
    if isinstance(step, Threshold | Offset | Scale | Round):
        return replace(step, a=place(step.a))
    return replace(step, a=place(step.a), b=place(step.b))


def deciding(step: Select) -> Select:
    """The same look-up by only those bits that change an entry, maybe by none."""
    bits, entries = list(step.bits), np.array(step.table, dtype=object)
    for j in reversed(range(len(bits))):
        halves = entries.reshape(-1, 2, 1 << j)  # axis 1 is bit j: C order has the last bit first
        if (halves[:, 0] == halves[:, 1]).all():
            entries = halves[:, 0].reshape(-1)
            del bits[j]
    return step if len(bits) == len(step.bits) else Select(tuple(bits), tuple(entries.tolist()))


def in_words(kind: type[Operation]) -> str:
    """The name of a kind of operations, such as ``log-add``."""
    return _NAMES[kind]


def with_article(kind: type[Operation]) -> str:
    """Its name with an article, such as ``an offset``."""
    name = _NAMES[kind]
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def applied(step: Operation, values: Sequence[Integers], arithmetic: Arithmetic | None) -> Integers:
    """Compute a sum, product, rounding, threshold or log-add.

    Args:
        step: the operation, which reads no input.
        values: int64 arrays of its operands.
        arithmetic: the graph's.
    """
    if isinstance(step, Add):
        return values[0] + values[1]
    if isinstance(step, Offset):
        return values[0] + step.by
    if isinstance(step, Scale):
        return values[0] * step.by
    if isinstance(step, Threshold):
        return np.asarray(values[0] >= step.limit, dtype=np.int64)
    if isinstance(step, LogAdd) and isinstance(arithmetic, Logarithms):
        return arithmetic.add(values[0], values[1])
    if isinstance(step, Times) and isinstance(arithmetic, FixedPoint):
        return arithmetic.times(values[0], values[1])
    if isinstance(step, Round) and isinstance(arithmetic, FixedPoint):
        return arithmetic.rounded(values[0])
    raise ModelError(f"{with_article(type(step))} cannot be computed with arithmetic {arithmetic}")


def bounds_of(
    step: Operation, read: Sequence[tuple[int, int]], arithmetic: Arithmetic | None
) -> tuple[int, int]:
    """Least and largest value of an operation whose operands lie within bounds.

    Args:
        step: the operation.
        read: bounds of its operands.
        arithmetic: the graph's.

    Raises:
        ModelError: a value, or a product before rounding, exceeds 64 bits, the graph lacks the
            operation's arithmetic, or a popcount counts a value that may be neither 0 nor 1.
    """
    low, high = _exact_bounds(step, read, arithmetic)
    half = arithmetic.half if isinstance(arithmetic, FixedPoint) else 0
    if low < -_INT64 or high + half >= _INT64:
        raise ModelError(f"the {in_words(type(step))} reaches {low:,} to {high:,}, beyond 64 bits")
    if not isinstance(step, Times | Round):
        return low, high
    if not isinstance(arithmetic, FixedPoint):
        raise ModelError(f"{with_article(type(step))} needs the arithmetic of fixed point numbers")
    return (low + half) >> arithmetic.fraction, (high + half) >> arithmetic.fraction


def _exact_bounds(
    step: Operation, read: Sequence[tuple[int, int]], arithmetic: Arithmetic | None
) -> tuple[int, int]:
    """Bounds of an operation's result before rounding, in unbounded integers."""
    if isinstance(step, Constant):
        return step.value, step.value
    if isinstance(step, Lookup | Select):
        return min(step.table), max(step.table)
    if isinstance(step, Choose):
        return min(lo for lo, _ in read), max(hi for _, hi in read)
    if isinstance(step, Popcount):
        return _popcount_bounds(step, read)
    if isinstance(step, Threshold):
        return int(read[0][0] >= step.limit), int(read[0][1] >= step.limit)
    if isinstance(step, Add):
        return read[0][0] + read[1][0], read[0][1] + read[1][1]
    if isinstance(step, Offset):
        return read[0][0] + step.by, read[0][1] + step.by
    if isinstance(step, Round):
        return read[0]
    if isinstance(step, LogAdd):
        return _log_add_bounds(read, arithmetic)
    factors = read[1] if isinstance(step, Times) else (step.by,)
    corners = [a * b for a in read[0] for b in factors]
    return min(corners), max(corners)


def _popcount_bounds(step: Popcount, read: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Bounds of a popcount: values that are constant agree always or never."""
    agreeing = differing = 0
    for j, (low, high) in enumerate(read, len(step.bits)):
        if low < 0 or high > 1:
            raise ModelError(f"a popcount counts a value of {low:,} to {high:,}, not of 0 or 1")
        if low == high and step.mask >> j & 1:
            agrees = step.weights >> j & 1 == low
            agreeing, differing = agreeing + agrees, differing + (not agrees)
    return agreeing, step.counted - differing


def _log_add_bounds(
    read: Sequence[tuple[int, int]], arithmetic: Arithmetic | None
) -> tuple[int, int]:
    if not isinstance(arithmetic, Logarithms):
        raise ModelError("a log-add needs the arithmetic of logarithms")
    lows, highs = zip(*read, strict=True)
    if not arithmetic.monotone:
        return max(lows), max(highs) + arithmetic.table[0]
    return _log_added(lows, arithmetic.table), _log_added(highs, arithmetic.table)


def _log_added(values: Sequence[int], table: Sequence[int]) -> int:
    distance = max(values) - min(values)
    return max(values) + (table[distance] if distance < len(table) else 0)


@dataclass(frozen=True, eq=False)
class Graph:
    """Integer scores of input bits, as a list of operations in the order of computation.

    Inputs are bits that features can have: a bit of a thermometer field is set only if those below
    it are. For others, targets may give any scores, unless the graph adds up look-ups by bits only,
    or consists of popcounts and thresholds only.

    Attributes:
        input: how integer features become the input bits.
        steps: the operations; operands come before the operations that read them.
        scores: for each class, the index of the operation that gives its score.
        arithmetic: what log-adds, products and roundings depend on; None if there are none.
        bounds: least and largest value of each operation, proven for all inputs.

    Raises:
        ModelError: an operation reads what does not exist or comes later; a value may exceed 64
            bits, or a score or a margin 32 bits.
    """

    input: InputSpec
    steps: tuple[Operation, ...]
    scores: tuple[int, ...]
    arithmetic: Arithmetic | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "scores", tuple(self.scores))
        if len(self.scores) < 2 or not all(0 <= i < len(self.steps) for i in self.scores):
            raise ModelError("a graph has two scores or more, each the value of one of its steps")
        for i, step in enumerate(self.steps):
            if not all(0 <= k < i for k in operands(step)):
                raise ModelError(
                    f"step {i}: {with_article(type(step))} reads what is not before it"
                )
            check_reads(self.input, step)
        self._check_scores()

    def _check_scores(self) -> None:
        """Targets compute scores and margins in signed 32 bits."""
        ranges = [self.bounds[i] for i in self.scores]
        if any(lo < -_INT32 or hi >= _INT32 for lo, hi in ranges):
            low, high = min(lo for lo, _ in ranges), max(hi for _, hi in ranges)
            raise ModelError(f"scores reach {low:,} to {high:,}, beyond 32 bits")
        if self.largest_margin >= _INT32:
            raise ModelError(f"margins reach {self.largest_margin:,}, beyond 32 bits")

    @cached_property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """Least and largest value of each operation, proven for all inputs."""
        bounds: list[tuple[int, int]] = []
        for step in self.steps:
            bounds.append(bounds_of(step, [bounds[k] for k in operands(step)], self.arithmetic))
        return tuple(bounds)

    def fits(self, bits: int) -> bool:
        """Whether every value is a number of so many bits in two's complement, for all inputs."""
        half = 1 << (bits - 1)
        return all(-half <= low and high < half for low, high in self.bounds)

    @property
    def largest_margin(self) -> int:
        """Bound of the margins: a class's highest score less the least that its best rival has."""
        ranges = [self.bounds[i] for i in self.scores]
        return max(
            hi - max(lo for j, (lo, _) in enumerate(ranges) if j != i)
            for i, (_, hi) in enumerate(ranges)
        )

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The readers of each operation, in order; one that reads it twice is listed twice."""
        reader_steps: list[list[int]] = [[] for _ in self.steps]
        for i, step in enumerate(self.steps):
            for operand in operands(step):
                reader_steps[operand].append(i)
        return tuple(map(tuple, reader_steps))

    @cached_property
    def kinds(self) -> frozenset[type[Operation]]:
        """The kinds of operations that it has."""
        return frozenset(map(type, self.steps))

    def count(self, kind: type[Operation]) -> int:
        """Count the operations of a kind."""
        return sum(isinstance(step, kind) for step in self.steps)

    def places(self, kind: type[OperationT]) -> list[tuple[int, OperationT]]:
        """The operations of a kind with their indices."""
        return [(i, step) for i, step in enumerate(self.steps) if isinstance(step, kind)]


def check_reads(spec: InputSpec, step: Operation) -> None:
    """Check that an operation reads a bit or a field that the input has.

    Raises:
        ModelError: it reads another.
    """
    if isinstance(step, Choose) and not 0 <= step.bit < spec.n_bits:
        raise ModelError(f"a choice reads input bit {step.bit} of {spec.n_bits}")
    if isinstance(step, Select):
        _check_select(spec, step)
    if isinstance(step, Popcount):
        _check_popcount(spec, step)
    if isinstance(step, Lookup):
        if not 0 <= step.field < len(spec.fields):
            raise ModelError(f"a look-up reads field {step.field} of {len(spec.fields)}")
        field = spec.fields[step.field]
        if field.kind != "thermometer" or len(step.table) != field.width + 1:
            raise ModelError(
                f"a look-up of {len(step.table)} entries reads {field.feature!r}: expected a "
                f"field of {len(step.table) - 1} cuts, not a {field.kind} one of {field.width} bits"
            )


def _check_select(spec: InputSpec, step: Select) -> None:
    count = len(step.bits)
    if not 1 <= count <= MAX_SELECT_BITS or len({*step.bits}) != count:
        raise ModelError(
            f"a look-up reads 1 to {MAX_SELECT_BITS} different input bits, "
            f"not {list(step.bits[: MAX_SELECT_BITS + 1])}"
        )
    if wrong := [bit for bit in step.bits if not 0 <= bit < spec.n_bits]:
        raise ModelError(f"a look-up reads input bit {wrong[0]} of {spec.n_bits}")
    if len(step.table) != 1 << count:
        raise ModelError(
            f"a look-up of {count} bits has {len(step.table)} entries, not {1 << count}"
        )


def _check_popcount(spec: InputSpec, step: Popcount) -> None:
    if not step.size:
        raise ModelError("a popcount reads one bit or more")
    if len({*step.bits}) != len(step.bits):
        raise ModelError("a popcount reads different input bits, not one several times")
    if step.bits and not (min(step.bits) >= 0 and max(step.bits) < spec.n_bits):
        wrong = next(bit for bit in step.bits if not 0 <= bit < spec.n_bits)
        raise ModelError(f"a popcount reads input bit {wrong} of {spec.n_bits}")
    if not 0 <= step.mask < 1 << step.size or step.weights & ~step.mask:
        raise ModelError(
            f"weights and mask of a popcount have {step.size} bits, weights 0 where none counts"
        )
