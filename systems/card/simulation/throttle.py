# SPDX-License-Identifier: Apache-2.0
"""Compute fair ingress rates of graphs from their share of the tasks' time and their load.

SuperNIC, section IV-E, step 2: graphs get dominant shares of time as in DRFQ, for the load offered
to each task. Shares are enforced only at ingress.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class OfferedLoad:
    """Demand of a graph.

    Attributes:
        load: arriving packets per second.
        entitled: packets per second that the graph is entitled to, whatever others send.
        weight: weight of the graph.
        times: seconds that a packet takes of an instance of each task.
    """

    load: float
    entitled: float
    weight: float
    times: Mapping[str, float]


def ingress_rates(
    demands: Mapping[str, OfferedLoad], instances: Mapping[str, float]
) -> dict[str, float]:
    """Compute the packets per second of each graph: its entitlement, then max-min dominant shares.

    All graphs first rise to the smaller of load and entitlement. The remaining time goes to loads
    above the entitlement, and then to loads that may still rise before the next window. Graphs rise
    together in dominant share over weight, until a load is met or a task is full.

    Args:
        demands: demand of each graph, by name.
        instances: number of instances of each task; a fraction if one is shared with others.

    Returns:
        Packets per second of each graph.
    """
    rates = dict.fromkeys(demands, 0.0)
    free = dict(instances)
    due = {g: min(d.load, d.entitled) for g, d in demands.items()}
    loads = {g: d.load for g, d in demands.items()}
    for caps in (due, loads, dict.fromkeys(demands, math.inf)):
        _fill(demands, instances, rates, free, caps)
    return rates


def _fill(
    demands: Mapping[str, OfferedLoad],
    instances: Mapping[str, float],
    rates: dict[str, float],
    free: dict[str, float],
    caps: Mapping[str, float],
) -> None:
    """Raise rates up to their caps, until each graph has met its cap or a full task."""
    # Packets per second that a graph gains while all dominant shares rise by their weights.
    speed = {}
    for graph, demand in demands.items():
        dominant = max(
            (t / instances[task] if instances.get(task) else math.inf)
            for task, t in demand.times.items()
        )
        speed[graph] = demand.weight / dominant if dominant else 0.0
    rising = {g for g in demands if speed[g] > 0 and rates[g] < caps[g]}
    while True:
        # Relative to the task's size: differences of floats do not reach 0 exactly.
        rising = {g for g in rising if all(free[t] > 1e-9 * instances[t] for t in demands[g].times)}
        if not rising:
            return
        pull: dict[str, float] = {}
        for graph in rising:
            for task, seconds in demands[graph].times.items():
                pull[task] = pull.get(task, 0.0) + speed[graph] * seconds
        to_cap = {g: (caps[g] - rates[g]) / speed[g] for g in rising}
        to_full = {t: free[t] / p for t, p in pull.items()}
        step = min(*to_cap.values(), *to_full.values())
        # Sorted, because the order of float additions must not depend on the hashing of a set.
        for graph in sorted(rising):
            rates[graph] += step * speed[graph]
        # The graph or task that set the step is done regardless of rounding. Every round ends
        # one of them, so the loop terminates.
        for task, p in pull.items():
            free[task] = 0.0 if to_full[task] <= step else free[task] - step * p
        rising = {g for g in rising if to_cap[g] > step}
