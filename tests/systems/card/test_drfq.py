"""Time: dominant resource fair queueing of packets, and the rates that it converges to."""

import pytest

from n3ic.systems.card.drfq import FairQueue

# SuperNIC's figure 4: seconds of a gigabit at each task; tasks 2 and 4 have two instances
FIRST = {"nt1": 0.1, "nt2": 0.05, "nt3": 0.1, "nt4": 0.05}
SECOND = {"nt2": 0.05, "nt4": 0.05}


def served(loads, weights, seconds=60.0, packet=0.01):
    """Gb/s of two users at the two instances of task 2, which serve 20 Gb/s."""
    queue = FairQueue(weights)
    done = dict.fromkeys(weights, 0.0)
    sent = dict.fromkeys(weights, 0.0)
    step = packet / 20
    for i in range(int(seconds / step)):
        for user, load in loads.items():
            while sent[user] < load * i * step:
                needs = FIRST if user == "u1" else SECOND
                queue.put(user, i, {task: t * packet for task, t in needs.items()})
                sent[user] += packet
        if len(queue):
            user, _ = queue.get()
            done[user] += packet
    return {user: amount / seconds for user, amount in done.items()}


def test_the_example_at_13_gigabits():
    """The text rounds 7.27 and 2.73 beside the 10 Gb/s of the second's own region."""
    rates = served({"u1": 8, "u2": 13}, {"u1": 32, "u2": 28})
    assert rates["u1"] == pytest.approx(80 / 11, rel=0.004)
    assert rates["u2"] == pytest.approx(140 / 11, rel=0.004)
    assert round(rates["u2"] - 10, 2) == pytest.approx(2.73, abs=0.04)


def test_who_sends_less_than_its_share_is_not_delayed_and_the_other_has_the_rest():
    rates = served({"u1": 2, "u2": 30}, {"u1": 32, "u2": 28}, seconds=50)
    assert rates["u1"] == pytest.approx(2, rel=0.01)
    assert rates["u2"] == pytest.approx(18, rel=0.01)


def test_idle_time_gives_no_credit():
    queue = FairQueue({"a": 1.0, "b": 1.0})
    for i in range(100):
        queue.put("a", i, {"r": 1.0})
    for _ in range(50):
        queue.get()
    for i in range(100):
        queue.put("b", i, {"r": 1.0})
    after = [queue.get()[0] for _ in range(20)]
    assert after.count("b") == pytest.approx(10, abs=1)


def test_packets_of_a_user_stay_in_order_and_an_empty_queue_says_so():
    queue = FairQueue({"a": 1.0})
    with pytest.raises(IndexError, match="no packet waits"):
        queue.get()
    for i in range(3):
        queue.put("a", i, {"r": 1.0 + i})
    assert [queue.get()[1] for _ in range(3)] == [0, 1, 2]
