# SPDX-License-Identifier: Apache-2.0
"""Fair sharing of space: dominant-resource fairness.

Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types" (NSDI
2011); with weights, limits and resources that some do not need as in Parkes, Procaccia and Shah,
"Beyond Dominant Resource Fairness" (ACM TEAC 2015). Amounts are divisible.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
_FULL = 1e-12  # free share below which a resource counts as exhausted


def dominant_resource_fairness(
    demands: ArrayLike,
    capacity: ArrayLike,
    weights: ArrayLike | None = None,
    limits: ArrayLike | None = None,
) -> Floats:
    """Compute each user's units of work: dominant shares rise together, in proportion to weights.

    All users' dominant shares rise in proportion to their weights. A user stops when it reaches its
    limit or a resource that it needs is exhausted; the others go on. The result is the only
    division whose sorted vector of weighted dominant shares is largest (max-min fairness).

    Args:
        demands: resources per unit of work, array of shape ``(users, resources)``.
        capacity: capacity of each resource, array of shape ``(resources,)``.
        weights: weights of the users, array of shape ``(users,)``; None for equal weights.
        limits: maximum units of each user, array of shape ``(users,)``; None for no limits.

    Returns:
        Units of work of each user, float64 array of shape ``(users,)``; infinite for a user without
        limit that needs nothing.
    """
    share = shares_of(demands, capacity)
    users = len(share)
    weight = np.ones(users) if weights is None else np.asarray(weights, dtype=np.float64)
    limit = np.full(users, np.inf) if limits is None else np.asarray(limits, dtype=np.float64)
    dominant = share.max(axis=1, initial=0.0)
    impossible = ~np.isfinite(dominant)  # the user needs a resource with no capacity
    # A user that needs nothing gets its limit at once, because no resource can stop it.
    served = np.where(dominant > 0, 0.0, limit)
    rising = (dominant > 0) & ~impossible & (limit > 0)
    free = np.ones(share.shape[1])
    while rising.any():
        speed = np.where(rising, weight / np.where(dominant > 0, dominant, 1.0), 0.0)
        use = speed @ np.where(rising[:, None], share, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            until_full = np.where(use > 0, free / use, np.inf)
            until_limit = np.where(rising, (limit - served) / speed, np.inf)
        # Progressive filling: shares rise linearly up to the next event, an exhausted resource or a
        # limit.
        step = min(until_full.min(initial=np.inf), until_limit.min(initial=np.inf))
        served = served + speed * step
        free = np.maximum(free - use * step, 0.0)
        reached = rising & (until_limit <= step * (1 + _FULL))
        # Exactly the limit, not a sum of steps: callers compare the result with it.
        served = np.where(reached, limit, served)
        # At least one user stops per round, even under rounding, so the loop ends.
        full = (until_full <= step * (1 + _FULL)) | (free <= _FULL)
        rising &= ~reached & ~(share[:, full] > 0).any(axis=1)
    return served


def shares_of(demands: ArrayLike, capacity: ArrayLike) -> Floats:
    """Compute demands as shares of the capacity; infinite for a resource without capacity.

    Args:
        demands: array of shape ``(users, resources)``.
        capacity: array of shape ``(resources,)``.
    """
    demand = np.asarray(demands, dtype=np.float64)
    whole = np.broadcast_to(np.asarray(capacity, dtype=np.float64), demand.shape)
    none = np.where(demand > 0, np.inf, 0.0)  # what 0 / 0 and x / 0 mean here
    return np.divide(demand, whole, out=none, where=whole > 0)
