# SPDX-License-Identifier: Apache-2.0

from dataclasses import replace

import pytest

from n3ic.errors import UsageError
from n3ic.systems.card.planned_scenario import (
    packets_offered,
    scenario_of,
    with_events,
    with_loads,
)
from n3ic.systems.card.planner import plan
from n3ic.systems.card.resources import budget_of, costs_of
from n3ic.systems.card.simulation.baselines import POLICIES
from n3ic.systems.card.simulation.engine import simulate
from n3ic.systems.card.simulation.report import figures_of

pytest.importorskip("scipy")


@pytest.fixture(name="scenario")
def scenario_fixture(two_tenants):
    card = two_tenants(8, 11)
    budget = budget_of(card)
    return scenario_of(plan(card, budget, costs_of(card, budget)), budget, 1e-3)


def test_a_plan_is_simulated_as_it_stands(scenario):
    assert scenario.board.schedule == 16  # 64 ns at 250 MHz
    task = scenario.tasks["nt1"]
    assert (task.latency, task.gbps, task.area) == (50, 10.0, 0.5)
    assert [len(p.chain) for p in scenario.placed] == [2, 2, 2]
    first, second = scenario.graphs
    assert first.load.mean_bytes == 500
    assert first.entitled == pytest.approx(2e6)  # 8 Gb/s in frames of 500 bytes
    assert packets_offered(scenario)["u2/graph"] == pytest.approx(2750)
    figures = figures_of(simulate(scenario, POLICIES["chains"]))
    for tenant in figures.tenants:
        assert tenant.share == pytest.approx(1, abs=0.03)
        assert not tenant.dropped
        assert tenant.core_ns["p99.9"] < tenant.bound_ns
    assert second.weight / first.weight == pytest.approx(22 / 32)  # area times bandwidth


@pytest.mark.slow
def test_tasks_that_take_no_area_are_simulated_too(scenario):
    first = scenario.graphs[0].chains[0][0]
    tasks = {**scenario.tasks, first: replace(scenario.tasks[first], area=0.0)}
    figures = figures_of(simulate(replace(scenario, tasks=tasks), POLICIES["chains"]))
    assert [t.share for t in figures.tenants] == pytest.approx([1, 1], abs=0.03)


def test_loads_and_events_change_what_they_name(scenario):
    changed = with_loads(scenario, ["poisson", "u2=bursts*3"])
    first, second = (g.load for g in changed.graphs)
    assert (first.kind, second.kind) == ("poisson", "bursts")
    assert second.rate == 3 * scenario.graphs[1].load.rate
    changed = with_events(scenario, ["u2:arrives@0.0002", "u2:leaves@8e-4", "1:lost@0.0005"])
    assert (changed.tenants[1].arrives, changed.tenants[1].leaves) == (2e-4, 8e-4)
    assert changed.failures[0].region == 1


@pytest.mark.first_case
@pytest.mark.parametrize(
    "text", ["u3=bursts", "storm", "u1=bursts*0", "bursts*x", "u1=bursts*1e9", ""]
)
def test_a_load_that_cannot_be_read_is_refused(scenario, text):
    with pytest.raises(UsageError, match="--load"):
        with_loads(scenario, [text])


@pytest.mark.first_case
@pytest.mark.parametrize(
    "text", ["u1:arrives@1", "u3:leaves@0", "3:stuck@0", "x:lost@0", "u1@0", "u1:arrives@1e", ""]
)
def test_an_event_that_cannot_be_read_is_refused(scenario, text):
    with pytest.raises(UsageError, match="--event"):
        with_events(scenario, [text])
