# SPDX-License-Identifier: Apache-2.0
"""Computes load over capacity for each stage of a site."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scripts.stream_site.description import Site, SiteStage

BUSY = 0.7  # a server's share of busy time that leaves room for bursts


@dataclass(frozen=True)
class StageLoad:
    """A stage in the busiest hour.

    Attributes:
        stage: the stage.
        load: what arrives per second at all servers together.
        utilisation: load over the capacity of all servers; above 1, the queue grows.
        needed: number of servers with which each is busy for at most 70 % of the time.
    """

    stage: SiteStage
    load: float
    utilisation: float
    needed: int


def loads(site: Site) -> tuple[StageLoad, ...]:
    """Compute load, utilisation and needed servers of each stage, in the description's order."""
    stage_loads = []
    for stage in site.stages:
        load = site.traffic.rate(stage.takes)
        needed = max(1, math.ceil(load / (stage.capacity * BUSY)))
        stage_loads.append(StageLoad(stage, load, load / (stage.capacity * stage.servers), needed))
    return tuple(stage_loads)


def bottleneck(stage_loads: tuple[StageLoad, ...]) -> StageLoad:
    """The busiest stage; the first one if several are equal."""
    return max(stage_loads, key=lambda one: one.utilisation)
