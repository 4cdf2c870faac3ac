# SPDX-License-Identifier: Apache-2.0
"""Inputs that a verification runs: deciding ones, edges, and as many as were asked for."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from n3ic.families.binary import family as binary
from n3ic.families.binary.coverage import coverage, deciding_vectors
from n3ic.families.spn.random_models import random_spn
from n3ic.model.bits import unpack
from n3ic.model.classifier import margins_of
from n3ic.model.family import Decided, family
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import HiddenLayer
from n3ic.model.passes import simplify
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import margin_vectors


def inputs_to_run(network, count, seed):
    return family(network.source.family).vectors(network, count, seed)


def decided_by(model, inputs, got):
    return family(model.family).decided(model, inputs, got)


MODEL = random_model((40, 8, 3), np.random.default_rng(0), density=0.6, extremes=False)


@pytest.mark.parametrize("count", [1, 200, 333])
def test_as_many_as_asked_for_or_what_must_be(count):
    network = simplify(MODEL)
    words = inputs_to_run(network, count, 5)
    least = len(deciding_vectors(network.model, 5))
    assert words.shape[1] == 2 and words.dtype == np.uint32
    assert len(words) == count if count > 100 + least else len(words) >= least
    assert np.array_equal(words, inputs_to_run(network, count, 5))
    assert not np.array_equal(words[:least], inputs_to_run(network, count, 6)[:least])


def test_bits_that_are_not_read_are_random_and_the_same_for_ever():
    model = random_model((40, 8, 3), np.random.default_rng(0), extremes=False)
    mask = np.ones((8, 40), bool)
    mask[:, ::2] = False
    first = model.hidden[0]
    hidden = HiddenLayer(first.weights, mask=mask, thresholds=np.minimum(first.thresholds, 12))
    spec = InputSpec((Field.thermometer("a", range(1, 41)),))
    network = simplify(replace(model, input=spec, hidden=(hidden,)))
    assert network.source_bits == (*range(1, 40, 2),)
    words = inputs_to_run(network, 60, 5)
    assert hashlib.sha256(words.astype("<u4").tobytes()).hexdigest()[:8] == "46c5cb62"
    idle = np.delete(unpack(words, 40), list(network.source_bits), axis=1)
    assert idle.any(axis=0).all() and not idle.all(axis=0).any()


def test_the_first_decide_what_can_be_decided():
    network = simplify(MODEL)
    words = inputs_to_run(network, 300, 5)
    deciding = deciding_vectors(network.model, 5)
    bits = unpack(words[: len(deciding)], 40)[:, list(network.source_bits)]
    assert np.array_equal(bits, unpack(deciding, network.model.input.n_bits))
    counts = decided_by(network.model, network.inputs(words), network.model.infer(words[:0]))
    assert counts.parameters == "weight bits"
    assert (counts.total, counts.decided) == (counts.total, counts.total)
    assert counts.undecided == ()


def test_margins_at_the_threshold_are_among_the_edges():
    model = MODEL.with_shunt(1)
    edges = margin_vectors(model, 5)
    margins = margins_of(model.scores(edges))
    assert len(edges) == 64
    assert (margins == 1).sum() >= 32 and (margins == 0).sum() >= 32


def test_a_sum_product_network_has_vectors_of_its_own():
    model = random_spn(np.random.default_rng(2))
    words = inputs_to_run(simplify(model), 700, 1)
    assert len(words) == 700
    counts = decided_by(model, words, model.infer(words))
    assert counts.parameters == "entries and weights"
    assert 0 < counts.decided <= counts.total


def test_2_to_the_21_weights_are_followed_to_the_scores():
    assert binary._MAX_FOLLOWED == 2_097_152


def test_neurons_of_a_large_network_are_followed_where_hidden_bits_are_told(monkeypatch):
    words = inputs_to_run(simplify(MODEL), 50, 0)
    inference = MODEL.infer(words)
    without_hidden = type(inference)(inference.scores, inference.classes, inference.margins, ())
    bits = sum(int(layer.fan_in.sum()) for layer in MODEL.layers)
    for most, followed in ((bits, True), (bits - 1, False)):
        monkeypatch.setattr(binary, "_MAX_FOLLOWED", most)
        known = coverage(MODEL, words, hidden=False)
        expected = (known.total, known.decided) if followed else (0, 0)
        counts = decided_by(MODEL, words, without_hidden)
        assert (counts.total, counts.decided) == expected
        assert (counts == Decided()) == (not followed)
        with_hidden = coverage(MODEL, words, hidden=True)
        counts = decided_by(MODEL, words, inference)
        assert (counts.total, counts.decided) == (with_hidden.total, with_hidden.decided)
        assert counts.undecided == tuple(with_hidden.lines(MODEL))
