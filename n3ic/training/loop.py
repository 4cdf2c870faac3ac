# SPDX-License-Identifier: Apache-2.0
"""The training loop of every network: epochs, shuffling, batches, schedule, best epoch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from n3ic.model.bits import Bits
from n3ic.util.signals import check

_EVAL_ROWS = 16_384
_LEAST_STEPS, _LEAST_BATCH = 32, 16


@dataclass(frozen=True)
class Epoch:
    """One pass over the rows.

    Attributes:
        number: number of the epoch, from 1.
        loss: mean loss of the rows that the epoch trained on; NaN without such rows.
        validation_loss: loss on the validation rows; NaN without such rows.
        validation_accuracy: accuracy on the validation rows; NaN without such rows.
    """

    number: int
    loss: float
    validation_loss: float
    validation_accuracy: float


class SignSte(torch.autograd.Function):
    """Sign with a chosen gradient; sign(0) is +1, as an integer neuron fires at its threshold."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ste: str) -> Tensor:
        """+1 where ``x >= 0``, else -1."""
        ctx.ste = ste
        if ste != "identity":
            ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Gradient of the straight-through estimator."""
        if ctx.ste == "identity":
            return gradient, None
        (x,) = ctx.saved_tensors
        if ctx.ste == "clip":
            return gradient * (x.abs() <= 1), None
        # ApproxSign: the derivative of a piecewise quadratic sign (Liu et al. 2018).
        return gradient * (2 - 2 * x.abs()).clamp(min=0), None


EpochCallback = Callable[[Epoch, int], None]


@dataclass(frozen=True)
class Passes:
    """Epochs over the training rows.

    Attributes:
        epochs: number of epochs.
        batch: rows per step.
        least_batch: a last batch of fewer rows is skipped.
        cosine: whether the learning rate follows a cosine down to zero over all steps.
        choose_from: first epoch, from 0, that may be kept.
        patience: epochs without a better validation loss before training ends; 0 for no limit.
    """

    epochs: int
    batch: int
    least_batch: int = 1
    cosine: bool = True
    choose_from: int = 0
    patience: int = 0


def run_epochs(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Tensor], Tensor],
    rows: int,
    passes: Passes,
    *,
    validation: tuple[Tensor, Tensor] | None = None,
    validation_loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
    before_epoch: Callable[[int], None] | None = None,
    after_step: Callable[[], None] | None = None,
    progress: EpochCallback | None = None,
) -> tuple[Epoch, ...]:
    """Train a network in place; it ends in evaluation mode, with the parameters of the best epoch.

    That is the earliest epoch with the least validation loss, or the last without such rows.

    Args:
        network: the network, which returns logits of shape ``(rows, classes)``.
        optimizer: the optimizer of its parameters.
        loss: function of training rows' indices, an int64 tensor, to their mean loss.
        rows: number of training rows.
        passes: number and kind of the epochs.
        validation: inputs and class indices of the rows that choose the epoch.
        validation_loss: mean loss of logits and class indices.
        before_epoch: called with the number of each epoch, from 0.
        after_step: called after each step of the optimizer.
        progress: called after every epoch with its figures and the number of epochs.

    Returns:
        The figures of each epoch.
    """
    whole, remainder = divmod(rows, passes.batch)
    steps = passes.epochs * (whole + (remainder >= passes.least_batch and remainder > 0))
    schedule = (
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
        if passes.cosine
        else None
    )
    history: list[Epoch] = []
    best, best_state, stale = math.inf, None, 0
    for number in range(passes.epochs):
        check()
        if before_epoch is not None:
            before_epoch(number)
        network.train()
        total, row_count = 0.0, 0
        for index in torch.randperm(rows).split(passes.batch):
            if len(index) < passes.least_batch:  # batch norm needs some rows
                continue
            value = loss(index)
            optimizer.zero_grad(set_to_none=True)  # None: an optimizer skips unused parameters
            value.backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
            if after_step is not None:
                after_step()
            total += float(value.detach()) * len(index)
            row_count += len(index)
        mean = total / row_count if row_count else math.nan
        entry = Epoch(number + 1, mean, *_validate(network, validation, validation_loss))
        history.append(entry)
        if progress is not None:
            progress(entry, passes.epochs)
        if validation is None or number < passes.choose_from:
            continue
        if entry.validation_loss < best:  # strictly: of equal epochs, the earliest stays
            best, best_state, stale = entry.validation_loss, copy.deepcopy(network.state_dict()), 0
        else:
            stale += 1
            if passes.patience and stale >= passes.patience:
                break
    if best_state is not None:
        network.load_state_dict(best_state)
    network.eval()
    return tuple(history)


def _validate(
    network: nn.Module,
    rows: tuple[Tensor, Tensor] | None,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> tuple[float, float]:
    """Loss and accuracy on the validation rows; NaN without rows."""
    if rows is None:
        return math.nan, math.nan
    network.eval()
    logits = logits_of(network, rows[0])
    correct = logits.numpy().argmax(axis=1) == rows[1].numpy()
    return float(loss(logits, rows[1])), float(correct.mean())


@torch.no_grad()
def logits_of(network: nn.Module, x: Tensor) -> Tensor:
    """A network's output for rows, float32 ``(rows, classes)``, in parts to bound memory."""
    return torch.cat([network(part) for part in x.split(_EVAL_ROWS)])


def signs(bits: Bits) -> Tensor:
    """Bits as a float32 tensor of +1 (set) and -1, of the same shape, as networks take them."""
    return torch.from_numpy(np.where(bits, np.float32(1), np.float32(-1)))


def class_indices(label: NDArray[np.int64]) -> Tensor:
    """Labels as an int64 tensor."""
    return torch.from_numpy(np.asarray(label, dtype=np.int64))


def batch_rows(rows: int, most: int) -> int:
    """Rows per step: as many as wanted, or fewer so that an epoch has 32 steps.

    It is at least 16, or all rows if they are fewer, because batch norm needs some rows.
    """
    return min(most, max(rows // _LEAST_STEPS, _LEAST_BATCH), rows)


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Use one thread and one seed, so that sums have one order; restore both afterwards."""
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
