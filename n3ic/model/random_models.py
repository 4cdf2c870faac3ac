# SPDX-License-Identifier: Apache-2.0
"""Random binary networks, for tests and benchmarks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from n3ic.model.bits import Bits
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel


def random_model(
    shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    density: float | None = None,
    extremes: bool = True,
) -> BinaryModel:
    """A random model, for tests and benchmarks.

    Args:
        shape: input bits, then the neurons of each layer, the classes last.
        rng: the source of randomness.
        density: share of the connections that are kept; None for no masks.
        extremes: let some neurons never or always fire, and biases differ.
    """

    def parts(outputs: int, inputs: int) -> tuple[Bits, Bits | None]:
        weights = rng.random((outputs, inputs)) < 0.5
        return weights, None if density is None else rng.random((outputs, inputs)) < density

    hidden = []
    for inputs, outputs in pairwise(shape[:-1]):
        weights, mask = parts(outputs, inputs)
        fan_in = np.full(outputs, inputs) if mask is None else mask.sum(axis=1)
        spread = np.sqrt(fan_in + 1) / 2  # deviation of the popcounts, so that neurons do vary
        thresholds = np.rint(fan_in / 2 + rng.normal(0, 1, outputs) * spread)
        if extremes:
            kind = rng.integers(0, 16, outputs)
            # One in 16 always fires, one in 16 never does.
            thresholds = np.where(kind == 0, 0, np.where(kind == 1, fan_in + 1, thresholds))
        thresholds = np.clip(thresholds, 0, fan_in + 1).astype(np.int32)
        hidden.append(HiddenLayer(weights, mask=mask, thresholds=thresholds))
    weights, mask = parts(shape[-1], shape[-2])
    bias = rng.integers(-3, 4, shape[-1]) if extremes else np.zeros(shape[-1], dtype=np.int64)
    return BinaryModel(
        input=InputSpec.raw(shape[0]),
        hidden=tuple(hidden),
        output=OutputLayer(weights, mask=mask, bias=bias.astype(np.int32)),
        classes=tuple(f"class{i}" for i in range(shape[-1])),
        name="random",
    )
