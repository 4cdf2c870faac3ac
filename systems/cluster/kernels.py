# SPDX-License-Identifier: Apache-2.0
"""Integer kernels on a ring: what the nodes hold, and the jobs that they run.

A job writes its operands to the nodes that own the rows, sends tasks, and reads the result.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ClusterError
from n3ic.systems.cluster.convolution import ConvolvedRows, Filters, convolve_packet
from n3ic.systems.cluster.coordinator import NodeShare, RingFlow
from n3ic.systems.cluster.dense import MATRIX_SHARE, MatrixColumns, WindowedMatrix
from n3ic.systems.cluster.distributed_rows import (
    INT64_BOUND,
    MAX_PAYLOAD,
    DistributedRows,
    Payload,
    PendingRows,
    answer,
    request,
    row_shares,
)
from n3ic.systems.cluster.node import ArrayPart
from n3ic.systems.cluster.placement import Share
from n3ic.systems.cluster.protocol import HOME, ProtocolError, TaskPacket
from n3ic.systems.cluster.sparse import (
    Combine,
    CombinedRows,
    Elements,
    nonzero_packets,
    sparse_payload,
    sparse_row,
)

OPERAND, RESULT = 0, 1
_INT32_BOUND = 1 << 31


@dataclass(frozen=True, eq=False)
class KernelJob:
    """A job for a ring.

    Attributes:
        packets: operands and tasks.
        rows: number of rows of the result.
        finish: function that makes the result from the payloads of its rows.
    """

    packets: Sequence[TaskPacket]
    rows: int
    finish: Callable[[list[Payload]], Any]


class Kernel(ABC):
    """A kernel whose operand and result are distributed by rows."""

    @abstractmethod
    def arrays_of(self, node: int, nodes: int) -> list[ArrayPart]:
        """Make a node's rows of the operand and of the result."""

    @abstractmethod
    def job(self, nodes: int, *operands: Any) -> KernelJob:
        """Make a job of the kernel for a ring.

        Raises:
            ClusterError: The operands do not fit the kernel, or a sum may overflow 64 bits.
        """

    @property
    def digest(self) -> str:
        """SHA-256 of the kernel's description."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def written(rows: Sequence[Payload], nodes: int) -> Iterator[TaskPacket]:
    """Make the data packets that write an operand's rows to the nodes that own them."""
    for share in row_shares(len(rows), nodes):
        for number in range(share.start, share.end):
            # The number of a slice travels in the 12 bits of `offset`.
            if len(rows[number]) > MAX_PAYLOAD:
                raise ClusterError(f"row {number}: more than {MAX_PAYLOAD:,} numbers")
            yield from answer(OPERAND, number, rows[number], share.node)


