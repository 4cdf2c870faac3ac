# SPDX-License-Identifier: Apache-2.0
"""Where n3icd puts decided flows: files, syslog, Prometheus, IPFIX."""

import errno
import json
import re
import shutil
import signal
import socket
import struct
import subprocess

import pytest

from tests.support.ipfix import Collector, number
from tests.support.n3icd import CLASSES, WAIT_S, flows, frame, free_port, send

ENTERPRISE = 32473
AN_IPV6 = bytes.fromhex(
    "020000000001 020000000002 86dd 60000000 0012 11 40 20010db8000000000000000000000001"
    "20010db8000000000000000000000002 03e8 0035 0012 0000 00000000000000000000"
)


@pytest.fixture
def collector():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(WAIT_S)
        yield receiver


def test_lines_of_a_file_survive_its_rotation(daemon, veth, tmp_path):
    path = tmp_path / "flows.json"
    path.write_text('{"source_po')  # what a kill leaves
    running = daemon(json=path).start()
    reader = running.reader()
    send(veth[1], flows(range(1000, 1010)))
    first = reader.lines(10)
    path.rename(tmp_path / "flows.json.1")
    running.process.send_signal(signal.SIGHUP)
    running.expect("is loaded")
    send(veth[1], flows([2000]))
    second = reader.line()
    assert running.end() == 0
    old = (tmp_path / "flows.json.1").read_text().splitlines()
    assert [json.loads(line) for line in old] == first
    assert [json.loads(line) for line in path.read_text().splitlines()] == [second]
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("old", [0, 2])
def test_a_file_of_lines_takes_no_more_room_than_is_given(daemon, veth, tmp_path, old):
    """A file that is full becomes NAME.1; each line is whole, in one of the files."""
    path, full = tmp_path / "flows.json", b'{"x": 1}\n' * ((1 << 20) // 9)
    path.write_bytes(full)
    for i in (1, 2):
        (tmp_path / f"flows.json.{i}").write_text(f"older {i}\n")
    running = daemon(json=path, json_megabytes=1, json_old=old).start()
    reader = running.reader()
    send(veth[1], flows(range(1000, 1010)))
    records = reader.lines(10)
    assert running.end() == 0
    first = (tmp_path / "flows.json.1").read_bytes()
    second = (tmp_path / "flows.json.2").read_text()
    assert second == ("older 1\n" if old else "older 2\n")
    lines = path.read_bytes()
    if old:
        assert first.startswith(full) and len(first) >= 1 << 20
        lines = first[len(full) :] + lines
    rest = [json.loads(line) for line in lines.splitlines()]
    assert rest == records[len(records) - len(rest) :] and (len(rest) == 10 if old else rest)
    assert path.stat().st_size < 1 << 20 and path.stat().st_mode & 0o777 == 0o640


def test_syslog_messages_are_of_rfc_5424(daemon, veth, tmp_path):
    path = tmp_path / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(path))
        log.settimeout(WAIT_S)
        running = daemon(syslog=path).start()
        reader = running.reader()
        send(veth[1], flows(range(1000, 1030)))
        records = reader.lines(30)
        for flow in records:
            message = log.recv(65536).decode()
            head = re.match(
                r"<30>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (\S{1,255}) n3icd (\d+) flow "
                r'\[n3ic@32473((?: [^ =\]"]{1,32}="(?:[^"\\\]]|\\["\\\]])*")+)\] (.*)',
                message,
            )
            assert head, message
            assert int(head[3]) == running.process.pid
            pairs = re.findall(r' ([^ =]+)="((?:[^"\\\]]|\\.)*)"', head[4])
            parameters = {key: re.sub(r"\\(.)", r"\1", value) for key, value in pairs}
            assert parameters["class"] == flow["verdict"]
            assert int(parameters["margin"]) == flow["margin"]
            assert int(parameters["sourcePort"]) == flow["source_port"]
            assert parameters["source"] == flow["source"]
        assert {flow["verdict"] for flow in records} - {"benign"}
        log.close()
        send(veth[1], flows([5000]))  # nobody takes it, and all else goes on
        assert reader.line()["source_port"] == 5000
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as again:
        again.bind(str(path))
        again.settimeout(WAIT_S)
        assert b'sourcePort="5000"' in again.recv(65536)
    assert running.end() == 0


