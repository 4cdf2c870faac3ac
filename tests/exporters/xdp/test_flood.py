# SPDX-License-Identifier: Apache-2.0
"""Honest flows in a flood of new ones: decided at their packet, and before the change not."""

import json
import subprocess
import sys
from collections import defaultdict
from statistics import mean

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
    # Tables hash by chance, so that of 200 honest flows 190 to 200 are decided: three runs of each.
    output = subprocess.run(
        [*command, "--rates", ",".join(["300000"] * 3)], capture_output=True, text=True
    )
    assert output.returncode == 0, output.stderr
    runs = defaultdict(list)
    for run in map(json.loads, output.stdout.splitlines()):
        runs[run["way"].partition(":")[0], run["sources"]].append(run)
    assert {len(each) for each in runs.values()} == {3}
    assert all(run["honest"] == 200 for each in runs.values() for run in each)

    def decided(way, sources):
        return mean(run["decided"] for run in runs[way, sources])

    for sources in (100, 0):
        # The kernel's LRU has free lists for each CPU: how many it keeps depends on the machine.
        assert decided("before", sources) < 0.5
        assert min(run["undecided"] for run in runs["before", sources]) > 10_000
        assert decided("now with --flows 524288", sources) > 0.95
        buckets = [
            run
            for (way, of), each in runs.items()
            if of == sources and way != "before"
            for run in each
        ]
        assert [run["undecided"] for run in buckets] == [0] * 12
    assert decided("now with --new-flows 100", 100) > 0.95
    assert all(run["excess"] > 30_000 for run in runs["now with --flows 524288", 100])
