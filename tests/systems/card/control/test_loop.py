# SPDX-License-Identifier: Apache-2.0
"""The control loop over a card that only writes down its orders."""

from dataclasses import replace

from n3ic.systems.card.control.loop import ControlLoop
from n3ic.systems.card.control.regions import Costs
from n3ic.systems.card.control.scenario import Board, PlacedChain, Scenario, SimTask, SimTenant
from n3ic.systems.card.driver import GraphCounters
from tests.support.sim_cards import graph

A, B = ("a",), ("b",)
RATE = 1000.0  # packets a second that either tenant is entitled to
BOARD = Board(monitor=1.0, hold=2.0, costs=Costs(0.5, 0.25))


class WrittenDown:
    """Orders in their order, and counters as a test sets them."""

    def __init__(self):
        self.orders, self.offered, self.inside = [], {"u/g": 0.0, "v/g": 0.0}, 0

    def counters(self):
        return {name: GraphCounters(n, self.inside) for name, n in self.offered.items()}

    def set_rates(self, rates, now):
        self.orders.append(("rates", *rates.values()))

    def load(self, region, chain, ready):
        self.orders.append(("load", region, chain, ready))

    def unload(self, region):
        self.orders.append(("unload", region))

    def taken(self):
        orders, self.orders = self.orders, []
        return orders


def card(regions, **of_second):
    """Two tenants with a task each; an instance serves twice what one is entitled to."""
    graphs = tuple(replace(graph(u, (t,), 1.0), entitled=RATE) for u, t in (("u", "a"), ("v", "b")))
    tasks = {t: SimTask(t, interval=int(BOARD.clock_hz / RATE / 2)) for t in "ab"}
    tenants = (SimTenant("u"), SimTenant("v", **of_second))
    return Scenario(BOARD, tasks, tenants, graphs, regions, 1.0, (PlacedChain(A),), 60.0)


def started(scenario, *chains):
    driver = WrittenDown()
    return ControlLoop(scenario, driver, chains), driver


def test_a_tenant_that_comes_and_goes_has_its_rate_and_its_chain_meanwhile():
    loop, driver = started(card(2, arrives=3.0, leaves=6.0), A)
    assert driver.taken() == [("load", 0, A, 0.0), ("rates", RATE)]
    for now in range(1, 3):
        loop.step(float(now))
    assert driver.taken() == []
    loop.step(3.0)
    assert driver.taken() == [("rates", RATE, RATE), ("load", 1, B, 3.5)]
    loop.step(5.0)
    assert driver.taken() == []
    loop.step(6.0)
    assert driver.taken() == [("rates", RATE), ("unload", 1)]


def test_who_has_left_brings_no_chain_back():
    loop, driver = started(card(2, leaves=2.0), A, B)
    loop.step(2.0)
    assert driver.taken()[-1] == ("unload", 1)
    driver.offered["v/g"] += 5
    loop.step(3.0)
    assert driver.taken() == []


def test_a_region_is_switched_when_its_chain_has_served_for_long_enough():
    loop, driver = started(card(1), A)
    driver.taken()
    driver.offered["v/g"] += 5
    loop.step(1.0)
    assert driver.taken() == []  # it must serve for 2 s
    driver.inside = 1
    loop.step(2.0)
    assert driver.taken() == [("load", 0, B, 2.75)]


def test_an_instance_comes_after_three_windows_of_load_and_goes_after_three_without():
    """And comes back at once, for its region still holds it: the victim cache."""
    loop, driver = started(card(4), A, B)
    driver.taken()
    orders = []
    for now in range(1, 13):
        driver.offered["u/g"] += RATE if 6 <= now < 10 else 3 * RATE
        loop.step(float(now))
        orders.append(driver.taken())
    assert [e.what for e in loop.events] == ["free", "de-schedule", "victim"]
    assert [(i + 1, order) for i, order in enumerate(orders) if order] == [
        (3, [("load", 2, A, 3.5)]),
        (8, [("unload", 2)]),
        (12, [("load", 2, A, 12.0)]),
    ]


def test_no_chain_is_launched_that_no_bitstream_holds():
    """Of two bitstreams, one holds both tasks: it comes whole, and no load brings a second one."""
    both = ("b", "a")
    made = replace(card(3, arrives=2.0), exported=(A, both))
    loop, driver = started(made, A)
    driver.taken()
    for now in range(1, 9):
        driver.offered["u/g"] += 9 * RATE
        loop.step(float(now))
    assert [order for order in driver.taken() if order[0] != "rates"] == [("load", 1, both, 2.5)]
    assert [e.what for e in loop.events] == ["pre-launch"]


def test_a_lost_region_is_never_used_again():
    loop, driver = started(card(2), A)
    driver.offered["u/g"] += 5
    loop.step(1.0)
    driver.taken()
    loop.lose(0, 1.5)
    assert driver.taken() == [("unload", 0), ("load", 1, A, 2.0)]
    driver.offered["v/g"] += 5
    loop.step(8.0)
    assert driver.taken() == [("load", 1, B, 8.75)]  # a switch, though the lost one is empty


def test_without_adaptation_only_failures_are_told():
    driver = WrittenDown()
    loop = ControlLoop(card(2), driver, [A], adapts=False)
    loop.use("v/g", 0.0)
    loop.restart(0, 1.0)
    assert driver.taken() == [("load", 0, A, 0.0), ("unload", 0), ("load", 0, A, 1.5)]
    assert [e.what for e in loop.events] == ["cut-off"]
