# SPDX-License-Identifier: Apache-2.0
"""Packets to flows to verdicts to lines of JSON: those of ``n3ic predict``, by every way."""

import gzip
import io
import json
import os
import sys
import threading

import numpy as np
import pytest

from n3ic.systems.stream.flows import pipeline
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.pipeline import StreamSettings
from n3ic.systems.stream.flows.sink import open_sink
from n3ic.systems.stream.flows.sinks.callback import CallbackSink
from n3ic.systems.stream.flows.sources import capture
from tests.support.predicted_rows import predicted
from tests.support.stream_models import MODELS, lines, stream
from tests.support.traffic import labelled_capture


@pytest.fixture
def path(tmp_path):
    """A capture of 60 flows."""
    (tmp_path / "c.pcap").write_bytes(labelled_capture(60)[0])
    return tmp_path / "c.pcap"


@pytest.mark.first_case
@pytest.mark.parametrize("batch", [7, 4096])
@pytest.mark.parametrize("name", MODELS)
def test_a_stream_writes_what_predict_does(path, name, batch, monkeypatch):
    monkeypatch.setattr(capture, "PACKETS", batch)
    model = MODELS[name]()
    figures = stream(path, model, path.parent / "out.jsonl")
    want = predicted(model, path)
    assert lines(path.parent / "out.jsonl") == want
    assert len(want) == figures.flows == figures.classes.total() == 60
    assert len({row["margin"] for row in want}) > 1 < len(figures.classes)
    assert figures.to_dict()["latency_written"]["max_us"] > 0


class BatchSink:
    """A consumer that keeps what it is given."""

    def __init__(self):
        self.batches = []

    def write(self, batch):
        self.batches.append(batch)


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_the_features_beside_them(path, name):
    model, sink = MODELS[name](), BatchSink()
    stream(path, model, CallbackSink(sink.write))
    features = np.concatenate([batch.features for batch in sink.batches])
    scores = np.concatenate([batch.scores for batch in sink.batches])
    verdicts = np.concatenate([batch.verdicts for batch in sink.batches])
    columns = dict(zip(model.input.features, features.T, strict=True))
    assert np.array_equal(scores, model.scores(model.encode(columns)))
    assert np.array_equal(verdicts, model.infer(model.encode(columns)).verdicts)
    assert len(scores) == 60


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_command_reads_standard_input(n3ic, tmp_path, monkeypatch, pack):
    model, data = MODELS["binary"](), labelled_capture(9)[0]
    model.save(tmp_path / "m.n3ic")
    (tmp_path / "c.pcap").write_bytes(data)
    (tmp_path / "given").write_bytes(pack(data))
    with (tmp_path / "given").open("rb") as given:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
        stream("-", model, tmp_path / "stdin.jsonl")
    completed = n3ic("stream c.pcap --model m.n3ic --sink file.jsonl --json")
    assert json.loads(completed.stdout)["flows"] == 9
    assert lines(tmp_path / "file.jsonl") == lines(tmp_path / "stdin.jsonl")
    out = n3ic("stream run c.pcap --model m.n3ic").stdout
    assert out.encode() == (tmp_path / "file.jsonl").read_bytes()
    named = n3ic("stream c.pcap --model m.n3ic --features").stdout.splitlines()[0]
    assert [k for k in json.loads(named) if k.startswith("feature_")]


@pytest.mark.parametrize("size", [3_000, 70_000, 900_000])
def test_packets_of_a_writer_that_falls_silent_are_not_held_back(monkeypatch, size):
    """Also if the writer stops amid a packet, and more than one read of a pipe came before."""
    data = labelled_capture(400)[0]
    whole, at = 0, 24
    while (end := at + 16 + int.from_bytes(data[at + 8 : at + 12], "little")) <= size:
        whole, at = whole + 1, end
    assert at < size
    readable, writable = os.pipe()
    with os.fdopen(readable) as given, os.fdopen(writable, "wb", buffering=0) as writer:
        monkeypatch.setattr(sys, "stdin", given)
        feeder = threading.Thread(target=lambda: writer.write(data[:size]), daemon=True)
        feeder.start()
        source = capture.CaptureFrames("-")
        batches = source.batches({})
        while next(batches).position["packets"] < whole:
            pass
        source.stop()
        assert [*batches] == []
        feeder.join()
        source.close()


class Stopping(capture.CaptureFrames):
    """Is stopped after three batches, as by Ctrl-C."""

    running: pipeline.FlowStream

    def batches(self, position):
        for number, batch in enumerate(super().batches(position)):
            if number == 3:
                self.running._stop_source()
                return
            yield batch


@pytest.mark.parametrize("with_state", [True, False])
def test_a_stream_that_was_stopped_goes_on(path, monkeypatch, with_state):
    """With a state, flows stay in the meter; without one, they end."""
    monkeypatch.setattr(capture, "PACKETS", 16)
    model, folder = MODELS["binary"](), path.parent
    settings = {"state": folder / "state"} if with_state else {}
    source, chosen = Stopping(str(path)), StreamModel(model)
    sinks = [open_sink(str(folder / "out.jsonl"), chosen)]
    source.running = pipeline.FlowStream(source, chosen, sinks, StreamSettings(**settings))
    first = source.running.run()
    want = predicted(model, path)
    assert first.packets == 48
    if not with_state:
        seen = {row["source_port"] for row in lines(folder / "out.jsonl")}
        assert len(seen) == first.flows > 6
        return
    assert 0 < first.flows < 10
    second = stream(path, model, folder / "out.jsonl", **settings)
    assert (second.flows, second.packets - second.read) == (60, 48)
    assert lines(folder / "out.jsonl") == want
    again = stream(path, model, folder / "out.jsonl", **settings)
    assert (again.flows, again.read, again.packets) == (60, 0, second.packets)
    assert lines(folder / "out.jsonl") == want
