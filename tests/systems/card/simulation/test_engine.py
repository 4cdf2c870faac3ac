# SPDX-License-Identifier: Apache-2.0

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from n3ic.systems.card.control.loads import LOAD_KINDS
from n3ic.systems.card.control.scenario import (
    Board,
    Failure,
    PlacedChain,
    Scenario,
    SimTask,
    SimTenant,
)
from n3ic.systems.card.description import Parallel, Series
from n3ic.systems.card.simulation.baselines import POLICIES, own_regions, placement
from n3ic.systems.card.simulation.bounds import latency_bound
from n3ic.systems.card.simulation.engine import simulate
from n3ic.systems.card.simulation.packets import NEVER
from n3ic.systems.card.simulation.report import figures_of
from tests.support.sim_cards import figure_4, graph, rate_of

CHAINS = POLICIES["chains"]


def one_chain(*tasks, gbps=1.0, region_area=9.0, placed=None, board=None, **change):
    names = tuple(t.name for t in tasks)
    return Scenario(
        board or Board(),
        {t.name: t for t in tasks},
        (SimTenant("u"),),
        (graph("u", names, gbps, kind="constant"),),
        1,
        region_area,
        placed or (PlacedChain(names),),
        **{"seconds": 1e-4, "bins": 2, **change},
    )


def latencies(trace, name):
    left = trace.graphs[name].left
    return (left["departed"] - left["admitted"]).astype(int)


@pytest.mark.parametrize("length", [1, 4])
def test_a_lone_packet_takes_its_tasks_one_pass_and_what_is_fixed(length):
    tasks = [SimTask(f"t{i}", latency=10) for i in range(length)]
    trace = simulate(one_chain(*tasks), CHAINS)
    assert set(latencies(trace, "u/g")) == {16 + 33 + 10 * length}
    trace = simulate(one_chain(*tasks), POLICIES["per-task"])
    assert set(latencies(trace, "u/g")) == {33 + 26 * length}


def test_parallel_branches_take_as_long_as_the_longest_and_a_pass_each():
    tasks = {n: SimTask(n, latency=c) for n, c in (("a", 10), ("b", 50), ("c", 20), ("d", 5))}
    flow = Series((Parallel((Series(("a", "c")), Series(("b",))), "both"), "d"))
    scenario = Scenario(
        Board(),
        tasks,
        (SimTenant("u"),),
        (graph("u", flow, 0.1, kind="constant"),),
        3,
        2.0,
        (PlacedChain(("a", "c")), PlacedChain(("b",)), PlacedChain(("d",))),
        1e-4,
        bins=1,
    )
    cycles = latencies(simulate(scenario, CHAINS), "u/g")
    # the second branch's decision comes a cycle after the first's
    assert set(cycles) == {33 + 16 + 50 + 1 + 16 + 5}


def test_throughput_is_the_slowest_task_s():
    slow = one_chain(SimTask("a", 10, 2), SimTask("b", 10, 100), gbps=50, seconds=1e-3)
    trace = simulate(replace(slow, graphs=(replace(slow.graphs[0], entitled=1e9),)), CHAINS)
    gaps = np.diff(trace.graphs["u/g"].left["departed"].astype(int))
    assert np.median(gaps) == 100
    assert gaps.min() >= 100 - 10


@settings(max_examples=8, phases=(Phase.explicit, Phase.generate))  # one takes half a second
@given(
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from(LOAD_KINDS),
    st.floats(0.5, 20),
    st.floats(0.5, 20),
    st.integers(0, 99),
)
def test_packets_are_conserved_in_order_and_queues_bounded(policy, kind, first, second, seed):
    scenario = figure_4(first, second, 2e-4)
    graphs = tuple(replace(g, load=replace(g.load, kind=kind))
                   for g in scenario.graphs)  # fmt: skip
    failing = replace(scenario, graphs=graphs, failures=(Failure(1e-4, 0),))
    trace = simulate(failing, POLICIES[policy], seed)
    for count in trace.graphs.values():
        left = count.left
        gone = len(left) + sum(count.dropped.values())
        assert count.arrived == gone + count.queued + count.inside
        assert np.all(np.diff(left["departed"].astype(int)) >= 0)  # in the order of arrival
        assert count.most_queued <= scenario.board.ingress_queue
        assert count.most_inside <= scenario.board.store
        assert np.all(left["arrived"] <= left["admitted"])
        assert np.all(left["admitted"] <= left["departed"])
    assert np.all(trace.utilisation >= 0)


