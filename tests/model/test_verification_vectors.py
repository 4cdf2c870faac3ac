# SPDX-License-Identifier: Apache-2.0
"""Inputs that decide: the edges of an input stage."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from n3ic.model.bits import pack, unpack
from n3ic.model.classifier import margins_of
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import (
    at_threshold,
    boundary_features,
    boundary_vectors,
    feature_vectors,
    margin_vectors,
    verification_vectors,
)


def test_each_edge_of_each_field_is_there():
    spec = InputSpec(
        (
            Field.thermometer("a", (1, 50, 2**32 - 1)),
            Field.binary("b", 8),
            Field("c", "binary", 8, 200),
            Field.thermometer("a", (7,)),
        )
    )
    rows = boundary_features(spec)
    assert len({len(v) for v in rows.values()}) == 1
    assert set(rows["a"]) == {0, 1, 2, 6, 7, 8, 49, 50, 51, 2**32 - 2, 2**32 - 1}
    assert {0, 127, 128, 254, 255, 256, 2**32 - 1} <= set(rows["b"])
    assert {199, 200, 201} <= set(rows["c"])
    one = boundary_features(InputSpec((Field.thermometer("a", (50,)),)))["a"]
    assert sorted(one.tolist()) == [0, 1, 49, 50, 51, 2**32 - 1]
    again = boundary_features(spec)
    assert all(np.array_equal(rows[name], again[name]) for name in rows)


def test_two_features_take_different_values():
    spec = InputSpec((Field.binary("a", 16), Field.binary("b", 16)))
    rows = boundary_features(spec)
    assert (rows["a"] != rows["b"]).mean() > 0.5


LAYER = HiddenLayer(
    np.random.default_rng(0).random((6, 9)) < 0.5,
    mask=np.array([[1] * 9, [1] * 9, [1] * 9, [1] * 5 + [0] * 4, [1] * 9, [1] * 9], dtype=bool),
    thresholds=np.array([4, 0, 10, 3, 9, 1], dtype=np.int32),
)


@pytest.mark.parametrize(
    ("neuron", "popcounts"),
    [(0, [4, 3]), (1, [0]), (2, [9]), (3, [3, 2]), (4, [9, 8]), (5, [1, 0])],
)
@pytest.mark.parametrize("seed", range(4))
def test_inputs_at_a_threshold_and_one_below(neuron, popcounts, seed):
    inputs = at_threshold(LAYER, neuron, np.random.default_rng(seed))
    assert LAYER.popcounts(pack(inputs))[:, neuron].tolist() == popcounts
    if len(inputs) == 2:
        (changed,) = np.flatnonzero(inputs[0] != inputs[1])
        assert inputs[0, changed] == LAYER.weights[neuron, changed]
        assert LAYER.mask[neuron, changed]


def small(threshold=0):
    output = OutputLayer(
        np.random.default_rng(1).random((2, 6)) < 0.5, bias=np.array([0, 1], dtype=np.int32)
    )
    model = BinaryModel(InputSpec.raw(9), (LAYER,), output, ("a", "b"))
    return model.with_shunt(threshold) if threshold else model


def test_boundary_vectors_are_zeros_ones_alternating_single_bits_and_edges():
    vectors = boundary_vectors(small(), np.random.default_rng(3))
    assert vectors[:6].astype(int).tolist() == [
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
        [1, 0, 1, 0, 1, 0, 1, 0, 1],
        [0, 1, 0, 1, 0, 1, 0, 1, 0],
        [1, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 1],
    ]
    assert len(vectors) == 6 + 2 + 1 + 1 + 2 + 2 + 2


@pytest.mark.parametrize("count", [0, 16, 17, 500])
def test_random_vectors_fill_up_to_the_count(count):
    words = verification_vectors(small(), count, seed=4)
    assert len(words) == max(count, 16)
    assert np.array_equal(words, verification_vectors(small(), count, seed=4))
    popcounts = np.bitwise_count(words[16:]).sum(axis=1)
    if count == 500:  # uniform and sparse and dense ones
        assert len(np.unique(words)) > 200
        assert set(range(10)) <= set(popcounts.tolist())
        assert ((popcounts >= 3) & (popcounts <= 6)).mean() > 0.5


@pytest.mark.parametrize("threshold", [1, 2])
def test_margins_of_the_search_are_the_threshold_and_one_less(threshold):
    rng = np.random.default_rng(0)
    model = random_model((30, 12, 3), rng, density=0.7, extremes=False).with_shunt(threshold)
    words = margin_vectors(model)
    assert margins_of(model.scores(words)).tolist() == [threshold, threshold - 1] * 32
    assert np.array_equal(words, margin_vectors(model))
    assert not np.array_equal(words, margin_vectors(model, 1))
    assert margin_vectors(random_model((40, 2), rng)).shape == (0, 2)


ORDERED = InputSpec((Field.thermometer("a", tuple(range(2, 40, 2))), Field.binary("b", 11)))


def test_bits_that_features_can_have_keep_their_number():
    bits = np.random.default_rng(0).random((50, 30)) < 0.5
    ordered = ORDERED.ordered(bits)
    assert (ordered[:, 19:] == bits[:, 19:]).all()
    assert (ordered.sum(axis=1) == bits.sum(axis=1)).all()
    assert (ordered[:, 1:19] <= ordered[:, :18]).all()
    assert (ORDERED.ordered(ordered) == ordered).all()
    assert not (ordered == bits).all()


def test_generated_inputs_are_ones_that_features_can_have():
    rng = np.random.default_rng(0)
    model = replace(random_model((30, 12, 3), rng, density=0.7), input=ORDERED).with_shunt(2)
    for words in (margin_vectors(model), feature_vectors(ORDERED, 200)):
        bits = unpack(words, 30)
        assert (ORDERED.ordered(bits) == bits).all()
        assert len({*map(bytes, words)}) > 30
    assert len(feature_vectors(ORDERED, 200)) == 200
    edges = ORDERED.encode_words(boundary_features(ORDERED, 3))
    assert (feature_vectors(ORDERED, 1, 3) == edges).all()


def test_every_second_drawn_input_is_on_edges():
    spec = InputSpec((Field.binary("a", 32), Field.binary("b", 32)))
    edges = boundary_features(spec, 0)
    drawn = feature_vectors(spec, 2000)[len(edges["a"]) :]
    for column, name in enumerate("ab"):
        on_edge = np.isin(drawn[:, column], edges[name])
        assert on_edge[1::2].all() and not on_edge[::2].any()


def test_a_seed_gives_the_same_vectors_for_ever():
    """In turn at the threshold and one below; of two rows of each, one is sparse or dense."""
    rng = np.random.default_rng(3)
    model = random_model((30, 9, 3), rng, density=0.7, extremes=False).with_shunt(2)
    two = random_model((20, 2), rng).with_shunt(3)  # whose margins are all even, or all odd
    vectors = [
        *(margin_vectors(m, 3) for m in (model, two)),
        verification_vectors(model, 200, 3),
        pack(boundary_vectors(model, np.random.default_rng(3))),
    ]
    digests = [hashlib.sha256(w.astype("<u4").tobytes()).hexdigest()[:8] for w in vectors]
    assert digests == ["10a9dc74", "b98e90db", "e9f7ab47", "c3811d29"]


def test_the_last_bit_of_a_binary_field_has_an_edge():
    rows = boundary_features(InputSpec((Field("a", "binary", 5, 20),)))
    around = {b + d for b in (1, 2, 4, 8, 16, 20) for d in (-1, 0, 1)}
    assert set(rows["a"]) == around | {2**32 - 1}
    assert rows["a"].dtype == np.int64


def test_the_order_of_edges_is_drawn_from_a_seed():
    spec = InputSpec((Field.binary("a", 16), Field.binary("b", 16)))

    def order(*seed):
        return boundary_features(spec, *seed)["a"].tolist()

    assert order() == order(0) != order(1)
