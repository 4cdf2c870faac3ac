# SPDX-License-Identifier: Apache-2.0
"""An endpoint of the ring (a node or the coordinator) with its two links: bytes in, bytes out.

This module uses no sockets or clocks: the caller passes times in seconds. :meth:`Endpoint.work` may
run in a thread of its own; two queues lead to it and back, and everything else is for one thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Protocol

from n3ic.errors import ClusterError
from n3ic.systems.cluster.link import LinkTiming, Receiver, Sender
from n3ic.systems.cluster.protocol import (
    BODY_BYTES,
    HOME,
    MAX_PACKETS,
    WINDOW,
    ControlId,
    Datagram,
    PacketType,
    ProtocolError,
    TaskPacket,
    Tile,
)

SILENT, IMPOSSIBLE, FAILED = 1, 2, 3
"""Codes of ``ERROR``."""
_TEXT = BODY_BYTES - 8
ROOM = 4096
"""Maximum number of packets that wait to be handled; beyond it, datagrams are dropped."""
TILE_ROOM = 256
"""As :data:`ROOM`, for a datagram with a tile."""
_REPORTS = 3  # copies of an error report, because reports are not acknowledged


class Handler(Protocol):
    """Handler of an endpoint's packets: a :class:`Node` or the coordinator."""

    number: int
    ended: bool

    def clear(self) -> None:
        """Forget everything at the start of a session."""

    def handle(self, packet: TaskPacket) -> list[TaskPacket]:
        """Handle a packet; return the packets for the successor."""
        ...

    def divide(self, tile: Tile) -> tuple[TaskPacket | None, list[TaskPacket]]:
        """Divide a tile into what is to be handled, if anything, and what only passes."""
        ...


@dataclass(frozen=True)
class Neighbour:
    """How to send to a neighbour.

    Attributes:
        per_datagram: maximum packets per datagram.
        window: maximum datagrams in flight.
    """

    per_datagram: int = MAX_PACKETS
    window: int = WINDOW


CARD = Neighbour(per_datagram=1, window=8)
"""A node of the card subset, which takes one packet per datagram."""


def error_packet(number: int, code: int, node: int, text: str) -> TaskPacket:
    """Make the ``ERROR`` packet that a node sends home.

    Args:
        number: number of the reporting node.
        code: error code of the protocol.
        node: number of the node in question.
        text: description, cut to 40 ASCII characters.
    """
    # A packet's body bounds the text, so errors of the protocol are worded in few characters.
    message = text.encode("ascii", "replace")[:_TEXT].ljust(_TEXT, b"\0")
    body = code.to_bytes(4, "big") + node.to_bytes(4, "big") + message
    return TaskPacket(PacketType.CONTROL, ControlId.ERROR, HOME, 0, 0, 0, row=number, body=body)


