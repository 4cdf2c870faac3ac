# SPDX-License-Identifier: Apache-2.0
"""Grows boosted trees over input bits whose cuts and nodes have a price.

Each round adds a tree by Newton steps on the cross-entropy (Friedman 2001). A tree grows
best-first: the split comes next whose gain exceeds its price most, where a cut that no node asks
yet is paid for in addition. So trees share few cuts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from n3ic.families.trees.arrays import Ints, Preorder
from n3ic.families.trees.simplify import possible
from n3ic.model.bits import Bits
from n3ic.model.inputs import InputSpec

Floats = NDArray[np.float64]
PRIOR = 3.0
"""Curvature that is added to each leaf's, so that few rows move it only a little."""
NODE_BYTES = 2.0
"""About what a node and a leaf take together."""
_LEAST_CURVE = 1e-3  # of a side
_PACK = float(1 << 26)  # sums below a fourth of it twice fit the 53 bits of a float
_LEAST_GAIN = 1e-6


class BitPlaces(NamedTuple):
    """Where the input bits lie in columns: the number of a column's bits that are set tells which.

    The bits of a thermometer are a column, every other bit is one alone. A histogram of a column
    has a place for each number of set bits; those of all columns follow each other.

    Attributes:
        column: the column of each bit, int64 of shape ``(n_bits,)``.
        level: a bit is set where more than so many bits of its column are, same shape.
        starts: first place of each column, int64 of shape ``(columns,)``.
        places: number of places.
    """

    column: Ints
    level: Ints
    starts: Ints
    places: int


def bit_places(spec: InputSpec) -> BitPlaces:
    """Place the bits of an input in columns."""
    each = [[f.width] if f.kind == "thermometer" else [1] * f.width for f in spec.fields]
    widths = np.concatenate(each)
    column = np.repeat(np.arange(len(widths)), widths)
    level = np.arange(len(column)) - (np.cumsum(widths) - widths)[column]
    ends = np.cumsum(widths + 1)
    return BitPlaces(column, level, ends - widths - 1, int(ends[-1]))


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """Rows of equal input bits, as one group each.

    Attributes:
        spec: the input bits.
        levels: number of set bits in each column, int32 of shape ``(groups, columns)``.
        counts: rows of each class, float64 of shape ``(groups, classes)``.
    """

    spec: InputSpec
    levels: NDArray[np.int32]
    counts: Floats

    @classmethod
    def of(
        cls, bits: Bits, label: NDArray[np.int64], spec: InputSpec, n_classes: int
    ) -> GroupedRows:
        """Group rows.

        Args:
            bits: bool array of shape ``(rows, n_bits)``.
            label: class index of each row.
            spec: the input bits.
            n_classes: number of classes.
        """
        starts = np.flatnonzero(bit_places(spec).level == 0)
        levels = np.add.reduceat(bits, starts, axis=1, dtype=np.int32)
        groups, group = np.unique(levels, axis=0, return_inverse=True)
        cells = np.bincount(group.ravel() * n_classes + label, minlength=len(groups) * n_classes)
        return cls(spec, groups, cells.reshape(len(groups), n_classes).astype(np.float64))

    @cached_property
    def bits(self) -> BitPlaces:
        """Where the input bits lie in the columns."""
        return bit_places(self.spec)

    @cached_property
    def places(self) -> NDArray[np.int32]:
        """The place of each group in each column's histogram, shape ``(groups, columns)``."""
        return np.asarray(self.levels + self.bits.starts, dtype=np.int32)

    @cached_property
    def weights(self) -> Floats:
        """Number of rows of each group."""
        return np.asarray(self.counts.sum(axis=1))

    def asked(self, bit: int, groups: Ints | None = None) -> Bits:
        """The value of an input bit in all or some groups."""
        levels = self.levels[:, self.bits.column[bit]]
        return np.asarray((levels if groups is None else levels[groups]) > self.bits.level[bit])

    def histogram(self, groups: Ints, sums: Derivatives) -> Floats:
        """Sum derivatives at each place: packed, shape ``(places,)``."""
        places, columns = self.places[groups].ravel(), self.places.shape[1]
        weights = np.repeat(sums.packed[groups], columns)
        return np.asarray(np.bincount(places, weights, self.bits.places), dtype=np.float64)

    def gains(self, histogram: Floats, sums: Derivatives) -> Floats:
        """What a split at each input bit gains, in nats: shape ``(n_bits,)``."""
        column, level, starts, places = self.bits
        running = np.concatenate([[0.0], np.cumsum(histogram)])
        whole = running[starts[1] if len(starts) > 1 else places]
        zero = running[starts[column] + level + 1] - running[starts[column]]
        sides = sums.unpacked(zero), sums.unpacked(whole - zero)
        gains = (sum(map(_worth, sides)) - _worth(sums.unpacked(whole))) / 2
        gains[(sides[0][1] < _LEAST_CURVE) | (sides[1][1] < _LEAST_CURVE)] = 0
        return np.asarray(gains)


