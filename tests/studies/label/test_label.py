# SPDX-License-Identifier: Apache-2.0
"""Names from hellos of OpenSSL and aioquic, in pieces, out of order, damaged; and DNS answers."""

import csv
import json
import random
import ssl
import struct

import pytest
from typer.testing import CliRunner

from n3ic.cli.main import command_line
from n3ic.errors import DataError
from n3ic.meter.labels import read_labels
from n3ic.targets.fuzz_traffic import fuzz_captures, pcap

dpkt = pytest.importorskip("dpkt", reason="needs n3ic[label]")
pytest.importorskip("aioquic", reason="needs n3ic[label]")

from aioquic.quic.configuration import QuicConfiguration  # noqa: E402
from aioquic.quic.connection import QuicConnection  # noqa: E402

from n3ic.meter.standard import standard_spec  # noqa: E402
from n3ic.studies.label.hello import joined, read_hello, records_to_hello  # noqa: E402
from n3ic.studies.label.names import named_flows  # noqa: E402
from n3ic.studies.label.quic import QuicHello  # noqa: E402

CLIENT, SERVER, RESOLVER = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), bytes([10, 0, 0, 53])


def frame(source, destination, protocol, transport):
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(transport), 0, 0, 64, protocol, 0)
    return bytes(12) + b"\x08\0" + head + source + destination + transport


def tcp(data, sequence, *, out=True, flags=16, port=5000):
    ends, ports = ((CLIENT, SERVER), (port, 443)) if out else ((SERVER, CLIENT), (443, port))
    head = struct.pack(">HHIIBBHHH", *ports, sequence % 2**32, 0, 0x50, flags, 0, 0, 0)
    return frame(*ends, 6, head + data)


def udp(data, source=CLIENT, destination=SERVER, ports=(6000, 443)):
    return frame(source, destination, 17, struct.pack(">HHHH", *ports, 8 + len(data), 0) + data)


def flows_of(folder, frames):
    packets = [(f, len(f), 1000 * i) for i, f in enumerate(frames)]
    (folder / "c.pcap").write_bytes(pcap(1, packets, 1000, "<"))
    return list(named_flows([str(folder / "c.pcap")]))


def tls_hello(name="www.example.org", protocols=("h2", "http/1.1")):
    context = ssl.create_default_context()
    context.set_alpn_protocols(list(protocols))
    out = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return out.read()


def quic_datagrams(name="quic.example.org", size=1200):
    configuration = QuicConfiguration(alpn_protocols=["h3"], server_name=name, is_client=True)
    configuration.max_datagram_size = size
    connection = QuicConnection(configuration=configuration)
    connection.connect(("10.0.0.2", 443), now=0.0)
    return [data for data, _ in connection.datagrams_to_send(now=0.0)]


def extension(kind, data=b""):
    return struct.pack(">HH", kind, len(data)) + data


def hello_bytes(ciphers, extensions, version=0x0303):
    listed = b"".join(struct.pack(">H", c) for c in ciphers)
    joined = b"".join(extensions)
    body = struct.pack(">H", version) + bytes(32) + b"\0" + struct.pack(">H", len(listed)) + listed
    body += b"\1\0" + struct.pack(">H", len(joined)) + joined
    return b"\1" + len(body).to_bytes(3, "big") + body


def test_the_fingerprint_is_the_published_one_of_its_example():
    """The example of JA4's own description, with reserved numbers mixed in, in another order."""
    ciphers = [0x0A0A, 0x1301, 0x1302, 0x1303, 0xC02B, 0xC02F, 0xC02C, 0xC030, 0xCCA9, 0xCCA8,
               0xC013, 0xC014, 0x009C, 0x009D, 0x002F, 0x0035]  # fmt: skip
    signatures = bytes.fromhex("0010 0403 0804 0401 0503 0805 0501 0806 0601".replace(" ", ""))
    extensions = [
        extension(0xFAFA),
        extension(0, struct.pack(">HBH", 6, 0, 3) + b"a.b"),
        *map(extension, (0x17, 0xFF01, 0x0A, 0x0B, 0x23)),
        extension(16, b"\0\3\2h2"),
        extension(5),
        extension(13, signatures),
        *map(extension, (0x12, 0x33, 0x2D)),
        extension(43, bytes.fromhex("06 7a7a 0304 0303".replace(" ", ""))),
        *map(extension, (0x1B, 0x4469, 0x15)),
    ]
    hello = read_hello(hello_bytes(ciphers, extensions))
    assert hello.ja4 == "t13d1516h2_8daaf6152771_e5627efa2ab1"
    assert (hello.server_name, hello.protocol) == ("a.b", "h2")


