# SPDX-License-Identifier: Apache-2.0
"""A scenario to simulate: a board, its tasks, and tenants with their loads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from n3ic.systems.card.description import Series
from n3ic.systems.card.simulation.loads import Load
from n3ic.systems.card.simulation.memory import MemoryTiming
from n3ic.systems.card.simulation.regions import Chain, Costs
from n3ic.systems.card.simulation.scaling import ScalingRules


@dataclass(frozen=True)
class SimTask:
    """A network task as the simulation runs it: a pipeline that packets enter one by one.

    Attributes:
        name: full name, as graphs and chains have it.
        latency: clock cycles from a packet's start to its result.
        interval: least clock cycles between the starts of two packets.
        gbps: bandwidth of frames that it sustains at most.
        credits: packets that it may hold, those that wait at it included.
        area: of one instance, in units of the caller's.
        memory_pages: pages of its tenant's on-board memory that its packets touch.
        per_inference: whether only packets at which a flow is decided take its interval.
        turns: whether the tasks of a region that say so take turns, as those of one core do.
    """

    name: str
    latency: int = 1
    interval: int = 1
    gbps: float = math.inf
    credits: int = 8
    area: float = 1.0
    memory_pages: int = 0
    per_inference: bool = False
    turns: bool = False

    def busy(self, packet_bytes: int, clock_hz: float, decides: bool = True) -> int:
        """Clock cycles before the next packet may start."""
        if self.per_inference and not decides:
            return 1
        return max(self.interval, math.ceil(packet_bytes * 8 * clock_hz / (self.gbps * 1e9)))

    def seconds(self, packet_bytes: float, clock_hz: float, deciding: float = 1.0) -> float:
        """Mean seconds of an instance that a packet takes, a share of which decides a flow."""
        interval = self.interval
        if self.per_inference:
            return (interval * deciding + 1 - deciding) / clock_hz
        return max(interval / clock_hz, packet_bytes * 8 / (self.gbps * 1e9))


@dataclass(frozen=True)
class Board:
    """The parts of a card other than tasks.

    The cycles are SuperNIC's (section V-B): 16 to schedule a chain, and 196 ns at 250 MHz, 49
    cycles, from the parser to the port without any task.

    Attributes:
        clock_hz: of scheduler and tasks.
        schedule: cycles of one pass of the scheduler.
        schedule_interval: cycles between two decisions of the scheduler.
        head_interval: cycles between two of them about packets of one graph.
        fixed: further cycles that each packet takes once, before (two thirds) and after its tasks.
        link_gbps: of the port, in and out.
        ingress_queue: packets of a graph that may wait for its bucket.
        store: packets of a graph that may be in the card at once.
        monitor: seconds between two looks at the load.
        watchdog: cycles after which a task that gives no result is cut off.
        hold: seconds that a chain serves at least before a context switch takes its region.
        frames: pages of on-board memory.
        costs: of changing regions.
        timing: of on-board memory.
        scaling: when instances come and go.
    """

    clock_hz: float = 250e6
    schedule: int = 16
    schedule_interval: int = 1
    head_interval: int = 1
    fixed: int = 33
    link_gbps: float = 100.0
    ingress_queue: int = 256
    store: int = 64
    monitor: float = 1e-3
    watchdog: int = 10_000
    hold: float = 20e-3
    frames: int = 5120
    costs: Costs = field(default_factory=Costs)
    timing: MemoryTiming = field(default_factory=MemoryTiming)
    scaling: ScalingRules = field(default_factory=ScalingRules)

    @property
    def wire(self) -> float:
        """Seconds of the port that a byte takes."""
        return 8 / (self.link_gbps * 1e9)


@dataclass(frozen=True)
class SimGraph:
    """Packets of one UID.

    Attributes:
        name: unique on the card.
        tenant: whose it is.
        flow: the tasks that they run through.
        load: what arrives.
        entitled: packets a second that are due to it: the rate of its bucket when all is contended.
        weight: its weight where time is shared.
        burst: packets that its bucket lets through at once after a pause.
        deciding: share of packets at which its meter decides a flow.
    """

    name: str
    tenant: str
    flow: Series
    load: Load
    entitled: float
    weight: float = 1.0
    burst: float = 16.0
    deciding: float = 1.0

    @property
    def chains(self) -> tuple[Chain, ...]:
        """Series of tasks between its forks and joins, each a chain of its own."""
        return tuple(_chains(self.flow))


@dataclass(frozen=True)
class SimTenant:
    """A tenant of the card.

    Attributes:
        name: unique.
        weight: share of the regions that is due to it.
        arrives: second at which its graphs are deployed.
        leaves: second from which on it sends nothing; its chains are then de-scheduled.
        pages: on-board memory that it is entitled to.
    """

    name: str
    weight: float = 1.0
    arrives: float = 0.0
    leaves: float = math.inf
    pages: int = 512


@dataclass(frozen=True)
class PlacedChain:
    """A chain in a region.

    Attributes:
        chain: its tasks.
        owner: the only tenant that may use it; empty for all.
    """

    chain: Chain
    owner: str = ""


FailureKind = Literal["stuck", "lost"]


@dataclass(frozen=True)
class Failure:
    """Something that breaks.

    Attributes:
        at: second.
        region: where.
        kind: ``stuck``: its tasks give no more results until the watchdog has the region loaded
            again; ``lost``: the region is gone for good.
    """

    at: float
    region: int
    kind: FailureKind = "stuck"


@dataclass(frozen=True)
class Scenario:
    """All that a simulation needs besides a policy and a seed.

    Attributes:
        board: the card.
        tasks: by name.
        tenants: in order.
        graphs: of all tenants.
        regions: how many there are.
        region_area: units of area of each; tasks of a chain have to fit in.
        placed: chains at the start, a region each, from region 0.
        seconds: how long.
        failures: what breaks.
        bins: of time, for figures over time.
    """

    board: Board
    tasks: Mapping[str, SimTask]
    tenants: tuple[SimTenant, ...]
    graphs: tuple[SimGraph, ...]
    regions: int
    region_area: float
    placed: tuple[PlacedChain, ...]
    seconds: float
    failures: tuple[Failure, ...] = ()
    bins: int = 50
    tenant_of: Mapping[str, SimTenant] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tenant_of", {t.name: t for t in self.tenants})

    def times(self, graph: SimGraph) -> dict[str, float]:
        """Seconds of an instance of each task that a packet of a graph takes on average."""
        size = graph.load.mean_bytes
        return {
            name: self.tasks[name].seconds(size, self.board.clock_hz, graph.deciding)
            for name in graph.flow.tasks()
        }


def _chains(flow: Series) -> list[Chain]:
    out: list[Chain] = []
    run: list[str] = []
    for step in flow.steps:
        if isinstance(step, str):
            run.append(step)
            continue
        out += [tuple(run)] if run else []
        run = []
        for branch in step.branches:
            out += _chains(branch)
    return [*out, tuple(run)] if run else out
