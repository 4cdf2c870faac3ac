# SPDX-License-Identifier: Apache-2.0
"""Random graphs, a scalar interpreter of their operations, and a family of models that give them.

The family exists in tests only: it reaches every target that writes graphs, without a line there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from n3ic import plugins
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.columns import TableRules
from n3ic.model.family import Family
from n3ic.model.file import Tensors
from n3ic.model.graph.arithmetic import Arithmetic, FixedPoint, Logarithms
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.evaluate import scores as graph_scores
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
)
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.meter_spec import MeterSpec
from n3ic.model.verification_vectors import boundary_features

LOG = Logarithms(2, (4, 3, 3, 2, 2, 1, 1, 1))
STEEP = Logarithms(3, (8, 1))  # falls by more than 1 a step, so that log-add is not monotone
FIXED = FixedPoint(9)
ARITHMETICS: dict[str, Arithmetic | None] = {
    "integers": None, "log": LOG, "steep": STEEP, "fixed": FIXED,
}  # fmt: skip

NEURONS, BESIDE = -1, -2  # instead of an arithmetic's place: layers of neurons, or with a choice


class Recorder:
    """The operations as they were asked for, which a :class:`GraphBuilder` would normalise."""

    def __init__(self, spec: InputSpec, arithmetic: Arithmetic | None = None) -> None:
        self.input = spec
        self.arithmetic = arithmetic
        self.steps: list[Operation] = []

    def _record(self, step: Operation) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def constant(self, value: int) -> int:
        return self._record(Constant(value))

    def lookup(self, field: int, table: Sequence[int]) -> int:
        return self._record(Lookup(field, tuple(table)))

    def select(self, bits: Sequence[int], table: Sequence[int]) -> int:
        return self._record(Select(tuple(bits), tuple(table)))

    def popcount(
        self,
        bits: Sequence[int],
        values: Sequence[int],
        weights: NDArray[np.bool_],
        mask: NDArray[np.bool_],
    ) -> int:
        numbers = [
            sum(int(bit) << j for j, bit in enumerate(each)) for each in (weights & mask, mask)
        ]
        return self._record(Popcount(tuple(bits), tuple(values), *numbers))

    def threshold(self, a: int, limit: int) -> int:
        return self._record(Threshold(a, limit))

    def choose(self, bit: int, zero: int, one: int) -> int:
        return self._record(Choose(bit, zero, one))

    def add(self, a: int, b: int) -> int:
        return self._record(Add(a, b))

    def offset(self, a: int, by: int) -> int:
        return self._record(Offset(a, by))

    def log_add(self, a: int, b: int) -> int:
        return self._record(LogAdd(a, b))

    def times(self, a: int, b: int) -> int:
        return self._record(Times(a, b))

    def weighted(self, terms: Sequence[tuple[int, int]]) -> int:
        a, b = (self._record(Scale(value, weight)) for value, weight in terms)
        return self._record(Round(self.add(a, b)))

    def build(self, scores: Sequence[int]) -> Graph:
        return Graph(self.input, tuple(self.steps), tuple(scores), self.arithmetic)


def random_input(rng: np.random.Generator, fields: int = 5, cuts: int = 40) -> InputSpec:
    """Thermometer fields, some wider than a word."""
    return InputSpec(
        tuple(
            Field.thermometer(
                f"x{i}",
                sorted(rng.choice(np.arange(1, 3000), rng.integers(1, cuts + 1), False).tolist()),
            )
            for i in range(fields)
        )
    )


def random_steps(
    builder: Any, rng: np.random.Generator, operations: int, classes: int
) -> tuple[int, ...]:
    """Ask a builder for random operations; the value of each class's score.

    Args:
        builder: a :class:`GraphBuilder` or a :class:`Recorder`.
        rng: random generator.
        operations: number of operations.
        classes: number of scores.
    """
    spec, arithmetic = builder.input, builder.arithmetic
    top = arithmetic.one if isinstance(arithmetic, FixedPoint) else 9
    least = 0 if isinstance(arithmetic, FixedPoint) else -9
    ordered = [i for i, f in enumerate(spec.fields) if f.kind == "thermometer"]

    def table(size: int) -> list[int]:
        return [int(v) for v in rng.integers(least, top + 1, size)]

    values = [builder.constant(table(1)[0]) for _ in range(3)]
    for _ in range(len(spec.fields)):
        at = int(rng.choice(ordered)) if ordered else -1
        values.append(
            builder.lookup(at, table(spec.fields[at].width + 1))
            if ordered
            else builder.constant(table(1)[0])
        )
    choose = "choose"
    kinds = {
        type(None): [choose, choose, choose, "add", "offset", "constant"],
        Logarithms: [choose, choose, "add", "offset", "log_add", "log_add"],
        FixedPoint: [choose, choose, "times", "times", "weighted"],
    }[type(arithmetic)]
    sums = 0
    for _ in range(operations):
        kind = str(rng.choice(kinds))
        # Late values are read more often, so that scores depend on most of the operations.
        a, b = (values[-1 - min(int(rng.geometric(0.2)), len(values)) % len(values)] for _ in "ab")
        if kind == "add" and (sums := sums + 1) > 8:
            kind = choose  # values that are added again and again would leave 32 bits
        if kind == choose:
            values.append(builder.choose(int(rng.integers(spec.n_bits)), a, b))
        elif kind == "offset":
            values.append(builder.offset(a, int(rng.integers(-5, 6))))
        elif kind == "constant":
            values.append(builder.constant(table(1)[0]))
        elif kind == "weighted":
            weight = int(rng.integers(top + 1))
            values.append(builder.weighted([(a, weight), (b, top - weight)]))
        else:
            values.append(getattr(builder, kind)(a, b))
    return (*values[-classes + 1 :], values[int(rng.integers(len(values)))])


def forest(
    builder: Any, rng: np.random.Generator, trees: int, depth: int, classes: int
) -> tuple[int, ...]:
    """Ask a builder for sums of full trees of constants; the value of each class's score."""

    def grow(left: int) -> int:
        if not left:
            return int(builder.constant(int(rng.integers(-1000, 1000))))
        zero, one = grow(left - 1), grow(left - 1)
        return int(builder.choose(int(rng.integers(builder.input.n_bits)), zero, one))

    sums = []
    for _ in range(1 if classes == 2 else classes):
        total = grow(depth)
        for _ in range(trees - 1):
            total = builder.add(total, grow(depth))
        sums.append(total)
    return (builder.constant(0), *sums) if classes == 2 else tuple(sums)


