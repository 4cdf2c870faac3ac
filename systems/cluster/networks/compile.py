# SPDX-License-Identifier: Apache-2.0
"""Captured modules as networks of integers: scales by Brevitas; importing this imports PyTorch.

Scales are powers of two, so that every rescaling is a shift with a defined rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from brevitas.graph.calibrate import calibration_mode
from brevitas.nn import QuantIdentity, QuantLinear
from brevitas.quant.fixed_point import (
    Int8ActPerTensorFixedPoint,
    Int8WeightPerChannelFixedPoint,
    Int8WeightPerTensorFixedPoint,
    Uint8ActPerTensorFixedPoint,
)
from numpy.typing import NDArray
from torch import Tensor, nn

from n3ic.errors import ClusterError
from n3ic.systems.cluster.networks.capture import (
    UNBOUNDED,
    Captured,
    Filtered,
    Function,
    Layer,
    Linear,
    Neighbours,
    Pooled,
    Shaped,
    Signed,
    Summed,
    Weighted,
    capture,
)
from n3ic.systems.cluster.networks.network import IntegerNetwork, NetworkStep
from n3ic.systems.cluster.networks.operations import (
    INT32,
    Addition,
    Aggregate,
    Convolution,
    Dense,
    Integers,
    Operation,
    Pool,
    Rescale,
    Reshape,
    Sign,
)

_BIAS_BITS = 29  # so that a sum of products has room beside it


def compile_module(module: nn.Module, examples: Tensor) -> IntegerNetwork:
    """Turn a trained module into a network of integers: weights and activations of 8 bits.

    Args:
        module: the module, as :func:`~n3ic.systems.cluster.networks.capture.capture` takes it.
        examples: typical inputs, which give the ranges of the activations.

    Raises:
        ClusterError: a cluster does not compute a node of the module's graph.
    """
    captured = capture(module, examples)
    with torch.no_grad():
        network, scores = _Compilation(captured).network()
    integers = network.scores(network.encode(captured.examples.numpy()))
    if not np.array_equal(
        np.ldexp(integers.astype(np.float64), -network.score_bits), scores.numpy()
    ):
        raise ClusterError(
            f"{type(module).__name__}: the integers differ from the quantised layers in PyTorch; "
            "please report it with the module"
        )
    return network


class _Compilation:
    """Layers as steps; beside them their values in PyTorch, rounded alike."""

    def __init__(self, captured: Captured) -> None:
        self._layers = captured.layers
        self._ends = _unrounded(captured.layers)
        self._steps: list[NetworkStep] = []
        examples = captured.examples.double()
        signed = bool((examples < 0).any())
        bits = _activation_bits(examples, signed)
        low, high = _bounds(signed, UNBOUNDED, bits)
        self._given = Integers(tuple(examples.shape[1:]), low, high)
        # Of each value: its step's number, its binary places, and the examples' numbers.
        self._numbers, self._bits = [0], [bits]
        self._tensors = [_rounded(examples, bits, low, high)]

    def network(self) -> tuple[IntegerNetwork, Tensor]:
        """Return the network, and the scores that PyTorch computes from the rounded layers."""
        for number, layer in enumerate(self._layers):
            self._add(layer, rounds=number not in self._ends)
        network = IntegerNetwork(
            self._given, self._steps, input_bits=self._bits[0], score_bits=self._bits[-1]
        )
        return network, self._tensors[-1]

    def _step(self, operation: Operation, inputs: Sequence[int], name: str) -> tuple[int, ...]:
        self._steps.append(NetworkStep(operation, tuple(inputs), name))
        return (len(self._steps),)

    def _add(self, layer: Layer, *, rounds: bool) -> None:
        function, bits = layer.function, [self._bits[i] for i in layer.inputs]
        places: NDArray[np.int64] = np.array(bits[:1])
        axis, divisor = 0, 1
        operation: Operation | None
        if isinstance(function, Weighted):
            function, operation, places = _weighted(function, bits[0], by_channel=rounds)
            layer = replace(layer, function=function)
            axis = -1 if isinstance(function, Linear) else 0
        elif isinstance(function, Pooled):
            operation = Pool(function.window, function.stride, function.padding, function.largest)
            divisor = 1 if function.largest else math.prod(function.window)
        elif isinstance(function, Summed):
            places = np.array([max(bits)])
            operation = Addition((max(bits) - bits[0], max(bits) - bits[1]))
        else:
            operation, places = _plain(function, places)
        inputs = tuple(self._numbers[i] for i in layer.inputs)
        if operation is not None:
            inputs = self._step(operation, inputs, layer.name)
        tensor = layer.apply(*(self._tensors[i] for i in layer.inputs))
        if rounds or layer.bounds != UNBOUNDED:
            signed = layer.bounds[0] < 0
            unrounded = int(places[0])
            out = _activation_bits(tensor, signed) if rounds else unrounded
            low, high = _bounds(signed, layer.bounds, out) if rounds else _limits(layer.bounds, out)
            rescale = Rescale(out - places, low, high, divisor, axis % (tensor.dim() - 1))
            inputs = self._step(rescale, inputs, layer.name)
            tensor = _rounded(tensor, out, low, high)
            places = np.array([out])
        self._numbers += inputs
        self._bits.append(int(places[0]))
        self._tensors.append(tensor)


def _plain(
    function: Function, places: NDArray[np.int64]
) -> tuple[Operation | None, NDArray[np.int64]]:
    """The operation of a function that rounds nothing, and the binary places of its result."""
    if isinstance(function, Signed):
        return Sign(), np.zeros(1, dtype=np.int64)
    return (Reshape(function.shape) if isinstance(function, Shaped) else None), places


def _unrounded(layers: Sequence[Layer]) -> set[int]:
    """Numbers of the layers whose results stay as they are: scores, inputs of signs, and picks."""

    def only_signs(number: int) -> bool:
        """Whether only signs read a layer's result, or nobody, because it is the scores."""
        readers = [i for i, layer in enumerate(layers) if number + 1 in layer.inputs]
        return all(
            isinstance(layers[i].function, Signed)
            or (isinstance(layers[i].function, Shaped) and only_signs(i))
            for i in readers
        )

    def stays(number: int) -> bool:
        function = layers[number].function
        # A mean is no number of finitely many binary places, so it is always rounded.
        mean = isinstance(function, Pooled) and not function.largest
        return function.keeps_grid or (only_signs(number) and not mean)

    return {number for number in range(len(layers)) if stays(number)}


