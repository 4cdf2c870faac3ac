# SPDX-License-Identifier: Apache-2.0
"""The control loop of a card: it watches the load, and launches and de-schedules chains.

The loop reads counters and gives orders through a :class:`~n3ic.systems.card.driver.CardDriver`. It
has no clock: who runs it says what time it is, so it controls real and simulated cards alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from n3ic.systems.card.control.regions import Launch, RegionState, RegionStates
from n3ic.systems.card.control.scaling import Scaling, scaled
from n3ic.systems.card.control.scenario import Scenario, SimGraph
from n3ic.systems.card.driver import CardDriver, Chain


@dataclass(frozen=True)
class Event:
    """An action of the control loop, or a failure.

    Attributes:
        time: time in seconds.
        what: the way a chain was launched, or ``de-schedule``, ``cut-off`` or ``lost``.
        region: number of the region; -1 if the event concerns no region.
        chain: tasks of the chain.
    """

    time: float
    what: str
    region: int
    chain: Chain


@dataclass
class _WatchedGraph:
    """State of a graph in the loop.

    Attributes:
        graph: the graph.
        load: packets per second that arrived in the last window.
        offered: packets that had arrived at the end of it.
        inside: packets that were in the card then.
        used: whether a packet of it has arrived.
        again: second before which its regions are not examined again.
    """

    graph: SimGraph
    load: float
    offered: float = 0.0
    inside: int = 0
    used: bool = False
    again: float = -math.inf


class ControlLoop:
    """Decides which chains run in which regions, and which rates tenants are guaranteed.

    Args:
        scenario: the card, its tenants and what they are entitled to.
        driver: the card.
        placed: chain of each region at the start; the driver loads them.
        adapts: whether the loop reacts to the load; if not, it only reports failures.

    Attributes:
        events: actions and failures, in the order of time.
    """

    def __init__(
        self,
        scenario: Scenario,
        driver: CardDriver,
        placed: Sequence[Chain],
        *,
        adapts: bool = True,
    ) -> None:
        self.events: list[Event] = []
        self._scenario = scenario
        self._driver = driver
        self._adapts = adapts
        self._watched = {g.name: _WatchedGraph(g, g.entitled) for g in scenario.graphs}
        self._scaling: dict[Chain, Scaling] = {}
        self._stepped = 0.0
        self._rates: Mapping[str, float] = {}
        self._deployed = {t.name for t in scenario.tenants if t.arrives <= 0}
        chains = [*placed[: scenario.regions], *[()] * (scenario.regions - len(placed))]
        self._regions = RegionStates(
            tuple(RegionState(c, scheduled=bool(c)) for c in chains), scenario.board.costs
        )
        for region, chain in self._regions.serving.items():
            driver.load(region, chain, 0.0)
        if adapts:
            self._set_rates(0.0)

    def step(self, now: float) -> None:
        """Set rates and instances, once per monitoring window; the first begins at 0 s.

        Instances follow the offered load: the admitted load never exceeds what the instances serve,
        so it cannot show that more is wanted.

        Args:
            now: time in seconds, after that of the last step.
        """
        for tenant in self._scenario.tenants:
            if tenant.arrives <= now:
                self.deploy(tenant.name, now)
        self._set_rates(now)
        for name, counters in self._driver.counters().items():
            watched = self._watched[name]
            arrived = counters.offered - watched.offered
            watched.load = arrived / (now - self._stepped)
            watched.offered, watched.inside = counters.offered, counters.inside
            # Packets may wait for a chain that was stopped, or be refused without it.
            present = self._present(watched.graph.tenant, now)
            if counters.inside or (arrived and present):
                self.use(name, now)
        self._stepped = now
        self._scale(now)

    def use(self, name: str, now: float) -> None:
        """Launch a graph's tasks where they do not run: at first use, or after a context switch.

        Args:
            name: a graph of which packets arrive.
            now: time in seconds.
        """
        watched = self._watched[name]
        if not self._adapts:
            return
        first, watched.used = not watched.used, True
        if not first and now < watched.again:
            return
        watched.again = now + self._scenario.board.monitor
        for chain in watched.graph.chains:
            for part in self._scenario.split(chain):
                if first or not self._runs(part):
                    self._use_chain(part, name, now)

    def deploy(self, tenant: str, now: float) -> None:
        """Pre-launch the chains of a tenant that arrives where regions are free; only once."""
        if tenant in self._deployed:
            return
        self._deployed.add(tenant)
        self._set_rates(now)
        for watched in self._watched.values():
            if watched.graph.tenant == tenant:
                for chain in watched.graph.chains:
                    for part in self._scenario.split(chain):
                        self._take(*self._regions.pre_launch(part, now), now)

    def restart(self, region: int, now: float) -> None:
        """Reload a region whose tasks are stuck."""
        chain = self._regions.regions[region].chain
        self._log("cut-off", region, chain, now)
        self._driver.unload(region)
        self._regions = self._regions.restart(region, now)
        self._driver.load(region, chain, self._regions.regions[region].ready)

    def lose(self, region: int, now: float) -> None:
        """Give up a region for good; its chain is launched elsewhere."""
        lost = self._regions.regions[region]
        self._log("lost", region, lost.chain, now)
        self._driver.unload(region)
        # Scheduled, pinned and never ready: neither a launch nor a context switch takes a lost
        # region.
        gone = replace(lost, chain=(), scheduled=True, pinned=True, ready=math.inf)
        self._change(region, gone)
        for name, watched in self._watched.items():
            watched.again = -math.inf
            if watched.used and self._present(watched.graph.tenant, now):
                self.use(name, now)

    # -- the load ----------------------------------------------------------------------------

    def _set_rates(self, now: float) -> None:
        """Guarantee the tenants that are there what they are entitled to, and others nothing."""
        rates = {
            name: watched.graph.entitled
            for name, watched in self._watched.items()
            if self._present(watched.graph.tenant, now)
        }
        if rates != self._rates:
            self._driver.set_rates(rates, now)
            self._rates = rates

    def _scale(self, now: float) -> None:
        """Add or remove at most one instance per chain, by its load and its users' entitlement."""
        load, serving = self._filled(self._loads), self._regions.serving
        for chain in sorted({c for c in serving.values() if c}):
            where = [i for i, c in self._regions.serving.items() if c == chain]
            users = {
                w.graph.tenant
                for w in self._watched.values()
                if set(chain) & set(w.graph.flow.tasks())
                and (self._present(w.graph.tenant, now) or w.inside)
            }
            # Instances of the chain's tasks inside other chains carry part of the load.
            others = max(sum(t in c for c in serving.values()) - len(where) for t in chain)
            load_wanted = max(load.get(t, 0.0) for t in chain) - others
            spare = (self._spare_regions(user, now) for user in users)
            due = len(where) + max(spare, default=-len(where))
            rules = self._scenario.board.scaling
            # Without a user even the last instance may go.
            rules = rules if users else replace(rules, least=0)
            state = replace(self._scaling.get(chain, Scaling(1)), instances=len(where))
            new = scaled(state, load_wanted, due, rules)
            self._scaling[chain] = replace(new, instances=len(where))
            if new.instances > len(where):
                pinned = self._pinned_early(now)
                self._take(*pinned.another(chain, now, self._busy(), switch=False), now)
                self._scaling[chain] = Scaling(len(where))
            elif new.instances < len(where) and (others or len(where) > 1 or not users):
                self._deschedule(where[-1], now)
                self._scaling[chain] = Scaling(len(where))

    @property
    def _loads(self) -> dict[str, float]:
        return {name: watched.load for name, watched in self._watched.items()}

    def _filled(self, loads: Mapping[str, float]) -> dict[str, float]:
        """Compute the number of instances of each task that the loads fill."""
        out: dict[str, float] = {}
        for name, packets in loads.items():
            for task, seconds in self._scenario.times(self._watched[name].graph).items():
                out[task] = out.get(task, 0.0) + packets * seconds
        return out

    def _spare_regions(self, tenant: str, now: float) -> int:
        """Return the number of regions that a tenant is entitled to but does not fill.

        A region counts towards a tenant by its part of the load of the region's busiest task.
        """
        tenants = self._scenario.tenant_of
        if not self._present(tenant, now):
            return 0
        weight = sum(t.weight for t in tenants.values() if self._present(t.name, now))
        fair = self._scenario.regions * tenants[tenant].weight / weight
        own = {n: w.load for n, w in self._watched.items() if w.graph.tenant == tenant}
        load, part = self._filled(self._loads), self._filled(own)
        regions_used = 0.0
        for chain in self._regions.serving.values():
            busiest = max(chain, key=lambda t: (load.get(t, 0.0), t), default="")
            if load.get(busiest):
                regions_used += part.get(busiest, 0.0) / load[busiest]
        return max(0, int(fair - regions_used + 1e-9))

    def _present(self, tenant: str, now: float) -> bool:
        of_scenario = self._scenario.tenant_of[tenant]
        return of_scenario.arrives <= now < of_scenario.leaves

    # -- regions -----------------------------------------------------------------------------

    def _use_chain(self, chain: Chain, name: str, now: float) -> None:
        """Launch a chain for a graph, sharing only bandwidth that the other graphs leave."""
        others = {
            n: w.graph.entitled for n, w in self._watched.items() if w.used and n != name
        }  # fmt: skip
        filled = self._filled(others)
        spare: dict[str, float] = {}
        for serving in self._regions.serving.values():
            for task in serving:
                spare[task] = spare.get(task, -filled.get(task, 0.0)) + 1
        self._take(*self._pinned_early(now).use(chain, now, spare, self._busy()), now)

    def _runs(self, chain: Chain) -> bool:
        return set(chain) <= {t for c in self._regions.serving.values() for t in c}

    def _busy(self) -> dict[int, float]:
        """Return the load of each region's fullest task."""
        load = self._filled(self._loads)
        return {
            i: max((load.get(t, 0.0) for t in c), default=0.0)
            for i, c in self._regions.serving.items()
        }

    def _pinned_early(self, now: float) -> RegionStates:
        """Return the regions, pinning those that have not yet served for the minimum time."""
        hold = self._scenario.board.hold
        pinned = (
            replace(r, pinned=r.pinned or (r.scheduled and now < r.ready + hold))
            for r in self._regions.regions
        )
        return replace(self._regions, regions=tuple(pinned))

    def _take(self, regions: RegionStates, launch: Launch | None, now: float) -> None:
        """Carry out a decision on a chain, if there is one."""
        if launch is None or launch.way == "share":
            return
        (changed,) = launch.regions
        chain = regions.regions[changed].chain
        if exported := self._scenario.exported:
            others = [c for i, c in self._regions.serving.items() if i != changed]
            if others.count(chain) >= exported.count(chain):
                return  # there is no further bitstream of it
        # Only the changed region is taken over: the pins of _pinned_early() hold for one decision.
        self._change(changed, regions.regions[changed])
        self._log(launch.way, changed, chain, now)
        self._driver.load(changed, chain, launch.ready)

    def _deschedule(self, region: int, now: float) -> None:
        self._log("de-schedule", region, self._regions.regions[region].chain, now)
        self._driver.unload(region)
        self._regions = self._regions.deschedule(region, now)

    def _change(self, region: int, new: RegionState) -> None:
        regions = list(self._regions.regions)
        regions[region] = new
        self._regions = replace(self._regions, regions=tuple(regions))

    def _log(self, what: str, region: int, chain: Chain, now: float) -> None:
        self.events.append(Event(now, what, region, chain))
