# SPDX-License-Identifier: Apache-2.0
"""Turns a model into look-up tables: drops needless parts, and shares sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.netfpga.lut_packing import lut_pairs
from n3ic.exporters.netfpga.unrolled import rules
from n3ic.exporters.netfpga.unrolled.bit_heap import BitHeap, BitHeapCompressor
from n3ic.exporters.netfpga.unrolled.netlist import FALSE, TRUE, Netlist
from n3ic.exporters.netfpga.unrolled.ranking import Ranking, below_threshold, ranked
from n3ic.exporters.netfpga.unrolled.shared_sums import BoundedSum, Row, compare_sums
from n3ic.model.layers import Connections, HiddenLayer
from n3ic.model.network import BinaryModel
from n3ic.model.passes.dead import read_neurons

# Group sizes of neurons that share partial sums; per layer the cheapest size is chosen.
GROUP_SIZES = (8, 4, 2, 1)
# With more classes than this, a tournament of scores is smaller than comparing every pair.
PAIRWISE_CLASSES = 3


@dataclass(frozen=True)
class LutNetwork:
    """A model as look-up tables.

    Attributes:
        net: the tables.
        classes: literals of the class index, lowest bit first.
        scores: literals of each class's score in two's complement.
        margin: literals of the margin, lowest bit first.
        hidden: literals of the hidden bits, layer by layer; read by the trace.
        with_scores: whether the core outputs scores and margin; otherwise only the trace does.
        shunt: literal that says whether the margin is below the model's threshold; empty without a
            threshold.
    """

    net: Netlist
    classes: tuple[int, ...]
    scores: tuple[tuple[int, ...], ...]
    margin: tuple[int, ...]
    hidden: tuple[int, ...]
    with_scores: bool
    shunt: tuple[int, ...] = ()

    @property
    def outputs(self) -> tuple[int, ...]:
        """All literals that the core outputs, without the trace."""
        always = (*self.classes, *self.shunt)
        return (*always, *self._rated) if self.with_scores else always

    @property
    def traced(self) -> tuple[int, ...]:
        """All literals that a debug build outputs in addition."""
        return self.hidden if self.with_scores else (*self.hidden, *self._rated)

    @property
    def _rated(self) -> tuple[int, ...]:
        return (*(bit for score in self.scores for bit in score), *self.margin)


def score_width(model: BinaryModel) -> int:
    """Width of a score in two's complement, in bits; a margin fits the same width unsigned."""
    bias, fan_in = model.output.bias, model.output.fan_in
    low, high = int(bias.min()), int((bias + fan_in).max())
    return max((-low - 1).bit_length() if low < 0 else 0, high.bit_length() if high > 0 else 0) + 1


def class_width(model: BinaryModel) -> int:
    """Width of a class index, in bits."""
    return max(1, (len(model.classes) - 1).bit_length())


def build(model: BinaryModel, *, scores: bool) -> LutNetwork:
    """Turn a model into look-up tables.

    Args:
        model: the network.
        scores: whether to output scores and margin in addition to the class. Otherwise neurons and
            inputs that do not affect the class are dropped, unless the margin of three or more
            classes decides about shunting.
    """
    ranks = scores or (model.shunt > 0 and len(model.classes) > 2)
    builder = _Builder(model.input.n_bits)
    inputs = [builder.net.input(i) for i in range(model.input.n_bits)]
    used = [np.flatnonzero(read).tolist() for read in read_neurons(model, scores=ranks)]
    ruled = rules.layers(model)
    for i in ruled:
        used[i - 1] = []  # the ANDs become part of the formula and exist only in the trace
    hidden: list[list[int]] = []
    literals = inputs
    for i, (layer, alive) in enumerate(zip(model.hidden, used, strict=True)):
        below = hidden[i - 2] if i > 1 else inputs
        if i in ruled:
            literals = rules.fire(builder.net, model.hidden[i - 1], layer, below, f"l{i}")
        else:
            literals = builder.fire(layer, literals, alive, f"l{i}")
        hidden.append(literals)
    totals = [
        _Sum.of(model.output, c, literals).plus(int(b)) for c, b in enumerate(model.output.bias)
    ]
    width = score_width(model)
    shunt: tuple[int, ...] = ()
    if ranks:
        ranking = builder.ranked(totals, width)
        classes = ranking.index
        if model.shunt:
            shunt = (below_threshold(builder.adder, ranking.margin, model.shunt),)
    elif model.shunt:
        classes, shunt = builder.duel_or_shunt(totals[0], totals[1], model.shunt)
    else:
        classes = builder.winner(totals, width)
    literals = inputs
    for i, (layer, alive, traced) in enumerate(zip(model.hidden, used, hidden, strict=True)):
        # Neurons that the output does not need exist only in the trace.
        idle = sorted(set(range(layer.n_outputs)) - set(alive))
        out = builder.fire(layer, literals, idle, f"l{i}", alone=True)
        for j in idle:
            traced[j] = out[j]
        literals = traced
    if not ranks:
        totals = [
            _Sum.of(model.output, c, literals).plus(int(b)) for c, b in enumerate(model.output.bias)
        ]
        ranking = builder.ranked(totals, width)
    return LutNetwork(
        builder.net,
        classes,
        ranking.scores,
        ranking.margin,
        tuple(x for traced in hidden for x in traced),
        with_scores=scores,
        shunt=shunt,
    )


