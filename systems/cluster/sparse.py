# SPDX-License-Identifier: Apache-2.0
"""Sparse kernels: tasks that carry non-zero elements, and the rows that they contribute to.

SPMV, SPGEMM and aggregation over a graph are one kernel. Row ``r`` of the result combines, over the
elements ``(r, c, v)``, ``v`` times row ``c`` of the other operand: as their sum, or as their
maximum.
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
"""Columns of a tile: rows of the other operand that a memory of 20 banks reads at once."""
LANES = NONZEROS_PER_PACKET
"""Banks of the result; the elements of one packet belong to different banks."""


class Combine(StrEnum):
    """How the rows of the other operand are combined to a row of the result."""

    SUM = "sum"
    MEAN = "mean"
    """The sum, and the number of rows in one more column, so that the mean stays exact."""
    MAX = "max"
    """The maximum of each column, whatever the elements' values; 0 without rows."""


@dataclass(frozen=True, eq=False)
class Elements:
    """Elements of a sparse matrix.

    Attributes:
        rows: int64 array of shape ``(n,)``.
        columns: int64 array of shape ``(n,)``.
        values: int64 array of shape ``(n,)``, each in -2^31..2^31-1.
        shape: shape of the matrix.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.int64]
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: Any) -> Elements:
        """Read a scipy sparse matrix or array, or a dense matrix.

        Raises:
            ClusterError: The argument is not a matrix of integers that fit 32 bits.
        """
        if hasattr(matrix, "tocoo"):
            # A COO matrix may hold an element in parts; their sum must fit 32 bits, not each part.
            summed = matrix.tocsr(copy=True)
            summed.sum_duplicates()
            elements = summed.tocoo()
            rows, columns, values, shape = elements.row, elements.col, elements.data, elements.shape
        else:
            dense = np.asarray(matrix)
            if dense.ndim != 2:
                raise ClusterError(f"expected a matrix, got an array of shape {dense.shape}")
            rows, columns = np.nonzero(dense)
            values, shape = dense[rows, columns], dense.shape
        if values.dtype.kind not in "iub":
            raise ClusterError(f"expected a matrix of integers, got {values.dtype}")
        if values.size and not -(1 << 31) <= int(values.min()) <= int(values.max()) < 1 << 31:
            raise ClusterError("an element exceeds 32 bits")
        return cls(
            np.asarray(rows, dtype=np.int64),
            np.asarray(columns, dtype=np.int64),
            np.asarray(values, dtype=np.int64),
            (int(shape[0]), int(shape[1])),
        )

    def weight(self, combine: Combine) -> int:
        """Bound a result, divided by the largest absolute value in the operand."""
        if combine is Combine.MAX or not self.rows.size:
            return 1
        sizes = np.abs(self.values) if combine is Combine.SUM else np.ones_like(self.values)
        totals = np.zeros(self.shape[0], dtype=object)  # Python integers do not overflow
        np.add.at(totals, self.rows, sizes.astype(object))
        return int(max(totals))


def spawn_order(elements: Elements) -> Iterator[NDArray[np.int64]]:
    """Group elements into packets without conflicts, as FCsN's task spawner does (Fig. 6).

    Tiles of 20 columns follow one another. Within a tile, the elements of a packet belong to rows
    that differ modulo 4, so each of the result's four banks is read and written at most once per
    packet.

    Yields:
        Indices of the elements of a packet: int64 arrays of length one to four.
    """
    # lexsort's last key is the primary one: tiles of columns first.
    order = np.lexsort((elements.columns, elements.rows // TILE, elements.columns // TILE))
    tiles = elements.columns[order] // TILE
    for tile in np.split(order, np.flatnonzero(np.diff(tiles)) + 1):
        lanes = [deque(tile[elements.rows[tile] % LANES == lane].tolist()) for lane in range(LANES)]
        while any(lanes):
            yield np.array([lane.popleft() for lane in lanes if lane], dtype=np.int64)


def nonzero_packets(elements: Elements, array: int) -> Iterator[TaskPacket]:
    """Make the tasks that carry a matrix's elements to the rows that they contribute to.

    Args:
        elements: elements of the matrix.
        array: number of the results' array.
    """
    table = np.stack([elements.rows, elements.columns, elements.values], axis=1)
    for order in spawn_order(elements) if len(table) else ():
        part = table[order]
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
    """Encode a sparse row: the number of elements, their columns, their values."""
    return np.concatenate([[len(columns)], columns, values]).astype(np.int64)


def sparse_row(payload: Payload) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Decode the columns and values of a sparse row.

    Raises:
        ProtocolError: The payload is not a sparse row.
    """
    count = int(payload[0]) if len(payload) else -1
    if count < 0 or len(payload) != 1 + 2 * count:
        raise ProtocolError("a payload is not a sparse row")
    return payload[1 : 1 + count], payload[1 + count :]


