# SPDX-License-Identifier: Apache-2.0
"""Clocks of nodes: those of the targets, of FCsN's card, of a process as measured here."""

from dataclasses import replace

import pytest

from n3ic import plugins
from n3ic.systems.cluster.figures import FOLDER, NODE_FILE, figures_of, node_figures
from n3ic.systems.cluster.simulation.calibration import NodeMeasurement, measure_node
from n3ic.systems.cluster.simulation.experiments import (
    CLAIMS,
    FCSN,
    NodeModel,
    Point,
    fcsn_card,
    shrunk,
    slower,
    sweep,
)
from n3ic.systems.cluster.simulation.workloads import KernelProblem


@pytest.mark.parametrize(
    "target",
    [t for t in plugins.names("n3ic.exporters") if (FOLDER / t / NODE_FILE).is_file()],
)
def test_a_target_that_describes_its_node_says_how_it_knows(target):
    found = node_figures(target)
    assert found.source
    assert found.bytes > 0
    assert found.kind in ("measured", "simulated")


def test_a_target_without_a_description_is_estimated_from_its_device():
    found = node_figures("nfp")
    assert (found.kind, found.memory, found.bytes) == ("estimated", "cls", 65536 - 16384)
    # a word of 32 bits after the other, 62.5 ns each at 800 MHz
    assert (found.slice_bits, found.slice_clocks) == (32, 50)
    assert found.neuron_clocks(384) == 12 * 50


def test_the_card_of_fcsn_is_labelled_an_estimate():
    found = figures_of(FCSN)
    assert (found.kind, found.clock_hz) == ("estimated", 294e6)
    assert fcsn_card().nodes(3)[3].link_bps == 100e9


def test_fcsns_claims_are_those_of_its_text():
    said = {c.name: c.speedup for c in CLAIMS}
    assert said["GEMM"] == 2.3
    assert said["MLP"] == 3.3
    assert said["SPMV"] == said["SPGEMM"] == said["aggregation"] == 6.7
    assert (said["CoraFull"], said["Reddit"]) == (5.08, 10.13)
    reddit = next(c.problem for c in CLAIMS if c.name == "Reddit")
    assert shrunk(reddit).graph.edges == 2_000_000
    assert shrunk(CLAIMS[0].problem) == CLAIMS[0].problem


def test_tasks_beat_barriers_on_irregular_kernels():
    pytest.importorskip("simpy")
    (point,) = sweep([KernelProblem("aggregation")], [4], fcsn_card(), train=64)
    assert point.data_s < point.compute_s / 2
    slow = sweep([KernelProblem("conv2d", size=256)], [4], NodeModel("nfp", "10G"), straggler=5)[0]
    assert slow.imbalance > 2


def test_what_is_measured_is_written_as_a_node(tmp_path):
    path = tmp_path / "node.toml"
    measured = NodeMeasurement(packet=3000, datagram=8e4, slice=1.5, row=1e5, hop=1e4, error=0.2)
    path.write_text(measured.toml("a machine"))
    found = figures_of(path)
    assert (found.packet, found.datagram, found.slice_clocks) == (3000, 80000, 1.5)
    assert (found.kind, found.serial, found.together) == ("measured", True, 22)


def test_rings_that_are_slower_than_one_node_are_told():
    base = Point("gemm", 4, 2.0, 3.0, 1.0, packets=9, imbalance=1.0, link=0.5, frozen=0)
    fast, alone = replace(base, data_s=0.9), replace(base, nodes=1)
    assert slower([base, fast, alone]) == (base,)
    assert slower([base], weak=True) == ()  # one node would take 4 s
    assert slower([replace(base, data_s=4.1)], weak=True) == (replace(base, data_s=4.1),)


@pytest.mark.slow
def test_a_process_node_is_measured():
    pytest.importorskip("scipy")
    found = measure_node(shapes=((384, 2), (8448, 2)), rows=5)
    assert found.packet + found.datagram + found.row > 1000  # nanoseconds
    assert found.slice > 0
    assert found.hop > 100
