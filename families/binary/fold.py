# SPDX-License-Identifier: Apache-2.0
"""Folds a trained network into integers, exactly.

A neuron's popcount has only the values 0..K. The fold evaluates the trained network at each of
them, and notes whether the neuron fires. A closed form of the batch norm would be wrong if its
value is exactly zero or if rounding decides. See docs/explanation/folding.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from n3ic.errors import ModelError
from n3ic.families.binary.binary_mlp import BinaryLinear, BinaryMLP
from n3ic.model.bits import Bits, pack
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.training.loop import signs


def fold_layer(
    weights: Bits,
    mask: Bits | None,
    fires: Callable[[NDArray[np.float32]], Bits],
) -> HiddenLayer:
    """Fold trained neurons into integer neurons that fire on exactly the same inputs.

    Args:
        weights: bool array of shape ``(outputs, inputs)``; True is +1.
        mask: bool array of the same shape, or None.
        fires: function from float32 dot products of shape ``(rows, outputs)`` to the trained
            neurons' decisions, bool of that shape.

    Returns:
        The integer layer. A neuron that always fires has threshold 0, and one that never fires
        has ``fan_in + 1``. A neuron that fires below a popcount gets inverted weights.

    Raises:
        ModelError: a neuron's decision is not monotone in its popcount.
    """
    outputs, inputs = weights.shape
    fan_in = np.full(outputs, inputs) if mask is None else mask.sum(axis=1)
    popcounts = np.arange(inputs + 1)[:, None]
    # A dot product of +-1 is agreements less disagreements: 2 popcount - fan-in. Below 2^24 it is
    # exact in float32, so the table holds the very values that the trained network computes.
    table = np.asarray(fires((2 * popcounts - fan_in).astype(np.float32)), dtype=np.bool_)
    thresholds = np.empty(outputs, dtype=np.int32)
    folded = weights.copy()
    for j in range(outputs):
        row = table[: fan_in[j] + 1, j]  # larger popcounts do not occur
        edges = np.flatnonzero(row[1:] != row[:-1])
        # Batch norm is monotone, and so is its rounding: the decision changes at most once.
        if len(edges) > 1:
            raise ModelError(f"neuron {j}: its decision changes {len(edges)} times, not once")
        if len(edges) == 0:
            thresholds[j] = 0 if row[0] else fan_in[j] + 1
        elif row[-1]:
            thresholds[j] = edges[0] + 1
        else:  # fires up to popcount edges[0]: count disagreements instead
            # popcount(w) <= e is the same as popcount(~w) = fan-in - popcount(w) >= fan-in - e.
            folded[j] = ~folded[j]
            thresholds[j] = fan_in[j] - edges[0]
    return HiddenLayer(folded, mask=mask, thresholds=thresholds)


def fold(
    network: BinaryMLP,
    spec: InputSpec,
    classes: tuple[str, ...],
    *,
    name: str = "model",
    provenance: Mapping[str, str] | None = None,
) -> BinaryModel:
    """Fold a trained network into an integer network with the same decisions.

    Its scores are ``(integer_scores + K) / 2`` of the trained network, where K is the number of
    inputs of the output layer. The map is the same for all classes, so classes and ties are equal.

    Args:
        network: a trained network; the fold puts it in evaluation mode.
        spec: the input on which it was trained.
        classes: class names.
        name: the model's name.
        provenance: facts about its origin.

    Raises:
        ModelError: the network does not fit the spec.
    """
    network.eval()
    hidden = []
    for layer, norm in zip(network.binary_layers()[:-1], network.norms, strict=True):

        def fires(dots: NDArray[np.float32], norm: torch.nn.Module = norm) -> Bits:
            with torch.no_grad():
                # The norm of the training, so that rounding is the same. Without one, training
                # multiplies by a positive scale, which changes no sign.
                result = norm(torch.from_numpy(dots)) >= 0
            return np.asarray(result.numpy(), dtype=np.bool_)

        weights, mask = _bits(layer)
        hidden.append(fold_layer(weights, mask, fires))
    weights, mask = _bits(network.output)
    if mask is not None:  # with unequal fan-ins, the scores would not have one K
        raise ModelError("the output layer must keep all its connections")
    bias = torch.round(network.bias.detach()).numpy().astype(np.int32)
    return BinaryModel(
        input=spec,
        hidden=tuple(hidden),
        output=OutputLayer(weights, bias=bias),
        classes=classes,
        name=name,
        provenance=provenance or {},
    )


def check_fold(network: BinaryMLP, model: BinaryModel, bits: Bits) -> None:
    """Compare the folded network's scores with the trained network's on every row.

    Raises:
        ModelError: the scores differ, which is a defect of n3ic.
    """
    k = model.output.n_inputs
    scores = model.scores(pack(bits))
    with torch.no_grad():
        for start in range(0, len(bits), 16_384):
            part = slice(start, start + 16_384)
            trained = network.integer_scores(signs(bits[part])).numpy()
            wrong = np.flatnonzero((2 * scores[part] - k != trained).any(axis=1))
            if len(wrong):
                raise ModelError(
                    f"row {start + wrong[0]}: the folded network scores "
                    f"{scores[start + wrong[0]].tolist()}, the trained one "
                    f"{((trained[wrong[0]] + k) / 2).tolist()}"
                )


def _bits(layer: BinaryLinear) -> tuple[Bits, Bits | None]:
    weights: Bits = (layer.linear.weight.detach() >= 0).numpy()
    mask: Bits = np.asarray(layer.mask.numpy() > 0)
    return weights, mask if layer.sparse else None