@pytest.mark.slow
def test_prometheus_gets_what_python_serves(daemon, hasty, veth):
    port = free_port()
    running = daemon(hasty, prometheus=f"127.0.0.1:{port}").start()
    reader = running.reader()
    send(veth[1], flows(range(1000, 1040)) + flows(range(2000, 2005), 2) + [b"\xff" * 60])
    records = reader.lines(40)
    reader.lines(5)  # those that were idle
    figures = running.figures()
    of = f'interface="{veth[0]}"'
    assert figures[f"n3ic_xdp_flows_started_total{{{of}}}"] == 45
    assert figures[f"n3ic_xdp_flows{{{of}}}"] == 0
    assert figures[f'n3ic_xdp_decisions_total{{{of},reason="idle"}}'] == 5
    assert figures[f"n3ic_xdp_n3icd_idle_ended_total{{{of}}}"] == 45
    assert figures[f'n3ic_xdp_packets_aside_total{{{of},reason="not IP"}}'] == 1
    slot = f'{of},slot="0",model="net \\"0\\""'
    by_class = {}
    for name in CLASSES:
        label = name.replace("\\", "\\\\").replace('"', '\\"')
        by_class[name] = figures[f'n3ic_xdp_verdicts_total{{{slot},verdict="{label}"}}']
    assert sum(by_class.values()) == 45
    assert all(by_class[name] >= sum(f["verdict"] == name for f in records) for name in CLASSES)
    assert figures[f"n3ic_xdp_margin_count{{{slot}}}"] == 45
    assert figures[f'n3ic_xdp_margin_bucket{{{slot},le="+Inf"}}'] == 45
    with socket.create_connection(("127.0.0.1", port)) as other:
        other.settimeout(WAIT_S)
        other.sendall(b"\0" * 5000)
        assert other.recv(100).startswith(b"HTTP/1.0 404")
    assert running.figures()
    assert running.end() == 0


def test_each_interface_has_settings_of_its_own(daemon, veth):
    ports = [free_port() for _ in range(2)]
    running = daemon(prometheus=f"127.0.0.1:{ports[0]}")
    with running.conf.open("a") as out:
        out.write(f"[{veth[1]}]\njson = /nonexistent/file\nprometheus = 127.0.0.1:1\n")
        out.write(f"[ {veth[0]} ]\nprometheus = 127.0.0.1:{ports[1]}\n")
        out.write("[eth9]\nprometheus = 127.0.0.1:2\nqueue = 70000\n")
    running.start()
    running.settings["prometheus"] = f"127.0.0.1:{ports[1]}"
    assert f'n3ic_xdp_packets_total{{interface="{veth[0]}"}}' in running.figures()
    with socket.socket() as other:
        other.settimeout(WAIT_S)
        assert other.connect_ex(("127.0.0.1", ports[0])) == errno.ECONNREFUSED
    assert running.end() == 0


def test_ipfix_is_read_by_an_independent_parser(daemon, veth, collector, daemon_model):
    where = f"127.0.0.1:{collector.getsockname()[1]}"
    running = daemon(ipfix=where, ipfix_domain=77, ipfix_templates=1).start()
    reader = running.reader()
    send(veth[1], flows(range(1000, 1100)) + [AN_IPV6] * 4)
    flow_lines = reader.lines(101)
    parser = Collector()
    while len(parser.records) < 101:
        assert parser.take(collector.recv(65536)) == 77
    assert parser.gaps == 0
    spec = daemon_model.meter
    names = {parser.names[ENTERPRISE, 256 + i] for i in range(len(spec.feature_names))}
    assert names == set(spec.feature_names)
    assert parser.names[ENTERPRISE, 3] == "n3icMargin"
    for flow, record in zip(flow_lines, parser.records, strict=True):
        six = flow["source"].startswith("2001")
        family = socket.AF_INET6 if six else socket.AF_INET
        for name, element in (("source", 27 if six else 8), ("destination", 28 if six else 12)):
            assert socket.inet_ntop(family, record[0, element]) == flow[name]
        for name, element in (
            ("source_port", 7), ("destination_port", 11), ("protocol", 4), ("packets", 86),
        ):  # fmt: skip
            assert number(record, element) == flow[name]
        octets = 4 * 58  # of IP packets; each flow is decided once
        assert (number(record, 2), number(record, 1)) == (flow["packets"], octets)
        for name, element in (("first", 152), ("last", 153), ("decided", 258)):
            assert abs(number(record, element) / 1000 - flow[name]) < 0.002
        assert record[ENTERPRISE, 1].decode() == flow["verdict"]
        assert number(record, 3, ENTERPRISE) == flow["margin"]
        assert record[ENTERPRISE, 4].hex() == flow["model"]
        scores = record[ENTERPRISE, 5]
        assert [
            int.from_bytes(scores[i : i + 4], "big", signed=True) for i in range(0, len(scores), 4)
        ] == flow["scores"]
        for i, name in enumerate(spec.feature_names):
            assert number(record, 256 + i, ENTERPRISE) == flow["features"][name]
    # Templates come again, for a collector that began later.
    late = Collector()
    while not late.names:
        message = collector.recv(65536)
        parser.take(message)
        if message[16:18] == b"\0\2" or late.templates:
            late.take(message)
    assert late.templates == {k: v for k, v in parser.templates.items() if k in late.templates}
    assert set(late.templates) == {256, 257, 258}
    assert parser.gaps == 0
    assert running.end() == 0


