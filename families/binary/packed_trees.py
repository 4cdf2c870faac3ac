# SPDX-License-Identifier: Apache-2.0
"""Decision trees as a card would store them, so that their bytes are counted, not estimated.

All trees share one table of distinct cuts, stored as those of a network's input stage: 1, 2 or 4
bytes a cut, and a byte a column. In both, which column that is, is wiring, which takes no bytes.
A split stores the index of its cut, its near child (the next split, or a vote) and its far child (a
vote, or the number of a split). A leaf votes for a class, with a weight of two bits if several
trees vote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from n3ic.model.bits import bytes_for
from n3ic.model.inputs import UINT32_MAX

if TYPE_CHECKING:
    from n3ic.runs.training_rows import Prepared
    from n3ic.training.baselines import Prediction

_CUT_BYTES = 2.25  # about, with the byte of the column
_MOST_OF_A_BYTE = 63  # cuts of a column that a byte counts
TREE, FOREST = "tree, packed", "forest, packed"
FOREST_TREES = 60
"""Number of trees of the baseline; they may have any size."""
_WEIGHTS = 3  # weights of a forest's vote: 2 classes and the mark of a next split fit three bits
_TREES = (3, 5, 9, 21)
_CUT_SHARES = (0.3, 0.6)  # tried shares of a forest's bytes that its cuts take
_CANDIDATES = 0.5  # share of the columns that a split chooses from, so that trees differ
_MOST_LEAVES = 4096
_Vote = Callable[[NDArray[np.float64]], NDArray[np.int64]]  # class shares of nodes to votes
Cut = tuple[int, int]  # a column, and the least integer that goes to the right


@dataclass(frozen=True, eq=False)
class TreeSplit:
    """A comparison and its two sides; a side is a split or a vote."""

    cut: Cut
    left: TreeSplit | int
    right: TreeSplit | int


@dataclass(frozen=True, eq=False)
class PackedTrees:
    """Trees as bytes, and what a reader must know about their layout.

    Attributes:
        data: the cuts by column, the roots, then the splits of each tree from the root on, left
            side first.
        columns: the column that each cut compares.
        trees: number of trees, which all vote.
        splits: number of splits in all trees.
        classes: number of classes.
        weights: number of different weights of a vote.
    """

    data: bytes
    columns: tuple[int, ...]
    trees: int
    splits: int
    classes: int
    weights: int

    @cached_property
    def _cuts(self) -> tuple[NDArray[np.int64], int]:
        """The distinct cuts, int64 array of shape ``(cuts,)``, and their bytes."""
        counts = [len([*of]) for _, of in groupby(self.columns)]
        form, at = _form_bytes(counts), 0
        cuts = [np.zeros(0, np.int64)]
        for count in counts:
            width = 1 << (self.data[at] % 4 - 1)
            cuts.append(np.frombuffer(self.data, f"<u{width}", count, at + form).astype(np.int64))
            at += form + width * count
        return np.concatenate(cuts), at

    @property
    def cut_bytes(self) -> int:
        """Bytes of the distinct cuts."""
        return self._cuts[1]

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by part: cuts, and the splits with their indices."""
        return {"input_bytes": self.cut_bytes, "index_bytes": len(self.data) - self.cut_bytes}

    def votes(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count votes for each class: int64, ``(rows, classes)``; the first class wins a tie.

        Args:
            columns: integers in ``0..2^32-1``, shape ``(rows, features)``.
        """
        cut = self._cuts[0]
        bits = np.unpackbits(np.frombuffer(self.data, np.uint8, offset=self.cut_bytes))
        leaves = self.classes * self.weights
        index, near, far = widths = _widths(len(cut), self.splits, leaves)
        roots = _numbers(bits[: self.trees * far].reshape(-1, far))
        table = bits[self.trees * far :][: self.splits * sum(widths)].reshape(-1, sum(widths))
        which, left, right = map(_numbers, np.split(table, [index, index + near], axis=1))
        own = np.arange(self.splits)
        left = np.where(left == 0, leaves + own + 1, left - 1)
        compared, every = np.array(self.columns, dtype=np.int64), np.arange(len(columns))
        out = np.zeros((len(columns), self.classes), dtype=np.int64)
        for root in roots.tolist():
            at = np.full(len(columns), root)
            while len(moving := np.flatnonzero(at >= leaves)):
                split = at[moving] - leaves
                bigger = columns[moving, compared[which[split]]] >= cut[which[split]]
                at[moving] = np.where(bigger, right[split], left[split])
            out[every, at // self.weights] += at % self.weights + 1
        return out


def packed(trees: Sequence[TreeSplit | int], classes: int, weights: int = 1) -> PackedTrees:
    """Pack trees.

    Args:
        trees: one or more trees; a vote is ``weights * class + weight - 1``.
        classes: number of classes.
        weights: number of different weights of a vote.
    """
    splits = [split for tree in trees for split in _splits(tree)]
    cuts = sorted({split.cut for split in splits})
    place = {cut: i for i, cut in enumerate(cuts)}
    number = {id(split): i for i, split in enumerate(splits)}
    leaves = classes * weights

    def far(side: TreeSplit | int) -> int:
        return leaves + number[id(side)] if isinstance(side, TreeSplit) else side

    fields = (
        [place[split.cut] for split in splits],
        [0 if isinstance(split.left, TreeSplit) else split.left + 1 for split in splits],
        [far(split.right) for split in splits],
    )
    widths = _widths(len(cuts), len(splits), leaves)
    rows = [_digits(f, width) for f, width in zip(fields, widths, strict=True)]
    stream = [_digits([far(tree) for tree in trees], widths[2]).ravel()]
    stream += [np.concatenate(rows, axis=1).ravel()]
    data = _cut_data(cuts)
    data += np.packbits(np.concatenate(stream)).tobytes()
    return PackedTrees(data, tuple(c for c, _ in cuts), len(trees), len(splits), classes, weights)


def packed_bytes(trees: Iterable[TreeSplit | int], votes: int) -> int:
    """Number of bytes that :func:`packed` makes of trees with a number of different votes."""
    each = [_splits(tree) for tree in trees]
    splits = [split for tree in each for split in tree]
    cuts = sorted({split.cut for split in splits})
    widths = _widths(len(cuts), len(splits), votes)
    rest = -(-(len(each) * widths[2] + len(splits) * sum(widths)) // 8)
    return len(_cut_data(cuts)) + rest


def _cut_data(cuts: Sequence[Cut]) -> bytes:
    """Store sorted cuts by column: their number and a code of their width, then the cuts."""
    columns = [[cut for _, cut in of] for _, of in groupby(cuts, lambda cut: cut[0])]
    form, data = _form_bytes([len(own) for own in columns]), b""
    for own in columns:
        width = bytes_for(own[-1])
        data += (4 * len(own) + width.bit_length()).to_bytes(form, "little")
        data += np.array(own, f"<u{width}").tobytes()
    return data


def _form_bytes(counts: Sequence[int]) -> int:
    return 2 if max(counts, default=0) > _MOST_OF_A_BYTE else 1


def _widths(cuts: int, splits: int, votes: int) -> tuple[int, int, int]:
    """Widths of a split's fields in bits: cut, near child, far child."""
    return max(cuts - 1, 0).bit_length(), votes.bit_length(), (votes + splits - 1).bit_length()


def _digits(numbers: Sequence[int], width: int) -> NDArray[np.uint8]:
    shifts = np.arange(width)[::-1]
    return (np.array(numbers, dtype=np.int64)[:, None] >> shifts & 1).astype(np.uint8)


def _numbers(digits: NDArray[np.uint8]) -> NDArray[np.int64]:
    return digits.astype(np.int64) @ (1 << np.arange(digits.shape[1], dtype=np.int64)[::-1])


def _splits(tree: TreeSplit | int) -> list[TreeSplit]:
    """List the splits of a tree, each followed by its left side if that is a split."""
    splits, left = [], [tree]
    while left:
        node = left.pop()
        if isinstance(node, TreeSplit):
            splits.append(node)
            left += [node.right, node.left]
    return splits


def least_right(thresholds: NDArray[np.float64]) -> NDArray[np.int64]:
    """The least integer that scikit-learn, comparing in float32, sends right at each threshold."""
    low, high = np.zeros(len(thresholds), np.int64), np.full(len(thresholds), UINT32_MAX + 1)
    while (low < high).any():
        middle = (low + high) // 2
        right = middle.astype(np.float32).astype(np.float64) > thresholds
        low, high = np.where(right | (low == high), low, middle + 1), np.where(right, middle, high)
    return low


def split_tree(
    tree: Any,
    vote: _Vote,
    leaves: int = 0,
    cuts: Sequence[Sequence[Cut]] = (),
) -> TreeSplit | int:
    """Convert a tree of scikit-learn, without splits whose sides vote alike.

    Args:
        tree: the arrays of the tree, which must be grown best-first if ``leaves`` is given.
        vote: function from class shares of nodes, shape ``(nodes, classes)``, to their votes.
        leaves: number of leaves to keep, in the order in which the tree grew; 0 for all.
        cuts: the cuts of each column, if columns hold how many of their cuts a value reaches;
            empty if columns hold the values.
    """
    votes = vote(tree.value[:, 0]).tolist()
    right = least_right(tree.threshold).tolist()
    columns, below = tree.feature.tolist(), tree.children_left.tolist()
    # scikit-learn appends both children when it makes a split, so their numbers show the order.
    turns = sorted(child for child in below if child >= 0)
    last = max(turns[: leaves - 1] if leaves else turns, default=-1)
    nodes: list[TreeSplit | int] = votes
    for i in reversed(range(len(below))):
        if 0 <= below[i] <= last:
            a, b = nodes[below[i]], nodes[int(tree.children_right[i])]
            same = not isinstance(a, TreeSplit) and a == b
            column, least = columns[i], right[i]
            cut = cuts[column][least - 1] if cuts else (column, least)
            nodes[i] = a if same else TreeSplit(cut, a, b)
    return nodes[0]


def tree_within(
    columns: NDArray[np.int64], label: NDArray[np.int64], budget: int, classes: int, seed: int
) -> PackedTrees | None:
    """Grow a best-first tree, and pack as many of its first leaves as fit a number of bytes.

    Args:
        columns: integers of training rows, shape ``(rows, features)``.
        label: class index of each row, shape ``(rows,)``.
        budget: largest number of bytes.
        classes: number of classes.
        seed: selects among equally good splits.

    Returns:
        The packed tree; None if no split fits.
    """
    from sklearn.tree import DecisionTreeClassifier

    most = min(max(2, budget), _MOST_LEAVES)  # a split takes at least a byte
    full_tree = DecisionTreeClassifier(max_leaf_nodes=most, random_state=seed).fit(columns, label)
    known = full_tree.classes_

    def first(leaves: int) -> list[TreeSplit | int]:
        return [split_tree(full_tree.tree_, lambda share: known[share.argmax(axis=1)], leaves)]

    leaves = most_leaves(int(full_tree.get_n_leaves()), partial(_fit, first, classes, budget))
    return packed(first(leaves), classes) if leaves > 1 else None


def forests_within(
    columns: NDArray[np.int64], label: NDArray[np.int64], budget: int, classes: int, seed: int
) -> Iterator[PackedTrees]:
    """Yield forests of several numbers of trees and cuts, each with the largest trees that fit.

    The trees share the cuts of a best-first tree: a cut of its own costs more than a split.

    Args:
        columns: integers of training rows, shape ``(rows, features)``.
        label: class index of each row, shape ``(rows,)``.
        budget: largest number of bytes of one forest.
        classes: number of classes.
        seed: seed of the trees.
    """
    from sklearn.ensemble import RandomForestClassifier

    from n3ic.training.baselines import best_first_tree

    for share in _CUT_SHARES:
        cut_count = int(share * budget / _CUT_BYTES)
        if cut_count < 2:
            continue
        tree = best_first_tree(columns, label, cut_count, seed).tree_
        inner = tree.children_left >= 0
        at = zip(tree.feature[inner].tolist(), least_right(tree.threshold[inner]), strict=True)
        every = sorted({(column, int(right)) for column, right in at})
        cuts = [list(of) for _, of in groupby(every, lambda cut: cut[0])]
        if not cuts:
            return
        bins = [np.searchsorted([c for _, c in of], columns[:, of[0][0]], "right") for of in cuts]
        # Equal rows are merged into one with their count: the same shares, but faster.
        rows, count = np.unique(np.stack([*bins, label], axis=1), axis=0, return_counts=True)
        forest = RandomForestClassifier(
            n_estimators=_TREES[-1],
            max_leaf_nodes=min(max(2, budget), _MOST_LEAVES),
            max_features=_CANDIDATES,
            bootstrap=False,
            random_state=seed,
            n_jobs=1,
        ).fit(rows[:, :-1], rows[:, -1], sample_weight=count)
        vote = _weighted(forest.classes_)
        for trees in _TREES:
            first = partial(_beginnings, forest.estimators_[:trees], vote, cuts)
            most = max(int(tree.get_n_leaves()) for tree in forest.estimators_[:trees])
            leaves = most_leaves(most, partial(_fit, first, classes * _WEIGHTS, budget))
            if leaves > 1:
                yield packed(first(leaves), classes, _WEIGHTS)


def _fit(
    first: Callable[[int], list[TreeSplit | int]], votes: int, budget: int, leaves: int
) -> bool:
    return packed_bytes(first(leaves), votes) <= budget


def _beginnings(
    forest: Sequence[Any], vote: _Vote, cuts: Sequence[Sequence[Cut]], leaves: int
) -> list[TreeSplit | int]:
    """Convert best-first trees, each cut to its first ``leaves`` leaves."""
    return [split_tree(t.tree_, vote, min(leaves, t.tree_.n_leaves), cuts) for t in forest]


def trees_within(prepared: Prepared, budget: int) -> Iterator[tuple[str, PackedTrees]]:
    """Yield a tree on the columns and the best of several forests, each by name, if they fit.

    Args:
        prepared: the rows; validation rows choose the forest.
        budget: largest number of bytes of each.
    """
    rows, validation, experiment = prepared.train, prepared.validation, prepared.experiment
    arguments = rows.columns, rows.label, budget, len(experiment.table.classes), experiment.seed
    if tree := tree_within(*arguments):
        yield TREE, tree

    def right(forest: PackedTrees) -> int:
        return int((forest.votes(validation.columns).argmax(axis=1) == validation.label).sum())

    if forests := [*forests_within(*arguments)]:
        yield FOREST, max(forests, key=right)


def random_forest(
    columns: NDArray[np.int64], label: NDArray[np.int64], classes: int, seed: int
) -> PackedTrees:
    """Grow and pack a random forest of ``FOREST_TREES`` trees of any size (Breiman 2001).

    Args:
        columns: integers of training rows, shape ``(rows, features)``.
        label: class index of each row, shape ``(rows,)``.
        classes: number of classes.
        seed: seed of the trees.
    """
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(FOREST_TREES, random_state=seed, n_jobs=1).fit(columns, label)
    vote = _weighted(forest.classes_)
    trees = [split_tree(estimator.tree_, vote) for estimator in forest.estimators_]
    return packed(trees, classes, _WEIGHTS)


def _weighted(known: NDArray[np.int64]) -> _Vote:
    """Make votes for the likeliest class, heavier the farther the second is behind."""

    def vote(share: NDArray[np.float64]) -> NDArray[np.int64]:
        ordered = np.sort(share, axis=1)
        lead = ordered[:, -1] - (ordered[:, -2] if share.shape[1] > 1 else 0)
        weight = np.minimum((lead * _WEIGHTS).astype(np.int64), _WEIGHTS - 1)
        return np.asarray(_WEIGHTS * known[share.argmax(axis=1)] + weight)

    return vote


def most_leaves(most: int, fits: Callable[[int], bool]) -> int:
    """Find the largest number of leaves that fits, by bisection; one leaf always fits.

    Args:
        most: number of leaves of the whole trees.
        fits: whether trees cut to a number of leaves fit.
    """
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def forest_baseline(prepared: Prepared) -> Prediction:
    """Predict the test rows by a random forest: votes, classes and the forest's bytes.

    Args:
        prepared: the rows.
    """
    from n3ic.training.baselines import Prediction

    train, experiment = prepared.train, prepared.experiment
    forest = random_forest(
        train.columns, train.label, len(experiment.table.classes), experiment.seed
    )
    votes = forest.votes(prepared.test.columns).astype(np.float64)
    classes = votes.argmax(axis=1).astype(np.int64)
    return Prediction("random_forest", classes, votes, len(forest.data))
