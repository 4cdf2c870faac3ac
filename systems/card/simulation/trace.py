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
    """Packets of a graph that left, in the order in which they did; times in clock cycles."""

    arrived: list[int] = field(default_factory=list)
    admitted: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    number: list[int] = field(default_factory=list)


@dataclass
class GraphCounts:
    """Counts of a graph's packets.

    Attributes:
        arrived: packets that came.
        arrivals: cycle and bytes of each.
        dropped: by reason.
        queued: those that wait at the ingress.
        inside: those in the card.
        most_queued: the most that ever waited.
        most_inside: the most that ever were in the card.
        admitted: cycle and cost of each that its bucket let through.
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
    """Something that was done about the load or a failure, for reports.

    Attributes:
        time: second.
        what: how a chain was launched, ``de-schedule``, ``cut-off``, ``lost``.
        region: where; -1 for none.
        chain: of which tasks.
    """

    time: float
    what: str
    region: int
    chain: Chain


@dataclass(frozen=True, eq=False)
class CardTrace:
    """The record of a simulation.

    Attributes:
        scenario: what was simulated.
        policy: how the card was shared.
        seed: of what was random.
        served: packets that left, by graph.
        counts: by graph.
        utilisation: (bins, regions) share of time in which a region's tasks took packets.
        work: (bins, tenants) area that a tenant's packets kept busy, over all area.
        events: in the order of their times.
        rates: cycle and rate, packets a second, of each graph's bucket, as it changed.
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
