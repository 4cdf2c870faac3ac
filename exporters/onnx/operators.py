# SPDX-License-Identifier: Apache-2.0
"""Evaluates the operators between two layers on tables over popcounts and on constants.

A table is passed as a batch with one row per popcount, so that ``onnx.reference`` treats it like
the rows of a network's input. Only the operators listed here are evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from n3ic.errors import ModelError
from n3ic.exporters.onnx import model_proto
from n3ic.families.binary.popcount_table import Array, PopcountTable, channel_row, lowest_bits

Value = PopcountTable | Array

# fmt: off
ELEMENTWISE = frozenset((
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "DequantizeLinear", "Div", "Dropout", "Equal",
    "Floor", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mul",
    "Neg", "Not", "Or", "QuantizeLinear", "Relu", "Round", "Sign", "Sub", "Where",
))
# fmt: on
RESHAPING = frozenset(("Constant", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))


def reference(node: Any, arrays: Sequence[Array], opsets: Mapping[str, int], by: str) -> Array:
    """Evaluate one node by ``onnx.reference`` with the given operator sets.

    Raises:
        ModelError: the node cannot be evaluated, or its result is not numeric.
    """
    onnx = model_proto.require("onnx")
    evaluator = model_proto.require("onnx.reference").ReferenceEvaluator
    if node.op_type == "Div" and not arrays[-1].all():
        raise ModelError(f"{by}: a division by 0")
    names = [name for name in node.input if name]
    ends = ([onnx.ValueInfoProto(name=n) for n in side] for side in (names, node.output[:1]))
    inputs, outputs = ends
    part = onnx.GraphProto(node=[node], input=inputs, output=outputs)
    versions = dict(opsets)
    if node.op_type in ("DequantizeLinear", "QuantizeLinear"):  # absent before 19
        versions[""] = max(19, versions.get("", 0))
    try:
        with np.errstate(all="ignore"):
            (result,) = evaluator(part, versions).run(None, dict(zip(names, arrays, strict=True)))
    except Exception as error:  # strange attributes and shapes raise errors of any type
        raise ModelError(f"{by}: cannot be evaluated: {model_proto.short(error)}") from error
    if not isinstance(result, np.ndarray | np.generic) or result.dtype.kind not in "fiub":
        raise ModelError(f"{by}: gives no numbers")
    return np.asarray(result)


def batch_norm(
    x: PopcountTable,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    by: str,
) -> PopcountTable:
    """Apply BatchNormalization in each way that runtimes compute it.

    A runtime may evaluate the formula, or fold it into one product and one sum, or into the weights
    of the layer before, as onnxruntime does: then each addition of the layer rounds. Exact values
    decide. Popcounts at which a way gives the other side of a threshold are in doubt.
    """
    gain, offset, middle, spread = (
        channel_row(c, x.channels, by).astype(np.float32).reshape(-1, 1)
        for c in (scale, bias, mean, variance)
    )
    if (spread + np.float32(epsilon) <= 0).any():
        raise ModelError(f"{by}: a variance is not positive")

    def formula(table: Array, dtype: type[Any]) -> Array:
        root = np.sqrt(spread.astype(dtype) + dtype(epsilon))
        centred = table.astype(dtype) - middle.astype(dtype)
        scaled = centred / root * gain.astype(dtype)
        return np.asarray(scaled + offset.astype(dtype))

    def folded(table: Array) -> Array:
        factor = gain / np.sqrt(spread + np.float32(epsilon))
        return np.asarray(table.astype(np.float32) * factor + (offset - middle * factor))

    tables: list[Array] = []
    with np.errstate(all="ignore"):
        # Compute the first table in all ways, and each further one in the two extreme ways, so that
        # a normalisation does not triple the number of tables.
        for table in x.tables[:1]:
            precise = formula(table, np.float64)
            factor = gain / np.sqrt(spread + np.float32(epsilon))
            reach = _fused_reach(x, factor, offset - middle * factor, precise)
            extremes = [precise - reach, precise + reach] if reach.any() else []
            ways = (precise, *extremes, formula(table, np.float32), folded(table))
            tables += [way.astype(np.float32) for way in ways]
        for table in x.tables[1:]:
            tables += [formula(table, np.float64).astype(np.float32), folded(table)]
    return replace(x, tables=tuple(tables)).named(by)


def _fused_reach(x: PopcountTable, factor: Array, offset: Array, result: Array) -> Array:
    """How far a sum of weights times ``factor``, plus ``offset``, may round from ``result``.

    The bound is that of :func:`n3ic.families.binary.popcount_table.product`: half an ulp of a
    partial sum for each addition, and as much as three more for the factor, the weights and the
    offset. Factors of few digits round nothing.
    """
    table = np.where(x.used, x.tables[0].astype(np.float64), x.tables[0][:, :1])
    magnitudes = np.ptp(table, axis=1, keepdims=True) * np.abs(factor) + np.abs(offset)
    step = np.ptp(table, axis=1, keepdims=True) / np.maximum(x.fan_in[:, None], 1) * factor
    unit = np.minimum(lowest_bits(step) / 2, lowest_bits(offset))
    terms = x.fan_in[:, None] + 5
    error = np.finfo(np.float32).eps / 4 * terms * (magnitudes + np.abs(result))
    rounds = (magnitudes > unit * 2.0**24) & np.isfinite(magnitudes)
    return np.where(rounds, error, 0.0)


def multi_threshold(
    x: PopcountTable, thresholds: Array, scale: float, bias: float, by: str
) -> PopcountTable:
    """Apply QONNX MultiThreshold: count the thresholds reached, then scale and shift the count."""
    if thresholds.ndim != 2 or thresholds.shape[0] not in (1, x.channels):
        raise ModelError(f"{by}: thresholds of shape {thresholds.shape} for {x.channels} channels")
    if thresholds.shape[1] > 64:
        raise ModelError(f"{by}: {thresholds.shape[1]} thresholds; a binary neuron has one")

    def count(table: Array) -> Array:
        total = np.zeros(table.shape, np.float32)
        for k in range(thresholds.shape[1]):
            total += table >= thresholds[:, k : k + 1]
        return np.float32(scale) * total + np.float32(bias)

    return replace(x, tables=tuple(count(t) for t in x.tables)).named(by)


def bipolar(values: Array, scale: Array) -> Array:
    """Apply QONNX BipolarQuant: +-1 times a scale, +1 at 0."""
    return np.where(values >= 0, np.float32(1), np.float32(-1)) * scale


def quant(
    values: Array, scale: Array, zero: Array, width: Array, *, signed: bool, narrow: bool, by: str
) -> Array:
    """Apply QONNX Quant: integers of some bits, rounded half to even, times a scale.

    One signed bit is -1 or 1, and 1 at 0.

    Raises:
        ModelError: the width is not an integer from 1 to 32.
    """
    bits = float(width.reshape(-1)[0])
    if width.size != 1 or not 1 <= bits <= 32 or bits != int(bits):
        raise ModelError(f"{by}: a width of {width.reshape(-1)[:4].tolist()} bits")
    least = -(2.0 ** (bits - 1)) + narrow if signed else 0.0
    most = 2.0 ** (bits - 1) - 1 if signed else 2.0**bits - 1 - narrow
    with np.errstate(all="ignore"):  # a scale of 0 gives infinities, which are refused later
        whole = np.asarray(values / scale + zero)
        if signed and bits == 1:
            whole = np.where(whole >= 0, 1.0, -1.0)
        else:
            whole = np.rint(np.clip(whole, least, most))
        return np.asarray((whole - zero) * scale, dtype=np.float32)
