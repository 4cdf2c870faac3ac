"""Fair sharing of time: dominant resource fair queueing of packets.

Ghodsi, Sekar, Zaharia and Stoica, "Multi-Resource Fair Queueing for Packet Processing" (SIGCOMM
2012), memoryless. :func:`n3ic.systems.card.fairness.fair_rates` is what it converges to.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class VirtualClock:
    """Virtual start times of packets: of those that wait, the earliest goes first.

    A packet starts, in virtual time, when its user's packet before it is finished, but not before
    the packet that was served last had started; it is finished by its processing time at the
    resource that it keeps longest, divided by the user's weight.

    Attributes:
        now: the latest start of a packet that was served.
    """

    now: float = 0.0
    _finish: dict[str, float] = field(default_factory=dict)

    def start(self, user: str, seconds: float, weight: float) -> float:
        """The virtual start of a packet that arrives.

        Args:
            user: whose it is.
            seconds: that it keeps the resource busy that it keeps longest.
            weight: of the user, above 0.
        """
        start = max(self.now, self._finish.get(user, 0.0))
        self._finish[user] = start + seconds / weight
        return start

    def served(self, start: float) -> None:
        """A packet of that virtual start is served."""
        self.now = max(self.now, start)
