# SPDX-License-Identifier: Apache-2.0
"""A card under load: a board, its tasks, and tenants with their loads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from n3ic.systems.card.control.loads import Load, SimPacket
from n3ic.systems.card.control.regions import Costs, cover
from n3ic.systems.card.control.scaling import ScalingRules
from n3ic.systems.card.description import Series
from n3ic.systems.card.driver import Chain


@dataclass(frozen=True)
class SimTask:
    """A network task as the simulation runs it: a pipeline that packets enter one by one.

    Attributes:
        name: full name, as used in graphs and chains.
        latency: clock cycles from a packet's start to its result.
        interval: minimum clock cycles between the starts of two packets.
        gbps: maximum bandwidth of frames.
        credits: maximum number of packets in the task, including waiting ones.
        area: area of one instance, in the caller's units.
        per_inference: whether only packets at which a flow is decided take the interval.
        turns: whether the task takes turns with the region's other such tasks, as tasks of one core
            or one executor do.
    """

    name: str
    latency: int = 1
    interval: int = 1
    gbps: float = math.inf
    credits: int = 8
    area: float = 1.0
    per_inference: bool = False
    turns: bool = False

    def busy(self, packet_bytes: int, clock_hz: float, decides: bool = True) -> int:
        """Return the clock cycles until the next packet may start."""
        if self.per_inference and not decides:
            return 1
        return max(self.interval, math.ceil(packet_bytes * 8 * clock_hz / (self.gbps * 1e9)))

    def seconds(self, packet_bytes: float, clock_hz: float, deciding: float = 1.0) -> float:
        """Return the mean seconds that a packet takes of an instance.

        Args:
            packet_bytes: mean length of a frame.
            clock_hz: clock of the task.
            deciding: share of packets at which a flow is decided.
        """
        interval = self.interval
        if self.per_inference:
            return (interval * deciding + 1 - deciding) / clock_hz
        return max(interval / clock_hz, packet_bytes * 8 / (self.gbps * 1e9))


@dataclass(frozen=True)
class Board:
    """The parts of a card other than tasks.

    The defaults are SuperNIC's (section V-B): 16 cycles to schedule a chain, and 196 ns at 250 MHz
    (49 cycles) from the parser to the port without any task.

    Attributes:
        clock_hz: clock of the scheduler and the tasks.
        schedule: cycles of one pass of the scheduler.
        schedule_interval: cycles between two decisions of the scheduler.
        head_interval: cycles between two decisions about packets of the same graph.
        fixed: further cycles that each packet takes once, two thirds before its tasks and a third
            after.
        link_gbps: bandwidth of the port, in and out.
        ingress_queue: maximum number of a graph's packets that wait for room in the card.
        store: maximum number of a graph's packets in the card.
        monitor: seconds between two measurements of the load.
        watchdog: cycles after which a task without a result is cut off.
        hold: minimum seconds that a chain serves before a context switch takes its region.
        costs: duration of changes of regions.
        scaling: thresholds of scaling.
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
    costs: Costs = field(default_factory=Costs)
    scaling: ScalingRules = field(default_factory=ScalingRules)

    @property
    def wire(self) -> float:
        """Seconds that a byte takes on the port."""
        return 8 / (self.link_gbps * 1e9)


@dataclass(frozen=True)
class SimGraph:
    """A graph of tasks with its traffic: the packets of one UID.

    Attributes:
        name: name, unique on the card.
        tenant: name of its tenant.
        flow: tasks that its packets run through.
        load: traffic that arrives.
        entitled: packets per second that it is entitled to, which is the rate of its bucket if all
            contend.
        weight: weight in the sharing of time.
        burst: packets that its bucket admits at once after a pause.
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
        """The series of tasks between forks and joins, each as a chain of its own."""
        return tuple(_chains(self.flow))


@dataclass(frozen=True)
class SimTenant:
    """A tenant of the card.

    Attributes:
        name: name, unique on the card.
        weight: weight of the tenant in the sharing of regions.
        arrives: second at which its graphs are deployed.
        leaves: second from which on it sends nothing; its chains are then de-scheduled.
    """

    name: str
    weight: float = 1.0
    arrives: float = 0.0
    leaves: float = math.inf


@dataclass(frozen=True)
class PlacedChain:
    """A chain in a region.

    Attributes:
        chain: tasks of the chain.
        owner: the only tenant that may use it; empty for all.
    """

    chain: Chain
    owner: str = ""


FailureKind = Literal["stuck", "lost"]


@dataclass(frozen=True)
class Failure:
    """A failure of a region.

    Attributes:
        at: time in seconds.
        region: number of the region.
        kind: ``stuck``: its tasks give no results until the watchdog has the region reloaded.
            ``lost``: the region is gone for good.
    """

    at: float
    region: int
    kind: FailureKind = "stuck"


@dataclass(frozen=True)
class Scenario:
    """A card and its load: all that its control needs; a simulation also has a seed and a policy.

    Attributes:
        board: the card.
        tasks: tasks by name.
        tenants: tenants in order.
        graphs: graphs of all tenants.
        regions: number of regions.
        region_area: area of each region; the tasks of its chain must fit in it.
        placed: chains at the start, one for each region from region 0.
        seconds: simulated time.
        failures: failures of regions.
        exported: chain of each bitstream that there is; empty if one can be made of any chain.
        bins: number of bins for figures over time.
        tenant_of: tenants by name.
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
    exported: tuple[Chain, ...] = ()
    bins: int = 50
    tenant_of: Mapping[str, SimTenant] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # The class is frozen; a dataclass assigns its own fields in the same way.
        object.__setattr__(self, "tenant_of", {t.name: t for t in self.tenants})

    def chains_used(self, *, at_start: bool) -> tuple[PlacedChain, ...]:
        """Return the placed chains that somebody uses; a region whose chain nobody uses is empty.

        Args:
            at_start: whether only tenants count that are there at the start.
        """
        absent = {t.name for t in self.tenants if t.arrives > 0} if at_start else set()
        used = {task for g in self.graphs if g.tenant not in absent for task in g.flow.tasks()}
        return tuple(p if used & set(p.chain) else PlacedChain(()) for p in self.placed)

    def split(self, chain: Chain) -> tuple[Chain, ...]:
        """Split a chain into parts that each fit a region, or cover it with exported chains."""
        if self.exported:
            tasks = {task for each in self.exported for task in each}
            own = tuple(task for task in chain if task in tasks)
            return tuple(self.exported[i] for i in cover(own, dict(enumerate(self.exported))))
        parts: list[Chain] = []
        room = 0.0
        for task in chain:
            area = self.tasks[task].area
            if not parts or area > room + 1e-9:
                parts.append(())
                room = self.region_area
            parts[-1] = (*parts[-1], task)
            room -= area
        return tuple(parts)

    def packets(self, graph: SimGraph, seed: int) -> Iterator[SimPacket]:
        """Generate the packets of a graph while its tenant is there, in the order of time.

        Args:
            graph: one of the scenario's graphs.
            seed: random seed; each graph has a stream of its own.
        """
        tenant = self.tenant_of[graph.tenant]
        rng = np.random.default_rng([seed, 0, self.graphs.index(graph)])
        for packet in graph.load.packets(rng):
            at = tenant.arrives + packet.time
            if at >= min(tenant.leaves, self.seconds):
                return
            yield SimPacket(at, packet.bytes)

    def times(self, graph: SimGraph) -> dict[str, float]:
        """Return the mean seconds that a packet of a graph takes of each task's instance."""
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