class CombinedRows(RowReader):
    """Rows of a sparse kernel's result.

    Args:
        array: number of the results' array.
        source: the rows of the other operand on this node.
        share: the node and the rows of the result that it holds.
        width: number of columns of the other operand.
        combine: how rows are combined.
        sparse: whether rows of the operand and of the result are sparse.
        bound: the largest absolute value of a result.

    Raises:
        ClusterError: A sum may overflow 64 bits.
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
        """Forget the results, because the coordinator has them."""
        super().forget()
        self._totals[:] = 0
        self._counts[:] = 0

    def computed(self, number: int) -> bool:
        """Whether the results are final: no task waits."""
        # Links keep order, so every task of the job has arrived before the request for results.
        return not self.frozen

    def _elements(self, packet: TaskPacket) -> NDArray[np.int64]:
        if packet.count % 3 or not packet.count:
            raise ProtocolError(f"a task of {packet.count} words has no whole elements")
        table = np.frombuffer(packet.body, dtype=">u4", count=packet.count).reshape(-1, 3)
        rows = table[:, 0].astype(np.int64)
        # A split packet still carries all elements; each node takes those of its own rows.
        return table[(rows >= packet.start) & (rows < packet.end)].astype(np.int64)

    def needs(self, packet: TaskPacket) -> Iterable[int]:
        """Return the rows of the other operand, which are the columns of the elements."""
        return [int(column) for column in self._elements(packet)[:, 1]]

    def compute(self, packet: TaskPacket) -> None:
        """Combine the elements; those of a packet are in different rows."""
        table = self._elements(packet)
        rows = table[:, 0] - self.start
        if len(set(rows.tolist())) != len(rows):
            raise ProtocolError("two elements of a task are in the same row")
        values = table[:, 2].astype(np.uint32).view(np.int32).astype(np.int64)
        for row, column, value in zip(rows, table[:, 1].tolist(), values, strict=True):
            self._add(int(row), self.source.row(column), value)
        self._counts[rows] += 1

    def _add(self, row: int, payload: Payload | None, value: np.int64) -> None:
        assert payload is not None  # noqa: S101 - a task waits for every row of needs()
        total = self._totals[row]
        if self._sparse:
            columns, elements = sparse_row(payload)
            total[columns] += value * elements
        elif len(payload) != self._width:
            raise ProtocolError(f"a row of {len(payload)} numbers, not {self._width}")
        elif self._combine is Combine.MAX:
            # The first row replaces the initial 0, which would win over negative numbers.
            total[:] = np.maximum(total, payload) if self._counts[row] else payload
        elif self._combine is Combine.MEAN:
            total += payload
        else:
            total += value * payload

    def payload(self, number: int) -> Payload:
        """Return a row of the result."""
        row = number - self.start
        total: Payload = self._totals[row]
        if self._sparse:
            # Elements that cancel are left out, as in a product of scipy after eliminate_zeros().
            columns = np.flatnonzero(total)
            return sparse_payload(columns, total[columns])
        if self._combine is Combine.MEAN:
            return np.append(total, self._counts[row])
        return total
