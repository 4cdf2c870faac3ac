# SPDX-License-Identifier: Apache-2.0
"""The first difference of an executor: which vector, layer and neuron, and in which order."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.model.bits import pack
from n3ic.model.difference import first_difference
from n3ic.model.random_models import random_model

MODEL = random_model((20, 6, 5, 3), np.random.default_rng(0), extremes=False)
WORDS = pack(np.random.default_rng(1).random((9, 20)) < 0.5)
GOOD = MODEL.infer(WORDS)


def place(difference):
    return (
        difference.vector,
        difference.layer,
        difference.neuron,
        difference.expected,
        difference.got,
        difference.vectors,
    )


def test_equal_models_have_no_difference():
    assert first_difference(MODEL, GOOD, WORDS) is None
    assert first_difference(MODEL, replace(GOOD, hidden=()), WORDS) is None


@pytest.mark.parametrize("layer", [0, 1])
def test_a_hidden_bit_is_named_with_its_popcount(layer):
    hidden = [h.copy() for h in GOOD.hidden]
    hidden[layer][[4, 7], 2] ^= True
    hidden[1][7, 0] ^= True
    difference = first_difference(MODEL, replace(GOOD, hidden=tuple(hidden)), WORDS)
    x = WORDS[4:5] if layer == 0 else MODEL.hidden[0].fire(WORDS[4:5])
    popcount = MODEL.hidden[layer].popcounts(x)[0, 2]
    threshold = MODEL.hidden[layer].thresholds[2]
    expected = int(GOOD.hidden[layer][4, 2])
    assert place(difference) == (4, layer, 2, expected, 1 - expected, 2)
    assert str(difference) == (
        f"2 of 9 vectors differ; first vector 4, layer {layer}, neuron 2: expected {expected}, "
        f"got {1 - expected} (popcount {popcount}, threshold {threshold})"
    )


def test_a_score_comes_before_a_class_and_a_class_before_a_margin():
    scores, classes, margins = GOOD.scores.copy(), GOOD.classes.copy(), GOOD.margins.copy()
    margins[3] += 1
    difference = first_difference(MODEL, replace(GOOD, margins=margins), WORDS)
    assert place(difference) == (3, 2, -1, GOOD.margins[3], margins[3], 1)
    assert str(difference) == (
        f"1 of 9 vectors differ; first vector 3: margin {GOOD.margins[3]} expected, "
        f"got {margins[3]}"
    )
    classes[3] = (classes[3] + 1) % 3
    difference = first_difference(MODEL, replace(GOOD, margins=margins, classes=classes), WORDS)
    assert place(difference) == (3, 2, -1, GOOD.classes[3], classes[3], 1)
    assert f"give class {GOOD.classes[3]} (the lowest index wins a tie), got {classes[3]}" in str(
        difference
    )
    scores[3, 1] -= 1
    scores[3, 2] -= 1
    difference = first_difference(
        MODEL, replace(GOOD, scores=scores, margins=margins, classes=classes), WORDS
    )
    assert place(difference) == (3, 2, 1, GOOD.scores[3, 1], scores[3, 1], 1)
    assert str(difference).endswith(
        f"first vector 3, layer 2, class 1 (class1): score {GOOD.scores[3, 1]} expected, "
        f"got {scores[3, 1]}"
    )


def test_scores_of_another_shape():
    difference = first_difference(MODEL, replace(GOOD, scores=GOOD.scores[:, :2]), WORDS)
    assert str(difference) == "scores of shape (9, 3) expected, got (9, 2)"
    assert place(difference) == (0, 2, -1, 27, 18, 9)


def test_verdicts_are_compared_where_a_model_shunts():
    model = MODEL.with_shunt(1)
    good = model.infer(WORDS)
    assert first_difference(model, good, WORDS) is None
    difference = first_difference(model, replace(good, verdicts=None), WORDS)
    assert str(difference) == "no verdicts, the model shunts flows whose margin is below 1"
    assert place(difference) == (0, 2, -1, 1, 0, 9)
    row = int(np.flatnonzero(good.margins >= 1)[0])
    verdicts = good.verdicts.copy()
    verdicts[row] = (verdicts[row] + 1) % 3
    difference = first_difference(model, replace(good, verdicts=verdicts), WORDS)
    assert place(difference) == (row, 2, -1, good.verdicts[row], verdicts[row], 1)
    assert str(difference) == (
        f"1 of 9 vectors differ; first vector {row}: margin {good.margins[row]}, shunting "
        f"threshold 1: verdict class {good.classes[row]} expected, got class {verdicts[row]}"
    )
