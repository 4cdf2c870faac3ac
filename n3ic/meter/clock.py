# SPDX-License-Identifier: Apache-2.0
"""The clock of a capture: turns packets' time stamps, which may be wrong, into a meter's times.

A stamp within an hour of the clock may move it forward, but never back. A packet with any other
stamp waits for the next packet. If the next stamp agrees, the clock follows, back as well as
ahead. Otherwise the packet gets the clock's time, so a wrong stamp affects only its own packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
FAR_NS = 3600 * 10**9


class Clock(Generic[T]):
    """A clock that follows time stamps.

    Args:
        tick_ns: unit of time, in nanoseconds.

    Attributes:
        now: the time, in units of ``tick_ns``; 0 before the first packet.
        back: packets stamped earlier than a packet before them, and counted at the clock's time.
        ahead: packets stamped more than an hour later than all before them, unless the next packet
            agrees; the last packet of a capture always counts, because none follows.
        steps: how often the clock was set back.
    """

    def __init__(self, tick_ns: int) -> None:
        self.now = self.back = self.ahead = self.steps = 0
        self._far = FAR_NS // tick_ns
        self._waiting: tuple[T, int] | None = None

    def follow(self, packet: T, time: int) -> Iterator[tuple[T, bool]]:
        """Take a packet; yield each packet whose time, :attr:`now`, is known.

        Yields:
            The packet, and whether the clock went back before it.
        """
        if self._waiting:
            waiting, at = self._waiting
            agrees = at - time <= self._far and (self._is_ahead(at) or self._is_behind(time))
            yield self._settle(waiting, at, agrees)
        if self.now and (self._is_ahead(time) or self._is_behind(time)):
            self._waiting = packet, time
            return
        self.back += time < self.now
        self.now = max(self.now, time)
        yield packet, False

    def finish(self) -> Iterator[tuple[T, bool]]:
        """Yield the packet that still waits: nothing contradicts a stamp ahead of the clock."""
        if self._waiting:
            packet, at = self._waiting
            self.ahead += (ahead := self._is_ahead(at))
            yield self._settle(packet, at, ahead)

    def _is_ahead(self, time: int) -> bool:
        return time - self.now > self._far

    def _is_behind(self, time: int) -> bool:
        return self.now - time > self._far

    def _settle(self, packet: T, at: int, believed: bool) -> tuple[T, bool]:
        self._waiting = None
        ahead = self._is_ahead(at)
        if believed:
            self.now = at
        self.steps += believed and not ahead
        self.ahead += ahead and not believed
        self.back += not ahead and not believed
        return packet, believed and not ahead
