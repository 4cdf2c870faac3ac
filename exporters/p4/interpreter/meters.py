# SPDX-License-Identifier: Apache-2.0
"""Meters of v1model: token buckets that colour packets by RFC 2698 in colour-blind mode."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from n3ic.exporters.p4.interpreter.errors import P4Error

GREEN, YELLOW, RED = 0, 1, 2
Rate = tuple[Fraction, int]  # units per microsecond, and the burst in units


@dataclass(eq=False)
class _Bucket:  # fractions, because rounding errors of floats would add up over packets
    rate: Fraction
    burst: int
    tokens: Fraction

    def fill(self, microseconds: int) -> None:
        self.tokens = min(Fraction(self.burst), self.tokens + self.rate * microseconds)


@dataclass(eq=False)
class RuntimeMeter:
    """An array of meters with their current rates.

    Attributes:
        name: control-plane name.
        size: number of meters.
        counts_bytes: whether a packet costs its bytes; otherwise it costs 1.
    """

    name: str
    size: int
    counts_bytes: bool
    _buckets: dict[int, tuple[_Bucket, _Bucket]] = field(default_factory=dict)
    _filled: dict[int, int] = field(default_factory=dict)

    def set_rates(self, index: int, committed: Rate, peak: Rate) -> None:
        """Set the rates of one meter, and fill its buckets.

        Raises:
            P4Error: the index is out of range, or the peak rate is below the committed rate.
        """
        if not 0 <= index < self.size:
            raise P4Error(f"meter {self.name} has {self.size} meters, no meter {index}")
        if not 0 < committed[0] <= peak[0]:
            raise P4Error(f"meter {self.name}: the peak rate is below the committed rate")
        first, second = (_Bucket(r, b, Fraction(b)) for r, b in (committed, peak))
        self._buckets[index] = first, second
        self._filled.pop(index, None)

    def rates(self, index: int) -> tuple[Rate, Rate] | None:
        """Committed and peak rate of one meter; None if no rates are set."""
        if index not in self._buckets:
            return None
        committed, peak = self._buckets[index]
        return (committed.rate, committed.burst), (peak.rate, peak.burst)

    def execute(self, index: int, size: int, now: int) -> int:
        """Return the colour of a packet; green if no rates are set.

        Args:
            index: index of the meter.
            size: size of the packet in bytes.
            now: time in microseconds, which never decreases.

        Raises:
            P4Error: the index is out of range.
        """
        if index >= self.size:
            raise P4Error(f"meter {self.name} has {self.size} meters, no meter {index}")
        if index not in self._buckets:
            return GREEN
        cost = size if self.counts_bytes else 1
        committed, peak = self._buckets[index]
        for bucket in (committed, peak):
            # Both buckets fill for the time since the meter's last packet; a clock that steps back
            # adds none.
            bucket.fill(max(0, now - self._filled.setdefault(index, now)))
        self._filled[index] = max(now, self._filled[index])
        # RFC 2698 tests the peak bucket first: a red packet takes no tokens from either bucket.
        if peak.tokens < cost:
            return RED
        peak.tokens -= cost
        if committed.tokens < cost:
            return YELLOW
        committed.tokens -= cost
        return GREEN
