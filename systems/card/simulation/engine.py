# SPDX-License-Identifier: Apache-2.0
"""Simulate a card: the path of its packets from ingress to port."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic.systems.card.control.loads import OVERHEAD_BYTES
from n3ic.systems.card.control.loads import SimPacket as Arrival
from n3ic.systems.card.control.loop import ControlLoop
from n3ic.systems.card.control.scenario import Failure, Scenario, SimGraph
from n3ic.systems.card.description import Parallel, Series
from n3ic.systems.card.drfq import VirtualClock
from n3ic.systems.card.driver import Chain
from n3ic.systems.card.simulation.baselines import SharingPolicy, placement
from n3ic.systems.card.simulation.colours import Colour, TokenBucket
from n3ic.systems.card.simulation.driver import SimulatedRegions
from n3ic.systems.card.simulation.scheduler import ChainInstance, Grant, Scheduler, Server
from n3ic.systems.card.simulation.trace import CardTrace, DepartedPackets, GraphCounts

if TYPE_CHECKING:
    import simpy

    Steps = Generator[simpy.Event, Any, None]

_PROGRESS_STEPS = 100


class _CutOffError(Exception):
    """A packet was cut off in a task that gave no result."""


@dataclass
class _Packet:
    graph: SimGraph
    number: int
    arrival: Arrival
    arrived: int
    tag: tuple[float, int] = (0.0, 0)
    colour: Colour | None = None
    admitted: int = 0
    decides: bool = True
    passes: int = 0


@dataclass
class _Lane:
    """State of a graph: its queue, its bucket and the order of its packets."""

    graph: SimGraph
    bucket: TokenBucket
    queue: deque[_Packet] = field(default_factory=deque)
    wake: simpy.Event | None = None
    next_out: int = 0
    next_number: int = 0
    finished: dict[int, _Packet | None] = field(default_factory=dict)


def simulate(
    scenario: Scenario,
    policy: SharingPolicy,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> CardTrace:
    """Simulate a card.

    Args:
        scenario: board, tasks, tenants and their loads.
        policy: how the card is shared.
        seed: random seed; the same seed gives the same packets under every policy.
        progress: called with the completed fraction, 0 to 1.
    """
    return _Simulation(scenario, policy, seed).run(progress)


class _Simulation:
    def __init__(self, scenario: Scenario, policy: SharingPolicy, seed: int) -> None:
        import simpy

        self.scenario, self.policy, self.seed = scenario, policy, seed
        board = scenario.board
        self.env = simpy.Environment()
        self.hz = board.clock_hz
        self.scheduler = Scheduler(self.env, board.schedule_interval, board.head_interval)
        self.served = {g.name: DepartedPackets() for g in scenario.graphs}
        self.counts = {g.name: GraphCounts() for g in scenario.graphs}
        self.lanes = {
            g.name: _Lane(g, TokenBucket(g.entitled / self.hz, g.burst)) for g in scenario.graphs
        }
        buckets = {name: lane.bucket for name, lane in self.lanes.items()}
        placed = placement(policy, scenario)
        self.card = SimulatedRegions(
            self.env,
            scenario,
            self.scheduler,
            self.counts,
            buckets,
            placed,
            chained=policy.chained,
        )
        chains = [p.chain for p in placed]
        self.control = ControlLoop(scenario, self.card, chains, adapts=policy.adapts)
        self.clock = VirtualClock()
        self.tie = 0
        self.egress_free = 0.0
        self.region_busy = np.zeros(scenario.regions)
        self.tenant_work = {t.name: 0.0 for t in scenario.tenants}
        self.samples: list[tuple[np.ndarray[Any, Any], list[float]]] = []
        self.random = {
            g.name: np.random.default_rng([seed, 1, i]) for i, g in enumerate(scenario.graphs)
        }

    def _cycles(self, seconds: float) -> int:
        return math.ceil(seconds * self.hz - 1e-6)

    # -- the path of a packet -----------------------------------------------------------------

    def _source(self, lane: _Lane) -> Steps:
        graph, counts, board = lane.graph, self.counts[lane.graph.name], self.scenario.board
        mean, rng = graph.load.mean_bytes, self.random[graph.name]
        # A stream of its own: the draws for decisions must not shift the arrivals between policies.
        for arrival in self.scenario.packets(graph, self.seed):
            yield self.env.timeout(max(0, self._cycles(arrival.time) - int(self.env.now)))
            counts.arrived += 1
            counts.arrivals.append((int(self.env.now), arrival.bytes))
            cost = max(1.0, arrival.bytes / mean)
            # Counted before the queue may drop it: the control plane needs the offered load.
            counts.offered += cost
            if counts.queued >= board.ingress_queue:
                self._drop(lane, "ingress")
                continue
            packet = _Packet(graph, lane.next_number, arrival, int(self.env.now))
            packet.decides = graph.deciding >= 1 or bool(rng.random() < graph.deciding)
            lane.next_number += 1
            lane.queue.append(packet)
            counts.queued += 1
            counts.most_queued = max(counts.most_queued, counts.queued)
            self._wake(lane)

    def _drop(self, lane: _Lane, reason: str) -> None:
        dropped = self.counts[lane.graph.name].dropped
        dropped[reason] = dropped.get(reason, 0) + 1

    def _wake(self, lane: _Lane) -> None:
        if lane.wake is not None:
            event, lane.wake = lane.wake, None
            event.succeed()

    def _gate(self, lane: _Lane) -> Steps:
        """Let a graph's packets in, as its part of the packet store allows."""
        counts, board = self.counts[lane.graph.name], self.scenario.board
        while True:
            while not lane.queue or counts.inside >= board.store:
                lane.wake = self.env.event()
                yield lane.wake
            packet = lane.queue.popleft()
            counts.queued -= 1
            counts.inside += 1
            counts.most_inside = max(counts.most_inside, counts.inside)
            packet.admitted = int(self.env.now)
            self.env.process(self._pass(lane, packet))

    def _pass(self, lane: _Lane, packet: _Packet) -> Steps:
        before = self.scenario.board.fixed * 2 // 3
        if before:
            yield self.env.timeout(before)
        self.control.use(lane.graph.name, self._now)
        self._tag(lane, packet)
        finished: _Packet | None = packet
        try:
            yield from self._series(packet, packet.graph.flow)
        except _CutOffError:
            self._drop(lane, "cut-off")
            finished = None
        after = self.scenario.board.fixed - before
        if after:
            yield self.env.timeout(after)
        lane.finished[packet.number] = finished
        self._release(lane)

    def _tag(self, lane: _Lane, packet: _Packet) -> None:
        """Set a packet's virtual start time (DRFQ, or fair queueing over bytes) and its colour."""
        graph = packet.graph
        if self.policy.name == "per-task":
            cost = packet.arrival.bytes * self.scenario.board.wire
        else:
            counts = self.scheduler.running
            cost = max(
                self.scenario.tasks[t].busy(packet.arrival.bytes, self.hz, packet.decides)
                / self.hz / max(1, counts.get(t, 1))
                for t in graph.flow.tasks()
            )  # fmt: skip
        # Packets with equal start times are served in the order of their arrival.
        self.tie += 1
        packet.tag = (self.clock.start(graph.name, cost, graph.weight), self.tie)
        if self.policy.adapts:
            tokens = max(1.0, packet.arrival.bytes / graph.load.mean_bytes)
            packet.colour = Colour(lane.bucket, tokens, cost / graph.weight)

    def _series(self, packet: _Packet, series: Series) -> Steps:
        run: list[str] = []
        for step in series.steps:
            if isinstance(step, str):
                run.append(step)
                continue
            yield from self._tasks(packet, tuple(run))
            run = []
            yield from self._fork(packet, step)
        yield from self._tasks(packet, tuple(run))

    def _fork(self, packet: _Packet, parallel: Parallel) -> Steps:
        """Run branches at the same time; the synchronisation buffer waits for all of them."""

        def branch(series: Series) -> Generator[simpy.Event, Any, bool]:
            try:
                yield from self._series(packet, series)
            except _CutOffError:
                return False
            return True

        parts = [self.env.process(branch(series)) for series in parallel.branches]
        yield self.env.all_of(parts)
        if not all(part.value for part in parts):
            raise _CutOffError

    def _tasks(self, packet: _Packet, tasks: Chain) -> Steps:
        """Run a series of tasks, in as many passes of the scheduler as necessary."""
        while tasks:
            graph = packet.graph
            colour, counts = packet.colour, self.counts[graph.name]
            was_paid = colour is not None and colour.paid
            grant: Grant = yield self.scheduler.request(
                graph.name, graph.tenant, packet.tag, tasks, colour
            )
            self.clock.served(packet.tag[0])
            if colour is not None and colour.paid and not was_paid:
                counts.within.append((int(self.env.now), colour.cost))
            if colour is not None and not colour.paid and not packet.passes:
                counts.beyond += 1
            packet.passes += 1
            yield self.env.timeout(grant.wait + self.scenario.board.schedule)
            finished = yield from self._chain(packet, grant, tasks)
            tasks = tasks[finished:]

    def _chain(
        self, packet: _Packet, grant: Grant, tasks: Chain
    ) -> Generator[simpy.Event, Any, int]:
        """Run a packet through an instance; return the number of tasks that it completed."""
        instance, reserved = grant.instance, len(grant.tasks)
        finished = 0
        while finished < len(tasks) and tasks[finished] in instance.servers:
            name = tasks[finished]
            server = instance.servers[name]
            if finished >= reserved:
                order = instance.chain
                # A chain passes its tasks in order only; a task at or before the last one needs a
                # new pass.
                behind = finished and order.index(name) <= order.index(tasks[finished - 1])
                if behind or not server.free or not self.policy.chained:
                    break
                server.free -= 1
            if instance.stuck:
                yield from self._cut_off(instance, grant.tasks[finished:])
            busy = server.task.busy(packet.arrival.bytes, self.hz, packet.decides)
            leaves = server.enter(int(self.env.now), busy, server.task.latency)
            self._account(packet, instance, server, busy)
            yield self.env.timeout(leaves - int(self.env.now))
            # The task may have got stuck while it held the packet.
            if instance.stuck:
                yield from self._cut_off(instance, grant.tasks[finished:])
            server.free += 1
            finished += 1
            self.scheduler.dispatch()
        return finished

    def _account(self, packet: _Packet, instance: ChainInstance, server: Server, busy: int) -> None:
        task = server.task
        self.region_busy[instance.region] += busy * task.area
        self.tenant_work[packet.graph.tenant] += busy * task.area

    def _cut_off(self, instance: ChainInstance, tasks: Chain) -> Steps:
        """Cut off a stuck task: the watchdog drops its packets and reloads the region."""
        yield self.env.timeout(self.scenario.board.watchdog)
        for name in tasks:
            instance.servers[name].free += 1
        if instance.open:
            self.control.restart(instance.region, self._now)
        raise _CutOffError

    def _release(self, lane: _Lane) -> None:
        """Send packets whose predecessors have left, so that a graph's packets keep their order."""
        counts = self.counts[lane.graph.name]
        while lane.next_out in lane.finished:
            packet = lane.finished.pop(lane.next_out)
            lane.next_out += 1
            if packet is None:
                counts.inside -= 1
                self._wake(lane)
                continue
            wire = (packet.arrival.bytes + OVERHEAD_BYTES) * self.scenario.board.wire * self.hz
            start = max(float(self.env.now), self.egress_free)
            self.egress_free = start + wire
            self.env.process(self._depart(lane, packet, math.ceil(start)))

    def _depart(self, lane: _Lane, packet: _Packet, at: int) -> Steps:
        if at > self.env.now:
            yield self.env.timeout(at - int(self.env.now))
        served = self.served[lane.graph.name]
        served.arrived.append(packet.arrived)
        served.admitted.append(packet.admitted)
        served.departures.append(int(self.env.now))
        served.bytes.append(packet.arrival.bytes)
        served.number.append(packet.number)
        self.counts[lane.graph.name].inside -= 1
        self._wake(lane)

    def _sample(self) -> Steps:
        step = max(1, self._cycles(self.scenario.seconds / self.scenario.bins))
        for _ in range(self.scenario.bins):
            # simpy stops before the events of the last cycle; a first bin shorter by one cycle
            # keeps the last.
            yield self.env.timeout(step - (1 if not self.samples else 0))
            self.samples.append((self.region_busy.copy(), list(self.tenant_work.values())))

    # -- control ------------------------------------------------------------------------------

    def _start_control(self) -> None:
        """Start to monitor the load, and wait for tenants that arrive and for failures."""
        if self.policy.adapts:
            self.env.process(self._monitor())
            for tenant in self.scenario.tenants:
                if tenant.arrives > 0:
                    self.env.process(self._deploy(tenant.name, tenant.arrives))
        for failure in self.scenario.failures:
            self.env.process(self._fail(failure))

    def _monitor(self) -> Steps:
        while True:
            yield self.env.timeout(self._cycles(self.scenario.board.monitor))
            self.control.step(self._now)

    def _deploy(self, tenant: str, at: float) -> Steps:
        yield self.env.timeout(self._cycles(at))
        self.control.deploy(tenant, self._now)

    def _fail(self, failure: Failure) -> Steps:
        yield self.env.timeout(self._cycles(failure.at))
        for instance in self.card.instances(failure.region):
            instance.stuck = True
        if failure.kind == "lost":
            self.control.lose(failure.region, self._now)

    @property
    def _now(self) -> float:
        return float(self.env.now) / self.hz

    # -- the run -----------------------------------------------------------------------------

    def run(self, progress: Callable[[float], None]) -> CardTrace:
        scenario = self.scenario
        for lane in self.lanes.values():
            self.env.process(self._source(lane))
            self.env.process(self._gate(lane))
        self._start_control()
        self.env.process(self._sample())
        end = self._cycles(scenario.seconds)
        for step in range(1, _PROGRESS_STEPS + 1):
            until = end * step // _PROGRESS_STEPS
            if until > self.env.now:
                self.env.run(until=until)
            progress(step / _PROGRESS_STEPS)
        return self._trace()

    def _trace(self) -> CardTrace:
        scenario = self.scenario
        busy = np.diff([np.zeros(scenario.regions), *(s[0] for s in self.samples)], axis=0)
        none = [0.0] * len(scenario.tenants)
        work = np.diff([none, *(s[1] for s in self.samples)], axis=0)
        cycles = self._cycles(scenario.seconds / scenario.bins) * scenario.region_area
        return CardTrace(
            scenario,
            self.policy,
            self.seed,
            self.served,
            self.counts,
            busy / cycles,
            work / (cycles * scenario.regions),
            tuple(self.control.events),
        )
