# SPDX-License-Identifier: Apache-2.0
"""Constant neurons: a threshold of 0 always fires, one above the fan-in never does."""

from __future__ import annotations

import numpy as np

from n3ic.model.layers import HiddenLayer
from n3ic.model.passes.draft import Draft, narrowed


def values(layer: HiddenLayer) -> dict[int, int]:
    """Constant neurons of a layer, and the output (0 or 1) of each."""
    always = {int(j): 1 for j in np.flatnonzero(layer.thresholds <= 0)}
    never = {int(j): 0 for j in np.flatnonzero(layer.thresholds > layer.fan_in)}
    return dict(sorted((always | never).items()))


def fold(draft: Draft) -> Draft:
    """Fold constant neurons into the thresholds and biases after them, layer by layer.

    A layer keeps at least one neuron.
    """
    for i in range(len(draft.model.hidden)):
        layer, reader = draft.model.layers[i], draft.model.layers[i + 1]
        constants = values(draft.model.hidden[i])
        if len(constants) == layer.n_outputs:  # a layer must keep a neuron
            constants.pop(next(iter(constants)))
        if not constants:
            continue
        constant_neurons, value = (
            list(constants),
            np.array(list(constants.values()), dtype=np.bool_),
        )
        # A constant input adds 1 to the popcount where the weight agrees with it, else 0.
        agree = reader.weights[:, constant_neurons] == value
        if reader.mask is not None:
            agree &= reader.mask[:, constant_neurons]
        remaining = np.setdiff1d(np.arange(layer.n_outputs), constant_neurons)
        draft = draft.without(
            i,
            {j: ("constant", constant) for j, constant in constants.items()},
            narrowed(reader, remaining, agree.sum(axis=1)),
        )
    return draft
