# SPDX-License-Identifier: Apache-2.0
"""Operations on integers, with proven ranges: what a network on a ring consists of.

Sums of products run in a floating-point BLAS, in slices of the inputs whose partial sums, in any
order, are integers below 2^24 in float32 or 2^53 in float64: these are exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError

Array = NDArray[Any]
Kernel = Callable[..., Array]
"""Maps arrays of shape ``(items, *shape)`` that hold integers, of any dtype, to such an array."""
INT32 = (-(1 << 31), (1 << 31) - 1)
_FLOAT32, _FLOAT64 = 1 << 24, 1 << 53
_COLUMNS = 1024
"""Columns of a convolution's product: as many as stay in a core's cache."""


@dataclass(frozen=True)
class Integers:
    """The values that an operation gives for one item.

    Attributes:
        shape: their shape.
        low: a number that none is below.
        high: a number that none is above.

    Raises:
        ClusterError: the range exceeds 32 bits.
    """

    shape: tuple[int, ...]
    low: int
    high: int

    def __post_init__(self) -> None:
        if not INT32[0] <= self.low <= self.high <= INT32[1]:
            raise ClusterError(
                f"values may reach {self.low:,} to {self.high:,}: expected a range within 32 bits"
            )

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape))

    @property
    def magnitude(self) -> int:
        """A number that no absolute value is above."""
        return max(-self.low, self.high)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The shortest integer type that holds every value, little-endian."""
        kinds = ("u1", "i1", "<u2", "<i2", "<i4")
        fitting = (np.iinfo(kind) for kind in kinds)
        return next(
            np.dtype(kind)
            for kind, info in zip(kinds, fitting, strict=True)
            if info.min <= self.low and self.high <= info.max
        )


class Operation(ABC):
    """An operation on the values of one item; the same for every item."""

    @abstractmethod
    def output(self, *inputs: Integers) -> Integers:
        """Shape and range of what it gives.

        Raises:
            ClusterError: a shape does not fit, or a value may exceed 32 bits.
        """

    @abstractmethod
    def kernel(self, *inputs: Integers) -> Kernel:
        """Make the function that computes it, exact for inputs within these ranges."""


def _float(bound: int) -> Any:
    """The type, float32 or float64, in which integers up to a bound are exact."""
    if bound >= _FLOAT64:
        raise ClusterError(f"a partial sum may reach {bound:,}: expected less than 2^53")
    return np.float32 if bound < _FLOAT32 else np.float64


def _sum_type(bound: int) -> Any:
    """The type of sums up to a bound."""
    return np.float32 if bound < _FLOAT32 else np.int32


def _expected(fits: bool, what: str, *inputs: Integers) -> None:
    if not fits:
        shapes = " and ".join(str(values.shape) for values in inputs)
        raise ClusterError(f"expected {what}, got {shapes}")


def _weighted(weights: Array, bias: Array, values: Integers, padded: bool) -> tuple[int, int, int]:
    """Range of sums of products, and a bound of the absolute value of every partial sum."""
    rows = weights.reshape(len(weights), -1).astype(np.int64)
    low, high = (min(values.low, 0), max(values.high, 0)) if padded else (values.low, values.high)
    plus, minus = np.maximum(rows, 0).sum(1), np.minimum(rows, 0).sum(1)
    lows = plus * low + minus * high + bias
    highs = plus * high + minus * low + bias
    partial = (plus - minus) * max(-low, high) + np.abs(bias)
    return int(lows.min()), int(highs.max()), int(partial.max())


