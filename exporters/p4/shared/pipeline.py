# SPDX-License-Identifier: Apache-2.0
"""Converts a BinaryModel to operations of a match-action pipeline, for the P4 templates.

A layer is XNOR, ``ceil(log2 K)`` popcount stages (paper, Algorithm 2), the sign, and the fold into
the next layer's input word. Bit ``i`` of a vector is bit ``i`` of the P4 integer, where bit 0 is
the least significant.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from n3ic.model.bits import Bits
from n3ic.model.layers import Connections, HiddenLayer
from n3ic.model.network import BinaryModel
from n3ic.targets.packets import SCORE_BITS

MODEL_BITS = 32
PORT_BITS = 9  # width of a port in v1model
PAPER_SHAPE = (256, 32, 16, 2)


@dataclass(frozen=True)
class PopcountStage:
    """One level of the popcount tree: ``v = (v & mask) + ((v >> shift) & mask)``."""

    index: int
    shift: int
    mask: int


@dataclass(frozen=True)
class OrLevel:
    """One level of the OR tree that collects a layer's output bits: pairs ``(into, other)``."""

    index: int
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class NeuronConstants:
    """A neuron's constants as P4 integers; ``offset`` is a threshold or a bias."""

    index: int
    weights: int
    mask: int | None
    offset: int


@dataclass(frozen=True)
class PipelineLayer:
    """Widths, stages and neurons of a layer.

    Attributes:
        index: index in the network.
        inputs: fan-in K, the width of a neuron's counter field.
        outputs: number of neurons.
        source: field with the input bits.
        difference_bits: width of ``popcount - threshold``, including the sign.
        hidden: whether the neurons have thresholds; otherwise they are class scores.
        masked: whether the layer has a connection mask.
    """

    index: int
    inputs: int
    outputs: int
    source: str
    difference_bits: int
    hidden: bool
    masked: bool
    stages: tuple[PopcountStage, ...]
    folds: tuple[OrLevel, ...]
    neurons: tuple[NeuronConstants, ...]

    @property
    def count_bits(self) -> int:
        """Width of the field in which a neuron's popcount stages count."""
        return self.inputs

    @property
    def sign_shift(self) -> int:
        """Position of the sign bit of the difference."""
        return self.difference_bits - 1


@dataclass(frozen=True)
class MatchActionPipeline:
    """A model as the templates need it.

    Attributes:
        layers: its layers.
        input_bits: number of input bits.
        pad_bits: number of bits that pad the input to whole bytes.
        classes: number of classes.
        model_id: number in answers: the start of the model's digest, never 0.
        shunts: whether the program has a shunting threshold.
        shunt: smallest margin that is not shunted.
    """

    layers: tuple[PipelineLayer, ...]
    input_bits: int
    pad_bits: int
    classes: int
    model_id: int
    shunts: bool
    shunt: int

    @property
    def signature(self) -> str:
        """The properties on which the tables of a v1model program depend.

        These are the shape, an ``m`` for each masked layer, and an ``s`` for a shunting threshold.
        ``lanes`` tells the tables from those of earlier releases, which held a neuron each.
        """
        layers = (f"{n.outputs}{'m' if n.masked else ''}" for n in self.layers)
        return "_".join(("lanes", str(self.input_bits), *layers)) + ("s" if self.shunts else "")


def pipeline_of(model: BinaryModel, *, shunts: bool = False) -> MatchActionPipeline:
    """Convert a model to a pipeline.

    Args:
        model: the network.
        shunts: whether to include a threshold even if the model's is 0.
    """
    layers = []
    source = "x"
    for index, layer in enumerate(model.layers):
        layers.append(_layer(index, layer, source))
        source = f"l{index}_y"
    n = model.input.n_bits
    return MatchActionPipeline(
        layers=tuple(layers),
        input_bits=n,
        pad_bits=-n % 8,
        classes=len(model.classes),
        # 0 in an answer means that no network answered, so the id must not be 0.
        model_id=int(model.digest[: MODEL_BITS // 4], 16) or 1,
        shunts=shunts or model.shunt > 0,
        shunt=model.shunt,
    )


def _layer(index: int, layer: Connections, source: str) -> PipelineLayer:
    k, m = layer.n_inputs, layer.n_outputs
    hidden = isinstance(layer, HiddenLayer)
    offsets = layer.thresholds if isinstance(layer, HiddenLayer) else _bias(layer)
    neurons = tuple(
        NeuronConstants(
            j,
            to_integer(layer.weights[j]),
            None if layer.mask is None else to_integer(layer.mask[j]),
            int(offsets[j]) % (1 << SCORE_BITS),
        )
        for j in range(m)
    )
    return PipelineLayer(
        index=index,
        inputs=k,
        outputs=m,
        source=source,
        difference_bits=(k + 1).bit_length() + 1,  # thresholds reach k + 1: a neuron never fires
        hidden=hidden,
        masked=layer.mask is not None,
        stages=popcount_stages(k),
        folds=or_tree(m),
        neurons=neurons,
    )


def _bias(layer: Connections) -> np.ndarray:
    return np.asarray(getattr(layer, "bias"))  # noqa: B009 - OutputLayer, checked by the caller


def to_integer(bits: Bits) -> int:
    """Convert bits to an integer; bit 0 is the least significant."""
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def popcount_stages(width: int) -> tuple[PopcountStage, ...]:
    """Compute the levels of the popcount tree of ``width`` bits; one bit needs no level."""
    stages = []
    for index in range((width - 1).bit_length()):
        shift = 1 << index
        # Fields of `shift` bits hold partial counts: keep every other one, and add its neighbour.
        # A field of `shift` bits counts at most `shift` ones, so no sum overflows into the next.
        mask = sum(((1 << shift) - 1) << at for at in range(0, width, 2 * shift))
        stages.append(PopcountStage(index + 1, shift, mask & ((1 << width) - 1)))
    return tuple(stages)


def literal(value: int, width: int) -> str:
    """Format a P4 literal of ``bit<width>`` in hexadecimal, with leading zeros."""
    return f"{width}w{value:#0{2 + -(-width // 4)}x}"


def or_tree(width: int) -> tuple[OrLevel, ...]:
    """Compute the levels that OR ``width`` fields into the first."""
    levels: list[OrLevel] = []
    step = 1
    while step < width:
        pairs = tuple((at, at + step) for at in range(0, width - step, 2 * step))
        levels.append(OrLevel(len(levels) + 1, pairs))
        step *= 2
    return tuple(levels)


def operations(model: BinaryModel) -> int:
    """Count the bit operations of one inference, including masks.

    XNOR takes two per bit, a mask one, a popcount stage four, and the sign four per bit of the
    count.
    """
    return shape_operations(model.shape) + masked_bits(model)


def masked_bits(model: BinaryModel) -> int:
    """Number of weight bits in masked layers."""
    return sum(layer.weights.size for layer in model.layers if layer.mask is not None)


def shape_operations(shape: tuple[int, ...]) -> int:
    """Count the bit operations of one inference of a network without masks."""
    return sum(
        m * (k * (2 + 4 * (k - 1).bit_length()) + 4 * (k + 1).bit_length())
        for k, m in pairwise(shape)
    )
