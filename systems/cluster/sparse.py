# SPDX-License-Identifier: Apache-2.0
"""Sparse kernels: tasks that carry non-zero elements, and the rows that they add up to.

SPMV, SPGEMM and aggregation over a graph are one kernel: row ``r`` of the result is the sum over
the elements ``(r, c, v)`` of ``v`` times row ``c`` of the other operand, or their largest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.systems.cluster.distributed_rows import DistributedRows, Payload, RowReader
from n3ic.systems.cluster.placement import Share
from n3ic.systems.cluster.protocol import (
    BY_RANGE,
    NONZEROS_PER_PACKET,
    PacketType,
    ProtocolError,
    TaskId,
    TaskPacket,
    body_of,
)

TILE = 20
"""Columns of a tile: rows of the other operand that a memory of as many banks reads at once."""
LANES = NONZEROS_PER_PACKET
"""Banks of the result: elements of one packet are in different ones."""


class Combine(StrEnum):
    """How the rows that a result is made of are combined."""

    SUM = "sum"
    MEAN = "mean"
    """Their sum, and their number as one more column: a quotient stays a pair."""
    MAX = "max"
    """The largest of each column; elements' values do not count. 0 where there is no row."""


@dataclass(frozen=True, eq=False)
class Elements:
    """Elements of a sparse matrix.

    Attributes:
        rows: int64 array of shape ``(n,)``.
        columns: int64 array of shape ``(n,)``.
        values: int64 array of shape ``(n,)``, each in -2^31..2^31-1.
        shape: of the matrix.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.int64]
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: Any) -> Elements:
        """Of a scipy sparse matrix or array, or of a dense one.

        Raises:
            ClusterError: the argument is not a matrix of integers that fit 32 bits.
        """
        if hasattr(matrix, "tocoo"):
            summed = matrix.tocsr(copy=True)
            summed.sum_duplicates()
            found = summed.tocoo()
            rows, columns, values, shape = found.row, found.col, found.data, found.shape
        else:
            dense = np.asarray(matrix)
            if dense.ndim != 2:
                raise ClusterError(f"a matrix expected, got an array of shape {dense.shape}")
            rows, columns = np.nonzero(dense)
            values, shape = dense[rows, columns], dense.shape
        if values.dtype.kind not in "iub":
            raise ClusterError(f"a matrix of integers expected, got {values.dtype}")
        if values.size and not -(1 << 31) <= int(values.min()) <= int(values.max()) < 1 << 31:
            raise ClusterError("an element is beyond 32 bits")
        return cls(
            np.asarray(rows, dtype=np.int64),
            np.asarray(columns, dtype=np.int64),
            np.asarray(values, dtype=np.int64),
            (int(shape[0]), int(shape[1])),
        )

    def weight(self, combine: Combine) -> int:
        """How many times larger than an operand's largest element a result may be."""
        if combine is Combine.MAX or not self.rows.size:
            return 1
        sizes = np.abs(self.values) if combine is Combine.SUM else np.ones_like(self.values)
        totals = np.zeros(self.shape[0], dtype=object)  # Python integers: no bound of their own
        np.add.at(totals, self.rows, sizes.astype(object))
        return int(max(totals))


