# SPDX-License-Identifier: Apache-2.0
"""From a description to a plan: SuperNIC's example, many networks, and random cards."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import CardError
from n3ic.systems.card.demand import demand_of
from n3ic.systems.card.description import Card
from n3ic.systems.card.parser import parse_card
from n3ic.systems.card.plan import RegionPass
from n3ic.systems.card.planner import plan, plan_card, time_shares
from n3ic.systems.card.resources import Amount, Resource, TaskCost, budget_of

GBPS = 1e9 / (8 * 500)  # packets a second


def gbps(planned, loads):
    given_ = time_shares(planned, budget_of(planned.card), {u: v * GBPS for u, v in loads.items()})
    return {uid: rate / GBPS for uid, rate in given_.items()}


def test_the_example_of_two_tenants_on_three_regions(two_tenants):
    """SuperNIC, figure 4 and the end of section IV-E."""
    planned = plan_card(two_tenants())
    first, second = planned.shares
    # "8 x 4 = 32 (8/15 of the area-bandwidth product) and 14 x 2 = 28 (7/15)"; memory 1/10, 1/5
    assert first.demand == pytest.approx({"units": 8 / 15, "memory": 1 / 10})
    assert second.demand == pytest.approx({"units": 7 / 15, "memory": 1 / 5})
    assert (first.dominant, second.dominant) == ("units", "units")
    assert [60 * s.dominant_share for s in planned.shares] == pytest.approx([32, 28])
    # the first's graph in two regions, the second's in the third; nt2 and nt4 of the first's
    # chains are used by both, by skipping nt1 and nt3
    chains = {r.index: r.chain for r in planned.regions}
    assert sorted(chains.values()) == [("nt1", "nt2"), ("nt2", "nt4"), ("nt3", "nt4")]
    region = {chain: index for index, chain in chains.items()}
    u1, u2 = planned.graphs
    assert [p.stages for p in u1.paths] == [
        (
            (RegionPass(region["nt1", "nt2"], ("nt1", "nt2")),),
            (RegionPass(region["nt3", "nt4"], ("nt3", "nt4")),),
        )
    ]
    assert [p.stages for p in u2.paths] == [
        ((RegionPass(region["nt2", "nt4"], ("nt2", "nt4")),),),
        (
            (RegionPass(region["nt1", "nt2"], ("nt2",)),),
            (RegionPass(region["nt3", "nt4"], ("nt4",)),),
        ),
    ]
    assert u2.paths[0].rate == pytest.approx(10 * GBPS, rel=1e-4)
    assert u1.latency_ns == 2 * 64 + 4 * 200
    # T1: 8 and 11 Gb/s are sustained
    assert gbps(planned, {1: 8, 2: 11}) == pytest.approx({1: 8, 2: 11})
    # T2, at 13 Gb/s: "the allocation of NT2/NT4 to U1 and U2 to be 7.27 and 2.73"
    at_13 = gbps(planned, {1: 8, 2: 13})
    assert (round(at_13[1], 2), round(at_13[2] - 10, 2)) == (7.27, 2.73)
    # in the ratio of 8 : 7, as the text has it, of area x bandwidth: four tasks against two
    assert 4 * at_13[1] / (2 * at_13[2]) == pytest.approx(8 / 7)


def test_the_examples_wishes_cannot_both_be_met(two_tenants):
    """Area x bandwidth fits (60 of 60), two instances of nt2 do not serve 8 + 14 Gb/s."""
    planned = plan_card(two_tenants())
    assert [g.entitled / GBPS for g in planned.graphs] == pytest.approx([8, 14])
    assert [g.guaranteed / GBPS for g in planned.graphs] == pytest.approx([80 / 11, 140 / 11])
    assert len(planned.problems) == 2
    assert "nt2 (2.2 instances are wanted, 2 fit)" in planned.problems[0]
    met = plan_card(two_tenants(8, 12))
    assert met.problems == ()
    assert [g.guaranteed / GBPS for g in met.graphs] == pytest.approx([8, 12])


def test_what_does_not_hold_with_whole_instances(two_tenants):
    """Claiming more than is needed pays where a claim becomes a weight of time sharing."""
    honest = gbps(plan_card(two_tenants(8, 14)), {1: 8, 2: 14})
    lying = gbps(plan_card(two_tenants(8, 20)), {1: 8, 2: 14})
    assert lying[2] > honest[2] + 0.1
    # and the first, who asked for no more than half of the card, is not served what it asked for
    assert honest[1] < 8


def tomography(networks, regions, wanted="1e6", spare=0, lut=40000):
    """Networks that read the same packet, and another tenant's network."""
    network = (
        'kind = "network"\nmodel = "x"\nneeds = {{ lut = {lut}, bram = {bram} }}\n'
        'rate = "6.25e6 inferences/s"\nlatency_ns = 380\n'
    )
    text = (
        f"[device]\nresources = {{ lut = {lut}, bram = 200 }}\nregions = {regions}\n"
        f"spare = {spare}\nscheduling_ns = 80\n[[tenants]]\nname = 'ops'\n"
    )
    for i in range(networks):
        text += f"[[tenants.tasks]]\nname = 'q{i:02}'\n" + network.format(lut=460, bram=2.5)
    branches = ", ".join(f"['q{i:02}']" for i in range(networks))
    text += "[[tenants.tasks]]\nname = 'act'\nkind = 'policy'\nrules = [{ action = 'drop' }]\n"
    text += (
        f"[[tenants.graphs]]\nname = 'queues'\nuid = 1\nwants = '{wanted} inferences/s'\n"
        f"flow = [{{ branches = [{branches}], join = 'both' }}, 'act']\n"
    )
    text += "[[tenants]]\nname = 'soc'\n[[tenants.tasks]]\nname = 'anomaly'\n"
    text += network.format(lut=589, bram=4)
    text += "[[tenants.graphs]]\nname = 'watch'\nuid = 2\nwants = '9e6 inferences/s'\n"
    return parse_card(text + "flow = ['anomaly']\n")


