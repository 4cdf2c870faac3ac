# SPDX-License-Identifier: Apache-2.0
"""Tunnels that are opened: the packets in them are metered as if there were no tunnel."""

import json
import random
import shutil
import struct
import warnings
from dataclasses import replace
from ipaddress import ip_address

import pytest

from n3ic.data.table_meter import meter_of
from n3ic.errors import ModelError, N3icWarning
from n3ic.meter.capture import Capture
from n3ic.meter.extract import extract
from n3ic.meter.packet import (
    LINK_COOKED,
    LINK_COOKED_2,
    LINK_EACH,
    LINK_ETHERNET,
    LINK_RAW,
    Packet,
    parse,
)
from n3ic.meter.spec_file import write_spec
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import Decision, MeteredFeature, MeterSpec, Register
from n3ic.targets.fuzz_traffic import pcap
from tests.support.command_line import n3ic
from tests.support.generated import random_frames, random_spec

TUNNELS = ("gre", "vxlan", "gtp")
IPV4, IPV6, BRIDGED = 0x0800, 0x86DD, 0x6558
TCP, UDP, GRE = 6, 17, 47
ENDS4 = bytes([192, 0, 2, 1, 192, 0, 2, 2])
INNER4, INNER6 = bytes([10, 0, 0, 1, 10, 0, 0, 2]), bytes(range(32))

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)


def ipv4(payload, protocol, *, ends=ENDS4, fragment=0, total=None, options=b""):
    total = 20 + len(options) + len(payload) if total is None else total
    first = 0x45 + len(options) // 4
    fixed = struct.pack(">BBHHHBBH", first, 0, total, 7, fragment, 64, protocol, 0)
    return fixed + ends + options + payload


def ipv6(payload, protocol, *, ends=INNER6):
    return struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + ends + payload


def udp(port, data, length=None):
    return struct.pack(">4H", 0x1111, port, 8 + len(data) if length is None else length, 0) + data


def tcp(data=b"12345"):
    return struct.pack(">HHIIBBHHH", 1000, 80, 9, 9, 0x50, 0x18, 4096, 0, 0) + data


def ethernet(packet, kind=IPV4, tags=b""):
    return bytes(12) + tags + struct.pack(">H", kind) + packet


def gre(inner, kind=IPV4, flags=0):
    options = bytes(range(4 * (flags & 0xB000).bit_count()))
    return struct.pack(">HH", flags, kind) + options + inner


def vxlan(frame, flags=8):
    return udp(4789, struct.pack(">B3xI", flags, 77 << 8) + frame)


def gtp(inner, options=b"", *, flags=0x30, kind=255, length=None):
    length = len(options + inner) if length is None else length
    return udp(2152, struct.pack(">BBHI", flags, kind, length, 99) + options + inner)


def extended(*sizes, last=0):
    """GTP's optional fields and extension headers of so many times 4 bytes."""
    kinds = [0x85] * len(sizes) + [last]
    headers = (
        bytes([n]) + bytes(4 * n - 2) + bytes([k]) for n, k in zip(sizes, kinds[1:], strict=True)
    )
    return bytes(3) + bytes(kinds[:1]) + b"".join(headers)


def read(frame, tunnels=TUNNELS, *, link=LINK_ETHERNET, captured=None, length=None):
    return parse(link, frame[:captured], len(frame) if length is None else length, 5, tunnels)


TCP4, TCP6 = ipv4(tcp(), TCP, ends=INNER4), ipv6(tcp(), TCP)
PLAIN4, PLAIN6 = read(ethernet(TCP4)), read(ethernet(TCP6, IPV6))
OPENED = {
    "gre": (ipv4(gre(TCP4), GRE), PLAIN4),
    "gre with a checksum": (ipv4(gre(TCP4, flags=0x8000), GRE), PLAIN4),
    "gre with all": (ipv4(gre(TCP6, IPV6, 0xB000), GRE), PLAIN6),
    "gre with reserved bits that do not count": (ipv4(gre(TCP4, flags=0x03F8), GRE), PLAIN4),
    "nvgre": (ipv4(gre(ethernet(TCP4), BRIDGED, 0x2000), GRE), PLAIN4),
    "gre behind options": (ipv4(gre(TCP4), GRE, options=bytes(12)), PLAIN4),
    "vxlan": (ipv4(vxlan(ethernet(TCP4)), UDP), PLAIN4),
    "vxlan with reserved bits": (ipv4(vxlan(ethernet(TCP4), 0xFF), UDP), PLAIN4),
    "vxlan, tagged": (ipv4(vxlan(ethernet(TCP6, IPV6, b"\x81\0\0\2" * 2)), UDP), PLAIN6),
    "vxlan, no length of UDP": (ipv4(udp(4789, vxlan(ethernet(TCP4))[8:], 0), UDP), PLAIN4),
    "gtp": (ipv4(gtp(TCP4), UDP), PLAIN4),
    "gtp with a sequence number": (ipv4(gtp(TCP6, bytes(4), flags=0x32), UDP), PLAIN6),
    "gtp with a PDU's number": (ipv4(gtp(TCP4, b"\1\1\1\1", flags=0x31), UDP), PLAIN4),
    "gtp, extended": (ipv4(gtp(TCP4, extended(1), flags=0x34), UDP), PLAIN4),
    "gtp, extended by none": (ipv4(gtp(TCP4, extended(), flags=0x36), UDP), PLAIN4),
    "gtp, extended most": (ipv4(gtp(TCP4, extended(1, 2, 3, 4), flags=0x37), UDP), PLAIN4),
    "a tunnel in a tunnel": (ipv4(gtp(ipv4(gre(TCP4), GRE)), UDP), PLAIN4),
    "one of its kind in a tunnel": (ipv4(gre(ipv4(gre(TCP4), GRE)), GRE), PLAIN4),
}  # fmt: skip


