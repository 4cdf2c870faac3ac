# SPDX-License-Identifier: Apache-2.0
"""Trees as binary networks: the answers of scikit-learn's votes, and the same network again."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.tree import DecisionTreeClassifier

from n3ic.errors import UsageError
from n3ic.families.binary.forest import train_forest, tree_network
from n3ic.model.bits import pack
from n3ic.model.inputs import UINT32_MAX, InputSpec
from n3ic.training.recipe import Training


def rows(n_classes: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (600, 12)).astype(bool)
    noise = rng.random(600) < 0.1
    label = (bits[:, 0].astype(int) + (bits[:, 1] & bits[:, 2]) + (bits[:, 3] ^ bits[:, 4])) % 3
    label = np.where(noise, rng.integers(0, 3, 600), label) % n_classes
    return bits, label.astype(np.int64)


def names(n_classes: int) -> tuple[str, ...]:
    return tuple("abc"[:n_classes])


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("trees", [1, 3, 4])
def test_the_network_is_the_vote_of_the_trees(n_classes, trees):
    bits, label = rows(n_classes)
    model = train_forest(
        bits, label, InputSpec.raw(12), names(n_classes), Training(trees=trees, leaves=20), seed=5
    )
    wanted = np.eye(n_classes)[label]
    forest = RandomForestRegressor(
        trees,
        max_leaf_nodes=20,
        max_features=1.0 if trees == 1 else 0.5,
        bootstrap=False,
        random_state=5,
    ).fit(bits.astype(np.float32), wanted if n_classes > 2 else wanted[:, 1])
    every = (np.arange(1 << 12)[:, None] >> np.arange(12) & 1).astype(bool)
    votes = np.zeros((len(every), n_classes), dtype=np.int64)
    for tree in forest.estimators_:
        shares = tree.predict(every.astype(np.float32))
        answers = shares.argmax(axis=1) if n_classes > 2 else (shares > 0.5).astype(int)
        votes[np.arange(len(every)), answers] += 1
    np.testing.assert_array_equal(model.scores(pack(every)), votes)
    assert model.shape[1] < 20 * trees * n_classes


def test_splits_that_change_no_answer_are_gone():
    bits = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 20, dtype=bool)
    label = np.array([0, 0, 1, 1] * 20)
    model = train_forest(
        bits, label, InputSpec.raw(2), ("a", "b"), Training(trees=1, leaves=4), seed=0
    )
    assert model.shape == (2, 1, 1, 2)
    assert model.hidden[0].fan_in.tolist() == [1]


def test_the_same_arguments_give_the_same_bytes(tmp_path):
    bits, label = rows(2)
    config = Training(trees=3, leaves=9)
    for name in ("one", "two"):
        model = train_forest(bits, label, InputSpec.raw(12), ("a", "b"), config, seed=1)
        model.save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_bits_that_tell_nothing_are_refused():
    bits, label = np.zeros((20, 3), dtype=bool), np.arange(20) % 2
    with pytest.raises(UsageError, match="no input bit separates"):
        train_forest(bits, label, InputSpec.raw(3), ("a", "b"), Training(trees=2, leaves=9), seed=1)


def test_a_teacher_moves_leaves():
    bits, label = rows(2)
    config = Training(trees=1, leaves=20, distill=1.0)
    turned = np.eye(2)[1 - label]
    arguments = (bits, label, InputSpec.raw(12), ("a", "b"), config)
    model = train_forest(*arguments, seed=1, teacher=turned)
    assert (model.scores(pack(bits)).argmax(axis=1) != label).mean() > 0.6
    with pytest.raises(UsageError, match="teacher"):
        train_forest(*arguments, seed=1)


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_a_tree_on_columns_is_a_network_of_the_same_classes(n_classes):
    rng = np.random.default_rng(n_classes)
    # Small numbers, and large ones of which float32 keeps only some.
    columns = np.column_stack([rng.integers(0, 9, 900), UINT32_MAX - rng.integers(0, 3000, 900)])
    label = (columns[:, 0] + columns[:, 1] // 700) % 3
    tree = DecisionTreeClassifier(max_leaf_nodes=25, random_state=0).fit(columns, label)
    model = tree_network(tree, ("small", "large"), tuple("abcd"[: max(3, n_classes)]))
    near = [UINT32_MAX, *(c + d for f in model.input.fields for c in f.cuts for d in (-1, 0, 1))]
    pairs = np.array(np.meshgrid(np.arange(-1, 12), near)).reshape(2, -1).clip(0, UINT32_MAX)
    words = model.input.encode_words({"small": pairs[0], "large": pairs[1]})
    assert (model.scores(words).argmax(axis=1) == tree.predict(pairs.T)).all()
    assert model.input.n_cuts <= tree.get_n_leaves() - 1


def test_a_tree_of_one_class_is_no_network():
    columns, label = np.arange(40)[:, None], np.arange(40) % 4 == 0  # no side has a majority of 1
    tree = DecisionTreeClassifier(max_leaf_nodes=4, random_state=0).fit(columns // 4, label * 1)
    assert tree_network(tree, ("x",), ("a", "b")) is None