def _product(weights: Array, magnitude: int) -> Callable[[Any], Array]:
    """Make a function for exact products of an integer matrix with columns of values.

    Args:
        weights: integers of shape ``(groups, outputs, inputs)``.
        magnitude: a number that no absolute value of the columns is above.

    Returns:
        A function that maps float32 columns of shape ``(groups, inputs, n)`` to sums of shape
        ``(groups, outputs, n)``: float32, or int32 where they may be larger.
    """
    # Sums of the absolute weights up to each input: slices end before one is too large.
    sums = np.abs(weights.reshape(-1, weights.shape[2]).astype(np.int64)).cumsum(1)
    ends, base = [0], np.zeros(len(sums), dtype=np.int64)
    while ends[-1] < sums.shape[1]:
        fits = ((sums - base[:, None]).max(0)[ends[-1] :] * magnitude < _FLOAT32).sum()
        if not fits:
            kind = _float(int(sums[:, -1].max()) * magnitude)
            wide: Any = weights.astype(kind)
            return lambda columns: (wide @ columns.astype(kind)).astype(np.int32)
        ends.append(ends[-1] + int(fits))
        base = sums[:, ends[-1] - 1]
    matrix: Any = weights.astype(np.float32)
    if len(ends) == 2:
        return lambda columns: matrix @ columns

    def compute(columns: Any) -> Array:
        out = np.zeros((*weights.shape[:2], columns.shape[2]), dtype=np.int32)
        for a, b in pairwise(ends):
            out += (matrix[..., a:b] @ columns[:, a:b]).astype(np.int32)
        return out

    return compute


def arrays_of(function: Callable[..., Any]) -> Iterator[Array]:
    """The arrays that a kernel's function, and the functions that it calls, have been made with."""
    for cell in getattr(function, "__closure__", None) or ():
        content = cell.cell_contents
        if isinstance(content, np.ndarray):
            yield content
        elif hasattr(content, "indptr"):  # a sparse matrix
            yield from (content.data, content.indices, content.indptr)
        elif callable(content):
            yield from arrays_of(content)


def _windows(size: int, kernel: int, stride: int, padding: int) -> int:
    return (size + 2 * padding - kernel) // stride + 1


@dataclass(frozen=True, eq=False)
class Dense(Operation):
    """Products of the last axis with a matrix.

    Attributes:
        weights: integers of shape ``(outputs, inputs)``.
        bias: integers of shape ``(outputs,)``.
    """

    weights: Array
    bias: Array

    def output(self, *inputs: Integers) -> Integers:
        """Shape and range of what it gives."""
        (values,) = inputs
        wide = self.weights.shape[1]
        _expected(values.shape[-1:] == (wide,), f"rows of {wide} values", values)
        low, high, _ = _weighted(self.weights, self.bias, values, padded=False)
        return Integers((*values.shape[:-1], len(self.weights)), low, high)

    def kernel(self, *inputs: Integers) -> Kernel:
        """Make the function that computes it."""
        (values,) = inputs
        kind = _sum_type(_weighted(self.weights, self.bias, values, padded=False)[2])
        product = _product(self.weights[None], values.magnitude)
        bias: Any = self.bias.astype(kind)
        wide = self.weights.shape[1]

        def compute(array: Array) -> Array:
            rows = array.reshape(-1, wide).astype(np.float32)
            out: Any = product(rows.T[None])[0].T.astype(kind, copy=False) + bias
            return np.asarray(out.reshape(*array.shape[:-1], -1))

        return compute


