# SPDX-License-Identifier: Apache-2.0
"""A network while passes work on it, and the operations from which passes are built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.model.inputs import InputSpec
from n3ic.model.layers import Connections, HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.simplified import Cause, Removed


@dataclass(frozen=True, eq=False)
class Draft:
    """A network, and how it relates to the network before all passes.

    Attributes:
        model: the network as it is now.
        bits: for each input bit its index before all passes, int64 array.
        neurons: for each hidden layer the index of each neuron before all passes.
        removed: the removed neurons.
    """

    model: BinaryModel
    bits: NDArray[np.int64]
    neurons: tuple[NDArray[np.int64], ...]
    removed: tuple[Removed, ...] = ()

    @classmethod
    def of(cls, model: BinaryModel) -> Draft:
        """A network before all passes."""
        bits, *neurons = (np.arange(n) for n in model.shape[:-1])
        return cls(model, bits, tuple(neurons))

    def without(
        self, layer: int, neurons: dict[int, tuple[Cause, int | None]], reader: Connections
    ) -> Draft:
        """The draft without some neurons of a hidden layer.

        Args:
            layer: index of the layer.
            neurons: cause and ``other`` of :class:`Removed` by index of the neuron.
            reader: the next layer, which reads only the other neurons.
        """
        remaining = [j for j in range(self.model.layers[layer].n_outputs) if j not in neurons]
        layers = list(self.model.layers)
        layers[layer] = with_outputs(self.model.hidden[layer], remaining)
        layers[layer + 1] = reader
        old = self.neurons[layer]
        removed_neurons = tuple(
            Removed(layer, int(old[j]), cause, other) for j, (cause, other) in neurons.items()
        )
        return Draft(
            _rebuilt(self.model, self.model.input, layers),
            self.bits,
            (*self.neurons[:layer], old[remaining], *self.neurons[layer + 1 :]),
            (*self.removed, *removed_neurons),
        )

    def without_bits(self, spec: InputSpec, remaining: ArrayLike) -> Draft:
        """The draft with another input, whose bits are the ``remaining`` ones of the present."""
        columns = np.asarray(remaining, dtype=np.int64)
        first = narrowed(self.model.layers[0], columns, 0)
        layers = [first, *self.model.layers[1:]]
        return replace(self, model=_rebuilt(self.model, spec, layers), bits=self.bits[columns])


def _rebuilt(model: BinaryModel, spec: InputSpec, layers: Sequence[Connections]) -> BinaryModel:
    hidden = tuple(layer for layer in layers if isinstance(layer, HiddenLayer))
    (output,) = (layer for layer in layers if isinstance(layer, OutputLayer))
    return model.with_layers(spec, hidden, output)


def with_outputs(layer: HiddenLayer, neurons: Iterable[int]) -> HiddenLayer:
    """A layer with only some of its neurons."""
    rows = list(neurons)
    mask = None if layer.mask is None else layer.mask[rows]
    return HiddenLayer(layer.weights[rows], mask=mask, thresholds=layer.thresholds[rows])


def narrowed(layer: Connections, inputs: ArrayLike, counted: ArrayLike) -> Connections:
    """A layer that reads only some of its inputs; the others always add ``counted``.

    Args:
        layer: the layer.
        inputs: indices of the inputs that stay.
        counted: what the others add to the popcount, a number or int array of shape ``(outputs,)``.
    """
    columns = np.asarray(inputs, dtype=np.int64)
    mask = None if layer.mask is None else layer.mask[:, columns]
    return rewired(layer, layer.weights[:, columns], mask, counted)


def rewired(
    layer: Connections, weights: ArrayLike, mask: ArrayLike | None, counted: ArrayLike
) -> Connections:
    """A layer with other connections that decides the same; popcounts are ``counted`` lower."""
    bits = np.asarray(weights, dtype=np.bool_)
    connected = None if mask is None else np.asarray(mask, dtype=np.bool_)
    if isinstance(layer, OutputLayer):
        # The bias gains what the popcount loses, so the scores stay.
        return OutputLayer(bits, mask=connected, bias=layer.bias + np.asarray(counted))
    assert isinstance(layer, HiddenLayer)  # noqa: S101 - the other kind of layer
    fan_in = np.full(len(bits), bits.shape[1]) if connected is None else connected.sum(axis=1)
    # A threshold below 0 always fires, one above the fan-in never: clipping changes neither.
    thresholds = np.clip(layer.thresholds - np.asarray(counted), 0, fan_in + 1)
    return HiddenLayer(bits, mask=connected, thresholds=thresholds)


def signs(layer: Connections) -> NDArray[np.int8]:
    """Weights as +1 and -1, absent connections as 0: int8 array ``(outputs, inputs)``."""
    plain = np.where(layer.weights, 1, -1).astype(np.int8)
    return plain if layer.mask is None else plain * layer.mask
