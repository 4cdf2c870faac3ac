# SPDX-License-Identifier: Apache-2.0
"""Processes and a Verilated card in one ring, over UDP of the kernel in a network namespace."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import N3icError
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.tools import tap
from n3ic.model.random_models import random_model

KILLED = Path(__file__).with_name("killed_card.py")
NETWORK = Path(__file__).with_name("card_network.py")
KERNELS = Path(__file__).with_name("matrix_card.py")
MODEL = random_model((1024, 700, 90, 5), np.random.default_rng(1))

NODES = """
[[nodes]]
name = "first"
target = "host"
bytes = 40000

[[nodes]]
name = "card"
target = "netfpga"

[[nodes]]
name = "last"
target = "host"
bytes = 40000
"""


@pytest.fixture(scope="module")
def namespace():
    """A network namespace with a loopback device, which goes at the end."""
    name = f"n3c{os.getpid()}"
    try:
        tap.require()
        tap.ip("netns", "add", name)
    except N3icError as error:
        pytest.skip(str(error))
    try:
        tap.ip("-n", name, "link", "set", "lo", "up")
        yield name
        links = subprocess.run(
            ["ip", "-n", name, "-brief", "link"], capture_output=True, text=True, check=True
        )
        assert [line.split()[0] for line in links.stdout.splitlines()] == ["lo"]
    finally:
        tap.ip("netns", "del", name)


def inside(namespace, *words, cwd):
    return subprocess.run(
        ["ip", "netns", "exec", namespace, sys.executable, *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=900,
    )


def holders(report):
    """The node of each share of a placement."""
    return [share[0] for layer in report["placement"]["layers"] for share in layer["shares"]]


@pytest.mark.slow
@pytest.mark.parametrize("split", ["output", "input,output,output"])
def test_a_mixed_ring_that_loses_a_datagram_in_a_hundred(namespace, tmp_path, split):
    pytest.importorskip("distributed")
    MODEL.save(tmp_path / "model.n3ic")
    words = ("run", "model.n3ic", "--nodes", 4, "--simulate", "3=netfpga", "--loss", 0.01)
    more = ("--split", split, "--rows", 40, "--limit", 60, "--json")
    done = inside(namespace, "-m", "n3ic", "cluster", *words, *more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["rows"] == 40
    assert report["lost"] > 0
    assert report["resent"] > 0
    assert holders(report).count(3) == 1


@pytest.mark.slow
def test_a_plan_with_a_card_runs(namespace, tmp_path):
    """The first layer has 90 kB: the processes have no room for it, and a card holds one share."""
    pytest.importorskip("distributed")
    MODEL.save(tmp_path / "model.n3ic")
    (tmp_path / "nodes.toml").write_text(NODES)
    plan = ("plan", "model.n3ic", "--cluster", "nodes.toml", "--out", "plan.json")
    done = inside(namespace, "-m", "n3ic", "cluster", *plan, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    words = ("run", "model.n3ic", "--plan", "plan.json", "--simulate", "2=netfpga", "--rows", 30)
    done = inside(namespace, "-m", "n3ic", "cluster", *words, "--limit", 60, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert holders(json.loads(done.stdout)).count(2) == 1


@pytest.mark.exhaustive
def test_a_layer_that_no_card_holds(namespace, tmp_path):
    """8.4 MB of weights, a quarter of them on the card, whose block RAM is 6.8 MB."""
    pytest.importorskip("distributed")
    bram = EXPORTER.device.memories[0].bytes
    assert bram < 4096 * 16384 // 8
    model = random_model((4096, 16384, 10), np.random.default_rng(2))
    model.save(tmp_path / "model.n3ic")
    words = ("run", "model.n3ic", "--nodes", 4, "--simulate", "3=netfpga", "--loss", 0.01)
    more = ("--rows", 2, "--limit", 120, "--json")
    done = inside(namespace, "-m", "n3ic", "cluster", *words, *more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["rows"] == 2
    assert report["placement"]["layers"][0]["shares"][2] == [3, 8192, 12288]


@pytest.mark.slow
def test_a_card_that_dies_is_named(namespace, tmp_path):
    pytest.importorskip("distributed")
    MODEL.save(tmp_path / "model.n3ic")
    done = inside(namespace, KILLED, "model.n3ic", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "node 2 is dead or cut off" in done.stdout
    assert "rows have no scores" in done.stdout


@pytest.mark.slow
def test_kernels_of_integers_on_a_ring_with_a_card_that_loses_datagrams(namespace, tmp_path):
    pytest.importorskip("distributed")
    done = inside(namespace, KERNELS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("a card computes no SparseKernel") == 2
    for name in ("gemm", "convolution", "mean"):
        assert f"{name} True" in done.stdout


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        pytest.param("dense", 16, marks=pytest.mark.slow),
        pytest.param("convolution", 16, marks=pytest.mark.slow),
        pytest.param("convolution", 64, marks=pytest.mark.exhaustive),  # VGG-11's own sizes
    ],
)
def test_a_network_over_four_processes_and_a_card_with_losses(namespace, kind, width):
    pytest.importorskip("distributed")
    pytest.importorskip("brevitas")
    root = Path(__file__).parents[4]  # the networks are in its scripts
    words = ("-m", "tests.systems.cluster.netfpga.card_network", kind, width, 2)
    done = inside(namespace, *words, cwd=root)
    assert done.returncode == 0, done.stderr
    assert ": True, " in done.stdout
