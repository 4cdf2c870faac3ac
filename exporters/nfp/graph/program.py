# SPDX-License-Identifier: Apache-2.0
"""Compiles a graph to the steps that the micro-C runs, and to blocks of packed trees.

A sum is one value: its operands, trees and look-ups are added to it one after the other. Sums wrap
at the value's bits, so what is between does not matter, only the result must fit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    LogAdd,
    Lookup,
    Offset,
    Operation,
    Round,
    Scale,
    Select,
    Times,
    operands,
)
from n3ic.model.graph.trees import choices_of_constants, roots_of

MAX_SLOTS = 1 << 16  # a step names its operands in 16 bits
MOST_NODES = 1 << 16  # of a block: a node names the next one in 16 bits
MOST_BITS = 1 << 15  # input bits that a node can name
LEAF = 1 << 31  # marks a leaf
LEAF_HALF = 1 << 30  # leaves are stored plus this number


class StepKind(IntEnum):
    """What a step does; ``n3ic_graph.h`` has the same numbers."""

    CONSTANT = 0
    LOOKUP = 1
    TREES = 2
    CHOOSE = 3
    ADD = 4
    OFFSET = 5
    LOG_ADD = 6
    TIMES = 7
    SCALE = 8
    ROUND = 9
    SELECT = 10
    VOTES = 11


_KINDS: dict[type[Operation], StepKind] = {
    Constant: StepKind.CONSTANT,
    Lookup: StepKind.LOOKUP,
    Choose: StepKind.CHOOSE,
    Add: StepKind.ADD,
    Offset: StepKind.OFFSET,
    LogAdd: StepKind.LOG_ADD,
    Times: StepKind.TIMES,
    Scale: StepKind.SCALE,
    Round: StepKind.ROUND,
    Select: StepKind.SELECT,
}
_ADDED = Add | Offset | Lookup | Select  # what a sum adds without a value of its own
WRITTEN = tuple(_KINDS)
"""The operations that the micro-C computes."""


@dataclass(frozen=True)
class Block:
    """The nodes of trees whose leaves are added.

    Attributes:
        words: a word for each node, the trees' roots first. A leaf is marked by bit 31; below are
            its value plus ``LEAF_HALF``. Others have the input bit that they ask from bit 16 on,
            and the place in the block of the first of the two nodes that follow.
        depths: the most choices from each root to a leaf.
        vectors: of trees that vote for several classes, whose leaves have the place of a vector
            among these words instead of a value: the vectors, a value for each class.
    """

    words: tuple[int, ...]
    depths: tuple[int, ...]
    vectors: tuple[int, ...] = ()


@dataclass(frozen=True)
class GraphStep:
    """A step: sets the value of slot ``to``, or adds to it.

    Attributes:
        kind: what is computed.
        to: slot of the value.
        adds: whether the result is added to the value.
        a, b: slots of the operands; of a choice, those for 0 and 1.
        by: constant, factor or input bit.
        lookup: the look-up.
        block: the trees.
        classes: of trees that vote for several classes, the slot to which each one's is added.
    """

    kind: StepKind
    to: int
    adds: bool = False
    a: int = 0
    b: int = 0
    by: int = 0
    lookup: Lookup | Select | None = None
    block: Block | None = None
    classes: tuple[int, ...] = ()


@dataclass(frozen=True)
class GraphProgram:
    """The steps of a graph.

    Attributes:
        steps: steps in order.
        scores: slot of each class's score.
        slots: number of values that are live at once.
        wide: whether values have 64 bits instead of 32.
    """

    steps: tuple[GraphStep, ...]
    scores: tuple[int, ...]
    slots: int
    wide: bool

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of trees, in order."""
        return tuple(step.block for step in self.steps if step.block is not None)


def compiled(graph: Graph) -> GraphProgram:
    """Compile a graph to steps; deterministic."""
    writer = _Writer(graph)
    for i in range(len(graph.steps)):
        writer.write(i)
    writer.write_votes()
    scores = tuple(writer.slot[i] for i in graph.scores)
    return GraphProgram(tuple(writer.steps), scores, writer.slots, _needs_64_bits(graph))


def _needs_64_bits(graph: Graph) -> bool:
    return bool(graph.kinds & {Times, Scale, Round}) or not graph.fits(32)