@dataclass(frozen=True)
class _Sum:
    """``offset + sum(coefficient * node)`` of a neuron.

    Attributes:
        row: pairs (literal of a node, coefficient), ascending.
        offset: constant part.
    """

    row: Row
    offset: int

    @classmethod
    def of(cls, layer: Connections, neuron: int, literals: Sequence[int]) -> _Sum:
        """The number of inputs of a neuron that agree with their weight bits."""
        total: dict[int, int] = defaultdict(int)
        offset = 0
        mask = None if layer.mask is None else layer.mask[neuron]
        for i, weight in enumerate(layer.weights[neuron]):
            if mask is not None and not mask[i]:
                continue
            # XNOR with a constant weight is the bit or its inverse, and !x counts as 1 - x.
            literal = literals[i] ^ int(not weight)
            sign = -1 if literal & 1 else 1
            offset += literal & 1
            total[literal & ~1] += sign
        total.pop(FALSE, None)
        return cls(tuple(sorted((x, c) for x, c in total.items() if c)), offset)

    def plus(self, constant: int) -> _Sum:
        """Add a constant."""
        return _Sum(self.row, self.offset + constant)

    def minus(self, other: _Sum) -> _Sum:
        """The difference of two sums."""
        total = defaultdict(int, self.row)
        for literal, coefficient in other.row:
            total[literal] -= coefficient
        row = tuple(sorted((x, c) for x, c in total.items() if c))
        return _Sum(row, self.offset - other.offset)

    def heap(self) -> BitHeap:
        """The sum as a heap of bits."""
        heap = BitHeap(offset=self.offset)
        for literal, coefficient in self.row:
            heap.add_bit(literal, coefficient)
        return heap


