# SPDX-License-Identifier: Apache-2.0
"""The clocks of a node on the NetFPGA, which the plan and the cycle simulator read."""

import os
import shutil
import signal
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from n3ic.model.bits import pack
from n3ic.model.random_models import random_model
from n3ic.systems.cluster import netfpga
from n3ic.systems.cluster.convolution import Filters
from n3ic.systems.cluster.costs import estimate_cost
from n3ic.systems.cluster.dense import GemmFlow
from n3ic.systems.cluster.kernels import GemmKernel
from n3ic.systems.cluster.matrices import AggregationKernel, FilterKernel
from n3ic.systems.cluster.netfpga.matrix_image import matrix_image
from n3ic.systems.cluster.nodes import like_coordinator
from n3ic.systems.cluster.placement import LayerPlacement, LayerSplit, ModelPlacement, Share
from n3ic.systems.cluster.protocol import TaskId, bits_packets
from n3ic.systems.cluster.simulation.components import sim_nodes
from n3ic.systems.cluster.simulation.engine import simulate_rows
from n3ic.systems.cluster.simulation.matrix_rows import matrix_row
from n3ic.systems.cluster.simulation.placed_model import row_workload
from tests.support.card_rig import frame, neighbours_of
from tests.support.lone_card import CARD, Alone, bits

needs_verilator = pytest.mark.skipif(
    shutil.which("verilator") is None or shutil.which("g++") is None,
    reason="needs Verilator and g++",
)
TASK = 132  # bytes of a frame with a packet


def clocks():
    return tomllib.loads((Path(netfpga.__file__).parent / "node.toml").read_text())["clocks"]


def events(path: Path):
    """Lines of the log: what, clock, bytes of what left."""
    for line in path.read_text().splitlines():
        kind, clock, *size = line.split()
        yield kind, int(clock), int(size[0]) if size else 0


@pytest.mark.slow
@needs_verilator
def test_the_clocks_of_the_file_are_those_of_the_verilog(tmp_path):
    card = Alone(tmp_path)
    card.begin()
    first, second, last = bits(0)
    for packet in (first, second):
        card.send_packet(packet)
        for _ in range(2):
            card.packet()
    other = replace(first, array=1)
    card.send_packet(other)
    card.packet()
    os.kill(card.rig.process.pid, signal.SIGSTOP)  # so that what follows comes back to back
    for _ in range(40):
        card.rig.send(frame(card.raw(other)))
        card.sequence += 1
    os.kill(card.rig.process.pid, signal.SIGCONT)
    for _ in range(40):
        card.packet()
    card.inbox[1].clear()
    card.rig.send(frame(card.raw(last)))
    for _ in range(2 + 2):  # to both sides, and 480 bits in two packets
        card.packet()
    card.rig.stop()

    seen = list(events(card.rig.log))
    stored = [i for i, (kind, _, _) in enumerate(seen) if kind == "s"]
    want = clocks()
    came = [clock for kind, clock, _ in seen if kind == "i"]
    for at in stored:
        assert seen[at][1] - seen[at - 1][1] == want["classify"]
    passed = next(
        i for i in range(stored[1], len(seen)) if seen[i][2] == TASK and i > stored[1] + 3
    )
    before = [clock for kind, clock, _ in seen[:passed] if kind == "i"]
    assert seen[passed][1] - before[-1] == want["forward"]
    gaps = [b - a for a, b in pairwise(came)]
    assert gaps.count(want["packet"]) >= 15  # the window is full then
    results = [clock for _, clock, size in seen[stored[2] :] if size == TASK]
    complete = seen[stored[2]][1]
    # 384 neurons of two slices fill a packet; the second one holds three words of twelve.
    assert results[2] - complete == 384 * 2 + want["compute"] + want["result"]
    assert results[3] - complete == 480 * 2 + want["compute"] + want["result"] + 9


PACKET_BITS = 384