class _Writer:
    """Emits steps; frees a value's slot after its last reader."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[GraphStep] = []
        self.slot: dict[int, int] = {}
        self.slots = 0
        self._free: list[int] = []
        choices = choices_of_constants(graph)
        self._choices = choices
        roots = roots_of(graph, choices)
        self._depth = {root: choices[root] for root in roots if _block(graph, [root]) is not None}
        self._readers = _readers(graph, self._depth)
        self._within = self._parts_of_sums()
        self._votes = self._voting_trees()
        self._voting = frozenset(root for trees in self._votes for root in trees)

    def _parts_of_sums(self) -> frozenset[int]:
        """Sums, look-ups and trees that only one sum reads: they need no value of their own."""
        sums = (
            step
            for i, step in enumerate(self.graph.steps)
            if isinstance(step, Add | Offset) and self._readers[i]
        )
        return frozenset(
            k
            for step in sums
            for k in operands(step)
            if self._readers[k] == 1
            and k not in self.graph.scores
            and (
                k in self._depth or isinstance(self.graph.steps[k], Add | Offset | Lookup | Select)
            )
        )

    def _voting_trees(self) -> tuple[tuple[int, ...], ...]:
        """The trees of several classes that are walked down together: a root for each class.

        A forest has as many trees a class, in the same order, that ask much the same bits. They are
        joined if that saves comparisons and words.
        """
        graph = self.graph
        sums = [i for i in graph.scores if isinstance(graph.steps[i], Add | Offset)]
        if len(sums) < len(graph.scores) or any(graph.readers[i] for i in sums):
            return ()
        if len({*sums}) < len(sums):
            return ()
        trees = [sorted(self._terms(i)[2]) for i in sums]
        if len({len(each) for each in trees}) > 1:
            return ()
        return tuple(roots for roots in zip(*trees, strict=True) if self._saves(roots))

    def _saves(self, roots: tuple[int, ...]) -> bool:
        """Whether a walk down the joined trees of the classes takes less than one down each."""
        separate = [_block(self.graph, [root]) for root in roots]
        words = sum(len(each) for each in separate if each is not None)
        joined = _joined(self.graph, [roots], self._choices, min(words, MOST_NODES))
        if joined is None or len(joined.words) + len(joined.vectors) >= words:
            return False
        return sum(joined.depths) < sum(self._depth[root] for root in roots)

    def write_votes(self) -> None:
        """Emit the steps of trees that vote for several classes, after the rest of their sums."""
        if self._votes:
            self._add_votes(self._votes)

    def _add_votes(self, trees: Sequence[tuple[int, ...]]) -> None:
        block = _joined(self.graph, trees, self._choices, MOST_NODES)
        if block is None:
            half = len(trees) // 2
            self._add_votes(trees[:half])
            self._add_votes(trees[half:])
            return
        classes = tuple(self.slot[i] for i in self.graph.scores)
        step = GraphStep(StepKind.VOTES, 0, a=len(classes), block=block, classes=classes)
        self.steps.append(step)

    def write(self, index: int) -> None:
        """Emit the steps of an operation, unless none or only one sum needs its value."""
        if index in self._within or not self._readers[index]:
            return
        step, to = self.graph.steps[index], self._take()
        self.slot[index] = to
        read: Sequence[int] = ()
        if index in self._depth:
            self._trees([index], to, adds=False)
        elif isinstance(step, Add | Offset):
            read = self._sum(index, to)
        else:
            read = operands(step)
            a, b = [*(self.slot[k] for k in read), 0, 0][:2]
            by = 0
            if isinstance(step, Constant):
                by = step.value
            elif isinstance(step, Scale):
                by = step.by
            elif isinstance(step, Choose):
                by = step.bit
            lookup = step if isinstance(step, Lookup | Select) else None
            self.steps.append(GraphStep(_KINDS[type(step)], to, False, a, b, by, lookup))
        for k in read:
            self._readers[k] -= 1
            if not self._readers[k]:
                self._free.append(self.slot[k])

    def _sum(self, index: int, to: int) -> list[int]:
        """Emit the steps of a sum; return the values that it reads."""
        constant, values, roots, lookups = self._terms(index)
        trees = [root for root in roots if root not in self._voting]
        slots = [self.slot[k] for k in values]
        first = len(self.steps)

        def added() -> bool:
            return len(self.steps) > first

        for a, b in zip(slots[::2], slots[1::2], strict=False):
            self.steps.append(GraphStep(StepKind.ADD, to, added(), a, b))
        if len(slots) % 2:
            self.steps.append(GraphStep(StepKind.OFFSET, to, added(), slots[-1], by=constant))
        elif constant or not (slots or trees or lookups):
            self.steps.append(GraphStep(StepKind.CONSTANT, to, added(), by=constant))
        self._trees(trees, to, added())
        for lookup in lookups:
            self.steps.append(GraphStep(_KINDS[type(lookup)], to, added(), lookup=lookup))
        return values

    def _terms(self, index: int) -> tuple[int, list[int], list[int], list[Lookup | Select]]:
        """What a sum adds: a constant, values, trees and look-ups that only it reads."""
        constant = 0
        values: list[int] = []
        trees: list[int] = []
        lookups: list[Lookup | Select] = []
        waiting = [index]
        while waiting:
            at = waiting.pop()
            step = self.graph.steps[at]
            if at != index and at not in self._within:
                values.append(at)
            elif at in self._depth:
                trees.append(at)
            elif isinstance(step, Lookup | Select):
                lookups.append(step)
            else:
                constant += step.by if isinstance(step, Offset) else 0
                waiting += reversed(operands(step))
        return constant, values, trees, lookups

    def _trees(self, roots: Sequence[int], to: int, adds: bool) -> None:
        """Emit a step for as many trees as a block holds, and the next."""
        if not roots:
            return
        nodes = _block(self.graph, roots)
        if nodes is None:
            half = len(roots) // 2
            self._trees(roots[:half], to, adds)
            self._trees(roots[half:], to, adds=True)
            return
        block = Block(nodes, tuple(self._depth[root] for root in roots))
        self.steps.append(GraphStep(StepKind.TREES, to, adds, block=block))

    def _take(self) -> int:
        """A slot for a value, taken before its operands' slots are free: it is written first."""
        if self._free:
            return self._free.pop()
        self.slots += 1
        return self.slots - 1


