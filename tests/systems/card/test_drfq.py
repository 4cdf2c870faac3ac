# SPDX-License-Identifier: Apache-2.0
"""Time: dominant resource fair queueing of packets, and the rates that it converges to."""

import heapq

import pytest

from n3ic.systems.card.drfq import VirtualClock

# SuperNIC's figure 4: seconds of a gigabit at each task; tasks 2 and 4 have two instances
FIRST = {"nt1": 0.1, "nt2": 0.05, "nt3": 0.1, "nt4": 0.05}
SECOND = {"nt2": 0.05, "nt4": 0.05}


def served(loads, weights, seconds=60.0, packet=0.01):
    """Gb/s of two users at the two instances of task 2, which serve 20 Gb/s."""
    clock, waiting = VirtualClock(), []
    done = dict.fromkeys(weights, 0.0)
    sent = dict.fromkeys(weights, 0.0)
    step = packet / 20
    for i in range(int(seconds / step)):
        for user, load in loads.items():
            while sent[user] < load * i * step:
                needs = FIRST if user == "u1" else SECOND
                start = clock.start(user, max(needs.values()) * packet, weights[user])
                heapq.heappush(waiting, (start, user))
                sent[user] += packet
        if waiting:
            start, user = heapq.heappop(waiting)
            clock.served(start)
            done[user] += packet
    return {user: amount / seconds for user, amount in done.items()}


def test_the_example_at_13_gigabits():
    """The text rounds 7.27 and 2.73 beside the 10 Gb/s of the second's own region."""
    rates = served({"u1": 8, "u2": 13}, {"u1": 32, "u2": 28})
    assert rates["u1"] == pytest.approx(80 / 11, rel=0.004)
    assert rates["u2"] == pytest.approx(140 / 11, rel=0.004)
    assert round(rates["u2"] - 10, 2) == pytest.approx(2.73, abs=0.04)


def test_who_sends_less_than_its_share_is_not_delayed_and_the_other_has_the_rest():
    rates = served({"u1": 2, "u2": 30}, {"u1": 32, "u2": 28}, seconds=20)
    assert rates["u1"] == pytest.approx(2, rel=0.01)
    assert rates["u2"] == pytest.approx(18, rel=0.01)


def test_idle_time_gives_no_credit():
    clock = VirtualClock()
    first = [clock.start("a", 1.0, 1.0) for _ in range(100)]
    assert first == list(range(100))
    for start in first[:50]:
        clock.served(start)
    # the second begins where the first is, not where it was when it began
    assert [clock.start("b", 1.0, 2.0) for _ in range(3)] == [49.0, 49.5, 50.0]


def test_a_packet_that_comes_back_does_not_turn_the_clock_back():
    clock = VirtualClock()
    clock.served(5.0)
    clock.served(3.0)
    assert clock.start("a", 1.0, 1.0) == 5.0