def selections(
    builder: Any, rng: np.random.Generator, tables: int, depth: int, most: int, sums: int
) -> tuple[int, ...]:
    """Ask a builder for sums of look-ups by bits, or of trees of them; each class's score.

    Args:
        builder: a :class:`GraphBuilder` or a :class:`Recorder`.
        rng: random generator.
        tables: number of look-ups or trees of a sum.
        depth: of the trees; 0 for look-ups.
        most: the most bits of a look-up.
        sums: number of scores; of one, the first of two classes scores 0.
    """
    n_bits = builder.input.n_bits

    def grow(left: int) -> int:
        if left:
            return int(builder.choose(int(rng.integers(n_bits)), grow(left - 1), grow(left - 1)))
        bits = rng.permutation(n_bits)[: int(rng.integers(1, most + 1))].tolist()
        table = rng.integers(-9, 10, 1 << len(bits)) * (rng.random() < 0.9)  # some are constant
        return int(builder.select(bits, table.tolist()))

    totals = []
    for _ in range(sums):
        total = builder.constant(int(rng.integers(-20, 20)))
        for _ in range(tables):
            total = builder.add(grow(depth), total)
        totals.append(total)
    return (builder.constant(0), *totals) if sums == 1 else tuple(totals)


def neurons(
    builder: Any, rng: np.random.Generator, density: float, hidden: Sequence[int], classes: int
) -> tuple[int, ...]:
    """Ask a builder for layers of neurons; the value of each class's score.

    Some neurons are constant, some are equal, and some have no connections.

    Args:
        builder: a :class:`GraphBuilder` or a :class:`Recorder`.
        rng: random generator.
        density: share of the connections that count.
        hidden: number of neurons of each hidden layer.
        classes: number of scores.
    """
    bits, values = list(range(builder.input.n_bits)), list[int]()

    def popcount() -> tuple[int, int]:
        size = len(bits) + len(values)
        mask = rng.random(size) < (0 if rng.random() < 0.1 else density)
        return builder.popcount(bits, values, rng.random(size) < 0.5, mask), int(mask.sum())

    for size in hidden:
        fired: list[int] = []
        for _ in range(size):
            value, counted = popcount()
            ends = (0, counted, counted + 1)
            limit = counted // 2 if rng.random() < 0.7 else int(rng.choice(ends))
            equal = bool(fired) and rng.random() < 0.1
            fired.append(fired[-1] if equal else builder.threshold(value, limit))
        bits, values = [], fired
    return tuple(builder.offset(popcount()[0], int(rng.integers(-3, 4))) for _ in range(classes))