def integers(values: ArrayLike, what: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Check that an operand fits 32 bits, and convert it to int64.

    Raises:
        ClusterError: The array has the wrong shape, or a number exceeds 32 bits.
    """
    array = np.asarray(values)
    if array.shape != shape or array.dtype.kind not in "iub":
        raise ClusterError(
            f"{what}: expected integers of shape {shape}, got {array.dtype} {array.shape}"
        )
    if array.size and not -_INT32_BOUND <= int(array.min()) <= int(array.max()) < _INT32_BOUND:
        raise ClusterError(f"{what}: a number exceeds 32 bits")
    return array.astype(np.int64)


@dataclass(frozen=True)
class SparseKernel(Kernel):
    """SPMV, SPGEMM and aggregation over a graph: a sparse matrix times rows of integers.

    Attributes:
        shape: shape of the sparse matrix, which the tasks carry.
        width: columns of the other operand, whose rows are distributed.
        combine: ``sum`` for products; ``mean`` adds a column with the counts to the sums.
        sparse: whether the other operand and the result are sparse (SPGEMM).
    """

    shape: tuple[int, int]
    width: int = 1
    combine: Combine = Combine.SUM
    sparse: bool = False

    def __post_init__(self) -> None:
        if self.sparse and self.combine is not Combine.SUM:
            raise ClusterError("rows of a sparse operand can only be summed: expected combine=sum")

    def arrays_of(self, node: int, nodes: int) -> list[ArrayPart]:
        """Make what a node holds."""
        operand, result = (row_shares(rows, nodes)[node - 1] for rows in self.shape[::-1])
        source = DistributedRows(OPERAND, operand, _INT32_BOUND)
        combined = CombinedRows(
            RESULT,
            source,
            result,
            width=self.width,
            combine=self.combine,
            bound=INT64_BOUND - 1,  # job() checks it for each matrix
            sparse=self.sparse,
        )
        return [source, combined]

    def job(self, nodes: int, *operands: Any) -> KernelJob:
        """Make a product or an aggregation.

        Args:
            nodes: number of nodes of the ring.
            *operands: the sparse matrix (scipy or dense) and the other operand: integers of shape
                ``(columns of the matrix, width)``, or a sparse matrix of that shape.
        """
        matrix, other = operands
        elements = Elements.of(matrix)
        if elements.shape != self.shape:
            raise ClusterError(f"the matrix has shape {elements.shape}, not {self.shape}")
        shape = (self.shape[1], self.width)
        rows = _sparse_rows(other, shape) if self.sparse else list(integers(other, "rows", shape))
        largest = elements.weight(self.combine) * _INT32_BOUND
        if largest >= INT64_BOUND:
            raise ClusterError(
                f"a sum may reach {largest:,}, beyond 64 bits: expected rows whose absolute values "
                "add up to less than 2^32"
            )
        packets = [*written(rows, nodes), *nonzero_packets(elements, RESULT)]
        return KernelJob(packets, self.shape[0], self._dense if self.sparse else _stacked)

    def _dense(self, payloads: list[Payload]) -> NDArray[np.int64]:
        out = np.zeros((len(payloads), self.width), dtype=np.int64)
        for row, payload in zip(out, payloads, strict=True):
            columns, values = sparse_row(payload)
            row[columns] = values
        return out


def _sparse_rows(matrix: Any, shape: tuple[int, int]) -> list[Payload]:
    elements = Elements.of(matrix)
    if elements.shape != shape:
        raise ClusterError(f"the second matrix has shape {elements.shape}, not {shape}")
    # Stable, so that columns stay in their order within a row.
    order = np.argsort(elements.rows, kind="stable")
    bounds = np.searchsorted(elements.rows[order], np.arange(shape[0] + 1))
    return [
        sparse_payload(elements.columns[order[a:b]], elements.values[order[a:b]])
        for a, b in pairwise(bounds)
    ]


def _stacked(payloads: list[Payload]) -> NDArray[np.int64]:
    return np.stack(payloads)


@dataclass(frozen=True, eq=False)
class ConvolutionKernel(Kernel):
    """2-D convolution: rows of the image are distributed, halos are fetched.

    Attributes:
        filters: the weights and the shape of the image.
    """

    filters: Filters

    def arrays_of(self, node: int, nodes: int) -> list[ArrayPart]:
        """Make what a node holds."""
        source = DistributedRows(
            OPERAND, row_shares(self.filters.shape[0], nodes)[node - 1], _INT32_BOUND
        )
        share = row_shares(self.filters.out_rows, nodes)[node - 1]
        return [source, ConvolvedRows(RESULT, source, share, self.filters)]

    def job(self, nodes: int, *operands: Any) -> KernelJob:
        """Make a convolution.

        Args:
            nodes: number of nodes of the ring.
            *operands: the image, integers of shape ``(rows, columns, channels)``; bits for a binary
                convolution. The result has shape ``(rows, columns, filters)``.
        """
        image = integers(operands[0], "image", self.filters.shape)
        if self.filters.binary and not np.isin(image, (0, 1)).all():
            raise ClusterError("the image of a binary convolution: expected bits, 0 or 1")
        rows = [self.filters.image_payload(row) for row in image]
        out = self.filters.out_rows
        packets = [*written(rows, nodes), convolve_packet(RESULT, out)]
        shape = (out, self.filters.out_columns, len(self.filters.weights))
        return KernelJob(packets, out, lambda payloads: np.stack(payloads).reshape(shape))

    @property
    def digest(self) -> str:
        """SHA-256 of the filters and their geometry."""
        f = self.filters
        text = repr((f.weights.shape, f.shape, f.stride, f.padding, f.binary)).encode()
        return hashlib.sha256(text + f.weights.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class GemmKernel:
    """Integer dense GEMM: columns of the matrix are distributed, tasks carry rows of the other.

    A card takes it, and the kernels that are made of it (``matrices.py``).

    Attributes:
        matrix: integers of shape ``(inner, columns)``; the absolute values of each column add up to
            less than 2^32.
    """

    matrix: NDArray[Any]
    array: ClassVar[int] = OPERAND

    @cached_property
    def whole_matrix(self) -> WindowedMatrix:
        """What the nodes hold together.

        Raises:
            ClusterError: The matrix does not hold integers, or a sum may overflow 64 bits.
        """
        return WindowedMatrix(self.matrix)

    def share(self, node: int, nodes: int) -> Share:
        """Return the columns that a node holds."""
        return row_shares(self.whole_matrix.matrix.shape[1], nodes)[node - 1]

    def arrays_of(self, node: int, nodes: int) -> list[ArrayPart]:
        """Make what a node holds."""
        share, width = self.share(node, nodes), self.whole_matrix.matrix.shape[1]
        if share.start == share.end:
            return []
        columns = self.whole_matrix.columns(share.start, share.end)
        return [MatrixColumns(OPERAND, share.start, columns, width)]

    def expected_shares(self, nodes: int) -> set[NodeShare]:
        """Return what the nodes must report."""
        shares = (self.share(node, nodes) for node in range(1, nodes + 1))
        return {
            NodeShare(s.node, MATRIX_SHARE, OPERAND, s.start, s.end, 0, self.whole_matrix.packets)
            for s in shares
            if s.start < s.end
        }

    def rows(self, operand: ArrayLike) -> NDArray[np.int64]:
        """Make the rows that travel: int64 array of shape ``(rows, numbers)``.

        Args:
            operand: integers of shape ``(rows, inner)``.

        Raises:
            ClusterError: The operand does not fit the kernel.
        """
        rows = np.asarray(operand)
        return integers(rows, "the first matrix", (*rows.shape[:1], self.whole_matrix.numbers))

    def result(self, results: NDArray[np.int64]) -> NDArray[np.int64]:
        """Make the result of what the rows give, of shape ``(rows, windows * columns)``."""
        return results

    @property
    def digest(self) -> str:
        """SHA-256 of what the nodes hold."""
        whole = self.whole_matrix
        text = f"{whole.matrix.shape} {whole.windows} {whole.step} {whole.combine}".encode()
        return hashlib.sha256(text + whole.matrix.tobytes()).hexdigest()


class JobFlow(RingFlow):
    """Jobs that run one after another, because their operands use the same arrays."""

    def __init__(self) -> None:
        self._queue: deque[tuple[KernelJob, Callable[[Any], None]]] = deque()
        self._job: KernelJob | None = None
        self._on_result: Callable[[Any], None] = lambda _: None
        self._arriving = PendingRows()
        self._rows: dict[int, Payload] = {}

    def submit(self, job: KernelJob, on_result: Callable[[Any], None]) -> None:
        """Queue a job; ``on_result`` is called with its result."""
        self._queue.append((job, on_result))

    @property
    def idle(self) -> bool:
        """Whether no job is queued or running."""
        return not self._queue and self._job is None

    def admit(self) -> list[TaskPacket]:
        """Return the packets of the next job: operands, tasks, and the request for the result."""
        if self._job is not None or not self._queue:
            return []
        self._job, self._on_result = self._queue.popleft()
        self._rows.clear()
        # Links keep order, so the operands reach their nodes before tasks and requests read them.
        return [*self._job.packets, request(RESULT, 0, self._job.rows, HOME)]

    def accept_data(self, packet: TaskPacket) -> list[TaskPacket]:
        """Take a slice of the result; after the last slice, return the packets of the next job."""
        job = self._job
        # A late duplicate of an earlier job would otherwise be taken for a row of this one.
        if job is None or packet.array != RESULT or packet.start in self._rows:
            raise ProtocolError(f"unrequested row {packet.start} of array {packet.array}")
        payload = self._arriving.add_slice(packet)
        if payload is None:
            return []
        self._rows[packet.start] = payload
        if len(self._rows) < job.rows:
            return []
        self._job = None
        self._on_result(job.finish([self._rows[i] for i in range(job.rows)]))
        return self.admit()
