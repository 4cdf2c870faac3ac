# SPDX-License-Identifier: Apache-2.0
"""A graph as sums of trees: each score is a constant plus one leaf of each of its trees.

A choice between two sums is a sum of choices: what both have in common stands outside, and each of
the other terms is chosen against a term of the other sum, or against 0. A look-up is a tree that
searches its bin, and a look-up by bits one of choices. Targets whose programs add the leaves of
trees are written from this form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

from n3ic.errors import ExportError
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    Lookup,
    Offset,
    Operation,
    Scale,
    Select,
    in_words,
    operands,
)
from n3ic.targets.operations import place

WRITTEN: tuple[type[Operation], ...] = (Constant, Lookup, Select, Choose, Add, Offset, Scale)
MAX_NODES = 1 << 18  # two entries of 8 bytes each: the value of a map of XDP has 4 MiB
MAX_DEPTH = 256
MAX_TREES = 1 << 14

Tree = int | tuple[int, int, int]
"""A value of the builder; or of a look-up, the value and its first and last bin."""
_Moved = dict[tuple[int, int, int], int]


@dataclass(frozen=True)
class TreeSum:
    """A constant plus the values of trees; each is a value of a builder, without sums below it."""

    start: int = 0
    trees: tuple[int, ...] = ()


@dataclass(frozen=True)
class WalkNode:
    """A node of a tree.

    Attributes:
        test: index of the input bit that it reads; counted from ``n_bits`` on, the bit that is set
            if as many bits of its field are.
        zero, one: where a walk goes on.
    """

    test: int
    zero: Tree
    one: Tree


@dataclass(frozen=True, eq=False)
class Forest:
    """A graph as sums of trees.

    Attributes:
        builder: holds the trees' choices, look-ups and constants, in their normal form.
        sums: the score of each class.
    """

    builder: GraphBuilder
    sums: tuple[TreeSum, ...]

    def at(self, tree: Tree) -> WalkNode | int:
        """The root of a tree, or the value of a leaf."""
        index, *bins = (tree,) if isinstance(tree, int) else tree
        step = self.builder.steps[index]
        if isinstance(step, Constant):
            return step.value
        if isinstance(step, Choose):
            return WalkNode(step.bit, step.zero, step.one)
        assert isinstance(step, Lookup)  # noqa: S101 - sums have no other trees
        low, high = bins or (0, len(step.table) - 1)
        if len({*step.table[low : high + 1]}) == 1:
            return step.table[low]
        middle = (low + high + 1) // 2
        spec = self.builder.input
        test = spec.n_bits + spec.offsets[step.field] + middle - 1
        return WalkNode(test, (index, low, middle - 1), (index, middle, high))

    def nodes(self) -> dict[Tree, WalkNode | int]:
        """All trees by their roots, those below others included, a level after the other.

        Raises:
            ExportError: a leaf exceeds 32 bits.
        """
        out: dict[Tree, WalkNode | int] = {}
        waiting: list[Tree] = [tree for each in self.sums for tree in each.trees]
        while waiting:
            level, waiting = waiting, []
            for tree in level:
                if tree not in out:
                    out[tree] = node = self.at(tree)
                    if isinstance(node, WalkNode):
                        waiting += [node.zero, node.one]
                    elif not -(1 << 31) <= node < 1 << 31:
                        raise ExportError(f"a leaf of {node:,}: 32 bits are allowed")
        return out

    def depth(self, tree: Tree, known: dict[Tree, int]) -> int:
        """The most nodes on a way from a tree's root to a leaf; ``known`` keeps those found."""
        if tree not in known:
            node = self.at(tree)
            below = (node.zero, node.one) if isinstance(node, WalkNode) else ()
            known[tree] = max((self.depth(k, known) + 1 for k in below), default=0)
        return known[tree]


@lru_cache(maxsize=4)  # an export asks for the same forest several times
def forest_of(graph: Graph) -> Forest:
    """Write a graph as sums of trees.

    Args:
        graph: the operations of a model.

    Raises:
        ExportError: it has other operations, or too many or too deep trees come of it.
    """
    return forest_in(GraphBuilder(graph.input), graph)


