# SPDX-License-Identifier: Apache-2.0
"""Colours of packets: within a graph's guarantee, or beyond it.

As in the images of a card, a token bucket is asked when a packet is served. Packets beyond share
what the tasks have left.
"""

from __future__ import annotations

from dataclasses import dataclass


class TokenBucket:
    """A token bucket: tokens arrive at a rate, up to a burst; a packet takes its cost.

    The cost of a packet is its use of the card, relative to a mean packet of its graph. It is at
    least 1, and at least the packet's length over the mean length, so that neither short nor long
    frames can exceed the rate.

    Args:
        rate: tokens per cycle.
        burst: maximum tokens; a packet that costs more needs a full bucket and leaves a debt.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = 0

    def pays(self, cost: float, now: int) -> bool:
        """Whether the bucket can pay for a packet at a cycle."""
        self._fill(now)
        # A cost above the burst can never be saved up, so a full bucket suffices. The tolerance is
        # for rounding errors, because tokens are floats.
        return min(cost, self._burst) - self._tokens <= 1e-9

    def spend(self, cost: float, now: int) -> None:
        """Take a packet's tokens; the balance may become negative."""
        self._fill(now)
        self._tokens -= cost

    def set_rate(self, rate: float, now: int) -> None:
        """Change the tokens per cycle; those in the bucket stay."""
        self._fill(now)
        self._rate = rate

    def _fill(self, now: int) -> None:
        self._tokens = min(self._burst, self._tokens + self._rate * (now - self._at))
        self._at = now


@dataclass
class Colour:
    """What a packet needs to be scheduled within its guarantee or beyond it.

    Attributes:
        bucket: token bucket of its graph.
        cost: tokens that it takes.
        step: how far it puts its graph's turn off if it is served beyond the guarantee.
        paid: whether the bucket has paid for it; its later passes are within the guarantee, too.
        begun: whether it was sent before, so that its turn is taken.
    """

    bucket: TokenBucket
    cost: float
    step: float
    paid: bool = False
    begun: bool = False

    def is_within(self, now: int) -> bool:
        """Whether the packet is within its guarantee at a cycle."""
        return self.paid or self.bucket.pays(self.cost, now)
