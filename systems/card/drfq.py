# SPDX-License-Identifier: Apache-2.0
"""Fair sharing of time: dominant resource fair queueing of packets.

Ghodsi, Sekar, Zaharia and Stoica, "Multi-Resource Fair Queueing for Packet Processing" (SIGCOMM
2012), memoryless. The rates converge to :func:`n3ic.systems.card.time_shares.fair_rates`.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class VirtualClock:
    """Virtual start times of packets; among waiting packets, the earliest start goes first.

    A packet starts, in virtual time, when its user's previous packet finishes, but not before the
    start of the last served packet. It finishes after its longest processing time at any resource,
    divided by the user's weight.

    Attributes:
        now: latest virtual start of a served packet.
    """

    now: float = 0.0
    _finish: dict[str, float] = field(default_factory=dict)

    def start(self, user: str, seconds: float, weight: float) -> float:
        """Compute the virtual start of an arriving packet.

        Args:
            user: owner of the packet.
            seconds: processing time at the resource that it occupies longest.
            weight: weight of the user, above 0.
        """
        # Starting from `now` denies a user credit for the time in which it sent nothing
        # (memoryless).
        start = max(self.now, self._finish.get(user, 0.0))
        self._finish[user] = start + seconds / weight
        return start

    def served(self, start: float) -> None:
        """Record that the packet with a virtual start is served."""
        self.now = max(self.now, start)
