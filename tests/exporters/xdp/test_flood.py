# SPDX-License-Identifier: Apache-2.0
"""Honest flows in a flood of new ones: decided at their packet, and before the change not."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.usefixtures("clang", "kernel")
def test_honest_flows_are_decided_in_a_flood(repository):
    command = [
        sys.executable,
        repository / "scripts" / "xdp_flood.py",
        "--json",
        "--seconds",
        "8.1",
        "--scale",
        "32",
    ]
    said = subprocess.run([*command, "--rates", "300000"], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    found = {
        (one["way"].partition(":")[0], one["sources"]): one
        for one in map(json.loads, said.stdout.splitlines())
    }
    assert all(one["honest"] == 200 for one in found.values())
    for sources in (100, 0):
        lru, large = found["before", sources], found["now with --flows 524288", sources]
        assert lru["decided"] < 0.01 and lru["undecided"] > 60_000
        assert large["decided"] > 0.95
        buckets = [one for (way, of), one in found.items() if of == sources and way != "before"]
        assert [one["undecided"] for one in buckets] == [0, 0, 0, 0]
    assert found["now with --new-flows 100", 100]["decided"] > 0.95
    assert found["now with --flows 524288", 100]["excess"] > 30_000
