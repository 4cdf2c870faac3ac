# SPDX-License-Identifier: Apache-2.0
"""What may go wrong beside a stream: each fault is said, and the stream goes on behind it."""

import random
import shlex
import socket
import subprocess
import sys

import pytest

from n3ic.errors import DataError, N3icError, N3icWarning, UsageError
from n3ic.systems.stream.flows import pipeline
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.sink import StreamSink
from n3ic.systems.stream.flows.sinks import kafka
from n3ic.systems.stream.flows.sinks.callback import CallbackSink
from n3ic.systems.stream.flows.sources import capture
from tests.support.predicted_rows import predicted
from tests.support.stream_models import MODELS, lines, stream
from tests.support.stream_peers import subject_rows, topic_rows
from tests.support.traffic import connection, labelled_capture, pcap


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(capture, "PACKETS", 32)


@pytest.fixture
def path(tmp_path):
    """A capture of 60 flows."""
    (tmp_path / "c.pcap").write_bytes(labelled_capture(60)[0])
    return tmp_path / "c.pcap"


class Mortal:
    """A consumer that dies at a batch, and keeps flows before that."""

    def __init__(self, dies):
        self.left, self.rows = dies, []

    def write(self, batch):
        self.left -= 1
        if self.left == 0:
            raise ConnectionResetError("the consumer died")
        self.rows += batch.records["number"].tolist()


def test_a_consumer_that_dies_ends_the_stream_which_goes_on(path):
    model, state = MODELS["binary"](), path.parent / "state"
    places = path.parent / "out.jsonl"
    first = Mortal(3)
    with pytest.raises(N3icError, match="sink taker: ConnectionResetError: the consumer died"):
        stream(path, model, places, CallbackSink(first.write, "taker"), state=state, commit_s=0)
    second = Mortal(0)
    sink = CallbackSink(second.write, "taker")
    stream(path, model, places, sink, state=state, commit_s=0)
    want = [row["row"] for row in predicted(model, path)]
    assert lines(places) == predicted(model, path)
    assert first.rows
    assert sorted({*first.rows, *second.rows}) == want
    assert len(first.rows) + len(second.rows) >= len(want)


@pytest.mark.slow
def test_a_broker_that_is_gone_ends_the_stream_which_goes_on(path, broker, monkeypatch):
    model, state = MODELS["binary"](), path.parent / "state"
    with socket.create_server(("127.0.0.1", 0)) as free:
        gone = free.getsockname()[1]

    class Dies(StreamSink):
        name = "dies"
        left = 2

        def write(self, batch, first):
            Dies.left -= 1
            if Dies.left == 0:
                raise N3icError("stopped here")

    def run(where):
        sinks = (f"kafka://{where}/gone", Dies())
        return stream(path, model, *sinks, state=state, commit_s=0)

    with pytest.raises(N3icError, match="stopped here"):
        run(broker)
    monkeypatch.setattr(kafka, "SECONDS", 1.0)
    with pytest.raises(N3icError, match=r"kafka topic gone: .*the same command goes on when"):
        run(f"127.0.0.1:{gone}")
    monkeypatch.undo()
    run(broker)
    stream(path, model, path.parent / "want.jsonl")
    want = (path.parent / "want.jsonl").read_bytes().splitlines()
    assert sorted(topic_rows(broker, "gone")) == sorted(want)


def test_a_server_of_nats_without_the_subject_or_none_at_all_is_said(path, nats_server):
    model = MODELS["binary"]()
    with pytest.raises(N3icError, match="no JetStream stream takes the subject; make one"):
        stream(path, model, f"nats://{nats_server}/other")
    with socket.create_server(("127.0.0.1", 0)) as free:
        gone = free.getsockname()[1]
    with pytest.raises(N3icError, match=r"nats subject flows.x: .*goes on when the server"):
        stream(path, model, f"nats://127.0.0.1:{gone}/flows.x")
    stream(path, model, f"nats://{nats_server}/flows.x")
    stream(path, model, path.parent / "want.jsonl")
    want = (path.parent / "want.jsonl").read_bytes().splitlines()
    assert subject_rows(nats_server, "flows.x") == want


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_stream_goes_on_when_there_is_room(path):
    model, folder = MODELS["binary"](), path.parent
    path.write_bytes(labelled_capture(400)[0])
    model.save(folder / "m.n3ic")
    words = "c.pcap --model m.n3ic --sink out.jsonl --state state --commit 0"
    command = f"{shlex.quote(sys.executable)} -m n3ic stream {words}"

    def run(limit):
        return subprocess.run(
            ["sh", "-c", f"ulimit -f {limit}; exec {command}"],
            cwd=folder, capture_output=True, text=True, timeout=1200,
        )  # fmt: skip

    full = run(160)  # of 512 bytes
    assert full.returncode == 1, full.stderr
    assert "out.jsonl: File too large" in full.stderr
    assert "Traceback" not in full.stderr
    assert (folder / "out.jsonl").stat().st_size <= 160 * 512
    done = run("unlimited")
    assert done.returncode == 0, done.stderr
    assert lines(folder / "out.jsonl") == predicted(model, path)


