"""Which way each graph's packets take through the regions, and how many of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import CardError
from n3ic.systems.card.chains import SLACK, Flows, Programme
from n3ic.systems.card.demand import Demand
from n3ic.systems.card.drf import Floats
from n3ic.systems.card.plan import Path, Visit

_LEAST = 1e-5  # share of a graph's packets that is worth a path


def fair_rates(
    demand: Demand,
    instances: NDArray[np.bool_],
    weights: Floats,
    loads: Floats,
    guaranteed: Floats | None = None,
) -> Floats:
    """Max-min fair packets a second, by weight, of graphs whose tasks stand where they stand.

    What dominant resource fair queueing converges to where packets are many and small (Ghodsi et
    al., "Multi-Resource Fair Queueing for Packet Processing", SIGCOMM 2012): every task's
    instances, every region's and the card's resources are a resource each, a packet takes its
    processing time of them, and the largest of a graph's shares, divided by its weight, is
    levelled. Linear programmes raise the level; who cannot rise any more stays.

    Args:
        demand: the card's numbers.
        instances: bool, shape ``(tasks, regions)``.
        weights: of the graphs, shape ``(graphs,)``.
        loads: packets a second that arrive, shape ``(graphs,)``.
        guaranteed: packets a second that a graph has before any is levelled; none if None.

    Returns:
        Packets a second, shape ``(graphs,)``; none is above its load.
    """
    most = loads / demand.wanted
    dominant = dominant_shares(demand, instances)
    with np.errstate(divide="ignore", invalid="ignore"):
        # served share of the wanted packets at level 1; free where nothing is scarce
        pace = np.where(dominant > 0, weights / dominant, np.inf)
    pace = np.where(np.isfinite(dominant), pace, 0.0)
    served = np.where(np.isinf(pace), most, 0.0)
    rising = np.isfinite(pace) & (pace > 0) & (most > 0)
    low = (
        served
        if guaranteed is None
        else np.maximum(served, np.minimum(guaranteed, loads) / demand.wanted)
    )
    while rising.any():
        level = _level(demand, instances, most, low, np.where(rising, pace, 0.0))
        low = np.where(rising, np.maximum(np.minimum(level * pace, most), low), low)
        for g in np.flatnonzero(rising):
            reachable = _largest(demand, instances, most, low, int(g))
            rising[g] = reachable > low[g] * (1 + 1e-6) + SLACK and low[g] < most[g] - SLACK
        if level <= 0:
            break
    return np.asarray(low * demand.wanted)


def dominant_shares(demand: Demand, instances: NDArray[np.bool_]) -> Floats:
    """Largest share that all wanted packets of a graph take of a resource, shape ``(graphs,)``.

    A task's instances are one resource, however many there are; infinite where there is none. So
    is the time of all regions that hold tasks of the graph.
    """
    count = instances.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        pools = np.where(demand.occupancy > 0, demand.occupancy / count, 0.0)
        pools = np.where(demand.uses & (count == 0), np.inf, pools)
        hosts = np.maximum((demand.uses.astype(int) @ instances > 0).sum(axis=1), 1)
        busy = demand.work.sum(axis=1) / (demand.time_capacity * hosts[:, None])
        common = np.where(demand.load > 0, demand.load / demand.common_capacity, 0.0)
    parts = (pools.max(axis=1, initial=0), busy.max(axis=1, initial=0))
    return np.asarray(np.maximum.reduce([*parts, common.max(axis=1, initial=0)]))


def flows_of(
    demand: Demand, instances: NDArray[np.bool_], rates: Floats, scheduling_ns: float
) -> Flows:
    """The quickest way for given rates.

    Args:
        demand: the card's numbers.
        instances: bool, shape ``(tasks, regions)``.
        rates: packets a second that the instances can serve, shape ``(graphs,)``.
        scheduling_ns: one pass through the scheduler.
    """
    share = rates / demand.wanted
    programme = Programme(demand, scheduling_ns=scheduling_ns, most=share, instances=instances)
    for column, value in zip(programme.f, share, strict=True):
        programme.at_least({int(column): 1.0}, max(0.0, float(value) - 10 * SLACK))
    found = programme.solve(programme.latency())
    if found is None:
        raise CardError("the rates are beyond what the instances serve")
    return programme.flows(found)


def paths_of(
    demand: Demand, g: int, flows: Flows, chains: Sequence[Sequence[str]], rate: float
) -> tuple[Path, ...]:
    """A graph's ways through the card, the one of most packets first.

    Args:
        demand: the card's numbers.
        g: index of the graph.
        flows: where its packets are served.
        chains: the tasks of each region, in order.
        rate: packets a second of all ways together.
    """
    graph = demand.graphs[g]
    index = {name: i for i, name in enumerate(demand.tasks)}
    tasks = [index[name] for name in graph.flow.tasks()]
    left = {t: flows.at[g, t].copy() for t in tasks}
    before: dict[str, str] = {}
    for a, b in graph.flow.edges():
        before.setdefault(b, a)
    found: list[tuple[float, dict[str, int]]] = []
    total = float(flows.served[g])
    while total > 0 and all(left[t].max() > _LEAST * total for t in tasks):
        regions: dict[str, int] = {}
        for t in tasks:
            name = demand.tasks[t]
            stay = regions.get(before.get(name, ""), -1)
            stays = stay >= 0 and left[t][stay] > _LEAST * total
            regions[name] = stay if stays else int(left[t].argmax())
        share = min(float(left[t][regions[demand.tasks[t]]]) for t in tasks)
        for t in tasks:
            left[t][regions[demand.tasks[t]]] -= share
        found.append((share, regions))
    whole = sum(share for share, _ in found) or 1.0
    return tuple(
        Path(rate * share / whole, stages_of(list(graph.flow.edges()), regions, chains))
        for share, regions in sorted(found, key=lambda f: -f[0])
    )


def stages_of(
    edges: Sequence[tuple[str, str]], regions: Mapping[str, int], chains: Sequence[Sequence[str]]
) -> tuple[tuple[Visit, ...], ...]:
    """Passes through the scheduler for tasks that stand in given regions.

    A task follows in the same pass where it stands behind its predecessor in the same chain;
    else the packet goes back to the scheduler, which waits until all predecessors are done.

    Args:
        edges: pairs of tasks of which the second needs the first's result.
        regions: of each task, in a topological order.
        chains: the tasks of each region, in order.
    """
    stage: dict[str, int] = {}
    for name, region in regions.items():
        chain = list(chains[region])
        stage[name] = max(
            (
                stage[a] + (regions[a] != region or chain.index(a) > chain.index(name))
                for a, b in edges
                if b == name
            ),
            default=0,
        )
    out = []
    for number in range(max(stage.values()) + 1):
        now = [name for name in stage if stage[name] == number]
        out.append(
            tuple(
                Visit(r, tuple(sorted((n for n in now if regions[n] == r), key=chains[r].index)))
                for r in sorted({regions[name] for name in now})
            )
        )
    return tuple(out)


def latency_of(
    stages: Sequence[Sequence[Visit]], latency: Mapping[str, float], scheduling_ns: float
) -> float:
    """Nanoseconds of one packet, alone on the card.

    Args:
        stages: its way.
        latency: of each task, in nanoseconds.
        scheduling_ns: one pass through the scheduler.
    """
    return sum(
        scheduling_ns + max(sum(latency[t] for t in visit.tasks) for visit in stage)
        for stage in stages
    )


def _level(
    demand: Demand, instances: NDArray[np.bool_], most: Floats, low: Floats, pace: Floats
) -> float:
    """The highest level that those who rise reach together, until one has its load."""
    programme = Programme(demand, most=most, instances=instances)
    for g, column in enumerate(programme.f):
        programme.at_least({int(column): 1.0}, max(0.0, float(low[g]) - SLACK))
        if pace[g] > 0:
            row = {int(column): 1.0 / float(pace[g]), int(programme.level): -1.0}
            programme.at_least(row, 0.0)
    found = programme.solve({int(programme.level): -1.0})
    if found is None:
        raise CardError("the rates are beyond what the instances serve")
    return float(found[programme.level])


def _largest(
    demand: Demand, instances: NDArray[np.bool_], most: Floats, low: Floats, g: int
) -> float:
    """How much one graph could be served while the others keep what they have."""
    programme = Programme(demand, most=most, instances=instances)
    for column, value in zip(programme.f, low, strict=True):
        programme.at_least({int(column): 1.0}, max(0.0, float(value) - SLACK))
    found = programme.solve({int(programme.f[g]): -1.0})
    return 0.0 if found is None else float(found[programme.f[g]])
