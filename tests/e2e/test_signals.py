# SPDX-License-Identifier: Apache-2.0
"""Commands that a signal ends: one line, no process, no folder, nothing in shared memory."""

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from n3ic.data.dataset import data_set
from n3ic.meter.standard import standard_spec
from n3ic.model.random_models import random_model
from tests.support.command_line import N3IC
from tests.support.metered_models import metered_network

further = partial(pytest.param, marks=pytest.mark.exhaustive)  # of what other cases show
ANOMALY = ["train", "anomaly", "--epochs", "100000"]
TOMOGRAPHY = ["train", "tomography", "--epochs", "100000", "--jobs", "2"]


def start(words, folder):
    return subprocess.Popen(
        [*N3IC, *map(str, words)],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a shell's background jobs ignore the signal, and their children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def processes():
    """Parent of every process that is not dead."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it ended meanwhile
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    return parents


def descendants(root):
    parents, pids = processes(), {root}
    while more := {pid for pid, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return pids


def ended(pids):
    """Whether none of these processes runs, waited for a little."""
    for _ in range(600):
        if not pids & set(processes()):
            return True
        time.sleep(0.1)
    return False


def in_shared_memory():
    return {path.name for path in Path("/dev/shm").iterdir()}


def of_process(names, pid):
    """Names that hold a process's number whole: it may be short, and part of a random name."""
    whole = re.compile(rf"(?<![0-9a-zA-Z]){pid}(?![0-9a-zA-Z])")
    return {name for name in names if whole.search(name)}


def shared_memory_freed(pid, before):
    """Whether a process left no shared memory, waited for a little.

    What frees it is a process of its own, which may have started after the family was counted.
    ``before`` holds names that were there before it: another process of that number left them.
    """
    for _ in range(600):
        if of_process(in_shared_memory(), pid) <= before:
            return True
        time.sleep(0.1)
    return False


def test_shared_memory_of_other_processes_is_not_taken_for_this_ones():
    names = ["sem.loky-683-x1", "joblib_folder_683_ab", "sem.loky-16834-x", "joblib_12_9a683f_c"]
    assert of_process(names, 683) == set(names[:2])


def stop(process, number, before, *, group, seconds=600):
    """Signal a command, and check how it ends; its group too, as a terminal does.

    ``before`` holds the names that shared memory held before the command began.
    """
    family = descendants(process.pid)
    os.killpg(process.pid, number) if group else os.kill(process.pid, number)
    _, err = process.communicate(timeout=seconds)
    how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    assert err.splitlines()[-1] == f"n3ic: error: {how}; nothing was left half-written"
    assert "Traceback" not in err
    assert process.returncode == 128 + number
    assert ended(family)
    assert shared_memory_freed(process.pid, before)


@pytest.fixture(scope="module")
def few_rows(tmp_path_factory):
    """A table on which only the training takes long, because of its passes."""
    synthetic = data_set("unsw-nb15-synthetic")
    return synthetic.generate_file(tmp_path_factory.mktemp("rows") / "flows.csv", {"rows": 600})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "group", "words", "line", "seconds"),
    [
        (signal.SIGINT, True, ANOMALY, "training the binary network", 1.0),
        (signal.SIGTERM, False, ANOMALY, "training boosted trees", 0.4),
        further(signal.SIGHUP, True, ANOMALY, "choosing input bits", 1.0),
        # while workers start, while they import, and while they train
        (signal.SIGINT, True, TOMOGRAPHY, "training 68 networks", 0.0),
        (signal.SIGTERM, True, TOMOGRAPHY, "training 68 networks", 0.6),
        (signal.SIGHUP, False, TOMOGRAPHY, "training 68 networks", 8.0),
    ],
)
def test_a_training_that_is_stopped_leaves_nothing(
    tmp_path, few_rows, number, group, words, line, seconds
):
    before = in_shared_memory()
    process = start([*words, *(["--data", few_rows] if words is ANOMALY else [])], tmp_path)
    try:
        assert process.stderr is not None
        for text in process.stderr:
            if line in text:
                break
        time.sleep(seconds)
        stop(process, number, before, group=group)
        assert list(tmp_path.rglob("*")) == []
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, further(signal.SIGTERM)])
def test_a_verification_that_is_stopped_ends_its_simulator(tmp_path, number):
    random_model((64, 16, 2), np.random.default_rng(1)).save(tmp_path / "m.n3ic")
    words = ["export", "-t", "netfpga", "--model", "m.n3ic", "--style", "unrolled", "--out", "core"]
    process = start(words, tmp_path)
    assert process.wait(timeout=600) == 0
    files, before = sorted(tmp_path.rglob("*")), in_shared_memory()
    process = start(["verify", "core", "--vectors", 1000000], tmp_path)
    try:
        for _ in range(6000):
            if len(descendants(process.pid)) > 1 or process.poll() is not None:
                break
            time.sleep(0.05)
        if process.poll() is not None:
            pytest.skip("no simulator is installed")
        time.sleep(0.5)
        stop(process, number, before, group=False)
        assert sorted(tmp_path.rglob("*")) == files
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [further(signal.SIGINT), signal.SIGTERM])
def test_an_export_that_is_stopped_leaves_nothing(tmp_path, number):
    random_model((64, 16, 2), np.random.default_rng(1)).save(tmp_path / "m.n3ic")
    before = in_shared_memory()
    process = start(["export", "-t", "all", "--model", "m.n3ic", "--out", "all"], tmp_path)
    try:
        for _ in range(6000):  # a compiler or a simulator runs
            if len(descendants(process.pid)) > 1 or process.poll() is not None:
                break
            time.sleep(0.05)
        stop(process, number, before, group=False)
        left = [path for path in tmp_path.rglob("*") if path.name.startswith(".")]
        assert left == [] and all(
            (path / "manifest.json").is_file() for path in tmp_path.glob("all/*")
        )
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


