# SPDX-License-Identifier: Apache-2.0
"""Handlers of a node, without a network: packets in, packets for the successor out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import ClassVar

from n3ic.systems.cluster.memory import TileMemory
from n3ic.systems.cluster.protocol import (
    BODY_BYTES,
    BY_RANGE,
    HOME,
    ControlId,
    PacketType,
    ProtocolError,
    TaskPacket,
    Tile,
)

ROW_SLOTS = 64
"""Rows that a node of this module has room for at once."""


class ArrayPart(ABC):
    """A node's part of one distributed array, and the tasks that it performs on it.

    Attributes:
        array: number of the array.
        start: first element held.
        end: one past the last element held.
        memory: memory that the nodes share; None if packets carry the numbers.
        tasks: identifiers of the tasks that it accepts.
        readable: whether it answers RDMA tasks.
    """

    memory: TileMemory | None = None
    tasks: ClassVar[frozenset[IntEnum]]
    readable: ClassVar[bool] = False

    def __init__(self, array: int, start: int, end: int) -> None:
        self.array = array
        self.start = start
        self.end = end

    @abstractmethod
    def perform_task(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Perform a task whose range is held, or keep it frozen until that is possible.

        Returns:
            New packets, for any node.

        Raises:
            ProtocolError: the task does not belong to this array.
        """

    @abstractmethod
    def clear(self) -> None:
        """Forget every row at the start of a session."""

    def answer_read(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Answer an RDMA task whose range is held, now or after the tasks before it.

        Raises:
            ProtocolError: the array is not readable.
        """
        raise ProtocolError(f"array {self.array} is not readable")

    def arrived(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Accept data that an RDMA task of this array requested.

        Raises:
            ProtocolError: the data was not requested.
        """
        raise ProtocolError(f"array {self.array} did not ask for data")

    @property
    def status(self) -> TaskPacket | None:
        """The ``STATUS`` that describes this part, without the node's own fields."""
        return None


def split(packet: TaskPacket, start: int, end: int) -> tuple[TaskPacket | None, list[TaskPacket]]:
    """Split a packet's range at the range that a node holds.

    Args:
        packet: a packet with a range.
        start: first element held.
        end: one past the last element held.

    Returns:
        The packet for the part that is held, or None; and a packet for each remaining part, at most
        two.
    """
    first, last = max(packet.start, start), min(packet.end, end)
    if first >= last:
        return None, [packet]
    if (first, last) == (packet.start, packet.end):
        return packet, []
    # The held part is consumed; the parts before and after it go on round the ring.
    rests = [(packet.start, first), (last, packet.end)]
    return packet.ranged(first, last), [packet.ranged(a, b) for a, b in rests if a < b]


class Node:
    """The handlers of a node: classifier, splitter, task handler, RDMA handler, data handler.

    Attributes:
        number: number of the node in the ring.
        ended: whether a packet told the node to stop.
    """

    def __init__(self, number: int, arrays: Sequence[ArrayPart], digest: str) -> None:
        self.number = number
        self.arrays = tuple(arrays)
        self.ended = False
        self._digest = bytes.fromhex(digest)
        self._takers = {(array.array, task): array for array in arrays for task in array.tasks}
        self._readers = {array.array: array for array in arrays if array.readable}

    def clear(self) -> None:
        """Forget every row at the start of a session."""
        for array in self.arrays:
            array.clear()

    def handle(self, packet: TaskPacket) -> list[TaskPacket]:
        """Process a packet.

        Returns:
            The packets for the successor.

        Raises:
            ProtocolError: the packet is impossible, such as one for a word that a layer lacks.
        """
        passed: list[TaskPacket] = []
        # A task may cause packets for this same node, so a work list replaces recursion.
        waiting = deque([packet])
        while waiting:
            new, on = self._classify(waiting.popleft())
            waiting.extend(new)
            passed.extend(on)
        return passed

    def divide(self, tile: Tile) -> tuple[TaskPacket | None, list[TaskPacket]]:
        """Divide a tile into the part that this node computes, if any, and those that pass it.

        They pass at once, not behind what the node computes.
        """
        if tile.destination not in (self.number, BY_RANGE):
            return None, [tile]
        array = self._takers.get((tile.array, tile.identifier))
        if tile.destination == self.number or array is None or tile.type is not PacketType.TASK:
            return tile, []
        try:
            return split(tile, array.start, array.end)
        except ProtocolError:
            return tile, []  # handling it says what is wrong

    def _classify(self, packet: TaskPacket) -> tuple[Iterable[TaskPacket], list[TaskPacket]]:
        """Return new packets for this node's own classifier, and packets for the successor."""
        if packet.type is PacketType.CONTROL:
            return (), self._control(packet)
        # Checked before the type: only the receiver needs to understand a packet.
        if packet.destination not in (self.number, BY_RANGE):
            return (), [packet]
        if packet.type is PacketType.DATA:
            array = self._readers.get(packet.array)
            if array is None:
                raise ProtocolError(f"data of array {packet.array} reached node {self.number}")
            return array.arrived(packet), []
        if packet.type is PacketType.TASK:
            array = self._takers.get((packet.array, packet.identifier))
        else:
            array = self._readers.get(packet.array)
        if array is None:
            return (), self._unclaimed(packet)
        local, rests = split(packet, array.start, array.end)
        # A packet for this node alone must lie within its part; passing a rest on would loop for
        # ever.
        if packet.destination == self.number and (local is None or rests):
            raise ProtocolError(
                f"[{packet.start}, {packet.end}) of array {packet.array} is not held by "
                f"node {self.number}"
            )
        if local is None:
            return (), rests
        handler = array.perform_task if packet.type is PacketType.TASK else array.answer_read
        return handler(local), rests

    def _unclaimed(self, packet: TaskPacket) -> list[TaskPacket]:
        if packet.destination == self.number:
            raise ProtocolError(f"node {self.number} holds nothing of array {packet.array}")
        return [packet]

    def _control(self, packet: TaskPacket) -> list[TaskPacket]:
        if packet.identifier is ControlId.TERMINATE:
            self.ended = True
        if packet.identifier is not ControlId.START:
            return [packet]
        reports = [array.status for array in self.arrays]
        statuses = [status for status in reports if status is not None]
        empty = TaskPacket(
            PacketType.CONTROL, ControlId.STATUS, HOME, 0, 0, 0, body=bytes(BODY_BYTES)
        )
        # START goes on first, so the coordinator receives the STATUS after the ring is closed.
        return [packet, *(self._own(status, len(statuses) or 1) for status in statuses or [empty])]

    def _own(self, status: TaskPacket, count: int) -> TaskPacket:
        # The coordinator counts a node's STATUS packets, so each carries how many there are.
        body = self._digest + status.body[32:44] + count.to_bytes(4, "big")
        return replace(status, row=self.number, body=body)


def status_packet(
    share: ArrayPart, *, kind: int, slots: int, offset: int, words: int
) -> TaskPacket:
    """Make the ``STATUS`` of a share, without the node's own fields.

    Args:
        share: the share.
        kind: 1 split by output or replicated, 2 split by input, 3 reducer.
        slots: number of rows that it has room for, a power of two.
        offset: first input word.
        words: number of input words.
    """
    numbers = b"".join(n.to_bytes(4, "big") for n in (kind, slots, words, 0))
    return TaskPacket(
        PacketType.CONTROL,
        ControlId.STATUS,
        HOME,
        share.array,
        share.start,
        share.end,
        offset=offset,
        body=bytes(32) + numbers,
    )
