# SPDX-License-Identifier: Apache-2.0
"""A stream is killed at every step, and what it decided is neither lost nor doubled."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from n3ic.systems.stream.flows.sinks.callback import CallbackSink
from n3ic.systems.stream.flows.state import StreamState
from tests.support.ipfix import Collector
from tests.support.stream_models import MODELS, binary, lines, stream
from tests.support.stream_peers import messages, subject_rows, topic_rows
from tests.support.traffic import labelled_capture

ROOT = Path(__file__).parents[4]
PROGRAM = "tests.support.killed_streams"


def killed(folder, name, flows=8, stride=1, successor=None):
    """Streams killed at every step: their folders, and the model."""
    (folder / "c.pcap").write_bytes(labelled_capture(flows)[0])
    model = MODELS["binary"]()
    model.save(folder / "m.n3ic")
    (folder / "runs").mkdir()
    words = [sys.executable, "-m", PROGRAM, "runs", "m.n3ic", "c.pcap", name, str(stride)]
    if successor:
        successor.save(folder / "next.n3ic")
        words.append("next.n3ic")
    done = subprocess.run(
        words,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    runs = sorted((folder / "runs").iterdir())
    assert int(done.stdout) == len(runs) - 1 > 15 / stride
    stream(folder / "c.pcap", model, folder / "want.jsonl")
    assert len(lines(folder / "want.jsonl")) == flows
    return runs, model


@pytest.mark.slow
def test_a_file_is_the_same_after_a_kill_at_any_step(tmp_path):
    runs, _ = killed(tmp_path, "out.jsonl")
    want = (tmp_path / "want.jsonl").read_bytes()
    assert [run.name for run in runs if (run / "out.jsonl").read_bytes() != want] == []


@pytest.mark.slow
def test_ctrl_c_commits_and_the_same_command_goes_on(tmp_path):
    data = labelled_capture(400)[0]
    (tmp_path / "c.pcap").write_bytes(data)
    model = MODELS["binary"]()
    model.save(tmp_path / "m.n3ic")
    words = "stream - --model m.n3ic --sink out.jsonl --state state --commit 0 --json"
    command = [sys.executable, "-m", "n3ic", *words.split()]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as running:  # fmt: skip
        running.stdin.write(data[: len(data) // 2])
        running.stdin.flush()
        end = time.monotonic() + 60
        while time.monotonic() < end and not committed(tmp_path):
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        report = json.loads(running.stdout.read())
        running.stdin.close()
        assert running.wait(60) == 130  # as of every command that Ctrl-C ends
    assert 0 < report["flows"] < 400
    assert report["flows"] == len(lines(tmp_path / "out.jsonl"))
    done = subprocess.run(command, cwd=tmp_path, input=data, capture_output=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["flows"] == 400
    stream(tmp_path / "c.pcap", model, tmp_path / "want.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "want.jsonl").read_bytes()


def committed(folder):
    """Whether a state of decided flows was written."""
    state = StreamState.read(folder / "state")
    return state is not None and state.point.flows > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.parquet", "out.ipfix"])
def test_a_parquet_or_ipfix_file_is_the_same_after_a_kill_at_any_step(tmp_path, name):
    runs, model = killed(tmp_path, name, stride=5)
    stream(tmp_path / "c.pcap", model, tmp_path / name)
    if name == "out.parquet":
        want = pq.read_table(tmp_path / name)
        assert all(pq.read_table(run / name).equals(want) for run in runs)
        assert not list(tmp_path.glob("runs/*/.*.rows"))
        return
    for run in runs:
        after_kill, want = Collector(), Collector()
        for path, collector in ((run / name, after_kill), (tmp_path / name, want)):
            for message in messages(path.read_bytes()):
                collector.take(message)
        for record in (*after_kill.records, *want.records):
            del record[0, 258]  # when it was decided
        assert (after_kill.records, after_kill.gaps) == (want.records, 0)
        assert len(after_kill.records) == 8


@pytest.mark.slow
def test_a_consumer_in_python_gets_every_flow_and_again_at_most_those_of_one_state(tmp_path):
    runs, _ = killed(tmp_path, "callback", stride=5)
    want = [row["row"] for row in lines(tmp_path / "want.jsonl")]
    doubled = 0
    for run in runs:
        got = [number for number, _ in lines(run / "journal")]
        assert len({*got}) == len(want)
        assert len(got) <= 3 * len(want)
        doubled += len(got) > len(want)
    assert doubled  # which is why the stream says which flows they are


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.jsonl", "callback"])
def test_flows_are_decided_by_the_model_that_the_state_names_after_a_kill_at_any_step(
    tmp_path, name
):
    """Whether the kill came before or after its file was replaced, or amid the swap."""
    successor, flows = binary(3), 16
    runs, model = killed(tmp_path, name, flows, 3, successor)
    stream(tmp_path / "c.pcap", successor, tmp_path / "other.jsonl")
    both = [lines(tmp_path / f"{which}.jsonl") for which in ("want", "other")]
    assert all(one != other for one, other in zip(*both, strict=True))
    order = list[int]()
    stream(tmp_path / "c.pcap", model, CallbackSink(lambda b: order.extend(b.records["number"])))
    begins = set()
    for run in runs:
        point = StreamState.read(run / "state").point
        assert point.of.model == model.digest
        assert [one.model for one in point.successors] in ([], [successor.digest])
        begin = point.successors[0].flow if point.successors else flows
        begins.add(begin)
        want = both[0][:begin] + both[1][begin:]
        if name == "out.jsonl":
            assert lines(run / name) == want, run
            continue
        scores = [[v for n, v in row.items() if n.startswith("score_")] for row in want]
        got = lines(run / "journal")
        of_flow = dict(zip(order, scores, strict=True))
        assert {number for number, _ in got} == {*order}
        assert [row for row in got if row[1] != of_flow[row[0]]] == [], run
    assert len(begins - {0, flows}) > 1, begins


@pytest.mark.slow
def test_a_topic_of_kafka_has_every_flow_once_after_a_kill_at_any_step(tmp_path, broker):
    runs, _ = killed(tmp_path, f"kafka://{broker}/flowsNUMBER", flows=4, stride=5)
    want = sorted((tmp_path / "want.jsonl").read_bytes().splitlines())
    for run in runs:
        assert sorted(topic_rows(broker, f"flows{run.name}")) == want, run


@pytest.mark.slow
def test_a_subject_of_nats_has_every_flow_once_after_a_kill_at_any_step(tmp_path, nats_server):
    runs, _ = killed(tmp_path, f"nats://{nats_server}/flows.NUMBER", flows=4, stride=5)
    want = (tmp_path / "want.jsonl").read_bytes().splitlines()
    for run in runs:
        assert subject_rows(nats_server, f"flows.{run.name}") == want, run
