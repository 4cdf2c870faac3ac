# SPDX-License-Identifier: Apache-2.0
"""The record of a simulation: departed packets, counts, and actions of the control plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from n3ic.systems.card.simulation.baselines import SharingPolicy
from n3ic.systems.card.simulation.regions import Chain
from n3ic.systems.card.simulation.scenario import Scenario


@dataclass
class DepartedPackets:
    """Packets of a graph that left, in the order of departure.

    Attributes:
        arrived: clock cycle of each packet's arrival.
        admitted: clock cycle at which its bucket admitted it.
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
        dropped: number of dropped packets, by reason.
        queued: number of packets waiting at the ingress.
        inside: number of packets in the card.
        most_queued: maximum of ``queued`` so far.
        most_inside: maximum of ``inside`` so far.
        admitted: cycle and cost of each packet that the bucket admitted.
        arrivals: cycle and length in bytes of each packet.
    """

    arrived: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    queued: int = 0
    inside: int = 0
    most_queued: int = 0
    most_inside: int = 0
    admitted: list[tuple[int, float]] = field(default_factory=list)
    arrivals: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Event:
    """An action of the control plane, or a failure.

    Attributes:
        time: time in seconds.
        what: the way a chain was launched, or ``de-schedule``, ``cut-off`` or ``lost``.
        region: number of the region; -1 if the event concerns no region.
        chain: tasks of the chain.
    """

    time: float
    what: str
    region: int
    chain: Chain


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
        rates: changes of each graph's bucket, as pairs of cycle and packets per second.
    """

    scenario: Scenario
    policy: SharingPolicy
    seed: int
    served: Mapping[str, DepartedPackets]
    counts: Mapping[str, GraphCounts]
    utilisation: np.ndarray[Any, np.dtype[np.float64]]
    work: np.ndarray[Any, np.dtype[np.float64]]
    events: tuple[Event, ...]
    rates: Mapping[str, tuple[tuple[int, float], ...]]
