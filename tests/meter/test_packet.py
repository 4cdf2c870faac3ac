# SPDX-License-Identifier: Apache-2.0
"""Frames read byte for byte: each field from its place, and from how many captured bytes on."""

import struct
from dataclasses import replace

import pytest

from n3ic.meter import packet
from n3ic.meter.packet import (
    LINK_CISCO,
    LINK_COOKED,
    LINK_COOKED_2,
    LINK_ETHERNET,
    LINK_HDLC,
    LINK_NULL,
    LINK_PPP,
    LINK_PPPOE,
    LINK_RAW,
    TCP,
    UDP,
    Packet,
    locate,
    parse,
)
from tests.support.packets import (
    DESTINATION4,
    FRAGMENT,
    IPV4,
    IPV6,
    SOURCE4,
    TCP6,
    UDP4,
    ethernet,
    ipv4,
    ipv6,
    read,
    tcp,
    udp,
)


def test_each_field_is_read_from_its_place():
    assert read(ethernet(ipv4(udp()))) == UDP4
    assert read(ethernet(ipv6(tcp(), TCP), IPV6)) == TCP6
    assert read(ethernet(ipv4(tcp(), TCP, options=bytes(8)))) == replace(
        TCP6, source=SOURCE4, destination=DESTINATION4, ttl=61, wire_length=71, ip_length=57
    )


@pytest.mark.parametrize(
    ("link", "header", "on_the_wire"),
    [
        (LINK_RAW, b"", 0),
        (LINK_NULL, b"\2\0\0\0", 0),
        (LINK_COOKED, bytes(14) + b"\x08\0", 0),
        (LINK_COOKED_2, b"\x08\0" + bytes(18), 0),
        (LINK_ETHERNET, bytes(12) + b"\x08\0", 14),
        (LINK_ETHERNET, bytes(12) + b"\x81\0\0\1\x08\0", 18),
        (LINK_ETHERNET, bytes(12) + b"\x88\xa8\0\2\x81\0\0\1\x08\0", 22),
        (LINK_ETHERNET, bytes(12) + b"\x91\0\0\2\x81\0\0\1\x08\0", 22),
        (LINK_COOKED, bytes(14) + b"\x81\0\0\1\x08\0", 4),
        (LINK_CISCO, b"\x0f\0\x08\0", 0),
        (LINK_PPP, b"\0\x21", 0),
        (LINK_HDLC, b"\xff\3\0\x21", 0),
        (LINK_PPP, b"\xff\3\x21", 0),
        (LINK_PPPOE, b"\x11\0\0\1\0\x21\0\x21", 0),
        (LINK_ETHERNET, bytes(12) + b"\x88\x64\x11\0\0\1\0\x21\0\x21", 22),
        (LINK_ETHERNET, bytes(12) + b"\x81\0\0\1\x88\x64\x11\0\0\1\0\x21\x21", 25),
        (LINK_ETHERNET, bytes(12) + b"\x88\x47\0\0\0\x40\0\0\1\x40", 22),
        (LINK_ETHERNET, bytes(12) + b"\x88\x48" + b"\0\0\0\x40" * 7 + b"\0\0\1\x40", 46),
        (LINK_PPP, b"\2\x81\0\0\1\x40", 4),
        (LINK_COOKED_2, b"\x88\x47" + bytes(18) + b"\0\0\1\x40", 4),
    ],
)
def test_a_link_header_is_skipped_and_what_no_wire_has_is_not_counted(link, header, on_the_wire):
    inner = ipv4(udp())
    outcome = read(header + inner, link=link)
    assert outcome == replace(UDP4, wire_length=on_the_wire + len(inner))
    for captured in range(len(header) + 24):
        reason = read(header + inner, link=link, captured=captured, length=99)
        if captured >= len(header) + 20:
            assert reason == "ports cut short"
        elif link == LINK_RAW:
            assert reason == ("IP header cut short" if captured else "not IP")
        elif header[-4:] == b"\0\0\1\x40" and captured == len(header):
            assert reason == "not IP"  # the version would tell
        else:
            session = header.find(b"\x88\x64")
            ppp = {LINK_PPP: 0, LINK_HDLC: 0, LINK_PPPOE: 6}.get(link, session + 8)
            least = 5 if link == LINK_NULL else len(header)
            if link in (LINK_PPP, LINK_HDLC, LINK_PPPOE) or session >= 0:
                least = max(least, ppp + 4)  # as many as the longest header of PPP has
            assert reason == f"{'link' if captured < least else 'IP'} header cut short"


