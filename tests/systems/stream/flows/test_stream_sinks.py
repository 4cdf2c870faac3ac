# SPDX-License-Identifier: Apache-2.0
"""What the sinks of a stream give their readers, and what a stream shows of itself."""

import json
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from n3ic.errors import UsageError
from n3ic.systems.stream.flows import metrics, terminal
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.sink import open_sink
from tests.support.ipfix import Collector, number
from tests.support.stream_models import MODELS, lines, stream
from tests.support.stream_peers import messages, topic_rows
from tests.support.traffic import labelled_capture

WAIT_S = 60


@pytest.fixture
def path(tmp_path):
    """A capture of 60 flows."""
    (tmp_path / "c.pcap").write_bytes(labelled_capture(60)[0])
    return tmp_path / "c.pcap"


@pytest.fixture
def model():
    return MODELS["shunts"]()


def test_parquet_has_the_rows_of_the_lines(path, model):
    folder = path.parent
    stream(path, model, folder / "out.jsonl", folder / "out.parquet")
    assert pq.read_table(folder / "out.parquet").to_pylist() == lines(folder / "out.jsonl")
    assert [p.name for p in folder.glob(".*")] == []


def checked(collector, model, rows):
    """Compare the records of a reader of IPFIX with the rows of the lines."""
    own = 32473
    assert collector.gaps == 0
    assert len(collector.records) == len(rows)
    for record, row in zip(collector.records, rows, strict=True):
        assert record[0, 8] == socket.inet_aton(row["source"])
        assert record[0, 12] == socket.inet_aton(row["destination"])
        assert (number(record, 7), number(record, 11)) == (
            row["source_port"],
            row["destination_port"],
        )
        assert number(record, 152) == row["first_us"] // 1000
        assert number(record, 153) == row["last_us"] // 1000
        assert number(record, 86) == row["packets"]
        assert record[own, 1].decode() == row["class"]
        verdict = -1 if row["class"] == "shunt" else model.classes.index(row["class"])
        assert int.from_bytes(record[own, 2], "big", signed=True) == verdict
        assert number(record, 3, own) == row["margin"]
        assert record[own, 4].hex() == model.digest[:16]
        scores = [row[f"score_{name}"] for name in model.classes]
        data = record[own, 5]
        assert scores == [
            int.from_bytes(data[i : i + 4], "big", signed=True) for i in range(0, len(data), 4)
        ]
        values = {
            collector.names[e]: int.from_bytes(v, "big")
            for e, v in record.items()
            if e[1] >= 256 and e[0]
        }
        assert values == {
            name.removeprefix("feature_"): value
            for name, value in row.items()
            if name.startswith("feature_")
        }


def with_features(path, model):
    chosen = StreamModel(model, with_features=True)
    stream(path, model, open_sink(str(path.parent / "rows.jsonl"), chosen))
    return lines(path.parent / "rows.jsonl")


def test_ipfix_in_a_file_is_read_by_an_independent_parser(path, model):
    stream(path, model, path.parent / "out.ipfix")
    collector = Collector()
    for message in messages((path.parent / "out.ipfix").read_bytes()):
        collector.take(message)
    checked(collector, model, with_features(path, model))


def test_ipfix_over_udp_is_the_same_and_a_collector_that_is_gone_is_counted(path, model):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(WAIT_S)
        port = collector.getsockname()[1]
        stream(path, model, f"ipfix://127.0.0.1:{port}?domain=77")
        flows = Collector()
        while len(flows.records) < 60:
            assert flows.take(collector.recv(65536)) == 77
    checked(flows, model, with_features(path, model))
    figures = stream(path, model, f"ipfix://127.0.0.1:{port}")
    assert figures.lost["sink ipfix collector: not taken"] == 60


def waiting_bytes(port):
    """Bytes that wait in the UDP socket of a port on 127.0.0.1."""
    rows = [r.split() for r in Path("/proc/net/udp").read_text(encoding="ascii").splitlines()[1:]]
    (queues,) = [row[4] for row in rows if row[1] == f"0100007F:{port:04X}"]
    return int(queues.split(":")[1], 16)


