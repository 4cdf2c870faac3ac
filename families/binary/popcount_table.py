# SPDX-License-Identifier: Apache-2.0
"""What a foreign network's tensors mean: each channel's value as a function of a popcount.

A channel of a tensor after a binary layer depends on one number only, the popcount ``p`` of
agreements between a neuron's weights and its inputs, ``0 <= p <= connections``. So a tensor is a
table of values with one row per channel and one column per popcount, and every elementwise operator
is evaluated on the table. Nothing is solved in closed form: whatever batch norm, scale and sign do,
a neuron's threshold is the popcount at which its value changes.

Floats round. The first table of a tensor decides: it begins with the exact sum of a layer, rounded
once, to which the bias is added. The other tables hold what another order of additions or more
digits may give. A popcount where one of them decides otherwise is *in doubt*, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError
from n3ic.model.bits import Bits
from n3ic.model.layers import MAX_NEURONS, HiddenLayer

MAX_CELLS = 1 << 26  # cells of one table, or of one constant
_MOST_STEPS = 15  # values of an activation, less one: four bits
_MOST_LEVELS = 128  # magnitudes of a weight: what eight bits and a sign tell apart
_SIZES = (
    "{}: weight {:g} of input {} to neuron {} is not +-1 times the others of that neuron (0 for no "
    "connection), nor are they small multiples of one number. Binarize the layer's weights, or "
    "quantize those behind a hidden layer to few bits with one scale a neuron"
)

OTHER_ACTIVATION = (
    "an activation that is no sign; put one there (x >= 0 is +1, else -1), and train again"
)

Array = NDArray[Any]


class ConstantInputError(ModelError):
    """A first layer whose input is the same for all input bits."""


@dataclass(frozen=True, eq=False)
class PopcountTable:
    """A tensor of a network as a table over popcounts.

    Attributes:
        tables: arrays of shape ``(channels, largest popcount + 1)``, one for each way in which a
            runtime may round; the first decides.
        fan_in: connections of each channel, shape ``(channels,)``; later columns are unused.
        weights: weight bits of the channels, ``(channels, inputs)``; None for the network's input.
        mask: mask of connections, or None.
        before: hidden layers before this tensor's layer.
        doubts: for each of them, the popcounts of its neurons that are in doubt: bool arrays of
            shape ``(neurons, largest popcount + 1)``.
        by: description of the node that computed it.
        activation: description of the node since which the values no longer grow by equal steps;
            empty if they do, as behind a layer, a bias, a scale or a batch norm.
    """

    tables: tuple[Array, ...]
    fan_in: NDArray[np.int64]
    weights: Bits | None
    mask: Bits | None
    before: tuple[HiddenLayer, ...]
    doubts: tuple[Bits, ...]
    by: str
    activation: str = ""

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.fan_in)

    @property
    def used(self) -> Bits:
        """Cells of a table that stand for a possible popcount, as a bool array."""
        columns = np.arange(self.tables[0].shape[1])
        return columns[None, :] <= self.fan_in[:, None]

    def named(self, by: str) -> PopcountTable:
        """The tensor under the name of the node that computed it."""
        bent = self.activation or ("" if _has_equal_steps(self.tables[0], self.used) else by)
        return replace(self, by=by, activation=bent)


def _has_equal_steps(table: Array, used: Bits) -> bool:
    """Whether each channel changes by the same amount from popcount to popcount, but for rounding.

    Values that are not finite count as such: they are refused where they are read.
    """
    exact = np.where(used, table.astype(np.float64), 0.0)
    with np.errstate(all="ignore"):
        steps = np.diff(exact, axis=1)
        uneven = np.abs(steps - steps[:, :1]) > 1e-4 * np.abs(exact).max(axis=1, keepdims=True)
    return not (uneven & used[:, 1:]).any()


@dataclass(frozen=True, eq=False)
class BitTensor:
    """A tensor as bits: each of its channels is a sum of bits that have two values each.

    Attributes:
        low: value of each bit that is 0, float64.
        high: value of each bit that is 1.
        owner: the channel that each bit belongs to; a sign's channel has one bit, that of an
            activation of several levels one bit per step.
        layers: hidden layers up to and including the one that computes the bits.
        doubts: their popcounts in doubt, as in :class:`PopcountTable`.
        source: the tensor itself.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    owner: NDArray[np.int64]
    layers: tuple[HiddenLayer, ...]
    doubts: tuple[Bits, ...]
    source: PopcountTable

    def picked(self, bits: NDArray[np.int64]) -> BitTensor:
        """Select bits, each as often as it is named.

        Raises:
            ValueError: the bits are the network's input, which cannot be repeated.
        """
        if not self.layers:
            raise ValueError("the network's input")
        last = self.layers[-1]
        layer = HiddenLayer(
            last.weights[bits],
            mask=None if last.mask is None else last.mask[bits],
            thresholds=last.thresholds[bits],
        )
        return BitTensor(
            self.low[bits],
            self.high[bits],
            self.owner[bits],
            (*self.layers[:-1], layer),
            (*self.doubts[:-1], self.doubts[-1][bits]),
            self.source,
        )


