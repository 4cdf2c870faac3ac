# SPDX-License-Identifier: Apache-2.0
"""The trees of a graph as ternary tables: an input matches one entry, whose leaves are added.

A table has the leaves of several scores where their trees ask the same in the same order. Trees of
one score that ask a single field are one table together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from n3ic.errors import ExportError, ModelError
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import Graph, Lookup
from n3ic.targets.forest import Forest, Tree, WalkNode, forest_of

_CANDIDATES = 4  # tables with which a tree is tried to be joined
_DEEPEST = 100  # of trees that are joined


@dataclass(frozen=True)
class LeafEntry:
    """A leaf, as a ternary entry.

    Attributes:
        value, mask: the bits on the way to it and their values; bit ``j`` is the table's bit ``j``.
        leaves: what it adds to each of the table's scores.
    """

    value: int
    mask: int
    leaves: tuple[int, ...]


@dataclass(frozen=True)
class JointTree:
    """A tree with a leaf for each of several scores.

    Attributes:
        scores: the classes to whose scores its leaves are added.
        root: a value of the builder; its leaves are numbers of tuples.
        bits: the input bits that it asks, ascending.
        count: number of ways to a leaf.
    """

    scores: tuple[int, ...]
    root: int
    bits: tuple[int, ...]
    count: int


def _bit(forest: Forest, node: WalkNode) -> int:
    """The input bit that is set where a node leads to ``one``, for a number of set bits too."""
    n_bits = forest.builder.input.n_bits
    return node.test - n_bits if node.test >= n_bits else node.test


@dataclass(frozen=True, eq=False)
class ForestTables:
    """Scores as start values and trees that are joined.

    Attributes:
        graph: the scores as sums of look-ups and trees, in their normal form.
        starts: what each score starts from.
        trees: the trees, in order.
        forest: holds their nodes.
        tuples: the leaves for the scores of a tree, by number.
        source: holds the look-ups and trees of each score before they are joined.
        values: of each score, its look-ups and trees there.
    """

    graph: Graph
    starts: tuple[int, ...]
    trees: tuple[JointTree, ...]
    forest: Forest
    tuples: tuple[tuple[int, ...], ...]
    source: GraphBuilder
    values: tuple[tuple[int, ...], ...]

    def first(self, trees: int) -> Graph:
        """The graph of the first trees and look-ups of each score."""
        return _summed(self.source, self.starts, [of[:trees] for of in self.values])

    def entries(self, tree: JointTree) -> Iterator[LeafEntry]:
        """A tree's entries, those behind a bit that is 0 before those behind the same bit at 1."""
        place = {bit: j for j, bit in enumerate(tree.bits)}
        waiting: list[tuple[Tree, int, int]] = [(tree.root, 0, 0)]
        while waiting:
            at, value, mask = waiting.pop()
            node = self.forest.at(at)
            if not isinstance(node, WalkNode):
                yield LeafEntry(value, mask, self.tuples[node])
                continue
            bit = 1 << place[_bit(self.forest, node)]
            waiting += [(node.one, value | bit, mask | bit), (node.zero, value, mask | bit)]

    @cached_property
    def leaf_range(self) -> tuple[int, int]:
        """The least and the largest leaf, or 0."""
        every = [leaf for leaves in self.tuples for leaf in leaves]
        return min(every, default=0), max(every, default=0)


@lru_cache(maxsize=4)  # an export asks for the same tables several times
def forest_tables(graph: Graph) -> ForestTables:
    """Write a graph as joined trees.

    Raises:
        ExportError: it has other operations than sums of trees have, or exceeds their limits.
    """
    forest = forest_of(graph)
    forest.nodes()  # refuses leaves beyond 32 bits
    builder = forest.builder
    starts, values = [], []
    for each in forest.sums:
        start, of_class = _gathered(forest, each.start, each.trees)
        if not -(1 << 31) <= start < 1 << 31:
            raise ExportError(f"a score starts at {start:,}: 32 bits are allowed")
        starts.append(start)
        values.append(of_class)
    try:
        own = _summed(builder, starts, values)
    except ModelError as error:
        raise ExportError(f"as sums of trees, {error}") from error
    joiner = _Joiner(forest)
    for c, of_class in enumerate(values):
        joiner.add(c, of_class)
    trees = tuple(joiner.trees)
    return ForestTables(
        own,
        tuple(starts),
        trees,
        joiner.forest,
        tuple(joiner.tuples),
        builder,
        tuple(map(tuple, values)),
    )


def _summed(builder: GraphBuilder, starts: Sequence[int], values: Sequence[Sequence[int]]) -> Graph:
    pairs = zip(starts, values, strict=True)
    return builder.build([builder.offset(builder.total(of), start) for start, of in pairs])


