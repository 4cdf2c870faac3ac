# SPDX-License-Identifier: Apache-2.0
"""Chooses networks of prototypes for few input bits, without training.

A neuron of the first layer fires iff its inputs differ from its weights in at most some number of
bits. It is a ball around a prototype. Few bits make few different rows, so all balls can be tried.
Balls are added as in boosting (additive logistic regression, Friedman et al. 2000). All steps have
one size, because an output weight is +1 or -1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import needed
from n3ic.model.bits import Bits
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.util.signals import check

STEP = 0.5  # logits that a firing ball adds
_FARTHEST = 6  # largest radius that is tried
_MOST_CELLS = 1536  # distinct rows, the heaviest ones, that are considered with two classes

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class _Ball:
    """Rows that differ from a pattern in at most ``radius`` bits, for or against a class."""

    centre: Bits
    radius: int
    class_: int
    in_favour: bool


def prototype_network(
    bits: Bits,
    label: NDArray[np.int64],
    spec: InputSpec,
    classes: tuple[str, ...],
    neurons: int,
    *,
    class_weight: NDArray[np.floating] | None = None,
    name: str = "model",
    provenance: dict[str, str] | None = None,
) -> BinaryModel:
    """Choose a network with one hidden layer of balls; polish it afterwards.

    Args:
        bits: bool array of shape ``(rows, inputs)``, of training rows.
        label: class index of each row, shape ``(rows,)``.
        spec: the meaning of the bits.
        classes: name of each class.
        neurons: number of balls.
        class_weight: weight of a row of each class, shape ``(classes,)``; None for 1.
        name: the model's name.
        provenance: facts about its origin.

    Returns:
        The network, which depends on the rows but not on the number of cores.
    """
    with needed("training"):
        from threadpoolctl import threadpool_limits
    row = np.ones(len(classes)) if class_weight is None else class_weight
    cells, counts = _cells(bits, label, row.astype(np.float32))
    with threadpool_limits(1):  # parallel sums of floats would depend on the number of cores
        balls = _boosted(cells, counts, neurons)
    weights = np.stack([ball.centre for ball in balls])
    # At most `radius` bits differ: at least n_bits - radius agree.
    thresholds = np.array([spec.n_bits - ball.radius for ball in balls], dtype=np.int32)
    votes = np.zeros((len(classes), neurons), dtype=np.bool_)
    for j, ball in enumerate(balls):
        votes[:, j] = not ball.in_favour
        votes[ball.class_, j] = ball.in_favour
    # A ball that does not fire counts for the classes whose weight is 0.
    logits = 2 / STEP * np.log(_shares(counts)) - (~votes).sum(axis=1)
    return BinaryModel(
        input=spec,
        hidden=(HiddenLayer(weights, thresholds=thresholds),),
        output=OutputLayer(votes, bias=np.rint(logits - logits.max()).astype(np.int32)),
        classes=classes,
        name=name,
        provenance=provenance or {},
    )


def _cells(
    bits: Bits, label: NDArray[np.int64], weight: Floats
) -> tuple[Bits, NDArray[np.float32]]:
    """Merge equal rows, the heaviest first, and sum the weight of each class among them."""
    packed, of_row = np.unique(np.packbits(bits, axis=1), axis=0, return_inverse=True)
    counts = np.zeros((len(packed), len(weight)), dtype=np.float32)
    np.add.at(counts, (of_row.reshape(-1), label), weight[label])
    most = int(_MOST_CELLS * np.sqrt(2 / len(weight)))
    heaviest = np.argsort(-counts.sum(axis=1), kind="stable")[:most]
    cells = np.unpackbits(packed[heaviest], axis=1, count=bits.shape[1]).astype(np.bool_)
    return cells, counts[heaviest]


def _shares(counts: Floats) -> NDArray[np.float64]:
    """Compute the share of each class, never 0."""
    whole = counts.sum(axis=0, dtype=np.float64) + 1
    return np.asarray(whole / whole.sum())


def _boosted(cells: Bits, counts: Floats, neurons: int) -> list[_Ball]:
    signs = np.where(cells, np.float32(1), np.float32(-1))
    # Hamming distances: a dot product of +-1 is agreements less disagreements.
    distance = (cells.shape[1] - signs @ signs.T) / 2
    radii = np.arange(min(_FARTHEST, cells.shape[1]) + 1)
    inside = (distance <= radii[:, None, None]).astype(np.float32)  # (radii, centres, cells)
    rows = counts.sum(axis=1, keepdims=True)
    logits = np.tile(np.log(_shares(counts)), (len(cells), 1))
    balls: list[_Ball] = []
    for _ in range(neurons):
        check()
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds = (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32)
        # Gain of a ball by the second-order expansion of the log likelihood in its logit.
        slope, curve = counts - rows * odds, rows * odds * (1 - odds)
        sums = inside @ np.hstack([slope, curve])  # (radii, centres, 2 classes)
        pulls, drags = np.split(sums, 2, axis=2)
        gains = STEP * np.abs(pulls) - STEP**2 / 2 * drags
        radius, centre, class_ = np.unravel_index(int(gains.argmax()), gains.shape)
        in_favour = bool(pulls[radius, centre, class_] > 0)
        balls.append(_Ball(cells[centre], int(radius), int(class_), in_favour))
        logits[inside[radius, centre] > 0, class_] += STEP if in_favour else -STEP
    return balls