class _Builder:
    """Adds layers to a netlist."""

    def __init__(self, n_inputs: int) -> None:
        self.net = Netlist(n_inputs)
        self.adder = BitHeapCompressor(self.net)

    def fire(
        self,
        layer: HiddenLayer,
        literals: Sequence[int],
        neurons: Sequence[int],
        name: str,
        *,
        alone: bool = False,
    ) -> list[int]:
        """Literals of the given neurons of a layer; FALSE for the other neurons.

        ``alone=True`` keeps the neurons from sharing partial sums.
        """
        out = [FALSE] * layer.n_outputs
        tests = [
            (_Sum.of(layer, j, literals), int(layer.thresholds[j]), f"{name}_n{j}") for j in neurons
        ]
        for j, literal in zip(neurons, self.decide(tests, f"{name}_c", alone=alone), strict=True):
            out[j] = literal
        return out

    def decide(
        self, tests: Sequence[tuple[_Sum, int, str]], cells: str, *, alone: bool = False
    ) -> list[int]:
        """Test whether each sum reaches its bound; equal and opposite sums are computed once."""
        answers = [FALSE] * len(tests)
        bounds: dict[Row, dict[int, list[tuple[int, int]]]] = defaultdict(dict)
        for index, (total, threshold, _) in enumerate(tests):
            row, bound, flip = _canonical(total.row, threshold - total.offset)
            # A bound outside the range of the sum makes the test constant and needs no logic.
            if bound <= sum(min(c, 0) for _, c in row):
                answers[index] = TRUE ^ flip
            elif bound > sum(max(c, 0) for _, c in row):
                answers[index] = FALSE ^ flip
            else:
                bounds[row].setdefault(bound, []).append((index, flip))
        goals = [
            BoundedSum(
                row,
                tuple(users_of_bounds),
                tuple(tests[users[0][0]][2] for users in users_of_bounds.values()),
            )
            for row, users_of_bounds in bounds.items()
        ]
        sizes = (1,) if alone else GROUP_SIZES
        literals = self._cheapest(goals, sizes, cells)
        for users_of_bounds, got in zip(bounds.values(), literals, strict=True):
            for users, literal in zip(users_of_bounds.values(), got, strict=True):
                for index, flip in users:
                    answers[index] = literal ^ flip
        return answers

    def _cheapest(
        self, goals: Sequence[BoundedSum], sizes: Sequence[int], cells: str
    ) -> list[list[int]]:
        """Decide the goals in groups of the size that needs the fewest LUT sites."""
        best: tuple[int, BitHeapCompressor, list[list[int]]] | None = None
        for size in sizes:
            # Sharing is hard to predict, so every group size is built on a copy, and the cheapest
            # kept.
            adder = self.adder.fork()
            literals = compare_sums(adder, goals, grouped(goals, size), cells)
            live = adder.net.live(x for got in literals for x in got)
            supports = [adder.net.table(node).inputs for node in live if node >= self.net.n_nodes]
            cost = len(supports) - lut_pairs(supports)
            if best is None or cost < best[0]:
                best = (cost, adder, literals)
        if best is None:
            return []
        self.adder = best[1]
        self.net = self.adder.net
        return best[2]

    # --- classes -----------------------------------------------------------------------------

    def winner(self, totals: Sequence[_Sum], width: int) -> tuple[int, ...]:
        """Index of the largest sum, lowest bit first; the lowest index wins a tie."""
        if len(totals) > PAIRWISE_CLASSES:
            return self.ranked(totals, width).index
        beats = {
            (a, b): literal
            for (a, b), literal in zip(
                combinations(range(len(totals)), 2),
                self.decide(
                    [
                        # The higher index must win strictly, so that a tie goes to the lower one.
                        (totals[b].minus(totals[a]), 1, f"class{b}_over{a}")
                        for a, b in combinations(range(len(totals)), 2)
                    ],
                    "class_c",
                ),
                strict=True,
            )
        }
        wins = []  # for each class but the first, whose index 0 needs no logic
        for c in range(1, len(totals)):
            duels = [beats[min(c, d), max(c, d)] ^ int(d > c) for d in range(len(totals)) if d != c]
            wins.append(self.net.all_of(duels, f"class{c}_wins"))
        return tuple(
            self.net.any_of((w for c, w in enumerate(wins, 1) if c >> bit & 1), f"class_b{bit}")
            for bit in range((len(totals) - 1).bit_length())
        )

    def duel_or_shunt(
        self, first: _Sum, second: _Sum, threshold: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Build the class index of two classes, and whether their lead is below a threshold."""
        lead = second.minus(first)
        tests = [
            (lead, 1, "class1_over0"),
            (lead, threshold, "class1_decided"),
            (lead, 1 - threshold, "class0_undecided"),
        ]
        # Shunted iff 1 - threshold <= lead < threshold; all three tests share one sum.
        wins, decided, undecided = self.decide(tests, "class_c")
        return (wins,), (self.net.all_of((undecided, decided ^ 1), "shunt"),)

    def ranked(self, totals: Sequence[_Sum], width: int) -> Ranking:
        """Class, scores and margin, by a tournament of scores."""
        scores = []
        for c, total in enumerate(totals):
            heap = total.heap()
            # The offset is added modulo 2**width, which two's complement allows: scores fit the
            # width.
            number = self.adder.number(heap, f"score{c}", heap.offset % (1 << width), width)
            scores.append(number.bits)
        return ranked(self.adder, scores, width)


def _canonical(row: Row, bound: int) -> tuple[Row, int, int]:
    """The same test with a positive first coefficient and no common divisor, and its inversion."""
    if not row:
        return row, bound, 0
    divisor = gcd(*(c for _, c in row))
    bound = -(-bound // divisor)
    if row[0][1] > 0:
        return tuple((x, c // divisor) for x, c in row), bound, 0
    # sum >= bound is the negation of -sum >= 1 - bound.
    return tuple((x, -c // divisor) for x, c in row), 1 - bound, 1


def grouped(goals: Sequence[BoundedSum], size: int) -> list[list[int]]:
    """Group goals with common inputs, at most ``size`` (a power of two) per group."""
    groups = [[index] for index in range(len(goals))]
    if size == 1 or len(goals) < 2:
        return groups
    columns = {x: k for k, x in enumerate(sorted({x for goal in goals for x, _ in goal.row}))}
    signs = np.zeros((len(goals), len(columns)), dtype=np.int32)
    for index, goal in enumerate(goals):
        for x, c in goal.row:
            signs[index, columns[x]] = c if abs(c) == 1 else 0
    # Counts common inputs, plus the surplus of equal or of opposite signs: the longer S or D is,
    # the more work both goals share.
    common = np.abs(signs) @ np.abs(signs).T + np.abs(signs @ signs.T)
    while len(groups[0]) < size and len(groups) > 1:
        gain = np.array([[int(common[np.ix_(a, b)].sum()) for b in groups] for a in groups])
        groups = _matched(groups, gain)
    return groups


def _matched(groups: list[list[int]], gain: NDArray[np.int64]) -> list[list[int]]:
    """Join groups in pairs, greedily by gain."""
    order = sorted(combinations(range(len(groups)), 2), key=lambda ab: (-int(gain[ab]), ab))
    free = set(range(len(groups)))
    out = []
    for a, b in order:
        if a in free and b in free:
            free -= {a, b}
            out.append(groups[a] + groups[b])
    return out + [groups[index] for index in sorted(free)]
