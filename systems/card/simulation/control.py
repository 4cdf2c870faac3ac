# SPDX-License-Identifier: Apache-2.0
"""Control of a simulated card under load: chains in regions."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from n3ic.systems.card.simulation.baselines import SharingPolicy, placement, split
from n3ic.systems.card.simulation.regions import Chain, Launch, SimRegion, SimRegions
from n3ic.systems.card.simulation.scaling import Scaling, scaled
from n3ic.systems.card.simulation.scenario import Failure, Scenario, SimGraph
from n3ic.systems.card.simulation.scheduler import ChainInstance, IssueSlots, Scheduler, Server
from n3ic.systems.card.simulation.trace import Event, GraphCounts

if TYPE_CHECKING:
    import simpy

    Steps = Generator[simpy.Event, Any, None]

_DRAIN = 16  # cycles between two checks whether a region is empty


@dataclass
class MonitoredGraph:
    """State of a graph in the control plane.

    Attributes:
        graph: the graph.
        counts: counts of its packets.
        window: cost of the packets that arrived since the last monitoring.
        used: whether a packet of it has arrived.
        again: second before which its regions are not examined again.
    """

    graph: SimGraph
    counts: GraphCounts
    window: float = 0.0
    used: bool = False
    again: float = -math.inf


class ControlPlane:
    """The control plane: it launches, de-schedules and restarts chains.

    Args:
        env: the simulation.
        scenario: the simulated scenario.
        policy: the policy of sharing; it says whether the control plane reacts to the load.
        scheduler: scheduler that the instances are added to and removed from.
        watched: monitored graphs by name.

    Attributes:
        events: actions and failures, in the order of time.
    """

    def __init__(
        self,
        env: simpy.Environment,
        scenario: Scenario,
        policy: SharingPolicy,
        scheduler: Scheduler,
        watched: Mapping[str, MonitoredGraph],
    ) -> None:
        self.events: list[Event] = []
        self._env = env
        self._scenario = scenario
        self._policy = policy
        self._scheduler = scheduler
        self._watched = watched
        self._hz = scenario.board.clock_hz
        self._scaling: dict[Chain, Scaling] = {}
        self._loads = {name: w.graph.entitled for name, w in watched.items()}
        placed = placement(policy, scenario)[: scenario.regions]
        chains = [p.chain for p in placed] + [()] * (scenario.regions - len(placed))
        self._regions = SimRegions(
            tuple(SimRegion(c, scheduled=bool(c)) for c in chains), scenario.board.costs
        )
        for i, part in enumerate(placed):
            if part.chain:
                self._open(i, part.chain, part.owner)

    def start(self) -> None:
        """Start to monitor the load, and wait for tenants that arrive and for failures."""
        if self._policy.adapts:
            self._env.process(self._monitor())
            for tenant in self._scenario.tenants:
                if tenant.arrives > 0:
                    self._env.process(self._deploy(tenant.name, tenant.arrives))
        for failure in self._scenario.failures:
            self._env.process(self._fail(failure))

    def ensure(self, name: str) -> None:
        """Launch a graph's tasks where they do not run: at first use, or after a context switch."""
        watched = self._watched[name]
        if not self._policy.adapts:
            return
        first, watched.used = not watched.used, True
        if not first and self._now < watched.again:
            return
        watched.again = self._now + self._scenario.board.monitor
        for chain in watched.graph.chains:
            for part in split(chain, self._scenario):
                if first or not self._runs(part):
                    self._use(part, name)

    def restart(self, region: int) -> None:
        """Reload a region whose tasks are stuck."""
        chain = self._regions.regions[region].chain
        self._log("cut-off", region, chain)
        old = self._instances(region)
        for instance in old:
            self._scheduler.remove(instance)
        self._regions = self._regions.restart(region, self._now)
        self._env.process(self._reload(region, chain, old[0].owner))

    # -- the load ----------------------------------------------------------------------------

    def _monitor(self) -> Steps:
        """Set instances by the offered load of tasks.

        The admitted load never exceeds what the instances serve, so it cannot show that more is
        wanted.
        """
        board = self._scenario.board
        while True:
            yield self._env.timeout(self._cycles(board.monitor))
            for name, watched in self._watched.items():
                self._loads[name] = watched.window / board.monitor
                watched.window = 0.0
                if watched.counts.inside:  # packets may wait for a chain that was stopped
                    self.ensure(name)
            self._scale()

    def _scale(self) -> None:
        """Add or remove at most one instance per chain, by its load and its users' entitlement."""
        load, running = self._filled(self._loads), self._scheduler.running
        for chain in sorted({c for c in self._regions.serving.values() if c}):
            where = [i for i, c in self._regions.serving.items() if c == chain]
            users = {
                w.graph.tenant
                for w in self._watched.values()
                if set(chain) & set(w.graph.flow.tasks())
                and (self._present(w.graph.tenant) or w.counts.inside)
            }
            # Instances of the chain's tasks inside other chains carry part of the load.
            others = max(0, *(running.get(t, 0) - len(where) for t in chain))
            load_wanted = max(load.get(t, 0.0) for t in chain) - others
            due = len(where) + max(map(self._spare_regions, users), default=-len(where))
            rules = self._scenario.board.scaling
            # Without a user even the last instance may go.
            rules = rules if users else replace(rules, least=0)
            state = replace(self._scaling.get(chain, Scaling(1)), instances=len(where))
            new = scaled(state, load_wanted, due, rules)
            self._scaling[chain] = replace(new, instances=len(where))
            if new.instances > len(where):
                self._take(
                    *self._pinned_early().another(chain, self._now, self._busy(), switch=False)
                )
                self._scaling[chain] = Scaling(len(where))
            elif new.instances < len(where) and (others or len(where) > 1 or not users):
                self._deschedule(where[-1])
                self._scaling[chain] = Scaling(len(where))

    def _filled(self, loads: Mapping[str, float]) -> dict[str, float]:
        """Compute the number of instances of each task that the loads fill."""
        out: dict[str, float] = {}
        for name, packets in loads.items():
            for task, seconds in self._scenario.times(self._watched[name].graph).items():
                out[task] = out.get(task, 0.0) + packets * seconds
        return out

    def _spare_regions(self, tenant: str) -> int:
        """Return the number of regions that a tenant is entitled to but does not fill.

        A region counts towards a tenant by its part of the load of the region's busiest task.
        """
        tenants = self._scenario.tenant_of
        if not self._present(tenant):
            return 0
        weight = sum(t.weight for t in tenants.values() if self._present(t.name))
        fair = self._scenario.regions * tenants[tenant].weight / weight
        own = {n: v for n, v in self._loads.items() if self._watched[n].graph.tenant == tenant}
        load, part = self._filled(self._loads), self._filled(own)
        regions_used = 0.0
        for chain in self._regions.serving.values():
            busiest = max(chain, key=lambda t: (load.get(t, 0.0), t), default="")
            if load.get(busiest):
                regions_used += part.get(busiest, 0.0) / load[busiest]
        return max(0, int(fair - regions_used + 1e-9))

    def _present(self, tenant: str) -> bool:
        scenario_tenant = self._scenario.tenant_of[tenant]
        return scenario_tenant.arrives <= self._now < scenario_tenant.leaves

    # -- regions -----------------------------------------------------------------------------

    def _use(self, chain: Chain, name: str) -> None:
        """Launch a chain for a graph, sharing only bandwidth that the other graphs leave."""
        others = {
            n: w.graph.entitled for n, w in self._watched.items() if w.used and n != name
        }  # fmt: skip
        filled = self._filled(others)
        spare: dict[str, float] = {}
        for serving in self._regions.serving.values():
            for task in serving:
                spare[task] = spare.get(task, -filled.get(task, 0.0)) + 1
        self._take(*self._pinned_early().use(chain, self._now, spare, self._busy()))

    def _runs(self, chain: Chain) -> bool:
        return set(chain) <= {t for c in self._regions.serving.values() for t in c}

    def _busy(self) -> dict[int, float]:
        """Return the load of each region's fullest task."""
        load = self._filled(self._loads)
        return {
            i: max((load.get(t, 0.0) for t in c), default=0.0)
            for i, c in self._regions.serving.items()
        }

    def _pinned_early(self) -> SimRegions:
        """Return the regions, pinning those that have not yet served for the minimum time."""
        hold = self._scenario.board.hold
        pinned = (
            replace(r, pinned=r.pinned or (r.scheduled and self._now < r.ready + hold))
            for r in self._regions.regions
        )
        return replace(self._regions, regions=tuple(pinned))

    def _take(self, regions: SimRegions, launch: Launch | None) -> None:
        """Carry out a decision on a chain, if there is one."""
        if launch is None or launch.way == "share":
            return
        (changed,) = launch.regions
        chain = regions.regions[changed].chain
        # Only the changed region is taken over: the pins of _held() hold for one decision.
        now = list(self._regions.regions)
        now[changed] = regions.regions[changed]
        self._regions = replace(self._regions, regions=tuple(now))
        self._log(launch.way, changed, chain)
        old = self._instances(changed)
        for instance in old:
            self._scheduler.remove(instance)
        self._env.process(self._launch(changed, chain, launch.ready, old))

    def _launch(self, region: int, chain: Chain, ready: float, old: list[ChainInstance]) -> Steps:
        """Drain the old chain, load the bitstream, and open the region."""
        since = self._now
        while any(instance.credits_in_use for instance in old):
            yield self._env.timeout(_DRAIN)
        # Loading starts after the last packet has left, so the time of draining adds to it.
        drained = self._now - since
        yield self._env.timeout(max(0, self._cycles(ready + drained) - int(self._env.now)))
        # The region may have been lost or given to another chain in the meantime.
        current = self._regions.regions[region]
        if current.chain == chain and current.scheduled and not self._instances(region):
            self._open(region, chain)

    def _reload(self, region: int, chain: Chain, owner: str) -> Steps:
        yield self._env.timeout(self._cycles(self._scenario.board.costs.reconfiguration))
        current = self._regions.regions[region]
        if current.chain == chain and current.scheduled and not self._instances(region):
            self._open(region, chain, owner)

    def _deschedule(self, region: int) -> None:
        self._log("de-schedule", region, self._regions.regions[region].chain)
        for instance in self._instances(region):
            self._scheduler.remove(instance)
        self._regions = self._regions.deschedule(region, self._now)

    def _deploy(self, tenant: str, at: float) -> Steps:
        """Pre-launch the chains of an arriving tenant where regions are free."""
        yield self._env.timeout(self._cycles(at))
        for watched in self._watched.values():
            if watched.graph.tenant == tenant:
                for chain in watched.graph.chains:
                    for part in split(chain, self._scenario):
                        self._take(*self._regions.pre_launch(part, self._now))

    def _fail(self, failure: Failure) -> Steps:
        yield self._env.timeout(self._cycles(failure.at))
        instances = self._instances(failure.region)
        for instance in instances:
            instance.stuck = True
        if failure.kind != "lost":
            return
        region = self._regions.regions[failure.region]
        self._log("lost", failure.region, region.chain)
        for instance in instances:
            self._scheduler.remove(instance)
        rest = list(self._regions.regions)
        # Scheduled, pinned and never ready: neither a launch nor a context switch takes a lost
        # region.
        rest[failure.region] = replace(
            region, chain=(), scheduled=True, pinned=True, ready=math.inf
        )
        self._regions = replace(self._regions, regions=tuple(rest))
        for name, watched in self._watched.items():
            watched.again = -math.inf
            if watched.used and self._present(watched.graph.tenant):
                self.ensure(name)

    def _open(self, region: int, chain: Chain, owner: str = "") -> None:
        parts = (chain,) if self._policy.chained else tuple((task,) for task in chain)
        # Tasks of one core take turns, so they share the slots; any other task has slots of its
        # own.
        turns = IssueSlots()
        for part in parts:
            servers = {}
            for name in part:
                task = self._scenario.tasks[name]
                servers[name] = Server(task, turns if task.turns else IssueSlots())
            self._scheduler.add(ChainInstance(region, part, servers, owner))

    def _instances(self, region: int) -> list[ChainInstance]:
        return [i for i in self._scheduler if i.region == region]

    def _log(self, what: str, region: int, chain: Chain) -> None:
        self.events.append(Event(self._now, what, region, chain))

    @property
    def _now(self) -> float:
        return float(self._env.now) / self._hz

    def _cycles(self, seconds: float) -> int:
        # The tolerance keeps a whole number of cycles whole despite rounding of seconds.
        return math.ceil(seconds * self._hz - 1e-6)
