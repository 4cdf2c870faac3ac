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
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.passes import simplify
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import margin_vectors, verification_vectors


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
    layers = []
    for i, layer in enumerate(model.layers):
        known = np.zeros(layer.weights.shape, np.bool_)
        for j, k in np.ndindex(*layer.weights.shape):
            if layer.mask is None or layer.mask[j, k]:
                got = with_flipped(model, i, j, k).infer(words)
                known[j, k] = (got.scores != want.scores).any() or (
                    hidden
                    and any((a != b).any() for a, b in zip(got.hidden, want.hidden, strict=True))
                )
        layers.append(known)
    return layers


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
    report = coverage(model, words, hidden=hidden)
    for known, want in zip(report.layers, by_flipping(model, words, hidden), strict=True):
        assert np.array_equal(known, want)
    assert report.total == sum(int(layer.fan_in.sum()) for layer in model.layers)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_covered_in_parts(monkeypatch, seed, hidden):
    """A layer that is decided early does not end the others."""
    rng = np.random.default_rng(seed)
    model = random_model((40, 6, 5, 3), rng, density=0.7, extremes=False)
    words = pack(rng.random((60, 40)) < 0.5)
    whole = coverage(model, words, hidden=hidden)
    assert whole.layers[-1].sum() == model.output.fan_in.sum()
    for rows in (1, 7, 59, 60):
        monkeypatch.setattr(coverage_module, "_ROWS", rows)
        parts = coverage(model, words, hidden=hidden)
        assert parts.total == whole.total
        for one, other in zip(parts.layers, whole.layers, strict=True):
            assert np.array_equal(one, other)


def test_a_part_has_1024_rows(monkeypatch):
    rows, strike = [], coverage_module._strike

    def struck(model, words, left, hidden):
        rows.append(len(words))
        return strike(model, words, left, hidden)

    monkeypatch.setattr(coverage_module, "_strike", struck)
    model = random_model((9, 2, 2), np.random.default_rng(0), extremes=False)
    coverage(model, np.zeros((2050, 1), np.uint32), hidden=False)
    assert rows == [1024, 1024, 2]
    rows.clear()
    coverage(model, deciding_vectors(model).repeat(1024, axis=0), hidden=True)
    assert set(rows[1:]) == {1024} and len(rows) > 2