@dataclass(frozen=True, eq=False)
class Convolution(Operation):
    """2-D convolution of channels, rows and columns.

    Attributes:
        weights: integers of shape ``(filters, channels of a group, rows, columns)``.
        bias: integers of shape ``(filters,)``.
        stride: steps of rows and of columns.
        padding: zeros beyond each edge, of rows and of columns.
        groups: groups of channels, each with filters of its own.
    """

    weights: Array
    bias: Array
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    groups: int = 1

    def output(self, *inputs: Integers) -> Integers:
        """Shape and range of what it gives."""
        (values,) = inputs
        channels = self.weights.shape[1] * self.groups
        fits = len(values.shape) == 3 and values.shape[0] == channels
        _expected(fits, f"{channels} channels of rows and columns", values)
        low, high, _ = _weighted(self.weights, self.bias, values, any(self.padding))
        return Integers((len(self.weights), *self._size(values)), low, high)

    def kernel(self, *inputs: Integers) -> Kernel:
        """Make the function that computes it."""
        (values,) = inputs
        kind = _sum_type(_weighted(self.weights, self.bias, values, any(self.padding))[2])
        size = self._size(values)
        bias: Any = self.bias.astype(kind)[:, None, None]
        # A filter of one channel would be a product of a few numbers: sums over its places are
        # faster.
        if self.weights.shape[1] == 1:
            convolve = self._by_places(values, size)
        else:
            convolve = self._by_matrix(values, size)
        some = max(1, _COLUMNS // (size[0] * size[1]))

        def compute(images: Array) -> Array:
            out = np.empty((len(images), len(self.weights), *size), dtype=kind)
            for at in range(0, len(images), some):
                out[at : at + some] = convolve(images[at : at + some])
            out += bias
            return out

        return compute

    def _by_places(self, values: Integers, size: tuple[int, int]) -> Callable[[Array], Array]:
        """Convolve channels with filters of one channel each (depthwise)."""
        kind = _float(_weighted(self.weights, np.zeros(1), values, any(self.padding))[2])
        weights: Any = self.weights[:, 0].astype(kind)
        times = len(weights) // values.shape[0]

        def convolve(images: Array) -> Array:
            repeated = np.repeat(self._padded(images, kind), times, axis=1)
            out = np.zeros((len(images), len(weights), *size), dtype=kind)
            for place in np.ndindex(*weights.shape[1:]):
                factor = weights[:, *place, None, None]
                out += factor * _place(repeated, place, self.stride, size)
            return out

        return convolve

    def _by_matrix(self, values: Integers, size: tuple[int, int]) -> Callable[[Array], Array]:
        """Convolve by a product of matrices per group: filters times windows (im2col)."""
        filters, depth, *window = self.weights.shape
        matrix = self.weights.reshape(self.groups, filters // self.groups, -1)
        product = _product(matrix, values.magnitude)

        def convolve(images: Array) -> Array:
            padded = self._padded(images, np.float32).swapaxes(0, 1)
            shape = (depth * self.groups, *window, len(images), *size)
            windows = np.empty(shape, dtype=np.float32)
            for row, column in np.ndindex(*window):
                windows[:, row, column] = _place(padded, (row, column), self.stride, size)
            sums = product(windows.reshape(self.groups, matrix.shape[2], -1))
            return sums.reshape(filters, len(images), *size).swapaxes(0, 1)

        return convolve

    def _size(self, values: Integers) -> tuple[int, int]:
        rows, columns = (
            _windows(*edge)
            for edge in zip(
                values.shape[1:], self.weights.shape[2:], self.stride, self.padding, strict=True
            )
        )
        _expected(min(rows, columns) > 0, "an image as large as the filter", values)
        return rows, columns

    def _padded(self, images: Array, kind: Any) -> Array:
        (up, left), (rows, columns) = self.padding, images.shape[2:]
        if not any(self.padding):
            return images.astype(kind)
        out = np.zeros((*images.shape[:2], rows + 2 * up, columns + 2 * left), dtype=kind)
        out[:, :, up : up + rows, left : left + columns] = images
        return out


def _place(
    images: Array, place: tuple[int, ...], stride: tuple[int, int], size: tuple[int, int]
) -> Array:
    """The values that one place of a window meets, of shape ``(..., *size)``."""
    rows, columns = (
        slice(at, at + step * (count - 1) + 1, step)
        for at, step, count in zip(place, stride, size, strict=True)
    )
    return images[..., rows, columns]


@dataclass(frozen=True, eq=False)
class Aggregate(Operation):
    """Sums over the neighbours of each vertex of a graph, weighted.

    Attributes:
        vertices: shape of the sparse matrix: vertices that receive, and that send.
        rows: receiving vertex of each edge.
        columns: sending vertex of each edge.
        weights: integer of each edge.
    """

    vertices: tuple[int, int]
    rows: Array
    columns: Array
    weights: Array

    def output(self, *inputs: Integers) -> Integers:
        """Shape and range of what it gives."""
        (values,) = inputs
        fits = len(values.shape) == 2 and values.shape[0] == self.vertices[1]
        _expected(fits, f"features of {self.vertices[1]} vertices", values)
        low, high = self._range(values)
        return Integers((self.vertices[0], values.shape[1]), low, high)

    def kernel(self, *inputs: Integers) -> Kernel:
        """Make the function that computes it."""
        from scipy import sparse

        # Sums of 32 bits are exact: the range of the results is known to fit.
        matrix = sparse.csr_array(
            (self.weights.astype(np.int32), (self.rows, self.columns)), shape=self.vertices
        )
        return lambda values: np.stack([matrix @ item.astype(np.int32) for item in values])

    def _range(self, values: Integers) -> tuple[int, int]:
        def sums(weights: Array) -> NDArray[np.int64]:
            out = np.zeros(self.vertices[0], dtype=np.int64)
            np.add.at(out, self.rows, weights.astype(np.int64))
            return out

        plus, minus = sums(np.maximum(self.weights, 0)), sums(np.minimum(self.weights, 0))
        lows, highs = (
            plus * values.low + minus * values.high,
            plus * values.high + minus * values.low,
        )
        return int(lows.min()), int(highs.max())


@dataclass(frozen=True)
class Pool(Operation):
    """The greatest value, or the sum, of each window of rows and columns.

    Attributes:
        window: rows and columns of a window.
        stride: steps of rows and of columns.
        padding: places beyond each edge, which count nothing.
        largest: whether the greatest value is taken.
    """

    window: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    largest: bool = True

    def output(self, *inputs: Integers) -> Integers:
        """Shape and range of what it gives."""
        (values,) = inputs
        shape = (*values.shape[:1], *self._size(values))
        if self.largest:
            return Integers(shape, values.low, values.high)
        places = self.window[0] * self.window[1]
        low, high = values.low, values.high
        if any(self.padding):
            low, high = min(low, 0), max(high, 0)
        return Integers(shape, places * low, places * high)

    def kernel(self, *inputs: Integers) -> Kernel:
        """Make the function that computes it."""
        (values,) = inputs
        size, bounds = self._size(values), self.output(values)
        kind = values.dtype if self.largest else np.dtype(_float(bounds.magnitude))
        edges = ((0, 0), (0, 0), *((p, p) for p in self.padding))
        beyond = values.low if self.largest else 0
        join = np.maximum if self.largest else np.add

        def compute(images: Array) -> Array:
            whole = images.astype(kind, copy=False)
            if any(self.padding):
                whole = np.pad(whole, edges, constant_values=beyond)
            first, *others = np.ndindex(*self.window)
            out: Array = _place(whole, first, self.stride, size).copy()
            for place in others:
                join(out, _place(whole, place, self.stride, size), out=out)
            return out

        return compute

    def _size(self, values: Integers) -> tuple[int, int]:
        _expected(len(values.shape) == 3, "channels of rows and columns", values)
        rows, columns = (
            _windows(*edge)
            for edge in zip(values.shape[1:], self.window, self.stride, self.padding, strict=True)
        )
        _expected(min(rows, columns) > 0, "an image as large as the window", values)
        return rows, columns


@dataclass(frozen=True, eq=False)
class Rescale(Operation):
    """Products with ``2^shift / divisor``, rounded to the nearest (ties to even), within bounds.

    Attributes:
        shift: a power of two of each channel, or one for all, integers of shape ``(channels,)``.
        low: the least result; smaller ones become it.
        high: the greatest result.
        divisor: a positive number.
        axis: axis of the channels, of an item's shape.
    """

    shift: Array
    low: int
    high: int
    divisor: int = 1
    axis: int = 0

    def output(self, *inputs: Integers) -> Integers:
        """Shape and range of what it gives."""
        (values,) = inputs
        _expected(
            len(self.shift) in (1, values.shape[self.axis]),
            f"{len(self.shift)} channels on axis {self.axis}",
            values,
        )
        ends = [self._exact(end, int(s)) for end in (values.low, values.high) for s in self.shift]
        return Integers(values.shape, min(ends), max(ends))

    def kernel(self, *inputs: Integers) -> Kernel:
        """Make the function that computes it."""
        (values,) = inputs
        # A quotient by no power of two is rounded: in float64 it is nowhere near a tie unless it
        # is one.
        kind = _float(values.magnitude) if self.divisor == 1 else np.float64
        shape = [1] * len(values.shape)
        shape[self.axis] = len(self.shift)
        factor: Any = np.ldexp(np.ones(len(self.shift)), self.shift).reshape(shape).astype(kind)
        result = self.output(values).dtype
        low, high, divisor = kind(self.low), kind(self.high), kind(self.divisor)

        def compute(array: Array) -> Array:
            scaled: Any = array.astype(kind, copy=False) * factor
            if self.divisor != 1:
                scaled /= divisor
            np.rint(scaled, out=scaled)
            np.clip(scaled, low, high, out=scaled)
            rounded: Array = scaled.astype(result)
            return rounded

        return compute

    def _exact(self, value: int, shift: int) -> int:
        """The result for one value, in whole numbers."""
        above, below = (
            (value << shift, self.divisor) if shift >= 0 else (value, self.divisor << -shift)
        )
        quotient, rest = divmod(above, below)
        # Python's divmod rounds down, so the rest is never negative.
        up = 2 * rest > below or (2 * rest == below and quotient % 2)
        return min(max(quotient + bool(up), self.low), self.high)


@dataclass(frozen=True)
class Addition(Operation):
    """Sum of two values, each multiplied by a power of two first.

    Attributes:
        shifts: the powers, 0 or more.
    """

    shifts: tuple[int, int]

    def output(self, *inputs: Integers) -> Integers:
        """Shape and range of what it gives."""
        a, b = inputs
        _expected(a.shape == b.shape, "two values of one shape", a, b)
        up, other = self.shifts
        return Integers(
            a.shape, (a.low << up) + (b.low << other), (a.high << up) + (b.high << other)
        )

    def kernel(self, *inputs: Integers) -> Kernel:
        """Make the function that computes it."""
        a, b = inputs
        bound = (a.magnitude << self.shifts[0]) + (b.magnitude << self.shifts[1])
        kind = _float(bound)
        first, second = (kind(1 << shift) for shift in self.shifts)

        def compute(left: Array, right: Array) -> Array:
            one: Any = left.astype(kind)
            out: Array = one * first + right.astype(kind) * second
            return out

        return compute


@dataclass(frozen=True)
class Sign(Operation):
    """-1, 0 or 1."""

    def output(self, *inputs: Integers) -> Integers:
        """Shape and range of what it gives."""
        (values,) = inputs
        return Integers(values.shape, *(int(np.sign(v)) for v in (values.low, values.high)))

    def kernel(self, *inputs: Integers) -> Kernel:
        """Make the function that computes it."""
        result = self.output(*inputs).dtype
        return lambda values: np.sign(values).astype(result)


@dataclass(frozen=True)
class Reshape(Operation):
    """The same values, in order, in another shape.

    Attributes:
        shape: the shape of an item.
    """

    shape: tuple[int, ...]

    def output(self, *inputs: Integers) -> Integers:
        """Shape and range of what it gives."""
        (values,) = inputs
        fits = values.size == int(np.prod(self.shape))
        _expected(fits, f"as many values as {self.shape} has", values)
        return Integers(self.shape, values.low, values.high)

    def kernel(self, *inputs: Integers) -> Kernel:
        """Make the function that computes it."""
        return lambda values: values.reshape(len(values), *self.shape)
