# SPDX-License-Identifier: Apache-2.0
"""2-D convolution with integer or binary weights: rows of images, halos from the neighbours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.systems.cluster.distributed_rows import DistributedRows, Payload, RowReader
from n3ic.systems.cluster.placement import Share
from n3ic.systems.cluster.protocol import BY_RANGE, PacketType, ProtocolError, TaskId, TaskPacket


@dataclass(frozen=True, eq=False)
class Filters:
    """The weights of a 2-D convolution, a cross-correlation as in every framework.

    Attributes:
        weights: int64 array of shape ``(filters, channels, height, width)``; 0 and 1 in a binary
            convolution.
        shape: rows, columns and channels of the image.
        stride: step of both axes.
        padding: rows and columns around the image. They add nothing to a result: they are zeros in
            an integer convolution and absent connections in a binary one.
        binary: whether a result is ``popcount(XNOR(w, x))`` over the positions inside the image.

    Raises:
        ClusterError: The shapes of weights and image do not match.
    """

    weights: NDArray[np.int64]
    shape: tuple[int, int, int]
    stride: int = 1
    padding: int = 0
    binary: bool = False

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights)
        if weights.ndim != 4 or weights.dtype.kind not in "iub" or 0 in weights.shape:
            raise ClusterError("filters are integers of shape (filters, channels, height, width)")
        if weights.shape[1] != self.shape[2]:
            raise ClusterError(f"filters of {weights.shape[1]} channels, image of {self.shape[2]}")
        if self.binary and not np.isin(weights, (0, 1)).all():
            raise ClusterError("the weights of a binary convolution are bits: 0 or 1")
        if self.stride < 1 or self.padding < 0 or min(self.out_rows, self.out_columns) < 1:
            raise ClusterError("the filters are larger than the padded image, or the stride is 0")
        # The class is frozen; the weights are widened once, so that no product overflows 32 bits.
        object.__setattr__(self, "weights", weights.astype(np.int64))

    @property
    def out_rows(self) -> int:
        """Rows of the result."""
        return (self.shape[0] + 2 * self.padding - int(self.weights.shape[2])) // self.stride + 1

    @property
    def out_columns(self) -> int:
        """Columns of the result."""
        return (self.shape[1] + 2 * self.padding - int(self.weights.shape[3])) // self.stride + 1

    @cached_property
    def weight(self) -> int:
        """Bound of a result, divided by the largest absolute value in the image."""
        if self.binary:
            return int(np.prod(self.weights.shape[1:]))
        # |sum of w * x| <= max|x| * sum of |w|, in Python's integers, which do not overflow.
        return max(sum(abs(int(v)) for v in w.ravel()) for w in self.weights)

    def image_rows(self, row: int) -> range:
        """Return the rows of the image that a row of the result reads."""
        first = row * self.stride - self.padding
        return range(max(0, first), min(self.shape[0], first + self.weights.shape[2]))

    def row(self, number: int, image: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Compute a row of the result.

        Args:
            number: number of the row.
            image: the rows of :meth:`image_rows`, each of shape ``(columns, channels)``.

        Returns:
            int64 array of shape ``(columns, filters)``.
        """
        height, width = self.weights.shape[2:]
        rows = self.image_rows(number)
        # Rows above the image are padding, and are not fetched.
        above = rows.start - (number * self.stride - self.padding)
        padded = np.zeros((height, self.shape[1] + 2 * self.padding, self.shape[2]), dtype=np.int64)
        inside = np.zeros_like(padded)
        middle = np.s_[above : above + len(rows), self.padding : self.padding + self.shape[1]]
        if image:  # a row may read nothing but padding
            padded[middle], inside[middle] = np.stack(image), 1
        if not self.binary:
            return self._correlated(padded, self.weights, width)
        # XNOR(w, x) = 1 - w - x + 2wx = (2w - 1)x + (1 - w), summed over positions inside the
        # image.
        agree = self._correlated(padded, 2 * self.weights - 1, width)
        return agree + self._correlated(inside, 1 - self.weights, width)

    def _correlated(
        self, padded: NDArray[np.int64], weights: NDArray[np.int64], width: int
    ) -> NDArray[np.int64]:
        windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1)
        sums: NDArray[np.int64] = np.einsum("hxck,fchk->xf", windows[:, :: self.stride], weights)
        return sums

    def image_payload(self, row: NDArray[np.int64]) -> Payload:
        """Encode a row of the image for the network: numbers, or packed bits.

        Args:
            row: int64 array of shape ``(columns, channels)``.
        """
        if not self.binary:
            return row.ravel()
        # Bits travel packed in 64-bit numbers, as all payloads are vectors of int64.
        bits = np.packbits(row.ravel().astype(np.bool_), bitorder="little")
        return np.pad(bits, (0, -len(bits) % 8)).view("<i8").astype(np.int64)

    def image_row(self, payload: Payload) -> NDArray[np.int64]:
        """Decode a row of the image from a payload.

        Raises:
            ProtocolError: The payload has the wrong length.
        """
        size = self.shape[1] * self.shape[2]
        if len(payload) != (-(-size // 64) if self.binary else size):
            raise ProtocolError(f"a row of {len(payload)} numbers does not fit this image")
        if self.binary:
            octets = payload.astype("<i8").view(np.uint8)
            payload = np.unpackbits(octets, count=size, bitorder="little").astype(np.int64)
        return payload.reshape(self.shape[1:])


def convolve_packet(array: int, rows: int) -> TaskPacket:
    """Make the task that computes a convolution.

    Args:
        array: number of the result's array.
        rows: number of rows of the result.
    """
    return TaskPacket(PacketType.TASK, TaskId.CONVOLVE, BY_RANGE, array, 0, rows, lap=True)


class ConvolvedRows(RowReader):
    """Rows of a convolution's result.

    Args:
        array: number of the result's array.
        source: the rows of the image on this node.
        share: the node and the rows of the result that it computes.
        filters: the weights.

    Raises:
        ClusterError: A sum may overflow 64 bits.
    """

    tasks: ClassVar = frozenset({TaskId.CONVOLVE})

    def __init__(self, array: int, source: DistributedRows, share: Share, filters: Filters) -> None:
        bound = filters.weight * (1 if filters.binary else source.bound)
        super().__init__(array, source, share, bound)
        self._filters = filters
        self._rows: dict[int, Payload] = {}

    def forget(self) -> None:
        """Forget the results, because the coordinator has them."""
        super().forget()
        self._rows.clear()

    def computed(self, number: int) -> bool:
        """Whether a row of the result has been computed."""
        return number in self._rows

    def perform_task(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Compute each row as soon as its halo has arrived."""
        if packet.end > self._filters.out_rows:
            raise ProtocolError(f"the result has {self._filters.out_rows} rows")
        for number in range(packet.start, packet.end):
            task = TaskPacket(
                packet.type, packet.identifier, packet.destination, self.array, number, number + 1
            )
            yield from super().perform_task(task)

    def needs(self, packet: TaskPacket) -> Iterable[int]:
        """Return the rows of the image that the task reads."""
        return self._filters.image_rows(packet.start)

    def compute(self, packet: TaskPacket) -> None:
        """Compute a row."""
        image_rows = []
        for number in self.needs(packet):
            payload = self.source.row(number)
            assert payload is not None  # noqa: S101 - a task waits for every row of needs()
            image_rows.append(self._filters.image_row(payload))
        self._rows[packet.start] = self._filters.row(packet.start, image_rows).ravel()

    def payload(self, number: int) -> Payload:
        """Return a row of the result."""
        return self._rows[number]