SFLOW = {
    "version": "sflow_245.version",
    "agent": "sflow_245.agent",
    "sequence": "sflow.flow_sample.sequence_number",
    "rate": "sflow.flow_sample.sampling_rate",
    "pool": "sflow.flow_sample.sample_pool",
    "lost": "sflow.flow_sample.dropped_packets",
    "input": "sflow.flow_sample.input_interface",
    "format": "sflow.flow_sample.output_interface_format",
    "reason": "sflow.flow_sample.output_interface_value",
    "bytes": "sflow_245.header.frame_length",
    "source": "ip.src",
    "port": "udp.srcport",
}


def dissected(messages, path):
    """What tshark reads in sFlow messages: a list of values for each of the names above."""
    ip = bytes.fromhex("7f000001 7f000001")
    frames = []
    for message in messages:
        udp = struct.pack(">HHHH", 6343, 6343, 8 + len(message), 0) + message
        frames.append(struct.pack(">BBHIBBH", 0x45, 0, 20 + len(udp), 0, 64, 17, 0) + ip + udp)
    head = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, 101)
    path.write_bytes(
        head + b"".join(struct.pack("<IIII", 0, 0, len(f), len(f)) + f for f in frames)
    )
    fields = [option for name in SFLOW.values() for option in ("-e", name)]
    command = ["tshark", "-r", str(path), "-T", "fields", "-E", "separator=;", *fields]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S)
    rows = [line.split(";") for line in done.stdout.splitlines()]
    return [{name: cell.split(",") for name, cell in zip(SFLOW, row, strict=True)} for row in rows]


@pytest.mark.parametrize("mode", ["auto", pytest.param("tcx", marks=pytest.mark.slow)])
def test_wireshark_reads_samples_of_dropped_packets(daemon, veth, collector, tmp_path, mode):
    if not shutil.which("tshark"):
        pytest.skip("needs tshark (apt-get install tshark)")
    where = f"127.0.0.1:{collector.getsockname()[1]}"
    running = daemon(sflow=where, sflow_rate=1, mode=mode).start()
    n3icd = [str(running.built / "daemon" / "n3icd")]
    settings = ["-c", str(running.conf), "-i", veth[0]]
    for words in (
        ["block", "192.0.2.0/28"], ["block", "192.0.2.32/28", "--action", "rate-limit:1"],
    ):  # fmt: skip
        subprocess.run([*n3icd, *words, *settings], check=True, capture_output=True)
    passing = [frame(1000 + i, source=100) for i in range(3)]
    blocked = [frame(2000 + i, source=1) for i in range(40)]
    limited = [frame(3000 + i, source=33) for i in range(4)]
    send(veth[1], passing + blocked + limited)
    messages, samples = [], []
    while len(samples) < 40 + 3:  # one of the limited packets passed
        messages.append(collector.recv(65536))
        samples = dissected(messages, tmp_path / "sflow.pcap")
        for row in samples:
            assert row["version"] == ["5"] and row["agent"] == ["127.0.0.1"]
        samples = [
            {name: row[name][i] for name in SFLOW if name not in ("version", "agent")}
            | {"source": row["source"][i + 1], "port": row["port"][i + 1]}
            for row in samples
            for i in range(len(row["reason"]))
        ]
    assert [int(s["sequence"]) for s in samples] == list(range(43))
    index = str(socket.if_nametoindex(veth[0]))
    for sample in samples:
        assert (sample["input"], sample["rate"], sample["lost"]) == (index, "1", "0")
        assert (sample["format"], int(sample["bytes"])) == ("1", len(frame(1)) + 4)
        over_a_rate = sample["source"] == "192.0.2.33"
        assert sample["reason"] == ("261" if over_a_rate else "258")
    assert int(samples[-1]["pool"]) == 43
    assert [int(s["port"]) for s in samples if s["source"] == "192.0.2.1"] == [*range(2000, 2040)]
    assert running.end() == 0


