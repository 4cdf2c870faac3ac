# SPDX-License-Identifier: Apache-2.0
"""BinaryModel: the frozen, integer-only description of a trained binary network.

Training writes it, and every later stage reads nothing else. A hidden neuron fires iff
``popcount(XNOR(w, x) & mask) >= threshold`` (paper, Algorithm 1, with one threshold per neuron).
A class scores ``popcount(XNOR(w, x) & mask) + bias``, and the highest score wins, the lowest
index on a tie. If the margin between the two best scores is below the model's threshold, the
flow is *shunted*: the host decides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ModelError
from n3ic.model.bits import bytes_for, unpack
from n3ic.model.classifier import (
    SHUNT,
    SHUNT_NAME,
    Classifier,
    Inference,
    classes_of,
    margins_of,
)
from n3ic.model.columns import TableRules
from n3ic.model.file import Tensors
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import Connections, HiddenLayer, OutputLayer
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.display import TextTable

__all__ = [
    "SHUNT",
    "SHUNT_NAME",
    "BinaryModel",
    "Inference",
    "binary_network",
    "classes_of",
    "margins_of",
    "shape_text",
]

_FARTHEST = (1 << 24) - 1  # a bias is below 2^24 in size


def shape_text(shape: Sequence[int]) -> str:
    """A shape as text: ``256-32-16-2``."""
    return "-".join(str(n) for n in shape)


@dataclass(frozen=True, eq=False, repr=False)
class BinaryModel(Classifier):
    """A binary network from packed input bits to integer scores.

    Attributes:
        hidden: the hidden layers, none or more.
        output: the layer of class scores, two classes or more.
        input, classes, name, provenance, meter, shunt, table: see :class:`Classifier`.
    """

    family: ClassVar[str] = "binary-network"
    header_keys: ClassVar[tuple[str, ...]] = ("shape",)
    input: InputSpec
    hidden: tuple[HiddenLayer, ...]
    output: OutputLayer
    classes: tuple[str, ...]
    name: str = "model"
    provenance: Mapping[str, str] = field(default_factory=dict)
    meter: MeterSpec | None = None
    shunt: int = 0
    table: TableRules | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        width, source = self.input.n_bits, "the input"
        for i, layer in enumerate(self.layers):
            if layer.n_inputs != width:
                raise ModelError(
                    f"layer {i} takes {layer.n_inputs} bits, but {source} gives {width}"
                )
            width, source = layer.n_outputs, f"layer {i}"
        self._check_shared(self.output.n_outputs)

    @property
    def largest_margin(self) -> int:
        """An upper bound of the margins; as scores depend on each other, it may not be reached."""
        # A class scores bias to bias + fan-in; the second best has at least the largest other bias.
        lowest = self.output.bias.astype(np.int64)
        highest = lowest + self.output.fan_in
        rivals = np.array([np.delete(lowest, c).max() for c in range(len(lowest))])
        return int((highest - rivals).max())

    @property
    def layers(self) -> tuple[Connections, ...]:
        """All layers in order, the output layer last."""
        return (*self.hidden, self.output)

    @property
    def shape(self) -> tuple[int, ...]:
        """Input bits, then the neurons of each layer: ``(256, 32, 16, 2)``."""
        return (self.input.n_bits, *(layer.n_outputs for layer in self.layers))

    @property
    def shape_text(self) -> str:
        """The shape as text: ``256-32-16-2``."""
        return shape_text(self.shape)

    @property
    def has_masks(self) -> bool:
        """Whether any layer has a mask of its connections."""
        return any(layer.mask is not None for layer in self.layers)

    # --- inference -------------------------------------------------------------------------

    def infer(self, words: ArrayLike) -> Inference:
        """Run the network and keep every layer's output.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Raises:
            ModelError: the inputs are not packed inputs of this model.
        """
        x = np.asarray(words)
        hidden = []
        for layer in self.hidden:
            x = layer.fire(x)
            hidden.append(unpack(x, layer.n_outputs))
        scores = self.output.scores(x)
        return self.inference(scores, tuple(hidden))

    def with_layers(
        self, spec: InputSpec, hidden: Sequence[HiddenLayer], output: OutputLayer
    ) -> BinaryModel:
        """The same model with other layers that decide in the same way.

        A shunting threshold above every new margin becomes the lowest such threshold.
        """
        plain = replace(self, input=spec, hidden=tuple(hidden), output=output, shunt=0)
        # The bound of the margins may be lower now; a threshold above the new one shunts as much.
        return plain.with_shunt(min(self.shunt, plain.largest_margin + 1)) if self.shunt else plain

    def favouring(self, positive: int, step: int, rates: str) -> Self:
        """The network with a step added to a class's bias, which stays below 2^24 in size."""
        bias = self.output.bias.copy()
        bias[positive] = np.clip(bias[positive] + step, -_FARTHEST, _FARTHEST)
        return replace(
            self,
            output=replace(self.output, bias=bias),
            provenance={**self.provenance, "false_alarms": rates},
        )

    def scores(self, words: ArrayLike) -> NDArray[np.int32]:
        """Integer scores of packed inputs: int32 array of shape ``(rows, classes)``.

        This is the reference that every target must reproduce; it is plain numpy.
        """
        x = np.asarray(words)
        for layer in self.hidden:
            x = layer.fire(x)
        return self.output.scores(x)

    # --- memory ----------------------------------------------------------------------------

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight bits, as the paper counts them (Table 1): inputs x neurons / 8."""
        return -(-sum(layer.weights.size for layer in self.layers) // 8)

    @property
    def float_weight_bytes(self) -> int:
        """Bytes of the same weights as float32."""
        return 4 * sum(layer.weights.size for layer in self.layers)

    @property
    def threshold_bytes(self) -> int:
        """Bytes of thresholds and output biases, each in the 1, 2 or 4 bytes that its layer needs.

        Thresholds of half the inputs and no bias, as in the paper's network, need no memory.
        """
        return sum(_threshold_bytes(layer) for layer in self.layers)

    @property
    def mask_bytes(self) -> int:
        """Bytes of the connection masks, one bit per connection of the layers that have one."""
        return -(-sum(layer.weights.size for layer in self.layers if layer.mask is not None) // 8)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by part: weights, thresholds with biases, masks, cuts."""
        return super().memory | {
            "threshold_bytes": self.threshold_bytes,
            "mask_bytes": self.mask_bytes,
        }

    def _parts(self) -> tuple[TextTable, ...]:
        return (self.memory_table,)

    @property
    def memory_table(self) -> TextTable:
        """Shape and memory of each layer."""
        head = ("layer", "inputs", "neurons", "connections", "weights, B", "thresholds, B")
        rows = tuple(
            (
                f"{i}" if i < len(self.hidden) else "scores",
                f"{layer.n_inputs:,}",
                f"{layer.n_outputs:,}",
                f"{int(layer.fan_in.sum()):,}",
                f"{-(-layer.weights.size // 8):,}",
                f"{_threshold_bytes(layer):,}",
            )
            for i, layer in enumerate(self.layers)
        )
        return TextTable("layers", head, rows)

    # --- file ------------------------------------------------------------------------------

    def _header(self) -> dict[str, Any]:
        return {"shape": list(self.shape)}

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {
            f"layer.{i}.{name}": array
            for i, layer in enumerate(self.layers)
            for name, array in layer.tensors().items()
        }

    @classmethod
    def _read(cls, header: Mapping[str, Any], tensors: Tensors, shared: Mapping[str, Any]) -> Self:
        shape = _typed_shape(header["shape"])
        layers = list(enumerate(pairwise(shape)))
        hidden = tuple(
            HiddenLayer.from_tensors(tensors, f"layer.{i}.", (outputs, inputs))
            for i, (inputs, outputs) in layers[:-1]
        )
        last, (inputs, outputs) = layers[-1]
        output = OutputLayer.from_tensors(tensors, f"layer.{last}.", (outputs, inputs))
        return cls(hidden=hidden, output=output, **shared)


def binary_network(model: Classifier) -> BinaryModel:
    """The model itself, which must be a binary network.

    Raises:
        ModelError: the model is of another family.
    """
    if not isinstance(model, BinaryModel):
        raise ModelError(f"{model.name}: expected a binary network, got family {model.family}")
    return model


def _typed_shape(shape: Any) -> list[int]:
    if (
        not isinstance(shape, list)
        or len(shape) < 2
        or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in shape)
    ):
        raise ModelError(
            f"shape: expected a list of two positive integers or more, got {shape!r}"[:200]
        )
    return shape


def _threshold_bytes(layer: Connections) -> int:
    """Bytes of a layer's thresholds or biases; see :attr:`BinaryModel.threshold_bytes`."""
    if isinstance(layer, HiddenLayer):
        if np.array_equal(layer.thresholds, (layer.fan_in + 1) // 2):
            return 0
        return layer.n_outputs * bytes_for(int(layer.thresholds.max()))
    if isinstance(layer, OutputLayer) and layer.bias.any():
        return layer.n_outputs * bytes_for(2 * int(np.abs(layer.bias).max()))  # with a sign bit
    return 0