def test_17_networks_and_an_anomaly_network():
    planned = plan_card(tomography(17, 4, spare=1))
    assert planned.problems == ()
    ops, soc = planned.graphs
    assert len(planned.regions) == 4 and planned.regions[3].chain == ()
    # twice the rate of one core: two instances; the 17 have one each
    assert len(planned.instances["soc/anomaly"]) == 2
    assert all(len(planned.instances[f"ops/q{i:02}"]) == 1 for i in range(17))
    assert sum(p.rate for p in soc.paths) == pytest.approx(9e6)
    assert all(p.rate <= 6.25e6 * 1.0001 for p in soc.paths)
    # no region is of two tenants, so that one is replaced without the other
    for region in planned.regions:
        assert len({name.partition("/")[0] for name in region.chain}) <= 1
    visited = [t for stage in ops.paths[0].stages for v in stage for t in v.tasks]
    assert sorted(visited) == sorted([*(f"ops/q{i:02}" for i in range(17)), "ops/act"])
    assert visited[-1] == "ops/act"
    json.dumps(planned.to_dict())


def test_branches_run_side_by_side_where_that_is_quicker():
    wide = plan_card(tomography(4, 4)).graphs[0]
    assert max(map(len, wide.paths[0].stages)) == 2  # the two regions that the other leaves
    narrow = plan_card(tomography(4, 1)).graphs[0]
    assert max(map(len, narrow.paths[0].stages)) == 1
    assert wide.latency_ns < narrow.latency_ns == 80 + 4 * 380


def test_tenants_share_regions_where_that_serves_more():
    planned = plan_card(tomography(4, 1))
    assert {t.partition("/")[0] for t in planned.regions[0].chain} == {"ops", "soc"}
    # one core of 6.25e6 is not 9e6; within one region there is one instance
    assert planned.problems == (
        "soc/watch wants 4.608 Gb/s (9e+06 packets/s), 3.2 Gb/s (6.25e+06 packets/s) can be "
        "guaranteed: soc/anomaly (1.44 instances are wanted, 1 fit)",
    )


def test_what_does_not_fit_is_a_problem():
    planned = plan_card(tomography(9, 2, wanted="1000", lut=4200))
    assert any("no room for ops/q" in p for p in planned.problems)
    assert planned.graphs[0].guaranteed == 0 and planned.graphs[0].paths == ()
    assert planned.graphs[1].guaranteed == pytest.approx(9e6)


def test_the_same_card_gives_the_same_plan():
    first, second = (plan_card(tomography(9, 3)).to_dict() for _ in range(2))
    assert json.dumps(first) == json.dumps(second)


