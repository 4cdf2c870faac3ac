"""The operators that a binary network's graph may use, on tables and on constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from n3ic.errors import ModelError
from n3ic.exporters.onnx.signal import MAX_CELLS, Array, Signal

Value = Signal | Array


def _divide(a: Array, b: Array) -> Array:
    if not b.all():
        raise ModelError("a division by 0")
    quotient: Array = np.true_divide(a, b)
    if a.dtype.kind in "iu":  # integers are cut off towards 0
        whole: Array = np.floor_divide(a - np.fmod(a, b), b)
        quotient = np.asarray(whole, dtype=a.dtype)
    return quotient


def _relu(a: Array) -> Array:
    positive: Array = np.maximum(a, a.dtype.type(0))
    return positive


ELEMENTWISE: dict[str, tuple[int, Callable[..., Array]]] = {
    "Abs": (1, np.abs),
    "Add": (2, np.add),
    "And": (2, np.logical_and),
    "Ceil": (1, np.ceil),
    "Div": (2, _divide),
    "Equal": (2, np.equal),
    "Floor": (1, np.floor),
    "Greater": (2, np.greater),
    "GreaterOrEqual": (2, np.greater_equal),
    "Identity": (1, lambda a: a),
    "Less": (2, np.less),
    "LessOrEqual": (2, np.less_equal),
    "Max": (2, np.maximum),
    "Min": (2, np.minimum),
    "Mul": (2, np.multiply),
    "Neg": (1, np.negative),
    "Not": (1, np.logical_not),
    "Or": (2, np.logical_or),
    "Relu": (1, _relu),
    "Round": (1, np.rint),
    "Sign": (1, np.sign),
    "Sub": (2, np.subtract),
    "Where": (3, np.where),
}


def elementwise(function: Callable[..., Array], values: Sequence[Value], by: str) -> Value:
    """Apply an elementwise operator to tensors and constants.

    Raises:
        ModelError: constants are not one a channel, or tensors are of different layers.
    """
    signals = [v for v in values if isinstance(v, Signal)]
    with np.errstate(all="ignore"):
        if not signals:
            arrays = [np.asarray(v) for v in values]
            shape = np.broadcast_shapes(*(a.shape for a in arrays))
            if int(np.prod(shape, dtype=object)) > MAX_CELLS:
                raise ModelError(f"{by}: a constant of shape {shape} is too large")
            return np.asarray(function(*arrays))
        first = signals[0]
        if any(s.fan_in is not first.fan_in for s in signals):
            raise ModelError(f"{by}: joins different layers; a BinaryModel is a chain of layers")
        ways = max(len(s.tables) for s in signals)
        tables = []
        for way in range(ways):
            columns = [
                v.tables[min(way, len(v.tables) - 1)]
                if isinstance(v, Signal)
                else channel_column(v, first.channels, by)
                for v in values
            ]
            table = np.asarray(function(*columns))
            tables.append(np.broadcast_to(table, first.tables[0].shape))
    return replace(first, tables=tuple(tables), by=by)


def channel_column(constant: Array, channels: int, by: str) -> Array:
    """A constant as one value a channel: shape ``(channels or 1, 1)``."""
    shape = constant.shape
    if len(shape) > 2 or constant.size not in (1, channels) or (len(shape) == 2 and shape[0] != 1):
        raise ModelError(f"{by}: a constant of shape {shape} for {channels} channels")
    return constant.reshape(-1, 1)


def batch_norm(
    x: Signal, scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float, by: str
) -> Signal:
    """BatchNormalization, in each of the ways that runtimes compute it.

    A runtime may keep the formula or fold it into one product and one sum; where the two round
    to different sides of a threshold, the import refuses rather than guesses.
    """
    columns = [channel_column(c, x.channels, by).astype(np.float32) for c in (scale, bias)]
    moments = [channel_column(c, x.channels, by).astype(np.float32) for c in (mean, variance)]
    gain, offset = columns
    middle, spread = moments
    if (spread + np.float32(epsilon) <= 0).any():
        raise ModelError(f"{by}: a variance is not positive")

    def formula(table: Array, dtype: type[Any]) -> Array:
        root = np.sqrt(spread.astype(dtype) + dtype(epsilon))
        centred = table.astype(dtype) - middle.astype(dtype)
        scaled = centred / root * gain.astype(dtype)
        return np.asarray(scaled + offset.astype(dtype), dtype=np.float32)

    def folded(table: Array) -> Array:
        factor = gain / np.sqrt(spread + np.float32(epsilon))
        return np.asarray(table.astype(np.float32) * factor + (offset - middle * factor))

    tables: list[Array] = []
    with np.errstate(all="ignore"):
        for table in x.tables[:1]:
            tables += [formula(table, np.float64), formula(table, np.float32), folded(table)]
        for table in x.tables[1:]:
            tables += [formula(table, np.float64), folded(table)]
    return replace(x, tables=tuple(tables), by=by)


def multi_threshold(x: Signal, thresholds: Array, scale: float, bias: float, by: str) -> Signal:
    """MultiThreshold of QONNX: how many thresholds a value reaches, scaled and shifted."""
    if thresholds.ndim != 2 or thresholds.shape[0] not in (1, x.channels):
        raise ModelError(f"{by}: thresholds of shape {thresholds.shape} for {x.channels} channels")
    if thresholds.shape[1] > 64:
        raise ModelError(f"{by}: {thresholds.shape[1]} thresholds; a binary neuron has one")

    def count(table: Array) -> Array:
        total = np.zeros(table.shape, np.float32)
        for k in range(thresholds.shape[1]):
            total += table >= thresholds[:, k : k + 1]
        return np.float32(scale) * total + np.float32(bias)

    return x.apply(count, by)


def bipolar(values: Array, scale: Array) -> Array:
    """BipolarQuant of QONNX: +-1 times a scale, +1 at 0."""
    return np.where(values >= 0, np.float32(1), np.float32(-1)) * scale