@pytest.mark.slow
def test_one_dropped_packet_in_so_many_is_sampled(daemon, veth, collector):
    """The share is that of the setting, and a daemon without the sink takes no sample."""
    for sink in ({}, {"sflow": f"127.0.0.1:{collector.getsockname()[1]}", "sflow_rate": 10}):
        running = daemon(**sink, prometheus=f"127.0.0.1:{free_port()}").start()
        n3icd = str(running.built / "daemon" / "n3icd")
        command = [n3icd, "block", "192.0.2.1", "-c", running.conf, "-i", veth[0]]
        subprocess.run(command, check=True, capture_output=True)
        send(veth[1], [frame(1000)] * 5000)
        samples = 0
        while sink and samples < 400:  # 500 are expected, with a deviation of 21
            samples += int.from_bytes(collector.recv(65536)[24:28], "big")
        collector.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                samples += int.from_bytes(collector.recv(65536)[24:28], "big")
        collector.settimeout(WAIT_S)
        assert samples < 620
        of = f'interface="{veth[0]}"'
        assert running.figures()[f"n3ic_xdp_samples_lost_total{{{of}}}"] == 0
        assert running.end() == 0
        running.remove()


@pytest.mark.slow
def test_debian_s_nfdump_reads_the_flows(daemon, veth, tmp_path):
    if not shutil.which("nfcapd"):
        pytest.skip("needs nfcapd (apt-get install nfdump)")
    port = free_port(socket.SOCK_DGRAM)
    place = tmp_path / "nfcapd"
    place.mkdir()
    command = ["nfcapd", "-w", str(place), "-p", str(port), "-b", "127.0.0.1", "-t", "3600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as capture:
        try:
            for line in capture.stdout:
                if b"Startup" in line or b"listening" in line.lower():
                    break
            running = daemon(ipfix=f"127.0.0.1:{port}", ipfix_templates=1).start()
            reader = running.reader()
            send(veth[1], flows(range(1000, 1050)) + [AN_IPV6] * 4)
            flow_lines = reader.lines(51)
            assert running.end() == 0
            # It is asked to end, and writes what it has.
        finally:
            capture.send_signal(signal.SIGTERM)
            log = capture.stdout.read().decode()
    shown = subprocess.run(
        ["nfdump", "-R", str(place), "-q", "-o", "fmt:%pr,%sa,%sp,%da,%dp,%pkt,%byt", "-6"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    rows = {tuple(re.sub(r"\s", "", cell) for cell in r.split(",")) for r in shown.splitlines()}
    assert rows == {
        ("UDP", f["source"], str(f["source_port"]), f["destination"], "53", "4", "232")
        for f in flow_lines
    }, log + shown


@pytest.mark.slow
def test_debian_s_pmacct_reads_class_and_margin(daemon, veth, tmp_path):
    if not shutil.which("nfacctd"):
        pytest.skip("needs nfacctd (apt-get install pmacct)")
    port = free_port(socket.SOCK_DGRAM)
    (tmp_path / "primitives").write_text(
        f"name=verdict field_type={ENTERPRISE}:1 len=vlen semantics=str\n"
        f"name=margin field_type={ENTERPRISE}:3 len=4 semantics=u_int\n"
    )
    (tmp_path / "conf").write_text(
        f"nfacctd_ip: 127.0.0.1\nnfacctd_port: {port}\nplugins: print\nprint_output: json\n"
        "print_refresh_time: 1\naggregate: src_host, dst_host, src_port, dst_port, proto, "
        f"verdict, margin\naggregate_primitives: {tmp_path}/primitives\n"
    )
    command = ["nfacctd", "-f", str(tmp_path / "conf")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as nfacctd:
        try:
            for line in nfacctd.stdout:
                if "waiting for" in line:
                    break
            running = daemon(ipfix=f"127.0.0.1:{port}", ipfix_templates=1).start()
            reader = running.reader()
            send(veth[1], flows(range(1000, 1020)))
            flows_by_port = {flow["source_port"]: flow for flow in reader.lines(20)}
            rows_by_port = {}
            for line in nfacctd.stdout:
                if line.startswith("{"):
                    row = json.loads(line)
                    rows_by_port[row["port_src"]] = row
                if len(rows_by_port) == len(flows_by_port):
                    break
        finally:
            nfacctd.terminate()
    for port, row in rows_by_port.items():
        flow = flows_by_port[port]
        assert (row["ip_src"], row["port_dst"]) == (flow["source"], 53)
        assert int(row["margin"]) == flow["margin"]
        assert row["verdict"] == flow["verdict"]
    assert running.end() == 0