@pytest.mark.parametrize(
    ("protocol", "ends"),
    [
        (b"h2", "h2"), (b"http/1.1", "h1"), (b"h", "hh"), (b"\xab", "ab"), (b"\xab\xcd", "ad"),
        (b"\x20\x61", "21"), (b"\x30\xab", "3b"), (b"\x30\x31\xab\xcd", "3d"),
        (b"\x30\xab\xcd\x31", "01"),
    ],
)  # fmt: skip
def test_protocols_are_written_as_the_published_examples(protocol, ends):
    """FoxIO, technical details of JA4, "ALPN Extension Value"."""
    listed = struct.pack(">HB", len(protocol) + 1, len(protocol)) + protocol
    assert read_hello(hello_bytes([0x1301], [extension(16, listed)])).ja4[8:10] == ends


def test_a_hello_without_extensions_has_a_fingerprint():
    assert read_hello(hello_bytes([], [])).ja4 == "t12i000000_000000000000_000000000000"


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_tls_client_is_named_however_its_hello_comes(tmp_path, pieces, shuffled):
    hello = tls_hello()
    start = 2**32 - 100  # sequence numbers wrap
    size = -(-len(hello) // pieces)
    sent = [tcp(hello[i : i + size], start + 1 + i) for i in range(0, len(hello), size)]
    if shuffled:
        random.Random(pieces).shuffle(sent)
    frames = [tcp(b"", start, flags=2), tcp(b"", 7, out=False, flags=18), *sent, *sent]
    (flow,) = flows_of(tmp_path, frames)
    assert flow.name == "www.example.org"
    assert flow.hello.protocol == "h2"
    assert flow.hello.ja4.startswith("t13d")


def test_a_hello_behind_another_protocol_is_found(tmp_path):
    """STARTTLS of mail, and RDP's and PostgreSQL's own ways."""
    hello, ask = tls_hello("mail.example.org"), b"a1 STARTTLS\r\n"
    sent = [tcp(b"a0 CAPABILITY\r\n", 1), tcp(ask, 16), tcp(hello[:90], 29), tcp(hello[90:], 119)]
    frames = [tcp(b"", 0, flags=2), *sent, tcp(b"* OK\r\n", 1, out=False)]
    (flow,) = flows_of(tmp_path, frames)
    assert flow.name == "mail.example.org"


@pytest.mark.parametrize("size", [1200, 1400])
def test_a_quic_client_is_named(tmp_path, size):
    (flow,) = flows_of(tmp_path, [udp(data) for data in quic_datagrams(size=size)])
    assert flow.name == "quic.example.org"
    assert flow.hello.protocol == "h3"
    assert flow.hello.ja4.startswith("q13d")


def test_pieces_of_a_hello_come_in_any_order():
    assert joined({3: b"defg", 0: b"abc", 5: b"fghi", 20: b"x"}) == b"abcdefghi"


def answer(name, address, asker=CLIENT):
    reply = dpkt.dns.DNS()
    reply.qr = 1
    reply.qd = [dpkt.dns.DNS.Q(name=name, type=1)]
    reply.an = [dpkt.dns.DNS.RR(name=name, type=1, rdata=address, ip=address)]
    return udp(bytes(reply), RESOLVER, asker, (53, 7000))


def test_a_flow_without_a_hello_has_the_name_that_its_source_asked_for(tmp_path):
    other = bytes([10, 0, 0, 3])
    frames = [
        answer("Plain.Example.org", SERVER),
        tcp(b"GET / HTTP/1.1\r\n\r\n", 1),
        udp(b"\0" * 40, other, SERVER),  # another host asked nobody
    ]
    flows = {flow.source[0]: flow for flow in flows_of(tmp_path, frames)}
    assert flows[CLIENT].name == "plain.example.org"
    assert flows[CLIENT].hello is None
    assert flows[other].name == ""


def test_a_port_that_is_used_again_is_another_flow(tmp_path):
    first, second = tls_hello("a.example"), tls_hello("b.example")
    packets = [(tcp(first, 1), 0), (tcp(second, 1), 61_000_000)]
    data = pcap(1, [(f, len(f), t) for f, t in packets], 1000, "<")
    (tmp_path / "c.pcap").write_bytes(data)
    names = [flow.name for flow in named_flows([str(tmp_path / "c.pcap")])]
    assert names == ["a.example", "b.example"]


def test_damaged_hellos_give_no_name_and_no_error():
    r = random.Random(0)
    stream = tls_hello()
    handshake = records_to_hello(stream)
    datagram = quic_datagrams()[0]
    for _ in range(300):
        for whole, take in ((handshake, read_hello), (datagram, QuicHello().add)):
            broken = bytearray(whole[: r.randint(0, len(whole))])
            for _ in range(r.randint(0, 4) if broken else 0):
                broken[r.randrange(len(broken))] = r.randrange(256)
            try:
                take(bytes(broken))
            except ValueError:
                assert take is not read_hello
    assert records_to_hello(b"GET / HTTP/1.1\r\n") is None


def test_names_that_are_no_host_names_are_left_out():
    bad = b"x\x1b[31m,=cmd"
    name = extension(0, struct.pack(">HBH", len(bad) + 3, 0, len(bad)) + bad)
    assert read_hello(hello_bytes([0x1301], [name])).server_name == ""


def test_hostile_captures_are_read_to_their_end(tmp_path, recwarn):
    for capture in fuzz_captures(standard_spec(), 5, 400):
        (tmp_path / capture.name).write_bytes(capture.data)
        list(named_flows([str(tmp_path / capture.name)]))


def run(*words):
    words = [str(word) for word in words]
    return CliRunner().invoke(command_line(words), words, catch_exceptions=False)


@pytest.mark.slow
def test_the_command_writes_labels_that_extract_joins(tmp_path):
    frames = [tcp(tls_hello(), 1), *(udp(data) for data in quic_datagrams())]
    flows_of(tmp_path, frames)
    (tmp_path / "classes.csv").write_text("pattern,label\n*.example.org,web\n")
    labels = tmp_path / "labels.csv"
    for extra, wanted in (
        ((), {"www.example.org": 1, "quic.example.org": 1}),
        (("--classes", tmp_path / "classes.csv", "--replace"), {"web": 2}),
    ):
        done = run("data", "label", tmp_path / "c.pcap", "--out", labels, "--json", *extra)
        report = json.loads(done.stdout)
        assert report["labels"] == wanted
        assert (report["hellos"], report["quic"]) == (2, 1)
    with labels.open(newline="") as stream:
        assert [row["alpn"] for row in csv.DictReader(stream)] == ["h2", "h3"]
    read = read_labels(labels, "table")
    assert read.of((CLIENT, 5000), (SERVER, 443), 6, 0, 0) == ("web", "matched")
    out = tmp_path / "f.csv"
    run("data", "extract", tmp_path / "c.pcap", "--labels", labels, "--out", out, "--sequence", 4)
    with out.open(newline="") as stream:
        rows = list(csv.DictReader(line for line in stream if not line.startswith("#")))
    assert [row["label"] for row in rows] == ["web", "web"]


@pytest.mark.parametrize(
    "text", ["", "pattern,label\n", "name,label\na,b\n", "pattern,label\na,\n"]
)
def test_tables_of_classes_are_checked(tmp_path, text):
    flows_of(tmp_path, [tcp(tls_hello(), 1)])
    (tmp_path / "classes.csv").write_text(text)
    words = ["data", "label", tmp_path / "c.pcap", "--out", tmp_path / "l.csv"]
    words = [str(word) for word in (*words, "--classes", tmp_path / "classes.csv")]
    done = CliRunner().invoke(command_line(words), words)
    assert isinstance(done.exception, DataError)
    assert not (tmp_path / "l.csv").exists()
