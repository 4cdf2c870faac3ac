# SPDX-License-Identifier: Apache-2.0
"""Arrays that are distributed by rows and read by RDMA.

The payload of a row is a vector of int64: at most 4,096 slices of six numbers. A task that needs
rows of another node is frozen. It sends an RDMA task to the owner of the rows, which answers with
data packets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.systems.cluster.node import ArrayPart
from n3ic.systems.cluster.placement import Share
from n3ic.systems.cluster.protocol import (
    BY_RANGE,
    HOME,
    MAX_NODES,
    MAX_OFFSET,
    WIDE_PER_PACKET,
    DataId,
    PacketType,
    ProtocolError,
    TaskPacket,
    body_of,
)

Payload = NDArray[np.int64]
MAX_PAYLOAD = MAX_OFFSET * WIDE_PER_PACKET
INT64_BOUND = 1 << 63


def row_shares(rows: int, nodes: int) -> tuple[Share, ...]:
    """Divide rows evenly over the nodes of a ring; with fewer rows than nodes, some get none."""
    bounds = [rows * i // nodes for i in range(nodes + 1)]
    return tuple(Share(i + 1, a, b) for i, (a, b) in enumerate(pairwise(bounds)))


def request(array: int, start: int, end: int, node: int) -> TaskPacket:
    """Make the RDMA task that asks for rows.

    Args:
        array: number of the array.
        start: the first row.
        end: one more than the last row.
        node: number of the node that asks.
    """
    body = node.to_bytes(4, "big").ljust(48, b"\0")
    lap = node == HOME
    return TaskPacket(PacketType.RDMA, DataId.WIDE, BY_RANGE, array, start, end, body=body, lap=lap)


def requester(packet: TaskPacket) -> int:
    """Return the node that sent an RDMA task.

    Raises:
        ProtocolError: The task requests no rows, or does not name a node.
    """
    node = int.from_bytes(packet.body[:4], "big")
    if packet.identifier is not DataId.WIDE or node > MAX_NODES:
        raise ProtocolError(f"an RDMA task of array {packet.array} asks for no rows")
    return node


def answer(array: int, row: int, payload: Payload, node: int) -> Iterator[TaskPacket]:
    """Make the data packets that bring a row to a node.

    ``row`` of a packet is the number of slices, ``offset`` the slice, ``count`` its length.
    """
    # An empty row is one empty slice, because the reader waits for at least one packet.
    slices = max(1, -(-len(payload) // WIDE_PER_PACKET))
    for i in range(slices):
        part = payload[i * WIDE_PER_PACKET : (i + 1) * WIDE_PER_PACKET]
        yield TaskPacket(
            PacketType.DATA,
            DataId.WIDE,
            node,
            array,
            row,
            row + 1,
            row=slices,
            count=len(part),
            offset=i,
            body=body_of(part, ">i8"),
        )


class PendingRows:
    """Rows of which some slices have arrived."""

    def __init__(self) -> None:
        self._slices: dict[tuple[int, int], dict[int, Payload]] = {}

    def clear(self) -> None:
        """Forget every slice."""
        self._slices.clear()

    def add_slice(self, packet: TaskPacket) -> Payload | None:
        """Store a slice; return the row's payload once it is complete, else None.

        Raises:
            ProtocolError: The packet is not a slice, or the slice has arrived before.
        """
        if (
            packet.identifier is not DataId.WIDE
            or packet.end != packet.start + 1
            or packet.count > WIDE_PER_PACKET
            or packet.offset >= packet.row
        ):
            raise ProtocolError(f"data of array {packet.array} is not a slice of a row")
        key = packet.start, packet.row
        slices = self._slices.setdefault(key, {})
        if packet.offset in slices:
            raise ProtocolError(f"a slice of row {packet.start} arrived twice")
        numbers = np.frombuffer(packet.body, dtype=">i8", count=packet.count)
        slices[packet.offset] = numbers.astype(np.int64)
        if len(slices) < packet.row:
            return None
        del self._slices[key]
        return np.concatenate([slices[i] for i in range(packet.row)])


class DistributedRows(ArrayPart):
    """The rows of an array on this node: its own, and those it fetched from other nodes.

    A node that reads an array has one of these even if it owns none of the rows.

    Args:
        array: number of the array.
        share: the node and the rows that it owns; the coordinator writes them.
        bound: the largest absolute value in the whole array.
    """

    tasks: ClassVar = frozenset()
    readable: ClassVar = True

    def __init__(self, array: int, share: Share, bound: int) -> None:
        super().__init__(array, share.start, share.end)
        self.bound = bound
        self.node = share.node
        self.readers: list[RowReader] = []
        self._own: dict[int, Payload] = {}
        self._arriving = PendingRows()
        self._requested: set[int] = set()
        self._cached: dict[int, Payload] = {}

    def clear(self) -> None:
        """Forget everything at the start of a session."""
        self.forget()
        self._own.clear()
        self._arriving.clear()

    def forget(self) -> None:
        """Forget the rows of other nodes, which may change between jobs."""
        self._requested.clear()
        self._cached.clear()

    def row(self, number: int) -> Payload | None:
        """Return a row's payload; None if the row is not on this node."""
        if self.start <= number < self.end:
            return self._own.get(number)
        return self._cached.get(number)

    def fetch(self, numbers: Iterable[int]) -> list[TaskPacket]:
        """Make RDMA tasks for rows of other nodes that have not been requested yet."""
        new = sorted(n for n in set(numbers) - self._requested if not self.start <= n < self.end)
        self._requested.update(new)
        # One request per run of consecutive rows.
        runs = np.split(new, np.flatnonzero(np.diff(new) != 1) + 1) if new else []
        return [request(self.array, int(r[0]), int(r[-1]) + 1, self.node) for r in runs]

    def perform_task(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Refuse every task: these rows are only read and written."""
        raise ProtocolError(f"array {self.array} takes no task")

    def answer_read(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Send rows to the node that asks."""
        for number in range(packet.start, packet.end):
            payload = self._own.get(number)
            if payload is None:
                raise ProtocolError(f"row {number} of array {self.array} was never written")
            yield from answer(self.array, number, payload, requester(packet))

    def arrived(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Store an own or a requested row, and thaw the tasks that wait for it."""
        number = packet.start
        is_own = self.start <= number < self.end
        # Unsolicited rows are refused, so a faulty node cannot overwrite an operand.
        if not is_own and (number not in self._requested or number in self._cached):
            raise ProtocolError(f"unrequested row {number} of array {self.array}")
        payload = self._arriving.add_slice(packet)
        if payload is None:
            return
        (self._own if is_own else self._cached)[number] = payload
        yield from self.thaw(number)

    def thaw(self, number: int) -> Iterable[TaskPacket]:
        """Run the tasks that waited for a row."""
        for reader in self.readers:
            yield from reader.thaw(number)


@dataclass(eq=False)
class BlockedTask:
    """A task that waits for rows.

    Attributes:
        packet: the task.
        missing: rows that it needs and that have not arrived.
    """

    packet: TaskPacket
    missing: set[int]


class RowReader(DistributedRows):
    """Rows that tasks compute from the rows of another array.

    Args:
        array: number of the results' array.
        source: the rows of the array that is read, on this node.
        share: the node and the rows that it computes.
        bound: the largest absolute value of a result.
    """

    def __init__(self, array: int, source: DistributedRows, share: Share, bound: int) -> None:
        if bound >= INT64_BOUND:
            raise ClusterError(
                f"array {array}: a sum may reach {bound:,}, beyond 64 bits; use smaller numbers"
            )
        super().__init__(array, share, bound)
        self.source = source
        source.readers.append(self)
        self._frozen: dict[int, list[BlockedTask]] = {}
        self._waiting = 0
        self._reads: list[TaskPacket] = []

    def clear(self) -> None:
        """Forget everything at the start of a session."""
        super().clear()
        self._frozen.clear()
        self._waiting = 0
        self._reads.clear()

    def needs(self, packet: TaskPacket) -> Iterable[int]:
        """Return the rows of the source that a task reads."""
        raise NotImplementedError

    def compute(self, packet: TaskPacket) -> None:
        """Run a task whose rows have all arrived."""
        raise NotImplementedError

    def computed(self, number: int) -> bool:
        """Whether a result is final."""
        raise NotImplementedError

    def payload(self, number: int) -> Payload:
        """Return a final result."""
        raise NotImplementedError

    def row(self, number: int) -> Payload | None:
        """Return a row's payload; None if the row is not on this node."""
        if self.start <= number < self.end:
            return self.payload(number) if self.computed(number) else None
        return super().row(number)

    def perform_task(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Run a task, or freeze it and request the missing rows."""
        missing = {n for n in self.needs(packet) if self.source.row(n) is None}
        if not missing:
            self.compute(packet)
            yield from self._released()
            return
        # The lists of all missing rows share one object; the last row to arrive empties its set.
        frozen = BlockedTask(packet, missing)
        self._waiting += 1
        for number in missing:
            self._frozen.setdefault(number, []).append(frozen)
        yield from self.source.fetch(tuple(missing))

    def thaw(self, number: int) -> Iterable[TaskPacket]:
        """Run the tasks for which this row of the source was the last one missing."""
        ready = False
        for task in self._frozen.pop(number, []):
            task.missing.discard(number)
            if not task.missing:
                self._waiting -= 1
                self.compute(task.packet)
                ready = True
        if ready:
            yield from self._released()

    def answer_read(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Send results to the node that asks, once they are final."""
        requester(packet)
        self._reads.append(packet)
        yield from self._released()

    def _released(self) -> Iterator[TaskPacket]:
        """Answer requests whose results are now final, and thaw local tasks that read them."""
        waiting, self._reads = self._reads, []
        for packet in waiting:
            numbers = range(packet.start, packet.end)
            if not all(self.computed(n) for n in numbers):
                self._reads.append(packet)
                continue
            for n in numbers:
                yield from answer(self.array, n, self.payload(n), requester(packet))
            if requester(packet) == HOME:  # the job is done, and the next one has other operands
                self.forget()
                self.source.forget()
        for reader in self.readers:
            # Results here may be the source of a second kernel, as in a network of two layers.
            for n in reader.waits():
                if self.row(n) is not None:
                    yield from reader.thaw(n)

    def waits(self) -> list[int]:
        """Return the rows of the source that tasks wait for."""
        return list(self._frozen)

    @property
    def frozen(self) -> bool:
        """Whether a task waits."""
        return self._waiting > 0
