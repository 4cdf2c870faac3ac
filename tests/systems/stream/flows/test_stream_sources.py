# SPDX-License-Identifier: Apache-2.0
"""Sources of a stream other than captures: an interface, UDP, what XDP shunts."""

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import numpy as np
import pytest

from n3ic.errors import DataError, UsageError
from n3ic.exporters.netfpga.frontend.messages import bit_rows, feature_rows, request
from n3ic.meter.capture import Capture
from n3ic.meter.packet import LINK_RAW
from n3ic.meter.verdicts import capture_features
from n3ic.model.bits import pack
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.sink import StreamSink
from n3ic.systems.stream.flows.source import open_source
from n3ic.systems.stream.flows.sources import af_packet
from n3ic.systems.stream.flows.sources.af_packet import InterfaceSource
from n3ic.systems.stream.flows.sources.shunted import HEAD, ShuntedSource
from n3ic.systems.stream.flows.sources.udp import DatagramSource
from n3ic.targets.fuzz_traffic import pcap
from tests.support.stream_models import MODELS, lines, stream
from tests.support.traffic import labelled_capture

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000


class StoppingSink(StreamSink):
    """Keeps flows, and stops its source when there are enough."""

    name = "kept"

    def __init__(self, source, flows):
        self.source, self.flows, self.batches = source, flows, []

    def write(self, batch, first):
        self.batches.append(batch)
        if sum(map(len, self.batches)) >= self.flows:
            self.source.stop()

    def column(self, name):
        return np.concatenate([getattr(batch, name) for batch in self.batches])


def frames_of(path):
    with Capture(path) as capture:
        return [data for data, _, _ in capture.packets()]


@pytest.fixture
def veth():
    """Call a function in a network namespace of its own with two ends of a link."""
    if not shutil.which("ip"):
        pytest.skip("needs ip (apt-get install iproute2)")
    libc = ctypes.CDLL(None, use_errno=True)

    def link(function):
        for words in ("add sfa type veth peer name sfb", "set sfa up", "set sfb up"):
            subprocess.run(["ip", "link", *words.split()], check=True)
        return function("sfa", "sfb")

    def call(function):
        with ThreadPoolExecutor(1) as pool:
            if pool.submit(libc.unshare, NEW_NETWORK).result():
                pytest.skip("needs the right to make network namespaces")
            return pool.submit(link, function).result()

    return call


def sent(interface, frames):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind((interface, 0))
        for frame in frames:
            out.send(frame)


class UntilQuiet(InterfaceSource):
    """An interface, until no packet waits."""

    def batches(self, position):
        for batch in super().batches(position):
            yield batch
            if batch.frames is None:
                self.stop()


def test_an_interface_gives_the_flows_of_its_packets(tmp_path, veth):
    (tmp_path / "c.pcap").write_bytes(labelled_capture(40)[0])
    model = MODELS["binary"]()
    frames = frames_of(tmp_path / "c.pcap")

    def inside(one, other):
        source = UntilQuiet(other)
        sent(one, frames)
        stopping_sink = StoppingSink(source, 1 << 30)
        return stream(source, model, stopping_sink), stopping_sink

    figures, sink = veth(inside)
    assert figures.packets >= len(frames)  # IPv6 sends on a link, too
    assert not any(figures.lost.values())
    columns = dict(zip(model.input.features, sink.column("features").T, strict=True))
    assert np.array_equal(sink.column("scores"), model.scores(model.encode(columns)))
    stream(tmp_path / "c.pcap", model, tmp_path / "want.jsonl")
    keys = ("source", "source_port", "packets", "decided")
    want = {tuple(row[k] for k in keys) for row in lines(tmp_path / "want.jsonl")}
    table = StreamModel(model).table(joined(sink.batches), 0).to_pylist()
    got = {tuple(row[k] for k in keys) for row in table if "." in row["source"]}
    assert got == want
    assert len(got) == 40


