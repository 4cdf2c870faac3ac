# SPDX-License-Identifier: Apache-2.0
"""Load over capacity of each stage of a site."""

from __future__ import annotations

import math
from dataclasses import dataclass

from n3ic.systems.stream.site.description import Site, SiteStage

BUSY = 0.7  # a server's share of busy time that leaves room for bursts


@dataclass(frozen=True)
class StageLoad:
    """A stage in the busiest hour.

    Attributes:
        stage: the stage.
        load: what arrives per second, at all servers.
        utilisation: load over capacity of all servers; above 1 the queue grows.
        needed: servers that would be busy for 70 % of the time.
    """

    stage: SiteStage
    load: float
    utilisation: float
    needed: int


def loads(site: Site) -> tuple[StageLoad, ...]:
    """Load, utilisation and needed servers of each stage, in the order of the description."""
    found = []
    for stage in site.stages:
        load = site.traffic.rate(stage.takes)
        needed = max(1, math.ceil(load / (stage.capacity * BUSY)))
        found.append(StageLoad(stage, load, load / (stage.capacity * stage.servers), needed))
    return tuple(found)


def bottleneck(found: tuple[StageLoad, ...]) -> StageLoad:
    """The busiest stage, the first of equals."""
    return max(found, key=lambda one: one.utilisation)