class Endpoint:
    """Links and session of a node or of the coordinator.

    Args:
        handler: handles received packets.
        nodes: number of nodes beside the coordinator.
        successor: how to send to the successor.
        timing: times of retransmission, and the limit after which a neighbour counts as dead.
        session: session that the coordinator begins; None for a node, whose predecessor begins it.
        key: key of the datagrams' tags; empty for a CRC-32, which is what cards have.
        inner: whether the last node sends the nodes' tasks to the first, past the coordinator.
    """

    def __init__(
        self,
        handler: Handler,
        nodes: int,
        *,
        successor: Neighbour | None = None,
        timing: LinkTiming | None = None,
        session: int | None = None,
        key: bytes = b"",
        inner: bool = False,
    ) -> None:
        self._key = key
        self.handler = handler
        self.failed = False
        self.dropped = 0
        number = handler.number
        self.predecessor = (number - 1) % (nodes + 1)
        self.successor = (number + 1) % (nodes + 1)
        self._sources, self._sinks = [self.predecessor], [self.successor]
        # A single node has nobody else to send tasks to.
        if inner and nodes > 1 and number == 1:
            self._sources.append(nodes)
        if inner and nodes > 1 and number == nodes:
            self._sinks.append(1)
        self._talk = successor or Neighbour()
        self._timing = timing or LinkTiming()
        self._acknowledge: set[int] = set()
        # Both queues name the session of their packets. None asks the handler to forget everything.
        self._inbox: SimpleQueue[tuple[int, TaskPacket | None] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[int, list[TaskPacket] | Exception]] = SimpleQueue()
        self._unanswered = 0
        self._stopped = False
        self._urgent: list[Datagram] = []
        self._session = -1 if session is None else session
        self._begin_links()

    def _begin_links(self) -> None:
        self._receivers = {source: Receiver() for source in self._sources}
        self._senders = {
            sink: Sender(
                max(self._session, 0),
                self.handler.number,
                sink,
                per_datagram=self._talk.per_datagram,
                window=self._talk.window,
                timing=self._timing,
            )
            for sink in self._sinks
        }

    @property
    def resent(self) -> int:
        """Number of retransmitted datagrams."""
        return sum(sender.resent for sender in self._senders.values())

    @property
    def finished(self) -> bool:
        """Whether the handler has ended and its successor knows."""
        return self.failed or (
            not self._unanswered
            and self.handler.ended
            and all(sender.idle for sender in self._senders.values())
        )

    def send(self, packets: Iterable[TaskPacket]) -> None:
        """Queue packets for the successor, or for the first node past the coordinator."""
        for packet in packets:
            task = packet.type is not PacketType.CONTROL and packet.destination != HOME
            if len(self._sinks) == 1:
                self._senders[self.successor].push([packet])
            elif packet.identifier is ControlId.START and packet.type is PacketType.CONTROL:
                # Each link begins with it; the first node has had its own and ignores this one.
                for sender in self._senders.values():
                    sender.push([packet])
            elif task and not packet.lap:
                self._senders[1].push([replace(packet, lap=True)])
            else:  # a task that has been round goes home, where it is an error
                self._senders[self.successor].push([packet])

    def receive(self, data: bytes, now: float) -> None:
        """Process a received datagram; damaged and foreign ones are dropped."""
        if self.failed:
            return
        try:
            datagram = Datagram.decode(data, self._key)
        except ProtocolError:
            self.dropped += 1
            return
        # Decoding has checked the tag; what is left are datagrams of other rings or nodes.
        if datagram.receiver != self.handler.number or not self._belongs(datagram):
            self.dropped += 1
            return
        if datagram.sender in self._senders and datagram.acknowledge is not None:
            self._senders[datagram.sender].acknowledged(
                datagram.acknowledge, datagram.selective, now
            )
        if datagram.packets:
            self._take(datagram)

    def _belongs(self, datagram: Datagram) -> bool:
        """Whether a datagram is of this session; one of the predecessor may begin a new session."""
        if datagram.session == self._session:
            return True
        from_predecessor = datagram.sender == self.predecessor
        # Session numbers only rise, so a late datagram of an old session cannot reset the ring.
        if not datagram.begin or not from_predecessor or datagram.session < self._session:
            return False
        if self.handler.number == HOME:
            return False
        self._session = datagram.session
        self._put([None])
        self._begin_links()
        return True

    def _take(self, datagram: Datagram) -> None:
        # Reports come from any node, outside the order of the link, and are not acknowledged.
        if _is_report(datagram) and self.handler.number == HOME:
            self._put(datagram.packets)
        elif datagram.sender not in self._receivers:
            self.dropped += 1
        # Otherwise it is not acknowledged, and will be retransmitted.
        elif self._unanswered < (TILE_ROOM if isinstance(datagram.packets[0], Tile) else ROOM):
            self._acknowledge.add(datagram.sender)
            packets = self._receivers[datagram.sender].accept(datagram)
            begins = datagram.begin and datagram.sender != self.predecessor
            self._put(packets[1:] if begins else packets)

    def _put(self, packets: Iterable[TaskPacket | None]) -> None:
        for packet in packets:
            own = packet
            # Tiles may overtake each other; packets, whose order tells of an end, may not.
            if isinstance(packet, Tile):
                own, passing = self.handler.divide(packet)
                self.send(passing)
                if own is None:
                    continue
            self._unanswered += 1
            self._inbox.put((self._session, own))

    def work(self) -> bool:
        """Wait for a received packet and handle it.

        It was acknowledged on arrival, so slow work does not cause retransmissions.

        Returns:
            False once :meth:`stop_work` was called.
        """
        waiting = self._inbox.get()
        if waiting is None or self._stopped:
            return False
        session, packet = waiting
        try:
            answer: list[TaskPacket] | Exception = []
            if packet is None:
                self.handler.clear()
            else:
                answer = self.handler.handle(packet)
        # Whatever it is, the other thread must hear of it: a node without one would be silent.
        except Exception as error:  # noqa: BLE001
            answer = error
        self._answers.put((session, answer))
        return True

    def stop_work(self) -> None:
        """Have :meth:`work` return False; what still waits is not handled."""
        self._stopped = True
        self._inbox.put(None)

    def _take_answers(self) -> None:
        while not self._answers.empty():
            session, answer = self._answers.get()
            self._unanswered -= 1
            # An earlier session's answers would be of rows that the ring has forgotten.
            if session != self._session or self.failed:
                continue
            if isinstance(answer, ProtocolError):
                self._report(IMPOSSIBLE, self.handler.number, str(answer))
            elif isinstance(answer, Exception):
                kind = "" if isinstance(answer, ClusterError) else f"{type(answer).__name__}: "
                self._report(FAILED, self.handler.number, f"{kind}{answer}")
            else:
                self.send(answer)

    def _report(self, code: int, node: int, text: str) -> None:
        """Report an error directly to the coordinator, and stop."""
        number = self.handler.number
        packet = error_packet(number, code, node, text)
        # The coordinator reports to itself; no datagram is needed, and none could arrive.
        if number == HOME:
            self.handler.handle(packet)
        else:
            self._urgent.append(Datagram(self._session, number, HOME, packets=(packet,)))
        self.failed = True

    def outgoing(self, now: float) -> list[tuple[int, bytes]]:
        """Return the datagrams to send now, as pairs of node number and bytes."""
        out: list[tuple[int, bytes]] = []
        self._take_answers()
        silent = [sink for sink, sender in self._senders.items() if sender.silent(now)]
        if silent and not self.failed:
            self._report(SILENT, silent[0], f"no acknowledgement for {self._timing.limit:g} s")
        for source in self._acknowledge:
            expected, selective = self._receivers[source].acknowledgement
            answer = Datagram(
                self._session,
                self.handler.number,
                source,
                acknowledge=expected,
                selective=selective,
            )
            out.append((source, answer.encode(self._key)))
        self._acknowledge.clear()
        if not self.failed:
            for sink, sender in self._senders.items():
                out += [(sink, d.encode(self._key)) for d in sender.due(now)]
        # A report goes to the coordinator directly: the ring may be broken where it would pass.
        out += [(HOME, d.encode(self._key)) for d in self._urgent] * _REPORTS
        self._urgent.clear()
        return out

    @property
    def wake(self) -> float | None:
        """Time at which :meth:`outgoing` next has a datagram if nothing arrives; None if never."""
        wakes = [sender.wake for sender in self._senders.values() if sender.wake is not None]
        return None if self.failed else min(wakes, default=None)


def _is_report(datagram: Datagram) -> bool:
    """Whether a datagram is an ``ERROR`` sent directly home, outside a link's sequence."""
    first = datagram.packets[0]
    return (
        len(datagram.packets) == 1
        and not datagram.sequence
        and not datagram.begin
        and first.type is PacketType.CONTROL
        and first.identifier is ControlId.ERROR
    )