@pytest.mark.parametrize(("link", "start"), [(LINK_RAW, b""), (LINK_NULL, b"\2\0\0\0")])
def test_without_an_ethertype_the_version_tells(link, start):
    assert isinstance(read(start + ipv6(udp()), link=link), Packet)
    for version in (0, 5, 7, 15):
        assert read(start + bytes([version << 4]) + bytes(60), link=link) == "not IP"


def test_of_ppp_and_mpls_only_ip_is_opened():
    ip = ipv4(udp())
    session = b"\x88\x64\x11\0\0\1\0\0"
    for header in (
        b"\x88\x63" + session[2:] + b"\0\x21",  # discovery
        session[:3] + b"\xa7" + session[4:] + b"\0\x21",  # a code
        session[:2] + b"\x21" + session[3:] + b"\0\x21",  # another version
        session + b"\xc0\x21",  # the link's own control
        b"\x88\x47" + b"\0\0\0\x40" * 8 + b"\0\0\1\x40",  # nine labels
    ):
        assert read(bytes(12) + header + ip) == "not IP"
    assert read(bytes(12) + b"\x88\x47\0\0\1\x40" + bytes(60)) == "not IP"  # a pseudowire
    for captured in range(9):
        reason = read(b"\x11\xa7" + bytes(9), link=LINK_PPPOE, captured=captured)
        assert reason == ("link header cut short" if captured < 6 else "not IP")
    assert read(bytes(12) + b"\x88\x47\0\0\1\x40" + ipv6(tcp(), TCP)) == replace(
        TCP6, wire_length=87
    )
    assert read(bytes(12) + session + b"\x57" + ipv6(tcp(), TCP)) == replace(TCP6, wire_length=90)


def test_of_all_ethertypes_those_of_ip_and_of_what_may_hold_it_are_opened():
    """Behind each of them stands what would be IP behind PPP, with and without its address."""
    ip = ipv4(udp())
    payloads = {
        IPV4: ip, IPV6: ipv6(udp()), 0x8847: b"\0\0\1\x40" + ip, 0x8848: b"\0\0\1\x40" + ip,
        0x8864: b"\x11\0\0\1\0\x21\x21" + ip,
    }  # fmt: skip
    for kind, data in payloads.items():
        assert isinstance(read(ethernet(data, kind)), Packet), hex(kind)
    tags = (0x8100, 0x88A8, 0x9100)
    for kind in tags:
        assert isinstance(read(ethernet(b"\0\7\x08\0" + ip, kind)), Packet)
    frames = bytearray(ethernet(b"\x21" + ip)), bytearray(ethernet(ip))
    for kind in {*range(1 << 16)} - {*payloads, *tags}:
        for frame in frames:
            frame[12:14] = kind.to_bytes(2, "big")
            assert parse(LINK_ETHERNET, frame, len(frame), 77) == "not IP"


def test_of_all_numbers_of_ppp_those_of_ip_and_of_mpls_are_opened():
    ip, six, label = ipv4(udp()), ipv6(udp()), b"\0\0\1\x40"
    payloads = {0x21: ip, 0x57: six, 0x281: label + ip, 0x283: label + six}
    for kind in range(1 << 16):
        if not kind & 0x100:  # else its first byte is the whole number
            outcome = read(kind.to_bytes(2, "big") + payloads.get(kind, ip), link=LINK_PPP)
            assert (outcome == "not IP") == (kind not in payloads), hex(kind)


def test_what_is_no_ip_is_put_aside():
    assert read(ethernet(bytes(60), 0x0806)) == "not IP"
    assert read(bytes(60), link=999) == "link type not known"
    assert read(ethernet(ipv4(udp()), tags=b"\x81\0\0\1" * 2)) == replace(UDP4, wire_length=53)
    assert read(ethernet(ipv4(udp()), tags=b"\x81\0\0\1" * 3)) == "not IP"
    assert read(bytes(19), link=LINK_COOKED_2) == "link header cut short"


