"""A simulation of a card: packets from ingress to port, and what is done about the load."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic.card.description import Parallel, Series
from n3ic.card.simulation.baselines import Policy, placement, split
from n3ic.card.simulation.ingress import TokenBucket
from n3ic.card.simulation.loads import OVERHEAD_BYTES
from n3ic.card.simulation.loads import Packet as Arrival
from n3ic.card.simulation.memory import PAGE_BYTES, Memory, Segment
from n3ic.card.simulation.regions import Chain, Launch, Region, Regions
from n3ic.card.simulation.scaling import Scaling, scaled
from n3ic.card.simulation.scenario import Failure, Scenario, SimGraph
from n3ic.card.simulation.scheduler import Grant, Instance, Scheduler, Server, Turns
from n3ic.card.simulation.throttle import Demand, fair_rates

if TYPE_CHECKING:
    import simpy

    Steps = Generator[simpy.Event, Any, None]

_PROGRESS_STEPS = 100


@dataclass
class Served:
    """Packets of a graph that left, in the order in which they did; times in clock cycles."""

    arrived: list[int] = field(default_factory=list)
    admitted: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    number: list[int] = field(default_factory=list)


@dataclass
class GraphCounts:
    """What became of a graph's packets.

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
class Trace:
    """All that a simulation saw.

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
    policy: Policy
    seed: int
    served: Mapping[str, Served]
    counts: Mapping[str, GraphCounts]
    utilisation: np.ndarray[Any, np.dtype[np.float64]]
    work: np.ndarray[Any, np.dtype[np.float64]]
    events: tuple[Event, ...]
    rates: Mapping[str, tuple[tuple[int, float], ...]]


class _CutOffError(Exception):
    """A packet was in a task that gave no result."""


@dataclass
class _Packet:
    graph: SimGraph
    number: int
    arrival: Arrival
    arrived: int
    tag: tuple[float, int] = (0.0, 0)
    admitted: int = 0
    decides: bool = True
    passes: int = 0


@dataclass
class _Lane:
    """State of a graph: its queue, its bucket, the order of its packets."""

    graph: SimGraph
    bucket: TokenBucket
    queue: deque[_Packet] = field(default_factory=deque)
    wake: simpy.Event | None = None
    next_out: int = 0
    next_number: int = 0
    finished: dict[int, _Packet | None] = field(default_factory=dict)
    window: float = 0.0  # cost of what arrived in this monitoring window
    ensured: float = -math.inf


def simulate(
    scenario: Scenario,
    policy: Policy,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> Trace:
    """Simulate a card.

    Args:
        scenario: board, tasks, tenants and what they offer.
        policy: how the card is shared.
        seed: of all that is random; the same seed gives the same packets under every policy.
        progress: told how far it is, from 0 to 1.
    """
    return _Simulation(scenario, policy, seed).run(progress)


class _Simulation:
    def __init__(self, scenario: Scenario, policy: Policy, seed: int) -> None:
        import simpy

        self.scenario, self.policy, self.seed = scenario, policy, seed
        board = scenario.board
        self.env = simpy.Environment()
        self.hz = board.clock_hz
        self.scheduler = Scheduler(self.env, board.schedule_interval)
        self.lanes = {
            g.name: _Lane(g, TokenBucket(g.entitled / self.hz, g.burst)) for g in scenario.graphs
        }
        self.served = {g.name: Served() for g in scenario.graphs}
        self.counts = {g.name: GraphCounts() for g in scenario.graphs}
        self.rates: dict[str, list[tuple[int, float]]] = {g.name: [] for g in scenario.graphs}
        self.events: list[Event] = []
        self.scaling: dict[Chain, Scaling] = {}
        self.virtual = 0.0
        self.finish = {g.name: 0.0 for g in scenario.graphs}
        self.tie = 0
        self.egress_free = 0.0
        self.region_busy = np.zeros(scenario.regions)
        self.tenant_work = {t.name: 0.0 for t in scenario.tenants}
        self.samples: list[tuple[np.ndarray[Any, Any], list[float]]] = []
        self.memory = Memory(board.frames, {t.name: t.pages for t in scenario.tenants})
        self.random = {
            g.name: np.random.default_rng([seed, 1, i]) for i, g in enumerate(scenario.graphs)
        }
        self._place()
        self._map_memory()

    # -- regions -----------------------------------------------------------------------------

    def _place(self) -> None:
        scenario, policy = self.scenario, self.policy
        placed = placement(policy, scenario)
        regions = []
        for i in range(scenario.regions):
            chain = placed[i].chain if i < len(placed) else ()
            regions.append(Region(chain, scheduled=bool(chain)))
        self.regions = Regions(tuple(regions), scenario.board.costs)
        for i, part in enumerate(placed[: scenario.regions]):
            if part.chain:
                self._open(i, part.chain, part.owner)
        self.owners = [p.owner for p in placed]

    def _open(self, region: int, chain: Chain, owner: str = "") -> None:
        parts = (chain,) if self.policy.chained else tuple((task,) for task in chain)
        turns = Turns()
        for part in parts:
            servers = {}
            for name in part:
                task = self.scenario.tasks[name]
                servers[name] = Server(task, turns if task.turns else Turns())
            self.scheduler.add(Instance(region, part, servers, owner))

    def _instances(self, region: int) -> list[Instance]:
        return [i for i in self.scheduler if i.region == region]

    def _log(self, what: str, region: int, chain: Chain) -> None:
        self.events.append(Event(self._now, what, region, chain))

    @property
    def _now(self) -> float:
        return float(self.env.now) / self.hz

    def _cycles(self, seconds: float) -> int:
        return math.ceil(seconds * self.hz - 1e-6)

    def _map_memory(self) -> None:
        for tenant in self.scenario.tenants:
            names = {n for g in self.scenario.graphs if g.tenant == tenant.name
                     for n in g.flow.tasks()}  # fmt: skip
            pages = sum(self.scenario.tasks[n].memory_pages for n in names)
            if pages:
                self.memory.map(tenant.name, (Segment(0, pages),))

    # -- a packet's way ----------------------------------------------------------------------

    def _source(self, lane: _Lane) -> Steps:
        graph, counts, board = lane.graph, self.counts[lane.graph.name], self.scenario.board
        tenant = self.scenario.tenant_of[graph.tenant]
        mean, rng = graph.load.mean_bytes, self.random[graph.name]
        arrivals = np.random.default_rng([self.seed, 0, self.scenario.graphs.index(graph)])
        for arrival in graph.load.packets(arrivals):
            at = tenant.arrives + arrival.time
            if at >= min(tenant.leaves, self.scenario.seconds):
                return
            yield self.env.timeout(max(0, self._cycles(at) - int(self.env.now)))
            counts.arrived += 1
            counts.arrivals.append((int(self.env.now), arrival.bytes))
            if arrival.malformed:
                self._drop(lane, "malformed")
                continue
            cost = max(1.0, arrival.bytes / mean)
            lane.window += cost
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
        """Let a graph's packets in, as its bucket and its part of the packet store allow."""
        counts, board = self.counts[lane.graph.name], self.scenario.board
        mean = lane.graph.load.mean_bytes
        while True:
            while not lane.queue or counts.inside >= board.store:
                lane.wake = self.env.event()
                yield lane.wake
            packet = lane.queue[0]
            cost = max(1.0, packet.arrival.bytes / mean)
            if self.policy.adapts:
                wait = lane.bucket.wait(cost, int(self.env.now))
                if wait:
                    # no longer than to the next look at the load, which may change the rate
                    yield self.env.timeout(min(wait, self._cycles(board.monitor)))
                    continue
                lane.bucket.take(cost, int(self.env.now))
            lane.queue.popleft()
            counts.queued -= 1
            counts.inside += 1
            counts.most_inside = max(counts.most_inside, counts.inside)
            counts.admitted.append((int(self.env.now), cost))
            packet.admitted = int(self.env.now)
            self.env.process(self._pass(lane, packet))

    def _pass(self, lane: _Lane, packet: _Packet) -> Steps:
        before = self.scenario.board.fixed * 2 // 3
        if before:
            yield self.env.timeout(before)
        self._ensure(lane)
        self._tag(packet)
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

    def _tag(self, packet: _Packet) -> None:
        """Virtual start time: DRFQ's, or that of fair queueing by bytes."""
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
        start = max(self.virtual, self.finish[graph.name])
        self.finish[graph.name] = start + cost / graph.weight
        self.tie += 1
        packet.tag = (start, self.tie)

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
        """Branches at the same time; the synchronisation buffer waits for all of them."""

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
        """A run of tasks, with as many passes of the scheduler as it takes."""
        while tasks:
            graph = packet.graph
            grant: Grant = yield self.scheduler.request(graph.name, graph.tenant, packet.tag, tasks)
            self.virtual = max(self.virtual, packet.tag[0])
            packet.passes += 1
            yield self.env.timeout(grant.wait + self.scenario.board.schedule)
            done = yield from self._chain(packet, grant, tasks)
            tasks = tasks[done:]

    def _chain(
        self, packet: _Packet, grant: Grant, tasks: Chain
    ) -> Generator[simpy.Event, Any, int]:
        """Through an instance; the number of tasks that were run."""
        instance, reserved = grant.instance, len(grant.tasks)
        done = 0
        while done < len(tasks) and tasks[done] in instance.servers:
            name = tasks[done]
            server = instance.servers[name]
            if done >= reserved:
                order = instance.chain
                behind = done and order.index(name) <= order.index(tasks[done - 1])
                if behind or not server.free or not self.policy.chained:
                    break
                server.free -= 1
            if instance.stuck:
                yield from self._cut_off(instance, grant.tasks[done:])
            busy = server.task.busy(packet.arrival.bytes, self.hz, packet.decides)
            extra, stall = self._memory_cycles(packet, server)
            leaves = server.enter(int(self.env.now), busy + stall, server.task.latency + extra)
            self._account(packet, instance, server, busy + stall)
            yield self.env.timeout(leaves - int(self.env.now))
            if instance.stuck:
                yield from self._cut_off(instance, grant.tasks[done:])
            server.free += 1
            done += 1
            self.scheduler.dispatch()
        return done

    def _memory_cycles(self, packet: _Packet, server: Server) -> tuple[int, int]:
        """Cycles of an access to on-board memory, and those of them that hold up the task."""
        pages = server.task.memory_pages
        if not pages:
            return 0, 0
        draw = float(self.random[packet.graph.name].random())
        page = int(pages * draw**3)  # few pages are touched often
        access = self.memory.access(packet.graph.tenant, page * PAGE_BYTES, "write")
        cycles = access.cycles(self.scenario.board.timing, self.hz)
        moved = access.swapped_in or access.swapped_out
        return cycles, cycles if moved else 0

    def _account(self, packet: _Packet, instance: Instance, server: Server, busy: int) -> None:
        task = server.task
        self.region_busy[instance.region] += busy * task.area
        self.tenant_work[packet.graph.tenant] += busy * task.area

    def _cut_off(self, instance: Instance, held: Chain) -> Steps:
        """A task gives no result: the watchdog drops what is in it and loads the region again."""
        yield self.env.timeout(self.scenario.board.watchdog)
        for name in held:
            instance.servers[name].free += 1
        if instance.open:
            self._restart(instance.region)
        raise _CutOffError

    def _release(self, lane: _Lane) -> None:
        """Send out what has no predecessor left: packets of a graph are never reordered."""
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
        served.left.append(int(self.env.now))
        served.bytes.append(packet.arrival.bytes)
        served.number.append(packet.number)
        self.counts[lane.graph.name].inside -= 1
        self._wake(lane)

    # -- what is done about the load ---------------------------------------------------------

    def _present(self, tenant: str) -> bool:
        t = self.scenario.tenant_of[tenant]
        return t.arrives <= self._now < t.leaves

    def _monitor(self) -> Steps:
        """Rates and instances by the load that is meant for tasks, not by what got through."""
        board = self.scenario.board
        loads = {name: lane.graph.entitled for name, lane in self.lanes.items()}
        while True:
            self._set_rates(loads)
            yield self.env.timeout(self._cycles(board.monitor))
            for name, lane in self.lanes.items():
                loads[name] = lane.window / board.monitor
                lane.window = 0.0
            self._scale(loads)

    def _set_rates(self, loads: Mapping[str, float]) -> None:
        instances: dict[str, float] = {
            name: float(count) for name, count in self.scheduler.running.items()
        }
        demands = {}
        for name, lane in self.lanes.items():
            graph = lane.graph
            times = self.scenario.times(graph)
            if self._present(graph.tenant) and all(t in instances for t in times):
                demands[name] = Demand(loads[name], graph.entitled, graph.weight, times)
        for name, rate in fair_rates(demands, instances).items():
            lane = self.lanes[name]
            # never below what is due, so that a tenant that comes back does not wait for a look
            rate = max(rate, lane.graph.entitled)
            lane.bucket.change(rate / self.hz, int(self.env.now))
            self.rates[name].append((int(self.env.now), rate))

    def _load_of(self, loads: Mapping[str, float]) -> dict[str, float]:
        """Instances of each task that the loads of all graphs fill."""
        out: dict[str, float] = {}
        for name, lane in self.lanes.items():
            for task, seconds in self.scenario.times(lane.graph).items():
                out[task] = out.get(task, 0.0) + loads[name] * seconds
        return out

    def _scale(self, loads: Mapping[str, float]) -> None:
        """One instance more or fewer of chains whose load asks for it and whose users may."""
        board, load = self.scenario.board, self._load_of(loads)
        counted = self.scheduler.running
        chains = sorted({c for c in self.regions.serving.values() if c})
        for chain in chains:
            where = [i for i, c in self.regions.serving.items() if c == chain]
            users = {
                lane.graph.tenant
                for lane in self.lanes.values()
                if set(chain) & set(lane.graph.flow.tasks()) and self._present(lane.graph.tenant)
            }
            others = max((counted.get(t, 0) - len(where) for t in chain), default=0)
            wanted = max(load.get(t, 0.0) for t in chain) - max(others, 0)
            due = len(where) + max((self._spare_regions(u, loads) for u in users), default=0)
            state = replace(self.scaling.get(chain, Scaling(1)), instances=len(where))
            rules = board.scaling
            if not users:
                rules = replace(rules, least=0)
            new = scaled(state, wanted, float(due) if users else 0.0, rules)
            self.scaling[chain] = replace(new, instances=len(where))
            if new.instances > len(where):
                self._more(chain, load, switch=False)
                self.scaling[chain] = Scaling(len(where))
            elif new.instances < len(where) and (others > 0 or len(where) > 1 or not users):
                self._deschedule(where[-1])
                self.scaling[chain] = Scaling(len(where))

    def _spare_regions(self, tenant: str, loads: Mapping[str, float]) -> int:
        """Whole regions that a tenant is entitled to beyond those that its load fills."""
        present = [t for t in self.scenario.tenants if self._present(t.name)]
        weight = sum(t.weight for t in present)
        if not weight:
            return 0
        fair = self.scenario.regions * self.scenario.tenant_of[tenant].weight / weight
        load = self._load_of(loads)
        own = self._load_of(
            {n: v if self.lanes[n].graph.tenant == tenant else 0.0 for n, v in loads.items()}
        )
        held = 0.0
        for chain in self.regions.serving.values():
            busiest = max(chain, key=lambda t: (load.get(t, 0.0), t), default="")
            if load.get(busiest):
                held += own.get(busiest, 0.0) / load[busiest]
        return max(0, int(fair - held + 1e-9))

    def _ensure(self, lane: _Lane) -> None:
        """See to it that a graph's tasks run somewhere; it was deployed, or lost its region."""
        if not self.policy.adapts:
            return
        for chain in lane.graph.chains:
            if self._runs(lane, chain) or self._now < lane.ensured:
                continue
            lane.ensured = self._now + self.scenario.board.monitor
            for part in split(chain, self.scenario):
                if not self._covered(part):
                    self._more(part, {}, switch=True)

    def _runs(self, lane: _Lane, chain: Chain) -> bool:
        rest = chain
        while rest:
            found = self.scheduler.candidates(lane.graph.tenant, rest)
            if not found:
                return False
            rest = rest[found[0][0] :]
        return True

    def _covered(self, chain: Chain) -> bool:
        running = {t for c in self.regions.serving.values() for t in c}
        return set(chain) <= running

    def _more(self, chain: Chain, load: Mapping[str, float], *, switch: bool) -> None:
        board = self.scenario.board
        busy = {
            i: max((load.get(t, 0.0) for t in c), default=0.0)
            for i, c in self.regions.serving.items()
        }
        held = tuple(
            replace(r, pinned=r.pinned or (r.scheduled and self._now < r.ready + board.hold))
            for r in self.regions.regions
        )
        regions, launch = replace(self.regions, regions=held).another(
            chain, self._now, busy, switch=switch
        )
        if launch is None:
            return
        self._accept(regions, launch, chain)

    def _accept(self, regions: Regions, launch: Launch, chain: Chain) -> None:
        changed = launch.regions[0]
        pins = [r.pinned for r in self.regions.regions]
        self.regions = replace(
            regions,
            regions=tuple(
                replace(r, pinned=pins[i] if i != changed else False)
                for i, r in enumerate(regions.regions)
            ),
        )
        self._log(launch.way, changed, chain)
        old = self._instances(changed)
        for instance in old:
            self.scheduler.remove(instance)
        self.env.process(self._launch(changed, chain, launch.ready, old))

    def _launch(self, region: int, chain: Chain, ready: float, old: list[Instance]) -> Steps:
        """Drain what was there, load the bitstream, open the region."""
        since = self._now
        while any(instance.held for instance in old):
            yield self.env.timeout(16)
        drained = self._now - since
        yield self.env.timeout(max(0, self._cycles(ready + drained) - int(self.env.now)))
        current = self.regions.regions[region]
        if current.chain == chain and current.scheduled and not self._instances(region):
            self._open(region, chain)
            self._set_rates({n: lane.graph.entitled for n, lane in self.lanes.items()})

    def _deschedule(self, region: int) -> None:
        self._log("de-schedule", region, self.regions.regions[region].chain)
        for instance in self._instances(region):
            self.scheduler.remove(instance)
        self.regions = self.regions.deschedule(region, self._now)

    def _restart(self, region: int) -> None:
        chain = self.regions.regions[region].chain
        self._log("cut-off", region, chain)
        old = self._instances(region)
        owner = old[0].owner
        for instance in old:
            self.scheduler.remove(instance)
        self.regions = self.regions.restart(region, self._now)
        self.env.process(self._reload(region, chain, owner))

    def _reload(self, region: int, chain: Chain, owner: str) -> Steps:
        yield self.env.timeout(self._cycles(self.scenario.board.costs.reconfiguration))
        if self.regions.regions[region].chain == chain:
            self._open(region, chain, owner)

    def _fail(self, failure: Failure) -> Steps:
        yield self.env.timeout(self._cycles(failure.at))
        instances = self._instances(failure.region)
        for instance in instances:
            instance.stuck = True
        if failure.kind == "lost":
            region = self.regions.regions[failure.region]
            self._log("lost", failure.region, region.chain)
            for instance in instances:
                self.scheduler.remove(instance)
            gone = replace(region, chain=(), scheduled=True, pinned=True, ready=math.inf)
            rest = list(self.regions.regions)
            rest[failure.region] = gone
            self.regions = replace(self.regions, regions=tuple(rest))
            if self.policy.adapts:
                for lane in self.lanes.values():
                    lane.ensured = -math.inf
                    if self._present(lane.graph.tenant):
                        self._ensure(lane)

    def _deploy(self, tenant: str, at: float) -> Steps:
        """Pre-launch what a tenant that arrives brings, where regions are free."""
        yield self.env.timeout(self._cycles(at))
        for lane in self.lanes.values():
            if lane.graph.tenant != tenant:
                continue
            for chain in lane.graph.chains:
                for part in split(chain, self.scenario):
                    regions, launch = self.regions.pre_launch(part, self._now)
                    if launch is not None:
                        self._accept(regions, launch, part)

    def _sample(self) -> Steps:
        step = max(1, self._cycles(self.scenario.seconds / self.scenario.bins))
        for _ in range(self.scenario.bins):
            yield self.env.timeout(step - (1 if not self.samples else 0))
            self.samples.append((self.region_busy.copy(), list(self.tenant_work.values())))

    # -- the whole ---------------------------------------------------------------------------

    def run(self, progress: Callable[[float], None]) -> Trace:
        scenario = self.scenario
        for lane in self.lanes.values():
            self.env.process(self._source(lane))
            self.env.process(self._gate(lane))
        if self.policy.adapts:
            self.env.process(self._monitor())
            for tenant in scenario.tenants:
                if tenant.arrives > 0:
                    self.env.process(self._deploy(tenant.name, tenant.arrives))
        for failure in scenario.failures:
            self.env.process(self._fail(failure))
        self.env.process(self._sample())
        end = self._cycles(scenario.seconds)
        for step in range(1, _PROGRESS_STEPS + 1):
            until = end * step // _PROGRESS_STEPS
            if until > self.env.now:
                self.env.run(until=until)
            progress(step / _PROGRESS_STEPS)
        return self._trace()

    def _trace(self) -> Trace:
        scenario = self.scenario
        busy = np.diff([np.zeros(scenario.regions), *(s[0] for s in self.samples)], axis=0)
        none = [0.0] * len(scenario.tenants)
        work = np.diff([none, *(s[1] for s in self.samples)], axis=0)
        cycles = self._cycles(scenario.seconds / scenario.bins) * scenario.region_area
        return Trace(
            scenario,
            self.policy,
            self.seed,
            self.served,
            self.counts,
            busy / cycles,
            work / (cycles * scenario.regions),
            tuple(self.events),
            {name: tuple(rates) for name, rates in self.rates.items()},
        )