HEAD = b"a,b,c\n"
CAPTURE = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
PREDICT = ["predict", "pipe", "--model", "m.n3ic", "--out", "verdicts.csv"]
FEATURES = ["features", "pipe", "--model", "m.n3ic", "--out", "features.csv"]
EXTRACT = ["data", "extract", "pipe", "--out", "flows.csv"]
STREAM = ["stream", "run", "pipe", "--model", "m.n3ic", "--sink", "flows.jsonl"]
"""Commands that read a pipe, and what its writer has sent before it falls silent; None: no one
has opened the other end."""


def opened_for_writing(pipe):
    """The writing end of a pipe, once a reader has opened the other."""
    for _ in range(600):
        with suppress(OSError):  # no reader yet
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        time.sleep(0.1)
    raise AssertionError("nobody reads the pipe")


def state_and_ticks(stat):
    """The state of a process or thread, and the processor time that it used, in ticks."""
    fields = stat.read_text().rpartition(")")[2].split()
    return fields[0], int(fields[11]) + int(fields[12])  # in its own code and the kernel's


def wait_until_it_waits(process):
    """Wait until a command computes no more: for a second all of its threads sleep, none runs.

    A thread that only waits for a processor does not sleep.
    """
    used, asleep = [], False
    for _ in range(1200):
        if process.poll() is not None:
            return
        threads = Path(f"/proc/{process.pid}/task").glob("*/stat")
        with suppress(OSError):  # a thread ended meanwhile
            asleep = all(state_and_ticks(stat)[0] == "S" for stat in threads)
        _, ticks = state_and_ticks(Path(f"/proc/{process.pid}/stat"))
        used = [*used, ticks] if asleep and len(descendants(process.pid)) == 1 else []
        if ticks > 20 and len(used) >= 3 and used[-3:] == [ticks] * 3:
            return
        time.sleep(0.5)
    raise AssertionError("the command never waits")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (PREDICT, None),
        further(PREDICT, b""),
        further(PREDICT, HEAD),
        (FEATURES, HEAD),
        further(EXTRACT, None),
        (EXTRACT, CAPTURE),
        further(STREAM, None),
        (STREAM, CAPTURE),
    ],
)
def test_a_command_that_waits_for_input_ends_at_one_signal(tmp_path, words, sent):
    metered_network(standard_spec()).save(tmp_path / "m.n3ic")
    os.mkfifo(tmp_path / "pipe")
    before = in_shared_memory()
    process, writer = start(words, tmp_path), None
    try:
        if sent is not None:
            writer = opened_for_writing(tmp_path / "pipe")
            os.write(writer, sent)
        wait_until_it_waits(process)
        assert process.poll() is None, process.communicate()
        stop(process, signal.SIGTERM, before, group=False, seconds=60)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.n3ic", "pipe"]
    finally:
        if writer is not None:
            os.close(writer)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
