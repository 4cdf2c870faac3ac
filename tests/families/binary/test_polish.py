# SPDX-License-Identifier: Apache-2.0
"""Coordinate descent on the integer network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import ModelError
from n3ic.families.binary.polish import _open, _Search, polish
from n3ic.model.bits import pack, unpack
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model


def _loss(
    model: BinaryModel, words: np.ndarray, label: np.ndarray, temperature: float, q: float = 0.0
) -> float:
    z = model.scores(words) * temperature
    z = z - z.max(axis=1, keepdims=True)
    own = np.exp(z[np.arange(len(z)), label]) / np.exp(z).sum(axis=1)
    return float(((1 - own**q) / q if q else -np.log(own)).sum())


def _best_loss(model: BinaryModel, words: np.ndarray, label: np.ndarray) -> float:
    return min(_loss(model, words, label, t) for t in np.geomspace(1e-3, 8, 100))


def _case(
    seed: int, shape: tuple[int, ...], density: float | None, rows: int = 300
) -> tuple[BinaryModel, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    model = random_model(shape, rng, density=density)
    words = pack(rng.random((rows, shape[0])) < 0.5)
    return model, words, rng.integers(0, shape[-1], rows)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(9, 6, 2), (12, 7, 5, 3), (33, 4, 2), (10, 3)]),
    density=st.sampled_from([None, 0.6]),
)
def test_loss_never_rises_and_the_rest_stays(
    seed: int, shape: tuple[int, ...], density: float | None
) -> None:
    model, words, label = _case(seed, shape, density)
    better = polish(model, words, label, rounds=2, min_gain=0.01)
    assert better.shape == model.shape and better.classes == model.classes
    assert better.input == model.input and better.has_masks == model.has_masks
    for old, new in zip(model.layers, better.layers, strict=True):
        if old.mask is not None:
            assert new.mask is not None and (new.mask == old.mask).all()
    assert _best_loss(better, words, label) <= _best_loss(model, words, label) + 0.2


def _moves(model: BinaryModel, depth: int, j: int) -> list[BinaryModel]:
    """The model after every single move of one hidden neuron that polishing knows."""
    layer = model.hidden[depth]
    out = []
    for flip in (-1, *range(layer.n_inputs)):
        if flip >= 0 and layer.mask is not None and not layer.mask[j, flip]:
            continue
        for shift in (-3, -2, -1, 1, 2, 3) if flip < 0 else (-1, 0, 1):
            weights, thresholds = layer.weights.copy(), layer.thresholds.copy()
            if flip >= 0:
                weights[j, flip] ^= True
            thresholds[j] += shift
            if 0 <= thresholds[j] <= layer.fan_in[j] + 1:
                hidden = list(model.hidden)
                hidden[depth] = replace(layer, weights=weights, thresholds=thresholds)
                out.append(replace(model, hidden=tuple(hidden)))
    return out


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("density", [None, 0.7])
@pytest.mark.parametrize("q", [0.0, 0.7])
def test_a_neurons_move_is_the_best_of_all_of_them(
    seed: int, density: float | None, q: float
) -> None:
    model, words, label = _case(seed, (11, 6, 4, 2 + seed % 2), density)
    depth, j = seed % 2, seed % 4
    layers = [
        *(_open(layer, layer.thresholds) for layer in model.hidden),
        _open(model.output, model.output.bias),
    ]
    x = np.where(unpack(words, 11), np.float32(1), np.float32(-1))
    search = _Search(layers, x, label, np.ones(len(label)), 0.01, 1, q)
    t = search.temperature
    inputs = x
    for layer in layers[:depth]:
        inputs = layer.fires(layer.popcounts(inputs))
    layer, following = layers[depth], layers[depth + 1]
    popcounts = layer.popcounts(inputs)
    fires = layer.fires(popcounts)
    column = following.weights[:, j]
    base = following.popcounts(fires) - (fires[:, j, None] * column > 0)
    cost = search._after(depth + 1, base + (column > 0)) - search._after(
        depth + 1, base + (column < 0)
    )
    made, after = search._neuron(layer, j, inputs, popcounts[:, j], cost)
    brute = min(_loss(m, words, label, t, q) for m in _moves(model, depth, j))
    now = _loss(model, words, label, t, q)
    assert made == (brute < now - 0.01)
    hidden = tuple(
        replace(old, weights=new.weights >= 0, thresholds=new.offsets)
        for old, new in zip(model.hidden, layers[:-1], strict=True)
    )
    moved = replace(model, hidden=hidden)
    assert _loss(moved, words, label, t, q) == pytest.approx(min(brute, now) if made else now)
    assert (after == layer.popcounts(inputs)[:, j]).all()


def test_a_damaged_network_is_mended() -> None:
    rng = np.random.default_rng(3)
    whole = random_model((40, 12, 6, 2), rng, extremes=False)
    words = pack(rng.random((4000, 40)) < 0.5)
    label = np.argmax(whole.scores(words), axis=1)
    first = whole.hidden[0]
    weights = first.weights ^ (rng.random(first.weights.shape) < 0.1)
    damaged = replace(
        whole,
        hidden=(
            HiddenLayer(weights, thresholds=first.thresholds + 1),
            *whole.hidden[1:],
        ),
        output=OutputLayer(whole.output.weights, bias=np.array([3, -3], dtype=np.int32)),
    )

    def accuracy(model: BinaryModel) -> float:
        return float((np.argmax(model.scores(words), axis=1) == label).mean())

    mended = polish(damaged, words, label, rounds=12, min_gain=0.1)
    assert accuracy(mended) > accuracy(damaged) + 0.5 * (1 - accuracy(damaged))


def test_same_seed_same_bytes_and_the_given_model_is_untouched() -> None:
    model, words, label = _case(5, (20, 8, 4, 2), None, rows=500)
    before = model.to_bytes()
    first = polish(model, words, label, min_gain=0.01, seed=1)
    assert first == polish(model, words, label, min_gain=0.01, seed=1)
    assert model.to_bytes() == before and first.to_bytes() != before


def test_nothing_gained_is_nothing_moved() -> None:
    model, words, label = _case(5, (20, 8, 4, 2), None)
    assert polish(model, words, label, min_gain=1e9) == model


@pytest.mark.parametrize("label", [[0, 1], [0, 1, 2], []])
def test_labels_must_fit(label: list[int]) -> None:
    model, words, _ = _case(1, (8, 4, 2), None, rows=3)
    with pytest.raises(ModelError):
        polish(model, words, np.array(label, dtype=np.int64))
