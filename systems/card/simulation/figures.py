# SPDX-License-Identifier: Apache-2.0
"""Figures of a simulated card: throughput, latency, fairness, utilisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def jain_index(values: Sequence[float]) -> float:
    """Compute Jain's index of fairness: 1 if all get the same, 1/n if one gets everything.

    Args:
        values: service of each, over its entitlement.

    Returns:
        (sum x)^2 / (n sum x^2), or 1 if nobody gets anything.

    References:
        Jain, Chiu and Hawe, DEC-TR-301, 1984.
    """
    x = np.asarray(values, dtype=float)
    squares = float(np.sum(x * x))
    return float(np.sum(x)) ** 2 / (len(x) * squares) if squares else 1.0


def percentiles(latency_ns: NDArray[np.float64]) -> dict[str, float]:
    """Compute percentiles of latencies by name; the result is empty without latencies."""
    if not len(latency_ns):
        return {}
    values = np.percentile(latency_ns, PERCENTILES)
    return {f"p{p:g}": float(v) for p, v in zip(PERCENTILES, values, strict=True)}


def served_share(served: float, wanted: float, entitled: float) -> float:
    """Compute the service of a tenant over its due, the smaller of its load and its entitlement.

    The share exceeds 1 if the tenant also got what others left.
    """
    due = min(wanted, entitled)
    # Without demand nothing was withheld, so the share counts as met and does not lower Jain's
    # index.
    return served / due if due > 0 else 1.0


def binned(times: NDArray[np.float64], amounts: NDArray[np.float64], edges: NDArray[np.float64]
           ) -> NDArray[np.float64]:  # fmt: skip
    """Compute the amounts per second in each bin of time.

    Args:
        times: seconds; shape (n,).
        amounts: amount at each time; shape (n,).
        edges: edges of the bins in seconds; shape (bins + 1,).
    """
    return np.histogram(times, edges, weights=amounts)[0] / np.diff(edges)


@dataclass(frozen=True)
class TenantFigures:
    """Figures of a tenant in one simulation.

    Attributes:
        name: name of the tenant.
        offered: number of packets that arrived.
        served: number of packets that left.
        dropped: number of dropped packets, by reason.
        inside: number of packets still in the card at the end.
        offered_gbps: bandwidth of the arrived packets.
        gbps: bandwidth of the packets that left.
        entitled_gbps: bandwidth that the plan entitles the tenant to.
        share: service over what was due.
        latency_ns: percentiles of the latency from arrival to departure, by name.
        core_ns: percentiles of the latency from the ingress bucket on, which is what the card adds.
        bound_ns: bound on the latency in the card for a tenant within its guarantee, whatever
            others send; None if the policy guarantees nothing.
        mean_ns: mean latency; 0 if nothing was served.
        most_queued: maximum number of packets at its ingress, and maximum number in the card.
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