def network_input(width: int, low: float, high: float) -> PopcountTable:
    """The input of a network: one bit per channel, as ``low`` or ``high``."""
    table = np.tile(np.array([low, high], np.float32), (width, 1))
    return PopcountTable((table,), np.ones(width, np.int64), None, None, (), (), "the input")


def elementwise(
    function: Callable[..., Array], values: Sequence[PopcountTable | Array], by: str
) -> PopcountTable | Array:
    """Apply an operator to constants, or to tables row by row.

    Raises:
        ModelError: a result would be too large, a constant does not have one value per channel, or
            tensors belong to different layers.
    """
    signals = [v for v in values if isinstance(v, PopcountTable)]
    if not signals:
        arrays = [np.asarray(v) for v in values]
        deepest = max((a.ndim for a in arrays), default=0)
        padded = [(1,) * (deepest - a.ndim) + a.shape for a in arrays]
        shape = tuple(max(sizes) for sizes in zip(*padded, strict=True))
        if int(np.prod(shape, dtype=object)) > MAX_CELLS:
            raise ModelError(f"{by}: a constant of shape {shape} is too large")
        return function(*arrays)
    first = signals[0]
    if any(s.fan_in is not first.fan_in for s in signals):
        raise ModelError(
            f"{by}: joins different layers; a BinaryModel is a chain of layers, without skip "
            "connections or parallel layers: leave them out"
        )
    tables = []
    for way in range(max(len(s.tables) for s in signals)):
        rows = [
            v.tables[min(way, len(v.tables) - 1)].T
            if isinstance(v, PopcountTable)
            else channel_row(v, first.channels, by)
            for v in values
        ]
        tables.append(np.broadcast_to(function(*rows).T, first.tables[0].shape))
    return replace(first, tables=tuple(tables)).named(by)


def channel_row(constant: Array, channels: int, by: str) -> Array:
    """A constant as one value per channel or one for all: shape ``(channels,)`` or ``()``."""
    shape = constant.shape
    if len(shape) > 2 or constant.size not in (1, channels) or (len(shape) == 2 and shape[0] != 1):
        raise ModelError(f"{by}: a constant of shape {shape} for {channels} channels")
    return constant.reshape(() if constant.size == 1 else -1)


