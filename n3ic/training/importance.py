# SPDX-License-Identifier: Apache-2.0
"""The weight that each candidate input bit earns in a network with real weights."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from n3ic.model.bits import Bits
from n3ic.training.loop import Passes, SignSte, class_indices, deterministic, run_epochs, signs
from n3ic.training.recipe import Ste

EPOCHS = 12
BATCH = 1024
LEARNING_RATE = 5e-3


class _RealMLP(nn.Module):
    """Binary activations and real weights."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], classes: int, ste: Ste) -> None:
        super().__init__()
        widths = (inputs, *hidden)
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in hidden)
        self.output = nn.Linear(widths[-1], classes)
        self.ste = ste

    def forward(self, x: Tensor) -> Tensor:
        """Logits: (rows, inputs) of +-1 to (rows, classes)."""
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = SignSte.apply(norm(layer(x)), self.ste)  # type: ignore[no-untyped-call]
        out: Tensor = self.output(x)
        return out


def bit_importance(
    bits: Bits,
    label: NDArray[np.int64],
    *,
    hidden: tuple[int, ...] = (32, 16),
    ste: Ste = "approx",
    epochs: int = EPOCHS,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Mean absolute weight of each bit in a network of binary activations and real weights.

    The network has the shape of the binary one. The weights of each neuron of the first layer are
    scaled to length one. A binary weight is +1 or -1, so only copies of a bit give it more weight;
    this mean tells how many copies it deserves.

    Args:
        bits: candidate bits of training rows, bool array of shape ``(rows, candidates)``.
        label: class index of each row, shape ``(rows,)``.
        hidden: neurons of each hidden layer.
        ste: gradient of the sign.
        epochs: number of times that training reads all rows.
        seed: seed of the initial weights and the shuffling.

    Returns:
        float64 array of shape ``(candidates,)``.
    """
    classes = int(np.max(label)) + 1
    with deterministic(seed):
        x, y = signs(bits), class_indices(label)
        network = _RealMLP(x.shape[1], hidden, classes, ste)
        batch = min(BATCH, len(x))

        def loss(index: Tensor) -> Tensor:
            return nn.functional.cross_entropy(network(x[index]), y[index])

        run_epochs(
            network,
            torch.optim.Adam(network.parameters(), lr=LEARNING_RATE),
            loss,
            len(x),
            Passes(epochs, batch, least_batch=batch),
        )
        first = next(network.parameters()).detach()
        # Batch norm cancels the length of a neuron's weights, so only their ratios mean anything.
        shares = first.abs() / first.norm(dim=1, keepdim=True).clamp(min=1e-12)
        return np.asarray(shares.mean(dim=0).numpy(), dtype=np.float64)