def test_resources_that_the_card_lacks(two_tenants):
    text = (
        "[device]\nresources = { units = 1 }\n[[tasks]]\nname = 'a'\nkind = 'policy'\n"
        "rules = [{ action = 'drop' }]\nneeds = { lut = 3 }\n[[tenants]]\nname = 't'\n"
        "[[tenants.graphs]]\nname = 'g'\nuid = 1\nwants = '1 packets/s'\nflow = ['a']\n"
    )
    with pytest.raises(CardError, match=r"c.toml:3: a needs 'lut', expected one of units"):
        plan_card(parse_card(text, "c.toml"))
    text = text.replace("lut", "units").replace("regions", "x")
    assert plan_card(parse_card(text)).problems != ()  # three units of one
    with pytest.raises(CardError, match="expected fewer spare ones, got 2"):
        plan_card(parse_card(text.replace("[device]\n", "[device]\nregions = 2\nspare = 2\n")))
    bare = text.replace(
        "kind = 'policy'\nrules = [{ action = 'drop' }]\nneeds = { units = 3 }",
        "kind = 'network'\nmodel = 'm.n3ic'",
    )
    with pytest.raises(CardError, match=r"c.toml:3: expected 'needs' and 'rate' of task 'a'"):
        plan_card(parse_card(bare, "c.toml"))


@st.composite
def cards(draw) -> Card:
    """Small cards: tasks that several graphs share, whole instances, a few regions."""
    tasks = draw(st.integers(2, 4))
    regions = draw(st.integers(1, 3))
    text = f"[device]\nresources = {{ units = {draw(st.integers(4, 6)) * regions} }}\n"
    text += f"regions = {regions}\n"
    used = set()
    tenants = []
    for i in range(draw(st.integers(1, 3))):
        order = draw(st.permutations(range(tasks)))[: draw(st.integers(1, tasks))]
        used |= set(order)
        flow = ", ".join(f"'a{t}'" for t in order)
        if len(order) > 2 and draw(st.booleans()):
            first, left, right, *rest = (f"'a{t}'" for t in order)
            join = f"{{ branches = [[{left}], [{right}]], join = 'both' }}"
            flow = ", ".join([first, join, *rest] if draw(st.booleans()) else [join, first, *rest])
        tenants.append(
            f"[[tenants]]\nname = 't{i}'\nweight = {draw(st.integers(1, 3))}\n"
            f"[[tenants.graphs]]\nname = 'g'\nuid = {i + 1}\npacket_bytes = 500\n"
            f"wants = '{draw(st.integers(1, 24))} Gb/s'\nflow = [{flow}]\n"
        )
    for t in sorted(used):
        text += (
            f"[[tasks]]\nname = 'a{t}'\nkind = 'verilog'\nsources = ['a.v']\ntop = 'a'\n"
            f"needs = {{ units = {draw(st.integers(1, 3))} }}\nrate = '10 Gb/s'\n"
        )
    return parse_card(text + "".join(tenants))


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(cards(), st.lists(st.integers(0, 30), min_size=3, max_size=3))
def test_a_plan_holds_what_it_says(card, loads):
    """Regions, instances and rates are within bounds; guarantees hold; nobody could have more."""
    planned = plan_card(card)
    budget = budget_of(card)
    room = budget.resources[0].capacity
    assert all(r.used["units"] <= room for r in planned.regions)
    busy = {}
    for g in planned.graphs:
        assert g.guaranteed <= g.wanted * (1 + 1e-6)
        assert sum(p.rate for p in g.paths) == pytest.approx(g.guaranteed if g.paths else 0)
        flow = card.graphs[g.uid][1].flow
        for path in g.paths:
            place = {
                t: (number, visit.region, planned.regions[visit.region].chain.index(t))
                for number, stage in enumerate(path.stages)
                for visit in stage
                for t in visit.tasks
            }
            assert sorted(place) == sorted(flow.tasks())
            for before, after in flow.edges():
                (stage, *there), (next_stage, *here) = place[before], place[after]
                assert stage < next_stage or (stage == next_stage and there[0] == here[0])
                assert stage < next_stage or there[1] < here[1]
            for visit in (v for stage in path.stages for v in stage):
                for t in visit.tasks:
                    assert t in planned.regions[visit.region].chain
                    busy[t, visit.region] = busy.get((t, visit.region), 0) + path.rate
    assert all(rate <= 10 * GBPS * 1.001 for rate in busy.values())
    # time: at any loads, each has the smaller of load and guarantee, and what is left is used
    load = {i + 1: float(v) for i, v in enumerate(loads)}
    shares = gbps(planned, load)
    count = {t: len(where) for t, where in planned.instances.items()}
    asked = dict.fromkeys(count, 0.0)
    for g in planned.graphs:
        assert shares[g.uid] >= min(load[g.uid], g.guaranteed / GBPS) * (1 - 1e-5) - 1e-6
        assert shares[g.uid] <= load[g.uid] + 1e-6
        for t in card.graphs[g.uid][1].flow.tasks():
            asked[t] += shares[g.uid]
    for t, rate in asked.items():
        assert rate <= 10 * count[t] * (1 + 1e-5) + 1e-6
    for g in planned.graphs:
        full = [
            t
            for t in card.graphs[g.uid][1].flow.tasks()
            if asked[t] >= 10 * count[t] * (1 - 1e-4) - 1e-4
        ]
        assert full or shares[g.uid] >= load[g.uid] * (1 - 1e-4)


