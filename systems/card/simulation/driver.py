# SPDX-License-Identifier: Apache-2.0
"""A simulated card as the control loop drives it: instances of chains that come and go."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from n3ic.systems.card.control.scenario import PlacedChain, Scenario
from n3ic.systems.card.driver import Chain, GraphCounters
from n3ic.systems.card.simulation.colours import TokenBucket
from n3ic.systems.card.simulation.scheduler import ChainInstance, IssueSlots, Scheduler, Server
from n3ic.systems.card.simulation.trace import GraphCounts

if TYPE_CHECKING:
    import simpy

    Steps = Generator[simpy.Event, Any, None]

_DRAIN = 16  # cycles between two checks whether a region is empty


class SimulatedRegions:
    """The regions of a simulated card; see :class:`~n3ic.systems.card.driver.CardDriver`.

    Args:
        env: the simulation.
        scenario: the simulated scenario.
        scheduler: scheduler that the instances are added to and removed from.
        counts: counts of each graph's packets.
        buckets: token bucket of each graph.
        placed: chain of each region at the start, with its owner.
        chained: whether a packet runs through a chain at once.
    """

    def __init__(
        self,
        env: simpy.Environment,
        scenario: Scenario,
        scheduler: Scheduler,
        counts: Mapping[str, GraphCounts],
        buckets: Mapping[str, TokenBucket],
        placed: Sequence[PlacedChain],
        *,
        chained: bool,
    ) -> None:
        self._env = env
        self._scenario = scenario
        self._scheduler = scheduler
        self._counts = counts
        self._buckets = buckets
        self._owners = [p.owner for p in placed]
        self._chained = chained
        # Chain that each region is to serve; what is loaded meanwhile may have been overtaken.
        self._wanted: dict[int, Chain] = {}

    def counters(self) -> Mapping[str, GraphCounters]:
        """Return the offered cost and the packets inside; see the protocol."""
        return {n: GraphCounters(c.offered, c.inside) for n, c in self._counts.items()}

    def set_rates(self, rates: Mapping[str, float], now: float) -> None:
        """Set the rates of the buckets; see the protocol."""
        for name, bucket in self._buckets.items():
            rate = rates.get(name, 0.0) / self._scenario.board.clock_hz
            bucket.set_rate(rate, self._cycle(now))

    def load(self, region: int, chain: Chain, ready: float) -> None:
        """Drain the old chain, load the bitstream, and open the region; see the protocol."""
        old = self.instances(region)
        self.unload(region)
        self._wanted[region] = chain
        at = self._cycle(ready)
        if old or at > self._env.now:
            self._env.process(self._launch(region, chain, at, old))
        else:
            self._open(region, chain)

    def unload(self, region: int) -> None:
        """Send no more packets to a region; see the protocol."""
        self._wanted.pop(region, None)
        for instance in self.instances(region):
            self._scheduler.remove(instance)

    def instances(self, region: int) -> list[ChainInstance]:
        """Return the instances that serve in a region."""
        return [i for i in self._scheduler if i.region == region]

    def _cycle(self, seconds: float) -> int:
        return math.ceil(seconds * self._scenario.board.clock_hz - 1e-6)

    def _launch(self, region: int, chain: Chain, ready: int, old: list[ChainInstance]) -> Steps:
        since = int(self._env.now)
        while any(instance.credits_in_use for instance in old):
            yield self._env.timeout(_DRAIN)
        # Loading starts after the last packet has left, so the time of draining adds to it.
        drained = int(self._env.now) - since
        yield self._env.timeout(max(0, ready + drained - int(self._env.now)))
        # The region may have been lost or given to another chain in the meantime.
        if self._wanted.get(region) == chain and not self.instances(region):
            self._open(region, chain)

    def _open(self, region: int, chain: Chain) -> None:
        parts = (chain,) if self._chained else tuple((task,) for task in chain)
        owner = self._owners[region] if region < len(self._owners) else ""
        # Tasks of one core take turns, so they share the slots; any other task has slots of its
        # own.
        turns = IssueSlots()
        for part in parts:
            servers = {}
            for name in part:
                task = self._scenario.tasks[name]
                servers[name] = Server(task, turns if task.turns else IssueSlots())
            self._scheduler.add(ChainInstance(region, part, servers, owner))
