# SPDX-License-Identifier: Apache-2.0
"""Integer dense GEMM: nodes hold columns of the second matrix, tasks carry rows of the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.systems.cluster.coordinator import TaggedRows
from n3ic.systems.cluster.node import ROW_SLOTS, ArrayPart, status_packet
from n3ic.systems.cluster.protocol import (
    BY_RANGE,
    HOME,
    MAX_OFFSET,
    VALUES_PER_PACKET,
    WIDE_PER_PACKET,
    DataId,
    PacketType,
    ProtocolError,
    TaskId,
    TaskPacket,
    body_of,
)
from n3ic.systems.cluster.scrubbing import CheckedWeights, array_digest
from n3ic.systems.cluster.sparse import Combine

MAX_INNER = MAX_OFFSET * VALUES_PER_PACKET
MATRIX_SHARE = 4
"""Kind of a share in ``STATUS``: columns of a matrix."""
_VALUE_BOUND = 1 << 31
_NONE = -(1 << 63)


@dataclass(frozen=True, eq=False)
class WindowedMatrix:
    """A matrix of integers, and how rows are combined with its columns.

    Attributes:
        matrix: integer array of shape ``(inner, columns)``. It becomes int64.
        windows: windows of a row, each of which is combined with every column.
        step: numbers from the beginning of a window to the next one's.
        combine: ``sum`` for products; ``max`` for the maximum of the numbers whose weight is not 0,
            0 without any.

    Raises:
        ClusterError: The matrix does not hold integers, or a sum may overflow 64 bits.
    """

    matrix: NDArray[Any]
    windows: int = 1
    step: int = 0
    combine: Combine = Combine.SUM

    def __post_init__(self) -> None:
        matrix = self.matrix
        if matrix.ndim != 2 or matrix.dtype.kind not in "iub" or self.numbers > MAX_INNER:
            raise ClusterError(f"expected a matrix of integers with at most {MAX_INNER:,} rows")
        # |row @ column| <= 2^31 * sum of |column|, which tolist() adds in unbounded integers.
        sums = (sum(map(abs, c)) for c in matrix.T.tolist())
        largest = 0 if self.combine is Combine.MAX else max(sums, default=0)
        if largest * _VALUE_BOUND >= 1 << 63:
            raise ClusterError(
                f"the absolute values of a column add up to {largest:,}; expected less than 2^32, "
                "so that sums of products with 32-bit numbers fit 64 bits"
            )
        object.__setattr__(self, "matrix", matrix.astype(np.int64))

    @property
    def numbers(self) -> int:
        """Numbers of a row."""
        return (self.windows - 1) * self.step + len(self.matrix)

    @property
    def packets(self) -> int:
        """Packets of 512 bits that carry a row."""
        return -(-self.numbers // VALUES_PER_PACKET)

    def columns(self, start: int, end: int) -> WindowedMatrix:
        """Return some of the columns."""
        return replace(self, matrix=self.matrix[:, start:end])

    def results(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Combine rows with every column.

        Args:
            rows: int64 array of shape ``(rows, numbers)``.

        Returns:
            int64 array of shape ``(rows, windows, columns)``.
        """
        at = np.arange(self.windows)[:, None] * self.step + np.arange(len(self.matrix))
        results = np.empty((len(rows), self.windows, self.matrix.shape[1]), dtype=np.int64)
        for row, out in zip(rows, results, strict=True):
            if self.combine is Combine.MAX:
                here = np.where(self.matrix.T != 0, row[at][:, None], _NONE)
                highest = here.max(axis=-1, initial=_NONE)
                out[:] = np.where(highest == _NONE, 0, highest)
            else:
                np.matmul(row[at], self.matrix, out=out)
        return results


class MatrixColumns(ArrayPart):
    """Some columns of the matrix with which dense rows are combined.

    Args:
        array: the matrix's number.
        start: the first column.
        columns: the columns.
        width: columns of the whole matrix.
    """

    tasks: ClassVar = frozenset({TaskId.VALUES})

    def __init__(self, array: int, start: int, columns: WindowedMatrix, width: int) -> None:
        super().__init__(array, start, start + columns.matrix.shape[1])
        self._columns = columns
        self._width = width
        self._weights = CheckedWeights(columns.results, self._digest)
        self._rows: dict[int, tuple[NDArray[np.int64], NDArray[np.bool_]]] = {}

    def _digest(self) -> int:
        return array_digest([self._columns.matrix])

    def clear(self) -> None:
        """Forget every row."""
        self._rows.clear()

    def perform_task(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Store a slice of a row; multiply when the row is complete."""
        inner = self._columns.numbers
        # The bound keeps a sender that never completes a row from filling the memory.
        if packet.row not in self._rows:
            if len(self._rows) == ROW_SLOTS:
                raise ProtocolError(f"row {packet.row}: more than {ROW_SLOTS} rows at once")
            self._rows[packet.row] = np.zeros(inner, np.int64), np.zeros(inner, np.bool_)
        row, there = self._rows[packet.row]
        at = packet.offset * VALUES_PER_PACKET
        here = slice(at, at + packet.count)
        if here.stop > inner or there[here].any():
            raise ProtocolError(f"row {packet.row}: values {at} to {here.stop} of {inner}")
        row[here] = np.frombuffer(packet.body, dtype=">i4", count=packet.count)
        there[here] = True
        if not there.all():
            return
        del self._rows[packet.row]
        (windows,) = self._weights.results(row[None], f"array {self.array}")
        for number, result in enumerate(windows):
            for i in range(0, len(result), WIDE_PER_PACKET):
                part = result[i : i + WIDE_PER_PACKET]
                first = number * self._width + self.start + i
                yield TaskPacket(
                    PacketType.DATA,
                    DataId.TOTALS,
                    HOME,
                    self.array,
                    first,
                    first + len(part),
                    row=packet.row,
                    body=body_of(part, ">i8"),
                )

    @property
    def status(self) -> TaskPacket:
        """The packet that tells the coordinator what this node holds."""
        return status_packet(
            self, kind=MATRIX_SHARE, slots=ROW_SLOTS, offset=0, words=self._columns.packets
        )


class GemmFlow(TaggedRows[np.int64]):
    """Rows of the first matrix in flight.

    Args:
        array: the second matrix's number.
        columns: number of its columns.
        windows: windows of a row.
    """

    def __init__(self, array: int, columns: int, windows: int = 1) -> None:
        self._columns = columns
        super().__init__(array, DataId.TOTALS, windows * columns, np.int64)

    def _tasks(self, tag: int, operand: NDArray[Any]) -> list[TaskPacket]:
        packets = []
        (row,) = operand
        for i in range(0, len(row), VALUES_PER_PACKET):
            part = row[i : i + VALUES_PER_PACKET]
            packets.append(
                TaskPacket(
                    PacketType.TASK,
                    TaskId.VALUES,
                    BY_RANGE,
                    self._array,
                    0,
                    self._columns,
                    row=tag,
                    count=len(part),
                    offset=i // VALUES_PER_PACKET,
                    body=body_of(part, ">i4"),
                    lap=True,
                )
            )
        return packets

    def _values(self, packet: TaskPacket) -> NDArray[np.int64]:
        return packet.totals[None]
