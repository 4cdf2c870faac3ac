# SPDX-License-Identifier: Apache-2.0
"""Regions of a card: where chains are launched, and what that costs.

SuperNIC, section IV-C. Partial reconfiguration is slow, so it is the last resort. Where regions are
free, chains are launched before they are used. A chain that is used takes the first of these that
is possible:

1. tasks that already run and have bandwidth left;
2. its own chain, if it was de-scheduled and is not yet overwritten (victim cache);
3. a free region;
4. the least loaded region, whose chain is stopped (context switch).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from n3ic.systems.card.driver import Chain

Way = Literal["pre-launch", "share", "victim", "free", "context-switch"]


@dataclass(frozen=True)
class RegionState:
    """A part of the device that is reconfigured as a whole.

    Attributes:
        chain: tasks in the region; empty if it never held any.
        scheduled: whether the chain serves packets; if not, it is a victim.
        ready: second from which on the region serves packets.
        since: second at which the chain was last launched or de-scheduled.
        pinned: whether the chain must not be stopped for another.
    """

    chain: Chain = ()
    scheduled: bool = False
    ready: float = 0.0
    since: float = 0.0
    pinned: bool = False

    @property
    def free(self) -> bool:
        """Whether a chain can be launched here without stopping another."""
        return not self.scheduled


@dataclass(frozen=True)
class Costs:
    """Duration of the changes of a region, in seconds.

    Attributes:
        reconfiguration: time to load a region's bitstream; 4 MB at 800 MB/s by default.
        stop: time for the tasks of a region to store their state before another chain comes.
    """

    reconfiguration: float = 5e-3
    stop: float = 1e-4


@dataclass(frozen=True)
class Launch:
    """A launch of a chain.

    Attributes:
        way: how the chain was launched.
        regions: regions that serve it, in the order of its tasks.
        ready: second from which on they serve it.
        stopped: chain that a context switch stopped; empty if none was.
    """

    way: Way
    regions: tuple[int, ...]
    ready: float
    stopped: Chain = ()


def part_of(tasks: Sequence[str], chain: Chain) -> int:
    """Count the leading tasks that a region's chain runs in one pass, skipping its other tasks."""
    at = 0
    for task in chain:
        if at < len(tasks) and task == tasks[at]:
            at += 1
    return at


def cover(tasks: Chain, chains: Mapping[int, Chain]) -> tuple[int, ...]:
    """Cover a chain with regions, in as few passes of the scheduler as possible.

    Taking the longest part first is optimal: any region that runs the tasks up to some point also
    runs them from any later start up to that point.

    Args:
        tasks: tasks in their order.
        chains: chain of each region, by number.

    Returns:
        Regions in order, one per pass; empty if some task runs nowhere.
    """
    out: list[int] = []
    rest = tasks
    while rest:
        longest, region = max(
            # The number is negated, so that ties go to the lowest region.
            ((part_of(rest, chain), -number) for number, chain in chains.items()),
            default=(0, 0),
        )
        if not longest:
            return ()
        out.append(-region)
        rest = rest[longest:]
    return tuple(out)


@dataclass(frozen=True)
class RegionStates:
    """The regions of a card, and how chains come into them.

    Attributes:
        regions: regions by number, from 0.
        costs: duration of changes.
        victim_cache: whether a de-scheduled chain stays until its region is needed.
    """

    regions: tuple[RegionState, ...]
    costs: Costs = field(default_factory=Costs)
    victim_cache: bool = True

    @property
    def serving(self) -> dict[int, Chain]:
        """Scheduled chains by region, including those still being launched."""
        return {i: r.chain for i, r in enumerate(self.regions) if r.scheduled}

    def pre_launch(self, chain: Chain, now: float = 0.0) -> tuple[RegionStates, Launch | None]:
        """Launch an unused chain, if a region is free and one of the chain's tasks runs nowhere.

        Returns:
            The regions, and the launch; None if nothing was launched.
        """
        serving = cover(chain, self.serving)
        region = self._free()
        if serving or region is None:
            return self, None
        return self._launched(region, chain, now, "pre-launch")

    def use(
        self, chain: Chain, now: float, spare: Mapping[str, float], load: Mapping[int, float]
    ) -> tuple[RegionStates, Launch | None]:
        """Make a chain run because packets for it have arrived.

        No other chain is stopped for a chain that already runs, even if it has no bandwidth left.
        Its bandwidth is then divided.

        Args:
            chain: the tasks of the chain.
            now: time in seconds.
            spare: bandwidth that each running task has left, in units of one instance. The chain
                shares only tasks that have some left.
            load: load of each region; a context switch takes the least loaded.

        Returns:
            The regions, and the launch; None if no region is available.
        """
        serving = cover(chain, self.serving)
        shared = None
        if serving:
            shared = Launch("share", serving, max(self.regions[i].ready for i in serving))
        if serving and all(spare.get(task, 0.0) > 0 for task in chain):
            return self, shared
        regions, launch = self.another(chain, now, load, switch=not serving)
        return (self, shared) if launch is None else (regions, launch)

    def another(
        self, chain: Chain, now: float, load: Mapping[int, float], *, switch: bool = True
    ) -> tuple[RegionStates, Launch | None]:
        """Launch one more instance of a chain: its victim, a free region, or a context switch.

        Args:
            chain: the tasks of the chain.
            now: time in seconds.
            load: load of each region.
            switch: whether another chain may be stopped.

        Returns:
            The regions, and the launch; None if no region is available.
        """
        for i, region in enumerate(self.regions):
            if region.free and region.chain == chain and self.victim_cache:
                # The bitstream is still loaded, so a victim serves at once, unless it was
                # de-scheduled while loading.
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

    def deschedule(self, region: int, now: float) -> RegionStates:
        """Stop serving packets in a region; a victim cache keeps its chain there."""
        old = self.regions[region]
        return self._with(region, replace(old, scheduled=False, since=now, pinned=False))

    def restart(self, region: int, now: float) -> RegionStates:
        """Reload a region's bitstream after one of its tasks got stuck."""
        ready = now + self.costs.reconfiguration
        return self._with(region, replace(self.regions[region], ready=ready, since=now))

    def _free(self) -> int | None:
        """Return an empty region, else the one with the oldest victim."""
        # False sorts before True: an empty region costs no victim.
        free = [(bool(r.chain), r.since, i) for i, r in enumerate(self.regions) if r.free]
        return min(free)[2] if free else None

    def _launched(self, i: int, chain: Chain, now: float, way: Way) -> tuple[RegionStates, Launch]:
        stopped = self.regions[i].chain if way == "context-switch" else ()
        ready = now + self.costs.reconfiguration + (self.costs.stop if stopped else 0.0)
        new = RegionState(chain, scheduled=True, ready=ready, since=now)
        return self._with(i, new), Launch(way, (i,), ready, stopped)

    def _with(self, i: int, region: RegionState) -> RegionStates:
        regions = (*self.regions[:i], region, *self.regions[i + 1 :])
        return replace(self, regions=regions)
