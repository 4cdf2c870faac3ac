# SPDX-License-Identifier: Apache-2.0
"""Throttling at ingress, the only place where a tenant is limited.

SuperNIC, section IV-E: what a tenant takes of tasks, packet store and egress follows from what it
is let in, so one token bucket per tenant suffices.
"""

from __future__ import annotations


class TokenBucket:
    """A token bucket: tokens arrive at a rate, up to a burst; a packet takes its cost.

    The cost of a packet is its use of the card relative to a mean packet of its graph: at least 1,
    and at least its length over the mean length. So neither short nor long frames exceed the rate.

    Args:
        rate: tokens per cycle.
        burst: maximum tokens; a packet that costs more waits for a full bucket and leaves a debt.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = 0

    @property
    def rate(self) -> float:
        """Tokens per cycle."""
        return self._rate

    def change(self, rate: float, now: int) -> None:
        """Change the rate from now on."""
        self._fill(now)
        self._rate = rate

    def wait(self, cost: float, now: int) -> int:
        """Cycles until a packet may pass; 0 if it may pass now.

        At least 1 if tokens are missing; a very large number for a rate of 0.
        """
        self._fill(now)
        # A cost above the burst can never be saved up, so a full bucket suffices.
        missing = min(cost, self._burst) - self._tokens
        if missing <= 1e-9:
            return 0
        return max(1, int(missing / self._rate) + 1) if self._rate else 1 << 40

    def take(self, cost: float, now: int) -> None:
        """Take a packet's tokens; the balance may become negative."""
        self._fill(now)
        self._tokens -= cost

    def _fill(self, now: int) -> None:
        self._tokens = min(self._burst, self._tokens + self._rate * (now - self._at))
        self._at = now
