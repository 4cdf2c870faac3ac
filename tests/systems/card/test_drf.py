# SPDX-License-Identifier: Apache-2.0
"""Space: the properties of dominant-resource fairness, on random instances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from n3ic.systems.card.drf import dominant_resource_fairness, shares_of

CLOSE = 1e-7


def test_the_example_of_nine_cpus_and_18_gigabytes():
    """SuperNIC, section II-D: x takes (1, 4), y takes (3, 1); x gets 3 and y gets 2."""
    assert dominant_resource_fairness([[1, 4], [3, 1]], [9, 18]).tolist() == [3, 2]


def test_a_demand_for_bandwidth_is_area_times_its_share_of_the_maximum():
    """SuperNIC's figure 4: of 60 units x Gb/s, 32 and 28 are wanted and given."""
    wanted = [[8 * 4, 1], [14 * 2, 2]]
    given_ = dominant_resource_fairness(wanted, [60, 10], limits=[1, 1])
    assert given_ == pytest.approx([1, 1])
    # had the second wanted more, each would have half
    more = dominant_resource_fairness([[32, 1], [40, 2]], [60, 10], limits=[1, 1])
    assert (more * [32, 40]).tolist() == pytest.approx([30, 30])


def test_users_who_need_nothing_or_what_there_is_none_of():
    assert dominant_resource_fairness([[0, 0], [0, 1]], [1, 1]).tolist() == [np.inf, 1]
    assert dominant_resource_fairness([[1, 1], [0, 1]], [0, 1]).tolist() == [0, 1]
    assert dominant_resource_fairness(np.zeros((0, 2)), [1, 1]).tolist() == []
    # one who does not need what is used up goes on
    assert dominant_resource_fairness([[1, 0], [1, 0], [0, 1]], [1, 1]).tolist() == [0.5, 0.5, 1]


@st.composite
def instances(draw):
    """Demands (zeros among them), capacity, weights and limits of a few users."""
    users, resources = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    amount = st.integers(0, 20)
    rows = st.lists(amount, min_size=resources, max_size=resources).filter(any)
    demands = draw(st.lists(rows, min_size=users, max_size=users))
    positive = st.integers(1, 50)
    capacity = draw(st.lists(positive, min_size=resources, max_size=resources))
    weights = draw(st.lists(st.integers(1, 5), min_size=users, max_size=users))
    limit = st.one_of(st.just(np.inf), st.integers(0, 6))
    limits = draw(st.lists(limit, min_size=users, max_size=users))
    return tuple(np.array(part, dtype=float) for part in (demands, capacity, weights, limits))


def units(bundle, demand):
    """Units of work that a bundle of resources is good for."""
    needed = demand > 0
    return (bundle[needed] / demand[needed]).min()


@settings(max_examples=80, deadline=None)
@given(instances())
def test_no_more_is_given_than_there_is_and_none_could_have_more(instance):
    """Feasibility and Pareto efficiency."""
    demands, capacity, weights, limits = instance
    work = dominant_resource_fairness(demands, capacity, weights, limits)
    left = capacity - work @ demands
    assert (left >= -CLOSE * capacity).all() and (work <= limits).all()
    for user in range(len(work)):
        full = left <= 1e-6 * capacity
        assert work[user] >= limits[user] - CLOSE or (demands[user][full] > 0).any()


@settings(max_examples=80, deadline=None)
@given(instances())
def test_sharing_is_worth_it_and_nobody_envies_another(instance):
    """Sharing incentive against a partition by weight, and weighted envy-freeness."""
    demands, capacity, weights, limits = instance
    work = dominant_resource_fairness(demands, capacity, weights, limits)
    for user, demand in enumerate(demands):
        alone = units(capacity * weights[user] / weights.sum(), demand)
        assert work[user] >= min(alone, limits[user]) * (1 - CLOSE) - CLOSE
        for other in range(len(work)):
            theirs = demands[other] * work[other] * weights[user] / weights[other]
            assert work[user] >= min(units(theirs, demand), limits[user]) * (1 - CLOSE) - CLOSE


@settings(max_examples=80, deadline=None)
@given(instances(), st.data())
def test_a_lie_about_ones_demands_or_limit_does_not_pay(instance, data):
    """Strategy-proofness."""
    demands, capacity, weights, limits = instance
    work = dominant_resource_fairness(demands, capacity, weights, limits)
    liar = data.draw(st.integers(0, len(work) - 1))
    claims = demands.copy()
    row = st.lists(st.integers(0, 20), min_size=len(capacity), max_size=len(capacity)).filter(any)
    claims[liar] = data.draw(row)
    claimed = limits.copy()
    claimed[liar] = data.draw(st.one_of(st.just(np.inf), st.integers(0, 9)))
    got = dominant_resource_fairness(claims, capacity, weights, claimed)[liar]
    useful = min(units(got * claims[liar], demands[liar]), limits[liar])
    assert useful <= work[liar] * (1 + CLOSE) + CLOSE


@settings(max_examples=30, deadline=None)
@given(instances())
def test_shares_are_what_a_row_of_linear_programmes_finds(instance):
    """Max-min fairness by another way: raise the level, fix who cannot rise, go on."""
    demands, capacity, weights, limits = instance
    dominant = shares_of(demands, capacity).max(axis=1)
    users = len(weights)
    low, rising = np.zeros(users), limits > 0

    def largest(objective, rows, bounds):
        capped = np.column_stack([demands.T, np.zeros(len(capacity))])
        matrix = np.vstack([capped, *rows]) if rows else capped
        right = np.concatenate([capacity, np.zeros(len(rows))])
        return linprog(-objective, A_ub=matrix, b_ub=right, bounds=bounds).x

    for _ in range(users + 1):
        pace = weights / dominant
        rows = [np.append(-np.eye(users)[u] / pace[u], 1.0)[None] for u in np.flatnonzero(rising)]
        bounds = [(a, min(b, 1e9)) for a, b in zip(low, limits, strict=True)]
        top = float(min((limits / pace)[rising], default=0))
        optimum = largest(np.append(np.zeros(users), 1.0), rows, [*bounds, (0, min(top, 1e9))])
        low = np.where(rising, np.maximum(low, optimum[-1] * pace * (1 - 1e-12)), low)
        bounds = [(a * (1 - 1e-9), min(b, 1e9)) for a, b in zip(low, limits, strict=True)]
        for u in np.flatnonzero(rising):
            reach = largest(np.append(np.eye(users)[u], 0.0), [], [*bounds, (0, 1)])[u]
            rising[u] = reach > low[u] * (1 + 1e-6) + 1e-7
        if not rising.any():
            break
    work = dominant_resource_fairness(demands, capacity, weights, limits)
    assert work == pytest.approx(low, rel=1e-4, abs=1e-4)