class Derivatives(NamedTuple):
    """The loss's first and second derivatives of each group, as integers in one float.

    Sums of integers are exact in any order, and one sum serves both.

    Attributes:
        packed: the second times ``_PACK``, plus the first, shape ``(groups,)``.
        units: what an integer of each stands for.
    """

    packed: Floats
    units: tuple[float, float]

    @classmethod
    def of(cls, slopes: Floats, curves: Floats) -> Derivatives:
        """Pack derivatives of each group."""
        units = tuple(float(np.abs(each).sum()) / (_PACK / 4) or 1.0 for each in (slopes, curves))
        first, second = (np.rint(e / u) for e, u in zip((slopes, curves), units, strict=True))
        return cls(second * _PACK + first, (units[0], units[1]))

    def unpacked(self, sums: Floats) -> tuple[Floats, Floats]:
        """Both sums, in nats."""
        second = np.floor(sums / _PACK + 0.5)
        return (sums - second * _PACK) * self.units[0], second * self.units[1]


def _worth(sums: tuple[Floats, Floats]) -> Floats:
    return np.asarray(sums[0] ** 2 / (sums[1] + PRIOR))


class Growth(NamedTuple):
    """How trees grow.

    Attributes:
        leaves: largest number of leaves of a tree.
        rounds: number of boosting rounds.
        rate: share of each tree's leaf values that counts.
        price: nats of gain that a byte of nodes, leaves or cuts must bring.
        cuts: largest number of different cuts; 0 for no limit.
        limit: number of bytes, roughly counted, after which growth ends; 0 for no limit.
    """

    leaves: int
    rounds: int
    rate: float
    price: float = 0.0
    cuts: int = 0
    limit: int = 0


@dataclass(frozen=True, eq=False)
class GrownTrees:
    """Boosted trees with real leaf values.

    A place is a node or a leaf. Places are numbered as they grew: both sides of a node follow it,
    the zero side right before the one side.

    Attributes:
        bits: the input bit of each place, -1 for a leaf, int64 array of shape ``(places,)``.
        zero: the place on the zero side of each node, same shape.
        parents: the node above each place, -1 for a root, same shape.
        turns: number of splits before that of each node, and of all splits for a leaf.
        values: what each place would add as a leaf, in log-odds, float64, same shape.
        roots: the root of each tree, int64 array of shape ``(trees,)``.
        of_class: the class to whose score each tree adds, same shape.
        reached: the leaf that each group of training rows reaches, int32 of shape
            ``(groups, trees)``.
        base: the score of each class without trees, float64 array of shape ``(classes,)``;
            ``-inf`` for a class without a training row.
    """

    bits: Ints
    zero: Ints
    parents: Ints
    turns: Ints
    values: Floats
    roots: Ints
    of_class: Ints
    reached: NDArray[np.int32]
    base: Floats

    @property
    def splits(self) -> int:
        """Number of splits of all trees."""
        return int((self.bits >= 0).sum())

    def ends(self) -> Ints:
        """Number of splits after each tree."""
        return np.append(self.turns[self.roots[1:]], self.splits)

    def trees_of(self, splits: int) -> int:
        """Number of trees that the first splits make."""
        return int((self.turns[self.roots] < splits).sum())

    def stops(self, splits: int) -> Ints:
        """Where a row that reaches a place ends after so many splits: a place for each place."""
        stop = np.arange(len(self.bits))
        late = self.turns >= splits
        for place in np.flatnonzero((self.parents >= 0) & late[self.parents]).tolist():
            stop[place] = stop[self.parents[place]]
        return stop

    def laid(self, spec: InputSpec, splits: int) -> Preorder:
        """Lay out the trees of the first splits; leaves bear the numbers of places."""
        node = self.turns < splits
        side = np.where(node, np.arange(len(node)), ~np.arange(len(node)))
        zero, one = (side[np.where(node, self.zero + k, 0)].tolist() for k in (0, 1))
        roots = side[self.roots[: self.trees_of(splits)]].tolist()
        return possible(spec, roots, self.bits.tolist(), zero, one)

    def reach(self, rows: GroupedRows) -> NDArray[np.int32]:
        """Find the leaf that each group of other rows reaches in each tree."""
        column, level = rows.bits.column[self.bits], rows.bits.level[self.bits]
        every = np.arange(len(rows.levels))
        out = np.empty((len(every), len(self.roots)), dtype=np.int32)
        for tree, root in enumerate(self.roots.tolist()):
            at = np.full(len(every), root)
            moving = every
            while len(moving := moving[self.bits[at[moving]] >= 0]):
                node = at[moving]
                at[moving] = self.zero[node] + (rows.levels[moving, column[node]] > level[node])
            out[:, tree] = at
        return out


