# SPDX-License-Identifier: Apache-2.0
"""The meaning of a graph's tensors: the value of each channel as a function of a popcount.

A channel of a tensor after a binary layer depends on one number only, the popcount ``p`` of
agreements between a neuron's weights and its inputs, ``0 <= p <= connections``. So a tensor is a
table of values with one row per channel and one column per popcount, and every elementwise operator
is evaluated on the table. Nothing is solved in closed form: whatever batch norm, scale and sign do,
a neuron's threshold is the popcount at which its value changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError
from n3ic.model.bits import Bits
from n3ic.model.layers import HiddenLayer

MAX_CELLS = 1 << 26  # cells of one table, or of one constant
_MAX_SIZES = 4096  # distinct weight magnitudes for which a common unit is searched

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Signal:
    """A tensor of a graph as a table over popcounts.

    Attributes:
        tables: arrays of shape ``(channels, largest popcount + 1)``, one for each way in which a
            runtime may round; a single one if rounding plays no role.
        fan_in: connections of each channel, shape ``(channels,)``; later columns are unused.
        weights: weight bits of the channels, ``(channels, inputs)``; None for the network's input.
        mask: mask of connections, or None.
        before: hidden layers before this tensor's layer.
        by: description of the node that computed it.
    """

    tables: tuple[Array, ...]
    fan_in: NDArray[np.int64]
    weights: Bits | None
    mask: Bits | None
    before: tuple[HiddenLayer, ...]
    by: str

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.fan_in)

    @property
    def used(self) -> Bits:
        """Cells of a table that stand for a possible popcount, as a bool array."""
        columns = np.arange(self.tables[0].shape[1])
        return columns[None, :] <= self.fan_in[:, None]


@dataclass(frozen=True, eq=False)
class Binary:
    """A tensor whose channels take two values.

    Attributes:
        low: value of each channel for bit 0, float64.
        high: value of each channel for bit 1.
        layers: hidden layers up to and including the one that computes the bits.
        width: number of channels.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    layers: tuple[HiddenLayer, ...]

    @property
    def width(self) -> int:
        """Number of channels."""
        return len(self.low)


def network_input(width: int, low: float, high: float) -> Signal:
    """The input of a network: one bit per channel, as ``low`` or ``high``."""
    table = np.tile(np.array([low, high], np.float32), (width, 1))
    return Signal((table,), np.ones(width, np.int64), None, None, (), "the input")


def binary(signal: Signal, wanted_by: str, values: tuple[float, float] = (-1.0, 1.0)) -> Binary:
    """Convert a tensor that feeds a binary layer to bits.

    Args:
        signal: the tensor.
        wanted_by: description of the node that reads it.
        values: values of bits 0 and 1 if every channel is constant.

    Raises:
        ModelError: a channel does not step once, from one value to another.
    """
    found = [_step(signal, table, wanted_by) for table in signal.tables]
    low, high, step = found[0]
    for _, _, other in found[1:]:
        wrong = np.flatnonzero(other != step)
        if wrong.size:
            j = int(wrong[0])
            raise ModelError(
                f"{signal.by}: rounding decides neuron {j} at popcount "
                f"{min(int(step[j]), int(other[j]))}; runtimes may differ there"
            )
    low, high, step, falling = _oriented(low, high, step, signal.fan_in, values)
    if signal.weights is None:
        if falling.any() or (step != 1).any():
            raise ModelError(f"{signal.by}: the input's bits are turned around before the network")
        return Binary(low, high, ())
    weights = np.where(falling[:, None], ~signal.weights, signal.weights)
    layer = HiddenLayer(weights, mask=signal.mask, thresholds=step.astype(np.int32))
    return Binary(low, high, (*signal.before, layer))


def _step(signal: Signal, table: Array, wanted_by: str) -> tuple[Array, Array, Array]:
    """Value below, value above, and first popcount above; ``fan_in + 1`` for a constant channel."""
    values, used = table.astype(np.float64), signal.used
    if not np.isfinite(values[used]).all():
        raise ModelError(f"{signal.by}: its values are not finite")
    first = values[:, :1]
    changed = (values != first) & used
    step = np.where(changed.any(axis=1), changed.argmax(axis=1), signal.fan_in + 1)
    last = np.take_along_axis(values, np.minimum(step, signal.fan_in)[:, None], axis=1)
    columns = np.arange(values.shape[1])[None, :]
    expected = np.where(columns < step[:, None], first, last)
    wrong = np.flatnonzero(((values != expected) & used).any(axis=1))
    if wrong.size:
        j = int(wrong[0])
        distinct = np.unique(values[j][used[j]])
        shown = ", ".join(f"{v:g}" for v in distinct[:4]) + (", ..." if len(distinct) > 4 else "")
        raise ModelError(
            f"{signal.by}: neuron {j} gives {shown} as its popcount grows, not one value and then "
            f"one other; {wanted_by} needs two (a sign or a threshold is missing or ambiguous)"
        )
    return first[:, 0], last[:, 0], step


