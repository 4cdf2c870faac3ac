# SPDX-License-Identifier: Apache-2.0
"""Frames of links that captures alone have, damaged frames, and captures with check sequences."""

import struct

from n3ic.meter.packet import (
    LINK_ETHERNET,
    LINK_FRAME_RELAY,
    LINK_PKTAP,
    LINK_RADIOTAP,
    LINK_SLIP,
    LINK_WIFI,
    TCP,
)
from n3ic.meter.pcapng import block_of
from n3ic.targets.fuzz_traffic import pcap
from tests.support.packets import ethernet, ipv4, ipv6, tcp, udp

CHECK = b"\xde\xad\xbe\xef"
SNAP = b"\xaa\xaa\3\0\0\0"


def wifi(data, *, kind=8, flags=1, four=False, quality=None, throughput=b"", sequence=0x10):
    """A data frame of 802.11: to a station, or with four addresses, with or without QoS."""
    flags |= 3 if four else 0
    head = bytes([kind | (0x80 if quality is not None else 0), flags]) + bytes(20)
    head += struct.pack("<H", sequence) + (bytes(6) if four else b"")
    return head + (b"" if quality is None else bytes([quality, 0])) + throughput + data


def snap(packet, kind=b"\x08\0", organisation=b"\0\0\0"):
    return b"\xaa\xaa\3" + organisation + kind + packet


def radiotap(frame, flags=None, *, stamped=False, words=1):
    """A header with the words of the bitmap, a time stamp and the flags that are given."""
    present = (1 if stamped else 0) | (2 if flags is not None else 0)
    bitmap = [present | (1 << 31 if words > 1 else 0), *[1 << 31] * (words - 2), *[0] * (words > 1)]
    fields = b"".join(struct.pack("<I", word) for word in bitmap)
    if stamped:
        fields += bytes(-(4 + len(fields)) % 8) + bytes(8)
    fields += b"" if flags is None else bytes([flags])
    return struct.pack("<BBH", 0, 0, 4 + len(fields)) + fields + frame


def pktap(link, frame, size=108):
    return struct.pack("<III", size, 1, link) + bytes(size - 12) + frame


IP, IP6 = ipv4(udp()), ipv6(tcp(), TCP)
# Link type, frame, and the bytes that its wire length has beside those of IP.
FRAMES = [
    (LINK_WIFI, wifi(snap(IP)), 32),
    (LINK_WIFI, wifi(snap(IP, organisation=b"\0\0\xf8")), 32),
    (LINK_WIFI, wifi(snap(IP), flags=2), 32),
    (LINK_WIFI, wifi(snap(IP), four=True), 38),
    (LINK_WIFI, wifi(snap(IP), quality=0), 34),
    (LINK_WIFI, wifi(snap(IP), four=True, quality=5), 40),
    (LINK_WIFI, wifi(snap(IP), flags=0x81, quality=0, throughput=bytes(4)), 38),
    (LINK_WIFI, wifi(snap(IP), flags=0x81), 32),  # an order bit without QoS adds nothing
    (LINK_WIFI, wifi(snap(IP, b"\x81\0\0\7\x08\0")), 36),
    (LINK_RADIOTAP, radiotap(wifi(snap(IP))), 32),
    (LINK_RADIOTAP, radiotap(wifi(snap(IP)), 0), 32),
    (LINK_RADIOTAP, radiotap(wifi(snap(IP)) + CHECK, 0x10), 32),
    (LINK_RADIOTAP, radiotap(wifi(snap(IP)) + CHECK, 0x10, stamped=True), 32),
    (LINK_RADIOTAP, radiotap(wifi(snap(IP)) + CHECK, 0x10, stamped=True, words=2), 32),
    (LINK_RADIOTAP, radiotap(wifi(snap(IP)) + CHECK, 0x10, words=3), 32),
    (LINK_RADIOTAP, radiotap(wifi(bytes(2) + snap(IP), quality=0) + CHECK, 0x30), 36),
    (  # of the highest byte of a bitmap, only the highest bit announces another bitmap
        LINK_RADIOTAP,
        struct.pack("<BBHIB", 0, 0, 9, 2 | 0x7F << 24, 0x10) + wifi(snap(IP)) + CHECK,
        32,
    ),
    (LINK_RADIOTAP, radiotap(wifi(snap(IP)), 0x20), 32),  # 24 bytes are whole words
    (LINK_PKTAP, pktap(LINK_ETHERNET, ethernet(IP)), 14),
    *((LINK_PKTAP, pktap(raw, IP), 0) for raw in (12, 14, 228)),
    (LINK_PKTAP, pktap(108, b"\0\0\0\2" + IP), 0),
    (LINK_PKTAP, pktap(0, b"\2\0\0\0" + IP), 0),
    (LINK_PKTAP, pktap(LINK_RADIOTAP, radiotap(wifi(snap(IP)) + CHECK, 0x10)), 32),
    (LINK_FRAME_RELAY, b"\x18\x41\3\xcc" + IP, 0),
    (LINK_FRAME_RELAY, b"\x18\x40\x41\3\xcc" + IP, 0),
    (LINK_FRAME_RELAY, b"\x18\x40\x40\x41\3\xcc" + IP, 0),
    (LINK_FRAME_RELAY, b"\x18\x41\3\0\x80\0\0\0\x08\0" + IP, 0),
    (LINK_FRAME_RELAY, b"\x18\x41\3\x80\0\0\0\x08\0" + IP, 0),
    (LINK_FRAME_RELAY, b"\x18\x41\x08\0" + IP, 0),  # Cisco's
    (LINK_SLIP, b"\1\x45" + bytes(14) + IP, 0),
]


def damaged(r, frames, count):
    """Frames of one link, whole, cut and with changed bytes, and lengths that may be wrong."""
    for time in range(count):
        frame = bytearray(r.choice(frames))
        if r.random() < 0.3:
            for _ in range(r.choice([1, 3])):
                frame[r.randrange(min(len(frame), 64))] = r.choice([0, 1, 2, 3, 255, 64, 128, 7])
        length = r.choice([len(frame)] * 9 + [1, 2**32 - 3])
        yield bytes(frame[: r.choice([len(frame)] * 3 + [r.randint(0, len(frame))])]), length, time


def with_check(frames, order, check, *, link=LINK_ETHERNET):
    """A pcap file whose header says that frames end with so many bytes of a check sequence."""
    upper = (check // 2) << 28 | 1 << 26
    data = bytearray(pcap(link, frames, 10**9, order))
    data[20:24] = struct.pack(order + "I", link | upper)
    return bytes(data)


def pcapng_of(frames, interfaces, order="<"):
    """A pcapng file; interfaces are link types and options, frames name theirs by number."""
    out = [block_of(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)]
    out += [block_of(1, struct.pack(order + "HHI", link, 0, 0) + options, order)
            for link, options in interfaces]  # fmt: skip
    for i, (interface, frame) in enumerate(frames):
        head = struct.pack(order + "IIIII", interface, 0, i, len(frame), len(frame))
        out.append(block_of(6, head + frame, order))
    return b"".join(out)


def check_option(value, order="<"):
    return struct.pack(order + "HHB3xHH", 13, 1, value, 0, 0)