@pytest.mark.slow
def test_no_more_is_within_a_guarantee_than_its_bucket_pays_for():
    base = figure_4(20, 20)
    halves = tuple(replace(g, entitled=g.entitled / 2) for g in base.graphs)
    trace = simulate(replace(base, graphs=halves), CHAINS)
    for graph_ in halves:
        packets, rate = trace.graphs[graph_.name].arrivals, graph_.entitled / 250e6
        paid = np.sort(packets[packets["paid"] != NEVER], order="paid", kind="stable")
        since, until = paid["arrived"].astype(float), paid["paid"].astype(float)
        assert np.any(packets["beyond"])
        assert len(paid) > 100
        # The bucket fills while a packet waits, so it counts from its arrival; it counts cycles.
        for i in range(0, len(paid), 7):
            count = np.arange(1, len(paid) - i + 1)
            assert np.all(count <= 16 + rate * (until[i:] - since[i] + 1))


@pytest.mark.slow
def test_shares_converge_to_what_is_due():
    """SuperNIC, figure 4, T2: 7.27 Gb/s and, on its own region and the rest, 12.73."""
    trace = simulate(figure_4(8, 20, 2e-3), CHAINS)
    first, second = figures_of(trace).tenants
    assert np.mean(first.timeline_gbps[1:]) == pytest.approx(7.27, rel=0.02)
    assert np.mean(second.timeline_gbps[1:]) == pytest.approx(12.73, rel=0.02)


def test_a_flood_leaves_others_within_their_bound():
    calm = figure_4(5, 5, kind := 5e-4)
    modest = replace(calm.graphs[0], load=replace(calm.graphs[0].load, kind="constant"))
    delays = {}
    for gbps in (5, 90):
        loud = graph("u2", ("t2", "t4"), gbps, 12.72, "constant", 7)
        trace = simulate(replace(calm, graphs=(modest, loud), seconds=kind), CHAINS)
        delays[gbps] = latencies(trace, "u1/g") * 4
        assert len(trace.graphs["u1/g"].left["departed"]) >= 0.97 * trace.graphs["u1/g"].arrived
        assert not trace.graphs["u1/g"].dropped
    bound = latency_bound(calm, modest, 512)
    assert delays[90].max() <= bound
    assert delays[90].max() > delays[5].max()  # else nothing was shared
    per_task = simulate(
        replace(calm, graphs=(modest, graph("u2", ("t2", "t4"), 90, 12.72, "constant", 7))),
        POLICIES["static"],
    )
    assert per_task.graphs["u2/g"].dropped


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trace():
    first, second, other = (simulate(figure_4(8, 13, 2e-4), CHAINS, s) for s in (1, 1, 2))
    packets = [t.graphs["u1/g"].packets.tobytes() for t in (first, second, other)]
    assert packets[0] == packets[1] != packets[2]


def test_a_stuck_task_is_cut_off_and_the_others_go_on():
    scenario = replace(
        figure_4(4, 8, 8e-3),
        placed=(PlacedChain(("t1", "t2")), PlacedChain(("t3", "t4")), PlacedChain(("t5",))),
        failures=(Failure(1e-3, 2),),
    )
    tasks = {**scenario.tasks, "t5": SimTask("t5", latency=10, gbps=10)}
    victim = graph("u2", ("t5",), 0.5)
    modest = graph("u1", ("t1", "t2", "t3", "t4"), 0.5)
    trace = simulate(replace(scenario, tasks=tasks, graphs=(modest, victim)), CHAINS)
    assert [e.what for e in trace.events] == ["cut-off"]
    assert not trace.graphs["u1/g"].dropped
    assert latencies(trace, "u1/g").max() < 1000
    dropped = trace.graphs["u2/g"].dropped
    assert dropped["cut-off"] >= 1
    left = np.asarray(trace.graphs["u2/g"].left["departed"]) / 250e6
    assert np.any(left > 6.5e-3)  # after the region was loaded again
    assert not np.any((left > 1.1e-3) & (left < 6e-3))


def test_a_lost_region_s_chain_is_launched_elsewhere():
    scenario = one_chain(SimTask("a", 10), gbps=0.2, seconds=12e-3)
    spare = replace(scenario, regions=2, failures=(Failure(2e-3, 0, "lost"),))
    trace = simulate(spare, CHAINS)
    assert [e.what for e in trace.events] == ["lost", "free"]
    left = np.asarray(trace.graphs["u/g"].left["departed"]) / 250e6
    assert np.any(left > 8e-3)
    per_task = simulate(spare, POLICIES["per-task"])
    assert max(per_task.graphs["u/g"].left["departed"]) / 250e6 < 3e-3


