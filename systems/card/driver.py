# SPDX-License-Identifier: Apache-2.0
"""What the control loop needs of a card: counters, rates, and chains that come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from n3ic.systems.card.control.scenario import Scenario

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


class RunningCard(CardDriver, Protocol):
    """A card that is given frames, and counts them for each tenant.

    Attributes:
        simulated: whether its time is simulated; otherwise it is the machine's.
    """

    simulated: bool

    def fitted(self, scenario: Scenario) -> Scenario:
        """Return a scenario with the regions and times of this card."""

    def requests(self, count: int) -> Mapping[str, Sequence[bytes]]:
        """Make frames of each graph, with inputs at their networks' edges."""

    def wait(self, until: float) -> float:
        """Wait until a second since the first call, and return the second that it is then."""

    def send(self, frame: bytes, now: float) -> None:
        """Give the card a frame.

        Args:
            frame: bytes of an Ethernet frame.
            now: time in seconds; it never goes back.
        """

    def finish(self) -> None:
        """Wait until every admitted frame is answered."""

    def close(self) -> None:
        """End the card."""

    def guaranteed(self) -> Mapping[str, int]:
        """Return each tenant's guarantee at present, in bytes per second."""

    def tenant_counters(self) -> Mapping[str, Mapping[str, int]]:
        """Return the counters of each tenant, and last those of frames that named no graph."""