def _gathered(forest: Forest, start: int, trees: tuple[int, ...]) -> tuple[int, list[int]]:
    """Add the trees that ask one thermometer field only; return the start and all values."""
    spec = forest.builder.input
    field_of = [i for i, field in enumerate(spec.fields) for _ in range(field.width)]
    sums: dict[int, list[int]] = {}
    rest = []
    known: dict[Tree, int] = {}
    for tree in trees:
        fields = {field_of[bit] for bit in _positions(_asked(forest, tree, known))}
        at = min(fields)
        if len(fields) > 1 or spec.fields[at].kind != "thermometer":
            rest.append(tree)
            continue
        start_bit, bins = spec.offsets[at], spec.fields[at].width + 1
        table = [_leaf(forest, tree, start_bit + k) for k in range(bins)]
        sums[at] = [a + b for a, b in zip(sums.get(at, [0] * len(table)), table, strict=True)]
    constant = {at: table[0] for at, table in sums.items() if len({*table}) == 1}
    lookups = [forest.builder.lookup(at, sums[at]) for at in sorted(sums) if at not in constant]
    return start + sum(constant.values()), [*lookups, *rest]


def _asked(forest: Forest, tree: Tree, known: dict[Tree, int]) -> int:
    """The input bits that a tree asks, set in an integer; ``known`` keeps those found."""
    if tree not in known:
        node = forest.at(tree)
        known[tree] = 0
        if isinstance(node, WalkNode):
            below = [_asked(forest, k, known) for k in (node.zero, node.one)]
            known[tree] = below[0] | below[1] | 1 << _bit(forest, node)
    return known[tree]


def _positions(mask: int) -> tuple[int, ...]:
    """The set bits of an integer, ascending."""
    return tuple(i for i, digit in enumerate(reversed(f"{mask:b}")) if digit == "1")


def _leaf(forest: Forest, tree: Tree, end: int) -> int:
    """The leaf of a tree of one thermometer field whose bits before ``end`` are set."""
    node = forest.at(tree)
    while isinstance(node, WalkNode):
        node = forest.at(node.one if _bit(forest, node) < end else node.zero)
    return node


class _CannotJoin(Exception):  # noqa: N818 - a signal: two trees stay apart
    """Two trees ask in another order, or too much comes of them."""


