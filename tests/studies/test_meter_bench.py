# SPDX-License-Identifier: Apache-2.0
"""The meters' benchmark: who is there is measured on the same packets, who is not is named."""

import importlib.util
import json
import shutil

import numpy as np
import pytest

import n3ic
from n3ic.cli import deploy
from n3ic.errors import DataError, MissingDependencyError, N3icError, UsageError
from n3ic.meter.capture import Capture, libpcap
from n3ic.meter.packet import Packet, parse
from n3ic.studies.meter_bench import bench
from tests.support.traffic import labelled_capture

try:
    libpcap()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)
OURS = [
    "compiled, frames in memory",
    "compiled, with 8 packets of a sequence",
    "compiled, with 30 packets of a sequence",
    "compiled, pcap file",
    "reference (Python)",
]


@pytest.fixture
def alone(monkeypatch):
    """A machine without other meters."""
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    monkeypatch.setattr(bench, "which", lambda name: None)


@pytest.mark.slow
def test_generated_traffic_is_whole_packets_of_many_flows(tmp_path, alone):
    frames = bench.generated_frames(3000)
    packets = [parse(1, *frame) for frame in frames.each()]
    assert all(isinstance(p, Packet) for p in packets)
    assert {p.protocol for p in packets} == {6, 17}
    assert {p.tcp_flags for p in packets} == {0, 16}
    bench_result = bench.bench_meter(packets=3000)
    assert list(bench_result.rates) == OURS
    assert all(rate > 0 for rate in bench_result.rates.values())
    assert bench_result.packets == 3000
    assert bench_result.flows > 500
    assert [note for note in bench_result.notes if "left out" in note] == [
        "NFStream is not installed (pip install nfstream): left out",
        "argus is not installed (apt-get install argus-server): left out",
    ]


def test_a_capture_is_written_again_as_it_is(tmp_path, alone):
    capture, labels = labelled_capture(30)
    (tmp_path / "c.pcap").write_bytes(capture)
    link, frames = bench._read(tmp_path / "c.pcap", 10**6)
    bench.write_pcap(tmp_path / "again.pcap", link, frames)
    with Capture(tmp_path / "again.pcap") as again, Capture(tmp_path / "c.pcap") as first:
        assert again.link == first.link == link
        assert list(again.packets()) == list(first.packets())
    assert bench.bench_meter(tmp_path / "c.pcap").flows == labels.count(b"\n") - 1
    (tmp_path / "empty.pcap").write_bytes(capture[:24])
    with pytest.raises(DataError, match="holds no packet"):
        bench.bench_meter(tmp_path / "empty.pcap")


def test_meters_that_differ_are_not_measured(monkeypatch, alone):
    finish = bench.CompiledMeter.finish

    def wrong(meter):
        records = finish(meter).copy()
        records["features"][0, 0] += np.uint32(1)
        return records

    monkeypatch.setattr(bench.CompiledMeter, "finish", wrong)
    with pytest.raises(N3icError, match="differs from the reference"):
        bench.bench_meter(packets=500)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("argus"), reason="argus is not installed")
def test_argus_is_measured():
    assert "argus, pcap file" in bench.bench_meter(packets=2000).rates


@pytest.mark.skipif(not importlib.util.find_spec("nfstream"), reason="nfstream is not installed")
def test_nfstream_is_measured():
    assert "NFStream, pcap file" in bench.bench_meter(packets=2000).rates


def test_an_argus_that_fails_is_named(tmp_path, monkeypatch, alone):
    (tmp_path / "argus").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "argus").chmod(0o755)
    monkeypatch.setattr(bench, "which", lambda name: str(tmp_path / name))
    bench_result = bench.bench_meter(packets=500)
    assert list(bench_result.rates) == OURS
    assert "argus ended with 3: left out" in bench_result.notes


def test_the_meter_bench_has_options_of_its_own(tmp_path):
    with pytest.raises(UsageError, match="takes one option, the capture"):
        n3ic.bench("meter", tmp_path)
    with pytest.raises(UsageError, match="for the benchmark of the meter, not of host"):
        n3ic.bench("host", capture=tmp_path)


def test_the_meter_is_measured_from_python_and_the_command_line_alike(tmp_path, alone, capsys):
    (tmp_path / "c.pcap").write_bytes(labelled_capture(20)[0])
    measurement = n3ic.bench("meter", capture=tmp_path / "c.pcap")
    assert list(measurement.data["rates"]) == OURS
    ((title, _, rows),) = measurement.tables
    assert title.endswith("20 flows")
    assert [row[0] for row in rows] == OURS
    deploy.bench("meter", capture=tmp_path / "c.pcap", json=True)
    assert json.loads(capsys.readouterr().out).keys() == measurement.data.keys()
