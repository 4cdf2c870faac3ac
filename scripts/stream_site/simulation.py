# SPDX-License-Identifier: Apache-2.0
"""Simulates the queues behind the cards with SimPy, batch by batch.

Shunted flows leave a card in batches, which are a Poisson process. A batch passes one server of
each stage that has a room: the card's number modulo the number of servers, as a topic maps keys to
partitions. A server handles batches in the order of their arrival, with a constant time per flow. A
batch that finds no room is lost and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from n3ic.errors import UsageError
from scripts.stream_site.description import Site, SiteStage

MOST_BATCHES = 2_000_000
_REPORTS = 100


@dataclass(frozen=True)
class Surge:
    """Cards that shunt more for a time.

    Attributes:
        factor: the rate during the surge divided by the usual rate.
        cards: share of the cards that take part.
        start: second at which it begins.
        seconds: how long it lasts.
    """

    factor: float = 1.0
    cards: float = 0.1
    start: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Outage:
    """A server that stops for a while; what arrives meanwhile waits.

    Attributes:
        stage: name of the stage, whose first server stops.
        start: second at which it stops.
        seconds: how long it stops.
    """

    stage: str
    start: float
    seconds: float


@dataclass(frozen=True)
class Passed:
    """What a stage did with flows.

    Attributes:
        name: the stage.
        arrived: flows that arrived.
        lost: flows for which the queue had no room.
        longest: the most that waited at one server, in the stage's quantity.
        wait: seconds from a batch's arrival to its departure: mean, median, 99th percentile, most.
    """

    name: str
    arrived: int
    lost: int
    longest: int
    wait: tuple[float, float, float, float]


@dataclass(frozen=True)
class SiteRun:
    """The result of a simulation.

    Attributes:
        seconds: simulated time during which batches arrive.
        sent: flows that the cards shunted.
        done: flows that passed every stage; the others were lost.
        stages: the stages that the flows pass.
        latency: seconds from the card through the last stage: mean, median, 99th percentile, most.
    """

    seconds: float
    sent: int
    done: int
    stages: tuple[Passed, ...]
    latency: tuple[float, float, float, float]


class _Queue:
    """One stage: for each server, a resource, what waits, and the room for it."""

    def __init__(self, env: simpy.Environment, stage: SiteStage, scale: float) -> None:
        self.stage, self.env = stage, env
        self.room = stage.room or 0
        # `scale`: units of the stage's quantity per shunted flow; capacity and room count these.
        self.seconds_per_flow = scale / stage.capacity
        self.servers = [simpy.PriorityResource(env) for _ in range(stage.servers)]
        self.waiting = np.zeros(stage.servers)
        self.scale = scale
        self.arrived = self.lost = 0
        self.longest = 0.0
        self.waits: list[float] = []

    def handle(self, key: int, flows: int) -> Generator[Any, Any, bool]:
        """Pass a batch; return whether there was room."""
        number, units = key % len(self.servers), flows * self.scale
        self.arrived += flows
        if self.waiting[number] + units > self.room:
            self.lost += flows
            return False
        self.waiting[number] += units
        self.longest = max(self.longest, self.waiting[number])
        arrival = self.env.now
        with self.servers[number].request(priority=1) as access:
            yield access
            yield self.env.timeout(flows * self.seconds_per_flow)
        self.waiting[number] -= units
        self.waits.append(self.env.now - arrival)
        return True

    def fail(self, outage: Outage) -> Generator[Any, Any, None]:
        """Occupy the first server, once it has finished its current batch."""
        yield self.env.timeout(outage.start)
        with self.servers[0].request(priority=0) as access:
            yield access
            yield self.env.timeout(outage.seconds)


def simulate(
    site: Site,
    *,
    seconds: float = 2.0,
    batch: int = 100,
    surge: Surge = Surge(),
    outages: tuple[Outage, ...] = (),
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> SiteRun:
    """Simulate the busiest hour for some seconds, and the time until all queues are empty.

    Args:
        site: traffic and stages.
        seconds: simulated time in which batches arrive.
        batch: flows of a batch.
        surge: cards that shunt more for a time.
        outages: servers that stop for a while.
        seed: seed of the arrivals.
        progress: called with the share of the arrivals simulated so far.

    Raises:
        UsageError: No stage has a room, an outage names a stage without one, or there are no
            batches or more than two million.
    """
    times, cards = _arrivals(site, seconds, batch, surge, np.random.default_rng(seed))
    env = simpy.Environment()
    shunted = site.traffic.rate("shunted")
    queues = [
        _Queue(env, s, site.traffic.rate(s.takes) / shunted)
        for s in site.stages
        if s.room is not None
    ]
    if not queues:
        raise UsageError("expected at least one stage with a room; none has one")
    named = {q.stage.name: q for q in queues}
    for outage in outages:
        if outage.stage not in named:
            raise UsageError(f"--down: expected one of {', '.join(named)}, got {outage.stage!r}")
        env.process(named[outage.stage].fail(outage))
    latencies: list[float] = []

    def pass_all(card: int) -> Generator[Any, Any, None]:
        arrival = env.now
        for queue in queues:
            if not (yield from queue.handle(card, batch)):
                return
        latencies.append(env.now - arrival)

    def arrive() -> Generator[Any, Any, None]:
        for i, (time, card) in enumerate(zip(times.tolist(), cards.tolist(), strict=True)):
            if time > env.now:
                yield env.timeout(time - env.now)
            env.process(pass_all(card))
            if progress and i % (len(times) // _REPORTS + 1) == 0:
                progress(i / len(times))

    env.process(arrive())
    env.run()
    return SiteRun(
        seconds,
        sent=len(times) * batch,
        done=len(latencies) * batch,
        stages=tuple(
            Passed(q.stage.name, q.arrived, q.lost, round(q.longest), _percentiles(q.waits))
            for q in queues
        ),
        latency=_percentiles(latencies),
    )


def _arrivals(
    site: Site, seconds: float, batch: int, surge: Surge, random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw the times of the batches, in order, and their cards."""
    cards = site.traffic.cards
    rate = site.traffic.rate("shunted") / batch
    surging = round(cards * surge.cards)
    extra = rate * (surge.factor - 1) * surging / cards
    expected = rate * seconds + extra * surge.seconds
    if not 0 < expected <= MOST_BATCHES:
        raise UsageError(
            f"expected 1 to {MOST_BATCHES:,} batches, got {expected:,.0f}; give other "
            "--seconds or another --batch"
        )
    usual = random.poisson(rate * seconds)
    times = random.uniform(0, seconds, usual)
    which = random.integers(0, cards, usual)
    if extra > 0 and surging:
        more = random.poisson(extra * surge.seconds)
        times = np.concatenate((times, surge.start + random.uniform(0, surge.seconds, more)))
        which = np.concatenate((which, random.integers(0, surging, more)))
    order = np.argsort(times, kind="stable")
    return times[order], which[order]


def _percentiles(seconds: list[float]) -> tuple[float, float, float, float]:
    if not seconds:
        return 0.0, 0.0, 0.0, 0.0
    median, late, most = np.quantile(seconds, (0.5, 0.99, 1.0)).tolist()
    return float(np.mean(seconds)), median, late, most
