# SPDX-License-Identifier: Apache-2.0
"""The record of a simulation: departed packets, counts, and actions of the control plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from n3ic.systems.card.control.loop import Event
from n3ic.systems.card.control.scenario import Scenario
from n3ic.systems.card.simulation.baselines import SharingPolicy


@dataclass
class DepartedPackets:
    """Packets of a graph that left, in the order of departure.

    Attributes:
        arrived: clock cycle of each packet's arrival.
        admitted: clock cycle at which it came into the packet store.
        departures: clock cycle of its departure.
        bytes: length of its frame in bytes.
        number: its number within the graph, in the order of arrival.
    """

    arrived: list[int] = field(default_factory=list)
    admitted: list[int] = field(default_factory=list)
    departures: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    number: list[int] = field(default_factory=list)


@dataclass
class GraphCounts:
    """Counts of a graph's packets.

    Attributes:
        arrived: number of packets that arrived.
        offered: their cost, at least 1 each; a packet longer than the mean costs more.
        dropped: number of dropped packets, by reason.
        queued: number of packets waiting at the ingress.
        inside: number of packets in the card.
        most_queued: maximum of ``queued`` so far.
        most_inside: maximum of ``inside`` so far.
        within: cycle and cost of each packet that its bucket paid for.
        beyond: number of packets whose first pass was beyond the guarantee.
        arrivals: cycle and length in bytes of each packet.
    """

    arrived: int = 0
    offered: float = 0.0
    dropped: dict[str, int] = field(default_factory=dict)
    queued: int = 0
    inside: int = 0
    most_queued: int = 0
    most_inside: int = 0
    within: list[tuple[int, float]] = field(default_factory=list)
    beyond: int = 0
    arrivals: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class CardTrace:
    """The record of a simulation.

    Attributes:
        scenario: the simulated scenario.
        policy: the policy of sharing the card.
        seed: random seed.
        served: packets that left, by graph.
        counts: packet counts, by graph.
        utilisation: share of time in which each region's tasks accepted packets; shape (bins,
            regions).
        work: area that each tenant's packets kept busy, over the whole area; shape (bins, tenants).
        events: events in the order of time.
    """

    scenario: Scenario
    policy: SharingPolicy
    seed: int
    served: Mapping[str, DepartedPackets]
    counts: Mapping[str, GraphCounts]
    utilisation: np.ndarray[Any, np.dtype[np.float64]]
    work: np.ndarray[Any, np.dtype[np.float64]]
    events: tuple[Event, ...]