@pytest.mark.parametrize("name", OPENED)
def test_the_inner_packet_is_what_it_would_be_without_the_tunnel(name):
    outer, plain = OPENED[name]
    frame = ethernet(outer)
    assert read(frame) == plain
    assert read(frame, ()) != plain
    assert read(frame).tunnel is None
    assert read(bytes(14) + b"\x08\0" + outer, link=LINK_COOKED) == replace(
        plain, wire_length=plain.wire_length - 14
    )
    assert read(outer, link=LINK_RAW) == replace(plain, wire_length=plain.wire_length - 14)


def test_outer_packets_of_ipv6_are_opened_behind_their_extensions():
    chain = bytes([GRE, 1]) + bytes(14)
    for payload, protocol in ((gre(TCP4), GRE), (chain + gre(TCP4), 60), (gtp(TCP4), UDP)):
        outer = ethernet(ipv6(payload, protocol), IPV6, b"\x81\0\0\2")
        assert read(outer) == replace(PLAIN4, wire_length=PLAIN4.wire_length + 4)


def test_only_the_tunnels_asked_for_are_opened():
    for tunnel, payload, protocol in (
        ("gre", gre(TCP4), GRE),
        ("vxlan", vxlan(ethernet(TCP4)), UDP),
        ("gtp", gtp(TCP4), UDP),
    ):
        frame = ethernet(ipv4(payload, protocol))
        assert read(frame, ()).tunnel == tunnel
        for asked in TUNNELS:
            assert read(frame, (asked,)) == (PLAIN4 if asked == tunnel else read(frame, ()))