@pytest.mark.parametrize(
    "change",
    [*({"first": n} for n in (0x55, 0x50, 0x65, 0x44, 0x40, 0x3F)), {"total": 19}, {"total": 1}],
)
def test_a_damaged_ipv4_header(change):
    assert read(ethernet(ipv4(udp(), **change))) == "IP header damaged"


def test_the_edges_of_an_ipv4_header():
    assert read(ethernet(ipv4(b"", 1, total=20))).payload_length == 0
    longest = read(ethernet(ipv4(udp(), options=bytes(40))))
    assert (longest.ip_length, longest.payload_length, longest.source_port) == (71, 3, 0x1234)
    assert read(ethernet(ipv4(udp(), options=bytes(8), total=27))) == "IP header damaged"
    assert read(ethernet(bytes([0x50]) + bytes(39), IPV6)) == "IP header damaged"


@pytest.mark.parametrize(
    ("field", "identification", "later"),
    [
        (0x0000, None, False),
        (0x4000, None, False),  # may not be fragmented
        (0x8000, None, False),  # reserved
        (0x2000, 0xABCD, False),  # the first of several
        (0x0001, 0xABCD, True),
        (0x1000, 0xABCD, True),
        (0x3FFF, 0xABCD, True),
    ],
)
def test_fragments_of_ipv4(field, identification, later):
    outcome = read(ethernet(ipv4(udp(), fragment=field)))
    assert (outcome.identification, outcome.later) == (identification, later)
    ports = (0, 0) if later else (0x1234, 0x5678)
    assert (outcome.source_port, outcome.destination_port) == ports
    assert outcome.payload_length == (11 if later else 3)


@pytest.mark.parametrize(
    ("field", "identification", "later"),
    [
        (0x0000, None, False),  # whole all the same
        (0x0006, None, False),  # reserved
        (0x0001, 0x01020304, False),
        (0x0008, 0x01020304, True),
        (0xFFF9, 0x01020304, True),
    ],
)
def test_fragments_of_ipv6(field, identification, later):
    extension = bytes([UDP, 99]) + struct.pack(">HI", field, 0x01020304)
    outcome = read(ethernet(ipv6(extension + udp(), FRAGMENT), IPV6))
    assert (outcome.identification, outcome.later) == (identification, later)
    assert outcome.protocol == UDP
    assert outcome.payload_length == (11 if later else 3)
    assert outcome.source_port == (0 if later else 0x1234)


def extensions(*kinds_and_sizes, last=UDP):
    """Extension headers that each name the next, of so many times 8 bytes."""
    following = [kind for kind, _ in kinds_and_sizes[1:]] + [last]
    return b"".join(
        bytes([after, size - 1]) + bytes(8 * size - 2)
        for (_, size), after in zip(kinds_and_sizes, following, strict=True)
    )


def test_extension_headers_of_ipv6_are_skipped_by_their_size():
    chain = ((0, 1), (43, 2), (60, 3))
    frame = ethernet(ipv6(extensions(*chain) + udp(), 0), IPV6)
    outcome = read(frame)
    assert (outcome.protocol, outcome.source_port, outcome.payload_length) == (UDP, 0x1234, 3)
    assert outcome.ip_length == 40 + 48 + 11
    for captured in range(54, 54 + 48 + 4):  # the last of them begins at byte 78
        expected = "IP header cut short" if captured < 78 + 8 else "ports cut short"
        assert read(frame, captured=captured) == expected
    headers = ((60, 1),) * 8
    assert read(ethernet(ipv6(extensions(*headers) + udp(), 60), IPV6)).source_port == 0x1234
    nine = ((60, 1),) * 9
    unopened = read(ethernet(ipv6(extensions(*nine) + udp(), 60), IPV6))
    assert (unopened.protocol, unopened.source_port) == (60, 0)
    other = read(ethernet(ipv6(udp(), 51), IPV6))  # an authentication header is not opened
    assert (other.protocol, other.source_port, other.payload_length) == (51, 0, 11)