def binary(
    signal: PopcountTable, wanted_by: str, values: tuple[float, float] = (-1.0, 1.0)
) -> BitTensor:
    """Convert a tensor that feeds a binary layer to bits.

    Args:
        signal: the tensor.
        wanted_by: description of the node that reads it.
        values: values of bits 0 and 1 if every channel is constant.

    Raises:
        ModelError: a channel takes more values than bits can stand for, or one that is not finite.
    """
    table, used = signal.tables[0].astype(np.float64), signal.used
    if not np.isfinite(table[used]).all():
        raise ModelError(f"{signal.by}: its values are not finite")
    edges = (np.diff(table, axis=1) != 0) & used[:, 1:]
    steps = edges.sum(axis=1)
    if steps.max(initial=0) > _MOST_STEPS:
        raise _no_sign(signal, int(steps.argmax()), wanted_by)
    if signal.weights is None:
        low, high = table[:, 0], table[:, 1]
        if signal.channels and (low == high).all():
            raise ConstantInputError(
                f"{signal.by}: it is {low[0]:g} whatever the input bits are; they may have other "
                "values, 0 and 1 or -1 and 1, than the network expects"
            )
        return BitTensor(low, high, np.arange(signal.channels), (), (), signal)
    doubt = _doubt(signal, table, steps)
    # One bit per step, one for a channel without steps; the first also carries the first value.
    bits = np.maximum(steps, 1)
    owner = np.repeat(np.arange(signal.channels), bits)
    first = np.arange(len(owner)) == np.repeat(np.cumsum(bits) - bits, bits)
    threshold = signal.fan_in[owner] + 1
    stepped = steps[owner] > 0
    threshold[stepped] = np.nonzero(edges)[1] + 1
    low = np.where(first, table[owner, 0], 0.0)
    at = np.minimum(threshold, signal.fan_in[owner])
    high = low + np.where(stepped, table[owner, at] - table[owner, np.maximum(at - 1, 0)], 0.0)
    high = np.where(steps[owner] == 1, table[owner, at], high)
    return _oriented(
        signal, signal.weights[owner], low, high, owner, threshold, doubt[owner], values
    )


def _oriented(
    signal: PopcountTable,
    weights: Bits,
    low: Array,
    high: Array,
    owner: Array,
    threshold: Array,
    doubt: Bits,
    values: tuple[float, float],
) -> BitTensor:
    """Orient every bit such that its higher value is 1, and build the layer that computes it.

    A value falls with the popcount where a batch norm's gain is negative. Such a neuron counts
    disagreements instead: ``popcount(w) < t`` is ``popcount(~w) >= fan-in - t + 1``.
    """
    fan_in, falling = signal.fan_in[owner], high < low
    threshold = np.where(falling, fan_in - threshold + 1, threshold)
    low, high = np.where(falling, high, low), np.where(falling, low, high)
    columns = np.arange(doubt.shape[1])[None, :]
    turned = np.take_along_axis(doubt, np.maximum(fan_in[:, None] - columns, 0), axis=1)
    doubt = np.where(falling[:, None], turned & (columns <= fan_in[:, None]), doubt)
    constant = low == high
    pairs = {(a, b) for a, b in zip(low[~constant], high[~constant], strict=True)}
    common = pairs.pop() if len(pairs) == 1 else values
    for j in np.flatnonzero(constant):  # with another value, it gets no connection
        if (value := low[j]) in common:
            low[j], high[j] = common
            threshold[j] = 0 if value == common[1] else fan_in[j] + 1
    layer = HiddenLayer(
        np.where(falling[:, None], ~weights, weights),
        mask=None if signal.mask is None else signal.mask[owner],
        thresholds=threshold.astype(np.int32),
    )
    before, doubts = (*signal.before, layer), (*signal.doubts, doubt)
    return BitTensor(low, high, owner, before, doubts, signal)