def spawn_order(elements: Elements) -> Iterator[NDArray[np.int64]]:
    """Group elements into packets without conflicts, as FCsN's task spawner does (Fig. 6).

    Tiles of 20 columns follow each other. Within a tile, the elements of a packet belong to rows
    that differ modulo 4, so that a result in four banks is read and written once per packet.

    Yields:
        Indices of the elements of a packet: int64 arrays of one to four.
    """
    # lexsort's last key is the primary one: tiles of columns first.
    order = np.lexsort((elements.columns, elements.rows // TILE, elements.columns // TILE))
    tiles = elements.columns[order] // TILE
    for tile in np.split(order, np.flatnonzero(np.diff(tiles)) + 1):
        lanes = [deque(tile[elements.rows[tile] % LANES == lane].tolist()) for lane in range(LANES)]
        while any(lanes):
            yield np.array([lane.popleft() for lane in lanes if lane], dtype=np.int64)


def nonzero_packets(elements: Elements, array: int) -> Iterator[TaskPacket]:
    """The tasks that take a matrix's elements to the rows that they add to.

    Args:
        elements: of the matrix.
        array: the results' array.
    """
    table = np.stack([elements.rows, elements.columns, elements.values], axis=1)
    for chosen in spawn_order(elements) if len(table) else ():
        part = table[chosen]
        yield TaskPacket(
            PacketType.TASK,
            TaskId.NONZEROS,
            BY_RANGE,
            array,
            int(part[:, 0].min()),
            int(part[:, 0].max()) + 1,
            count=part.size,
            body=body_of(part.ravel() & 0xFFFFFFFF, ">u4"),
            lap=True,
        )


def sparse_payload(columns: NDArray[np.int64], values: NDArray[np.int64]) -> Payload:
    """A sparse row as a payload: the number of elements, their columns, their values."""
    return np.concatenate([[len(columns)], columns, values]).astype(np.int64)


def sparse_row(payload: Payload) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Columns and values of a sparse row's payload.

    Raises:
        ProtocolError: the payload is not a sparse row.
    """
    count = int(payload[0]) if len(payload) else -1
    if count < 0 or len(payload) != 1 + 2 * count:
        raise ProtocolError("a payload is no sparse row")
    return payload[1 : 1 + count], payload[1 + count :]


class CombinedRows(RowReader):
    """Rows of a sparse kernel's result.

    Args:
        array: the results' array.
        source: what this node holds of the other operand.
        share: the node, and the result's rows that it holds.
        width: columns of the other operand.
        combine: how rows are combined.
        sparse: rows of the operand and of the result are sparse.
        bound: the largest size of any result.

    Raises:
        ClusterError: a sum may overflow 64 bits.
    """

    tasks: ClassVar = frozenset({TaskId.NONZEROS})

    def __init__(
        self,
        array: int,
        source: DistributedRows,
        share: Share,
        *,
        width: int,
        combine: Combine,
        bound: int,
        sparse: bool = False,
    ) -> None:
        super().__init__(array, source, share, bound)
        self._width = width
        self._combine = combine
        self._sparse = sparse
        self._totals = np.zeros((share.end - share.start, width), dtype=np.int64)
        self._counts = np.zeros(share.end - share.start, dtype=np.int64)

    def forget(self) -> None:
        """Begin anew: the results are home."""
        super().forget()
        self._totals[:] = 0
        self._counts[:] = 0

    def computed(self, number: int) -> bool:
        """No task waits; those that will come, come behind whoever asks."""
        return not self.frozen

    def _elements(self, packet: TaskPacket) -> NDArray[np.int64]:
        if packet.count % 3 or not packet.count:
            raise ProtocolError(f"a task of {packet.count} words has no whole elements")
        table = np.frombuffer(packet.body, dtype=">u4", count=packet.count).reshape(-1, 3)
        rows = table[:, 0].astype(np.int64)
        return table[(rows >= packet.start) & (rows < packet.end)].astype(np.int64)

    def needs(self, packet: TaskPacket) -> Iterable[int]:
        """Rows of the other operand: the columns of the elements."""
        return [int(column) for column in self._elements(packet)[:, 1]]

    def compute(self, packet: TaskPacket) -> None:
        """Combine; no two elements of a packet are of one row, so nothing is written twice."""
        table = self._elements(packet)
        rows = table[:, 0] - self.start
        if len(set(rows.tolist())) != len(rows):
            raise ProtocolError("two elements of a task are of one row")
        values = table[:, 2].astype(np.uint32).view(np.int32).astype(np.int64)
        for row, column, value in zip(rows, table[:, 1].tolist(), values, strict=True):
            self._add(int(row), self.source.row(column), value)
        self._counts[rows] += 1

    def _add(self, row: int, payload: Payload | None, value: np.int64) -> None:
        assert payload is not None  # noqa: S101 - needs() says what a task waits for
        total = self._totals[row]
        if self._sparse:
            columns, elements = sparse_row(payload)
            total[columns] += value * elements
        elif len(payload) != self._width:
            raise ProtocolError(f"a row of {len(payload)} numbers, not {self._width}")
        elif self._combine is Combine.MAX:
            total[:] = np.maximum(total, payload) if self._counts[row] else payload
        elif self._combine is Combine.MEAN:
            total += payload
        else:
            total += value * payload

    def payload(self, number: int) -> Payload:
        """A result's row."""
        row = number - self.start
        total: Payload = self._totals[row]
        if self._sparse:
            columns = np.flatnonzero(total)
            return sparse_payload(columns, total[columns])
        if self._combine is Combine.MEAN:
            return np.append(total, self._counts[row])
        return total
