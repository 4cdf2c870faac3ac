"""The card's packet scheduler: credits of chains, and whose packet is next.

SuperNIC, section IV-D: if all tasks of a chain that a packet needs have a credit, one of each is
reserved and the packet runs through the chain without the scheduler; otherwise it goes to its
first task alone, on to the next ones that have a credit, and back to the scheduler at one that
has none. A credit is the right to be held by a task, so that no queue at a task can overflow.
Which tenant's packet is next is decided by virtual start times (DRFQ).
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
class Turns:
    """The cycle at which the next packet may start; several tasks may have one in common."""

    next_start: int = 0


@dataclass
class Server:
    """A task of a chain in a region: a pipeline with credits."""

    task: SimTask
    turns: Turns
    free: int = 0

    def __post_init__(self) -> None:
        self.free = self.task.credits

    def enter(self, now: int, busy: int, latency: int) -> int:
        """Take a packet that holds a credit.

        Returns:
            The cycle at which it has its result.
        """
        start = max(now, self.turns.next_start)
        self.turns.next_start = start + busy
        return start + latency


@dataclass
class Instance:
    """A chain that runs in a region.

    Attributes:
        region: its number; the ports of a chain whose tasks are scheduled one by one share it.
        chain: its tasks.
        servers: by task.
        owner: the tenant that alone may use it; empty for all.
        open: whether packets may be sent to it.
        stuck: whether its tasks give results no more.
        used: packets that were sent to it, for round-robin.
    """

    region: int
    chain: Chain
    servers: Mapping[str, Server]
    owner: str = ""
    open: bool = True
    stuck: bool = False
    used: int = 0

    @property
    def held(self) -> int:
        """Packets that hold a credit of it."""
        return sum(s.task.credits - s.free for s in self.servers.values())


@dataclass(frozen=True)
class Grant:
    """Where a packet may go: tasks of an instance, each with a credit reserved."""

    instance: Instance
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
        self._instances: list[Instance] = []
        self._found: dict[tuple[str, Chain], list[tuple[int, Instance]]] = {}
        self._counted: Mapping[str, int] = {}

    def add(self, instance: Instance) -> None:
        """Let packets be sent to an instance."""
        self._changed([*self._instances, instance])
        self.dispatch()

    def remove(self, instance: Instance) -> None:
        """Send no more packets to an instance; those in it stay."""
        instance.open = False
        self._changed([i for i in self._instances if i is not instance])

    def _changed(self, instances: list[Instance]) -> None:
        self._instances = instances
        self._found.clear()
        self._counted = Counter(task for i in instances for task in i.chain)

    @property
    def running(self) -> Mapping[str, int]:
        """How many instances there are of each task."""
        return self._counted

    def __iter__(self) -> Iterator[Instance]:
        return iter(self._instances)

    def candidates(self, tenant: str, tasks: Chain) -> Sequence[tuple[int, Instance]]:
        """Instances that run the first of these tasks for a tenant, and how many of them."""
        key = (tenant, tasks)
        if key not in self._found:
            own = [i for i in self._instances if i.owner in ("", tenant)]
            found = [(n, i) for i in own if (n := part_of(tasks, i.chain))]
            self._found[key] = sorted(found, key=lambda c: (-c[0], c[1].region))
        return self._found[key]

    def request(self, queue: str, tenant: str, tag: tuple[float, int], tasks: Chain) -> simpy.Event:
        """Ask for credits; the event's value is a :class:`Grant`.

        Args:
            queue: packets of one queue are served in the order of their tags, so that one that
                comes back from an instance is before those that came later.
            tenant: whose packet it is.
            tag: virtual start time, and a number that breaks ties.
            tasks: what it needs.
        """
        waiting = _Waiting(tag, tenant, tasks, self._env.event())
        heapq.heappush(self._queues.setdefault(queue, []), waiting)
        self.dispatch()
        return waiting.granted

    def dispatch(self) -> None:
        """Grant what can be granted, the lowest virtual start time first."""
        now = int(self._env.now)
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
            if grant is None:
                continue
            heapq.heappop(line).granted.succeed(grant)
            if self._head_interval > 1:
                self._fetch(queue, now)
            elif line:
                heapq.heappush(heads, (line[0].tag, queue))

    def _fetch(self, queue: str, now: int) -> None:
        """Have the next head of a queue, some cycles later."""
        self._head_ready[queue] = now + self._head_interval
        ready = self._env.timeout(self._head_interval)
        ready.callbacks.append(lambda _: self.dispatch())

    def _grant(self, waiting: _Waiting) -> Grant | None:
        """Credits for as many tasks as can be; None if the first has none anywhere."""
        fallback: Instance | None = None
        whole: tuple[int, Instance] | None = None
        for count, instance in self.candidates(waiting.tenant, waiting.tasks):
            if whole is not None and count < whole[0]:
                break
            if all(instance.servers[t].free for t in waiting.tasks[:count]):
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
        slot = max(int(self._env.now), self._next_slot)
        self._next_slot = slot + self._interval
        return Grant(instance, tasks, slot - int(self._env.now))
