# SPDX-License-Identifier: Apache-2.0
"""Simulate packets, or trains of packets, that travel round a ring of nodes.

The handlers are those of FCsN (Guo et al., section IV-B). A node classifies each packet. The local
part of its range goes to the kernel. If it needs remote data, it first waits for an RDMA task,
which reads the data from its owner's memory. The parts before and after the local part go on to the
next node, one packet each. Each server (handlers, kernel, memory, link) serves one job after
another. Equal packets move together in trains; ``train`` 1 simulates each packet.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from n3ic.systems.cluster.costs import EMPTY_BYTES
from n3ic.systems.cluster.protocol import BODY_BYTES, MAX_PACKETS, PACKET_BYTES
from n3ic.systems.cluster.simulation.components import (
    PacketTrain,
    RingTrace,
    SimNode,
    Stage,
    Workload,
    wire_seconds,
)

if TYPE_CHECKING:
    import simpy

    Steps = Generator[simpy.Event, Any, None]

_BARRIER_PACKETS = 1
_EVENTS = 20_000  # approximate number of trains per workload
_WINDOW = 2048  # maximum trains of one flow on the ring; only bounds memory
_PIECES = 64  # maximum trains of a node's data in an exchange


@dataclass
class _Server:
    """Serves one job after another; ``cores`` are shared with other servers."""

    free: float = 0.0
    busy: float = 0.0
    cores: list[float] | None = None

    def enter(self, now: float, seconds: float) -> float:
        """Return the time at which work that arrives now is done."""
        start = max(now, self.free)
        if self.cores is not None and seconds:
            # The core that was busy last of those that are free then: others keep their free time,
            # which a server may use before. If none is free, the one that is free first.
            ready = [i for i, free in enumerate(self.cores) if free <= start]
            i = max(ready, key=self.cores.__getitem__, default=-1)
            i = min(range(len(self.cores)), key=self.cores.__getitem__) if i < 0 else i
            start = max(start, self.cores[i])
            self.cores[i] = start + seconds
        self.free = start + seconds
        self.busy += seconds
        return self.free


@dataclass(frozen=True)
class _Train:
    """Packets that move together, and the nodes where they still have work."""

    packets: int
    work: tuple[tuple[int, float], ...]
    flow: PacketTrain
    stage: int
    job: _Job


@dataclass(eq=False)
class _Job:
    """A running workload, with its open packets by stage and node."""

    workload: Workload
    open: list[list[int]]
    ready: list[list[simpy.Event]]


def simulate(
    workload: Workload,
    nodes: Sequence[SimNode],
    *,
    train: int | None = None,
    barrier: bool = False,
    cores: int = 0,
) -> RingTrace:
    """Simulate a workload.

    Args:
        workload: the work to simulate.
        nodes: the coordinator, then the nodes in ring order.
        train: packets per train; None chooses by the number of packets.
        barrier: whether to use the compute-centric model (exchange, barrier, kernel, barrier)
            instead of the data-centric one.
        cores: number of cores that all nodes with ``core`` 0 share; 0 for no limit.
    """
    train_length = train or max(1, _hops(workload, len(nodes)) // _EVENTS)
    simulation = _Simulation(nodes, train_length, cores)
    if barrier:
        return simulation.by_barriers(workload)
    return simulation.by_tasks([workload], 1)


def simulate_rows(
    rows: Sequence[Workload], nodes: Sequence[SimNode], *, slots: int, cores: int = 0
) -> RingTrace:
    """Simulate rows that overlap; packets of a row that fit one datagram move together.

    Args:
        rows: workload of each row.
        nodes: the coordinator, then the nodes in ring order.
        slots: maximum rows in flight.
        cores: as in :func:`simulate`.
    """
    together = min(MAX_PACKETS, *(n.together for n in nodes))
    return _Simulation(nodes, together, cores).by_tasks(rows, slots)


def _hops(workload: Workload, nodes: int) -> int:
    return sum(
        f.packets * max(1, *((to - f.origin) % nodes for to, _ in f.work))
        for s in workload.stages
        for f in s.flows
        if f.work
    )


class _Simulation:
    def __init__(self, nodes: Sequence[SimNode], train: int, cores: int) -> None:
        import simpy

        self.env = simpy.Environment()
        self.nodes = tuple(nodes)
        self.train = train
        shared = [0.0] * cores if cores else None
        self.handlers = [_Server(cores=shared if n.core >= 0 else None) for n in nodes]
        # A process has one thread for packets and weights: its kernel is the same server as its
        # handlers.
        self.kernels = [
            h if n.serial else _Server() for h, n in zip(self.handlers, nodes, strict=True)
        ]
        self.memories = [_Server() for _ in nodes]
        self.links = [_Server() for _ in nodes]
        self.filling = [(0, 0.0) for _ in nodes]  # packets of the newest datagram; its departure
        self.packets = 0

    # -- the data-centric model --------------------------------------------------------------

    def by_tasks(self, workloads: Sequence[Workload], slots: int) -> RingTrace:
        """Run tasks round the ring; a node continues as soon as its part of a stage is done.

        Args:
            workloads: workloads, started in this order.
            slots: maximum workloads in flight.
        """
        ends: list[float] = []
        self.env.run(self.env.process(self._jobs(workloads, slots, ends)))
        return self._trace(ends)

    def _jobs(self, workloads: Sequence[Workload], slots: int, ends: list[float]) -> Steps:
        running: list[simpy.Event] = []
        for workload in workloads:
            if len(running) == slots:
                yield running.pop(0)
            running.append(self.env.process(self._job(workload, ends)))
        yield self.env.all_of(running)

    def _job(self, workload: Workload, ends: list[float]) -> Steps:
        job = _Job(
            workload,
            [[0] * len(self.nodes) for _ in workload.stages],
            [[self.env.event() for _ in self.nodes] for _ in workload.stages],
        )
        for number, stage in enumerate(workload.stages):
            for flow in stage.flows:
                for node, _ in flow.work:
                    # A flow without packets is work on the node's own data, and counts as one task.
                    job.open[number][node] += flow.packets or 1
        yield from self._at_home()
        nodes = [self.env.process(self._node(node, job)) for node in range(len(self.nodes))]
        yield self.env.all_of(nodes)
        yield from self._at_home()
        ends.append(float(self.env.now))

    def _at_home(self) -> Steps:
        """Spend the coordinator's time for the start or the end of a row, if it is a process."""
        home = self.nodes[0]
        if home.serial:
            at = self.handlers[0].enter(self.env.now, home.pipeline)
            yield self.env.timeout(at - self.env.now)

    def _node(self, node: int, job: _Job) -> Steps:
        """Run a node's stages one after another, then send its results."""
        for number, stage in enumerate(job.workload.stages):
            transfers = [
                self.env.process(self._spawn(flow, number, job))
                for flow in stage.flows
                if flow.origin == node
            ]
            if job.open[number][node]:
                yield job.ready[number][node]
            if stage.whole and stage.local[node]:
                yield from self._kernel(node, float(stage.local[node]), 0, stage.kind)
            if transfers:
                yield self.env.all_of(transfers)
            results = int(stage.results[node])
            if results and node:
                yield from self._send(node, results, 0)

    def _spawn(self, flow: PacketTrain, stage: int, job: _Job) -> Steps:
        """Put a flow's packets on the ring as fast as its node handles them."""
        if not flow.packets:  # work on the node's own data
            train = _Train(0, flow.work, flow, stage, job)
            for node, operations in flow.work:
                self.env.process(self._compute(node, train, operations))
            return
        ways: list[simpy.Event] = []
        for packets, share in _trains(flow.packets, self.train):
            work = tuple((node, operations * share) for node, operations in flow.work)
            train = _Train(packets, work, flow, stage, job)
            end = self.handlers[flow.origin].enter(
                self.env.now, packets * self.nodes[flow.origin].packet
            )
            yield self.env.timeout(end - self.env.now)
            ways.append(self.env.process(self._classified(flow.origin, train)))
            if len(ways) >= _WINDOW:
                yield ways.pop(0)

    def _classified(self, node: int, train: _Train) -> Steps:
        """Split a train into its local part and the parts before and after it."""
        parts = [train.work]
        for at, operations in train.work:
            if at == node:
                self.env.process(self._compute(node, train, operations))
                behind = tuple(w for w in train.work if w[0] > node)
                parts = [behind, tuple(w for w in train.work if w[0] < node)]
        ways = [
            self.env.process(self._pass_on(node, replace(train, work=part)))
            for part in parts
            if part
        ]
        if ways:
            yield self.env.all_of(ways)

    def _pass_on(self, node: int, train: _Train) -> Steps:
        """Send a train on to the next node that has work for it."""
        target = min(train.work, key=lambda w: (w[0] - node) % len(self.nodes))[0]
        yield from self._send(node, train.packets, target)
        yield from self._classified(target, train)

    def _send(self, node: int, packets: int, target: int) -> Steps:
        """Send packets round the ring from one node to another, through the handlers between."""
        while node != target:
            after = (node + 1) % len(self.nodes)
            sender, receiver = self.nodes[node], self.nodes[after]
            yield self.env.timeout(sender.forward)
            grams = self._datagrams(node, packets, sender, receiver)
            if sender.serial:
                busy = packets * sender.packet + grams * sender.datagram
                end = self.handlers[node].enter(self.env.now, busy)
                self.filling[node] = (self.filling[node][0], end)
                yield self.env.timeout(end - self.env.now)
            self.packets += packets
            wire = wire_seconds(packets, grams, sender)
            end = self.links[node].enter(self.env.now, wire)
            if grams and not sender.serial:  # a card fills a datagram while its link is busy
                self.filling[node] = (self.filling[node][0], end - wire)
            yield self.env.timeout(end - self.env.now + sender.latency)
            busy = packets * receiver.packet + grams * receiver.datagram
            end = self.handlers[after].enter(self.env.now, busy)
            # The acknowledgement takes the receiver's link, but nothing waits for it.
            answer = grams * EMPTY_BYTES * 8 / receiver.link_bps
            self.links[after].enter(self.env.now, answer)
            yield self.env.timeout(end - self.env.now + receiver.classify)
            node = after

    def _datagrams(self, node: int, packets: int, sender: SimNode, receiver: SimNode) -> int:
        """Count the new datagrams of packets that leave now; a waiting datagram is filled first."""
        together = min(sender.together, receiver.together, MAX_PACKETS)
        waiting, leaves = self.filling[node]
        # Packets join a datagram as long as it has not left, as in the sender of link.py.
        if self.env.now < leaves and waiting + packets <= together:
            self.filling[node] = (waiting + packets, leaves)
            return 0
        self.filling[node] = (packets, leaves)
        return -(-packets // together)

    def _compute(self, node: int, train: _Train, operations: float) -> Steps:
        """Fetch the remote data of a task, then run the kernel."""
        if train.flow.fetch:
            waits = [self.env.process(self._fetch(node, *f)) for f in train.flow.fetch]
            yield self.env.all_of(waits)
        streamed = max(train.packets, operations * train.flow.reads)
        yield from self._kernel(node, operations, streamed, train.flow.kind)
        still = train.job.open[train.stage]
        still[node] -= train.packets or 1
        if not still[node]:
            train.job.ready[train.stage][node].succeed()

    def _kernel(self, node: int, operations: float, streamed: float, kind: str) -> Steps:
        """Run operations on the elements of ``streamed`` packets."""
        at = self.nodes[node]
        busy = max(operations / at.rates[kind], streamed * at.stream) if operations else 0.0
        after = at.delay(kind) if operations else 0.0
        if at.serial:
            busy, after = busy + after, 0.0
        end = self.kernels[node].enter(self.env.now, busy)
        yield self.env.timeout(end - self.env.now + after)

    def _fetch(self, node: int, owner: int, packets: int) -> Steps:
        """Send an RDMA task to the owner, read its memory, and send the data back."""
        yield from self._send(node, 1, owner)
        seconds = packets * PACKET_BYTES / self.nodes[owner].memory_bps
        end = self.memories[owner].enter(self.env.now, seconds)
        yield self.env.timeout(end - self.env.now)
        yield from self._send(owner, packets, node)

    # -- the compute-centric model -----------------------------------------------------------

    def by_barriers(self, workload: Workload) -> RingTrace:
        """Run stage by stage: exchange and compute, each with a barrier behind it."""
        for stage in workload.stages:
            if stage.gathered.any() or stage.halo.any():
                self._all(self._exchange(i, stage) for i in range(1, len(self.nodes)))
                self._barrier()
            if stage.local.any():
                self._all(self._local(i, stage) for i in range(1, len(self.nodes)))
                self._barrier()
            self._all(
                self._send(i, int(stage.results[i]), 0)
                for i in range(1, len(self.nodes))
                if stage.results[i]
            )
        return self._trace()

    def _all(self, steps: Iterator[Steps]) -> None:
        started = [self.env.process(s) for s in steps]
        if started:
            self.env.run(self.env.all_of(started))

    def _exchange(self, node: int, stage: Stage) -> Steps:
        """Send a node's data to all other nodes, or to its neighbours."""
        count = len(self.nodes) - 1
        packets = -(-int(stage.gathered[node]) // BODY_BYTES)
        # Each part goes once round the ring, as in the ring algorithm of MPI_Allgather.
        others = [(node + hop) % count + 1 for hop in range(count - 1)]
        pieces = _trains(packets, max(self.train, -(-packets // _PIECES))) if packets else ()
        ways = [self._tour(node, size, others) for size, _ in pieces]
        halo = -(-int(stage.halo[node]) // BODY_BYTES)
        neighbours = {node % count + 1, (node - 2) % count + 1} - {node} if halo else ()
        ways += [self._send(node, halo, to) for to in neighbours]
        yield self.env.all_of([self.env.process(way) for way in ways])

    def _tour(self, at: int, packets: int, targets: Sequence[int]) -> Steps:
        """Send packets from node to node."""
        for target in targets:
            yield from self._send(at, packets, target)
            at = target

    def _local(self, node: int, stage: Stage) -> Steps:
        if stage.local[node]:
            streamed = float(stage.streamed[node])
            yield from self._kernel(node, float(stage.local[node]), streamed, stage.kind)

    def _barrier(self) -> None:
        """Pass a token round the ring twice: first it collects, then it releases all nodes."""

        def token() -> Steps:
            for _ in range(2):
                for node in range(len(self.nodes)):
                    yield from self._send(node, _BARRIER_PACKETS, (node + 1) % len(self.nodes))

        # A single node has nobody to wait for.
        if len(self.nodes) > 2:
            self._all(iter([token()]))

    def _trace(self, rows: Sequence[float] = ()) -> RingTrace:
        seconds = float(self.env.now)

        def share(servers: Sequence[_Server]) -> tuple[float, ...]:
            return tuple(min(1.0, s.busy / seconds) if seconds else 0.0 for s in servers)

        return RingTrace(
            seconds=seconds,
            packets=self.packets,
            handler=share(self.handlers),
            kernel=share(self.kernels),
            link=share(self.links),
            rows=tuple(rows),
        )


def _trains(packets: int, size: int) -> Iterator[tuple[int, float]]:
    """Yield the packets of each train and its fraction of the flow."""
    for at in range(0, packets, size):
        count = min(size, packets - at)
        yield count, count / packets
