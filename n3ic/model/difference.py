# SPDX-License-Identifier: Apache-2.0
"""Find where an executor differs from the model: the vector, the layer, the neuron."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from n3ic.model.bits import Words
from n3ic.model.classifier import SHUNT, SHUNT_NAME, Classifier, Inference
from n3ic.model.layers import Connections, HiddenLayer
from n3ic.model.network import BinaryModel


@dataclass(frozen=True)
class Difference:
    """The first place where an executor's result differs from the model's.

    Attributes:
        vector: index of the input vector.
        layer: index of the layer; the last layer is that of the scores.
        neuron: index of the neuron or class; -1 if classes, margins or verdicts differ although
            the scores are equal (the tie rule, the shunting threshold).
        expected: what the model computes there.
        got: what the executor computed.
        vectors: number of vectors on which anything differs.
        text: the difference in words.
    """

    vector: int
    layer: int
    neuron: int
    expected: int
    got: int
    vectors: int
    text: str

    def __str__(self) -> str:
        return self.text


def first_difference(model: Classifier, actual: Inference, words: Words) -> Difference | None:
    """Compare scores, classes, margins, verdicts and any hidden bits with the model's.

    Args:
        model: the reference, of any family.
        actual: what an executor computed on ``words``.
        words: packed inputs, uint32 array of shape ``(rows, n_words)``.

    Returns:
        The first difference; None if everything is equal.
    """
    want = model.infer(words)
    hidden = model.hidden if isinstance(model, BinaryModel) else ()
    if actual.scores.shape != want.scores.shape:
        return Difference(
            0,
            len(hidden),
            -1,
            want.scores.size,
            actual.scores.size,
            len(words),
            f"scores of shape {want.scores.shape} expected, got {actual.scores.shape}",
        )
    differs = (
        (actual.scores != want.scores).any(axis=1)
        | (actual.classes != want.classes)
        | (actual.margins != want.margins)
    )
    if actual.verdicts is not None:
        differs |= actual.verdicts != want.verdicts
    elif model.shunt:
        text = f"no verdicts, the model shunts flows whose margin is below {model.shunt}"
        return Difference(0, len(hidden), -1, model.shunt, 0, len(words), text)
    for expected_bits, actual_bits in zip(want.hidden, actual.hidden, strict=False):
        differs |= (expected_bits != actual_bits).any(axis=1)
    rows = np.flatnonzero(differs)
    if not len(rows):
        return None
    row = int(rows[0])
    count = f"{len(rows):,} of {len(words):,} vectors differ; first vector {row}"
    x = words[[row]]
    for i, layer in enumerate(hidden):
        if i < len(actual.hidden):
            wrong = np.flatnonzero(actual.hidden[i][row] != want.hidden[i][row])
            if len(wrong):
                j = int(wrong[0])
                expected, value = int(want.hidden[i][row, j]), int(actual.hidden[i][row, j])
                text = (
                    f"{count}, layer {i}, neuron {j}: expected {expected}, got {value} "
                    f"({_neuron(layer, j, x)})"
                )
                return Difference(row, i, j, expected, value, len(rows), text)
        x = layer.fire(x)  # the model's bits, so that no later neuron inherits the mistake
    last = len(hidden)
    wrong = np.flatnonzero(actual.scores[row] != want.scores[row])
    if len(wrong):
        c = int(wrong[0])
        expected, value = int(want.scores[row, c]), int(actual.scores[row, c])
        name = model.classes[c]
        text = f"{count}, layer {last}, class {c} ({name}): score {expected} expected, got {value}"
        return Difference(row, last, c, expected, value, len(rows), text)
    if actual.classes[row] != want.classes[row]:
        expected, value = int(want.classes[row]), int(actual.classes[row])
        text = (
            f"{count}: scores {want.scores[row].tolist()} give class {expected} "
            f"(the lowest index wins a tie), got {value}"
        )
        return Difference(row, last, -1, expected, value, len(rows), text)
    expected, value = int(want.margins[row]), int(actual.margins[row])
    text = f"{count}: margin {expected} expected, got {value}"
    if value == expected and want.verdicts is not None and actual.verdicts is not None:
        margin, (expected, value) = value, (int(v[row]) for v in (want.verdicts, actual.verdicts))
        text = (
            f"{count}: margin {margin}, shunting threshold {model.shunt}: verdict "
            f"{_verdict(expected)} expected, got {_verdict(value)}"
        )
    return Difference(row, last, -1, expected, value, len(rows), text)


def _verdict(verdict: int) -> str:
    return SHUNT_NAME if verdict == SHUNT else f"class {verdict}"


def _neuron(layer: Connections, neuron: int, x: Words) -> str:
    popcount = int(layer.popcounts(x)[0, neuron])
    threshold = int(layer.thresholds[neuron]) if isinstance(layer, HiddenLayer) else 0
    return f"popcount {popcount}, threshold {threshold}"
