"""Several networks as one wide one: what a cluster computes in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.model.layers import Connections, HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel


def side_by_side(models: Mapping[str, BinaryModel]) -> BinaryModel:
    """One network whose layers are those of several, side by side.

    The first layer reads the input that they share; in each later one a mask keeps every network
    to the outputs of its own. Its classes are ``network/class``, its scores those of the networks
    one after another.

    Args:
        models: networks of one input stage and as many layers each, by name.

    Raises:
        ClusterError: they have different inputs or depths, or there are none.
    """
    parts = list(models.values())
    if not parts:
        raise ClusterError("no network to put side by side")
    first = parts[0]
    for name, model in models.items():
        if model.input != first.input or len(model.layers) != len(first.layers):
            raise ClusterError(
                f"{name} has another input stage or depth than {next(iter(models))}: networks that "
                "are put side by side read one input"
            )
    hidden = []
    for depth in range(len(first.hidden)):
        layers = [model.hidden[depth] for model in parts]
        weights, mask = _joined(layers, shared=depth == 0)
        thresholds = np.concatenate([layer.thresholds for layer in layers])
        hidden.append(HiddenLayer(weights, mask=mask, thresholds=thresholds))
    outputs = [model.output for model in parts]
    weights, mask = _joined(outputs, shared=not hidden)
    return BinaryModel(
        input=first.input,
        hidden=tuple(hidden),
        output=OutputLayer(weights, mask=mask, bias=np.concatenate([o.bias for o in outputs])),
        classes=tuple(f"{name}/{c}" for name, model in models.items() for c in model.classes),
        name="side by side",
    )


def _joined(
    layers: Sequence[Connections], *, shared: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_] | None]:
    """Weights and mask of layers that read one input, or each its own part."""
    masks = [
        np.ones(layer.weights.shape, dtype=np.bool_) if layer.mask is None else layer.mask
        for layer in layers
    ]
    if shared:
        mask = None if all(layer.mask is None for layer in layers) else np.concatenate(masks)
        return np.concatenate([layer.weights for layer in layers]), mask
    shape = (sum(x.n_outputs for x in layers), sum(x.n_inputs for x in layers))
    weights, mask = np.ones(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    row = column = 0
    for layer, part in zip(layers, masks, strict=True):
        place = np.s_[row : row + layer.n_outputs, column : column + layer.n_inputs]
        weights[place], mask[place] = layer.weights, part
        row, column = row + layer.n_outputs, column + layer.n_inputs
    return weights, mask
