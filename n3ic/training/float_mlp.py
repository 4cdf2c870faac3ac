# SPDX-License-Identifier: Apache-2.0
"""The float MLP of the same shape, which shows what binarization costs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from n3ic.model.bits import Bits
from n3ic.training.loop import (
    Passes,
    batch_rows,
    class_indices,
    deterministic,
    logits_of,
    run_epochs,
    signs,
)

EPOCHS = 30
BATCH = 512
LEARNING_RATE = 3e-3


def fit_float_mlp(
    train: tuple[Bits, NDArray[np.int64]],
    validation: tuple[Bits, NDArray[np.int64]],
    test: Bits,
    n_classes: int,
    hidden: tuple[int, ...],
    seed: int,
) -> NDArray[np.float64]:
    """Train a float MLP with ReLU on bits, and score the test rows.

    Adam, cosine schedule, cross-entropy; the epoch with the least validation loss is kept.

    Args:
        train: bits of shape ``(rows, inputs)`` and class indices.
        validation: the same, to choose the epoch.
        test: bits to score.
        n_classes: number of classes.
        hidden: neurons of the hidden layers.
        seed: seed of the weights and the shuffling.

    Returns:
        Class probabilities of the test rows, float64 of shape ``(rows, classes)``.
    """
    with deterministic(seed):
        x, y = signs(train[0]), class_indices(train[1])
        widths = (x.shape[1], *hidden)
        parts: list[nn.Module] = []
        for a, b in pairwise(widths):
            parts += [nn.Linear(a, b), nn.ReLU()]
        network = nn.Sequential(*parts, nn.Linear(widths[-1], n_classes))  # its output is logits

        def loss(index: Tensor) -> Tensor:
            return nn.functional.cross_entropy(network(x[index]), y[index])

        run_epochs(
            network,
            torch.optim.Adam(network.parameters(), lr=LEARNING_RATE),
            loss,
            len(x),
            Passes(EPOCHS, batch_rows(len(x), BATCH)),
            validation=(signs(validation[0]), class_indices(validation[1])),
        )
        odds = logits_of(network, signs(test)).softmax(dim=1)
        return np.asarray(odds.numpy(), dtype=np.float64)