def test_an_interface_without_ethernet_headers_gives_the_flows_of_its_packets(tmp_path, veth):
    """Of tun, as of WireGuard, packets are those of IP alone."""
    (tmp_path / "c.pcap").write_bytes(labelled_capture(40)[0])
    packets = [f[14:] for f in frames_of(tmp_path / "c.pcap") if f[12:14] == b"\x08\x00"]
    timed = [(data, len(data), 1000 * i) for i, data in enumerate(packets)]
    (tmp_path / "raw.pcap").write_bytes(pcap(LINK_RAW, timed, 1000, "<"))
    model = MODELS["binary"]()

    def inside(*_):
        tun = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("=16sH22x", b"sft", IFF_TUN | IFF_NO_PI))
        subprocess.run(["ip", "link", "set", "sft", "up"], check=True)
        try:
            source = UntilQuiet("sft")
            for data in packets:
                os.write(tun, data)
            stopping_sink = StoppingSink(source, 1 << 30)
            return stream(source, model, stopping_sink), stopping_sink
        finally:
            os.close(tun)

    _, sink = veth(inside)
    stream(tmp_path / "raw.pcap", model, tmp_path / "want.jsonl")
    keys = ("source", "source_port", "packets")
    want = {tuple(row[k] for k in keys) for row in lines(tmp_path / "want.jsonl")}
    table = StreamModel(model).table(joined(sink.batches), 0).to_pylist()
    assert {tuple(row[k] for k in keys) for row in table if "." in row["source"]} == want
    assert len(want) == 40


def joined(batches):
    return FlowBatch(
        **{f.name: np.concatenate([getattr(b, f.name) for b in batches]) for f in fields(FlowBatch)}
    )


def test_what_an_interface_lost_is_counted_by_place(tmp_path, veth, monkeypatch):
    """The kernel's buffer, made small, is full before anybody reads."""
    monkeypatch.setattr(af_packet, "BUFFER", 1 << 18)
    model, frame = MODELS["binary"](), frames_of_one()

    def inside(one, other):
        runs = []
        for before, down in ((3000, 25), (0, 0)):
            source = UntilQuiet(other)
            sent(one, [frame] * before)
            sink = StoppingSink(source, 1 << 30)
            runs.append(stream(source, model, sink, state=tmp_path / "state"))
            sent(one, [frame] * down)  # while nobody reads
        return runs

    figures, later = veth(inside)
    full, down = (f"interface:sfb: {w}" for w in ("buffer full", "while the stream was down"))
    assert figures.lost[full] > 0
    assert figures.packets + figures.lost[full] >= 3000
    assert figures.lost[down] == 0
    assert 25 <= later.lost[down] < 60
    assert later.lost[full] == figures.lost[full] == figures.dropped[full]


def frames_of_one():
    udp = struct.pack(">HHHH", 1000, 53, 500, 0) + bytes(492)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 520, 0, 0, 64, 17, 0)
    return bytes(12) + b"\x08\x00" + head + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + udp


@pytest.mark.parametrize("name", ["interface:none0", "udp:9000", "udp:300.0.0.1:1", "shntd:x", "x"])
def test_a_source_that_is_none_says_what_is_expected(name):
    with pytest.raises(UsageError):
        open_source(name, MODELS["binary"]())


