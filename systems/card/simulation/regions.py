# SPDX-License-Identifier: Apache-2.0
"""Regions of a card: where chains are launched, and what that costs.

SuperNIC, section IV-C. Partial reconfiguration is slow, so it is the last thing that is done for a
chain of tasks: chains are launched before they are used where regions are free; one that is used
takes, in this order, tasks that run already and have bandwidth left, its own chain that was
de-scheduled and not yet overwritten (victim cache), a free region, and at last the least loaded
region, whose chain is stopped (context switch).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Chain = tuple[str, ...]  # names of tasks in their order
Way = Literal["pre-launch", "share", "victim", "free", "context-switch"]


@dataclass(frozen=True)
class SimRegion:
    """A part of the device that is reconfigured as one.

    Attributes:
        chain: tasks in it; empty if it never held any.
        scheduled: whether the chain serves packets; one that does not is a victim.
        ready: second from which on it serves.
        since: second at which its chain was last launched or de-scheduled.
        pinned: whether its chain must not be stopped for another.
    """

    chain: Chain = ()
    scheduled: bool = False
    ready: float = 0.0
    since: float = 0.0
    pinned: bool = False

    @property
    def free(self) -> bool:
        """Whether a chain can be launched in it without stopping one."""
        return not self.scheduled


@dataclass(frozen=True)
class Costs:
    """What changes of a region take, in seconds.

    Attributes:
        reconfiguration: to load a region's bitstream; 4 MB at 800 MB/s for the default one.
        stop: to let the tasks of a region store their state before another chain comes.
    """

    reconfiguration: float = 5e-3
    stop: float = 1e-4


@dataclass(frozen=True)
class Launch:
    """How a chain came to run.

    Attributes:
        way: what was done for it.
        regions: those that serve it, in the order of its tasks.
        ready: second from which on they do.
        stopped: chain that a context switch stopped.
    """

    way: Way
    regions: tuple[int, ...]
    ready: float
    stopped: Chain = ()


def part_of(wanted: Sequence[str], chain: Chain) -> int:
    """How many tasks, from the first, a region's chain runs in one pass, skipping its others."""
    at = 0
    for task in chain:
        if at < len(wanted) and task == wanted[at]:
            at += 1
    return at


def cover(wanted: Chain, chains: Mapping[int, Chain]) -> tuple[int, ...]:
    """Cover a chain with regions, in as few passes of the scheduler as possible.

    Taking the longest part first is optimal: any region that runs the tasks up to some point also
    runs them from any later start up to that point.

    Args:
        wanted: tasks in their order.
        chains: chains of regions by number.

    Returns:
        Regions in order, one a pass; empty if a task runs nowhere.
    """
    out: list[int] = []
    rest = wanted
    while rest:
        longest, region = max(
            ((part_of(rest, chain), -number) for number, chain in chains.items()), default=(0, 0)
        )
        if not longest:
            return ()
        out.append(-region)
        rest = rest[longest:]
    return tuple(out)


@dataclass(frozen=True)
class SimRegions:
    """All regions of a card, and how chains come into them.

    Attributes:
        regions: by number, from 0.
        costs: what changes take.
        victim_cache: whether a de-scheduled chain stays until its region is needed.
    """

    regions: tuple[SimRegion, ...]
    costs: Costs = field(default_factory=Costs)
    victim_cache: bool = True

    @property
    def serving(self) -> dict[int, Chain]:
        """Chains that are scheduled, by region, those that are still being launched included."""
        return {i: r.chain for i, r in enumerate(self.regions) if r.scheduled}

    def pre_launch(self, chain: Chain, now: float = 0.0) -> tuple[SimRegions, Launch | None]:
        """Launch a chain that nobody uses yet, where a region is free and a task of it is missing.

        Returns:
            The regions, and what was done; None if nothing was.
        """
        found = cover(chain, self.serving)
        region = self._free()
        if found or region is None:
            return self, None
        return self._launched(region, chain, now, "pre-launch")

    def use(
        self, chain: Chain, now: float, spare: Mapping[str, float], load: Mapping[int, float]
    ) -> tuple[SimRegions, Launch | None]:
        """Make a chain run because packets for it have arrived.

        No other chain is stopped for one that runs already, though it have no bandwidth left:
        what there is of it is then divided.

        Args:
            chain: its tasks.
            now: in seconds.
            spare: instances' worth of bandwidth that is left of each running task; the chain
                shares only tasks that have some.
            load: of each region, for the context switch to find the least.

        Returns:
            The regions, and what was done; None if no region may be had.
        """
        found = cover(chain, self.serving)
        shared = None
        if found:
            shared = Launch("share", found, max(self.regions[i].ready for i in found))
        if found and all(spare.get(task, 0.0) > 0 for task in chain):
            return self, shared
        regions, launch = self.another(chain, now, load, switch=not found)
        return (self, shared) if launch is None else (regions, launch)

    def another(
        self, chain: Chain, now: float, load: Mapping[int, float], *, switch: bool = True
    ) -> tuple[SimRegions, Launch | None]:
        """One more instance of a chain: its victim, a free region, a context switch.

        Args:
            chain: its tasks.
            now: in seconds.
            load: of each region.
            switch: whether another chain may be stopped for it.
        """
        for i, region in enumerate(self.regions):
            if region.free and region.chain == chain and self.victim_cache:
                again = replace(region, scheduled=True, ready=max(now, region.ready), since=now)
                return self._with(i, again), Launch("victim", (i,), again.ready)
        place = self._free()
        if place is not None:
            return self._launched(place, chain, now, "free")
        idle = [i for i, r in enumerate(self.regions) if not r.pinned and r.chain != chain]
        if not switch or not idle:
            return self, None
        return self._launched(
            min(idle, key=lambda i: (load.get(i, 0.0), i)), chain, now, "context-switch"
        )

    def deschedule(self, region: int, now: float) -> SimRegions:
        """Let a region serve no more; its chain stays as a victim, if there is a victim cache."""
        old = self.regions[region]
        return self._with(region, replace(old, scheduled=False, since=now, pinned=False))

    def restart(self, region: int, now: float) -> SimRegions:
        """Reload a region's bitstream after one of its tasks got stuck."""
        ready = now + self.costs.reconfiguration
        return self._with(region, replace(self.regions[region], ready=ready, since=now))

    def _free(self) -> int | None:
        """Return an empty region, else the one with the oldest victim."""
        free = [(bool(r.chain), r.since, i) for i, r in enumerate(self.regions) if r.free]
        return min(free)[2] if free else None

    def _launched(self, i: int, chain: Chain, now: float, way: Way) -> tuple[SimRegions, Launch]:
        stopped = self.regions[i].chain if way == "context-switch" else ()
        ready = now + self.costs.reconfiguration + (self.costs.stop if stopped else 0.0)
        new = SimRegion(chain, scheduled=True, ready=ready, since=now)
        return self._with(i, new), Launch(way, (i,), ready, stopped)

    def _with(self, i: int, region: SimRegion) -> SimRegions:
        regions = (*self.regions[:i], region, *self.regions[i + 1 :])
        return replace(self, regions=regions)