def _oriented(
    low: Array, high: Array, step: Array, fan_in: Array, values: tuple[float, float]
) -> tuple[Array, Array, Array, Bits]:
    """Orient every channel such that its higher value is bit 1; also return the flipped rows."""
    falling = high < low
    step = np.where(falling, fan_in - step + 1, step)
    low, high = np.where(falling, high, low), np.where(falling, low, high)
    constant = low == high
    if constant.any():
        pairs = {(a, b) for a, b in zip(low[~constant], high[~constant], strict=True)}
        common = pairs.pop() if len(pairs) == 1 else values
        for j in np.flatnonzero(constant):
            value = low[j]
            pair = common if value in common else (value, value + 1)
            low[j], high[j] = pair
            step[j] = 0 if value == pair[1] else fan_in[j] + 1
    return low, high, step, falling


def product(source: Binary, weights: Array, by: str) -> Signal:
    """The tensor after a matrix product with constant weights of shape ``(inputs, neurons)``.

    If float sums of the weights are not exact (a batch norm was folded into them), the tensor holds
    the exact sum and the two extremes that rounding may reach in any order of additions.

    Raises:
        ModelError: the weights of a neuron differ in magnitude.
    """
    inputs, neurons = weights.shape
    _guard(neurons, inputs + 1, by)
    exact = weights.astype(np.float64)
    certain = _sums_are_exact(source, exact, weights.dtype, by)
    change = exact * (source.high - source.low)[:, None]
    size = np.abs(change)
    scale = size.max(axis=0)
    wrong = np.argwhere((size != 0) & (size != scale))
    if wrong.size:
        i, j = (int(v) for v in wrong[0])
        raise ModelError(
            f"{by}: weight {weights[i, j]:g} of input {i} to neuron {j} is not +-1 times the "
            "others of that neuron (0 for no connection)"
        )
    connected = (change != 0).T
    signs = (change > 0).T | ~connected
    negative = (connected & ~signs).sum(axis=1)
    fan_in = connected.sum(axis=1)
    base = (exact * source.low[:, None]).sum(axis=0)
    columns = np.arange(int(fan_in.max(initial=0)) + 1)
    table = base[:, None] + scale[:, None] * (columns[None, :] - negative[:, None])
    ways = [table]
    if not certain:
        # Each of n additions rounds by at most half an ulp of a partial sum, and partial sums are
        # bounded by half of (sum of magnitudes + magnitude of the result).
        total = np.abs(exact * np.maximum(np.abs(source.low), np.abs(source.high))[:, None])
        error = (
            np.finfo(weights.dtype).eps
            / 2
            * (inputs + 1)
            * (total.sum(axis=0)[:, None] + np.abs(table))
            / 2
        )
        ways += [table - error, table + error]
    return Signal(
        tuple(way.astype(weights.dtype) for way in ways),
        fan_in.astype(np.int64),
        signs,
        None if connected.all() else connected,
        source.layers,
        by,
    )


def xnor_popcount(source: Binary, weights: Array, by: str) -> Signal:
    """The tensor after ``XnorPopcountMatMul`` with 0/1 weights ``(inputs, neurons)``."""
    inputs, neurons = weights.shape
    _guard(neurons, inputs + 1, by)
    if not np.isin(weights, (0, 1)).all():
        raise ModelError(f"{by}: weights of XnorPopcountMatMul are 0 or 1")
    if (source.low != 0).any() or (source.high != 1).any():
        raise ModelError(f"{by}: inputs of XnorPopcountMatMul are 0 or 1")
    table = np.tile(np.arange(inputs + 1, dtype=np.float32), (neurons, 1))
    return Signal(
        (table,), np.full(neurons, inputs, np.int64), weights.T > 0, None, source.layers, by
    )


def _guard(rows: int, columns: int, by: str) -> None:
    if rows * columns > MAX_CELLS:
        raise ModelError(f"{by}: {columns - 1} inputs x {rows} neurons are too many to import")


def _sums_are_exact(source: Binary, weights: Array, dtype: np.dtype[Any], by: str) -> bool:
    """Whether float sums of the weights are the same in any order of additions."""
    if not np.isfinite(weights).all():
        raise ModelError(f"{by}: a weight is not finite")
    if dtype.kind != "f":
        return True
    values = np.unique([np.abs(weights * x[:, None]) for x in (source.low, source.high)])
    if len(values) > _MAX_SIZES:
        return False
    unit = max(float(v).as_integer_ratio()[1] for v in values)
    return float(values[-1]) * unit * len(weights) <= 2.0 ** (np.finfo(dtype).nmant + 1)