def _readers(graph: Graph, roots: Collection[int]) -> list[int]:
    """Number of steps that read each value; 0 for what is only within trees."""
    readers = [0] * len(graph.steps)
    for score in graph.scores:
        readers[score] += 1  # one more, so that a score's slot is never freed
    for i in reversed(range(len(graph.steps))):
        if readers[i] and i not in roots:
            for k in operands(graph.steps[i]):
                readers[k] += 1
    return readers


def _block(graph: Graph, roots: Sequence[int]) -> tuple[int, ...] | None:
    """Place the nodes of trees breadth first; equal pairs of nodes are placed once.

    Returns:
        Their words; None if there are more of them than places, or one does not fit its word.
    """
    at: list[int] = [*roots]  # the step of each place
    pairs: dict[tuple[int, int], int] = {}
    words: list[int] = []
    while len(words) < len(at):
        if len(at) > MOST_NODES:
            return None
        step = graph.steps[at[len(words)]]
        if isinstance(step, Constant):
            if not -LEAF_HALF <= step.value < LEAF_HALF:
                return None
            words.append(LEAF | step.value + LEAF_HALF)
        elif isinstance(step, Choose):
            if step.bit >= MOST_BITS:
                return None
            pair = (step.zero, step.one)
            if pair not in pairs:
                pairs[pair] = len(at)
                at += pair
            words.append(step.bit << 16 | pairs[pair])
    return tuple(words)


def _joined(
    graph: Graph, trees: Sequence[tuple[int, ...]], depth: Mapping[int, int], most: int
) -> Block | None:
    """Place the nodes of trees that vote for several classes, as :func:`_block` does.

    A node stands for one of each class's tree. It asks the bit of the deepest one; trees that ask
    other bits stay where they are.

    Args:
        graph: the operations.
        trees: the roots of each tree, one a class.
        depth: of each choice between constants, the choices from it to a leaf.
        most: the most nodes.

    Returns:
        Their words; None if there are more of them, or one does not fit its word.
    """
    at: list[tuple[int, ...]] = [*trees]  # the steps of each place
    pairs: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    sides: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = {}
    vectors: dict[tuple[int, ...], int] = {}
    words: list[int] = []
    while len(words) < len(at):
        if len(at) > most:
            return None
        here = at[len(words)]
        deepest = graph.steps[max(here, key=lambda k: depth.get(k, 0))]
        if not isinstance(deepest, Choose):
            ends = [graph.steps[k] for k in here]
            vector = tuple(end.value for end in ends if isinstance(end, Constant))
            if not all(-LEAF_HALF <= value < LEAF_HALF for value in vector):
                return None
            words.append(LEAF | len(here) * vectors.setdefault(vector, len(vectors)))
            sides[here] = ()
            continue
        if deepest.bit >= MOST_BITS:
            return None
        pair = (_after(graph, here, deepest.bit, 0), _after(graph, here, deepest.bit, 1))
        if pair not in pairs:
            pairs[pair] = len(at)
            at += pair
        words.append(deepest.bit << 16 | pairs[pair])
        sides[here] = pair
    longest: dict[tuple[int, ...], int] = {}
    for here in sorted(sides, key=lambda state: sum(depth.get(k, 0) for k in state)):
        longest[here] = max((1 + longest[side] for side in sides[here]), default=0)
    leaves = tuple(value + LEAF_HALF for vector in vectors for value in vector)
    return Block(tuple(words), tuple(longest[roots] for roots in trees), leaves)


def _after(graph: Graph, here: tuple[int, ...], bit: int, value: int) -> tuple[int, ...]:
    """The steps that follow where an input bit has a value."""
    following = []
    for k in here:
        step = graph.steps[k]
        if isinstance(step, Choose) and step.bit == bit:
            following.append(step.one if value else step.zero)
        else:
            following.append(k)
    return tuple(following)