def interpreted(graph: Graph, bits: Sequence[bool]) -> list[int]:
    """The scores of one row in Python's integers, operation by operation."""
    return [values_of(graph, bits)[i] for i in graph.scores]


def values_of(graph: Graph, bits: Sequence[bool]) -> list[int]:
    """The value of each operation for one row, in Python's integers."""
    values: list[int] = []
    number = graph.arithmetic
    for step in graph.steps:
        if isinstance(step, Constant):
            values.append(step.value)
        elif isinstance(step, Lookup):
            first, width = graph.input.offsets[step.field], graph.input.fields[step.field].width
            values.append(step.table[sum(map(int, bits[first : first + width]))])
        elif isinstance(step, Select):
            values.append(step.table[sum(int(bits[bit]) << j for j, bit in enumerate(step.bits))])
        elif isinstance(step, Popcount):
            read = [bits[bit] for bit in step.bits] + [values[value] for value in step.values]
            agree = [int(x) == step.weights >> j & 1 for j, x in enumerate(read)]
            values.append(sum(a for j, a in enumerate(agree) if step.mask >> j & 1))
        elif isinstance(step, Threshold):
            values.append(int(values[step.a] >= step.limit))
        elif isinstance(step, Choose):
            values.append(values[step.one] if bits[step.bit] else values[step.zero])
        elif isinstance(step, Add):
            values.append(values[step.a] + values[step.b])
        elif isinstance(step, Offset):
            values.append(values[step.a] + step.by)
        elif isinstance(step, Scale):
            values.append(values[step.a] * step.by)
        elif isinstance(step, LogAdd):
            assert isinstance(number, Logarithms)
            a, b = sorted((values[step.a], values[step.b]))
            values.append(b + (number.table[b - a] if b - a < len(number.table) else 0))
        else:
            assert isinstance(number, FixedPoint)
            exact = values[step.a] * values[step.b] if isinstance(step, Times) else values[step.a]
            values.append((2 * exact + number.one) // (2 * number.one))
    return values


def codes(spec: InputSpec, rng: np.random.Generator, count: int = 0) -> Words:
    """Packed inputs: all zeros, all ones, each cut, the values beside it, and random values."""
    edges = boundary_features(spec, int(rng.integers(1 << 30)))
    return np.concatenate(
        [
            spec.encode_words(dict.fromkeys(spec.features, np.array([0, (1 << 32) - 1]))),
            spec.encode_words(edges),
            spec.encode_words({name: rng.integers(0, 3100, count) for name in spec.features}),
        ]
    )


@dataclass(frozen=True, eq=False, repr=False)
class GraphModel(Classifier):
    """A model that is a random graph; its file holds the numbers that the graph is drawn from."""

    family: ClassVar[str] = "random-graph"
    header_keys: ClassVar[tuple[str, ...]] = ("drawn",)
    input: InputSpec
    drawn: tuple[int, ...]
    classes: tuple[str, ...]
    name: str = "random"
    provenance: Mapping[str, str] = field(default_factory=dict)
    meter: MeterSpec | None = None
    shunt: int = 0
    table: TableRules | None = None

    def __post_init__(self) -> None:
        self._check_shared(len(self.classes))

    def ask(self, kind: Callable[..., Any]) -> Graph:
        """The graph, made by a :class:`GraphBuilder` or a :class:`Recorder`."""
        seed, arithmetic, operations, depth, *bits = self.drawn
        if arithmetic in (NEURONS, BESIDE):
            plain, rng = kind(self.input), np.random.default_rng(seed)
            made = neurons(plain, rng, operations / 100, (depth, *bits), len(self.classes))
            if arithmetic == BESIDE:
                choice = plain.choose(0, plain.constant(0), plain.constant(1))
                made = (*made[:-1], plain.add(made[-1], choice))
            return plain.build(made)  # type: ignore[no-any-return]
        builder = kind(self.input, list(ARITHMETICS.values())[arithmetic])
        rng, classes = np.random.default_rng(seed), len(self.classes)
        if bits:
            made = selections(builder, rng, operations, depth, *bits)
            return builder.build(made)  # type: ignore[no-any-return]
        if depth:
            return builder.build(forest(builder, rng, operations, depth, classes))  # type: ignore[no-any-return]
        return builder.build(random_steps(builder, rng, operations, classes))  # type: ignore[no-any-return]

    @cached_property
    def asked(self) -> Graph:
        """The operations in the form in which they are asked for."""
        return self.ask(Recorder)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.input.fields), len(self.classes))

    @property
    def shape_text(self) -> str:
        return f"random graph {'-'.join(map(str, self.drawn))}"

    @property
    def largest_margin(self) -> int:
        return self.asked.largest_margin

    @property
    def weight_bytes(self) -> int:
        return 0

    def scores(self, words: ArrayLike) -> NDArray[np.int32]:
        return graph_scores(self.asked, words)

    def _header(self) -> dict[str, Any]:
        return {"drawn": list(self.drawn)}

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {}

    @classmethod
    def _read(cls, header: Mapping[str, Any], tensors: Tensors, shared: Mapping[str, Any]) -> Self:
        return cls(drawn=tuple(header["drawn"]), **shared)


