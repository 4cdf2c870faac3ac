# SPDX-License-Identifier: Apache-2.0
"""Input bits of one tree, and bits that are chosen for what they tell together."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from n3ic.model.inputs import UINT32_MAX, InputSpec
from n3ic.training.input_bits import greedy_fields, tree_cuts, tree_fields
from n3ic.training.input_bits.greedy import joint_choice

pytest.importorskip("sklearn")


def _loss(bits: np.ndarray, label: np.ndarray) -> float:
    """Leave-one-out log loss of the table of all cells, row by row."""
    classes = int(label.max()) + 1
    prior = np.bincount(label, minlength=classes) / len(label)
    total = 0.0
    for i in range(len(label)):
        same = (bits == bits[i]).all(axis=1)
        same[i] = False
        seen = np.bincount(label[same], minlength=classes)
        total -= np.log((seen[label[i]] + prior[label[i]]) / (same.sum() + 1))
    return total


@pytest.mark.parametrize("seed", range(4))
def test_one_bit_and_two_are_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = rng.random((120, 6)) < 0.5
    label = (bits[:, 1] ^ bits[:, 4]).astype(np.int64) + (rng.random(120) < 0.1)
    single = [_loss(bits[:, [j]], label) for j in range(6)]
    assert joint_choice(bits, label, 1) == [int(np.argmin(single))]
    best = min(combinations(range(6), 2), key=lambda pair: _loss(bits[:, pair], label))
    bits_chosen = joint_choice(bits, label, 2, start=best)
    assert _loss(bits[:, bits_chosen], label) == pytest.approx(_loss(bits[:, best], label))


def test_bits_that_tell_nothing_alone_are_found_together() -> None:
    rng = np.random.default_rng(3)
    bits = rng.random((4000, 8)) < 0.5
    label = (bits[:, 2] ^ bits[:, 5] ^ (rng.random(4000) < 0.02)).astype(np.int64)
    weak = (label ^ (rng.random(4000) < 0.35)).astype(bool)  # alone, it tells most
    assert joint_choice(np.column_stack([weak, bits]), label, 2, start=(3, 6)) == [3, 6]


def test_a_copy_is_never_chosen_and_all_are_taken_where_few() -> None:
    rng = np.random.default_rng(5)
    bits = rng.random((500, 4)) < 0.5
    label = (bits[:, 0] & bits[:, 1]).astype(np.int64)
    twice = np.column_stack([bits, bits])
    chosen = joint_choice(twice, label, 2)
    assert {j % 4 for j in chosen} == {0, 1}
    assert joint_choice(bits, label, 9) == [0, 1, 2, 3]


def _flows(rows: int = 3000) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(11)
    size, gap = rng.integers(0, 5000, (2, rows))
    outlier = np.zeros(rows, dtype=np.int64)
    outlier[:5] = UINT32_MAX
    label = ((size >= 1460) ^ (gap >= 2500)).astype(np.int64) + (size >= 4000)
    return {"outlier": outlier, "size": size, "gap": gap}, label.astype(np.int64)


def test_the_tree_of_as_many_cuts_is_a_function_of_tree_bits() -> None:
    from sklearn.tree import DecisionTreeClassifier

    columns, label = _flows()
    spec = InputSpec(tree_fields(columns, label, 6))
    assert spec.n_bits == 6
    grown = DecisionTreeClassifier(max_leaf_nodes=7, random_state=0)
    matrix = np.stack(list(columns.values()), axis=1)
    on_columns = grown.fit(matrix, label).score(matrix, label)
    bits = spec.encode(columns)
    on_bits = DecisionTreeClassifier(random_state=0).fit(bits, label).score(bits, label)
    assert on_bits >= on_columns


def test_cuts_of_large_neighbours_are_exact() -> None:
    value = np.repeat(UINT32_MAX - np.arange(4, dtype=np.int64), 50)  # equal in float32
    label = (value >= UINT32_MAX - 1).astype(np.int64)
    assert tree_cuts({"v": value}, label, 3) == [("v", UINT32_MAX - 1)]


@pytest.mark.first_case
@pytest.mark.parametrize("fields_of", [tree_fields, greedy_fields])
def test_outliers_are_no_bits_and_the_choice_repeats_itself(fields_of) -> None:
    columns, label = _flows()
    fields = fields_of(columns, label, 4)
    assert {f.feature for f in fields} == {"size", "gap"}
    assert InputSpec(fields).n_bits == 4
    assert fields == fields_of(columns, label, 4)


@pytest.mark.parametrize("fields_of", [tree_fields, greedy_fields])
def test_few_values_give_fewer_bits(fields_of) -> None:
    flag = np.tile(np.arange(4, dtype=np.int64), 100)
    fields = fields_of({"flag": flag}, (flag > 1).astype(np.int64), 16)
    assert [f.cuts for f in fields] == [(1, 2, 3)]
