# SPDX-License-Identifier: Apache-2.0
"""The coordinator of a ring (``[home]`` in ``nodes.toml``).

It starts sessions, admits rows, and collects their results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.model.bits import WORD_BITS, word_count
from n3ic.systems.cluster.binary import layer_input
from n3ic.systems.cluster.endpoint import SILENT
from n3ic.systems.cluster.memory import TileMemory, scores_in
from n3ic.systems.cluster.node import ROW_SLOTS
from n3ic.systems.cluster.placement import LayerSplit, ModelPlacement
from n3ic.systems.cluster.protocol import (
    BY_RANGE,
    HOME,
    MAX_ROW,
    TILE_ROWS,
    ControlId,
    DataId,
    PacketType,
    ProtocolError,
    TaskPacket,
    Tile,
)


class NodeLostError(ClusterError):
    """A node is dead or cut off."""


@dataclass(frozen=True)
class NodeShare:
    """A share that a node reports in ``STATUS``; the fields are those of the packet."""

    node: int
    kind: int
    array: int
    start: int
    end: int
    offset: int
    words: int


def expected_shares(placement: ModelPlacement) -> set[NodeShare]:
    """Return what the nodes of a placement must report."""
    expected = set()
    for array, layer in enumerate(placement.layers):
        inputs = word_count(placement.shape[array])
        for share in layer.shares:
            if layer.split is LayerSplit.INPUT:
                first, words = share.start // WORD_BITS, word_count(share.end - share.start)
                # Nodes count whole words, so the last share may end beyond the layer's inputs.
                end = share.start + WORD_BITS * words
                expected.add(NodeShare(share.node, 2, array, share.start, end, first, words))
            else:
                expected.add(NodeShare(share.node, 1, array, share.start, share.end, 0, inputs))
        for share in layer.reducers:
            expected.add(NodeShare(share.node, 3, array, share.start, share.end, 0, 0))
    return expected


class Coordinator:
    """The coordinator's handler.

    Args:
        nodes: number of nodes of the ring.
        digest: digest of the model that they must hold.
        data: function that takes a data packet that returned home and returns packets to send.

    Attributes:
        ended: whether the ring has confirmed its end.
        error: reason why the session failed; None if it has not failed.
        slots: number of rows that every node has room for; known once :attr:`started`.
    """

    number = HOME

    def __init__(
        self, nodes: int, digest: str, data: Callable[[TaskPacket], Iterable[TaskPacket]]
    ) -> None:
        self.ended = False
        self.error: ClusterError | None = None
        self.slots = ROW_SLOTS
        self._nodes = nodes
        self._digest = bytes.fromhex(digest)
        self._data = data
        self._closed = False
        self._reports: dict[int, set[NodeShare]] = {}
        self._counts: dict[int, int] = {}

    def clear(self) -> None:
        """Do nothing, because the coordinator begins sessions and no session resets it."""

    def start(self) -> TaskPacket:
        """Make the packet that begins the session."""
        body = self._digest.ljust(48, b"\0")
        return TaskPacket(PacketType.CONTROL, ControlId.START, BY_RANGE, 0, 0, 0, body=body)

    @property
    def started(self) -> bool:
        """Whether the ring is closed and every node has reported what it holds."""
        # Each STATUS carries the number of its node's packets, so that all of
        # them are known to have come.
        return (
            self._closed
            and len(self._counts) == self._nodes
            and all(len(self._reports[node]) == count for node, count in self._counts.items())
        )

    @property
    def holdings(self) -> set[NodeShare]:
        """Shares that the nodes hold, by their own reports."""
        return {share for reports in self._reports.values() for share in reports if share.kind}

    def check(self, placement: ModelPlacement) -> None:
        """Check that the nodes hold what the placement says.

        Raises:
            ClusterError: A node holds something else; the error names it.
        """
        self.check_shares(expected_shares(placement), "layer")

    def check_shares(self, expected: set[NodeShare], what_of: str) -> None:
        """Check that the nodes hold certain shares, of layers or arrays.

        Raises:
            ClusterError: A node holds something else; the error names it.
        """
        # The symmetric difference: shares that are missing, and shares that should not be there.
        for share in sorted(expected ^ self.holdings, key=lambda h: (h.node, h.array)):
            what = "does not hold" if share in expected else "holds"
            raise ClusterError(
                f"node {share.node} {what} [{share.start}, {share.end}) of {what_of} "
                f"{share.array}, unlike the plan"
            )

    def handle(self, packet: TaskPacket) -> list[TaskPacket]:
        """Handle a packet that came round the ring."""
        if packet.type is PacketType.CONTROL:
            self._control(packet)
            return []
        if packet.type is PacketType.DATA and packet.destination == HOME:
            return list(self._data(packet))
        # A task may pass the coordinator once, on the way to a node before its sender. One
        # that passes twice has met every node.
        if packet.lap:
            self.fail(
                f"[{packet.start}, {packet.end}) of array {packet.array} went round the ring: "
                "no node holds it"
            )
            return []
        return [replace(packet, lap=True)]

    def divide(self, tile: Tile) -> tuple[TaskPacket | None, list[TaskPacket]]:
        """All that comes home is handled."""
        return tile, []

    def fail(self, text: str) -> None:
        """Mark the session as failed; the first reason stays."""
        self.error = self.error or ClusterError(text)

    def _control(self, packet: TaskPacket) -> None:
        if packet.identifier is ControlId.START:
            self._closed = True
        elif packet.identifier is ControlId.TERMINATE:
            self.ended = True
        elif packet.identifier is ControlId.STATUS:
            self._status(packet)
        else:
            code, node = (int.from_bytes(packet.body[at : at + 4], "big") for at in (0, 4))
            text = packet.body[8:].rstrip(b"\0").decode("ascii", "replace")
            if code == SILENT:
                why = f"node {node} is dead or cut off ({text}), says node {packet.row}"
                self.error = self.error or NodeLostError(why)
            else:
                self.fail(f"node {packet.row} failed: {text}")

    def _status(self, packet: TaskPacket) -> None:
        numbers = np.frombuffer(packet.body, dtype=">u4", offset=32).tolist()
        kind, slots, words, count = (int(n) for n in numbers)
        if packet.body[:32] != self._digest:
            self.fail(
                f"node {packet.row} holds model {packet.body[:32].hex()[:12]}, "
                f"not {self._digest.hex()[:12]}"
            )
        place = (packet.array, packet.start, packet.end, packet.offset)
        self._reports.setdefault(packet.row, set()).add(NodeShare(packet.row, kind, *place, words))
        self._counts[packet.row] = count
        if kind:
            self.slots = min(self.slots, max(slots, 1))


class RingFlow(ABC):
    """Work for a ring: the packets that it sends and those that come home."""

    slots = 1

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether nothing is queued or in flight."""

    @abstractmethod
    def admit(self) -> list[TaskPacket]:
        """Return the tasks that the nodes have room for now."""

    @abstractmethod
    def accept_data(self, packet: TaskPacket) -> list[TaskPacket]:
        """Accept data that returned home; return the tasks that the nodes have room for now.

        Raises:
            ProtocolError: The data answers no request.
        """