def _no_sign(signal: PopcountTable, channel: int, wanted_by: str) -> ModelError:
    """The error about a channel of too many values, which names the activation at fault, if any."""
    values = np.unique(signal.tables[0][channel][signal.used[channel]])
    values_text = ", ".join(f"{v:g}" for v in values[:4]) + (", ..." if len(values) > 4 else "")
    by, put = signal.activation or signal.by, "in its place"
    if not signal.activation:
        put = "behind it, where no activation is"
    elif signal.activation != signal.by:
        by = f"{signal.activation}, then {signal.by}"
    return ModelError(
        f"{by}: neuron {channel} gives {values_text} as its popcount grows, {len(values)} values; "
        f"{wanted_by} needs two, or at most {_MOST_STEPS + 1} in equal steps, the same for all "
        f"neurons. Put a sign (x >= 0 is +1, else -1) {put}, or a quantizer of few bits, and train "
        "again"
    )


def _unequal(source: BitTensor, weights: Array, by: str, place: tuple[int, int]) -> ModelError:
    """The error about a layer whose terms are not small multiples of one size.

    At fault are its weights, or the values of its input: too many, or other ones in each channel.

    Args:
        source: the layer's input.
        weights: its weights, float64 array of shape ``(bits, neurons)``.
        by: description of the layer.
        place: bit and neuron of a term.
    """
    i, j = place
    signal = source.source
    whole = _multiples(np.unique(np.abs(weights[:, j])))
    if whole is None or (signal.weights is None and whole.max() > 1):
        return ModelError(_SIZES.format(by, weights[i, j], source.owner[i], j))
    table = signal.tables[0].astype(np.float64)
    levels = [np.unique(row[cells]) for row, cells in zip(table, signal.used, strict=True)]
    most = max(range(len(levels)), key=lambda k: len(levels[k]))
    if len(levels[most]) > 2:
        return _no_sign(signal, most, by)
    other = next((k for k, own in enumerate(levels) if not np.array_equal(own, levels[0])), 0)
    source_kind, put = "input bit", "Leave it out: bits need no norm and no scale"
    if signal.weights is not None:
        source_kind, put = "neuron", "Put it in front of the sign instead, or leave it out"
    levels_text = [" or ".join(f"{v:g}" for v in levels[k]) for k in (0, other)]
    return ModelError(
        f"{signal.by}: {source_kind} 0 is {levels_text[0]}, and {source_kind} {other} is "
        f"{levels_text[1]}; {by} needs the same two values of all. {put}, and train again"
    )


def _doubt(signal: PopcountTable, table: Array, steps: Array) -> Bits:
    """Popcounts of each channel at which another way of rounding gives another value.

    On one side of a step, values differ in their last digits between the ways. That raises no
    doubt; only a value nearer to the other side does.
    """
    doubt = np.zeros(table.shape, np.bool_)
    if len(signal.tables) > 1:
        jumps = np.abs(np.diff(table, axis=1))
        jumps[(jumps == 0) | ~signal.used[:, 1:]] = np.inf
        least = jumps.min(axis=1, initial=np.inf)
        far = np.where(steps > 0, least / 2, 1e-5 * np.abs(table[:, 0]))[:, None]
        for other in signal.tables[1:]:
            near = np.abs(other.astype(np.float64) - table) <= far
            doubt |= ~near & signal.used  # NaN is in doubt, too
    return doubt


