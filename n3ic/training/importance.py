"""How much weight each candidate input bit earns when its weights may be real numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from n3ic.model.bits import Bits
from n3ic.training.binary_mlp import _SignSte
from n3ic.training.fit import deterministic
from n3ic.training.recipe import Ste

EPOCHS = 12
BATCH = 1024
LEARNING_RATE = 5e-3


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

    The network has the shape of the binary one that is to come, and each of its first neurons
    has weights of length one. A binary weight is +1 or -1 and never 0 or 5: a bit that deserves
    more gets more by being there more often, and this says how much it deserves.

    Args:
        bits: candidate bits of training rows, bool array of shape ``(rows, candidates)``.
        label: class index of each row.
        hidden: neurons of each hidden layer.
        ste: gradient of the sign.
        epochs: passes over the rows.
        seed: of the initial weights and the shuffling.

    Returns:
        float64 array of shape ``(candidates,)``.
    """
    classes = int(np.max(label)) + 1
    with deterministic(seed):
        x = torch.from_numpy(np.where(bits, np.float32(1), np.float32(-1)))
        y = torch.from_numpy(np.asarray(label, dtype=np.int64))
        widths = (x.shape[1], *hidden)
        layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(widths)]
        norms = [nn.BatchNorm1d(b) for b in hidden]
        output = nn.Linear(widths[-1], classes)
        parameters = [p for part in (*layers, *norms, output) for p in part.parameters()]

        def logits(rows: Tensor) -> Tensor:
            for layer, norm in zip(layers, norms, strict=True):
                rows = _SignSte.apply(norm(layer(rows)), ste)  # type: ignore[no-untyped-call]
            out: Tensor = output(rows)
            return out

        optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)
        batch = min(BATCH, len(x))
        steps = max(1, epochs * (len(x) // batch))
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(epochs):
            order = torch.randperm(len(x))
            for start in range(0, len(x) - batch + 1, batch):
                index = order[start : start + batch]
                loss = nn.functional.cross_entropy(logits(x[index]), y[index])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                scheduler.step()
        first = (layers[0] if hidden else output).weight.detach()
        shares = first.abs() / first.norm(dim=1, keepdim=True).clamp(min=1e-12)
        return np.asarray(shares.mean(dim=0).numpy(), dtype=np.float64)