def test_an_ipv6_header_has_forty_bytes():
    for captured in range(14, 58):
        expected = "IP header cut short" if captured < 54 else "ports cut short"
        assert read(ethernet(ipv6(udp()), IPV6), captured=captured) == expected


def test_an_ipv6_header_that_says_0():
    assert read(ethernet(ipv6(udp(), length=0), IPV6)).ip_length == 40
    jumbo = ethernet(ipv6(extensions((0, 1)) + udp(), 0, length=0), IPV6)
    assert read(jumbo).ip_length == 59
    assert read(jumbo).payload_length == 3


def test_tcp_is_read_from_sixteen_bytes_on():
    frame = ethernet(ipv4(tcp(), TCP))
    at = 14 + 20
    for captured in range(at, len(frame) + 1):
        outcome = read(frame, captured=captured, length=len(frame))
        if captured < at + 4:
            assert outcome == "ports cut short"
            continue
        whole = captured >= at + 16
        assert (outcome.tcp_flags, outcome.tcp_window) == ((0x1B, 0x0203) if whole else (0, 0))
        assert outcome.payload_length == (5 if whole else 9)
    assert read(ethernet(ipv4(tcp(words=5), TCP))).payload_length == 5
    short = bytearray(ethernet(ipv4(tcp(words=5), TCP)))
    short[at + 12] = 4 << 4  # a header cannot be shorter than 20 bytes
    assert read(bytes(short)).payload_length == 5


def test_other_protocols_have_no_ports():
    outcome = read(ethernet(ipv4(b"\1\2\3\4\5", 1)))
    assert outcome == replace(
        UDP4, protocol=1, source_port=0, destination_port=0, wire_length=39, ip_length=25,
        payload_length=5,
    )  # fmt: skip


def test_lengths_are_not_negative():
    for kind, ip, header in ((IPV4, ipv4(udp()), 20), (IPV6, ipv6(udp()), 40)):
        outcome = read(bytes(14) + struct.pack(">H", kind) + ip, link=LINK_COOKED, length=3)
        assert outcome.wire_length == 0
        assert (outcome.ip_length, outcome.payload_length) == (header, 0)


def test_the_transport_header_is_found_in_the_frame():
    plain, numbered = ethernet(ipv4(udp())), b"\0\0\0\1" + ethernet(ipv4(udp()))
    assert locate(LINK_ETHERNET, plain, len(plain), 77) == (UDP4, 34)
    assert locate(packet.LINK_EACH, numbered, len(numbered), 77) == (UDP4, 38)
    assert locate(LINK_RAW, b"", 0, 77)[1] == 0


def test_a_frame_behind_the_number_of_its_link_is_read_from_four_bytes_on():
    numbered = b"\0\0\0\1" + ethernet(ipv4(udp()))
    for captured in range(len(numbered)):
        want = "link type not known"
        if captured >= 4:
            want = parse(LINK_ETHERNET, numbered[4:captured], 45, 77)
        assert parse(packet.LINK_EACH, numbered[:captured], 49, 77) == want, captured
    for length in range(60):
        want = parse(LINK_ETHERNET, numbered[4:], max(0, length - 4), 77)
        assert parse(packet.LINK_EACH, numbered, length, 77) == want


def test_numbers_of_protocols_flags_and_links_are_those_of_the_registries():
    """IANA's protocol numbers, RFC 9293's flags, the link types of pcap."""
    assert (packet.TCP, packet.UDP, packet.GRE) == (6, 17, 47)
    assert (packet.FIN, packet.SYN, packet.RST, packet.PUSH, packet.ACK) == (1, 2, 4, 8, 16)
    assert (LINK_PPP, LINK_HDLC, LINK_PPPOE, LINK_CISCO) == (9, 50, 51, 104)
    assert packet.LINK_EACH == 2**30  # as in C; pcap's have 16 bits, in a capture's head 28
    assert (LINK_NULL, LINK_ETHERNET, LINK_RAW, LINK_COOKED, LINK_COOKED_2) == (0, 1, 101, 113, 276)