def grown(rows: GroupedRows, how: Growth) -> GrownTrees:
    """Grow boosted trees on training rows of at least two classes.

    Args:
        rows: the rows.
        how: how the trees grow.
    """
    totals = rows.counts.sum(axis=0)
    base = np.log(totals, out=np.full(len(totals), -np.inf), where=totals > 0)
    present = np.flatnonzero(totals)
    own = present if len(totals) > 2 else np.array([1])  # two classes share a sum
    if len(totals) == 2:
        base = np.array([0.0, base[1] - base[0]])
    grower = _Grower(rows, how)
    scores = np.tile(base, (len(rows.counts), 1))
    for _ in range(how.rounds):
        chances = chances_of(scores)
        before = grower.splits
        for each in own.tolist():
            slopes = rows.counts[:, each] - rows.weights * chances[:, each]
            curves = rows.weights * chances[:, each] * (1 - chances[:, each])
            scores[:, each] += grower.add(each, slopes, curves)
        if grower.splits == before or (how.limit and grower.bytes > how.limit):
            break
    return grower.trees(base)


def chances_of(scores: Floats) -> Floats:
    """Probabilities of all classes: shape ``(rows, classes)``."""
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


class _Leaf(NamedTuple):
    """A leaf that may split: its place, its groups of rows, and their sums."""

    place: int
    groups: Ints
    histogram: Floats
    gains: Floats


