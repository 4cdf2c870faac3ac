"""The training loop."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from n3ic.errors import UsageError
from n3ic.model.bits import Bits
from n3ic.training.binary_mlp import BinaryMLP
from n3ic.training.recipe import Training

_EVAL_ROWS = 16_384
_LEAST_STEPS, _LEAST_BATCH = 32, 16
_PRUNE_FROM, _PRUNE_TO = 0.1, 0.6  # share of the epochs over which connections are removed


@dataclass(frozen=True)
class Epoch:
    """One pass: mean training loss, and loss and accuracy on the validation rows."""

    number: int
    loss: float
    validation_loss: float
    validation_accuracy: float


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network and how it came about."""

    network: BinaryMLP
    history: tuple[Epoch, ...]


EpochCallback = Callable[[Epoch, int], None]


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
    progress: EpochCallback | None = None,
) -> Trained:
    """Train a binarized MLP; the same arguments give the same network.

    Args:
        bits: bool array of shape ``(rows, inputs)``.
        label: class index of each row.
        n_classes: number of classes.
        config: how to train.
        seed: of the initial weights, the shuffling and the dropout.
        validation: rows that choose the epoch, never trained on; None keeps the last epoch.
        teacher: class probabilities of shape ``(rows, classes)``, for distillation.
        sample_weight: weight of each row, shape ``(rows,)``.
        progress: called after every epoch with it and the number of epochs.

    Raises:
        UsageError: distillation without a teacher.
    """
    if config.distill and teacher is None:
        raise UsageError("distillation needs the teacher's probabilities")
    with deterministic(seed):
        x = torch.from_numpy(np.where(bits, np.float32(1), np.float32(-1)))
        y = torch.from_numpy(np.asarray(label, dtype=np.int64))
        weight = _row_weights(y, n_classes, config, sample_weight)
        soft = None if teacher is None else torch.from_numpy(teacher.astype(np.float32))
        held = None
        if validation is not None:
            held = (
                torch.from_numpy(np.where(validation[0], np.float32(1), np.float32(-1))),
                torch.from_numpy(np.asarray(validation[1], dtype=np.int64)),
            )
        return _run(x, y, weight, soft, held, n_classes, config, progress)


