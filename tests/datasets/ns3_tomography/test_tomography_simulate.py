# SPDX-License-Identifier: Apache-2.0
"""The simulation: its options, what is missing where, and that it makes the bundled trace."""

import runpy
import shutil
import subprocess

import numpy as np
import pytest

from n3ic.datasets.ns3_tomography import DATASET, simulate
from n3ic.datasets.ns3_tomography.simulate import Simulation
from n3ic.errors import MissingDependencyError, N3icError, UsageError


def has_ns3():
    if not (shutil.which("g++") and shutil.which("pkg-config")):
        return False
    return (
        subprocess.run(["pkg-config", "--exists", *simulate.MODULES], check=False).returncode == 0
    )


needs_ns3 = pytest.mark.skipif(not has_ns3(), reason="needs libns3-dev, g++ and pkg-config")


@pytest.mark.parametrize(
    "options",
    [{"duration": "0"}, {"load": "x"}, {"incast": "1.5"}, {"other-pod": "0.9", "other-tor": "0.2"},
     {"speed": "3"}, {"seed": "0"}, {"duration": "nan"}],
)  # fmt: skip
def test_wrong_options_are_named(options, tmp_path):
    with pytest.raises(UsageError, match=f"--{list(options)[-1]}"):
        DATASET.generate_file(tmp_path / "a.tomo.xz", options)
    assert not list(tmp_path.iterdir())


def test_every_option_of_the_simulation_may_be_typed():
    typed = {o.name.replace("-", "_"): o.default for o in DATASET.generator_options}
    assert {"runs", "jobs"} <= set(typed)
    assert {k: v for k, v in typed.items() if k not in ("runs", "jobs")} == vars(Simulation())


def test_missing_tools_name_the_packages(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match=r"libns3-dev g\+\+ pkg-config"):
        DATASET.generate_file(tmp_path / "a.tomo.xz", {"duration": "1"})
    assert not list(tmp_path.iterdir())


def stand_in(tmp_path, monkeypatch, body):
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o700)
    monkeypatch.setattr(simulate, "program", lambda stack, note=None: tool)


def test_a_failing_simulation_tells_why_and_leaves_nothing(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, "echo out of range >&2; exit 2")
    with pytest.raises(N3icError, match="out of range"):
        simulate.generate(Simulation(duration=1), tmp_path / "a.tomo.xz")
    assert [p.name for p in tmp_path.iterdir()] == ["tool"]


def test_an_interrupt_ends_the_program_and_leaves_nothing(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, "echo interval 1/100 >&2; exec sleep 600")
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        "subprocess.Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
    )

    def interrupt(text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate.generate(Simulation(duration=1), tmp_path / "a.tomo.xz", note=interrupt)
    assert started[0].returncode is not None
    assert [p.name for p in tmp_path.iterdir()] == ["tool"]


def test_one_failing_run_ends_the_others_and_leaves_nothing(tmp_path, monkeypatch):
    body = 'case "$*" in *--run=2*) sleep 1; echo broken >&2; exit 2;; esac; exec sleep 600'
    stand_in(tmp_path, monkeypatch, body)
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        "subprocess.Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
    )
    with pytest.raises(N3icError, match="broken"):
        simulate.generate(Simulation(duration=1), tmp_path / "a.tomo.xz", runs=3, jobs=2)
    assert all(process.returncode for process in started)
    assert [p.name for p in tmp_path.iterdir()] == ["tool"]


@pytest.mark.parametrize("option", ["runs", "jobs"])
@pytest.mark.parametrize("value", ["-1", "many", "1.5"])
def test_counts_are_whole_numbers(tmp_path, option, value):
    with pytest.raises(UsageError, match=f"--{option}"):
        DATASET.generate_file(tmp_path / "a.tomo.xz", {option: value})


@pytest.mark.parametrize("counts", [{"runs": 0}, {"runs": 2, "jobs": -1}, {"jobs": 0}])
def test_counts_below_one_are_refused(tmp_path, counts):
    with pytest.raises(UsageError, match=f"--{list(counts)[-1]}: expected 1 or more"):
        simulate.generate(Simulation(), tmp_path / "a.tomo.xz", **counts)


@pytest.mark.slow
@needs_ns3
def test_runs_side_by_side_are_those_one_after_the_other(tmp_path):
    short = Simulation(duration=0.2, warmup=0.1)
    one = simulate.generate(short, tmp_path / "1.tomo.xz", runs=3, jobs=1)
    two = simulate.generate(short, tmp_path / "2.tomo.xz", runs=3, jobs=3)
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.exhaustive
@needs_ns3
def test_the_same_seed_gives_the_bundled_trace(tmp_path, monkeypatch, repository):
    script = runpy.run_path(str(repository / "scripts" / "regenerate_tomography.py"))
    header = DATASET.load().trace_header
    if simulate.ns3_version() != header["ns3"]:
        pytest.skip(f"needs libns3-dev {header['ns3']}, which made the bundled trace")
    assert simulate.source_digest() == header["simulator_sha256"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    seconds = 1.0
    bundled = DATASET.load()
    wanted = Simulation(**{**vars(script["SIMULATION"]), "duration": seconds, "run": 2})
    (made,) = simulate._simulate_runs([wanted], 1, None)
    start = header["runs"][0]["rows"]
    rows = slice(start, start + len(made))
    assert len(made) == 100
    assert np.array_equal(made.delays, bundled.matrix([p["name"] for p in header["paths"]])[rows])
    occupancy = np.stack([v[rows] for v in bundled.occupancy.values()], axis=1)
    assert np.array_equal(made.occupancy, occupancy)
    same = {"paths", "queues", "link_mbps", "load", "incast", "queue_bytes", "seed", "interval_ns"}
    assert {k: made.header[k] for k in same} == {k: header[k] for k in same}
