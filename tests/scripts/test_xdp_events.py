# SPDX-License-Identifier: Apache-2.0
"""The time that n3icd takes for a decided flow is measured, in namespaces that end with it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.xdp_machine import clang, kernel

__all__ = ["clang", "kernel"]

ROOT = Path(__file__).resolve().parents[2]
BPF = Path("/usr/include/bpf/libbpf.h")


@pytest.mark.slow
@pytest.mark.usefixtures("clang", "kernel")
@pytest.mark.skipif(not BPF.exists(), reason="needs libbpf's headers")
def test_flows_are_written_and_timed():
    command = [sys.executable, str(ROOT / "scripts" / "xdp_events.py"), "--json"]
    done = subprocess.run(
        [*command, "--rounds", "2", "--flows", "300"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["flows"] == 300
    assert len(measured["seconds_a_flow"]) == 2 and all(measured["seconds_a_flow"])
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    assert "n3events" not in links.stdout
