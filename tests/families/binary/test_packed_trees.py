# SPDX-License-Identifier: Apache-2.0
"""Trees as a card would store them: the same classes, in bytes that are counted."""

from __future__ import annotations

import numpy as np
import pytest

from n3ic.families.binary.packed_trees import (
    PackedTrees,
    TreeSplit,
    forests_within,
    least_right,
    packed,
    packed_bytes,
    random_forest,
    split_tree,
    tree_within,
)
from n3ic.model.inputs import UINT32_MAX, Field, InputSpec

pytest.importorskip("sklearn")


def rows(classes: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    columns = np.stack(
        [rng.integers(0, 40, 600), rng.integers(0, 2**32, 600), rng.integers(0, 2, 600)], axis=1
    )
    label = (columns[:, 0] // 7 + (columns[:, 1] > 2**31) * (columns[:, 2] + 1)) % classes
    return columns, label


def likeliest(tree):
    return lambda share: tree.classes_[share.argmax(axis=1)]


@pytest.mark.parametrize("classes", [2, 5, 37])
@pytest.mark.parametrize("leaves", [2, 3, 12, 60])
def test_the_packed_beginning_of_a_tree_is_the_tree_of_so_many_leaves(classes, leaves):
    from sklearn.tree import DecisionTreeClassifier

    columns, label = rows(classes)
    whole, smaller = (
        DecisionTreeClassifier(max_leaf_nodes=n, random_state=3).fit(columns, label)
        for n in (80, leaves)
    )
    one = split_tree(whole.tree_, likeliest(whole), leaves)
    trees = packed([one], classes)
    edges = rows(classes, seed=9)[0]
    assert (trees.votes(edges).argmax(axis=1) == smaller.predict(edges)).all()
    assert len(trees.data) == packed_bytes([one], classes)
    assert trees.splits < leaves


def test_a_forest_is_read_from_its_bytes_alone_with_the_weights_of_its_votes():
    rng = np.random.default_rng(1)

    def grown(depth):
        if depth == 0 or rng.random() < 0.2:
            return int(rng.integers(0, 9))
        cut = (int(rng.integers(0, 3)), int(rng.choice([1, 7, 2**31, UINT32_MAX])))
        return TreeSplit(cut, grown(depth - 1), grown(depth - 1))

    def vote(node, row):
        while isinstance(node, TreeSplit):
            column, least = node.cut
            node = node.right if row[column] >= least else node.left
        return node

    for trees in ([grown(6) for _ in range(5)], [4, grown(4)], [7], [0, 8]):
        made = packed(trees, 3, 3)
        again = PackedTrees(made.data, made.columns, made.trees, made.splits, 3, 3)
        columns = rng.choice([0, 1, 6, 7, 2**31 - 1, 2**31, UINT32_MAX], (300, 3))
        expected = np.zeros((300, 3), int)
        for i, row in enumerate(columns):
            for tree in trees:
                value = vote(tree, row)
                expected[i, value // 3] += value % 3 + 1
        assert (again.votes(columns) == expected).all()
        assert len(made.data) == packed_bytes(trees, 9)


@pytest.mark.first_case
@pytest.mark.parametrize("classes", [2, 12])
@pytest.mark.parametrize("budget", [1, 8, 20, 75, 400])
def test_what_is_grown_within_a_budget_fits_it_and_one_leaf_more_does_not(classes, budget):
    columns, label = rows(classes)
    tree = tree_within(columns, label, budget, classes, 0)
    if budget < 6:
        assert tree is None
        return
    assert len(tree.data) <= budget
    if budget < 400:  # above, the tree may have ended
        assert len(tree.data) > 0.5 * budget
    for forest in forests_within(columns, label, budget, classes, 0):
        assert len(forest.data) <= budget
        assert forest.votes(columns).sum(axis=1).max() <= 3 * forest.trees


def test_cuts_are_stored_as_those_of_a_network():
    fields = {0: [1, 255], 1: [*range(5, 70), 300], 2: [7, 70_000, UINT32_MAX]}
    tree = 1
    for column, cuts in fields.items():
        for cut in cuts:
            tree = TreeSplit((column, cut), tree, 0)
    spec = InputSpec([Field.thermometer(str(n), cuts) for n, cuts in fields.items()])
    assert packed([tree], 2).cut_bytes == spec.memory_bytes


def test_more_bytes_are_right_on_more_rows():
    columns, label = rows(5)
    right = [
        (tree_within(columns, label, n, 5, 0).votes(columns).argmax(axis=1) == label).mean()
        for n in (12, 60, 300)
    ]
    assert right[0] + 0.05 < right[1] and right[1] <= right[2]


def test_labels_that_nothing_tells_give_no_tree():
    columns = np.zeros((50, 2), dtype=np.int64)
    label = np.arange(50) % 2
    assert tree_within(columns, label, 100, 2, 0) is None
    assert list(forests_within(columns, label, 100, 2, 0)) == []


def test_a_random_forest_is_packed_whole():
    columns, label = rows(3)
    forest = random_forest(columns, label, 3, 0)
    assert (forest.votes(columns).argmax(axis=1) == label).mean() > 0.99
    assert forest.trees == 60
    assert len(forest.data) > forest.cut_bytes > 0


def test_the_least_integer_to_the_right_is_that_of_comparisons_in_float32():
    thresholds = np.array([0.5, 3.0, 2.0**24 + 0.5, 2.0**31 + 64, -1.0, 2.0**33])
    for threshold, least in zip(thresholds, least_right(thresholds).tolist(), strict=True):
        assert least == UINT32_MAX + 1 or float(np.float32(least)) > threshold
        assert least == 0 or float(np.float32(least - 1)) <= threshold
