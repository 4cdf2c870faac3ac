"""Processes and a Verilated card in one ring, over UDP of the kernel in a network namespace."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import N3icError
from n3ic.exporters.netfpga.packet import tap
from n3ic.model.random_models import random_model

KILLED = Path(__file__).with_name("killed_card.py")
MODEL = random_model((1024, 700, 90, 5), np.random.default_rng(1))


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
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.parametrize("split", ["output", "input,output,output"])
def test_a_mixed_ring_that_loses_a_datagram_in_a_hundred(namespace, tmp_path, split):
    pytest.importorskip("distributed")
    MODEL.save(tmp_path / "model.n3ic")
    words = ("run", "model.n3ic", "--nodes", 4, "--simulate", "3=netfpga", "--loss", 0.01)
    more = ("--split", split, "--rows", 40, "--limit", 60, "--json")
    done = inside(namespace, "-m", "n3ic", "cluster", *words, *more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == 40
    assert found["lost"] > 0
    assert found["resent"] > 0
    layers = found["placement"]["layers"]
    assert [3 in [share[0] for share in layer["shares"]] for layer in layers] == [
        True,
        False,
        False,
    ]


@pytest.mark.slow
def test_a_card_that_dies_is_named(namespace, tmp_path):
    pytest.importorskip("distributed")
    MODEL.save(tmp_path / "model.n3ic")
    done = inside(namespace, KILLED, "model.n3ic", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "node 2 is dead or cut off" in done.stdout
    assert "rows have no scores" in done.stdout
