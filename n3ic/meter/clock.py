# SPDX-License-Identifier: Apache-2.0
"""The clock of a capture: time stamps of packets that may be wrong, as times that a meter counts.

A stamp at most an hour from the clock moves it forward, and never back. A packet with any other
stamp waits for the next packet. If that one's stamp agrees, the clock follows, back as well as
ahead. Otherwise the packet gets the time of the clock, so a wrong stamp changes its packet alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
FAR_NS = 3600 * 10**9


class Clock(Generic[T]):
    """A clock that follows time stamps.

    Args:
        tick_ns: nanoseconds of the unit of time.

    Attributes:
        now: the time; 0 before the first packet.
        back: packets with an earlier stamp than a packet before them, counted at the clock's time.
        ahead: packets stamped more than an hour later than all before them, with which the next
            packet did not agree; and the last packet, with which none could.
        steps: times that the clock went back.
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
