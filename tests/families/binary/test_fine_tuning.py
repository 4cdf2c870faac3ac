# SPDX-License-Identifier: Apache-2.0
"""A network that is trained further begins as it was, keeps its shape, and gets better."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.families.binary.fine_tuning import fine_tune, unfold
from n3ic.families.binary.fold import fold
from n3ic.model.bits import pack
from n3ic.model.random_models import random_model
from n3ic.training.loop import signs


def a_model(shape, seed=0, mask=False):
    rng = np.random.default_rng(seed)
    model = random_model(shape, rng)
    if mask:
        first = model.hidden[0]
        mask = rng.random(first.weights.shape) < 0.5
        first = replace(first, mask=mask, thresholds=np.minimum(first.thresholds, mask.sum(axis=1)))
        model = replace(model, hidden=(first, *model.hidden[1:]))
    return model


def rows(model, n=400, seed=1):
    return np.random.default_rng(seed).random((n, model.input.n_bits)) < 0.5


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("shape", [(40, 9, 2), (33, 12, 7, 3)])
def test_an_opened_network_decides_as_the_integers(shape, mask):
    model = a_model(shape, mask=mask)
    bits = rows(model)
    network = unfold(model, signs(bits))
    again = fold(network, model.input, model.classes)
    assert np.array_equal(again.scores(pack(bits)), model.scores(pack(bits)))
    other = rows(model, seed=2)  # rows that chose no scale
    assert np.array_equal(again.scores(pack(other)), model.scores(pack(other)))


def test_further_training_learns_keeps_the_shape_and_is_the_same_again():
    model = a_model((40, 12, 2), mask=True)
    bits = rows(model, 600)
    label = (bits[:, :9].sum(axis=1) > 4).astype(np.int64)
    new = fine_tune(model, bits, np.eye(2)[label], epochs=12, seed=3)
    before, after = (
        (m.infer(pack(bits)).classes == label).mean() for m in (model, new)
    )  # fmt: skip
    assert after > before + 0.1
    assert new.input == model.input and new.shape == model.shape
    assert np.array_equal(new.hidden[0].mask, model.hidden[0].mask)
    again = fine_tune(model, bits, np.eye(2)[label], epochs=12, seed=3)
    assert again.to_bytes() == new.to_bytes()