def test_a_tenant_comes_and_goes_while_another_s_packets_flow():
    base = one_chain(SimTask("a", 10), gbps=0.2, seconds=20e-3)
    guest = SimTenant("guest", arrives=4e-3, leaves=12e-3)
    scenario = replace(
        base,
        # so long a task that packets are in the card when the tenant leaves
        tasks={**base.tasks, "b": SimTask("b", 300_000, credits=64)},
        tenants=(*base.tenants, guest),
        graphs=(*base.graphs, graph("guest", ("b",), 0.2)),
        regions=2,
    )
    trace = simulate(scenario, CHAINS)
    assert [(e.what, e.chain) for e in trace.events] == [("pre-launch", ("b",)),
                                                         ("de-schedule", ("b",))]  # fmt: skip
    alone = simulate(base, CHAINS)
    assert not trace.graphs["u/g"].dropped
    assert latencies(trace, "u/g").max() <= latencies(alone, "u/g").max() + 16
    first = min(trace.graphs["guest/g"].left["departed"]) / 250e6
    assert 9e-3 <= first - 1.2e-3 < 9.1e-3  # 5 ms after it came
    assert trace.graphs["guest/g"].inside == 0


def two_of_one_region(second, **change):
    base = one_chain(SimTask("a", 10, gbps=1), gbps=0.2, seconds=80e-3)
    guest = SimTenant("guest", arrives=1e-3)
    return replace(
        base,
        tasks={**base.tasks, "b": SimTask("b", 10)},
        tenants=(*base.tenants, guest),
        graphs=(*base.graphs, graph("guest", (second,), 0.2, kind="constant")),
        **change,
    )


def test_who_uses_a_task_that_runs_and_has_time_left_is_served_at_once():
    trace = simulate(two_of_one_region("a", seconds=2e-3, regions=2), CHAINS)
    assert trace.events == ()
    assert min(trace.graphs["guest/g"].left["departed"]) < 1.01e-3 * 250e6


def test_a_task_without_time_left_is_launched_again_where_a_region_is_free():
    scenario = two_of_one_region("a", seconds=8e-3, regions=2)
    full = replace(scenario.graphs[0], entitled=rate_of(1, 512))
    trace = simulate(replace(scenario, graphs=(full, scenario.graphs[1])), CHAINS)
    # and given back, for the one that is entitled to all of it sends a fifth
    assert [e.what for e in trace.events] == ["free", "de-schedule"]


def test_a_context_switch_is_the_last_resort_and_nobody_waits_for_ever():
    trace = simulate(two_of_one_region("b"), CHAINS, 0)
    assert {e.what for e in trace.events} == {"context-switch"}
    times = [e.time for e in trace.events]
    assert len(times) >= 2
    assert np.diff(times).min() >= 20e-3  # a chain serves for so long before it is stopped
    for name in ("u/g", "guest/g"):
        left = np.asarray(trace.graphs[name].left["departed"]) / 250e6
        assert left.max() > 40e-3
        assert trace.graphs[name].most_inside <= 64  # buffered while the other's chain serves


@pytest.mark.slow
def test_an_instance_comes_with_the_load_and_goes_with_it():
    base = one_chain(SimTask("a", 10, gbps=1), gbps=0.6, seconds=40e-3)
    load = replace(base.graphs[0].load, kind="constant", changes=((5e-3, 2.0), (25e-3, 1.0)))
    scenario = replace(base, regions=2, graphs=(replace(base.graphs[0], load=load),), bins=8)
    trace = simulate(scenario, CHAINS)
    assert [e.what for e in trace.events] == ["free", "de-schedule"]
    speed = figures_of(trace).tenants[0].timeline_gbps
    assert speed[3] == pytest.approx(1.2, rel=0.1)
    assert simulate(scenario, POLICIES["drf"]).events == ()


def test_static_partitions_are_equal_and_drf_s_follow_demand():
    scenario = replace(figure_4(8, 14), regions=5)
    owners = [p.owner for p in placement(POLICIES["static"], scenario)]
    assert owners == ["u1", "u1", "u2", "u2"]  # the fifth is nobody's
    placed = placement(POLICIES["drf"], scenario)  # 2.67 and 2.33 regions
    assert [p.owner for p in placed] == ["u1"] * 3 + ["u2"] * 2
    assert [p.chain for p in placed if p.owner == "u2"] == [("t2", "t4")] * 2
    assert own_regions(scenario, scenario.tenants[0], 1) == ()
    assert placement(CHAINS, scenario) == scenario.placed


def test_branches_of_a_graph_are_packed_into_few_regions():
    tasks = {f"q{i}": SimTask(f"q{i}", area=0.3) for i in range(7)}
    flow = Series((Parallel(tuple(Series((name,)) for name in tasks), "both"),))
    graphs = (graph("a", flow, 1), graph("b", ("q0",), 1))
    tenants = (SimTenant("a"), SimTenant("b"))
    scenario = Scenario(Board(), tasks, tenants, graphs, 4, 1.0, (), 1e-5)
    for name in ("static", "drf"):
        places = placement(POLICIES[name], scenario)
        assert [p.owner for p in places].count("b") == (2 if name == "static" else 1)
    assert [p.chain for p in places if p.owner == "a"] == [
        ("q0", "q1", "q2"), ("q3", "q4", "q5"), ("q6",)]  # fmt: skip
