# SPDX-License-Identifier: Apache-2.0
"""Link layers that captures alone have, check sequences, and links that no meter reads."""

import gzip
import random
import shutil
import struct
import subprocess
from dataclasses import replace

import pytest

import n3ic
from n3ic.errors import DataError, MissingDependencyError, N3icWarning
from n3ic.meter import packet
from n3ic.meter.capture import Capture, libpcap
from n3ic.meter.extract import extract
from n3ic.meter.packet import (
    CHECK_SHIFT,
    LINK_ETHERNET,
    LINK_FRAME_RELAY,
    LINK_PKTAP,
    LINK_RADIOTAP,
    LINK_RAW,
    LINK_SLIP,
    LINK_WIFI,
    LINKS,
    locate,
    parse,
)
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import Decision
from n3ic.targets.fuzz_traffic import pcap
from tests.support.command_line import n3ic as run
from tests.support.link_frames import (
    CHECK,
    FRAMES,
    IP,
    IP6,
    check_option,
    damaged,
    pcapng_of,
    pktap,
    radiotap,
    snap,
    wifi,
    with_check,
)
from tests.support.packets import TCP6, UDP4, ethernet, ipv4, read, udp

try:
    libpcap()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

CLOSED = "encrypted, aggregated or in pieces on the link"


def opened(frame, link):
    """Bytes in front of IP."""
    return frame.index(IP)


@pytest.mark.parametrize(("link", "frame", "beside"), FRAMES)
def test_what_lies_in_front_of_ip_is_skipped_and_a_check_sequence_does_not_count(
    link, frame, beside
):
    outcome, at = locate(link, frame, len(frame), 77)
    assert outcome == replace(UDP4, wire_length=beside + len(IP))
    assert at == opened(frame, link) + 20
    for captured in range(len(frame)):
        reason = read(frame, link=link, captured=captured, length=len(frame))
        if captured < opened(frame, link):
            # all of it but the version of IP, where a number before it does not say which it is
            assert reason in ("link header cut short", "IP header cut short", "not IP")
        else:
            assert reason != "link header cut short" or captured < opened(frame, link) + 4


@pytest.mark.parametrize(
    ("link", "head", "beside"),
    [
        (LINK_WIFI, wifi(snap(b"", b"\x86\xdd")), 32),
        (LINK_FRAME_RELAY, b"\x18\x41\3\x8e", 0),
        (LINK_FRAME_RELAY, b"\x18\x41\x86\xdd", 0),
        (LINK_SLIP, bytes(16), 0),
        (LINK_PKTAP, pktap(LINK_RAW, b"", 12), 0),
        (LINK_PKTAP, pktap(229, b"", 12), 0),
    ],
)
def test_ipv6_behind_them(link, head, beside):
    assert read(head + IP6, link=link) == replace(TCP6, wire_length=beside + len(IP6))


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (wifi(bytes(8) + snap(IP), flags=0x41), CLOSED),  # protected
        (wifi(snap(IP), quality=0x80), CLOSED),  # several packets
        (wifi(snap(IP), flags=5), CLOSED),  # a piece; more follow
        (wifi(snap(IP), sequence=0x11), CLOSED),  # a later piece
        (wifi(b"", kind=0x48), "not IP"),  # a frame without data
        (wifi(b"", kind=0xC8), "not IP"),
        (wifi(snap(IP), kind=0x80), "not IP"),  # a beacon
        (wifi(snap(IP), kind=0xB4), "not IP"),  # a request to send
        (wifi(snap(IP), kind=9), "not IP"),  # another version
        (wifi(b"\x42\x42\3" + bytes(40)), "not IP"),  # a bridge's
        (wifi(snap(IP, organisation=b"\0\0\x0c")), "not IP"),
        (wifi(snap(IP, b"\x88\x8e")), "not IP"),
    ],
)
def test_wifi_that_holds_no_packet_that_can_be_read(frame, reason):
    assert read(frame, link=LINK_WIFI) == reason
    assert read(radiotap(frame + CHECK, 0x10), link=LINK_RADIOTAP) == reason


@pytest.mark.parametrize(
    ("link", "frame"),
    [
        (LINK_PKTAP, pktap(LINK_ETHERNET, b"", 12)[:11]),
        (LINK_PKTAP, struct.pack("<III", 11, 1, 1) + ethernet(IP)),
        (LINK_PKTAP, struct.pack("<III", 2**32 - 1, 1, 1) + ethernet(IP)),
        (LINK_RADIOTAP, struct.pack("<BBHI", 0, 0, 7, 0) + wifi(snap(IP))),
        (LINK_RADIOTAP, struct.pack("<BBHI", 0, 0, 9999, 0) + wifi(snap(IP))),
        (LINK_RADIOTAP, radiotap(b"")[:7]),
    ],
)
def test_headers_that_say_more_than_there_is(link, frame):
    assert read(frame, link=link) == "link header cut short"


