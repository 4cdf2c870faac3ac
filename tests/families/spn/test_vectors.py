# SPDX-License-Identifier: Apache-2.0
"""Vectors of sum-product networks: bins as bits, edges, and as many as asked for."""

import hashlib

import numpy as np
import pytest

from n3ic.families.spn import vectors
from n3ic.families.spn.arithmetic import LinearArithmetic, LogArithmetic
from n3ic.families.spn.network import SpnModel
from n3ic.families.spn.nodes import Leaf, Product, Sum
from n3ic.families.spn.random_models import random_spn
from n3ic.families.spn.vectors import bits_of_bins, spn_coverage, spn_vectors
from n3ic.model.bits import pack, unpack
from n3ic.model.inputs import Field, InputSpec

SPEC = InputSpec((Field.thermometer("a", (5, 9)), Field.thermometer("b", (7,))))


def test_bins_set_the_first_bits():
    bins = np.array([[0, 0], [1, 0], [2, 1]])
    assert bits_of_bins(SPEC, bins).astype(int).tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 1]]


def two_by_two():
    """``3/4 a1 b1 + 1/4 a2 b2`` in fixed point of 4 bits, and a constant for the other class."""
    nodes = (
        Leaf(0, [8, 4, 4]),
        Leaf(1, [12, 4]),
        Product((0, 1)),
        Leaf(0, [0, 0, 16]),
        Leaf(1, [2, 14]),
        Product((3, 4)),
        Sum((2, 5), [12, 4]),
    )
    return SpnModel(SPEC, nodes, LinearArithmetic(4), (6, -1), [0, 2], ("x", "y"))


def test_deciding_flows_come_by_each_bin_of_each_leaf():
    """The likeliest flow of the first term is a in bin 0, b in bin 0; of the second, 2 and 1."""
    words = spn_vectors(two_by_two(), 0)
    bits = unpack(words, 3)
    edges = [[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert bits[-5:].astype(int).tolist() == edges
    bins = {(int(row[:2].sum()), int(row[2])) for row in bits[:-5]}
    assert bins == {(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)}
    assert len(bits) == 6 + 5


def test_the_seed_is_0_where_none_is_given():
    assert (spn_vectors(two_by_two(), 100) == spn_vectors(two_by_two(), 100, 0)).all()


@pytest.mark.parametrize("count", [0, 11, 12, 13, 100])
def test_random_ones_fill_up_half_of_bins_half_of_stray_bits(count):
    bits = unpack(spn_vectors(two_by_two(), count, 4), 3)
    assert len(bits) == max(count, 11)
    half = bits[11 : 11 + (len(bits) - 11 + 1) // 2]
    assert not (half[:, 1] & ~half[:, 0]).any()  # as an input stage gives them
    if count == 100:
        stray = bits[11 + len(half) :]
        assert (stray[:, 1] & ~stray[:, 0]).any()


def test_rows_are_counted_in_parts(monkeypatch):
    model = random_spn(np.random.default_rng(1), features=3, cuts=3, classes=2, depth=1)
    words = spn_vectors(model, 0)[::2]
    whole = spn_coverage(model, words)
    assert 0 < whole.decided < whole.total
    for rows in (len(words) // 3, len(words) - 1, len(words)):
        monkeypatch.setattr(vectors, "_ROWS", rows)
        assert spn_coverage(model, words) == whole


def test_of_what_some_flows_decide_the_rest_is_named():
    """Of a in bin 1 and b in bin 0, both tables are decided but for one entry each."""
    model = SpnModel(SPEC, NODES, LogArithmetic(2, [4, 3, 2, 1]), (2, 3), [0, 0], ("x", "y"))
    bins = np.array([[0, 0], [2, 0]])
    coverage = spn_coverage(model, pack(bits_of_bins(SPEC, bins)))
    assert coverage.undecided == (
        "node 0 (leaf): 1 of 3", "node 1 (leaf): 1 of 2", "node 4 (leaf): 2 of 2",
    )  # fmt: skip
    assert (coverage.total, coverage.decided) == (3 + 2 + 1 + 2, 4)


NODES = (
    Leaf(0, [-1, -2, -3]), Leaf(1, [-4, -9]), Product((0, 1)), Sum((2,), [-1]),
    Leaf(1, [0, 0]),  # no score depends on it
)  # fmt: skip


def test_the_likeliest_bins_below_each_node():
    """A sum has those of its likeliest term, its weight included."""
    nodes = (
        Leaf(0, [-5, -2, -3]), Leaf(1, [-4, -9]), Product((0, 1)),
        Leaf(0, [-1, -7, -9]), Leaf(1, [-8, -6]), Product((3, 4)),
        Sum((2, 5), [-2, 0]), Sum((2, 5), [0, -2]), Sum((5, 2), [-1, -3]),
    )  # fmt: skip
    for arithmetic in (LogArithmetic(2, [4, 3, 2, 1]), LogArithmetic(2, [0])):
        model = SpnModel(SPEC, nodes, arithmetic, (6, 7, 8), [0, 0, 0], ("x", "y", "z"))
        first, second = {0: 1, 1: 0}, {0: 0, 1: 1}
        assert vectors._likeliest(model)[2:] == [
            first, {0: 0}, {1: 1}, second, second, first, second,
        ]  # fmt: skip


def test_the_nodes_above_each_node_that_a_score_depends_on():
    model = SpnModel(SPEC, NODES, LogArithmetic(2, [4, 3, 2, 1]), (2, 3), [0, 0], ("x", "y"))
    assert vectors._above(model) == {3: (), 2: (3,), 1: (2, 3), 0: (2, 3)}
    assert [*vectors._lineage({0: 2, 1: 2, 2: 3}, 0)] == [3, 2]


def test_a_coverage_that_was_counted_by_hand():
    """Of one flow (0, 0), the entries that its way reads, where a step is not rounded away."""
    model = two_by_two()
    none = spn_coverage(model, np.zeros((0, 1), dtype=np.uint32))
    assert (none.total, none.decided) == (3 + 2 + 3 + 2 + 2, 0)
    assert none.undecided == (
        "node 0 (leaf): 3 of 3",
        "node 1 (leaf): 2 of 2",
        "node 3 (leaf): 3 of 3",
        "node 4 (leaf): 2 of 2",
        "node 6 (sum): 2 of 2",
    )


@pytest.mark.parametrize(
    ("arithmetic", "seed", "expected"),
    [
        (LogArithmetic.of(6), 1, "341 52191923 376 of 431"),
        (LogArithmetic.of(0), 2, "412 5a6e0e2e 490 of 554"),
        (LinearArithmetic(12), 1, "341 52191923 5 of 431"),
    ],
)
def test_a_seed_gives_the_same_vectors_for_ever(arithmetic, seed, expected):
    """So that a verification that failed somewhere can be repeated by another version."""
    model = random_spn(np.random.default_rng(seed), classes=3, depth=2, arithmetic=arithmetic)
    words = spn_vectors(model, 300, seed)
    coverage = spn_coverage(model, words)
    digest = hashlib.sha256(words.astype("<u4").tobytes()).hexdigest()[:8]
    assert f"{len(words)} {digest} {coverage.decided} of {coverage.total}" == expected


def test_a_seed_gives_the_same_random_vectors_for_ever():
    words = spn_vectors(two_by_two(), 300, 1)
    assert hashlib.sha256(words.astype("<u4").tobytes()).hexdigest()[:8] == "fa9c0d4d"
