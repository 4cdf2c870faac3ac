# SPDX-License-Identifier: Apache-2.0
"""Which weight bits vectors decide: exact, and all that can be reached."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.families.binary import coverage as coverage_module
from n3ic.families.binary.coverage import (
    Coverage,
    _connections,
    _nearest,
    coverage,
    deciding_vectors,
)
from n3ic.model.bits import pack
from n3ic.model.boundary import margin_vectors, verification_vectors
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.passes import simplify
from n3ic.model.random_models import random_model


def test_an_input_on_either_side_of_a_threshold_is_as_near():
    """Three neurons that copy their input, and one that fires from two of them on."""
    copies = HiddenLayer(np.eye(3, dtype=bool), thresholds=np.ones(3, int), mask=np.eye(3) > 0)
    later = HiddenLayer(np.ones((1, 3), bool), thresholds=np.array([2]))
    last = OutputLayer(np.ones((2, 1), bool), bias=np.zeros(2, int))
    model = BinaryModel(InputSpec.raw(3), (copies, later), last, ("a", "b"))
    rows = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    left = _connections(model)
    assert [_nearest(model, rows[[k]], left)[1] for k in range(4)] == [3, 1, 1, 3]
    assert _nearest(model, rows, left)[0].tolist() == rows[:2].tolist()


def with_flipped(model, layer, neuron, bit):
    weights = model.layers[layer].weights.copy()
    weights[neuron, bit] ^= True
    if layer == len(model.hidden):
        return replace(model, output=replace(model.output, weights=weights))
    hidden = list(model.hidden)
    hidden[layer] = replace(hidden[layer], weights=weights)
    return replace(model, hidden=tuple(hidden))


def by_flipping(model, words, hidden):
    """Flip each weight bit in turn, run all vectors, compare."""
    want = model.infer(words)
    found = []
    for i, layer in enumerate(model.layers):
        known = np.zeros(layer.weights.shape, np.bool_)
        for j, k in np.ndindex(*layer.weights.shape):
            if layer.mask is None or layer.mask[j, k]:
                got = with_flipped(model, i, j, k).infer(words)
                known[j, k] = (got.scores != want.scores).any() or (
                    hidden
                    and any((a != b).any() for a, b in zip(got.hidden, want.hidden, strict=True))
                )
        found.append(known)
    return found


@settings(max_examples=25, deadline=None)
@given(
    shape=st.sampled_from([(9, 2), (12, 5, 3), (12, 6, 4, 2), (8, 5, 4, 4, 2)]),
    seed=st.integers(0, 2**31),
    density=st.sampled_from([None, 0.6]),
    rows=st.integers(0, 12),
    hidden=st.booleans(),
)
def test_coverage_is_what_flipping_every_bit_shows(shape, seed, density, rows, hidden):
    rng = np.random.default_rng(seed)
    model = random_model(shape, rng, density=density)
    words = pack(rng.random((rows, shape[0])) < 0.5)
    found = coverage(model, words, hidden=hidden)
    for known, want in zip(found.layers, by_flipping(model, words, hidden), strict=True):
        assert np.array_equal(known, want)
    assert found.total == sum(int(layer.fan_in.sum()) for layer in model.layers)


@pytest.mark.parametrize("density", [None, 0.5])
def test_a_few_vectors_decide_every_bit_by_the_scores(density):
    model = random_model((256, 32, 16, 2), np.random.default_rng(0), density=density)
    model = simplify(model).model  # constant neurons have bits that nothing can decide
    words = deciding_vectors(model)
    found = coverage(model, words, hidden=False)
    assert found.decided == found.total, found.lines(model)
    assert found.lines(model) == []
    assert len(words) < 400
    assert np.array_equal(words, deciding_vectors(model))


def test_later_neurons_are_reached():
    """A neuron that fires on one in 2^20 patterns of the layer before it."""
    rng = np.random.default_rng(1)
    base = random_model((256, 20, 2, 2), rng, extremes=False)
    rare = HiddenLayer(base.hidden[1].weights, thresholds=np.array([20, 10], np.int32))
    model = replace(base, hidden=(base.hidden[0], rare))
    by_luck = coverage(model, verification_vectors(model, 10_000), hidden=False)
    assert not by_luck.layers[1][0].any()
    assert coverage(model, deciding_vectors(model), hidden=False).layers[1].all()


def test_what_cannot_be_reached_is_said():
    """A neuron that would need two equal neurons before it to differ."""
    base = random_model((16, 2, 1, 2), np.random.default_rng(3), extremes=False)
    row = base.hidden[0].weights[:1]
    twins = HiddenLayer(np.tile(row, (2, 1)), thresholds=np.full(2, 8, np.int32))
    never = HiddenLayer(np.array([[True, False]]), thresholds=np.array([2], np.int32))
    output = OutputLayer(np.array([[True], [False]]), bias=np.zeros(2, np.int32))
    model = replace(base, hidden=(twins, never), output=output)
    found = coverage(model, deciding_vectors(model, hidden=True), hidden=True)
    # At one below its threshold both bits flip it one way: each disagrees in one of two states.
    assert found.layers[0].all()
    assert found.decided == found.total
    stuck = replace(never, thresholds=np.array([3], np.int32))
    model = replace(model, hidden=(twins, stuck))
    found = coverage(model, deciding_vectors(model, hidden=True), hidden=True)
    assert found.share < 1
    assert found.lines(model) == ["layer 1: 2 of 2 weight bits not decided, in neurons 0 (2)"]


def short(words):
    return f"{len(words)} {hashlib.sha256(words.astype('<u4').tobytes()).hexdigest()[:8]}"


@pytest.mark.parametrize(
    ("shape", "density", "hidden", "deciding", "verifying", "margins"),
    [
        ((40, 12, 8, 3), 0.6, False, "31 81c4b491", "300 9efcf00a", "64 cbf991f5"),
        ((40, 12, 8, 3), 0.6, True, "26 04b71f38", "300 9efcf00a", "64 cbf991f5"),
        ((70, 9, 7, 6, 2), None, False, "41 e25a16fe", "300 ac2c275f", "64 31b89988"),
        ((33, 3), None, False, "1 af5570f5", "300 cbf32d8e", "64 04eaaa8b"),
    ],
)
def test_a_seed_gives_the_same_vectors_for_ever(
    shape, density, hidden, deciding, verifying, margins
):
    """So that a verification that failed somewhere can be repeated by another version."""
    model = random_model(shape, np.random.default_rng(sum(shape)), density=density)
    assert short(deciding_vectors(model, 3, hidden=hidden)) == deciding
    assert short(verification_vectors(model, 300, 3)) == verifying
    assert short(margin_vectors(model.with_shunt(2), 3)) == margins


@pytest.mark.parametrize(
    ("shape", "density", "deciding"),
    [((20, 10, 8, 6, 4, 2), None, "43 92cbc45d"), ((32, 12, 10, 8, 6, 2), 0.8, "42 8e6f34ab")],
)
def test_a_search_of_many_rounds_gives_the_same_vectors_for_ever(shape, density, deciding):
    """Inputs are made for later neurons; the search ends after rounds that bring nothing."""
    model = random_model(shape, np.random.default_rng(0), density=density)
    assert short(deciding_vectors(model, 3)) == deciding


def test_lines_name_twenty_neurons_and_count_their_bits():
    model = random_model((10, 22, 3), np.random.default_rng(0), extremes=False)
    known = [np.ones(layer.weights.shape, dtype=bool) for layer in model.layers]
    known[0][:, 1] = False
    known[0][3, :3] = False
    found = Coverage(tuple(known), 220 + 66)
    assert (found.decided, found.share) == (286 - 24, (286 - 24) / 286)
    named = ", ".join(f"{j} ({3 if j == 3 else 1})" for j in range(20))
    assert found.lines(model) == [
        f"layer 0: 24 of 220 weight bits not decided, in neurons {named}, ..."
    ]
    known[0][21, 1] = True
    assert Coverage(tuple(known), 286).lines(model) == [
        f"layer 0: 23 of 220 weight bits not decided, in neurons {named}, ..."
    ]
    known[0][20, 1] = True
    assert Coverage(tuple(known), 286).lines(model) == [
        f"layer 0: 22 of 220 weight bits not decided, in neurons {named}"
    ]
    assert Coverage((), 0).share == 1.0


def test_seed_0_is_the_default():
    model = random_model((30, 6, 3), np.random.default_rng(1))
    assert np.array_equal(deciding_vectors(model), deciding_vectors(model, 0))
    assert not np.array_equal(deciding_vectors(model), deciding_vectors(model, 1))


@pytest.mark.parametrize(("most", "found"), [(30 * 6 * 30, True), (30 * 6 * 30 - 1, False)])
def test_large_networks_are_not_descended(monkeypatch, most, found):
    """What a descent visits: the weights of the layers before, times their inputs."""
    model = random_model((30, 6, 4, 3), np.random.default_rng(1), extremes=False)
    left = [np.ones((layer.n_outputs, 1), dtype=np.uint32) for layer in model.hidden]
    monkeypatch.setattr(coverage_module, "_MAX_SOUGHT", most)
    assert bool(coverage_module._sought(model, left, np.random.default_rng(0))) is found