def test_a_link_in_pktap_that_is_not_read_is_not_guessed():
    for link in (LINK_PKTAP, packet.LINK_EACH, packet._PADDED, 147, 2**32 - 1):
        assert read(pktap(link, ethernet(IP)), link=LINK_PKTAP) == "link type not known"


def test_a_check_sequence_is_taken_off_by_the_link_types_upper_bits():
    frame = ethernet(IP)
    for check in (0, 2, 4, 15):
        link = LINK_ETHERNET | check << CHECK_SHIFT
        assert read(frame + bytes(check), link=link) == UDP4
        numbered = struct.pack(">I", link) + frame + bytes(check)
        assert read(numbered, link=packet.LINK_EACH) == UDP4
    short = ethernet(ipv4(b""))  # the check sequence is not taken for ports
    assert read(short + CHECK, link=LINK_ETHERNET | 4 << CHECK_SHIFT) == "ports cut short"
    # a header says 0 where the card was to cut a segment: then all that is there counts
    outcome = read(ethernet(ipv4(udp(), total=0)) + CHECK, link=LINK_ETHERNET | 4 << CHECK_SHIFT)
    assert (outcome.ip_length, outcome.payload_length) == (31, 3)


def test_links_are_those_that_are_read():
    for link in {*range(400), *LINKS}:
        known = read(bytes(400), link=link) != "link type not known"
        assert known == (link in LINKS), link


# --- the compiled meter ------------------------------------------------------------------------


@pytest.mark.first_case
@pytest.mark.parametrize("check", [0, 4, 15])
@pytest.mark.parametrize("link", sorted(LINKS))
def test_the_compiled_meter_reads_what_the_reference_reads(link, check, equal):
    r = random.Random(link + check)
    made = [f for known, f, _ in FRAMES if known == link] or [ethernet(IP), IP, bytes(16) + IP]
    spec = replace(standard_spec(packets=3), tunnels=("gre", "vxlan"), tick_ns=10**9)
    equal(spec, link | check << CHECK_SHIFT, [*damaged(r, made, 1500)])
    each = [(struct.pack(">I", link | check << CHECK_SHIFT) + f, n, t)
            for f, n, t in damaged(r, made, 300)]  # fmt: skip
    equal(spec, packet.LINK_EACH, each)


def test_the_compiled_meter_skips_every_header_of_a_link(equal):
    frames = [(struct.pack(">I", link) + f, len(f) + 4, i) for i, (link, f, _) in enumerate(FRAMES)]
    spec = replace(standard_spec(), decision=Decision(packets=1, repeat=True))
    assert len(equal(spec, packet.LINK_EACH, frames)) == len(FRAMES) + 1  # and the flow's end


@pytest.mark.parametrize("address", [b"\x19", b"\x18\x40\x40\x40"])
def test_an_address_of_frame_relay_has_two_to_four_bytes(address, equal):
    for control in (b"\3\xcc", b"\x08\0"):
        frame = address + control + IP
        assert read(frame, link=LINK_FRAME_RELAY) == "not IP"
        assert equal(standard_spec(), LINK_FRAME_RELAY, [(frame, len(frame), 0)]) == []


def test_the_compiled_meter_knows_no_other_links(equal):
    frames = [(ethernet(IP), 45, 0), (pktap(1, ethernet(IP)), 200, 1)]
    for link in {*range(300)} - LINKS:
        assert equal(standard_spec(), link, frames) == []


# --- a foreign reader --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.first_case
@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
@pytest.mark.parametrize("link", sorted({link for link, _, _ in FRAMES} - {LINK_SLIP}))
def test_tshark_finds_the_same_packets(link, tmp_path):
    """But for SLIP, of which it says nothing."""
    frames = [frame for known, frame, _ in FRAMES if known == link]
    made = [(frame, len(frame), i) for i, frame in enumerate(frames)]
    (tmp_path / "c.pcap").write_bytes(pcap(link, made, 10**9, "<"))
    fields = ("ip.src", "ip.dst", "udp.srcport", "udp.dstport", "ip.len", "ip.ttl")
    words = ["tshark", "-r", tmp_path / "c.pcap", "-o", "wlan.ignore_wep:No", "-T", "fields",
             *(word for field in fields for word in ("-e", field))]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    with Capture(tmp_path / "c.pcap") as capture:
        packets = [parse(capture.link, *frame) for frame in capture.packets()]
    assert [
        "\t".join(
            map(str, (".".join(map(str, p.source)), ".".join(map(str, p.destination)),
                      p.source_port, p.destination_port, p.ip_length, p.ttl))
        )
        for p in packets
    ] == done.stdout.splitlines()  # fmt: skip


