# SPDX-License-Identifier: Apache-2.0
"""A sweep as a person types it: interrupted, gone on with, and one of its networks trained."""

import hashlib
import json
import re
import subprocess
import sys
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from tests.support.command_line import N3IC, interrupted, n3ic

SWEPT = [
    *("sweep", "flows", "--data", "my flows.csv", "--label", "app", "--encoding", "quantile"),
    *("--bits", "8", "--hidden", "4,8-4", "--polish", "0"),
]


def write_flows(path):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 1000, (300, 3))
    names = np.where(rows[:, 0] + rng.integers(0, 200, 300) > 550, "web", "mail")
    lines = [f"{a},{b},{c},{app}" for (a, b, c), app in zip(rows, names, strict=True)]
    path.write_text("\n".join(["a,b,c,app", *lines, ""]))


@pytest.mark.slow
def test_a_sweep_is_interrupted_goes_on_and_its_commands_train_its_networks(tmp_path):
    write_flows(tmp_path / "my flows.csv")
    words = [
        *(*SWEPT, "--epochs", "30", "--seeds", "2", "--seed", "3", "--jobs", "1"),
        *("--out", "new/sweep"),
    ]
    folder = tmp_path / "new" / "sweep"
    err = interrupted(*words, cwd=tmp_path, once="new/sweep/point-*")
    assert "kept in new/sweep; the same command resumes from there" in err
    times = {p.name: p.stat().st_mtime_ns for p in folder.glob("point-*")}
    assert 1 <= len(times) < 4
    assert {p.name for p in folder.iterdir()} == {*times, "sweep.json"}
    done = n3ic(*words, cwd=tmp_path)
    assert f"{len(times)} of 4 networks were trained before; going on" in done.stderr
    assert {n: (folder / n).stat().st_mtime_ns for n in times} == times
    assert (folder / "front.png").read_bytes().startswith(b"\x89PNG")
    sweep = json.loads(n3ic(*words, "--json", cwd=tmp_path).stdout)
    assert [p["shapes"] for p in sweep["points"]] == [["8-4-2"], ["8-8-4-2"]]
    command = sweep["points"][0]["command"]
    assert " ".join(command[:3]) == "n3ic train flows"
    n3ic(*command[1:], "--seeds", "1", "--out", "run", cwd=tmp_path)
    model = (tmp_path / "run" / "model.n3ic").read_bytes()
    assert hashlib.sha256(model).hexdigest() == sweep["points"][0]["models"][""][0]
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["validation"]["accuracy"] == sweep["points"][0]["validation"]["values"][0]
    done = n3ic(*words, "--density", "0.5", cwd=tmp_path, expect=2)
    assert "new/sweep holds another sweep (swept {" in done.stderr


@pytest.mark.exhaustive
def test_a_dask_scheduler_that_is_killed_is_one_line_and_the_sweep_goes_on(tmp_path):
    distributed = pytest.importorskip("distributed")
    write_flows(tmp_path / "my flows.csv")
    words = [*SWEPT, "--epochs", "2", "--distill", "0", "--seeds", "6", "--out", "sweep"]
    with ExitStack() as stack:

        def started(*command, **more):
            process = stack.enter_context(subprocess.Popen(command, cwd=tmp_path, **more))
            stack.callback(process.kill)  # before the process is waited for
            return process

        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        tool = [sys.executable, "-m"]
        scheduler = started(
            *(*tool, "distributed.cli.dask_scheduler", "--no-dashboard"),
            *("--host", "127.0.0.1", "--port", "0"),
            **quiet,
        )
        address = next(
            addresses[0]
            for line in scheduler.stderr
            if (addresses := re.findall(r"tcp://[\d.:]+", line))
        )
        started(
            *(*tool, "distributed.cli.dask_worker", address, "--no-dashboard"),
            *("--nthreads", "1", "--no-nanny", "--local-directory", "scratch"),
            **quiet | {"stderr": subprocess.DEVNULL},
        )
        with distributed.Client(address, timeout=60) as client:
            client.wait_for_workers(1, timeout=600)
        sweep = started(*N3IC, *words, "--dask", address, **quiet)
        while not list(tmp_path.glob("sweep/point-*")) and sweep.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                sweep.wait(timeout=0.02)
        scheduler.kill()
        _, err = sweep.communicate(timeout=600)
    assert sweep.returncode == 1, err
    assert "Traceback" not in err
    *_, note, error = err.splitlines()
    assert "kept in sweep; the same command resumes from there" in note
    assert error == (
        f"n3ic: error: the Dask scheduler at {address} was lost; start one again, then the same "
        "command"
    )
    assert "distributed" not in err
    there = len(list(tmp_path.glob("sweep/point-*")))
    assert 1 <= there < 12
    done = n3ic(*words, cwd=tmp_path)
    assert f"{there} of 12 networks were trained before; going on" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget-bytes", "9" * 5000], "--budget-bytes: numbers such as 256,512 expected"),
        (["--target", "netfpga:style=x"], "'x' is not one of sequential, unrolled"),
        (["--hidden", "4,x"], "expected numbers such as 32,16, got 'x'"),
    ],
)
def test_mistakes_get_one_line(tmp_path, words, message):
    done = n3ic("sweep", "anomaly", *words, cwd=tmp_path, expect=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
