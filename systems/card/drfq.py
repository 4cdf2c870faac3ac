"""Fair sharing of time: dominant resource fair queueing of packets.

Ghodsi, Sekar, Zaharia and Stoica, "Multi-Resource Fair Queueing for Packet Processing" (SIGCOMM
2012), memoryless. :func:`n3ic.systems.card.routing.fair_rates` is what it converges to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

User = TypeVar("User", bound=Hashable)
Packet = TypeVar("Packet")


@dataclass
class FairQueue(Generic[User, Packet]):
    """Packets of several users, each in its own order, by virtual start time.

    A packet starts, in virtual time, when its user's packet before it is finished, but not before
    the packet that was served last had started; it is finished by its processing time at the
    resource that it keeps longest, divided by the user's weight. The earliest start goes first.

    Attributes:
        weights: of the users, above 0.
        virtual_time: start of the packet that was served last.
    """

    weights: Mapping[User, float]
    virtual_time: float = 0.0
    _finish: dict[User, float] = field(default_factory=dict)
    _queues: dict[User, deque[tuple[float, Packet]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, user: User, packet: Packet, processing: Mapping[str, float]) -> None:
        """Let a packet wait.

        Args:
            user: whose it is.
            packet: what :meth:`get` gives back.
            processing: seconds that it keeps each resource busy.
        """
        start = max(self.virtual_time, self._finish.get(user, 0.0))
        self._finish[user] = start + max(processing.values()) / self.weights[user]
        self._queues.setdefault(user, deque()).append((start, packet))

    def get(self) -> tuple[User, Packet]:
        """User and packet of the earliest virtual start; the user that came first where they tie.

        Raises:
            IndexError: none waits.
        """
        waiting = [user for user, queue in self._queues.items() if queue]
        if not waiting:
            raise IndexError("no packet waits")
        user = min(waiting, key=lambda u: self._queues[u][0][0])
        self.virtual_time, packet = self._queues[user].popleft()
        return user, packet
