# SPDX-License-Identifier: Apache-2.0
"""Figures of a simulated card: throughput, latency, fairness, utilisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def jain_index(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 if all get the same, 1/n if one gets everything.

    Args:
        values: what each gets, over what it is entitled to.

    Returns:
        (sum x)^2 / (n sum x^2); 1 where nobody gets anything.

    References:
        Jain, Chiu and Hawe, DEC-TR-301, 1984.
    """
    x = np.asarray(values, dtype=float)
    squares = float(np.sum(x * x))
    return float(np.sum(x)) ** 2 / (len(x) * squares) if squares else 1.0


def percentiles(latency_ns: NDArray[np.float64]) -> dict[str, float]:
    """Percentiles of latencies, by their names; empty if there are none."""
    if not len(latency_ns):
        return {}
    values = np.percentile(latency_ns, PERCENTILES)
    return {f"p{p:g}": float(v) for p, v in zip(PERCENTILES, values, strict=True)}


def served_share(given: float, wanted: float, entitled: float) -> float:
    """Service of a tenant over its due, which is the smaller of its load and its entitlement.

    More than 1 where it also got what others left.
    """
    due = min(wanted, entitled)
    return given / due if due > 0 else 1.0


def binned(times: NDArray[np.float64], amounts: NDArray[np.float64], edges: NDArray[np.float64]
           ) -> NDArray[np.float64]:  # fmt: skip
    """Amounts a second in each bin of time.

    Args:
        times: (n,) seconds.
        amounts: (n,) what happened then.
        edges: (bins + 1,) seconds.
    """
    return np.histogram(times, edges, weights=amounts)[0] / np.diff(edges)


@dataclass(frozen=True)
class TenantFigures:
    """Figures of a tenant in one simulation.

    Attributes:
        name: of the tenant.
        offered: packets that arrived.
        served: packets that left.
        dropped: packets by the reason for which they were dropped.
        inside: packets that were still in the card at the end.
        offered_gbps: bandwidth of what arrived.
        gbps: bandwidth of what left.
        entitled_gbps: bandwidth that the plan entitles it to.
        share: what it got over what was due to it.
        latency_ns: percentiles from arrival to departure, by name.
        core_ns: percentiles of the part from the ingress bucket on: what the card adds.
        bound_ns: what that part may be for a tenant within its guarantee, whatever the others
            send; None where the policy guarantees nothing.
        mean_ns: mean latency; 0 if nothing was served.
        most_queued: most packets that waited at its ingress, and most that it had in the card.
        timeline_gbps: bandwidth in each bin of time.
    """

    name: str
    offered: int
    served: int
    dropped: Mapping[str, int]
    inside: int
    offered_gbps: float
    gbps: float
    entitled_gbps: float
    share: float
    latency_ns: Mapping[str, float]
    core_ns: Mapping[str, float]
    bound_ns: float | None
    mean_ns: float
    most_queued: tuple[int, int]
    timeline_gbps: tuple[float, ...]
