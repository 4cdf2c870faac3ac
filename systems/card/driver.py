# SPDX-License-Identifier: Apache-2.0
"""What the control loop needs of a card: counters, rates, and chains that come and go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Chain = tuple[str, ...]  # names of tasks in their order
WIRE_NAME = "(wire)"  # as card-exec names the frames that name no graph


@dataclass(frozen=True)
class GraphCounters:
    """Counters of a graph.

    Attributes:
        offered: packets that have arrived so far, dropped ones included; a packet that is longer
            than the mean may count as more than one.
        inside: packets in the card now.
    """

    offered: float
    inside: int


class CardDriver(Protocol):
    """A card that runs: an image on a host or a device, or a simulated one."""

    def counters(self) -> Mapping[str, GraphCounters]:
        """Return the counters of each graph."""

    def set_rates(self, rates: Mapping[str, float], now: float) -> None:
        """Guarantee graphs rates in packets per second.

        Args:
            rates: rates of the graphs of tenants that are there; others are guaranteed nothing, and
                the card may refuse their packets.
            now: time in seconds.
        """

    def load(self, region: int, chain: Chain, ready: float) -> None:
        """Put a chain into a region, instead of what serves there.

        Args:
            region: number of the region.
            chain: tasks of the chain.
            ready: second from which on it serves, unless the old chain takes long to drain. It is
                not later than now if the region already holds the chain.
        """

    def unload(self, region: int) -> None:
        """Stop serving packets in a region; packets inside are served."""
