# SPDX-License-Identifier: Apache-2.0
"""A site's traffic and stages, read from TOML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from n3ic.errors import DataError
from n3ic.targets.figures import FigureKind
from n3ic.util.plain_data import from_plain
from n3ic.util.structured import read_toml

Quantity = Literal[
    "decided", "shunted", "recorded", "record bytes", "capture bytes", "capture packets", "labels"
]
DEFAULT = Path(__file__).with_name("site.toml")
_DAY = 86_400.0  # seconds
_LARGEST = 1 << 20  # bytes of a description
_MOST_SERVERS = 1_000_000


@dataclass(frozen=True)
class SiteTraffic:
    """What the cards of a site decide, and what is kept of it.

    Attributes:
        cards: number of cards.
        flows: flows that a card decides per second in the busiest hour.
        day: the day's mean rate divided by that of the busiest hour.
        shunted: share of the flows that the card leaves to its host.
        recorded: share of the flows whose records are kept.
        record: bytes of a record.
        captures: bytes of captures per day.
        packet: bytes of a captured packet, on average.
        labels: flows that get a label per second, in the whole site.
    """

    cards: int
    flows: float
    day: float
    shunted: float
    recorded: float
    record: float
    captures: float
    packet: float
    labels: float

    def rate(self, quantity: Quantity) -> float:
        """A quantity per second, in the busiest hour and the whole site."""
        decided = self.cards * self.flows
        # Captures grow with the traffic, so the busiest hour writes more than the mean.
        captures = self.captures / _DAY / self.day
        return {
            "decided": decided,
            "shunted": decided * self.shunted,
            "recorded": decided * self.recorded,
            "record bytes": decided * self.recorded * self.record,
            "capture bytes": captures,
            "capture packets": captures / self.packet,
            "labels": self.labels,
        }[quantity]


@dataclass(frozen=True)
class SiteStage:
    """Servers behind the cards that handle one quantity.

    Attributes:
        name: name of the stage.
        takes: the quantity that it handles.
        capacity: how much of it one server handles per second.
        servers: number of parallel servers; a card always uses the same one.
        kind: whether the capacity is measured, simulated or estimated.
        source: how the capacity was found.
        room: how much may wait at one server; None for a stage that shunted flows do not pass.
    """

    name: str
    takes: Quantity
    capacity: float
    servers: int
    kind: FigureKind
    source: str
    room: int | None = None


@dataclass(frozen=True)
class Site:
    """The traffic and the stages of a site."""

    traffic: SiteTraffic
    stages: tuple[SiteStage, ...]


def read_site(path: Path) -> Site:
    """Read a site's description.

    Raises:
        DataError: The file cannot be read or is not TOML of this form, or a number is out of range.
    """
    data = read_toml(path, _LARGEST, DataError, "the description of a site")
    try:
        site = from_plain(Site, data, strict=True)
    except ValueError as error:
        raise DataError(f"{path}: not the description of a site: {error}") from error
    for what, good in _checks(site):
        if not good:
            raise DataError(f"{path}: expected {what}")
    return site


def _checks(site: Site) -> list[tuple[str, bool]]:
    t = site.traffic
    return [
        ("cards from 1 to 1,000,000", 1 <= t.cards <= _MOST_SERVERS),
        (
            "flows, record, captures and labels of 0 or more",
            min(t.flows, t.record, t.captures, t.labels) >= 0,
        ),
        (
            "shares from 0 to 1 in shunted and recorded",
            all(0 <= share <= 1 for share in (t.shunted, t.recorded)),
        ),
        ("day above 0 and at most 1", 0 < t.day <= 1),
        ("packet of 1 byte or more", t.packet >= 1),
        (
            "one stage or more, of different names",
            0 < len(site.stages) == len({s.name for s in site.stages}),
        ),
        *(
            (
                f"{s.name}: capacity above 0, servers from 1 to 1,000,000, room of 1 or more",
                s.capacity > 0
                and 1 <= s.servers <= _MOST_SERVERS
                and (s.room is None or s.room >= 1),
            )
            for s in site.stages
        ),
    ]