def test_time_on_a_core_is_divided_too():
    """Cycles are taken by packets: two graphs on one core, whose sum is what it has."""
    card = tomography(2, 1, wanted="3e6")
    budget = replace(
        budget_of(card), resources=(Resource("cycles", "cycle/s", "packet", "region", 1e9),)
    )
    cost = TaskCost({"cycles": Amount(100, "measured", "here")}, None, "measured", "", None)
    costs = dict.fromkeys(card.tasks, cost)
    demand = demand_of(card, budget, costs)
    # three tasks of 100 cycles at 3e6/s, and one at 9e6/s
    assert demand.shares.ravel() == pytest.approx([0.9, 0.9])
    planned = plan(card, budget, costs)
    assert [g.guaranteed for g in planned.graphs] == pytest.approx([5e8 / 300, 5e8 / 100])


@pytest.mark.parametrize(
    ("key", "rate", "frames"),
    [("", 9e6, 9000), ("bucket_ms = 0.5", 9e6, 4500), ("bucket_ms = 0.5", 1e4, 16)],
)
def test_a_bucket_holds_some_milliseconds_of_the_guarantee(key, rate, frames):
    text = (
        "[device]\nresources = { units = 1 }\n[[tasks]]\nname = 'a'\nkind = 'network'\n"
        f"model = 'x'\nneeds = {{}}\nrate = '9e6 packets/s'\n[[tenants]]\nname = 't'\n{key}\n"
        f"[[tenants.graphs]]\nname = 'g'\nuid = 1\nwants = '{rate} packets/s'\nflow = ['a']\n"
    )
    (graph,) = plan_card(parse_card(text)).graphs
    assert graph.burst_bytes == frames * graph.packet_bytes


def test_tasks_that_take_no_counted_resource_are_still_served_by_weight():
    text = (
        "[device]\nresources = { units = 1 }\n[[tasks]]\nname = 'a'\nkind = 'network'\n"
        "model = 'x'\nneeds = {}\nrate = '9 packets/s'\n"
    )
    for uid, weight in enumerate((1, 2), start=1):
        text += (
            f"[[tenants]]\nname = 't{uid}'\nweight = {weight}\n[[tenants.graphs]]\nname = 'g'\n"
            f"uid = {uid}\nwants = '9 packets/s'\nflow = ['a']\n"
        )
    planned = plan_card(parse_card(text))
    assert [g.guaranteed for g in planned.graphs] == pytest.approx([3, 6])


def test_a_task_without_a_largest_rate_is_a_demand_of_one_instance():
    text = (
        "[device]\nresources = { tables = 10 }\n[[tasks]]\nname = 'a'\nkind = 'policy'\n"
        "rules = [{ action = 'drop' }]\nneeds = { tables = 4 }\n[[tasks]]\nname = 'b'\n"
        "kind = 'policy'\nrules = [{ action = 'drop' }]\nneeds = { tables = 6 }\n"
    )
    for uid, flow in ((1, "['a']"), (2, "['a', 'b']")):
        text += (
            f"[[tenants]]\nname = 't{uid}'\n[[tenants.graphs]]\nname = 'g'\nuid = {uid}\n"
            f"wants = '9 packets/s'\nflow = {flow}\n"
        )
    planned = plan_card(parse_card(text))
    assert [s.demand["tables"] for s in planned.shares] == pytest.approx([0.2, 0.8])
    assert planned.problems == ()


def test_indices_have_the_32_bits_that_older_solvers_read(two_tenants, monkeypatch):
    optimize = pytest.importorskip("scipy.optimize")
    seen, solve = [], optimize.milp

    def milp(*args, constraints, **named):
        seen.append(constraints.A)
        return solve(*args, constraints=constraints, **named)

    monkeypatch.setattr(optimize, "milp", milp)
    plan_card(two_tenants())
    assert seen
    assert {str(d) for m in seen for d in (m.indices.dtype, m.indptr.dtype)} == {"int32"}