class GraphFamily(Family):
    """Models that are random graphs."""

    name: ClassVar[str] = GraphModel.family
    summary: ClassVar[str] = "random graphs"

    @property
    def model(self) -> type[GraphModel]:
        return GraphModel

    def graph(self, model: GraphModel) -> Graph:
        return model.ask(GraphBuilder)


@contextmanager
def graph_family() -> Iterator[GraphFamily]:
    """The family, installed as an entry point would."""
    family = GraphFamily()
    with pytest.MonkeyPatch.context() as patch:
        points = plugins._entry_points(plugins.FAMILIES)
        patch.setitem(points, family.name, SimpleNamespace(load=lambda: family))
        yield family


def graph_model(
    seed: int,
    arithmetic: str = "integers",
    *,
    operations: int = 40,
    depth: int = 0,
    bits: int = 0,
    sums: int = 0,
    classes: int = 3,
    fields: int = 5,
    cuts: int = 40,
) -> GraphModel:
    """A random model; with a depth, sums of as many full trees as it has operations.

    With bits, the leaves of the trees are look-ups by up to so many bits; without a depth, the
    trees are look-ups; there is a sum a class, or as many as are asked for.
    """
    more = (bits, sums or (1 if classes == 2 else classes)) if bits else ()
    return GraphModel(
        random_input(np.random.default_rng(seed), fields, cuts),
        (seed, list(ARITHMETICS).index(arithmetic), operations, depth, *more),
        tuple(f"c{i}" for i in range(classes)),
    )


def layered_model(
    seed: int,
    hidden: Sequence[int],
    *,
    density: int = 100,
    classes: int = 3,
    fields: int = 5,
    beside: bool = False,
) -> GraphModel:
    """A random model of layers of neurons, with a share of their connections in per cent.

    With ``beside``, the last score adds a choice, which no layer has.
    """
    return GraphModel(
        random_input(np.random.default_rng(seed), fields, 20),
        (seed, BESIDE if beside else NEURONS, density, *hidden),
        tuple(f"c{i}" for i in range(classes)),
    )