def forest_in(builder: GraphBuilder, graph: Graph) -> Forest:
    """Write a graph as sums of trees in a builder: equal trees are equal values there."""
    shifted: _Moved = {}
    depth: list[int] = []
    sums: list[TreeSum] = []
    for i, step in enumerate(graph.steps):
        depth.append(max((depth[k] for k in operands(step)), default=0))
        if isinstance(step, Constant):
            sums.append(TreeSum(step.value))
        elif isinstance(step, Lookup):
            sums.append(_of(builder, 0, [], builder.lookup(step.field, step.table)))
        elif isinstance(step, Select):
            depth[i] = len(step.bits)
            sums.append(_of(builder, 0, [], _selected(builder, step)))
        elif isinstance(step, Offset):
            sums.append(TreeSum(sums[step.a].start + step.by, sums[step.a].trees))
        elif isinstance(step, Scale):
            trees = tuple(_affine(builder, k, step.by, 0, shifted) for k in sums[step.a].trees)
            sums.append(_sum_of(builder, step.by * sums[step.a].start, trees))
        elif isinstance(step, Add):
            a, b = sums[step.a], sums[step.b]
            sums.append(TreeSum(a.start + b.start, a.trees + b.trees))
        elif isinstance(step, Choose):
            depth[i] += 1
            if depth[i] > MAX_DEPTH:
                raise ExportError(
                    f"{place(graph, i)}: {depth[i]} choices below each other, {MAX_DEPTH} are "
                    "allowed"
                )
            sums.append(_chosen(builder, step.bit, sums[step.zero], sums[step.one], shifted))
        else:
            raise ExportError(f"{place(graph, i)}: trees have no {in_words(type(step))}")
        if len(sums[i].trees) > MAX_TREES:
            raise ExportError(
                f"{place(graph, i)}: a sum of more than {MAX_TREES:,} trees, as many as are allowed"
            )
        if len(builder.steps) > MAX_NODES:
            raise ExportError(
                f"{place(graph, i)}: more than {MAX_NODES:,} nodes of trees, as many as are allowed"
            )
    return Forest(builder, tuple(sums[i] for i in graph.scores))


def _chosen(
    builder: GraphBuilder,
    bit: int,
    zero: TreeSum,
    one: TreeSum,
    shifted: _Moved,
) -> TreeSum:
    """The choice between two sums, as a sum of choices."""
    single = [_single(builder, each) for each in (zero, one)]
    if None not in single:  # a node of a tree of constants, which most graphs have only
        return _of(builder, 0, [], builder.choose(bit, *single))  # type: ignore[arg-type]
    common = Counter(zero.trees) & Counter(one.trees)
    rests = [sorted((Counter(each.trees) - common).elements()) for each in (zero, one)]
    start = zero.start if zero.start == one.start else 0
    more = (zero.start - start, one.start - start)
    trees = list(common.elements())
    for pair in _pairs(rests[0], rests[1], more != (0, 0)):
        parts = [
            builder.constant(by) if tree is None else _affine(builder, tree, 1, by, shifted)
            for tree, by in zip(pair, more, strict=True)
        ]
        more = (0, 0)
        made = _of(builder, start, trees, builder.choose(bit, *parts))
        start, trees = made.start, list(made.trees)
    return TreeSum(start, tuple(trees))


def _selected(builder: GraphBuilder, step: Select) -> int:
    """A look-up by bits as choices, the last bit first."""
    values = [builder.constant(entry) for entry in step.table]
    for bit in step.bits:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [builder.choose(bit, zero, one) for zero, one in pairs]
    return values[0]


def _single(builder: GraphBuilder, each: TreeSum) -> int | None:
    """The value that is a sum, if it is one constant or one tree."""
    if not each.trees:
        return builder.constant(each.start)
    return each.trees[0] if len(each.trees) == 1 and not each.start else None


def _of(builder: GraphBuilder, start: int, trees: list[int], value: int) -> TreeSum:
    """The sum of a constant, trees and one more value of the builder."""
    step = builder.steps[value]
    if isinstance(step, Constant):
        return TreeSum(start + step.value, tuple(trees))
    return TreeSum(start, (*trees, value))


def _pairs(
    zero: list[int], one: list[int], constant: bool
) -> Iterator[tuple[int | None, int | None]]:
    if constant and not zero and not one:
        yield None, None
    yield from zip_longest(zero, one)


def _sum_of(builder: GraphBuilder, start: int, values: Sequence[int]) -> TreeSum:
    """The sum of a constant and values of the builder, some of which may be constants."""
    total = TreeSum(start)
    for value in values:
        total = _of(builder, total.start, [*total.trees], value)
    return total


def _affine(builder: GraphBuilder, tree: int, times: int, plus: int, made: _Moved) -> int:
    """The tree whose leaves are multiplied by a constant, then larger by another one."""
    if (times, plus) == (1, 0):
        return tree
    key = (tree, times, plus)
    if key not in made:
        step = builder.steps[tree]
        if isinstance(step, Constant):
            made[key] = builder.constant(times * step.value + plus)
        elif isinstance(step, Lookup):
            made[key] = builder.lookup(step.field, [times * entry + plus for entry in step.table])
        else:
            assert isinstance(step, Choose)  # noqa: S101 - sums have no other trees
            parts = [_affine(builder, k, times, plus, made) for k in (step.zero, step.one)]
            made[key] = builder.choose(step.bit, *parts)
    return made[key]
