"""Throttling at ingress, the only place where a tenant is held back.

SuperNIC, section IV-E: what a tenant takes of tasks, packet store and egress follows from what it
is let in, so that a bucket a tenant is all that is needed.
"""

from __future__ import annotations


class TokenBucket:
    """Tokens that come at a rate and are kept up to a burst; a packet takes its cost of them.

    A packet's cost is what it takes of the card in mean packets of its graph: at least 1, and its
    length over the mean length. So neither short nor long frames get a tenant more than its rate.

    Args:
        rate: tokens a cycle.
        burst: most tokens; a packet that costs more waits for a full bucket and leaves a debt.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = 0

    @property
    def rate(self) -> float:
        """Tokens a cycle."""
        return self._rate

    def change(self, rate: float, now: int) -> None:
        """Another rate, from now on."""
        self._fill(now)
        self._rate = rate

    def wait(self, cost: float, now: int) -> int:
        """Cycles until a packet may pass; 0 if it may at once.

        At least one more where there are too few tokens; with a rate of 0, a long while.
        """
        self._fill(now)
        missing = min(cost, self._burst) - self._tokens
        if missing <= 1e-9:
            return 0
        return max(1, int(missing / self._rate) + 1) if self._rate else 1 << 40

    def take(self, cost: float, now: int) -> None:
        """Let a packet pass."""
        self._fill(now)
        self._tokens -= cost

    def _fill(self, now: int) -> None:
        self._tokens = min(self._burst, self._tokens + self._rate * (now - self._at))
        self._at = now
