# SPDX-License-Identifier: Apache-2.0
"""``scripts/fcsn``: its claims, sweeps, pictures and measured nodes, and the script as typed."""

import json
import sys
from dataclasses import replace

import pytest

from n3ic.systems.cluster.figures import figures_of
from scripts.fcsn.__main__ import main
from scripts.fcsn.calibration import NodeMeasurement, measure_node
from scripts.fcsn.experiments import (
    CLAIMS,
    FCSN,
    NodeModel,
    Point,
    fcsn_card,
    profiles,
    shrunk,
    slower,
    sweep,
)
from scripts.fcsn.picture import scaling_figure
from scripts.fcsn.workloads import KernelProblem
from tests.support.pictured import overhang

pytest.importorskip("simpy")


@pytest.fixture
def script(monkeypatch, capsys, tmp_path):
    """Run the script in this process; give how it ended and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["fcsn", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().out

    return run


def test_the_card_of_fcsn_is_labelled_an_estimate():
    figures = figures_of(FCSN)
    assert (figures.kind, figures.clock_hz) == ("estimated", 294e6)
    assert fcsn_card().nodes(3)[3].link_bps == 100e9


def test_fcsns_claims_are_those_of_its_text():
    speedups = {c.name: c.speedup for c in CLAIMS}
    assert speedups["GEMM"] == 2.3
    assert speedups["MLP"] == 3.3
    assert speedups["SPMV"] == speedups["SPGEMM"] == speedups["aggregation"] == 6.7
    assert (speedups["CoraFull"], speedups["Reddit"]) == (5.08, 10.13)
    reddit = next(c.problem for c in CLAIMS if c.name == "Reddit")
    assert shrunk(reddit, 2_000_000).graph == replace(reddit.graph, edges=2_000_000)
    assert shrunk(CLAIMS[0].problem, 2_000_000) == CLAIMS[0].problem


def test_tasks_beat_barriers_on_irregular_kernels():
    pytest.importorskip("simpy")
    (point,) = sweep([KernelProblem("aggregation")], [4], fcsn_card(), train=64)
    assert point.data_s < point.compute_s / 1.5
    slow = sweep([KernelProblem("conv2d", size=256)], [4], NodeModel("nfp", "10G"), straggler=5)[0]
    assert slow.imbalance > 2


def test_a_profile_says_what_bounds_each_way():
    spmv = next(c for c in CLAIMS if c.name == "SPMV")
    operand, requested, sums, nonzeros, barriers = profiles(spmv, 4)
    assert [p.way for p in (operand, nonzeros, barriers)] == ["operand", "nonzeros", "barriers"]
    # 2048 x 2048 with 1 % on 4 nodes, 4 elements a clock
    assert operand.elements_s == pytest.approx(41_943 / 16 / 294e6, rel=0.02)
    assert operand.elements_s < operand.seconds < 1.05 * operand.elements_s
    assert operand.seconds < min(p.seconds for p in (requested, sums, nonzeros, barriers))
    assert nonzeros.link > 0.8 > 0.2 > operand.link
    # a quarter of the non-zeros stays, the others pass 2.5 of 5 links on average
    assert nonzeros.link_s > 41_943 / 4 * 0.75 * 2.5 / 5 * 64 * 8 / 100e9
    assert operand.asked_s == pytest.approx(6.7 * operand.seconds)
    assert requested.hops_s == sums.hops_s == nonzeros.hops_s / 2


def test_what_is_measured_is_written_as_a_node(tmp_path):
    path = tmp_path / "node.toml"
    measured = NodeMeasurement(packet=3000, datagram=8e4, slice=1.5, row=1e5, hop=1e4, error=0.2)
    path.write_text(measured.toml("a machine"))
    figures = figures_of(path)
    assert (figures.packet, figures.datagram, figures.slice_clocks) == (3000, 80000, 1.5)
    assert (figures.kind, figures.serial, figures.together) == ("measured", True, 22)


def test_rings_that_are_slower_than_one_node_are_told():
    base = Point("gemm", 4, 2.0, 3.0, 1.0, packets=9, imbalance=1.0, link=0.5)
    fast, alone = replace(base, data_s=0.9), replace(base, nodes=1)
    assert slower([base, fast, alone]) == (base,)
    assert slower([base], weak=True) == ()  # one node would take 4 s
    assert slower([replace(base, data_s=4.1)], weak=True) == (replace(base, data_s=4.1),)


@pytest.mark.slow
def test_a_process_node_is_measured():
    pytest.importorskip("scipy")
    figures = measure_node(shapes=((384, 2), (8448, 2)), rows=5)
    assert figures.packet + figures.datagram + figures.row > 1000  # nanoseconds
    assert figures.slice > 0
    assert figures.hop > 100


def test_a_binary_layer_costs_whole_words_of_a_card():
    sizes = (1, 384, 512, 513, 768, 1024)
    problems = [KernelProblem("binary", size=size, outputs=4096) for size in sizes]
    points = sweep(problems, [2], NodeModel("netfpga", "10G"))
    words = [round(p.one_s * 200e6 / (4096 * 64)) for p in points]
    assert words == [1, 1, 1, 2, 2, 2]
    assert [p.one_s for p in points[:3]] == [points[0].one_s] * 3


@pytest.mark.first_case
@pytest.mark.parametrize("weak", [True, False])
def test_scaling_curves_are_told_apart(weak):
    pytest.importorskip("matplotlib")
    points = [
        Point(kernel, n, 1 / n, 2 / n, 1.0, 1, 1.0, 0.5)
        for kernel in ("gemm", "spmv", "bnn", "conv", "spgemm")
        for n in (1, 2, 64)
    ]
    figure = scaling_figure(points, weak)
    assert overhang(figure) < 0.02 and len(figure.legends[0].get_texts()) == 3
    lines = figure.axes[0].get_lines()
    assert len({(x.get_marker(), x.get_linestyle(), x.get_color()) for x in lines}) == 3


@pytest.mark.slow
def test_kernels_are_simulated_and_drawn(script, tmp_path):
    pytest.importorskip("matplotlib")
    sizes = ("--size", 128, "-n", "1,2", "--kernel", "spmv", "--kernel", "conv2d")
    code, out = script("scaling", *sizes, "--plot", "p.png")
    assert not code and "compute-centric" in out
    (warned,) = [line for line in out.splitlines() if line.startswith("slower on a ring than")]
    assert "spmv on 2 nodes (0." in warned
    first = (tmp_path / "p.png").read_bytes()
    script("scaling", *sizes, "--plot", "p.png", "--replace")
    assert (tmp_path / "p.png").read_bytes() == first
    slow = ("--weak", "--straggler", 4, "--figures", "fcsn", "--json")
    document = json.loads(script("scaling", *sizes, *slow)[1])
    points = document["points"]
    assert document["slower_than_one_node"] == [
        {"kernel": p["kernel"], "nodes": 2, "speedup": p["one_s"] / p["data_s"]}
        for p in points
        if p["nodes"] > 1 and 2 * p["one_s"] < p["data_s"]
    ]
    assert document["slower_than_one_node"]
    assert [(p["kernel"], p["nodes"]) for p in points] == [
        (k, n) for k in ("spmv", "conv2d") for n in (1, 2)
    ]
    assert points[2]["data_s"] > 3 * points[2]["one_s"]


def test_figures_of_a_node_are_read(script, tmp_path):
    words = ("scaling", "--kernel", "conv2d", "--size", 64, "-n", 1, "--figures", "node.toml")
    path = tmp_path / "node.toml"
    for text, message in (
        ("clock_mhz = 1", "it is missing"),
        ("a = [", "not a description of a node"),
        ('memory = "m"\nbytes = 3', "not a description of a node"),
    ):
        path.write_text(text)
        assert message in script(*words)[0]
    path.unlink()
    assert "cannot be read" in script(*words)[0]


def test_a_profile_is_printed(script):
    code, out = script("profile", "--claim", "SPMV", "-n", 2, "--json")
    document = json.loads(out)
    assert not code and document["kind"] == "simulated"
    assert [p["nodes"] for p in document["profiles"]] == [2] * 5
    assert "barriers" in script("profile", "--claim", "SPMV", "-n", 2)[1]
    assert "--claim: expected one of 2-D" in script("profile", "--claim", "fft")[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kernel", "fft"), "--kernel: expected one of binary"),
        (("--graph", "mesh"), "--graph: expected one of cora"),
        (("--nodes", "1,many"), "--nodes: expected numbers"),
        (("--nodes", "0"), "--nodes: expected numbers"),
        (("--plot", "p.pdf"), ".png or .svg"),
    ],
)
def test_a_mistake_is_one_line(script, words, message):
    code, _ = script("scaling", *words)
    assert code.startswith("fcsn: ") and message in code and "\n" not in code
