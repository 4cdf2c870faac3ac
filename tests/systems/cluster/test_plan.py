# SPDX-License-Identifier: Apache-2.0
"""Where layers are placed, what that costs, and when a model is refused."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import ClusterError, UsageError
from n3ic.systems.cluster.costs import estimate_cost, memory_used
from n3ic.systems.cluster.nodes import equal_nodes, read_nodes
from n3ic.systems.cluster.placement import LayerSplit
from n3ic.systems.cluster.plan import read_placement, read_plan
from n3ic.systems.cluster.planner import LayerOption, place, plan_cluster
from n3ic.systems.cluster.simulation.placed_model import simulate_placed
from n3ic.util.json_text import json_text

SHAPE = (4096, 2048, 10)


def ring(count, size=None, shares=None, **change):
    cluster = equal_nodes(count, "nfp", home="nfp")
    nodes = [
        replace(
            n,
            bytes=n.bytes if size is None else size,
            figures=replace(n.figures, shares=shares, clock_hz=2e8, slice_bits=384, slice_clocks=1),
            **change,
        )
        for n in cluster.nodes
    ]
    return replace(cluster, nodes=tuple(nodes))


def test_a_layer_that_no_node_holds_is_divided_among_as_many_as_it_takes():
    cluster = ring(4, 400_000)
    assert place(SHAPE, cluster, [LayerOption(LayerSplit.OUTPUT, 1)] * 2) is None
    plan = plan_cluster(SHAPE, cluster)
    assert len(plan.placement.layers[0].shares) > 1
    assert all(used <= 400_000 for used in plan.used.values())
    # 2,048 rows of 11 slices of 48 bytes and a threshold each, and the classes
    assert sum(plan.used.values()) >= 2048 * (11 * 48 + 4) + 10 * (6 * 48 + 4)
    assert {a.name: a.expected is None for a in plan.alternatives}["one node"]


def test_what_does_not_fit_names_layer_memory_and_bytes():
    with pytest.raises(ClusterError) as refused:
        plan_cluster(SHAPE, ring(2, 500_000))
    missing = 2048 * (11 * 48 + 4) - 1_000_000
    assert "layer 0 (4096-2048)" in str(refused.value)
    assert "memory cls of 2 nodes" in str(refused.value)
    assert f"{missing:,} bytes are missing; about 3 nodes" in str(refused.value)


def test_cards_that_hold_one_layer_each_are_not_given_two():
    plan = plan_cluster(SHAPE, ring(4, 10**7, shares=1))
    nodes = [s.node for layer in plan.placement.layers for s in layer.shares]
    assert len(nodes) == len(set(nodes))
    with pytest.raises(ClusterError, match="no node is left"):
        plan_cluster((64, 64, 64, 2), ring(2, 10**7, shares=1))


def test_a_loaded_node_gets_less():
    cluster = ring(2)
    first, second = cluster.nodes
    cluster = replace(cluster, nodes=(replace(first, load=0.75), second))
    (shares,) = (
        p.shares for p in place((384, 640), cluster, [LayerOption(LayerSplit.OUTPUT, 2)]).layers
    )
    assert [(s.start, s.end) for s in shares] == [(0, 128), (128, 640)]


def test_many_rows_prefer_replicas_and_one_row_alone_a_split():
    cluster = ring(4, 10**7)
    shape = (4096, 4096)
    rate = plan_cluster(shape, cluster, goal="throughput", splits=None)
    delay = plan_cluster(shape, cluster, goal="latency", splits=None)
    assert delay.placement.layers[0].split is LayerSplit.OUTPUT
    assert delay.expected.latency_s <= rate.expected.latency_s * 1.01
    assert rate.expected.rows_per_s * 1.01 >= delay.expected.rows_per_s
    replicas = estimate_cost(
        place(shape, cluster, [LayerOption(LayerSplit.REPLICATED, 4)]), cluster
    )
    # a row alone is at one replica: four times as long in the kernel
    assert replicas.layers_s[0] > 3 * delay.expected.layers_s[0]


def test_few_neurons_behind_a_split_layer_are_split_by_the_inputs_that_are_there():
    plan = plan_cluster((4096, 16384, 10), ring(4, 10**7))
    plain = {a.name: a.expected for a in plan.alternatives}["split by output"]
    assert plan.placement.layers[1].split is not LayerSplit.OUTPUT
    assert plan.expected.packets < plain.packets


def test_a_slow_link_is_what_limits_a_split_by_input():
    fast, slow = ring(4, 10**7), ring(4, 10**7, link_bps=1e8)
    ways = [LayerOption(LayerSplit.INPUT, 4)]
    placed = place((4096, 4096), fast, ways)
    assert estimate_cost(placed, slow).rows_per_s < estimate_cost(placed, fast).rows_per_s / 5
    assert "link" in estimate_cost(placed, slow).bottleneck


@pytest.mark.parametrize(
    ("shape", "one_node", "within"),
    [
        ((4096, 2048, 10), False, 0.35),
        ((4096, 16384, 10), False, 0.25),
        ((152, 544, 272, 34), True, 0.35),  # the coordinator takes half of the time of two cores
    ],
)
def test_one_node_is_advised_where_a_ring_of_processes_gains_little(shape, one_node, within):
    cluster = equal_nodes(2, "host", home="host")
    plan = plan_cluster(shape, cluster, cores=2)
    assert ("take one node: one process without a ring" in plan.advice) is one_node
    assert ("2 cores limits" in plan.advice) is one_node
    assert plan.to_dict()["advice"] == plan.advice
    _, many, _, rows = simulate_placed(plan.placement, cluster, 64, cores=2)
    assert rows / many.seconds == pytest.approx(plan.expected.rows_per_s, rel=within)
    # a ring of which a node is a card has packets of 512 bits, and no process to compare with
    assert plan_cluster(shape, replace(cluster, home=equal_nodes(1, "nfp").nodes[0])).advice == ""


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(2, 700), min_size=2, max_size=4),
    st.lists(
        st.tuples(st.integers(100, 90_000), st.sampled_from([None, 1])), min_size=1, max_size=4
    ),
    st.data(),
)
def test_every_placement_covers_its_layers_and_stays_within_each_memory(shape, sizes, data):
    cluster = ring(len(sizes))
    nodes = [
        replace(n, bytes=size, figures=replace(n.figures, shares=shares))
        for n, (size, shares) in zip(cluster.nodes, sizes, strict=True)
    ]
    cluster = replace(cluster, nodes=tuple(nodes))
    ways = [
        LayerOption(
            data.draw(st.sampled_from(list(LayerSplit))), data.draw(st.integers(1, len(sizes)))
        )
        for _ in pairwise(shape)
    ]
    placed = place(shape, cluster, ways)  # Placement itself checks that shares cover the layers
    if placed is not None:
        used = memory_used(placed)
        assert all(used.get(i, 0) <= size for i, (size, _) in enumerate(sizes, 1))
        assert estimate_cost(placed, cluster).rows_per_s > 0


def test_a_plan_is_written_and_its_placement_read_back(tmp_path):
    plan = plan_cluster((256, 64, 4), ring(3))
    path = tmp_path / "plan.json"
    path.write_text(json_text(plan.to_dict()))
    assert read_placement(path) == plan.placement
    assert read_plan(path) == (plan.placement, plan.cluster)
    assert json.loads(path.read_text())["expected"]["kind"] == "estimated"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON file"),
        ("[]", "expected a plan"),
        ('{"version": 9}', "expected a plan of version 2"),
        ('{"version": 2}', "placement"),
        ("[" * 100_000, "not a JSON file"),
        ('{"version": 2, "placement": {"version": 1, "model": "", "shape": [2, 2], "nodes": 1e9, '
         '"layers": []}}', "integers"),
    ],
)  # fmt: skip
def test_a_damaged_plan_is_refused(tmp_path, text, message):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ClusterError, match=message):
        read_placement(path)
    with pytest.raises(ClusterError, match="cannot be read"):
        read_placement(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("nodes",), []),
        (("nodes", 0), 3),
        (("nodes", 0, "figures"), None),
        (("nodes", 0, "link_bps"), 0),
        (("nodes", 0, "load"), 1),
        (("nodes", 0, "latency_s"), -1),
        (("nodes", 0, "name"), 5),
        (("home", "figures", "clock_hz"), float("inf")),
        (("home", "figures", "packet"), True),
        (("home", "figures", "serial"), "yes"),
        (("home", "figures", "kind"), "guessed"),
        (("home", "figures", "shares"), 1.5),
        (("home", "figures", "tiles", "cached_slice"), 0),
        (("home", "figures", "tiles", "cache"), "large"),
    ],
)
def test_a_plan_whose_nodes_cannot_be_is_refused(tmp_path, where, value):
    cluster = replace(ring(2), home=equal_nodes(1, "nfp").home)  # a process
    data = json.loads(json_text(plan_cluster((256, 64, 4), cluster).to_dict()))
    at = data
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    message = f"{where[-1]}: expected .*, got " if len(where) > 2 else "expected"
    with pytest.raises(ClusterError, match=message):
        read_plan(path)


def test_nodes_are_read_with_their_memories_links_and_loads(tmp_path):
    path = tmp_path / "nodes.toml"
    path.write_text(
        '[home]\ntarget = "nfp"\n'
        '[[nodes]]\nname = "a"\ntarget = "nfp"\ncount = 2\nlink = "40G"\nmemory = "imem"\n'
        '[[nodes]]\nname = "b"\ntarget = "netfpga"\nbytes = 1000\nload = 0.5\nlatency_us = 3\n'
    )
    cluster = read_nodes(path)
    assert [n.name for n in cluster.nodes] == ["a1", "a2", "b"]
    # what the forwarding firmware takes of a memory is not there for weights
    assert cluster.nodes[0].bytes == 4194304 - 2097152
    assert cluster.nodes[0].link_bps == 40e9
    assert (cluster.nodes[2].bytes, cluster.nodes[2].load) == (1000, 0.5)
    assert cluster.home.target == "nfp"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("count = 0", "count: expected a whole number in 1..254, got 0"),
        ("count = true", "count: expected"),
        ('link = "fast"', "link: expected a speed such as 10G"),
        ('link = "0G"', "link: expected a speed"),
        ("load = 1", "load: expected a number in 0..0.99, got 1"),
        ('memory = "tape"', "memory: expected one of cls, ctm, imem, emem, got 'tape'"),
        ("bytes = 1.5", "bytes: expected a whole number"),
        ("colour = 1", "unknown key 'colour', expected one of name, target"),
        ("latency_us = nan", "latency_us: expected"),
    ],
)
def test_an_entry_that_cannot_be_names_its_key(tmp_path, entry, message):
    path = tmp_path / "nodes.toml"
    path.write_text(f'[[nodes]]\nname = "n"\ntarget = "nfp"\n{entry}\n')
    with pytest.raises(ClusterError, match=message.replace("[", r"\[")):
        read_nodes(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes = 3", "expected [[nodes]]"),
        ("[[nodes]]\nname = '../x'\ntarget = 'nfp'", "name: expected letters"),
        ("[[nodes]]\nname = 'x'\ntarget = 3", "target: expected the name"),
        ("[[nodes]]\nname='x'\ntarget='nfp'\n[[nodes]]\nname='x'\ntarget='nfp'", "two nodes named"),
        ("a = [", "not a TOML file"),
    ],
)
def test_a_list_of_nodes_that_is_none_is_refused(tmp_path, text, message):
    path = tmp_path / "nodes.toml"
    path.write_text(text)
    with pytest.raises(ClusterError) as refused:
        read_nodes(path)
    assert message in str(refused.value)


def test_targets_without_a_memory_are_refused():
    with pytest.raises(UsageError, match="nowhere"):
        equal_nodes(2, "nowhere")
    with pytest.raises(ClusterError, match="has no memory of known size"):
        equal_nodes(2, "p4")


@pytest.mark.parametrize("shape", [(4,), (4, 1), (0, 4), (70_000, 4)])
def test_a_shape_that_cannot_be_is_refused(shape):
    with pytest.raises(ClusterError, match=r"at most|expected input bits"):
        plan_cluster(shape, ring(1))
