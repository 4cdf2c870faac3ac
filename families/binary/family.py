# SPDX-License-Identifier: Apache-2.0
"""The interface of binary networks to the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from n3ic.model.family import Decided, Family

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from n3ic.model.bits import Bits, Words
    from n3ic.model.classifier import Inference
    from n3ic.model.graph.operations import Graph
    from n3ic.model.network import BinaryModel
    from n3ic.model.passes import Simplified
    from n3ic.util.display import TextTable

_MAX_FOLLOWED = 1 << 21  # weight bits; beyond, following each neuron to the scores takes minutes


class BinaryFamily(Family):
    """Binary networks, which ``families/binary/`` trains."""

    name: ClassVar[str] = "binary-network"
    summary: ClassVar[str] = "layers of XNOR, popcount and threshold"

    @property
    def model(self) -> type[BinaryModel]:
        """The class of the family's models."""
        from n3ic.model.network import BinaryModel

        return BinaryModel

    def graph(self, model: BinaryModel) -> Graph:
        """Write the neurons as thresholds of popcounts, and the scores as popcounts."""
        from n3ic.families.binary.graph import network_graph

        return network_graph(model)

    def vectors(self, network: Simplified[Any], count: int, seed: int) -> Words:
        """Make inputs that decide weight bits, inputs at thresholds, then random ones."""
        import numpy as np

        from n3ic.families.binary.coverage import deciding_vectors
        from n3ic.model.bits import pack, unpack
        from n3ic.model.verification_vectors import verification_vectors

        deciding = deciding_vectors(network.model, seed, hidden=_is_large(network.model))
        source = network.source.input
        # Bits that the simplified network does not read change nothing: they are random.
        bits = np.random.default_rng(seed).random((len(deciding), source.n_bits)) < 0.5
        bits[:, list(network.source_bits)] = unpack(deciding, network.model.input.n_bits)
        further = verification_vectors(network.source, count - len(deciding), seed)
        return np.concatenate([pack(bits), further])

    def decided(self, model: BinaryModel, inputs: Words, inference: Inference) -> Decided:
        """Count the weight bits that some inputs decide."""
        from n3ic.families.binary.coverage import coverage

        hidden = len(inference.hidden) == len(model.hidden)
        if not hidden and _is_large(model):
            return Decided()
        known = coverage(model, inputs, hidden=hidden)
        return Decided("weight bits", known.total, known.decided, tuple(known.lines(model)))

    def summary_of(self, model: BinaryModel) -> tuple[TextTable, tuple[str, ...]]:
        """Describe the model's layers, and the bytes of their parts."""
        from n3ic.model.layers import HiddenLayer
        from n3ic.util.display import TextTable

        rows = [
            [
                "input",
                f"{len(model.input.features)} features",
                str(model.input.n_bits),
                "",
                "",
                f"{model.input_bytes:,}",
                "",
            ]
        ]
        for i, layer in enumerate(model.layers):
            hidden = isinstance(layer, HiddenLayer)
            connections = int(layer.fan_in.sum())
            rows.append(
                [
                    f"layer {i}" if hidden else f"layer {i} (scores)",
                    f"{layer.n_inputs} -> {layer.n_outputs}",
                    str(layer.n_outputs),
                    f"{layer.weights.size:,}",
                    f"{connections:,}",
                    f"{-(-layer.weights.size // 8):,}",
                    f"{4 * layer.weights.size:,}",
                ]
            )
        rows.append(
            [
                "total",
                model.shape_text,
                "",
                f"{sum(x.weights.size for x in model.layers):,}",
                f"{sum(int(x.fan_in.sum()) for x in model.layers):,}",
                f"{model.weight_bytes:,}",
                f"{model.float_weight_bytes:,}",
            ]
        )
        return TextTable(
            model.name,
            (
                "layer",
                "shape",
                "output bits",
                "1-bit weights",
                "connections",
                "bytes",
                "float32 bytes",
            ),
            tuple(tuple(row) for row in rows),
            left=2,
        ), (
            f"weights {model.weight_bytes:,} B, thresholds and biases {model.threshold_bytes:,} B, "
            f"masks {model.mask_bytes:,} B, input cuts {model.input_bytes:,} B; "
            f"in total {model.total_bytes:,} B",
        )

    def trained_further(
        self,
        model: BinaryModel,
        bits: Bits,
        weights: NDArray[np.float64],
        label: NDArray[np.int64],
        class_weight: NDArray[np.float64],
        *,
        rounds: int,
        seed: int,
    ) -> BinaryModel:
        """Train by gradient, unless scores have masks, and polish the weights."""
        from n3ic.families.binary.fine_tuning import fine_tune
        from n3ic.families.binary.polish import polish
        from n3ic.model.bits import pack

        start = model
        if model.output.mask is None:
            start = fine_tune(model, bits, weights, seed=seed)
        return polish(start, pack(bits), label, rounds=rounds, class_weight=class_weight, seed=seed)

    def random(self, rng: np.random.Generator) -> BinaryModel:
        """Make a network of 64 bits, 16 neurons and 3 classes; some neurons are constant."""
        from n3ic.model.random_models import random_model

        return random_model((64, 16, 3), rng)


def _is_large(model: BinaryModel) -> bool:
    """Whether following single neurons to the scores takes minutes."""
    return sum(int(layer.fan_in.sum()) for layer in model.layers) > _MAX_FOLLOWED


FAMILY = BinaryFamily()
