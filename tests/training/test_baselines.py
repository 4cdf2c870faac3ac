# SPDX-License-Identifier: Apache-2.0
"""Baselines that a binary network is compared with."""

from __future__ import annotations

import numpy as np
import pytest

from n3ic.training.baselines import best_first_tree

pytest.importorskip("sklearn")


def _cuts(tree) -> int:
    nodes = tree.tree_
    inner = nodes.children_left >= 0
    return len(
        set(zip(nodes.feature[inner].tolist(), nodes.threshold[inner].tolist(), strict=True))
    )


@pytest.mark.parametrize("cuts", [1, 4, 16, 40])
def test_the_tree_has_as_many_cuts_and_one_leaf_more_has_too_many(cuts: int) -> None:
    from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng(2)
    columns = rng.integers(0, 30, (2000, 5))
    label = (columns[:, 0] * columns[:, 1] > 200).astype(np.int64) + (columns[:, 2] > 20)
    tree = best_first_tree(columns, label, cuts, seed=0)
    assert _cuts(tree) <= cuts
    leaves = tree.get_n_leaves()
    larger = DecisionTreeClassifier(max_leaf_nodes=leaves + 1, random_state=0).fit(columns, label)
    assert _cuts(larger) > cuts


def test_a_tree_whose_leaves_are_pure_ends() -> None:
    columns = np.arange(40)[:, None]
    tree = best_first_tree(columns, (columns[:, 0] >= 20).astype(np.int64), 12, seed=0)
    assert tree.get_n_leaves() == 2
