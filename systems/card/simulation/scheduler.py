# SPDX-License-Identifier: Apache-2.0
"""The card's packet scheduler: credits of chains, and the order of packets.

SuperNIC, section IV-D: a credit is the right to a place in a task, so that no queue at a task can
overflow. If all tasks of a chain that a packet needs have a credit, one of each is reserved, and
the packet runs through the chain without the scheduler. Otherwise it goes to its first task alone,
continues to the next tasks while they have credits, and returns to the scheduler at the first
without. Packets within their guarantees come first, in the order of virtual start times (DRFQ).
Packets beyond take turns of their own by the same times, as in the card's Verilog.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from n3ic.systems.card.control.regions import part_of
from n3ic.systems.card.control.scenario import SimTask
from n3ic.systems.card.driver import Chain
from n3ic.systems.card.simulation.colours import Colour

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
    colour: Colour | None = field(compare=False)
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
        # How far each queue's turn beyond its guarantee is ahead of the turn that was taken last,
        # and the tasks that it wanted last.
        self._lead: dict[str, float] = {}
        self._wanted: dict[str, Chain] = {}

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

    def request(
        self,
        queue: str,
        tenant: str,
        tag: tuple[float, int],
        tasks: Chain,
        colour: Colour | None = None,
    ) -> simpy.Event:
        """Request credits; the event's value is a :class:`Grant`.

        Args:
            queue: packets of a queue are served in the order of their tags, so that a packet that
                returns from an instance precedes packets that arrived later.
            tenant: owner of the packet.
            tag: virtual start time, and a number that breaks ties.
            tasks: tasks that the packet needs.
            colour: what tells whether the packet is within its guarantee; None if all are.
        """
        waiting = _Waiting(tag, tenant, tasks, colour, self._env.event())
        self._wanted[queue] = tasks
        heapq.heappush(self._queues.setdefault(queue, []), waiting)
        self.dispatch()
        return waiting.granted

    def dispatch(self) -> None:
        """Grant credits to waiting packets, until no head can go."""
        now = int(self._env.now)
        # Only heads compete: packets of one queue must not overtake each other.
        heads = {
            queue
            for queue, line in self._queues.items()
            if line and self._head_ready.get(queue, 0) <= now
        }
        while heads:
            (beyond, *_), queue = min((self._order(q, now), q) for q in heads)
            line = self._queues[queue]
            # A blocked head does not block other queues; a later release calls dispatch again.
            if beyond and self._is_behind(queue, now):
                heads.remove(queue)
                continue
            grant = self._grant(line[0])
            if grant is None:
                heads.remove(queue)
                continue
            waiting = heapq.heappop(line)
            if waiting.colour is not None:
                self._take_turn(queue, waiting.colour, grant, now)
            waiting.granted.succeed(grant)
            if self._head_interval > 1:
                heads.remove(queue)
                self._fetch(queue, now, beyond)
            elif not line:
                heads.remove(queue)

    def _order(self, queue: str, now: int) -> tuple[bool, float, tuple[float, int]]:
        """Return the key of a queue's head: within its guarantee first, then by turn."""
        head = self._queues[queue][0]
        beyond = head.colour is not None and not head.colour.is_within(now)
        return beyond, self._lead.get(queue, 0.0) if beyond else 0.0, head.tag

    def _is_behind(self, queue: str, now: int) -> bool:
        """Whether a queue whose turn comes before wants the same tasks, and has no head yet."""
        lead, tasks = self._lead.get(queue, 0.0), set(self._wanted[queue])
        return any(
            line and self._head_ready.get(q, 0) > now and self._lead.get(q, 0.0) < lead
            and tasks & set(self._wanted[q])
            for q, line in self._queues.items()
        )  # fmt: skip

    def _take_turn(self, queue: str, colour: Colour, grant: Grant, now: int) -> None:
        """Let the bucket pay for a packet, or put the turn of its queue off."""
        if not colour.paid and colour.is_within(now):
            colour.bucket.spend(colour.cost, now)
            colour.paid = True
        if not colour.paid:
            lead = self._lead.get(queue, 0.0)
            # Only who wants the same instance is behind in its turn; nobody saves up turns.
            for other, wanted in self._wanted.items():
                if not grant.instance.servers.keys().isdisjoint(wanted):
                    self._lead[other] = max(0.0, self._lead.get(other, 0.0) - lead)
            self._lead[queue] = 0.0 if colour.begun else colour.step
        colour.begun = True

    def _fetch(self, queue: str, now: int, beyond: bool) -> None:
        """Fetch the next head of a queue, some cycles later."""
        # Beside others, choosing the first of those beyond takes a cycle more.
        others = any(line for name, line in self._queues.items() if name != queue)
        interval = self._head_interval + (beyond and others)
        self._head_ready[queue] = now + interval
        ready = self._env.timeout(interval)
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
