# SPDX-License-Identifier: Apache-2.0
"""Trains the binarized MLP by gradient descent.

:func:`n3ic.train` does this and more. By hand, from input bits to an integer network::

    trained = fit_network(bits, train.label, len(train.classes), recipe.training, seed=0)
    model = fold(trained.network, spec, train.classes)  # n3ic.families.binary.fold
    check_fold(trained.network, model, bits)  # equal scores on every row
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from n3ic.errors import UsageError
from n3ic.families.binary.binary_mlp import BinaryMLP
from n3ic.model.bits import Bits
from n3ic.training.loop import (
    Epoch,
    EpochCallback,
    Passes,
    batch_rows,
    class_indices,
    deterministic,
    run_epochs,
    signs,
)
from n3ic.training.recipe import Training

_PRUNE_FROM, _PRUNE_TO = 0.1, 0.6  # share of the epochs over which connections are removed


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network and the figures of its epochs."""

    network: BinaryMLP
    history: tuple[Epoch, ...]


def fit_network(
    bits: Bits,
    label: NDArray[np.int64],
    n_classes: int,
    config: Training,
    *,
    seed: int,
    validation: tuple[Bits, NDArray[np.int64]] | None = None,
    teacher: NDArray[np.floating] | None = None,
    sample_weight: NDArray[np.floating] | None = None,
    class_weight: NDArray[np.floating] | None = None,
    progress: EpochCallback | None = None,
) -> Trained:
    """Train a binarized MLP; the same arguments give the same network.

    Args:
        bits: bool array of shape ``(rows, inputs)``.
        label: class index of each row.
        n_classes: number of classes.
        config: how to train.
        seed: seed of the initial weights, the shuffling and the dropout.
        validation: rows that choose the epoch, never trained on; None keeps the last epoch.
        teacher: class probabilities of shape ``(rows, classes)``, for distillation.
        sample_weight: weight of each row, shape ``(rows,)``.
        class_weight: weight of each class, shape ``(classes,)``, for training and for the choice of
            the epoch; None for equal weights, even if ``config`` has some.
        progress: called after every epoch with its number and the number of epochs.

    Raises:
        UsageError: the recipe asks for distillation, but no teacher is given.
    """
    if config.distill and teacher is None:
        raise UsageError("distillation needs the teacher's probabilities")
    with deterministic(seed):
        x, y = signs(bits), class_indices(label)
        of_class = None if class_weight is None else _floats(class_weight)
        weight = None if sample_weight is None else _floats(sample_weight)
        if of_class is not None:
            weight = of_class[y] if weight is None else weight * of_class[y]
        soft = None if teacher is None else torch.from_numpy(teacher.astype(np.float32))
        network = BinaryMLP(x.shape[1], n_classes, config)

        def loss(index: Tensor) -> Tensor:
            return _loss(
                network(x[index]),
                y[index],
                None if weight is None else weight[index],
                None if soft is None else soft[index],
                config,
            )

        history = run_epochs(
            network,
            _optimizer(network, config),
            loss,
            len(x),
            Passes(
                epochs=config.epochs,
                batch=batch_rows(len(x), config.batch_size),
                least_batch=2 if config.batch_norm else 1,  # one row has no variance
                cosine=config.schedule == "cosine",
                choose_from=_pruned_from(config),
                patience=config.patience,
            ),
            validation=None
            if validation is None
            else (signs(validation[0]), class_indices(validation[1])),
            validation_loss=partial(generalized_cross_entropy, q=config.bounded_by, weight=of_class)
            if config.bounded_by
            else partial(nn.functional.cross_entropy, weight=of_class),
            before_epoch=lambda epoch: _prune(network, config, epoch),
            after_step=network.clip_weights,
            progress=progress,
        )
    return Trained(network, history)


def _optimizer(network: BinaryMLP, config: Training) -> torch.optim.Optimizer:
    parameters = [p for p in network.parameters() if p.requires_grad]
    match config.optimizer:
        case "adam":
            return torch.optim.Adam(parameters, lr=config.learning_rate)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=config.learning_rate)
        case "sgd":
            return torch.optim.SGD(parameters, lr=config.learning_rate, momentum=0.9)


def _floats(weight: NDArray[np.floating]) -> Tensor:
    return torch.from_numpy(np.asarray(weight, dtype=np.float32))


def generalized_cross_entropy(
    logits: Tensor, y: Tensor, q: float, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """Compute ``(1 - p^q) / q`` of the probability p of a row's class; at most 1/q.

    The gradient is that of the cross-entropy times p^q. So rows whose label contradicts a confident
    network hardly change it (Zhang and Sabuncu, "Generalized Cross Entropy Loss for Training Deep
    Neural Networks with Noisy Labels", NeurIPS 2018).

    Args:
        logits: shape ``(rows, classes)``.
        y: class indices, shape ``(rows,)``.
        q: in (0, 1].
        reduction: ``mean``, or ``none`` for the loss of each row.
        weight: weight of each class in the mean, shape ``(classes,)``; None for equal weights.
    """
    rows = nn.functional.cross_entropy(logits, y, reduction="none")
    rows = -torch.expm1(-q * rows) / q  # 1 - p^q without cancellation where p is near 1
    if weight is not None:
        return (rows * weight[y]).sum() / weight[y].sum()
    return rows.mean() if reduction == "mean" else rows


def _loss(
    logits: Tensor, y: Tensor, weight: Tensor | None, soft: Tensor | None, config: Training
) -> Tensor:
    if config.loss == "squared_hinge":
        signs = 2.0 * nn.functional.one_hot(y, logits.shape[1]) - 1.0
        rows = (1 - signs * logits).clamp(min=0).square().mean(dim=1)
    elif config.bounded_by:
        rows = generalized_cross_entropy(logits, y, config.bounded_by, reduction="none")
    else:
        rows = nn.functional.cross_entropy(
            logits, y, reduction="none", label_smoothing=config.label_smoothing
        )
    if soft is not None and config.distill:
        against = -(soft * nn.functional.log_softmax(logits, dim=1)).sum(dim=1)
        rows = (1 - config.distill) * rows + config.distill * against
    if weight is not None:
        rows = rows * weight
    return rows.mean()


def _prune(network: BinaryMLP, config: Training, epoch: int) -> None:
    """Lower the fan-in along a cubic curve to the wanted density, then keep it."""
    last = _pruned_from(config)
    if config.density >= 1 or epoch > last:
        return
    progress = (epoch / config.epochs - _PRUNE_FROM) / (_PRUNE_TO - _PRUNE_FROM)
    if epoch == last:
        progress = 1.0
    if progress < 0:
        return
    share = config.density + (1 - config.density) * (1 - progress) ** 3
    for layer in network.binary_layers()[:-1]:
        layer.prune(max(1, round(share * layer.mask.shape[1])))


def _pruned_from(config: Training) -> int:
    """Return the first epoch, counted from 0, with the final connections."""
    if config.density >= 1 or config.epochs < 5:
        return 0
    return next(e for e in range(config.epochs) if e / config.epochs >= _PRUNE_TO)