def product(
    source: BitTensor, weights: Array, by: str, *, bias: Array | None = None, precise: bool = False
) -> PopcountTable:
    """Compute the tensor after a matrix product with weights of shape ``(inputs, neurons)``.

    If float sums are not exact (a batch norm was folded into the weights, a bias is real), the
    tensor holds the exact sum and the two extremes that rounding may reach in any order of
    additions. Weights of a few sizes, such as -3, -1, 1 and 3, are connections to copies of a
    neuron.

    Args:
        source: the layer's input.
        weights: float or integer array.
        by: description of the node.
        bias: what the same operator adds: one value, or one per neuron. It counts among the terms
            whose order is open: kernels add it first, last, or between blocks of inputs.
        precise: whether to add a table with the exact sum in double precision.

    Raises:
        ModelError: the weights of a neuron are not small multiples of one size.
    """
    exact = weights.astype(np.float64)
    if not np.isfinite(exact).all():
        raise ModelError(f"{by}: a weight is not finite")
    exact = exact[source.owner]
    bits, counts, size, slack = _counted(source, exact, by)
    _guard(counts.shape[1], len(counts) + 1, by)
    connected = (counts != 0).T
    fan_in = connected.sum(axis=1).astype(np.int64)
    # If all bits are 0, the sum is the base, and only negative weights agree with their bits. Each
    # further agreement adds one size.
    base = (exact * source.low[:, None]).sum(axis=0)
    popcounts = np.arange(int(fan_in.max(initial=0)) + 1)
    sums = base[:, None] + size[:, None] * (popcounts - (counts < 0).sum(axis=0)[:, None])
    added = np.zeros(1, weights.dtype) if bias is None else np.reshape(bias, -1)
    dtype = np.result_type(weights, added)
    reach = slack[:, None] + _reach(source, exact, added, dtype, sums)
    ways = _ways(sums, added, reach, dtype)
    mask = None if connected.all() else connected
    tables = ways if precise else ways[:-1]
    return PopcountTable(tables, fan_in, (counts >= 0).T, mask, bits.layers, bits.doubts, by)


def _ways(sums: Array, bias: Array, reach: Array, dtype: np.dtype[Any]) -> tuple[Array, ...]:
    """Tables of sums plus a bias: rounded, at the extremes of rounding if any, and in double."""
    precise = sums + bias[:, None].astype(np.float64)
    with np.errstate(over="ignore"):  # what is not finite is refused where it is read
        rounded = sums.astype(dtype) + bias[:, None].astype(dtype)
        extremes = [precise - reach, precise + reach] if reach.any() else []
        return (rounded, *(way.astype(dtype) for way in extremes), precise)


def _reach(
    source: BitTensor, weights: Array, bias: Array, dtype: np.dtype[Any], sums: Array
) -> Array:
    """How far a float sum may lie from the exact one, for each neuron and popcount.

    Each addition rounds by at most half an ulp of a partial sum. A partial sum is at most half of
    the sum of all magnitudes plus the magnitude of the result, because the terms not yet added
    lead from the one to the other. Rounding of the products adds as much as two additions.
    """
    if dtype.kind != "f":
        return np.zeros_like(sums)
    low, high = weights * source.low[:, None], weights * source.high[:, None]
    magnitudes = np.maximum(np.abs(low), np.abs(high)).sum(axis=0) + np.abs(bias)
    # Sums are exact in any order if all terms are multiples of a power of two, and no partial sum
    # has more digits than a float's significand.
    units = [lowest_bits(part).min(axis=0, initial=np.inf) for part in (low, high, bias[None])]
    unit = np.minimum(np.minimum(units[0], units[1]), units[2])
    rounds = magnitudes > unit * 2.0 ** (np.finfo(dtype).nmant + 1)
    rounds &= np.isfinite(magnitudes)  # an infinite bias decides alone
    terms = len(weights) + 1 + bool(bias.any())
    error = np.finfo(dtype).eps / 2 * terms * (magnitudes[:, None] + np.abs(sums + bias[:, None]))
    return np.where(rounds[:, None], error / 2, 0.0)


def lowest_bits(values: Array) -> Array:
    """The value of the lowest set bit of each float; infinite for 0 and for infinity."""
    finite = np.where(np.isfinite(values), values, 0.0).astype(np.float64)
    mantissa, exponent = np.frexp(np.abs(finite))
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.ldexp((digits & -digits).astype(np.float64), exponent - 53)
    return np.where(finite == 0, np.inf, lowest)