def test_clocks_that_jump_make_no_difference_to_where_a_stream_was_stopped(path):
    r = random.Random(1)
    packets = sorted(p for number in range(40) for p in connection(r, number)[0])
    jumps = {20: 7300, 60: 7300, 61: 7300.1, 100: 9000, 101: -4000, 140: 90_000, 200: -90_000}
    moved = [(time + jumps.get(i, 0), data) for i, (time, data) in enumerate(packets)]
    path.write_bytes(pcap([(max(time, -1e9), data) for time, data in moved]))
    model = MODELS["binary"]()

    class Dies(StreamSink):
        name = "dies"
        calls = 0

        def write(self, batch, first):
            Dies.calls += 1
            if Dies.calls % 2:
                raise N3icError("stopped here")

    for _ in range(50):
        try:
            stream(
                path, model, path.parent / "out.jsonl", Dies(), state=path.parent / "state",
                commit_s=0,
            )  # fmt: skip
            break
        except N3icError as error:
            assert "stopped here" in str(error)
    assert Dies.calls > 6
    assert lines(path.parent / "out.jsonl") == predicted(model, path)


@pytest.mark.usefixtures("libpcap")
def test_a_damaged_capture_counts_up_to_the_damage(path):
    model = MODELS["binary"]()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.warns(N3icWarning, match="the capture ends early"):
        stream(path, model, path.parent / "out.jsonl")
    with pytest.warns(N3icWarning, match="the capture ends early"):
        want = predicted(model, path)
    assert lines(path.parent / "out.jsonl") == want
    assert 10 < len(want) < 60


@pytest.mark.filterwarnings("ignore:.*the capture ends early")
def test_a_capture_that_is_not_that_of_the_state_is_refused(path):
    model, folder = MODELS["binary"](), path.parent
    places = folder / "out.jsonl", CallbackSink(Mortal(3).write, "taker")
    with pytest.raises(N3icError, match="died"):
        stream(path, model, *places, state=folder / "state", commit_s=0)
    data = bytearray(path.read_bytes())
    again = folder / "out.jsonl", CallbackSink(Mortal(0).write, "taker")
    for changed in (bytes(data[:200]) + b"\xff" + bytes(data[201:]), bytes(data[: len(data) // 8])):
        path.write_bytes(changed)
        with pytest.raises(DataError, match="expected the capture that the state belongs to"):
            stream(path, model, *again, state=folder / "state", commit_s=0)
    path.write_bytes(bytes(data))
    stream(path, model, *again, state=folder / "state", commit_s=0)
    assert lines(folder / "out.jsonl") == predicted(model, path)


def damage(folder):
    data = bytearray((folder / "state" / "stream.state").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "state" / "stream.state").write_bytes(data)


def other_file(folder):
    (folder / "state" / "notes.txt").write_text("mine")


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (damage, {}, "stream.state: damaged"),
        (lambda f: (f / "state" / "stream.state").write_bytes(b""), {}, "damaged"),
        (lambda f: (f / "state").chmod(0o777), {}, "other users could have written it"),
        (other_file, {}, "holds notes.txt, which n3ic did not write there"),
        (lambda f: (f / "out.jsonl").write_bytes(b""), {}, "it was cut or replaced"),
        (None, {"model": "spn"}, "its model is .*, not .*; give what it was begun with"),
        (None, {"sink": "other.jsonl"}, "its sinks is"),
        (None, {"path": "copy.pcap"}, "its source is"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(path, change, settings, message):
    folder = path.parent
    (folder / "copy.pcap").write_bytes(path.read_bytes())

    def run(model="binary", sink="out.jsonl", path="c.pcap"):
        return stream(folder / path, MODELS[model](), folder / sink, state=folder / "state")

    run()
    if change:
        change(folder)
    with pytest.raises(N3icError, match=message):
        run(**settings)


def test_a_folder_of_a_state_is_one_stream_s_at_a_time(path):
    model, folder = MODELS["binary"](), path.parent

    class Second(StreamSink):
        name = "second"

        def write(self, batch, first):
            stream(path, model, folder / "b.jsonl", state=folder / "state")

    with pytest.raises(UsageError, match="is being written by another n3ic"):
        stream(path, model, Second(), state=folder / "state", commit_s=0)


def test_existing_output_is_kept_unless_it_may_be_replaced(path):
    model = MODELS["binary"]()
    for name in ("out.jsonl", "out.parquet", "out.ipfix"):
        (path.parent / name).write_bytes(b"mine")
        with pytest.raises(UsageError, match="exists"):
            stream(path, model, path.parent / name)
        assert (path.parent / name).read_bytes() == b"mine"
        stream(path, model, path.parent / name, replace=True)
        assert (path.parent / name).read_bytes() != b"mine"


def filled(channel):
    with channel._changed:
        assert channel._changed.wait_for(lambda: len(channel) == channel.room, 60)


def test_a_slow_sink_holds_the_source_back(path, monkeypatch):
    """While a sink waits, both queues fill up, and the source is not read further."""
    monkeypatch.setattr(capture, "PACKETS", 1)
    given, model = [0], MODELS["binary"]()

    class Counting(capture.CaptureFrames):
        def batches(self, position):
            for batch in super().batches(position):
                given[0] += 1
                yield batch

    class Slow(StreamSink):
        name, seen = "slow", 0

        def write(self, batch, first):
            if first:
                return
            filled(running._flows)
            filled(running._frames)
            Slow.seen = given[0]

    running = pipeline.FlowStream(Counting(str(path)), StreamModel(model), [Slow()])
    figures = running.run()
    assert given[0] == figures.packets > 400
    assert 0 < Slow.seen < 200
    assert {n: most for n, (_, most, _) in figures.waiting.items()} == {
        "packets": pipeline.QUEUE, "flows": pipeline.QUEUE
    }  # fmt: skip
