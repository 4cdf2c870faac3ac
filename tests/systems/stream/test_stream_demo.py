# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream demo``: the loop as a person watches it, and what is said where a tool lacks."""

import json
import os
import sys
from pathlib import Path

import pytest

from n3ic.errors import MissingDependencyError
from n3ic.systems.stream.demo import needs
from tests.support import command_line
from tests.support.xdp_machine import clang, kernel

__all__ = ["clang", "kernel"]


def test_without_root_it_says_so(n3ic, monkeypatch):
    monkeypatch.setattr(needs.os, "geteuid", lambda: 1000)
    done = n3ic("stream demo", expect=4)
    assert "needs root" in done.stderr and "sudo n3ic stream demo" in done.stderr
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
    monkeypatch.setitem(sys.modules, "sklearn", None)
    library = "the second stage needs sklearn, which is not installed: pip install 'n3ic[stream]'"
    with pytest.raises(MissingDependencyError) as error:
        needs.check_machine()
    assert str(error.value) == f"needs ip; needs clang; needs bpf; {library}"


@pytest.mark.slow
def test_it_recovers_in_the_kernel(tmp_path, clang, kernel):
    if os.geteuid():
        pytest.skip("needs root")
    runs = {**os.environ, "N3IC_RUN": str(tmp_path / "run"), "TMPDIR": str(tmp_path)}
    words = ["stream", "demo", "--flows", "4800", "--json"]
    loop = json.loads(command_line.n3ic(*words, cwd=tmp_path, env=runs).stdout)
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
    links = [path.name for path in Path("/sys/class/net").iterdir()]
    assert not [name for name in links if name.startswith("n3icdemo")]
    assert not [*tmp_path.glob("n3ic-*")] and not [*(tmp_path / "run").glob("*/*")]
