# SPDX-License-Identifier: Apache-2.0
"""The record of a simulation: packets, counts, and actions of the control loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from n3ic.systems.card.control.loop import Event
from n3ic.systems.card.control.scenario import Scenario
from n3ic.systems.card.simulation.baselines import SharingPolicy
from n3ic.systems.card.simulation.packets import Fate, Packets


@dataclass(frozen=True, eq=False)
class GraphTrace:
    """What became of a graph's packets.

    Attributes:
        packets: its packets, in the order of arrival; see
            :data:`~n3ic.systems.card.simulation.packets.PACKET`.
        arrived: number of packets that arrived.
        queued: number of packets waiting at the ingress at the end.
        inside: number of packets in the card at the end.
        most_queued: maximum of ``queued``.
        most_inside: maximum of ``inside``.
    """

    packets: Packets
    arrived: int
    queued: int
    inside: int
    most_queued: int
    most_inside: int

    @property
    def arrivals(self) -> Packets:
        """The packets that arrived."""
        return self.packets[: self.arrived]

    @property
    def left(self) -> Packets:
        """The packets that left, in the order of arrival and departure."""
        return self._of(Fate.LEFT)

    @property
    def dropped(self) -> dict[str, int]:
        """Number of dropped packets, by reason."""
        reasons = {"ingress": Fate.DROPPED, "cut-off": Fate.CUT_OFF}
        counts = {reason: len(self._of(fate)) for reason, fate in reasons.items()}
        return {reason: n for reason, n in counts.items() if n}

    def _of(self, fate: Fate) -> Packets:
        packets: Packets = self.packets[self.packets["fate"] == fate]
        return packets


@dataclass(frozen=True, eq=False)
class CardTrace:
    """The record of a simulation.

    Attributes:
        scenario: the simulated scenario.
        policy: the policy of sharing the card.
        seed: random seed.
        graphs: packets of each graph, by its name.
        utilisation: share of time in which each region's tasks accepted packets; shape (bins,
            regions).
        work: area that each tenant's packets kept busy, over the whole area; shape (bins, tenants).
        events: events in the order of time.
    """

    scenario: Scenario
    policy: SharingPolicy
    seed: int
    graphs: Mapping[str, GraphTrace]
    utilisation: np.ndarray[Any, np.dtype[np.float64]]
    work: np.ndarray[Any, np.dtype[np.float64]]
    events: tuple[Event, ...]
