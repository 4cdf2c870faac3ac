# SPDX-License-Identifier: Apache-2.0
"""The card's packet scheduler: credits of chains, and the order of packets.

SuperNIC, section IV-D: a credit is the right to a place in a task, so that no queue at a task can
overflow. If all tasks of a chain that a packet needs have a credit, one of each is reserved, and
the packet runs through the chain without the scheduler. Otherwise it goes to its first task alone,
continues to the next tasks while they have credits, and returns to the scheduler at the first
without. Virtual start times (DRFQ) decide which tenant's packet is next.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from n3ic.systems.card.simulation.regions import Chain, part_of
from n3ic.systems.card.simulation.scenario import SimTask

if TYPE_CHECKING:
    import simpy


@dataclass
class IssueSlots:
    """The cycle at which the next packet may start; several tasks may share one."""

    next_start: int = 0


@dataclass
class Server:
    """A task of a chain in a region: a pipeline with credits."""

    task: SimTask
    turns: IssueSlots
    free: int = 0

    def __post_init__(self) -> None:
        self.free = self.task.credits

    def enter(self, now: int, busy: int, latency: int) -> int:
        """Accept a packet that holds a credit.

        Returns:
            The cycle at which its result is ready.
        """
        # A pipeline is busy for its interval, but holds the packet for its latency.
        start = max(now, self.turns.next_start)
        self.turns.next_start = start + busy
        return start + latency


@dataclass
class ChainInstance:
    """A chain that runs in a region.

    Attributes:
        region: number of the region. Chains whose tasks are scheduled one by one share its ports.
        chain: tasks of the chain.
        servers: server of each task.
        owner: the only tenant that may use it; empty for all.
        open: whether packets may be sent to it.
        stuck: whether its tasks have stopped giving results.
        used: number of packets sent to it, for round-robin.
    """

    region: int
    chain: Chain
    servers: Mapping[str, Server]
    owner: str = ""
    open: bool = True
    stuck: bool = False
    used: int = 0

    @property
    def credits_in_use(self) -> int:
        """Number of packets that hold a credit of it."""
        return sum(s.task.credits - s.free for s in self.servers.values())


@dataclass(frozen=True)
class Grant:
    """Destination of a packet: tasks of an instance, each with a reserved credit."""

    instance: ChainInstance
    tasks: Chain
    wait: int


@dataclass(order=True)
class _Waiting:
    tag: tuple[float, int]
    tenant: str = field(compare=False)
    tasks: Chain = field(compare=False)
    granted: simpy.Event = field(compare=False)


class Scheduler:
    """Hands out credits.

    Args:
        env: the simulation.
        interval: cycles between two decisions.
        head_interval: cycles between two decisions about the same queue.
    """

    def __init__(self, env: simpy.Environment, interval: int, head_interval: int = 1) -> None:
        self._env = env
        self._interval = interval
        self._head_interval = head_interval
        self._head_ready: dict[str, int] = {}
        self._next_slot = 0
        self._queues: dict[str, list[_Waiting]] = {}  # heaps
        self._instances: list[ChainInstance] = []
        self._candidates: dict[tuple[str, Chain], list[tuple[int, ChainInstance]]] = {}
        self._counted: Mapping[str, int] = {}

    def add(self, instance: ChainInstance) -> None:
        """Allow packets to an instance."""
        self._changed([*self._instances, instance])
        self.dispatch()

    def remove(self, instance: ChainInstance) -> None:
        """Stop sending packets to an instance; packets inside continue."""
        instance.open = False
        self._changed([i for i in self._instances if i is not instance])

    def _changed(self, instances: list[ChainInstance]) -> None:
        self._instances = instances
        # Candidates are searched once per tenant and chain; any change of instances outdates
        # them.
        self._candidates.clear()
        self._counted = Counter(task for i in instances for task in i.chain)

    @property
    def running(self) -> Mapping[str, int]:
        """Number of instances of each task."""
        return self._counted

    def __iter__(self) -> Iterator[ChainInstance]:
        return iter(self._instances)

    def candidates(self, tenant: str, tasks: Chain) -> Sequence[tuple[int, ChainInstance]]:
        """Return the instances that run a tenant's first tasks, with the number that each runs."""
        key = (tenant, tasks)
        if key not in self._candidates:
            own = [i for i in self._instances if i.owner in ("", tenant)]
            matches = [(n, i) for i in own if (n := part_of(tasks, i.chain))]
            self._candidates[key] = sorted(matches, key=lambda c: (-c[0], c[1].region))
        return self._candidates[key]

    def request(self, queue: str, tenant: str, tag: tuple[float, int], tasks: Chain) -> simpy.Event:
        """Request credits; the event's value is a :class:`Grant`.

        Args:
            queue: packets of a queue are served in the order of their tags, so that a packet that
                returns from an instance precedes packets that arrived later.
            tenant: owner of the packet.
            tag: virtual start time, and a number that breaks ties.
            tasks: tasks that the packet needs.
        """
        waiting = _Waiting(tag, tenant, tasks, self._env.event())
        heapq.heappush(self._queues.setdefault(queue, []), waiting)
        self.dispatch()
        return waiting.granted

    def dispatch(self) -> None:
        """Grant credits to waiting packets, the lowest virtual start time first."""
        now = int(self._env.now)
        # Only heads compete: packets of one queue must not overtake each other.
        heads = [
            (line[0].tag, queue)
            for queue, line in self._queues.items()
            if line and self._head_ready.get(queue, 0) <= now
        ]
        heapq.heapify(heads)
        while heads:
            _, queue = heapq.heappop(heads)
            line = self._queues[queue]
            grant = self._grant(line[0])
            # A blocked head does not block other queues; a later release calls dispatch again.
            if grant is None:
                continue
            heapq.heappop(line).granted.succeed(grant)
            if self._head_interval > 1:
                self._fetch(queue, now)
            elif line:
                heapq.heappush(heads, (line[0].tag, queue))

    def _fetch(self, queue: str, now: int) -> None:
        """Fetch the next head of a queue, some cycles later."""
        self._head_ready[queue] = now + self._head_interval
        ready = self._env.timeout(self._head_interval)
        ready.callbacks.append(lambda _: self.dispatch())

    def _grant(self, waiting: _Waiting) -> Grant | None:
        """Grant credits for as many tasks as possible; None if the first has none anywhere."""
        fallback: ChainInstance | None = None
        whole: tuple[int, ChainInstance] | None = None
        for count, instance in self.candidates(waiting.tenant, waiting.tasks):
            # Candidates are sorted by the number of tasks: a shorter run cannot win any more.
            if whole is not None and count < whole[0]:
                break
            if all(instance.servers[t].free for t in waiting.tasks[:count]):
                # Among instances with room for as many tasks, the least used comes next
                # (round-robin).
                if whole is None or instance.used < whole[1].used:
                    whole = (count, instance)
            elif fallback is None and instance.servers[waiting.tasks[0]].free:
                fallback = instance
        if whole is not None:
            count, instance = whole
        elif fallback is not None:
            count, instance = 1, fallback
        else:
            return None
        tasks = waiting.tasks[:count]
        for task in tasks:
            instance.servers[task].free -= 1
        instance.used += 1
        # The scheduler decides once per interval, so later grants of this cycle wait for their
        # slot.
        slot = max(int(self._env.now), self._next_slot)
        self._next_slot = slot + self._interval
        return Grant(instance, tasks, slot - int(self._env.now))