class _Grower:
    """Trees that grow, and the cuts that they ask.

    Args:
        rows: training rows.
        how: how the trees grow.
    """

    def __init__(self, rows: GroupedRows, how: Growth) -> None:
        self._rows, self._how = rows, how
        self._cut_bytes = np.repeat(
            [float(f.cut_bytes) for f in rows.spec.fields],
            [f.width for f in rows.spec.fields],
        )
        self._prices = how.price * (NODE_BYTES + self._cut_bytes)  # of a node that asks each bit
        self._asked = np.zeros(rows.spec.n_bits, dtype=np.bool_)
        self._bits: list[int] = []
        self._zero: list[int] = []
        self._parents: list[int] = []
        self._turns: list[int] = []
        self._values: list[float] = []
        self._roots: list[int] = []
        self._of_class: list[int] = []
        self._reached: list[NDArray[np.int32]] = []
        self.splits = 0

    @property
    def bytes(self) -> float:
        """About how many bytes the trees take."""
        return self.splits * NODE_BYTES + float(self._cut_bytes[self._asked].sum())

    def add(self, of_class: int, slopes: Floats, curves: Floats) -> Floats:
        """Grow a tree, if a split is worth its price.

        Args:
            of_class: the class to whose score it adds.
            slopes: sum of what each group of rows lacks in probability, shape ``(groups,)``.
            curves: sum of the second derivatives of the loss, same shape.

        Returns:
            What the tree adds to the score of each group, shape ``(groups,)``.
        """
        rows, how = self._rows, self._how
        every = np.arange(len(rows.counts))
        sums = Derivatives.of(slopes, curves)
        histogram = rows.histogram(every, sums)
        leaves = [_Leaf(len(self._bits), every, histogram, rows.gains(histogram, sums))]
        bests = [self._best(leaves[0])]
        if bests[0][0] <= _LEAST_GAIN:
            return np.zeros(len(every))
        self._place(-1, every, slopes, curves)
        self._roots.append(leaves[0].place)
        self._of_class.append(of_class)
        while len(leaves) < how.leaves and not (how.limit and self.bytes > how.limit):
            k = max(range(len(leaves)), key=lambda i: bests[i][0])
            gain, bit = bests[k]
            if gain <= _LEAST_GAIN:
                break
            sides = self._split(leaves[k], bit, slopes, curves, sums)
            leaves[k : k + 1], bests[k : k + 1] = sides, [self._best(side) for side in sides]
            if not self._asked[bit]:
                self._ask(bit)
                bests = [self._best(leaf) for leaf in leaves] if self._full else [
                    max(best, (float(leaf.gains[bit] - self._prices[bit]), bit))
                    for leaf, best in zip(leaves, bests, strict=True)
                ]  # fmt: skip
        reached = np.empty(len(every), dtype=np.int32)
        for leaf in leaves:
            reached[leaf.groups] = leaf.place
        self._reached.append(reached)
        return np.array(self._values)[reached]

    def trees(self, base: Floats) -> GrownTrees:
        """All trees that grew."""
        turns = np.array(self._turns, dtype=np.int64)
        return GrownTrees(
            bits=np.array(self._bits, dtype=np.int64),
            zero=np.array(self._zero, dtype=np.int64),
            parents=np.array(self._parents, dtype=np.int64),
            turns=np.where(turns < 0, self.splits, turns),
            values=np.array(self._values, dtype=np.float64),
            roots=np.array(self._roots, dtype=np.int64),
            of_class=np.array(self._of_class, dtype=np.int64),
            reached=np.stack(self._reached, axis=1)
            if self._reached
            else np.empty((len(self._rows.counts), 0), dtype=np.int32),
            base=base,
        )

    @property
    def _full(self) -> bool:
        """Whether no other cut may be asked."""
        return 0 < self._how.cuts <= int(self._asked.sum())

    def _ask(self, bit: int) -> None:
        """Note that a node asks a bit, which is paid for from now on."""
        self._asked[bit] = True
        self._prices[bit] = self._how.price * NODE_BYTES
        if self._full:
            self._prices[~self._asked] = np.inf

    def _best(self, leaf: _Leaf) -> tuple[float, int]:
        """The largest gain above the price, and its bit."""
        net = leaf.gains - self._prices
        bit = int(net.argmax())
        return float(net[bit]), bit

    def _place(self, parent: int, groups: Ints, slopes: Floats, curves: Floats) -> int:
        step = slopes[groups].sum() / (curves[groups].sum() + PRIOR)
        self._bits.append(-1)
        self._zero.append(0)
        self._parents.append(parent)
        self._turns.append(-1)
        self._values.append(self._how.rate * float(step))
        return len(self._bits) - 1

    def _split(
        self, leaf: _Leaf, bit: int, slopes: Floats, curves: Floats, sums: Derivatives
    ) -> list[_Leaf]:
        rows = self._rows
        one = rows.asked(bit, leaf.groups)
        groups = leaf.groups[~one], leaf.groups[one]
        self._bits[leaf.place], self._turns[leaf.place] = bit, self.splits
        self._zero[leaf.place] = len(self._bits)
        self.splits += 1
        fewer = int(len(groups[1]) < len(groups[0]))
        small = rows.histogram(groups[fewer], sums)
        both = (small, leaf.histogram - small)
        out = []
        for side in (0, 1):
            histogram = both[int(side != fewer)]
            place = self._place(leaf.place, groups[side], slopes, curves)
            out.append(_Leaf(place, groups[side], histogram, rows.gains(histogram, sums)))
        return out
