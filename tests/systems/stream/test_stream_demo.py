# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream demo``: both halves as a person watches them, and what is said where one lacks."""

import json
import os
import sys
from pathlib import Path

import pytest

from n3ic.errors import MissingDependencyError
from n3ic.exporters.dpdk.application import require_dpdk
from n3ic.systems.stream.demo import needs
from n3ic.systems.stream.messages.transfers import TRANSFERS
from tests.support import command_line
from tests.support.xdp_machine import clang, kernel

__all__ = ["clang", "kernel"]


@pytest.fixture
def dpdk():
    try:
        require_dpdk()
    except MissingDependencyError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("half", ["loop", "images", "all"])
def test_without_root_it_says_so(half, n3ic, monkeypatch):
    monkeypatch.setattr(needs.os, "geteuid", lambda: 1000)
    done = n3ic(f"stream demo {half}", expect=4)
    told = [line for line in done.stderr.splitlines() if "sudo n3ic stream demo" in line]
    assert len(told) == (2 if half == "all" else 1)
    assert not done.stdout


def test_each_thing_that_is_missing_is_told(monkeypatch):
    def gone(what):
        def check(*_):
            raise MissingDependencyError(f"needs {what}")

        return check

    monkeypatch.setattr(needs.os, "geteuid", lambda: 0)
    monkeypatch.setattr(needs, "own_network", gone("ip"))
    monkeypatch.setattr(needs, "compile_bpf", gone("clang"))
    monkeypatch.setattr(needs, "create_map", gone("bpf"))
    monkeypatch.setattr(needs, "require_dpdk", gone("dpdk"))
    for library in ("sklearn", "torch"):
        monkeypatch.setitem(sys.modules, library, None)
    *tools, library = needs.missing_for_loop()
    assert tools == ["needs ip", "needs clang", "needs bpf"]
    assert (
        library
        == "the second stage needs sklearn, which is not installed: pip install 'n3ic[stream]'"
    )
    *tools, library = needs.missing_for_images()
    assert tools == ["needs ip", "needs dpdk"] and "n3ic[stream]" in library


@pytest.mark.slow
def test_it_recovers_in_the_kernel_and_the_three_ways_agree(tmp_path, clang, kernel, dpdk):
    if os.geteuid():
        pytest.skip("needs root")
    runs = {**os.environ, "N3IC_RUN": str(tmp_path / "run"), "TMPDIR": str(tmp_path)}
    words = ["stream", "demo", "--flows", "4800", "--images", "2", "--model", "flow-mlp", "--json"]
    found = json.loads(command_line.n3ic(*words, cwd=tmp_path, env=runs).stdout)
    assert not found["skipped"]
    loop, images = found["loop"], found["images"]
    assert loop["flows"] >= 0.9 * 4800  # a busy machine may lose packets
    assert not loop["lost"] and not loop["unlike"] and not loop["failed"]
    first, after, last = (
        loop["summary"][name] for name in ("before the change", "after it", "at the end")
    )
    assert first["card"] > 0.9 and first["both"] > 0.9
    assert after["card"] < 0.7
    assert last["card"] > after["card"] + 0.2 and last["both"] > after["both"] + 0.2
    assert last["pushes"] >= 1 and last["kernel"] != first["kernel"]
    assert 0 < first["shunted"] < 0.5 and last["rest"] > 0.6
    assert images["lost"] == dict.fromkeys(TRANSFERS, 0)
    assert [(t["way"], t["image"]) for t in images["times"]] == [
        (way, image) for image in range(3) for way in TRANSFERS
    ]
    assert all(t["equal"] and t["transfer"] >= t["packets"] for t in images["times"])
    assert not images["balance"]["unaccounted"] and images["port"]["received"] == 9 * 4
    links = [path.name for path in Path("/sys/class/net").iterdir()]
    assert not [name for name in links if name.startswith("n3icdemo")]
    assert not [*tmp_path.glob("n3ic-*")] and not [*(tmp_path / "run").glob("*/*")]