def verilog_rows(folder, inputs, neurons, rows):
    """When the last words of each row were stored, and when its last packet began to leave."""
    model = random_model((inputs, neurons, 2), np.random.default_rng(0))
    layers = ((CARD, neurons), (3, 2))
    placed = ModelPlacement(
        model.digest,
        model.shape,
        3,
        tuple(LayerPlacement(LayerSplit.OUTPUT, (Share(node, 0, n),)) for node, n in layers),
    )
    status = (0, 0, neurons, 0, 1, 16, -(-inputs // 32), 1)
    card = Alone(folder, model=model, placed=placed, status=status)
    card.begin()
    words = pack(np.random.default_rng(1).random((1, inputs)) < 0.5)
    os.kill(card.rig.process.pid, signal.SIGSTOP)  # so that the rows come back to back
    for row in range(rows):
        for packet in bits_packets(words, task=TaskId.BITS, array=0, row=row, outputs=neurons):
            card.rig.send(frame(card.raw(packet)))
            card.sequence += 1
    os.kill(card.rig.process.pid, signal.SIGCONT)
    packets = -(-neurons // PACKET_BITS)
    for _ in range(rows * packets):
        card.packet()
    card.rig.stop()
    seen = list(events(card.rig.log))
    stored = [clock for kind, clock, _ in seen if kind == "s"]
    # What left before belongs to begin(), where a slow machine's answers have packets sent again.
    left = [at for kind, at, size in seen if kind == "o" and size == TASK and at > stored[0]]
    return stored[len(stored) // rows - 1 :: len(stored) // rows], left[packets - 1 :: packets]


def planned_and_simulated(inputs, neurons):
    """Clocks of a card's kernel alone: packets, hops and links take no time."""
    cluster = like_coordinator(1, "netfpga", "10G")
    free = {"packet": 0, "datagram": 0, "classify": 0, "forward": 0}
    home, card = (
        replace(n, figures=replace(n.figures, **free), link_bps=1e18, latency_s=0.0)
        for n in (cluster.home, *cluster.nodes)
    )
    cluster = replace(cluster, home=home, nodes=(card,))
    layer = LayerPlacement(LayerSplit.OUTPUT, (Share(1, 0, neurons),))
    placed = ModelPlacement("", (inputs, neurons), 1, (layer,))
    nodes = sim_nodes(cluster)
    alone = simulate_rows([row_workload(placed, 0, nodes)], nodes, slots=1)
    plan = estimate_cost(placed, cluster)
    hertz = card.figures.clock_hz
    return plan.latency_s * hertz, alone.seconds * hertz, hertz / plan.rows_per_s


@pytest.mark.exhaustive
@needs_verilator
@pytest.mark.parametrize("inputs", [1, 500, 512, 768, 1025, 4096])
@pytest.mark.parametrize("neurons", [400, 1000])
def test_plan_and_simulation_take_the_clocks_of_the_verilog(tmp_path, inputs, neurons):
    pytest.importorskip("simpy")
    stored, left = verilog_rows(tmp_path, inputs, neurons, rows=1)
    verilog = left[0] - stored[0]
    plan, simulated, _ = planned_and_simulated(inputs, neurons)
    assert plan == pytest.approx(simulated, rel=1e-6)
    # The Verilog fills what is left of the last packet, a word a clock, and pauses two clocks at
    # each packet where a neuron takes one (docs/explanation/cluster.md).
    packets = -(-neurons // PACKET_BITS)
    words = -(-(neurons - PACKET_BITS * (packets - 1)) // 32)
    pauses = 2 * (packets - 1) if inputs <= 512 else 0
    assert verilog == pytest.approx(plan + 12 - words + pauses, abs=0.5)


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize(("inputs", "neurons"), [(500, 384), (768, 384), (1025, 100)])
def test_rows_follow_one_another_as_the_plan_says(tmp_path, inputs, neurons):
    pytest.importorskip("simpy")
    _, left = verilog_rows(tmp_path, inputs, neurons, rows=8)
    _, _, between = planned_and_simulated(inputs, neurons)
    gaps = [b - a for a, b in pairwise(left)][2:]  # of rows that waited
    # The card is never faster. It waits for acknowledgements, which a busy machine sends late.
    assert between <= min(gaps) <= between + 26  # docs/explanation/cluster.md


def on_card(kernel, at_once):
    """The same kernel with all columns on the card of :class:`Alone`, and its image."""
    columns = kernel.whole_matrix.matrix.shape[1]
    # The simulated ring is the card alone; beside the Verilog, nodes 1 and 3 hold nothing.
    kernel.__dict__["share"] = lambda node, nodes: Share(
        node, 0, columns if nodes == 1 or node == CARD else 0
    )
    return matrix_image(kernel, 3, CARD, columns=at_once, **neighbours_of(CARD, 3))


def verilog_matrix_rows(folder, kernel, image, rows):
    """When the last number of each row was stored, and when its last sums began to leave."""
    whole = kernel.whole_matrix
    columns = whole.matrix.shape[1]
    status = (0, 0, columns, 0, 4, 16, whole.packets, 1)
    card = Alone(folder, image=image, digest=kernel.digest, status=status)
    card.begin()
    flow = GemmFlow(0, columns, whole.windows)
    numbers = np.ones((1, whole.numbers), dtype=np.int64)
    os.kill(card.rig.process.pid, signal.SIGSTOP)  # so that the rows come back to back
    for row in range(rows):
        for packet in flow._tasks(row, numbers):
            card.rig.send(frame(card.raw(packet)))
            card.sequence += 1
    os.kill(card.rig.process.pid, signal.SIGCONT)
    packets = whole.windows * -(-columns // 6)
    for _ in range(rows * packets):
        card.packet()
    card.rig.stop()
    seen = list(events(card.rig.log))
    stored = [clock for kind, clock, _ in seen if kind == "s"]
    left = [at for kind, at, size in seen if kind == "o" and size == TASK and at > stored[0]]
    return stored[whole.packets - 1 :: whole.packets], left[packets - 1 :: packets]


def simulated_matrix_rows(kernel, at_once, weight_rows, rows, *, free):
    """Seconds until each row's last sums are home, in clocks; ``free``: packets take no time."""
    cluster = like_coordinator(1, "netfpga", "10G")
    none = {"packet": 0, "datagram": 0, "classify": 0, "forward": 0}
    home, card = (
        replace(n, link_bps=1e18, latency_s=0.0, figures=replace(n.figures, macs=16 * at_once, **f))
        for n, f in ((cluster.home, none), (cluster.nodes[0], none if free else {}))
    )
    nodes = sim_nodes(replace(cluster, home=home, nodes=(card,)))
    row = matrix_row(kernel, [card], {1: weight_rows})
    trace = simulate_rows([row] * rows, nodes, slots=4)
    return [at * card.figures.clock_hz for at in trace.rows]


def ones(inner, columns):
    return GemmKernel(np.ones((inner, columns), dtype=np.int64))


def strips():
    weights = np.ones((12, 4, 3, 3), dtype=np.int64)
    return FilterKernel(Filters(weights, (8, 10, 4), padding=1))


def graph():
    edges = np.random.default_rng(0).random((120, 200)) < 0.05
    return AggregationKernel(edges.astype(np.int64))


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize(
    ("made", "at_once"),
    [
        (lambda: ones(12, 6), 4),
        (lambda: ones(40, 12), 4),
        (lambda: ones(100, 96), 4),  # as fast as the sums leave
        (lambda: ones(240, 96), 4),
        (lambda: ones(240, 48), 1),
        (lambda: ones(400, 24), 4),
        (strips, 4),
        (graph, 4),
    ],
)
def test_a_row_takes_the_clocks_of_the_simulator(tmp_path, made, at_once):
    pytest.importorskip("simpy")
    kernel = made()
    image = on_card(kernel, at_once)
    stored, left = verilog_matrix_rows(tmp_path, kernel, image, 1)
    (simulated,) = simulated_matrix_rows(kernel, at_once, image.slices, 1, free=True)
    assert left[0] - stored[0] == pytest.approx(simulated, rel=0.1)


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize(
    ("inner", "columns", "at_once", "rows"),
    [(400, 24, 4, 4), (240, 48, 1, 3), (12, 48, 1, 3), (40, 12, 4, 8)],  # what is slow differs
)
def test_rows_of_a_matrix_follow_as_simulated(tmp_path, inner, columns, at_once, rows):
    pytest.importorskip("simpy")
    kernel = ones(inner, columns)
    image = on_card(kernel, at_once)
    _, left = verilog_matrix_rows(tmp_path, kernel, image, rows)
    # Rows in flight share the simulator's links by turns, so they end in groups.
    simulated = simulated_matrix_rows(kernel, at_once, image.slices, 48, free=False)
    between = (simulated[-1] - simulated[7]) / 40
    gaps = [b - a for a, b in pairwise(left)]
    assert np.mean(gaps) == pytest.approx(between, rel=0.1)