@pytest.mark.slow
def test_debian_s_nfdump_reads_the_flows(path, model, tmp_path):
    if not shutil.which("nfcapd"):
        pytest.skip("needs nfcapd (apt-get install nfdump)")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = tmp_path / "nfcapd"
    place.mkdir()
    command = ["nfcapd", "-w", str(place), "-p", str(port), "-b", "127.0.0.1", "-t", "3600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as capture:
        try:
            for line in capture.stdout:
                if b"Startup" in line or b"listening" in line.lower():
                    break
            stream(path, model, f"ipfix://127.0.0.1:{port}", tmp_path / "rows.jsonl")
            while waiting_bytes(port):  # nfcapd reads no further after SIGTERM
                time.sleep(0.05)
        finally:
            capture.send_signal(signal.SIGTERM)
            errors = capture.stdout.read().decode()
    shown = subprocess.run(
        ["nfdump", "-R", str(place), "-q", "-o", "fmt:%pr,%sa,%sp,%da,%dp,%pkt", "-6"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    rows = {tuple(re.sub(r"\s", "", cell) for cell in r.split(",")) for r in shown.splitlines()}
    assert rows == {
        (
            {6: "TCP", 17: "UDP"}[r["protocol"]], r["source"], str(r["source_port"]),
            r["destination"], str(r["destination_port"]), str(r["packets"]),
        )
        for r in lines(tmp_path / "rows.jsonl")
    }, errors + shown  # fmt: skip


def test_a_topic_has_the_rows_of_the_lines(path, model, broker):
    stream(path, model, f"kafka://{broker}/rows?linger.ms=1", path.parent / "rows.jsonl")
    want = (path.parent / "rows.jsonl").read_bytes().splitlines()
    assert sorted(topic_rows(broker, "rows")) == sorted(want)


@pytest.mark.parametrize(
    "place",
    [
        "out.csv", "kafk://x/y", "kafka://host", "nats://host/", "nats://h/a.*", "ipfix://host",
        "ipfix://host:99?color=1", "ipfix://host:x", "kafka://h:1/t?no.such.setting=1",
    ],
)  # fmt: skip
def test_a_sink_that_is_none_says_what_is_expected(path, model, place):
    with pytest.raises(UsageError, match=r"sink|expected"):
        stream(path, model, place)


def test_prometheus_gets_the_figures_of_the_stream(path, model):
    figures = stream(path, model, path.parent / "out.jsonl")
    with metrics.serving("127.0.0.1:0", figures) as port:
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            text = answer.read().decode()
        with (
            pytest.raises(UsageError, match="in use"),
            metrics.serving(f"127.0.0.1:{port}", figures),
        ):
            pass
    samples = {
        (s.name, *s.labels.values()): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
    assert samples["n3ic_stream_flows_total",] == 60
    assert samples["n3ic_stream_packets_total",] == figures.packets
    for name in model.verdict_names:
        assert samples.get(("n3ic_stream_verdicts_total", name), 0) == figures.classes[name]
    buckets = {k[1:]: n for k, n in samples.items() if k[0] == "n3ic_stream_latency_seconds_bucket"}
    assert max(n for k, n in buckets.items() if "written" in k) == 60
    assert samples["n3ic_stream_latency_seconds_count", "decided"] == 60
    with pytest.raises(UsageError, match="expected ADDRESS:PORT"), metrics.serving("9109", figures):
        pass


def test_the_command_shows_the_same_for_people_and_as_json(n3ic, path, model):
    model.save(path.parent / "m.n3ic")
    report = json.loads(n3ic("stream c.pcap --model m.n3ic --sink a.jsonl --json").stdout)
    assert report["flows"] == sum(report["classes"].values()) == 60
    assert report["packets_per_second"] > 0
    assert report["latency_written"]["p99_us"] >= report["latency_decided"]["p50_us"] > 0
    assert report["meter"]["packets"] == report["packets"]
    shown = n3ic("stream c.pcap --model m.n3ic --sink b.jsonl").stderr
    assert f"packets {report['packets']:,} " in shown
    for name, count in report["classes"].items():
        assert f"{name} {count}" in shown
    assert "share standard output" in n3ic("stream c.pcap --model m.n3ic --json", expect=2).stderr
    assert "no such file" in n3ic("stream none.pcap --model m.n3ic", expect=2).stderr


def test_a_terminal_sees_the_figures_live(path, model, monkeypatch):
    from rich.console import Console

    shown = Console(force_terminal=True, width=200, record=True)
    monkeypatch.setattr(terminal, "console", lambda *, stderr: shown)
    with terminal.live_view(enabled=True) as watch:
        watch(stream(path, model, path.parent / "out.jsonl"))
    assert "flows 60" in shown.export_text()