def batch_rows(rows: int, wanted: int) -> int:
    """Rows a step: as many as wanted, fewer where that leaves an epoch under 32 steps.

    It never falls below 16 for that, which batch norm can bear.
    """
    return min(wanted, max(rows // _LEAST_STEPS, _LEAST_BATCH), rows)


def _run(
    x: Tensor,
    y: Tensor,
    weight: Tensor | None,
    soft: Tensor | None,
    held: tuple[Tensor, Tensor] | None,
    n_classes: int,
    config: Training,
    progress: EpochCallback | None,
) -> Trained:
    network = BinaryMLP(x.shape[1], n_classes, config)
    optimizer = _optimizer(network, config)
    batch = batch_rows(len(x), config.batch_size)
    steps = config.epochs * math.ceil(len(x) / batch)
    scheduler = (
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        if config.schedule == "cosine"
        else None
    )
    average = _Average(network, config.average) if config.average else None
    history: list[Epoch] = []
    best: tuple[float, dict[str, Tensor], list[bool]] | None = None
    stale = 0
    for epoch in range(config.epochs):
        _prune(network, config, epoch)
        network.train()
        total = 0.0
        order = torch.randperm(len(x))
        for index in order.split(batch):
            if len(index) < 2 and config.batch_norm:
                continue  # batch norm has no variance of one row
            loss = _loss(
                network(x[index]),
                y[index],
                None if weight is None else weight[index],
                None if soft is None else soft[index],
                config,
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            network.clip_weights()
            if average is not None:
                average.update(network)
            total += float(loss.detach()) * len(index)
        candidate = network if average is None else average.apply(network, x)
        entry = _evaluate(candidate, held, epoch, total / len(x))
        history.append(entry)
        if progress is not None:
            progress(entry, config.epochs)
        if held is None:
            best = None
        elif _pruned(config, epoch):
            if best is None or entry.validation_loss < best[0]:
                sparse = [layer.sparse for layer in candidate.binary_layers()]
                best = (entry.validation_loss, copy.deepcopy(candidate.state_dict()), sparse)
                stale = 0
            else:
                stale += 1
                if config.patience and stale >= config.patience:
                    break
    final = network if average is None else average.apply(network, x)
    if best is not None:
        final.load_state_dict(best[1])
        for layer, kept in zip(final.binary_layers(), best[2], strict=True):
            layer.sparse = kept
    final.eval()
    return Trained(final, tuple(history))


def _optimizer(network: BinaryMLP, config: Training) -> torch.optim.Optimizer:
    parameters = [p for p in network.parameters() if p.requires_grad]
    match config.optimizer:
        case "adam":
            return torch.optim.Adam(parameters, lr=config.learning_rate)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=config.learning_rate)
        case "sgd":
            return torch.optim.SGD(parameters, lr=config.learning_rate, momentum=0.9)


def _row_weights(
    y: Tensor, n_classes: int, config: Training, given: NDArray[np.floating] | None
) -> Tensor | None:
    weight = None if given is None else torch.from_numpy(given.astype(np.float32))
    if config.class_weight == "balanced":
        counts = torch.bincount(y, minlength=n_classes).clamp(min=1)
        balanced = (len(y) / (n_classes * counts.float()))[y]
        weight = balanced if weight is None else weight * balanced
    return weight


def _loss(
    logits: Tensor, y: Tensor, weight: Tensor | None, soft: Tensor | None, config: Training
) -> Tensor:
    if config.loss == "squared_hinge":
        signs = 2.0 * nn.functional.one_hot(y, logits.shape[1]) - 1.0
        rows = (1 - signs * logits).clamp(min=0).square().mean(dim=1)
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


@torch.no_grad()
def _evaluate(
    network: BinaryMLP, held: tuple[Tensor, Tensor] | None, epoch: int, loss: float
) -> Epoch:
    if held is None:
        return Epoch(epoch + 1, loss, math.nan, math.nan)
    network.eval()
    x, y = held
    logits = torch.cat([network(part) for part in x.split(_EVAL_ROWS)])
    held_loss = float(nn.functional.cross_entropy(logits, y))
    correct = logits.numpy().argmax(axis=1) == y.numpy()
    return Epoch(epoch + 1, loss, held_loss, float(correct.mean()))


def _prune(network: BinaryMLP, config: Training, epoch: int) -> None:
    """Lower the fan-in along a cubic curve to the wanted density, then leave it."""
    if config.density >= 1:
        return
    progress = (epoch / config.epochs - _PRUNE_FROM) / (_PRUNE_TO - _PRUNE_FROM)
    if config.epochs < 5:
        progress = 1.0
    if progress < 0 or (_pruned(config, epoch - 1) and epoch > 0):
        return
    share = config.density + (1 - config.density) * (1 - min(progress, 1.0)) ** 3
    for layer in network.binary_layers()[:-1]:
        layer.prune(max(1, round(share * layer.mask.shape[1])))


def _pruned(config: Training, epoch: int) -> bool:
    """Whether the connections of that epoch are the final ones."""
    if config.density >= 1 or config.epochs < 5:
        return True
    return epoch / config.epochs >= _PRUNE_TO


class _Average:
    """An exponential average of the parameters, with batch norm statistics of its own."""

    def __init__(self, network: BinaryMLP, decay: float) -> None:
        self.decay = decay
        self.values = [p.detach().clone() for p in network.parameters()]

    @torch.no_grad()
    def update(self, network: BinaryMLP) -> None:
        """Move the average towards the network's parameters."""
        for mean, p in zip(self.values, network.parameters(), strict=True):
            mean.lerp_(p, 1 - self.decay)

    @torch.no_grad()
    def apply(self, network: BinaryMLP, x: Tensor) -> BinaryMLP:
        """A copy of the network with averaged parameters and fresh batch norm statistics."""
        out = copy.deepcopy(network)
        for p, mean in zip(out.parameters(), self.values, strict=True):
            p.copy_(mean)
        norms = [m for m in out.modules() if isinstance(m, nn.BatchNorm1d)]
        if norms:
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None
            out.train()
            dropout, out.dropout.p = out.dropout.p, 0.0
            for part in x[: 2 * _EVAL_ROWS].split(_EVAL_ROWS):
                if len(part) > 1:
                    out(part)
            out.dropout.p = dropout
        out.eval()
        return out


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """One thread and one seed, so that sums come in one order; restored afterwards."""
    threads = torch.get_num_threads()
    algorithms = torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(algorithms)
            torch.set_num_threads(threads)
