# SPDX-License-Identifier: Apache-2.0
"""The simulated ring: times by hand, packets as counted, stragglers, barriers, frozen tasks."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.systems.cluster.costs import EMPTY_BYTES, estimate_cost
from n3ic.systems.cluster.nodes import equal_nodes, like_coordinator
from n3ic.systems.cluster.placement import LayerPlacement, LayerSplit, ModelPlacement, Share
from n3ic.systems.cluster.planner import LayerOption, place, plan_cluster
from n3ic.systems.cluster.simulation.components import (
    MAC,
    PacketTrain,
    SimNode,
    Stage,
    Workload,
    nothing,
    sim_nodes,
)
from n3ic.systems.cluster.simulation.engine import simulate, simulate_rows
from n3ic.systems.cluster.simulation.placed_model import row_workload
from n3ic.systems.cluster.traffic import row_traffic, sum_traffic
from scripts.fcsn.workloads import KernelProblem, workload

pytest.importorskip("simpy")

NODE = SimNode(
    name="n",
    packet=1.0,
    datagram=0.0,
    classify=0.5,
    forward=0.25,
    stream=0.0,
    pipeline=2.0,
    rates={MAC: 1.0, "slice": 1.0},
    memory_bps=64.0,
    link_bps=(64 + EMPTY_BYTES) * 8 / 0.125,  # a packet takes an eighth of a second
    latency=4.0,
)


PLAN_WITHIN = [
    ("output", 0.25),
    ("input", 0.4),
    ("replicated", 0.25),
]  # docs/explanation/cluster.md


def one_stage(nodes, *flows, local=None):
    none = nothing(nodes)
    results = np.zeros(nodes + 1, dtype=np.int64)
    ops = none if local is None else np.array(local, dtype=np.float64)
    return Workload("test", (Stage("test", flows, results, ops, none, none, none),))


def test_a_packet_takes_its_handlers_its_link_and_its_kernel():
    work = one_stage(1, PacketTrain(0, 1, ((1, 3.0),)))
    # spawned 1, forwarded 0.25, wire 0.125, latency 4, handled 1, classified 0.5, 3 operations, 2
    assert simulate(work, [NODE, NODE]).seconds == pytest.approx(1 + 0.25 + 0.125 + 4 + 1.5 + 3 + 2)


def test_packets_overlap_and_the_slowest_part_sets_the_pace():
    one = simulate(one_stage(1, PacketTrain(0, 1, ((1, 3.0),))), [NODE, NODE]).seconds
    ten = simulate(one_stage(1, PacketTrain(0, 10, ((1, 30.0),))), [NODE, NODE], train=1)
    assert ten.seconds == pytest.approx(one + 9 * 3)
    assert ten.kernel[1] == pytest.approx(30 / ten.seconds)


def test_packets_that_wait_for_a_link_share_a_datagram():
    card = replace(NODE, packet=0.01, together=4)
    work = one_stage(1, PacketTrain(0, 9, ((1, 0.0),)))
    # the first leaves alone, the others in full datagrams while the link is busy
    shared = simulate(work, [card, card], train=1)
    wire = (9 * 64 + 3 * EMPTY_BYTES) * 8 / card.link_bps
    assert shared.link[0] * shared.seconds == pytest.approx(wire)
    alone = simulate(work, [replace(card, together=1)] * 2, train=1)
    assert alone.link[0] * alone.seconds == pytest.approx(9 * 0.125)


def test_a_task_reads_what_its_node_holds():
    nodes = [replace(NODE, stream=1.0)] * 2
    flow = PacketTrain(1, 0, ((1, 8.0),))
    assert simulate(one_stage(1, flow), nodes).seconds == pytest.approx(8 + 2)
    held = replace(flow, reads=3.0)
    assert simulate(one_stage(1, held), nodes).seconds == pytest.approx(24 + 2)


def test_an_exchange_does_not_wait_for_the_packet_before():
    (stage,) = one_stage(3).stages
    gathered = np.array([0.0, *[48.0 * 50] * 3])
    work = Workload("test", (replace(stage, gathered=gathered),))
    # A handler takes a packet a second: 100 for the node and 50 for the coordinator on the way.
    seconds = simulate(work, [NODE] * 4, barrier=True).seconds
    hop = 0.25 + 0.125 + 4 + 1 + 0.5
    assert 100 + 8 * hop < seconds < 100 + 12 * hop  # a barrier passes four links twice


def test_a_process_does_one_after_the_other():
    process = replace(NODE, serial=True)
    pipelined = simulate(
        one_stage(1, PacketTrain(0, 10, ((1, 30.0),))), [NODE, NODE], train=1
    ).seconds
    serial = simulate(
        one_stage(1, PacketTrain(0, 10, ((1, 30.0),))), [NODE, process], train=1
    ).seconds
    assert serial > pipelined + 5  # handlers and kernel no longer overlap


def test_processes_that_share_a_core_wait_for_it():
    flows = [PacketTrain(i, 0, ((i, 100.0),)) for i in (1, 2, 3, 4)]
    nodes = [NODE, *[replace(NODE, serial=True, core=0)] * 4]
    alone = simulate(one_stage(4, *flows), nodes).seconds
    shared = simulate(one_stage(4, *flows), nodes, cores=2).seconds
    assert shared == pytest.approx(2 * alone)


def test_a_straggler_holds_up_everybody_at_a_barrier():
    slow = [NODE, NODE, NODE, NODE.slowed(3)]
    flows = [PacketTrain(i, 0, ((i, 100.0),)) for i in (1, 2, 3)]
    two = Workload("two", one_stage(3, *flows, local=[0, 100, 100, 100]).stages * 2)
    tasks = simulate(two, slow)
    barriers = simulate(two, slow, barrier=True)
    assert tasks.seconds == pytest.approx(2 * (300 + 6))  # nobody else waits
    assert barriers.seconds > 2 * (300 + 6)
    assert max(tasks.kernel) / min(tasks.kernel[1:]) == pytest.approx(3)


def test_a_halo_freezes_its_tasks_until_the_data_is_there():
    nodes = [NODE] * 3
    free = one_stage(2, PacketTrain(1, 0, ((1, 1.0),)))
    frozen = one_stage(2, PacketTrain(1, 0, ((1, 1.0),), fetch=((2, 5),)))
    trace = simulate(frozen, nodes)
    # an RDMA task to node 2, five packets of data through the coordinator and back
    assert trace.packets == 1 + 5 + 5
    assert trace.seconds > simulate(free, nodes).seconds + 3 * NODE.latency


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(2, 900), min_size=2, max_size=4),
    st.integers(1, 5),
    st.integers(0, 3),
    st.data(),
)
def test_simulated_packets_are_those_that_are_counted(shape, count, row, data):
    cluster = equal_nodes(count, "nfp")
    ways = [
        LayerOption(data.draw(st.sampled_from(list(LayerSplit))), data.draw(st.integers(1, count)))
        for _ in itertools.pairwise(shape)
    ]
    placed = place(shape, cluster, ways)
    if placed is not None:
        nodes = sim_nodes(cluster)
        trace = simulate(row_workload(placed, row, nodes), nodes, train=1)
        assert trace.packets == sum_traffic(row_traffic(placed, row)).packets


@pytest.mark.first_case
@pytest.mark.parametrize(("split", "within"), PLAN_WITHIN)
@pytest.mark.parametrize(
    "shape", [pytest.param((4096, 2048, 10), marks=pytest.mark.slow), (768, 512, 64, 4)]
)
def test_the_plan_is_as_close_to_the_simulation_as_the_docs_say(shape, split, within):
    cluster = like_coordinator(4, "nfp", "10G")
    figures = replace(cluster.home.figures, slice_bits=384, slice_clocks=1)
    nodes = tuple(replace(n, figures=figures, bytes=10**8) for n in cluster.nodes)
    cluster = replace(cluster, nodes=nodes)
    ways = [LayerOption(LayerSplit(split), 2)] + [LayerOption(LayerSplit.OUTPUT, 1)] * (
        len(shape) - 2
    )
    placed = place(shape, cluster, ways)
    plan = estimate_cost(placed, cluster)
    ring = sim_nodes(cluster)
    alone = simulate(row_workload(placed, 0, ring), ring, train=1)
    rows = [row_workload(placed, row, ring) for row in range(96)]
    many = simulate_rows(rows, ring, slots=64)
    assert alone.seconds == pytest.approx(plan.latency_s, rel=within)
    assert 96 / many.seconds == pytest.approx(plan.rows_per_s, rel=0.25)
    assert len(many.rows) == 96


def test_slots_bound_the_rows_on_their_way():
    cluster = like_coordinator(2, "nfp", "10G")
    placed = plan_cluster((384, 64, 2), cluster).placement
    nodes = sim_nodes(cluster)
    rows = [row_workload(placed, row, nodes) for row in range(8)]
    one = simulate_rows(rows, nodes, slots=1)
    alone = simulate_rows(rows[:1], nodes, slots=1)
    assert one.seconds == pytest.approx(8 * alone.seconds, rel=0.1)
    assert simulate_rows(rows, nodes, slots=8).seconds < 0.9 * one.seconds


@pytest.mark.first_case
# Where packets are few, each is simulated: a vector of 128 would not show trains as they are used.
@pytest.mark.parametrize(("kernel", "size"), [("gemm", 128), ("spmv", 1024), ("aggregation", 128)])
def test_trains_of_packets_are_close_to_packet_by_packet(kernel, size):
    nodes = sim_nodes(like_coordinator(4, "nfp", "10G"))
    work = workload(KernelProblem(kernel, size=size, density=0.05), 4)
    exact = simulate(work, nodes, train=1)
    coarse = simulate(work, nodes, train=8)
    assert coarse.packets == exact.packets
    assert coarse.seconds == pytest.approx(exact.seconds, rel=0.15)


@pytest.mark.parametrize(
    ("inputs", "neurons", "verilog"),  # clocks counted by test_cluster_timing.py under Verilator
    [(1, 384, 422), (500, 384, 422), (512, 384, 422), (768, 384, 806), (1025, 384, 1190),
     (960, 480, 1007), (500, 1000, 1046), (4096, 384, 3110)],
)  # fmt: skip
def test_a_card_takes_as_many_clocks_as_its_verilog(inputs, neurons, verilog):
    cluster = like_coordinator(1, "netfpga", "10G")
    nodes = sim_nodes(cluster)
    free = {"packet": 0.0, "classify": 0.0, "forward": 0.0, "latency": 0.0, "link_bps": 1e18}
    layer = LayerPlacement(LayerSplit.OUTPUT, (Share(1, 0, neurons),))
    work = row_workload(ModelPlacement("", (inputs, neurons), 1, (layer,)), 0, nodes)
    quick = [replace(n, **free) for n in nodes]
    clocks = simulate_rows([work], quick, slots=1).seconds * 200e6
    assert verilog - 13 <= clocks <= verilog + 1e-3  # docs/explanation/cluster.md


def test_a_simulation_is_the_same_every_time():
    work = workload(KernelProblem("spmv", size=256, density=0.02), 3)
    nodes = sim_nodes(like_coordinator(3, "nfp", "10G"))
    first, second = (simulate(work, nodes) for _ in range(2))
    assert (first.seconds, first.packets) == (second.seconds, second.packets)