Row = TypeVar("Row", bound=np.generic)


OnRows = Callable[[int, NDArray[Any]], None]
"""Takes the number of the first row within its batch, and the results of some rows."""


@dataclass
class _Batch:
    """Rows that wait: the next of them is at ``at``."""

    rows: NDArray[Any]
    on_result: OnRows
    at: int = 0


@dataclass(frozen=True, eq=False)
class _Piece:
    """Rows of one batch in a tile; ``first`` is the number of the first within the batch."""

    rows: NDArray[Any]
    first: int
    on_result: OnRows


@dataclass
class _Flight(Generic[Row]):
    """Rows that the nodes compute under one tag, and what is there of their results."""

    pieces: list[_Piece]
    results: NDArray[Row]
    there: NDArray[np.bool_]


class TaggedRows(RingFlow, Generic[Row]):
    """Rows in flight, as many tags at once as every node has room for.

    Args:
        array: number of the array whose results come home.
        kind: identifier of the data packets that bring the results.
        width: length of a row's result.
        result: dtype of a row's result.
        rows: maximum number of rows under one tag.
        most_slots: maximum number of tags in flight, whatever room the nodes have.
        turns: nodes that take the tags in turn; the rows that wait are divided evenly over them.

    Attributes:
        slots: maximum number of tags in flight.
    """

    def __init__(
        self,
        array: int,
        kind: DataId,
        width: int,
        result: type[Row],
        rows: int = 1,
        most_slots: int = ROW_SLOTS,
        turns: int = 1,
    ) -> None:
        self.slots = 1
        self._turns = turns
        self._most_slots = most_slots
        self._array = array
        self._kind = kind
        self._width = width
        self._result = result
        self._most = rows
        self._queue: deque[_Batch] = deque()
        self._next = 0
        self._flying: dict[int, _Flight[Row]] = {}

    @abstractmethod
    def _tasks(self, tag: int, operand: NDArray[Any]) -> list[TaskPacket]:
        """Make the tasks of rows."""

    @abstractmethod
    def _values(self, packet: TaskPacket) -> NDArray[Row]:
        """Read the numbers of a data packet, of shape ``(rows, n)``."""

    def submit(self, rows: NDArray[Any], on_result: OnRows) -> None:
        """Queue a batch of rows, which must not be empty."""
        self._queue.append(_Batch(rows, on_result))

    @property
    def idle(self) -> bool:
        """Whether no row is queued or in flight."""
        return not self._queue and not self._flying

    def admit(self) -> list[TaskPacket]:
        """Return the tasks of the rows that the nodes have room for now."""
        packets: list[TaskPacket] = []
        slots = min(self.slots, self._most_slots)
        # Measured from the oldest tag in flight: cards index their slots by the low bits of the
        # tag, so all tags in flight must lie within `slots` consecutive numbers.
        while self._queue and self._next - min(self._flying, default=self._next) < slots:
            pieces, operand = self._take()
            self._flying[self._next] = _Flight(
                pieces,
                np.zeros((len(operand), self._width), dtype=self._result),
                np.zeros(self._width, dtype=np.bool_),
            )
            packets += self._tasks(self._next & MAX_ROW, operand)
            self._next += 1
        return packets

    def _take(self) -> tuple[list[_Piece], NDArray[Any]]:
        """Take the next rows from the queue, of several batches if they are small."""
        pieces: list[_Piece] = []
        room = self._room()
        while room and self._queue:
            batch = self._queue[0]
            rows = batch.rows[batch.at : batch.at + room]
            pieces.append(_Piece(rows, batch.at, batch.on_result))
            batch.at += len(rows)
            room -= len(rows)
            if batch.at == len(batch.rows):
                self._queue.popleft()
        one = len(pieces) == 1
        return pieces, pieces[0].rows if one else np.concatenate([p.rows for p in pieces])

    def _room(self) -> int:
        """Rows of the next tag: all nodes get as many of those that wait."""
        if self._turns == 1:
            return self._most
        waiting = sum(len(batch.rows) - batch.at for batch in self._queue)
        tags = -(-waiting // self._most)
        tags += -(self._next + tags) % self._turns
        return -(-waiting // tags)

    def accept_data(self, packet: TaskPacket) -> list[TaskPacket]:
        """Take numbers of some rows' results; return the tasks of rows that now have room."""
        # Tags repeat after 2^16, but tags in flight lie within `slots` numbers, so one matches.
        tag = next((t for t in self._flying if t & MAX_ROW == packet.row), None)
        flight = None if tag is None else self._flying[tag]
        if (
            packet.identifier is not self._kind
            or packet.array != self._array
            or tag is None
            or flight is None
            or packet.end > self._width
            or packet.rows != len(flight.results)
            or flight.there[packet.start : packet.end].any()
        ):
            raise ProtocolError(
                f"unrequested {packet.identifier.name.lower()} [{packet.start}, {packet.end}) of "
                f"row {packet.row}"
            )
        flight.results[:, packet.start : packet.end] = self._values(packet)
        flight.there[packet.start : packet.end] = True
        if flight.there.all():
            del self._flying[tag]
            at = 0
            for piece in flight.pieces:
                end = at + len(piece.rows)
                piece.on_result(piece.first, flight.results[at:end])
                at = end
        return self.admit()


class RowFlow(TaggedRows[np.int32]):
    """Rows in flight through a binary network.

    Args:
        placement: placement of the network.
        tile_bytes: maximum bytes of numbers in a tile; 0 for packets of 512 bits and one row, which
            cards take.
        memory: memory that the nodes share; None if packets carry the numbers.
    """

    def __init__(
        self, placement: ModelPlacement, tile_bytes: int = 0, memory: TileMemory | None = None
    ) -> None:
        last = len(placement.layers) - 1
        rows = TILE_ROWS if tile_bytes else 1
        first = layer_input(placement, 0, memory)
        super().__init__(
            last,
            DataId.SCORES,
            placement.shape[-1],
            np.int32,
            rows if memory is None else memory.rows,
            ROW_SLOTS if memory is None else memory.slots,
            len(first.replicas) or 1,
        )
        self._input = first
        self._tile_bytes = tile_bytes
        self._memory = memory

    def _tasks(self, tag: int, operand: NDArray[Any]) -> list[TaskPacket]:
        return self._input.packets(operand, tag, 0, self._tile_bytes, lap=True)

    def _values(self, packet: TaskPacket) -> NDArray[np.int32]:
        return scores_in(self._memory, packet)