CLOSED = {
    "gre of version 1": ipv4(gre(TCP4, flags=0x2001), GRE),
    "gre with routing": ipv4(gre(TCP4, flags=0x4000), GRE),
    "gre with reserved bits": ipv4(gre(TCP4, flags=0x0800), GRE),
    "gre of another protocol": ipv4(gre(TCP4, 0x880B), GRE),
    "mpls in gre": ipv4(gre(b"\0\0\1\x40" + TCP4, 0x8847), GRE),
    "arp in nvgre": ipv4(gre(ethernet(bytes(46), 0x0806), BRIDGED, 0x2000), GRE),
    "three tags in vxlan": ipv4(vxlan(ethernet(TCP4, tags=b"\x81\0\0\2" * 3)), UDP),
    "vxlan without an identifier": ipv4(vxlan(ethernet(TCP4), 0xF7), UDP),
    "vxlan's port as the source": ipv4(struct.pack(">4H", 4789, 9, 0, 0) + vxlan(b"")[8:], UDP),
    "gtp of version 2": ipv4(gtp(TCP4, flags=0x50), UDP),
    "gtp'": ipv4(gtp(TCP4, flags=0x20), UDP),
    "gtp's echo": ipv4(gtp(TCP4, kind=1), UDP),
    "gtp that is longer than its packet": ipv4(gtp(TCP4, length=len(TCP4) + 1), UDP),
    "gtp that is shorter than IP": ipv4(gtp(TCP4, length=19), UDP),
    "gtp, extended, of length 0": ipv4(gtp(TCP4, extended(1), flags=0x34, length=0), UDP),
    "an extension of length 0": ipv4(gtp(TCP4, extended(1)[:4] + bytes(4), flags=0x34), UDP),
    "five extensions": ipv4(gtp(TCP4, extended(1, 1, 1, 1, 1), flags=0x34), UDP),
    "extensions without end": ipv4(gtp(b"", bytes(3) + b"\x85\1\0\0" * 300, flags=0x34), UDP),
    "gtp of no IP": ipv4(gtp(b"\x50" + TCP4[1:]), UDP),
    "a damaged inner header": ipv4(gre(b"\x44" + TCP4[1:]), GRE),
    "an inner header behind the outer packet": ipv4(gre(TCP4), GRE, total=43),
    "a first fragment": ipv4(gre(TCP4), GRE, fragment=0x2000),
    "a later fragment": ipv4(gre(TCP4), GRE, fragment=1),
    "an inner packet too deep": ipv4(gtp(TCP4, extended(245), flags=0x34), UDP),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_what_cannot_be_opened_is_the_tunnels_own_packet(name):
    frame = ethernet(CLOSED[name])
    packet = read(frame)
    assert isinstance(packet, Packet)
    assert packet == read(frame, ())


def test_an_inner_packet_may_begin_at_byte_1024():
    frame = ethernet(ipv4(gtp(TCP4, extended(241), flags=0x34), UDP))
    assert frame.index(TCP4) == 1018
    assert read(frame) == PLAIN4
    cooked = b"\x08\0" + bytes(18) + frame[14:]
    assert cooked.index(TCP4) == 1024
    assert read(cooked, link=LINK_COOKED_2).source == PLAIN4.source
    session = b"\x88\x64\x11\0\0\1\0\x21"
    for header in (session + b"\x21", session + b"\0\x21", b"\x81\0\0\2" * 2 + b"\x08\0"):
        deeper = bytes(12) + header + frame[14:]  # from 1025 on
        assert deeper.index(TCP4) > 1024
        assert read(deeper) == read(deeper, ()) != "not IP"


def test_an_inner_packet_is_no_longer_than_what_holds_it():
    endless = ipv4(tcp(), TCP, ends=INNER4, total=65535)
    for outer in (ipv4(gre(endless), GRE), ipv4(gtp(endless), UDP)):
        assert read(ethernet(outer) + bytes(30)) == PLAIN4
    part = ethernet(ipv4(gtp(endless, length=len(endless) - 3), UDP))
    assert read(part).ip_length == PLAIN4.ip_length - 3
    padded = ethernet(ipv4(vxlan(ethernet(TCP4) + bytes(6)), UDP)) + bytes(9)
    assert read(padded) == replace(PLAIN4, wire_length=PLAIN4.wire_length + 6)


@pytest.mark.parametrize(
    ("inner", "kind", "header", "plain"), [(TCP4, IPV4, 20, PLAIN4), (TCP6, IPV6, 40, PLAIN6)]
)
def test_an_inner_header_lies_in_what_holds_it(inner, kind, header, plain):
    for length in range(len(inner) + 9):
        frame = ethernet(ipv4(gre(inner, kind), GRE, total=24 + length))
        packet = read(frame)
        if length < header:
            assert packet == read(frame, ())
        else:
            assert (packet.source, packet.ip_length) == (plain.source, min(length, len(inner)))


@pytest.mark.parametrize("wrap", ["gre", "gtp"])
def test_two_tunnels_are_opened_and_a_third_is_a_packet(wrap):
    packets = [TCP4]
    for _ in range(50):
        inner = gre(packets[-1]) if wrap == "gre" else gtp(packets[-1])
        packets.append(ipv4(inner, GRE if wrap == "gre" else UDP))
    assert read(ethernet(packets[2])) == PLAIN4
    for depth in (3, 4, 50):
        assert read(ethernet(packets[depth])) == read(ethernet(packets[depth - 2]), ())


@pytest.mark.parametrize("name", OPENED)
def test_a_cut_tunnel_is_opened_as_far_as_it_was_captured(name):
    outer, plain = OPENED[name]
    frame = ethernet(outer)
    transport = len(frame) - len(tcp())
    for captured in range(len(frame)):
        packet = read(frame, captured=captured, length=len(frame))
        if captured < 38 and isinstance(packet, str):
            continue
        assert isinstance(packet, Packet)
        assert (packet.source == plain.source) == (captured >= transport + 4)
        if captured >= transport + 16:
            assert packet == plain


def packet_fields():
    """A specification whose records tell the lengths, flags and window of every packet."""
    fields = ("wire_length", "ip_length", "payload_length", "ttl", "tcp_flags", "tcp_window")
    registers = tuple(Register(field, "last", field) for field in fields)
    features = (MeteredFeature("n", "ttl"),)
    return MeterSpec(registers, features, decision=Decision(1, repeat=True), tunnels=TUNNELS)


@needs_compiler
def test_the_compiled_meter_opens_the_same_frames(equal):
    packets = [*(outer for outer, _ in OPENED.values()), *CLOSED.values()]
    deep = TCP4
    for _ in range(4):  # the reference opens two of them
        deep = ipv4(gre(deep), GRE)
    packets += [deep[24:], deep]
    packets += [  # an inner header that does not fit, or just so
        ipv4(gre(inner, kind), GRE, total=24 + length)
        for inner, kind, header in ((TCP4, IPV4, 20), (TCP6, IPV6, 40))
        for length in (header - 1, header)
    ]
    frames = [ethernet(packet) for packet in packets]
    rows = equal(packet_fields(), LINK_ETHERNET, [(f, len(f), 0) for f in frames])
    opened = [row[0] in (INNER4[:4], INNER6[:16]) for row in rows if row[9] == "packets"]
    assert opened == len(OPENED) * [True] + (len(CLOSED) + 2) * [False] + 2 * [False, True]


@needs_compiler
def test_the_compiled_meter_opens_inner_packets_up_to_byte_1024(equal):
    def numbered(link, frame):
        return link.to_bytes(4, "big") + frame, len(frame) + 4, 0

    outer = ipv4(gtp(TCP4, extended(241), flags=0x34), UDP)
    cooked = b"\x08\0" + bytes(18) + outer
    session = bytes(12) + b"\x88\x64\x11\0\0\1\0\x21\x21" + outer
    assert (cooked.index(TCP4), session.index(TCP4)) == (1024, 1025)
    frames = [numbered(LINK_COOKED_2, cooked), numbered(LINK_ETHERNET, session)]
    rows = equal(packet_fields(), LINK_EACH, frames)
    assert [row[0] for row in rows if row[9] == "packets"] == [INNER4[:4], ENDS4[:4]]


def hostile_frames():
    """All frames of this file, cut at each byte, and with each byte of their headers changed."""
    frames = [ethernet(outer) for outer in CLOSED.values()]
    frames += [ethernet(outer) for outer, _ in OPENED.values()]
    packet = TCP4
    for _ in range(50):
        packet = ipv4(gre(packet), GRE)
    frames.append(ethernet(packet))
    out = [(frame, len(frame)) for frame in frames]
    for frame, length in list(out):
        out += [(frame[:n], length) for n in range(38, min(length, 100))]
        for at in range(14, min(length, 80)):
            out.append((frame[:at] + bytes([255 - frame[at]]) + frame[at + 1 :], length))
    out += [(frame, length) for frame in frames for length in (0, 1, 60, 1 << 31, (1 << 32) - 1)]
    return [(frame, length, time) for time, (frame, length) in enumerate(out)]


@needs_compiler
@pytest.mark.parametrize("tunnels", [TUNNELS, pytest.param(("gtp",), marks=pytest.mark.slow)])
def test_the_compiled_meter_opens_what_the_reference_opens(tunnels, equal):
    spec = replace(standard_spec(packets=1), tunnels=tunnels)
    rows = equal(spec, LINK_ETHERNET, hostile_frames())
    assert any(row[0] == INNER4[:4] for row in rows)


@needs_compiler
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_random_tunnels_meter_alike(seed, equal):
    r = random.Random(seed)
    tunnels = TUNNELS if seed else ("vxlan",)
    frames = random_frames(r, 500, tunnels=TUNNELS)
    equal(replace(random_spec(r), tunnels=tunnels), LINK_ETHERNET, frames)
    opened = sum(read(f, length=n) != read(f, (), length=n) for f, n, _ in frames)
    assert opened > 100


@needs_compiler
@pytest.mark.parametrize("tunnel", TUNNELS)
def test_flows_in_a_tunnel_are_those_outside(tunnel, reference):
    """Records of whole traffic, packet by packet put into a tunnel, are the same."""
    spec = replace(standard_spec(), tunnels=(tunnel,))
    r = random.Random(3)
    plain, wrapped = [], []
    for _ in range(300):
        data, protocol = bytes(r.randint(0, 90)), r.choice([TCP, UDP])
        body = tcp(data) if protocol == TCP else udp(53, data)
        ends = bytes([10, 0, 0, r.randint(1, 4), 10, 0, 1, 1])
        packet = ipv4(body, protocol, ends=ends, fragment=r.choice([0] * 9 + [0x2000, 2]))
        plain.append(ethernet(packet))
        if tunnel == "gre":
            outer = ipv4(gre(packet, flags=0x2000), GRE)
        else:
            outer = ipv4(gtp(packet) if tunnel == "gtp" else vxlan(ethernet(packet)), UDP)
        wrapped.append(ethernet(outer))
    want, got = (
        reference(spec, LINK_ETHERNET, [(f, len(f), 1000 * i) for i, f in enumerate(frames)])
        for frames in (plain, wrapped)
    )
    assert len(want[0]) > 4
    assert got == want


def test_a_specification_without_tunnels_is_written_as_before():
    spec = standard_spec()
    assert "tunnels" not in spec.to_dict()
    assert MeterSpec.from_json(spec.to_json(), "x") == spec
    opens = standard_spec(tunnels=("gre", "gtp"))
    assert MeterSpec.from_json(opens.to_json(), "x") == opens
    assert opens.digest != spec.digest
    assert str(opens) == f"{spec}, in gre, gtp tunnels"
    assert not opens.agrees(spec, spec.feature_names)
    for wrong in (("gtp", "gre"), ("gre", "gre"), ("teredo",)):
        with pytest.raises(ModelError, match="some of gre, vxlan, gtp in this order"):
            replace(spec, tunnels=wrong)


@pytest.mark.slow
@needs_compiler
def test_the_command_opens_tunnels_and_tells_of_closed_ones(tmp_path):
    inner = [ethernet(ipv4(gtp(TCP4), UDP)), ethernet(ipv4(gre(TCP6, IPV6), GRE))]
    frames = [(f, len(f), i) for i, f in enumerate([*inner * 3, ethernet(TCP4)])]
    (tmp_path / "c.pcap").write_bytes(pcap(LINK_ETHERNET, frames, 1000, "<"))
    capture, out = str(tmp_path / "c.pcap"), str(tmp_path / "f.parquet")
    extraction = extract([capture], tmp_path / "g.csv", standard_spec(tunnels=TUNNELS))
    assert (extraction.flows, extraction.tunnelled) == (2, 0)
    with pytest.warns(N3icWarning, match="tunnels that the meter leaves closed: 6 packets"):
        extraction = extract([capture], tmp_path / "h.csv", standard_spec())
    assert (extraction.flows, extraction.tunnelled) == (3, 6)
    for plain, warned in ((5, 1), (6, 0), (7, 0)):  # half of the packets are no word
        more = [(ethernet(TCP4), 60, 9 + i) for i in range(plain)]
        (tmp_path / "d.pcap").write_bytes(pcap(LINK_ETHERNET, [*frames[:6], *more], 1000, "<"))
        with warnings.catch_warnings(record=True) as records:
            warnings.simplefilter("always")
            extract([tmp_path / "d.pcap"], tmp_path / "i.csv", standard_spec())
        assert len(records) == warned
    words = "data", "extract", capture, "--out", out
    completed = n3ic(*words, "--tunnels", "gtp, gre", "--json", cwd=tmp_path)
    assert json.loads(completed.stdout)["flows"] == 2
    assert json.loads(completed.stdout)["tunnelled"] == 0
    assert meter_of(out).tunnels == ("gre", "gtp")
    completed = n3ic(*words, "--replace", "--tunnels", "gre,teredo", cwd=tmp_path, expect=2)
    assert "expected some of gre, vxlan, gtp, got 'teredo'" in completed.stderr
    write_spec(standard_spec(packets=4), tmp_path / "meter.json")
    n3ic(*words, "--replace", "--meter", "meter.json", "--tunnels", "gtp", cwd=tmp_path)
    assert meter_of(out) == standard_spec(packets=4, tunnels=("gtp",))


@pytest.mark.slow
@pytest.mark.first_case
@pytest.mark.parametrize(
    "name",
    [
        "dtls",
        "http_origin_different_than_host",
        "ja3_lots_of_cipher_suites_2_anon",
        "rtmp",
        "vxlan",
    ],
)
def test_inner_packets_of_real_captures_are_scapys(real_data, name):
    """Addresses, ports and length of the innermost packet."""
    scapy = pytest.importorskip("scapy.all")
    pytest.importorskip("scapy.contrib.gtp")
    opened = 0
    with Capture(real_data / "pcaps" / f"{name}.pcap") as capture:
        for data, length, time in capture.packets():
            packet = parse(capture.link, data, length, time, TUNNELS)
            layer, inner = scapy.Ether(data), None
            while layer:
                inner = layer if isinstance(layer, scapy.IP | scapy.IPv6) else inner
                layer = layer.payload
            size = inner.len if inner.version == 4 else inner.plen + 40
            assert (packet.source, packet.ip_length) == (ip_address(inner.src).packed, size)
            assert packet.source_port == getattr(inner.payload, "sport", 0)
            opened += packet != parse(capture.link, data, length, time)
    assert opened >= 4