class _Joiner:
    """Joins trees of different scores that ask the same in the same order.

    Attributes:
        trees: the joined trees.
        tuples: leaves for the scores of a tree, by number.
        forest: holds the nodes; its leaves are numbers of tuples.
    """

    def __init__(self, source: Forest) -> None:
        self.source = source
        self.builder = GraphBuilder(source.builder.input)
        self.forest = Forest(self.builder, ())
        self.trees: list[JointTree] = []
        self.tuples: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._asking: dict[int, list[int]] = defaultdict(list)  # by input bit, the trees
        self._counts: dict[Tree, int] = {}
        self._depths: dict[Tree, int] = {}
        self._masks: dict[Tree, int] = {}

    def add(self, score: int, values: list[int]) -> None:
        """Add a score's look-ups and trees."""
        made: dict[Tree, int] = {}
        for value in values:
            step = self.source.builder.steps[value]
            if isinstance(step, Lookup):  # by bits, it might ask what a choice above has decided
                root = self._table(step, [(entry,) for entry in step.table])
            else:
                root = self._single(value, made)
            bits = _positions(_asked(self.forest, root, self._masks))
            tree = JointTree((score,), root, bits, self._count(root))
            overlap: Counter[int] = Counter()
            for bit in bits:
                overlap.update(self._asking[bit])
            best = sorted(overlap, key=lambda i: (-overlap[i], i))
            apart = [i for i in best if score not in self.trees[i].scores]
            for i in apart[:_CANDIDATES]:
                if (joint := self._joined(self.trees[i], tree)) is not None:
                    self._place(i, joint)
                    break
            else:
                self.trees.append(tree)
                self._place(len(self.trees) - 1, tree)

    def _place(self, i: int, tree: JointTree) -> None:
        self.trees[i] = tree
        for bit in tree.bits:
            if i not in self._asking[bit]:
                self._asking[bit].append(i)

    def _number(self, leaves: tuple[int, ...]) -> int:
        if leaves not in self._numbers:
            self._numbers[leaves] = len(self.tuples)
            self.tuples.append(leaves)
        return self._numbers[leaves]

    def _table(self, step: Lookup, leaves: Sequence[tuple[int, ...]]) -> int:
        return self.builder.lookup(step.field, [self._number(each) for each in leaves])

    def _single(self, tree: Tree, made: dict[Tree, int]) -> int:
        """A tree of the source, with tuples of one leaf."""
        if tree not in made:
            node = self.source.at(tree)
            if isinstance(node, WalkNode):
                parts = [self._single(k, made) for k in (node.zero, node.one)]
                made[tree] = self.builder.choose(_bit(self.source, node), *parts)
            else:
                made[tree] = self.builder.constant(self._number((node,)))
        return made[tree]

    def _joined(self, one: JointTree, other: JointTree) -> JointTree | None:
        """Two trees as one; None if it would have more leaves than both, or another order."""
        if max(self.forest.depth(t.root, self._depths) for t in (one, other)) > _DEEPEST:
            return None
        a, b = (self.builder.steps[t.root] for t in (one, other))
        if isinstance(a, Lookup) and isinstance(b, Lookup) and a.field == b.field:
            pairs = zip(a.table, b.table, strict=True)
            root = self._table(a, [self.tuples[i] + self.tuples[j] for i, j in pairs])
        else:
            budget = 4 * (one.count + other.count)
            try:
                root = self._both(one.root, other.root, {}, budget)
            except _CannotJoin:
                return None
            if not self._keeps(root, one, other):
                return None
        count = self._count(root)
        if count >= one.count + other.count:
            return None
        bits = tuple(sorted({*one.bits, *other.bits}))
        return JointTree((*one.scores, *other.scores), root, bits, count)

    def _keeps(self, root: int, one: JointTree, other: JointTree) -> bool:
        """Whether the tree of each score is as it was: a bit above may decide bits of its field."""
        parts = [(part.root, i) for part in (one, other) for i in range(len(part.scores))]
        for at, (was, i) in enumerate(parts):
            before, now = self._projected(was, i, {}), self._projected(root, at, {})
            if before != now and not self._asks_one_field(before):
                return False
        return True

    def _projected(self, tree: Tree, i: int, made: dict[Tree, int]) -> int:
        """The tree with the leaves of one of its scores only."""
        if tree not in made:
            node = self.forest.at(tree)
            if isinstance(node, WalkNode):
                parts = [self._projected(k, i, made) for k in (node.zero, node.one)]
                made[tree] = self.builder.choose(_bit(self.forest, node), *parts)
            else:
                made[tree] = self.builder.constant(self._number((self.tuples[node][i],)))
        return made[tree]

    def _asks_one_field(self, tree: int) -> bool:
        """Whether a tree is read back as a look-up."""
        asked, spec = _asked(self.forest, tree, self._masks), self.builder.input
        return any(
            field.kind == "thermometer" and not asked & ~(((1 << field.width) - 1) << start)
            for start, field in zip(spec.offsets, spec.fields, strict=True)
        )

    def _both(self, one: Tree, other: Tree, made: dict[tuple[Tree, Tree], int], most: int) -> int:
        if (one, other) in made:
            return made[one, other]
        if len(made) >= most:
            raise _CannotJoin
        a, b = self.forest.at(one), self.forest.at(other)
        if isinstance(a, WalkNode) or isinstance(b, WalkNode):
            bit, split_one, split_other = self._split(one, other, a, b)
            ones = (a.zero, a.one) if split_one and isinstance(a, WalkNode) else (one, one)
            others = (b.zero, b.one) if split_other and isinstance(b, WalkNode) else (other, other)
            parts = [self._both(x, y, made, most) for x, y in zip(ones, others, strict=True)]
            made[one, other] = self.builder.choose(bit, *parts)
        else:
            number = self._number(self.tuples[a] + self.tuples[b])
            made[one, other] = self.builder.constant(number)
        return made[one, other]

    def _split(
        self, one: Tree, other: Tree, a: WalkNode | int, b: WalkNode | int
    ) -> tuple[int, bool, bool]:
        """The bit by which both trees are split, and which of them asks it."""
        if isinstance(a, WalkNode) and isinstance(b, WalkNode):
            bits = _bit(self.forest, a), _bit(self.forest, b)
            if bits[0] == bits[1]:
                return bits[0], True, True
            if not _asked(self.forest, other, self._masks) >> bits[0] & 1:
                return bits[0], True, False
            if _asked(self.forest, one, self._masks) >> bits[1] & 1:
                raise _CannotJoin
            return bits[1], False, True
        if isinstance(a, WalkNode):
            return _bit(self.forest, a), True, False
        assert isinstance(b, WalkNode)  # noqa: S101 - two leaves are not split
        return _bit(self.forest, b), False, True

    def _count(self, tree: Tree) -> int:
        if tree not in self._counts:
            node = self.forest.at(tree)
            below = (node.zero, node.one) if isinstance(node, WalkNode) else ()
            self._counts[tree] = sum(self._count(k) for k in below) or 1
        return self._counts[tree]