@pytest.mark.parametrize("kind", ["features", "bits"])
@pytest.mark.parametrize("name", ["binary", "spn"])
def test_rows_in_datagrams_get_the_scores_of_the_model(tmp_path, name, kind):
    (tmp_path / "c.pcap").write_bytes(labelled_capture(50)[0])
    model = MODELS[name]()
    features = capture_features(model, tmp_path / "c.pcap")
    words = model.encode(features)
    columns = np.column_stack([features[name] for name in model.input.features])
    rows = feature_rows(columns) if kind == "features" else bit_rows(words, model.input.n_bits)
    source = DatagramSource("127.0.0.1", 0, model)
    sink = StoppingSink(source, 50)
    own = int(model.digest[:8], 16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.connect(source.place)
        out.send(b"no message")
        out.send(request(1, own ^ 1, rows[:1]).to_bytes())
        out.send(request(1, own, rows[:1, :-1]).to_bytes())
        for number, part in ((2, rows[:20]), (3, rows[20:45]), (6, rows[45:])):
            out.send(request(number, own if number == 2 else 0, part).to_bytes())
        sender = out.getsockname()
        figures = stream(source, model, sink)
    assert np.array_equal(sink.column("scores"), model.scores(words))
    assert {n.partition("0: ")[2]: count for n, count in figures.lost.items() if count} == {
        "not an inference message": 1,
        "of another model": 1,
        "rows of another size": 1,
        "missing by their numbers": 2,
    }
    records = sink.column("records")
    assert {*records["source_port"].tolist()} == {sender[1]}
    assert bytes(records["source"][0][:4]) == bytes([127, 0, 0, 1])
    if kind == "features":
        assert np.array_equal(sink.column("features"), columns)


def test_rows_that_were_committed_come_again_with_the_same_scores(tmp_path):
    """Bits alone are known of a row: those are what a state keeps."""
    model = MODELS["binary"]()
    rng = np.random.default_rng(0)
    bits = rng.random((30, model.input.n_bits)) < 0.5
    words = pack(bits)

    class Failing(StoppingSink):
        def write(self, batch, first):
            raise DataError("consumer died")

    def run(sink_of):
        source = DatagramSource("127.0.0.1", 0, model)
        source.name = "udp"
        sink = sink_of(source, 30)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.connect(source.place)
            if sink_of is Failing:
                out.send(request(0, 0, bit_rows(words, model.input.n_bits)).to_bytes())
            else:
                source.stop()
            stream(source, model, sink, state=tmp_path / "state", commit_s=0)
        return sink

    with pytest.raises(DataError, match="consumer died"):
        run(Failing)
    second_sink = run(StoppingSink)
    assert np.array_equal(second_sink.column("scores"), model.scores(words))


def test_packets_of_shunted_flows_are_metered(tmp_path):
    """The messages of ``shunted`` (its own tests give them packets of an XDP program)."""
    (tmp_path / "c.pcap").write_bytes(labelled_capture(30)[0])
    model, place = MODELS["binary"](), str(tmp_path / "shunted.sock")
    with Capture(tmp_path / "c.pcap") as capture:
        packets = list(capture.packets())
    # From now on, as the source lets flows end by the clock.
    later_us = (time.time_ns() - packets[0][2]) // 1000
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(place)
        listener.listen()
        source = ShuntedSource(place)
        taker, _ = listener.accept()

    def give():
        with taker:
            taker.send(b"damaged")
            for data, _, time_ns in packets:
                at_ns = time_ns + 1000 * later_us
                taker.send(HEAD.pack(HEAD.size + len(data), len(data), at_ns) + data)

    giver = threading.Thread(target=give)
    giver.start()
    with pytest.raises(DataError, match="shunted has ended"):
        stream(source, model, tmp_path / "out.jsonl", state=tmp_path / "state", commit_s=0)
    giver.join()
    stream(tmp_path / "c.pcap", model, tmp_path / "want.jsonl")
    # Lengths on the wire are those of the frames, so decisions may differ; keys and times do not.
    got, want = (
        {
            (r["source"], r["source_port"], r["first_us"] - at, r["last_us"] - at, r["packets"])
            for r in lines(tmp_path / f"{name}.jsonl")
        }
        for name, at in (("out", later_us), ("want", 0))
    )
    assert got <= want
    assert len(got) > 10
    with pytest.raises(DataError, match="expected the socket of"):
        ShuntedSource(str(tmp_path / "none"))
