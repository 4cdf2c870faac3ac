# SPDX-License-Identifier: Apache-2.0
"""Choose the paths of each graph's packets through the regions, and the rates on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import CardError
from n3ic.systems.card.chains import SLACK, LinearProgram, PacketShares
from n3ic.systems.card.demand import CardDemand
from n3ic.systems.card.drf import Floats
from n3ic.systems.card.plan import PacketPath, RegionPass

_LEAST = 1e-5  # smallest share of a graph's packets that gets a path


def flows_of(
    demand: CardDemand, instances: NDArray[np.bool_], rates: Floats, scheduling_ns: float
) -> PacketShares:
    """Find the fastest paths for given rates.

    Args:
        demand: the card's demand in numbers.
        instances: bool array of shape ``(tasks, regions)``.
        rates: packets per second that the instances can serve, shape ``(graphs,)``.
        scheduling_ns: nanoseconds of one pass through the scheduler.
    """
    # Shares are relative to the given rates, so that the solver's tolerance is relative too.
    relative = demand.scaled(rates / demand.wanted)
    most = np.where(rates > 0, 1.0, 0.0)
    programme = LinearProgram(relative, scheduling_ns=scheduling_ns, most=most, instances=instances)
    for column, share in zip(programme.f, most, strict=True):
        # The rates come from another programme, so they may exceed what is feasible by its
        # tolerance.
        programme.at_least({int(column): 1.0}, float(share) * (1 - 10 * SLACK))
    columns = programme.solve(programme.latency())
    if columns is None:
        raise CardError("the instances cannot serve these rates")
    return programme.flows(columns)


def paths_of(
    demand: CardDemand, g: int, flows: PacketShares, chains: Sequence[Sequence[str]], rate: float
) -> tuple[PacketPath, ...]:
    """Return a graph's paths through the card, the busiest first.

    Args:
        demand: the card's demand in numbers.
        g: index of the graph.
        flows: shares of its packets by task and region.
        chains: tasks of each region, in order.
        rate: packets per second of all paths together.
    """
    graph = demand.graphs[g]
    index = {name: i for i, name in enumerate(demand.tasks)}
    tasks = [index[name] for name in graph.flow.tasks()]
    rest = {t: flows.at[g, t].copy() for t in tasks}
    before: dict[str, str] = {}
    for a, b in graph.flow.edges():
        before.setdefault(b, a)
    paths: list[tuple[float, dict[str, int]]] = []
    total = float(flows.served[g])
    # Flow decomposition: each path takes all that is left of some (task, region), so it ends after
    # at most tasks times regions paths.
    while total > 0 and all(rest[t].max() > _LEAST * total for t in tasks):
        regions: dict[str, int] = {}
        for t in tasks:
            name = demand.tasks[t]
            # Staying in the predecessor's region saves a pass of the scheduler.
            stay = regions.get(before.get(name, ""), -1)
            stays = stay >= 0 and rest[t][stay] > _LEAST * total
            regions[name] = stay if stays else int(rest[t].argmax())
        share = min(float(rest[t][regions[demand.tasks[t]]]) for t in tasks)
        for t in tasks:
            rest[t][regions[demand.tasks[t]]] -= share
        paths.append((share, regions))
    # Shares below _LEAST were dropped, so the rest is scaled up to the full rate.
    whole = sum(share for share, _ in paths) or 1.0
    return tuple(
        PacketPath(rate * share / whole, stages_of(list(graph.flow.edges()), regions, chains))
        for share, regions in sorted(paths, key=lambda f: -f[0])
    )


def stages_of(
    edges: Sequence[tuple[str, str]], regions: Mapping[str, int], chains: Sequence[Sequence[str]]
) -> tuple[tuple[RegionPass, ...], ...]:
    """Return the passes through the scheduler for tasks in given regions.

    A task runs in the same pass as its predecessor if it follows it in the same chain. Otherwise
    the packet returns to the scheduler, which waits until all predecessors are done.

    Args:
        edges: pairs of tasks, where the second needs the first's result.
        regions: region of each task, in a topological order.
        chains: tasks of each region, in order.
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
                RegionPass(
                    r, tuple(sorted((n for n in now if regions[n] == r), key=chains[r].index))
                )
                for r in sorted({regions[name] for name in now})
            )
        )
    return tuple(out)


def latency_of(
    stages: Sequence[Sequence[RegionPass]], latency: Mapping[str, float], scheduling_ns: float
) -> float:
    """Compute the latency of a packet alone on the card, in nanoseconds.

    Args:
        stages: passes of its path.
        latency: latency of each task, in nanoseconds.
        scheduling_ns: nanoseconds of one pass through the scheduler.
    """
    return sum(
        scheduling_ns + max(sum(latency[t] for t in visit.tasks) for visit in stage)
        for stage in stages
    )
