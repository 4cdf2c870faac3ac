# SPDX-License-Identifier: Apache-2.0
"""Explain a single decision: the exact effect of each input bit and feature on its margin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.kernel.prediction import scores
from n3ic.model.bits import Bits, Words, pack, unpack
from n3ic.model.classifier import Classifier, classes_of
from n3ic.model.inputs import InputSpec
from n3ic.model.network import BinaryModel


@dataclass(frozen=True, eq=False)
class Flips:
    """The effect of flipping each input bit of one flow.

    Attributes:
        bits: the flow's input bits, bool array of shape ``(n_bits,)``.
        scores: the flow's scores, int32 array of shape ``(classes,)``.
        winner: index of its class.
        support: decrease of the winner's lead over the best other class when the bit is flipped,
            int64 array of shape ``(n_bits,)``; positive if the bit supports the class.
        classes: class of the flow with that bit flipped, int64 array of shape ``(n_bits,)``.
        counted: number of first-layer neurons whose popcount counts the bit, int64 array of shape
            ``(n_bits,)``; None for other families.
    """

    bits: Bits
    scores: NDArray[np.int32]
    winner: int
    support: NDArray[np.int64]
    classes: NDArray[np.int64]
    counted: NDArray[np.int64] | None

    @property
    def margin(self) -> int:
        """The winner's lead over the best other class."""
        return int(_lead(self.scores[None, :], self.winner)[0])

    def strongest(self, count: int) -> NDArray[np.int64]:
        """Up to ``count`` bits with the largest effect above 0; ties go to the lower index."""
        order = np.argsort(-np.abs(self.support), kind="stable")[:count]
        return np.asarray(order[self.support[order] != 0], dtype=np.int64)


def flips(model: Classifier, words: Words) -> Flips:
    """Flip each input bit of a flow in turn.

    Effects of several bits need not add up, and there may be no flow with the flipped bits (a
    thermometer's bits are set from the lowest cut up).

    Args:
        model: a model.
        words: the flow's packed input, uint32 array of shape ``(n_words,)``.

    Raises:
        ModelError: the words are not a packed input of this model.
    """
    bits = unpack(np.asarray(words)[None, :], model.input.n_bits)
    every = bits ^ np.eye(bits.shape[1], dtype=np.bool_)  # row i has bit i flipped
    all_scores = scores(model, pack(np.concatenate([bits, every])))
    winner = int(classes_of(all_scores[:1])[0])
    lead = _lead(all_scores, winner)
    counted = None
    if isinstance(model, BinaryModel):
        first = model.layers[0]
        equal = first.weights == bits
        counted = (equal if first.mask is None else equal & first.mask).sum(axis=0, dtype=np.int64)
    return Flips(
        bits[0], all_scores[0], winner, lead[0] - lead[1:], classes_of(all_scores[1:]), counted
    )


@dataclass(frozen=True)
class FeatureChange:
    """The effect of other values of one feature on a decision.

    Attributes:
        feature: name of the feature.
        value: value of the flow.
        least: the winner's smallest lead over all tried values; negative if another class wins.
        nearest: nearest value for which another class wins; None if no value changes the class.
        called: index of that class; the winner's if no value changes the class.
    """

    feature: str
    value: int
    least: int
    nearest: int | None
    called: int


def feature_changes(model: Classifier, values: Mapping[str, int]) -> tuple[FeatureChange, ...]:
    """Change one feature of a flow at a time.

    Thermometer fields are tried on both sides of every cut, which covers every input that they can
    make. A feature with a binary field is also tried at the powers of two.

    Args:
        model: a model.
        values: integers of the flow, by feature.

    Returns:
        One entry per feature that the model reads, the smallest lead first.
    """
    winner = int(classes_of(scores(model, _encoded(model, values, "", [0])))[0])
    out = []
    for name in model.input.features:
        candidates = _tried(model.input, name)
        all_scores = scores(model, _encoded(model, values, name, candidates))
        lead, classes = _lead(all_scores, winner), classes_of(all_scores)
        value = int(values[name])
        changes = [(abs(v - value), v, int(c)) for v, c in zip(candidates, classes, strict=True)]
        first = min((o for o in changes if o[2] != winner), default=(0, None, winner))
        out.append(FeatureChange(name, value, int(lead.min()), first[1], first[2]))
    return tuple(sorted(out, key=lambda change: change.least))


def _tried(spec: InputSpec, feature: str) -> list[int]:
    values = {0}
    for f in spec.fields:
        if f.feature == feature:  # all values between two cuts give the same bits
            values |= {f.clamp, *f.cuts, *(cut - 1 for cut in f.cuts)}
            if f.kind == "binary":
                values |= {min(1 << i, f.clamp) for i in range(f.width)}
    return sorted(values)


def _encoded(
    model: Classifier, values: Mapping[str, int], feature: str, candidates: Sequence[int]
) -> Words:
    """Packed inputs of a flow with one of its features set to each of some values."""
    same = {name: np.full(len(candidates), values[name], dtype=np.int64) for name in values}
    return model.encode(same | ({feature: np.array(candidates, dtype=np.int64)} if feature else {}))


def _lead(all_scores: NDArray[np.int32], winner: int) -> NDArray[np.int64]:
    """Lead of a class over the best other one in each row; negative if it is behind."""
    wide = all_scores.astype(np.int64)  # a difference of two int32 may need 33 bits
    return np.asarray(wide[:, winner] - np.delete(wide, winner, axis=1).max(axis=1))
