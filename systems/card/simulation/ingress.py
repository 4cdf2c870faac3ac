# SPDX-License-Identifier: Apache-2.0
"""Throttling at ingress, the only place where a tenant is limited.

SuperNIC, section IV-E: what a tenant uses of tasks, packet store and egress follows from the
packets that were admitted. One token bucket per tenant therefore suffices.
"""

from __future__ import annotations


class TokenBucket:
    """A token bucket: tokens arrive at a rate, up to a burst; a packet takes its cost.

    The cost of a packet is its use of the card, relative to a mean packet of its graph. It is at
    least 1, and at least the packet's length over the mean length, so that neither short nor long
    frames can exceed the rate.

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
        """Return the cycles until a packet may pass, 0 if it may pass now.

        The result is at least 1 if tokens are missing, and a very large number if the rate is 0.
        """
        self._fill(now)
        # A cost above the burst can never be saved up, so a full bucket suffices.
        missing = min(cost, self._burst) - self._tokens
        # Tokens are floats: without the tolerance a rounding error would delay a packet by a cycle.
        if missing <= 1e-9:
            return 0
        # 1 << 40 cycles outlast any simulation but still add to a time without overflow.
        return max(1, int(missing / self._rate) + 1) if self._rate else 1 << 40

    def spend(self, cost: float, now: int) -> None:
        """Take a packet's tokens; the balance may become negative."""
        self._fill(now)
        self._tokens -= cost

    def _fill(self, now: int) -> None:
        self._tokens = min(self._burst, self._tokens + self._rate * (now - self._at))
        self._at = now
