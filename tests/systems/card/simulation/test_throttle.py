# SPDX-License-Identifier: Apache-2.0

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from n3ic.systems.card.simulation.ingress import TokenBucket
from n3ic.systems.card.simulation.throttle import OfferedLoad, ingress_rates

G = 1e9  # times are of one bit here, rates in bits a second


def tasks(*names):
    return dict.fromkeys(names, 1 / (10 * G))


def test_the_text_s_example():
    """SuperNIC, figure 4, T2: NT2 and NT4 give 7.27 to user 1, and to user 2 10 and 2.73."""
    rates = ingress_rates(
        {
            "u1": OfferedLoad(8 * G, 0.0, 32, tasks("t1", "t2", "t3", "t4")),
            "u2": OfferedLoad(13 * G, 0.0, 28, tasks("t2", "t4")),
        },
        {"t1": 1, "t2": 2, "t3": 1, "t4": 2},
    )
    assert rates["u1"] / G == pytest.approx(7.27, abs=0.005)
    assert rates["u2"] / G == pytest.approx(12.73, abs=0.005)


def test_what_is_due_comes_before_excess():
    rates = ingress_rates(
        {
            "modest": OfferedLoad(4 * G, 4 * G, 1, tasks("t")),
            "flood": OfferedLoad(1000 * G, 6 * G, 100, tasks("t")),
        },
        {"t": 1},
    )
    assert rates == pytest.approx({"modest": 4 * G, "flood": 6 * G})


def test_spare_time_is_handed_out():
    rates = ingress_rates(
        {
            "a": OfferedLoad(1 * G, 5 * G, 1, tasks("t")),
            "b": OfferedLoad(8 * G, 5 * G, 1, tasks("t")),
        },
        {"t": 1},
    )
    assert rates["b"] >= 8 * G
    assert sum(rates.values()) == pytest.approx(10 * G)


demand = st.builds(
    OfferedLoad,
    st.floats(0, 100),
    st.floats(0, 1),
    st.floats(0.1, 10),
    st.dictionaries(st.sampled_from("xyz"), st.floats(0.01, 1), min_size=1),
)


@settings(max_examples=100)
@example({"a": OfferedLoad(5e-324, 0.0, 1.0, {"x": 0.01})})  # rounds to nothing on the way
@given(st.dictionaries(st.sampled_from("abcd"), demand, min_size=1))
def test_no_task_is_overbooked_nor_idle_while_a_graph_waits_for_it(demands):
    instances = {"x": 1.0, "y": 2.0, "z": 0.5}
    rates = ingress_rates(demands, instances)
    used = {t: sum(rates[g] * d.times.get(t, 0.0) for g, d in demands.items()) for t in instances}
    assert all(used[t] <= instances[t] * (1 + 1e-6) for t in instances)
    for name, d in demands.items():
        met = rates[name] >= d.load * (1 - 1e-6)
        assert met or any(used[t] >= instances[t] * (1 - 1e-6) for t in d.times)


@settings(max_examples=50)
@given(
    st.floats(0.001, 0.5),
    st.floats(1, 20),
    st.lists(st.tuples(st.integers(0, 50), st.floats(1, 4)), max_size=60),
)
def test_a_bucket_never_lets_more_through_than_burst_and_rate(rate, burst, packets):
    bucket, now, passed = TokenBucket(rate, burst), 0, []
    for gap, cost in packets:
        now += gap
        now += bucket.wait(cost, now)
        assert bucket.wait(cost, now) == 0
        bucket.spend(cost, now)
        passed.append((now, cost))
    for i, (start, _) in enumerate(passed):
        for j in range(i, len(passed)):
            total = sum(cost for _, cost in passed[i : j + 1])
            # a packet longer than the burst passes a full bucket and leaves a debt
            over = max(0.0, passed[j][1] - burst)
            assert total <= burst + rate * (passed[j][0] - start) + over + 1e-6