def _counted(source: BitTensor, weights: Array, by: str) -> tuple[BitTensor, Array, Array, Array]:
    """Find what a layer counts: its bits, their signs (-1, 0 or 1), and what one bit is worth.

    Bits are copied where a weight is a multiple of a neuron's smallest one.

    Returns:
        The bits; their signs, int8 of shape ``(bits, neurons)``; and for each neuron, what one more
        agreement adds, and the most by which the multiples miss the weights.
    """
    change = weights * (source.high - source.low)[:, None]
    size = np.abs(change).max(axis=0)
    slack = np.zeros(len(size))
    if not ((change != 0) & (np.abs(change) != size)).any():
        return source, np.sign(change).astype(np.int8), size, slack
    sizes, where = np.unique(np.abs(change), return_inverse=True)
    where = where.reshape(change.shape)
    common = _multiples(sizes)  # for all neurons, so that scores keep one scale
    counts = np.zeros(change.shape, np.int64)
    unit = size.copy()
    for j in np.flatnonzero(size):
        own, place = np.unique(where[:, j], return_inverse=True)
        multiples = _multiples(sizes[own]) if common is None else common[own]
        if multiples is None:
            i = int(np.flatnonzero((change[:, j] != 0) & (np.abs(change[:, j]) != size[j]))[0])
            raise _unequal(source, weights, by, (i, int(j)))
        unit[j] = size[j] / multiples[-1] if common is None else sizes[-1] / common[-1]
        counts[:, j] = multiples[place]
        slack[j] = np.abs(np.abs(change[:, j]) - counts[:, j] * unit[j]).sum()
    copies = _copies(source, weights, counts, by)
    bits = np.repeat(np.arange(len(copies)), copies)
    nth = np.arange(len(bits)) - np.repeat(np.cumsum(copies) - copies, copies)
    signs = np.where(nth[:, None] < counts[bits], np.sign(change[bits]), 0).astype(np.int8)
    return source.picked(bits) if source.layers else source, signs, unit, slack


def _copies(source: BitTensor, weights: Array, counts: Array, by: str) -> NDArray[np.int64]:
    """How often each bit is needed: the largest count that any neuron gives it."""
    copies: NDArray[np.int64] = counts.max(axis=1)
    if not source.layers:
        if copies.max() > 1:
            first, second = np.argwhere(counts > 1)[0].tolist()
            raise _unequal(source, weights, by, (first, second))
        return np.ones_like(copies)
    if copies.sum() > MAX_NEURONS:
        raise ModelError(f"{by}: its weights need {copies.sum():,} copies of neurons, too many")
    return copies


def _multiples(sizes: Array) -> NDArray[np.int64] | None:
    """The smallest integers that sorted sizes are proportional to; None if they are large."""
    for levels in range(1, _MOST_LEVELS + 1):
        exact = sizes * (levels / sizes[-1])
        whole = np.rint(exact)
        if (np.abs(exact - whole) <= 1e-5).all() and (whole[sizes > 0] > 0).all():
            return np.asarray(whole, dtype=np.int64)
    return None


def xnor_popcount(source: BitTensor, weights: Array, by: str) -> PopcountTable:
    """Compute the tensor after ``XnorPopcountMatMul`` with 0/1 weights ``(inputs, neurons)``."""
    inputs, neurons = weights.shape
    _guard(neurons, inputs + 1, by)
    if not np.isin(weights, (0, 1)).all():
        raise ModelError(f"{by}: weights of XnorPopcountMatMul are 0 or 1")
    if (source.low != 0).any() or (source.high != 1).any() or len(source.low) != inputs:
        raise ModelError(f"{by}: inputs of XnorPopcountMatMul are 0 or 1")
    table = np.tile(np.arange(inputs + 1, dtype=np.float32), (neurons, 1))
    fan_in = np.full(neurons, inputs, np.int64)
    return PopcountTable((table,), fan_in, weights.T > 0, None, source.layers, source.doubts, by)


def _guard(rows: int, columns: int, by: str) -> None:
    if rows * columns > MAX_CELLS:
        raise ModelError(f"{by}: {columns - 1} inputs x {rows} neurons are too many to import")