def _weighted(
    function: Weighted, input_bits: int, *, by_channel: bool
) -> tuple[Weighted, Operation, NDArray[np.int64]]:
    """Round weights and bias.

    Returns:
        The function with rounded weights in float64, the operation, and the binary places of the
        sums: one number, or one for each channel.
    """
    edges = isinstance(function, Neighbours)
    weight, bias = function.weight.double(), function.bias.double()
    matrix = weight.reshape(1, -1) if edges else weight.reshape(len(weight), -1)
    bits = _weight_bits(matrix, by_channel=by_channel and not edges)
    # A channel of tiny weights would give its bias more than 32 bits.
    largest = bias.abs() if len(bits) > 1 else bias.abs().max()[None]
    room = _BIAS_BITS - torch.ceil(torch.log2(largest.clamp(min=1e-30))).numpy() - input_bits
    bits = np.minimum(bits, room.astype(np.int64))
    scale = torch.from_numpy(np.ldexp(1.0, bits))
    each = scale if edges else scale.reshape(-1, *[1] * (weight.dim() - 1))
    integers = torch.round(weight * each).clamp(-127, 127)
    places = bits + input_bits
    sums = torch.from_numpy(np.ldexp(1.0, places))
    offsets = torch.round(bias * sums)
    rounded = function.with_weights(integers / each, offsets / sums)
    whole = integers.numpy().astype(np.int8), offsets.numpy().astype(np.int32)
    if isinstance(function, Neighbours):
        rows, columns = function.edges.numpy().astype(np.int32)
        return rounded, Aggregate(function.vertices, rows, columns, whole[0]), places
    if isinstance(function, Filtered):
        convolution = Convolution(*whole, function.stride, function.padding, function.groups)
        return rounded, convolution, places
    return rounded, Dense(*whole), places


def _weight_bits(matrix: Tensor, *, by_channel: bool) -> NDArray[np.int64]:
    """Binary places of weights by Brevitas: one number, or one for each row."""
    chosen = Int8WeightPerChannelFixedPoint if by_channel else Int8WeightPerTensorFixedPoint
    layer: Any = QuantLinear(matrix.shape[1], len(matrix), bias=False, weight_quant=chosen)
    layer.weight.copy_(matrix)
    scale = layer.quant_weight().scale.reshape(-1).double().numpy()
    bits = -np.log2(scale).round().astype(np.int64)
    nothing = (matrix == 0).all(1).numpy() if by_channel else np.array([not matrix.any()])
    return np.where(nothing, 0, bits)


def _activation_bits(tensor: Tensor, signed: bool) -> int:
    """Binary places of activations by Brevitas, from examples."""
    chosen = Int8ActPerTensorFixedPoint if signed else Uint8ActPerTensorFixedPoint
    quantiser: Any = QuantIdentity(act_quant=chosen, return_quant_tensor=True).eval()
    with calibration_mode(quantiser):
        quantiser(tensor.float())
    scale = float(quantiser(tensor.float().reshape(-1)[:1]).scale)
    return -round(math.log2(scale))


def _limits(bounds: tuple[float, float], bits: int) -> tuple[int, int]:
    """Bounds as integers; those of 32 bits where there are none."""
    low, high = (
        end if math.isinf(bound) else round(math.ldexp(bound, bits))
        for bound, end in zip(bounds, INT32, strict=True)
    )
    return low, high


def _bounds(signed: bool, bounds: tuple[float, float], bits: int) -> tuple[int, int]:
    """Bounds as integers of 8 bits."""
    low, high = _limits(bounds, bits)
    return (max(low, -128), min(high, 127)) if signed else (max(low, 0), min(high, 255))


def _rounded(tensor: Tensor, bits: int, low: int, high: int) -> Tensor:
    """Round to multiples of ``2^-bits``, ties to even, within bounds."""
    return torch.round(tensor * 2.0**bits).clamp(low, high) / 2.0**bits
