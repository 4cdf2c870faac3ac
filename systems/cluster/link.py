# SPDX-License-Identifier: Apache-2.0
"""Both ends of a link: sequence numbers, acknowledgements and retransmissions.

This module uses no sockets or clocks: the caller passes times in seconds.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from n3ic.systems.cluster.protocol import MAX_PACKETS, WINDOW, Datagram, TaskPacket, Tile


@dataclass(frozen=True)
class LinkTiming:
    """When a datagram is retransmitted, and when a neighbour counts as dead.

    Attributes:
        first: minimum seconds until an unacknowledged datagram is retransmitted. The time is longer
            if acknowledgements are observed to take longer (RFC 6298), and doubles with each
            retransmission.
        longest: maximum of these times.
        limit: seconds without a new acknowledgement after which a neighbour counts as dead.
    """

    first: float = 0.02
    longest: float = 0.32
    limit: float = 5.0


WINDOW_BYTES = 1 << 16
"""Bytes in flight on a link beyond which a tile waits; a socket's buffer holds twice as many."""
REORDERED = 3
"""Number of later arrivals after which a datagram counts as lost before its time is up."""


@dataclass
class _Flight:
    """A datagram in flight: when it was first sent, and when it is due again."""

    datagram: Datagram
    sent: float
    due: float
    wait: float
    arrived: bool = False
    hurried: bool = False
    again: bool = False

    @property
    def size(self) -> int:
        """Bytes of its packets that are still in flight."""
        return 0 if self.arrived else sum(packet.size for packet in self.datagram.packets)


class Sender:
    """The sending end of a link.

    Args:
        session: number of the session.
        number: number of this node.
        neighbour: number of the receiver.
        per_datagram: maximum packets per datagram; 1 if the receiver is a card.
        window: maximum datagrams in flight.
        timing: times of retransmission.
    """

    def __init__(
        self,
        session: int,
        number: int,
        neighbour: int,
        *,
        per_datagram: int = MAX_PACKETS,
        window: int = WINDOW,
        timing: LinkTiming | None = None,
    ) -> None:
        self.resent = 0
        self._head = Datagram(session, number, neighbour)
        self._per_datagram = per_datagram
        self._window = window
        self._timing = timing or LinkTiming()
        self._queue: deque[TaskPacket] = deque()
        self._flights: OrderedDict[int, _Flight] = OrderedDict()  # by sequence, oldest first
        self._next = 0
        self._progress = 0.0
        self._trip: float | None = None
        self._spread = 0.0

    def push(self, packets: Iterable[TaskPacket]) -> None:
        """Queue packets in order."""
        self._queue.extend(packets)

    @property
    def idle(self) -> bool:
        """Whether everything has been sent and acknowledged."""
        return not self._queue and not self._flights

    def acknowledged(self, expected: int, selective: int, now: float) -> None:
        """Process an acknowledgement.

        Args:
            expected: sequence number that the receiver expects next.
            selective: bit ``i`` is set if ``expected + 1 + i`` has arrived too.
            now: present time in seconds.
        """
        if expected > self._next:
            return  # acknowledges what was never sent: not from a neighbour of this session
        for sequence in [s for s in self._flights if s < expected]:
            flight = self._flights.pop(sequence)
            self._progress = now
            # Karn: the trip of a retransmitted datagram is ambiguous, so it is not measured.
            if not flight.again and not flight.arrived:
                self._measured(now - flight.sent)
        later = 0
        for sequence, flight in reversed(self._flights.items()):
            ahead = sequence - expected - 1
            if ahead >= 0 and selective >> ahead & 1:
                later += 1
                if not flight.arrived:
                    flight.arrived = True
                    self._progress = now
            # Fast retransmit: enough later datagrams have arrived to call this one lost, not
            # reordered.
            elif later >= REORDERED and not flight.hurried:
                flight.hurried = True
                flight.due = now

    def _measured(self, trip: float) -> None:
        """Smooth a round-trip time and its deviation with the gains of RFC 6298, 1/8 and 1/4."""
        if self._trip is None:
            self._trip, self._spread = trip, trip / 2
            return
        self._spread += (abs(trip - self._trip) - self._spread) / 4
        self._trip += (trip - self._trip) / 8

    @property
    def _wait(self) -> float:
        measured = 0.0 if self._trip is None else self._trip + 4 * self._spread
        # RFC 6298: the mean round trip and four deviations, within the configured bounds.
        return min(max(self._timing.first, measured), self._timing.longest)

    def due(self, now: float) -> list[Datagram]:
        """Return the datagrams to send now: those due again, then new ones that fit the window."""
        out = []
        for flight in self._flights.values():
            if not flight.arrived and flight.due <= now:
                # Exponential back-off, so that a congested or dead link is not flooded.
                flight.wait = min(2 * flight.wait, self._timing.longest)
                flight.due = now + flight.wait
                flight.again = True
                self.resent += 1
                out.append(flight.datagram)
        flying = sum(flight.size for flight in self._flights.values())
        while self._queue and len(self._flights) < self._window:
            if flying and flying + self._queue[0].size > WINDOW_BYTES:
                break
            # An idle link makes no progress, so silence is counted from its first datagram.
            if not self._flights:
                self._progress = now
            out.append(self._take(now))
            flying += sum(packet.size for packet in out[-1].packets)
        return out

    def _take(self, now: float) -> Datagram:
        begins = self._next == 0
        # The receiver resets its state on `begin`, so that datagram carries the first packet alone.
        packets: tuple[TaskPacket, ...] = (self._queue.popleft(),)
        if not begins and not isinstance(packets[0], Tile):
            queue, most = self._queue, self._per_datagram
            while queue and len(packets) < most and not isinstance(queue[0], Tile):
                packets += (queue.popleft(),)
        datagram = replace(self._head, sequence=self._next, begin=begins, packets=packets)
        wait = self._wait
        self._flights[self._next] = _Flight(datagram, now, now + wait, wait)
        self._next += 1
        return datagram

    @property
    def wake(self) -> float | None:
        """Time at which :meth:`due` next has a datagram if nothing arrives; None if never."""
        return min((f.due for f in self._flights.values() if not f.arrived), default=None)

    def silent(self, now: float) -> bool:
        """Whether the neighbour is dead: no new acknowledgement within the limit."""
        return bool(self._flights) and now - self._progress > self._timing.limit


class Receiver:
    """The receiving end of a link: takes datagrams in any order, returns packets in order."""

    def __init__(self) -> None:
        self._expected = 0
        self._early: dict[int, tuple[TaskPacket, ...]] = {}

    def accept(self, datagram: Datagram) -> list[TaskPacket]:
        """Return the packets that are complete up to here, each once."""
        ahead = datagram.sequence - self._expected
        # Older datagrams are duplicates, and a correct sender never exceeds its window.
        if 0 <= ahead <= WINDOW:
            self._early[datagram.sequence] = datagram.packets
        packets: list[TaskPacket] = []
        while self._expected in self._early:
            packets += self._early.pop(self._expected)
            self._expected += 1
        return packets

    @property
    def acknowledgement(self) -> tuple[int, int]:
        """The next expected sequence number, and a bit for each later one that has arrived."""
        # Bit 0 stands for the packet after the expected one: the expected one is missing by
        # definition.
        bits = sum(1 << (sequence - self._expected - 1) for sequence in self._early)
        return self._expected, bits
