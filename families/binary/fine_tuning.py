# SPDX-License-Identifier: Apache-2.0
"""Trains a binary network further by gradient descent, starting from its integers.

An integer network no longer has latent weights or batch norms. Here each latent weight starts near
zero with the sign of its bit, so that few steps can flip it. Each batch norm starts such that its
neuron fires from its threshold on. Before the first step, the opened network thus decides as the
integer one does.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from n3ic.families.binary.binary_mlp import BinaryLinear, BinaryMLP
from n3ic.families.binary.fold import fold
from n3ic.model.bits import Bits
from n3ic.model.network import BinaryModel
from n3ic.training.loop import Passes, deterministic, run_epochs, signs
from n3ic.training.recipe import Training

_LATENT = 0.05  # magnitude of the latent weights at the start
_BATCH = 64
_LEAST_DEVIATION = 0.5  # least of dot products: a nearly constant neuron has no scale


def fine_tune(
    model: BinaryModel,
    bits: Bits,
    weights: NDArray[np.float64],
    *,
    epochs: int = 20,
    learning_rate: float = 1e-2,
    seed: int = 0,
) -> BinaryModel:
    """Fine-tune a network; the same arguments give the same bytes.

    Args:
        model: the network; input, shape and masks stay. Its output layer has no mask.
        bits: bool array of shape ``(rows, n_bits)``, two rows or more.
        weights: weight of each row for each class, float64 array of shape ``(rows, classes)``.
        epochs: number of times that training reads all rows.
        learning_rate: initial learning rate of Adam, which falls along a cosine.
        seed: seed of the shuffling.
    """
    with deterministic(seed):
        x = signs(bits)
        network = unfold(model, x)
        target = torch.from_numpy(weights.astype(np.float32))

        def loss(index: Tensor) -> Tensor:
            log_probabilities = nn.functional.log_softmax(network(x[index]), dim=1)
            return -(target[index] * log_probabilities).sum(dim=1).mean()

        run_epochs(
            network,
            torch.optim.Adam(
                [p for p in network.parameters() if p.requires_grad], lr=learning_rate
            ),
            loss,
            len(x),
            Passes(epochs, min(_BATCH, len(x)), least_batch=2),
            after_step=network.clip_weights,
        )
        return fold(
            network, model.input, model.classes, name=model.name, provenance=model.provenance
        )


def unfold(model: BinaryModel, x: Tensor) -> BinaryMLP:
    """Give a network latent weights and batch norms with which it decides as its integers do.

    Args:
        model: the network.
        x: rows of +-1, float32 of shape ``(rows, inputs)``, for the scales of the batch norms.
    """
    shape = tuple(layer.n_outputs for layer in model.hidden)
    network = BinaryMLP(model.input.n_bits, len(model.classes), Training(hidden=shape))
    with torch.no_grad():
        norms, acts = cast("list[nn.BatchNorm1d]", [*network.norms]), [*network.signs]
        hidden = zip(network.binary_layers()[:-1], norms, acts, model.hidden, strict=True)
        for layer, norm, act, own in hidden:
            _start(layer, own.weights)
            if own.mask is not None:
                layer.mask.copy_(torch.from_numpy(own.mask.astype(np.float32)))
                layer.sparse = True
            dots = layer(x)
            mean, variance = dots.mean(dim=0), dots.var(dim=0, unbiased=False)
            deviation = (variance + norm.eps).sqrt().clamp(min=_LEAST_DEVIATION)
            # Dot products have one parity: the value just below the threshold never occurs.
            least = torch.from_numpy((2 * own.thresholds - own.fan_in - 1).astype(np.float32))
            statistics = norm.state_dict()
            statistics["running_mean"].copy_(mean)
            statistics["running_var"].copy_(deviation**2 - norm.eps)
            norm.bias.copy_((mean - least) / deviation)
            x = act(norm.eval()(dots))
            norm.train()
        _start(network.output, model.output.weights)
        network.bias.copy_(torch.from_numpy(model.output.bias.astype(np.float32)))
    return network


def _start(layer: BinaryLinear, weights: Bits) -> None:
    layer.linear.weight.copy_(torch.from_numpy(np.where(weights, _LATENT, -_LATENT)))
