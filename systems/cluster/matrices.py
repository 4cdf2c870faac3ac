# SPDX-License-Identifier: Apache-2.0
"""Convolution and aggregation over a graph as products with a matrix that the nodes hold.

A card computes them with the multipliers of GEMM; processes take them, too. Filters and graph are
held, images and features travel.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ClusterError
from n3ic.systems.cluster.convolution import Filters
from n3ic.systems.cluster.dense import WindowedMatrix
from n3ic.systems.cluster.kernels import ConvolutionKernel, GemmKernel, Kernel, integers
from n3ic.systems.cluster.sparse import Combine, Elements

LANES = 16
"""Numbers of a slice: a card reads one number of each of so many memories in a clock."""

CARD_KERNELS = (
    "a card takes one share of a binary layer, GemmKernel, ConvolutionKernel, or AggregationKernel "
    "(n3ic.systems.cluster.matrices), which holds its graph on the nodes"
)
"""What a card computes, as text for errors."""


def on_cards(kernel: Kernel | GemmKernel) -> GemmKernel:
    """Return the kernel with the same results whose weights the nodes hold, for a ring with cards.

    Raises:
        ClusterError: No card computes it; the error names it.
    """
    if isinstance(kernel, GemmKernel):
        return kernel
    if isinstance(kernel, ConvolutionKernel):
        return FilterKernel(kernel.filters)
    raise ClusterError(f"a card computes no {type(kernel).__name__}; {CARD_KERNELS}")


class FilterKernel(GemmKernel):
    """2-D convolution: filters are distributed, tasks carry strips of the image.

    A strip has the rows of the image that one row of the result reads, column by column, each
    padded to whole slices. A window is then a run of slices, and windows of neighbouring results
    overlap: each number of a strip travels once.

    Args:
        filters: the weights and the shape of the image.
    """

    def __init__(self, filters: Filters) -> None:
        weights = filters.weights
        if filters.binary:
            # XNOR(w, x) = (2w - 1)x + (1 - w): one more channel says what is inside the image.
            outside = (1 - weights).sum(axis=1, keepdims=True)
            weights = np.concatenate([2 * weights - 1, outside], axis=1)
        # From (filters, channels, height, width) to columns of the image with all their channels.
        columns = weights.transpose(3, 2, 1, 0)
        columns = columns.reshape(len(columns), -1, len(weights))
        padded = np.pad(columns, ((0, 0), (0, -columns.shape[1] % LANES), (0, 0)))
        super().__init__(padded.reshape(-1, len(weights)))
        self.__dict__["filters"] = filters

    filters: Filters

    @cached_property
    def whole_matrix(self) -> WindowedMatrix:
        """What the nodes hold together.

        Raises:
            ClusterError: A sum may overflow 64 bits.
        """
        column = len(self.matrix) // self.filters.weights.shape[3]
        step = column * self.filters.stride
        return WindowedMatrix(self.matrix, self.filters.out_columns, step)

    def rows(self, operand: ArrayLike) -> NDArray[np.int64]:
        """Make the strips of an image, one for each row of the result.

        Args:
            operand: integers of shape ``(rows, columns, channels)``; bits for binary filters.
        """
        f = self.filters
        image = integers(operand, "image", f.shape)
        if f.binary:
            if not np.isin(image, (0, 1)).all():
                raise ClusterError("the image of a binary convolution: expected bits, 0 or 1")
            image = np.concatenate([image, np.ones_like(image[..., :1])], axis=2)
        around = (f.padding, f.padding)
        padded = np.pad(image, (around, around, (0, 0)))
        height = f.weights.shape[2]
        # Columns behind the last window are read by none.
        used = (f.out_columns - 1) * f.stride + f.weights.shape[3]
        starts = range(0, f.out_rows * f.stride, f.stride)
        strips = np.stack([padded[at : at + height, :used] for at in starts]).swapaxes(1, 2)
        columns = strips.reshape(len(strips), used, -1)
        padded_columns = np.pad(columns, ((0, 0), (0, 0), (0, -columns.shape[2] % LANES)))
        return padded_columns.reshape(len(strips), -1)

    def result(self, results: NDArray[np.int64]) -> NDArray[np.int64]:
        """Make the result: int64 array of shape ``(rows, columns, filters)``."""
        return results.reshape(len(results), self.filters.out_columns, -1)


class AggregationKernel(GemmKernel):
    """Aggregation over a graph: its rows are distributed, tasks carry columns of the features.

    Args:
        graph: sparse (scipy) or dense matrix of integers: row ``r`` of the result combines the rows
            of the features with the weights of its row ``r``.
        combine: ``sum`` of weight times row; ``mean``, whose last column counts the rows, instead
            of dividing; or ``max``. The last two ignore the weights' values.
    """

    def __init__(self, graph: Any, combine: Combine = Combine.SUM) -> None:
        elements = Elements.of(graph)
        matrix = np.zeros(elements.shape[::-1], dtype=np.int64)
        values = elements.values if combine is Combine.SUM else 1
        matrix[elements.columns, elements.rows] = values
        super().__init__(matrix)
        self.__dict__["combine"] = combine

    combine: Combine

    @cached_property
    def whole_matrix(self) -> WindowedMatrix:
        """What the nodes hold together.

        Raises:
            ClusterError: The graph is too large, or a sum may overflow 64 bits.
        """
        combine = Combine.MAX if self.combine is Combine.MAX else Combine.SUM
        return WindowedMatrix(self.matrix, combine=combine)

    def rows(self, operand: ArrayLike) -> NDArray[np.int64]:
        """Make the columns of the features; for a mean, one more that counts.

        Args:
            operand: integers of shape ``(rows of the features, width)``.
        """
        features = np.asarray(operand)
        shape = (len(self.matrix), *features.shape[1:2])
        columns = integers(features, "rows", shape).T
        if self.combine is Combine.MEAN:
            columns = np.concatenate([columns, np.ones_like(columns[:1], shape=(1, shape[0]))])
        return np.ascontiguousarray(columns)

    def result(self, results: NDArray[np.int64]) -> NDArray[np.int64]:
        """Make the result: int64 array of shape ``(rows of the graph, width)``, or one more."""
        return results.T
