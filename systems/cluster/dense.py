# SPDX-License-Identifier: Apache-2.0
"""Integer dense GEMM: nodes hold columns of the second matrix, tasks carry rows of the first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.systems.cluster.coordinator import TaggedRows
from n3ic.systems.cluster.node import ROW_SLOTS, ArrayPart
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

MAX_INNER = MAX_OFFSET * VALUES_PER_PACKET
_VALUE_BOUND = 1 << 31


class MatrixColumns(ArrayPart):
    """Some columns of the matrix by which dense rows are multiplied.

    Args:
        array: the matrix's number.
        start: the first column.
        matrix: integer array of shape ``(inner, columns)``.

    Raises:
        ClusterError: The matrix does not hold integers, or a sum may overflow 64 bits.
    """

    tasks: ClassVar = frozenset({TaskId.VALUES})

    def __init__(self, array: int, start: int, matrix: NDArray[Any]) -> None:
        if matrix.ndim != 2 or matrix.dtype.kind not in "iub" or len(matrix) > MAX_INNER:
            raise ClusterError(f"expected a matrix of integers with at most {MAX_INNER:,} rows")
        super().__init__(array, start, start + matrix.shape[1])
        # |row @ column| <= 2^31 * sum of |column|, which tolist() adds in unbounded integers.
        largest = max((sum(map(abs, c)) for c in matrix.T.tolist()), default=0)
        if largest * _VALUE_BOUND >= 1 << 63:
            raise ClusterError(
                f"array {array}: the absolute values of a column add up to {largest:,}; expected "
                "less than 2^32, so that sums of products with 32-bit numbers fit 64 bits"
            )
        self._matrix = matrix.astype(np.int64)
        self._rows: dict[int, tuple[NDArray[np.int64], NDArray[np.bool_]]] = {}

    def clear(self) -> None:
        """Forget every row."""
        self._rows.clear()

    def perform_task(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Store a slice of a row; multiply when the row is complete."""
        inner = len(self._matrix)
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
        result = row @ self._matrix
        for i in range(0, len(result), WIDE_PER_PACKET):
            part = result[i : i + WIDE_PER_PACKET]
            first = self.start + i
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


class GemmFlow(TaggedRows[np.int64]):
    """Rows of the first matrix in flight.

    Args:
        array: the second matrix's number.
        columns: number of its columns.
    """

    def __init__(self, array: int, columns: int) -> None:
        super().__init__(array, DataId.TOTALS, columns, np.int64)

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
                    self._width,
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
