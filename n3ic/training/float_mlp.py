"""The float MLP of the same shape: what binarization costs is measured against it."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from n3ic.model.bits import Bits
from n3ic.training.fit import batch_rows, deterministic

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

    Adam, cosine schedule, cross-entropy; the epoch with the best validation accuracy is kept.

    Args:
        train: bits of shape ``(rows, inputs)`` and class indices.
        validation: the same, to choose the epoch.
        test: bits to score.
        n_classes: number of classes.
        hidden: neurons of the hidden layers.
        seed: of the weights and the shuffling.

    Returns:
        Class probabilities of the test rows, float64 of shape ``(rows, classes)``.
    """
    with deterministic(seed):
        x, y = _tensor(train[0]), torch.from_numpy(train[1].astype(np.int64))
        widths = (x.shape[1], *hidden)
        parts: list[nn.Module] = []
        for a, b in pairwise(widths):
            parts += [nn.Linear(a, b), nn.ReLU()]
        network = nn.Sequential(*parts, nn.Linear(widths[-1], n_classes))
        optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
        batch = batch_rows(len(x), BATCH)
        steps = EPOCHS * -(-len(x) // batch)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        held, held_label = _tensor(validation[0]), validation[1]
        best, kept = -1.0, copy.deepcopy(network.state_dict())
        for _ in range(EPOCHS):
            for index in torch.randperm(len(x)).split(batch):
                loss = nn.functional.cross_entropy(network(x[index]), y[index])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                scheduler.step()
            accuracy = float((_scores(network, held).argmax(axis=1) == held_label).mean())
            if accuracy > best:
                best, kept = accuracy, copy.deepcopy(network.state_dict())
        network.load_state_dict(kept)
        return _scores(network, _tensor(test))


def _tensor(bits: Bits) -> Tensor:
    return torch.from_numpy(np.where(bits, np.float32(1), np.float32(-1)))


@torch.no_grad()
def _scores(network: nn.Module, x: Tensor) -> NDArray[np.float64]:
    out = torch.cat([network(part) for part in x.split(16_384)]).softmax(dim=1)
    return np.asarray(out.numpy(), dtype=np.float64)