# --- captures ----------------------------------------------------------------------------------


def packets_of(path):
    with Capture(path) as capture:
        return [parse(capture.link, *frame) for frame in capture.packets()]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("check", [0, 2, 4])
def test_a_check_sequence_that_a_pcap_header_names_does_not_count(order, check, tmp_path):
    frame = ethernet(IP) + CHECK[:check]
    (tmp_path / "c.pcap").write_bytes(with_check([(frame, len(frame), 77)], order, check))
    packets = packets_of(tmp_path / "c.pcap")
    assert [replace(p, time=77) for p in packets] == [UDP4]


def test_a_check_sequence_of_more_bytes_than_a_link_has_is_none(tmp_path):
    frame = ethernet(IP)
    (tmp_path / "c.pcap").write_bytes(with_check([(frame, len(frame), 77)], "<", 16))
    assert [replace(p, time=77) for p in packets_of(tmp_path / "c.pcap")] == [UDP4]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("value", "check"), [(0, 0), (4, 4), (32, 4), (16, 2), (2, 2), (255, 0)])
def test_a_check_sequence_that_a_pcapng_interface_names_does_not_count(
    order, value, check, tmp_path
):
    """In bits as the format says, or in bytes as some write it."""
    frame = ethernet(IP) + CHECK[:check]
    data = pcapng_of([(0, frame)] * 2, [(LINK_ETHERNET, check_option(value, order))], order)
    (tmp_path / "c.pcapng").write_bytes(data)
    assert [replace(p, time=77) for p in packets_of(tmp_path / "c.pcapng")] == [UDP4] * 2


def test_interfaces_with_and_without_a_check_sequence(tmp_path):
    interfaces = [(LINK_ETHERNET, b""), (LINK_ETHERNET, check_option(4)), (LINK_RAW, b"")]
    frames = [(0, ethernet(IP)), (1, ethernet(IP) + CHECK), (2, IP)]
    (tmp_path / "c.pcapng").write_bytes(pcapng_of(frames, interfaces))
    packets = packets_of(tmp_path / "c.pcapng")
    assert [p.wire_length for p in packets] == [45, 45, 31]


@pytest.mark.parametrize("form", ["pcap", "pcapng", "pcapng.gz"])
def test_a_capture_of_a_link_that_is_not_read_is_named(form, tmp_path):
    path, out = tmp_path / f"c.{form}", tmp_path / "out.csv"
    frames = [ethernet(IP)] * 3
    data = pcap(147, [(f, len(f), i) for i, f in enumerate(frames)], 10**9, "<")
    if form != "pcap":
        data = pcapng_of([(0, frame) for frame in frames], [(147, b"")])
    path.write_bytes(gzip.compress(data) if form == "pcapng.gz" else data)
    with pytest.warns(N3icWarning, match=r"3 of 3 packets are of link type 147 \(USER0\)"):
        frame = n3ic.extract(path)
    assert frame.num_rows == 0 if hasattr(frame, "num_rows") else len(frame) == 0
    errors = run("data", "extract", path, "--out", out, cwd=tmp_path, expect=1).stderr
    assert "147 (USER0)" in errors and "1 (EN10MB)" in errors and "127 (IEEE802_11_RADIO)" in errors
    assert not out.exists()
    with pytest.warns(N3icWarning, match=r"147 \(USER0\)"):
        two = extract([path, path], tmp_path / "two.csv", standard_spec())
    assert (two.links, two.aside) == ({"147 (USER0)": 6}, {"link type not known": 6})
    with pytest.raises(DataError, match=r"147 \(USER0\)"):
        extract([path, path], tmp_path / "three.csv", standard_spec(), must_read=True)
    assert not (tmp_path / "three.csv").exists()


def test_what_is_skipped_of_mixed_interfaces_is_counted_by_link_type(tmp_path):
    interfaces = [(LINK_ETHERNET, b""), (147, b""), (65000, b"")]
    frames = [(1, b"x" * 60), (0, ethernet(IP)), (2, b"y" * 60), (1, b"z" * 60)]
    path = tmp_path / "c.pcapng"
    path.write_bytes(pcapng_of(frames, interfaces))
    with pytest.warns(N3icWarning) as recorder:
        extraction = extract([path], tmp_path / "out.csv", standard_spec(), must_read=True)
    assert extraction.flows == 1 and extraction.links == {
        "147 (USER0)": 2,
        "65000 (no name is known)": 1,
    }
    assert len(recorder) == 2