@pytest.mark.parametrize(
    ("shape", "cells", "rows"),
    [
        ((40, 3, 2), 1 << 24, 2048),
        ((64, 4096, 2), 1 << 24, (1 << 24) // (4096 * 2 + 2 * 128)),
        ((40, 3, 2), 8 * 1000, 1000),
        ((40, 3, 2), 8 * 65, 65),
        ((40, 3, 2), 8 * 63, 64),
    ],
)
def test_a_round_has_fewer_rows_for_large_networks(monkeypatch, shape, cells, rows):
    """As many as their weight words, and no more than 2048 and no fewer than 64."""

    class AskedError(Exception):
        pass

    def candidates(model, left, useful, near, rows, rng):
        raise AskedError(rows)

    nothing = np.zeros((1, shape[0]), dtype=bool)
    monkeypatch.setattr(coverage_module, "boundary_vectors", lambda model, rng: nothing)
    monkeypatch.setattr(coverage_module, "_strike", lambda *_: np.empty(0, np.int64))
    monkeypatch.setattr(coverage_module, "_candidates", candidates)
    if cells != 1 << 24:
        monkeypatch.setattr(coverage_module, "_CELLS", cells)
    with pytest.raises(AskedError) as asked:
        deciding_vectors(random_model(shape, np.random.default_rng(0)))
    assert asked.value.args == (rows,)


@pytest.mark.parametrize(
    ("distances", "rounds"),
    [
        (range(100, 0, -1), 48),  # nearer each time
        ([9] * 60, 1 + 6),  # the first is nearer than nothing was
        ([9] * 6 + [8] + [8] * 60, 7 + 6),
        ([9, 9, 9, 10, 9, *[8] * 60], 6 + 6),
    ],
)
def test_a_search_ends_after_six_rounds_that_bring_nothing_or_after_48(
    monkeypatch, distances, rounds
):
    nothing, left, asked = np.zeros((1, 9), bool), iter(distances), []

    def candidates(*_):
        asked.append(1)
        return nothing

    monkeypatch.setattr(coverage_module, "boundary_vectors", lambda *_: nothing)
    monkeypatch.setattr(coverage_module, "_strike", lambda *_: np.empty(0, np.int64))
    monkeypatch.setattr(coverage_module, "_candidates", candidates)
    monkeypatch.setattr(coverage_module, "_sought", lambda *_: [])
    monkeypatch.setattr(coverage_module, "_nearest", lambda *_: (nothing, next(left)))
    assert len(deciding_vectors(random_model((9, 3, 2), np.random.default_rng(0)))) == 0
    assert len(asked) == rounds


def test_inputs_that_are_tried_are_of_four_kinds():
    """Random ones, few flips of useful and of near ones, and neurons at their thresholds."""
    rng = np.random.default_rng(5)
    model = random_model((70, 40, 3), rng, extremes=False)
    useful, near = np.zeros((3, 70), bool), np.ones((2, 70), bool)
    left = _connections(model)[0]
    left[:, 0] = left[:, 2] = 0  # what is left of a neuron may be in any word
    left[:7] = left[9:] = 0
    inputs = coverage_module._candidates(model, left, useful, near, 4000, rng)
    random, of_useful, of_near, edges = np.split(inputs, [1000, 2000, 3000])
    assert len(np.unique(random.sum(axis=1))) > 60  # of every density
    for parts, flips in ((of_useful, of_useful.sum(axis=1)), (of_near, (~of_near).sum(axis=1))):
        assert len(parts) == 1000
        assert flips.mean() == pytest.approx((1 + 2 + 4 + 16) / 4, rel=0.15)
        assert (flips <= 2).mean() > 0.4 and (flips > 8).mean() > 0.2
    assert len(edges) == 2 * 500
    over = model.hidden[0].popcounts(pack(edges)) - model.hidden[0].thresholds
    at, below = over[::2], over[1::2]
    assert ((at[:, 7] == 0) | (at[:, 8] == 0)).all()
    assert ((below[:, 7] == -1) | (below[:, 8] == -1)).all()
    decided = coverage_module._candidates(model, left & 0, useful, near, 40, rng)
    assert len(decided) == 30


def test_inputs_are_made_for_neurons_with_anything_left():
    """Of a layer of two words, one of which is decided; four neurons at most of each layer."""
    model = random_model((12, 40, 6, 5, 2), np.random.default_rng(1), extremes=False)
    left = [layer & 0 for layer in _connections(model)]
    assert coverage_module._sought(model, left, np.random.default_rng(0)) == []
    left[0][:] = 1  # the first layer's neurons have inputs at their thresholds without a search
    assert coverage_module._sought(model, left, np.random.default_rng(0)) == []
    left[1][2, 1] = 1
    inputs = coverage_module._sought(model, left, np.random.default_rng(0))
    assert [x.shape for x in inputs] == [(1, 12), (1, 12)]
    for number, vectors in ((3, 6), (4, 8), (5, 8)):
        left[2][:number] = 1
        rows = coverage_module._sought(model, left, np.random.default_rng(0))
        assert len(rows) == 2 + vectors


@pytest.mark.parametrize("masked", [False, True])
def test_a_descent_finds_an_input_on_which_a_layer_gives_what_is_wanted(masked):
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(40):
        layer = random_model((24, 4, 2), rng, density=0.7 if masked else None, extremes=False)
        wanted = rng.random(4) < 0.5
        x = coverage_module._descend(layer.hidden[0], wanted, rng)
        assert x.shape == (24,) and x.dtype == bool
        given = layer.hidden[0].popcounts(pack(x[None, :]))[0] >= layer.hidden[0].thresholds
        hits += (given == wanted).all()
    assert hits >= 36


def test_the_last_layer_is_decided_by_any_vector_and_by_none_it_is_not():
    model = random_model((40, 35, 3), np.random.default_rng(0))
    mask = np.ones((3, 35), bool)
    mask[1, 32:] = mask[2] = False  # nothing of a word, or of a class
    model = replace(model, output=replace(model.output, mask=mask))
    left = _connections(model)
    nothing = np.zeros((0, 2), np.uint32)
    assert coverage_module._strike(model, nothing, left, hidden=True).tolist() == []
    assert (left[1] == model.output.mask_words).all()
    left[0][:] = 0
    one = np.zeros((1, 2), np.uint32)
    assert coverage_module._strike(model, one, left, hidden=True).tolist() == [0]
    assert not left[1].any()
    assert coverage_module._strike(model, one, left, hidden=True).tolist() == []


@pytest.mark.parametrize(("outputs", "is_found"), [(64, True), (65, False)])
def test_a_descent_visits_2_to_the_26_weights_at_most(monkeypatch, outputs, is_found):
    """Each of 1,024 inputs may be flipped, and each flip reads the weights of 64 neurons."""
    model = random_model((1024, outputs, 2, 2), np.random.default_rng(0), extremes=False)
    monkeypatch.setattr(coverage_module, "_descend", lambda layer, wanted, rng: wanted)
    sought = coverage_module._sought(model, _connections(model), np.random.default_rng(0))
    assert bool(sought) is is_found


@pytest.mark.parametrize("density", [None, 0.5])
def test_a_few_vectors_decide_every_bit_by_the_scores(density):
    model = random_model((256, 32, 16, 2), np.random.default_rng(0), density=density)
    model = simplify(model).model  # constant neurons have bits that nothing can decide
    words = deciding_vectors(model)
    report = coverage(model, words, hidden=False)
    assert report.decided == report.total, report.lines(model)
    assert report.lines(model) == []
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
    report = coverage(model, deciding_vectors(model, hidden=True), hidden=True)
    # At one below its threshold both bits flip it one way: each disagrees in one of two states.
    assert report.layers[0].all()
    assert report.decided == report.total
    stuck = replace(never, thresholds=np.array([3], np.int32))
    model = replace(model, hidden=(twins, stuck))
    report = coverage(model, deciding_vectors(model, hidden=True), hidden=True)
    assert report.decided < report.total
    assert report.lines(model) == ["layer 1: 2 of 2 weight bits not decided, in neurons 0 (2)"]


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


@pytest.mark.slow
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
    report = Coverage(tuple(known), 220 + 66)
    assert report.decided == 286 - 24
    named = ", ".join(f"{j} ({3 if j == 3 else 1})" for j in range(20))
    assert report.lines(model) == [
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


def test_seed_0_is_the_default():
    model = random_model((30, 6, 3), np.random.default_rng(1))
    assert np.array_equal(deciding_vectors(model), deciding_vectors(model, 0))
    assert not np.array_equal(deciding_vectors(model), deciding_vectors(model, 1))


@pytest.mark.parametrize(("most", "is_found"), [(30 * 6 * 30, True), (30 * 6 * 30 - 1, False)])
def test_large_networks_are_not_descended(monkeypatch, most, is_found):
    """What a descent visits: the weights of the layers before, times their inputs."""
    model = random_model((30, 6, 4, 3), np.random.default_rng(1), extremes=False)
    left = [np.ones((layer.n_outputs, 1), dtype=np.uint32) for layer in model.hidden]
    monkeypatch.setattr(coverage_module, "_MAX_SOUGHT", most)
    assert bool(coverage_module._sought(model, left, np.random.default_rng(0))) is is_found
