# SPDX-License-Identifier: Apache-2.0
"""Traffic on which meters must agree: valid, truncated, damaged and hostile packets, by seed."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from n3ic.meter.clock import FAR_NS
from n3ic.meter.packet import GRE, LINK_COOKED, LINK_ETHERNET, LINK_RAW, TCP, UDP
from n3ic.meter.pcapng import block_of
from n3ic.model.meter_spec import MeterSpec, Tunnel

Frame = tuple[bytes, int, int]
"""Captured bytes, length on the wire, time in units of the specification."""

_VLAN, _QINQ, _IPV4, _IPV6 = b"\x81\0\0\1", b"\x88\xa8\0\1\x81\0\0\1", b"\x08\x00", b"\x86\xdd"
_FRAGMENT = 44
_ETHERNET_HEADER = 14


@dataclass(frozen=True)
class FuzzCapture:
    """A generated capture.

    Attributes:
        name: name of the file.
        data: bytes of the file.
        link: link type.
        frames: the readable packets.
    """

    name: str
    data: bytes
    link: int
    frames: tuple[Frame, ...]


def fuzz_captures(spec: MeterSpec, seed: int, packets: int) -> Iterator[FuzzCapture]:
    """Yield captures in each format and byte order, of several link types; the last is cut short.

    Args:
        spec: specification; packets come close to its time-outs and decision times.
        seed: seed; the same one gives the same captures.
        packets: number of packets of each capture.
    """
    r = Random(seed)  # noqa: S311 - traffic, no secret
    drawn = partial(fuzz_frames, r, packets, *_steps(spec), spec.tunnels)
    frames = tuple(drawn())
    yield FuzzCapture(
        "ethernet.pcap", pcap(LINK_ETHERNET, frames, spec.tick_ns, "<"), LINK_ETHERNET, frames
    )
    raw = tuple(
        (frame[_ETHERNET_HEADER:], max(0, length - _ETHERNET_HEADER), time)
        for frame, length, time in drawn()
    )
    yield FuzzCapture("raw.pcapng", pcapng(LINK_RAW, raw, spec.tick_ns, ">"), LINK_RAW, raw)
    cooked = tuple((bytes(2) + frame, length + 2, time) for frame, length, time in drawn())
    cut = pcap(LINK_COOKED, cooked, spec.tick_ns, ">")[:-1]
    yield FuzzCapture("cut.pcap", cut, LINK_COOKED, cooked[:-1])


def _steps(spec: MeterSpec) -> tuple[list[int], list[int]]:
    """Times between packets (mostly short, some at limits, some back); errors of single stamps."""
    rule = spec.decision
    limits = [spec.idle_timeout, spec.active_timeout, rule.after]
    near = [step + d for limit in limits if limit for step in (limit, limit // 8) for d in (0, 1)]
    far = FAR_NS // spec.tick_ns
    steps = [0, 0, 1, 1, 2, 7, 60, -3] * (2 * len(near)) + near
    # Rare, because a believed step back ends all flows.
    steps = steps * 6 + [*(way * (far + d) for d in (0, 1, 60) for way in (1, -1)), 20 * far]
    wrong = [way * years * 8766 * far for years in (1, 30) for way in (1, -1)]
    return steps, wrong


def fuzz_frames(
    r: Random,
    count: int,
    steps: Sequence[int],
    wrong: Sequence[int] = (0,),
    tunnels: Sequence[Tunnel] = (),
) -> Iterator[Frame]:
    """Yield Ethernet frames, ``steps`` apart, of few hosts and ports, so that flows collide.

    One stamp in 32 is off by a number from ``wrong``. Packets lie in up to three ``tunnels``.
    """
    time = 0
    for _ in range(count):
        time = max(0, time + r.choice(steps))
        yield (
            *fuzz_frame(r, tunnels),
            max(0, time + (r.choice(wrong) if r.random() < 1 / 32 else 0)),
        )


def fuzz_frame(r: Random, tunnels: Sequence[Tunnel] = ()) -> tuple[bytes, int]:
    """Captured bytes and wire length of an Ethernet frame, which may be truncated or damaged."""
    protocol = r.choice([TCP, TCP, TCP, UDP, UDP, 1, 50])
    make, kind = (_ipv6, _IPV6) if r.random() < 0.3 else (_ipv4, _IPV4)
    tags = r.choice([b""] * 6 + [_VLAN, _QINQ, _VLAN * 3])
    link = bytes(12) + tags + (kind if r.random() < 0.85 else _wrapped(r, kind))
    packet = make(r, protocol, _transport(r, protocol))
    frame = link + packet
    for _ in range(r.choice([0, 1, 1, 1, 2, 3]) if tunnels else 0):
        protocol, header = _tunnel(r, r.choice(tunnels), kind, packet, frame)
        make, kind = (_ipv6, _IPV6) if r.random() < 0.3 else (_ipv4, _IPV4)
        packet = make(r, protocol, header)
        frame = bytes(12) + kind + packet
    length = r.choice([len(frame)] * 20 + [1, 2**32 - 3])  # a capture may lie about it
    if r.random() < 0.1:
        frame = frame[: r.randint(0, len(frame))]
    if frame and r.random() < 0.05:
        damaged = bytearray(frame)
        for _ in range(3):
            damaged[r.randrange(len(damaged))] = r.randrange(256)
        frame = bytes(damaged)
    return frame, length


def _wrapped(r: Random, kind: bytes) -> bytes:
    """Headers of PPPoE, MPLS, or both, for a packet of an EtherType."""
    labels = b"\0\0\0\x40" * r.choice([0, 1, 6, 7, 8]) + b"\0\0\1\x40"
    if r.random() < 0.4:
        return b"\x88\x47" + labels
    session = r.choice([b"\x11\0\0\1\0\0"] * 5 + [b"\x11\x09\0\1\0\0"])
    number = b"\x21" if kind == _IPV4 else b"\x57"
    inner = r.choice(
        [b"\0" + number, number, b"\xff\3\0" + number, b"\2\x81" + labels, b"\xc0\x21"]
    )
    return b"\x88\x64" + session + inner


def _tunnel(
    r: Random, tunnel: Tunnel, kind: bytes, packet: bytes, frame: bytes
) -> tuple[int, bytes]:
    """The number of the outer protocol, and the bytes after the outer IP header."""
    if tunnel == "gre":
        flags = r.choice([0, 0x2000, 0xB000, 0x8000, 0x1000, 0x4000, 0x2001])
        options = bytes(4 * (flags & 0xB000).bit_count())
        kind, inner = r.choice([(kind, packet), (b"\x65\x58", frame)])
        return GRE, struct.pack(">H", flags) + kind + options + inner
    if tunnel == "vxlan":
        return UDP, struct.pack(">4HB7x", 9, 4789, 0, 0, r.choice([8, 8, 0x88, 0])) + frame
    flags, message_type = (
        r.choice([0x30] * 4 + [0x32, 0x34, 0x37, 0x50, 0x20]),
        r.choice([255] * 8 + [1]),
    )
    extensions = b"\x85\1\0\0" * (r.randint(0, 5) if flags & 4 else 0)  # each names the next
    options = bytes(3) + extensions + b"\0" if flags & 7 else b""
    length = r.choice([len(options + packet)] * 6 + [0, 65535])
    return UDP, struct.pack(
        ">4HBBHI", 9, 2152, 0, 0, flags, message_type, length, 7
    ) + options + packet


def _transport(r: Random, protocol: int) -> bytes:
    data = bytes(r.choice([0, 0, 1, 20, 300]))
    ports = r.randint(1, 3), r.randint(1, 3)
    if protocol == TCP:
        offset = r.choice([0x50, 0x50, 0x80, 0x10])  # the last is shorter than a TCP header
        flags = r.choice([2, 18, 16, 16, 16, 24, 17, 20])
        window = r.randint(0, 65535)
        # Sequence numbers lie around the wrap, so that they repeat and skip; some are far away.
        sequence = (window % 1024 - 512 + (1 << 31) * (window % 61 == 0)) % (1 << 32)
        fields = (sequence, 0, offset, flags, window, 0, 0)
        return struct.pack(">HHIIBBHHH", *ports, *fields) + data
    if protocol == UDP:
        return struct.pack(">HHHH", *ports, 8 + len(data), 0) + data
    return data


def _ipv4(r: Random, protocol: int, transport: bytes) -> bytes:
    total = r.choice([20 + len(transport)] * 8 + [0, 10, 65535])  # segmentation, short, long
    fragment = r.choice([0] * 8 + [0x2000, 2, 0x4000])  # first, later, "don't fragment"
    parts = (r.randint(0, 2), fragment, r.randint(1, 255), protocol, 0)
    header = struct.pack(">BBHHHBBH", 0x45, 0, total, *parts)
    return header + b"".join(bytes([10, 0, 0, r.randint(1, 4)]) for _ in range(2)) + transport


def _ipv6(r: Random, protocol: int, transport: bytes) -> bytes:
    following = protocol
    if r.random() < 0.2:
        offset = r.choice([1, 8, 9, 0])
        transport = struct.pack(">BBHI", protocol, 0, offset, r.randint(0, 2)) + transport
        following = _FRAGMENT
    length = r.choice([len(transport)] * 8 + [0, 65535])
    following = r.choice([following] * 9 + [0])
    header = struct.pack(">IHBB", 6 << 28, length, following, r.randint(1, 255))
    return header + b"".join(bytes(15) + bytes([r.randint(1, 4)]) for _ in range(2)) + transport


# --- files -----------------------------------------------------------------------------------


def pcap(link: int, frames: Sequence[Frame], tick_ns: int, order: str) -> bytes:
    """A pcap file with nanosecond time stamps; ``order`` is the byte order, as in :mod:`struct`."""
    out = [struct.pack(order + "IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, link)]
    for frame, length, time in frames:
        seconds, nanoseconds = divmod(time * tick_ns, 10**9)
        out += [struct.pack(order + "IIII", seconds, nanoseconds, len(frame), length), frame]
    return b"".join(out)


def pcapng(link: int, frames: Sequence[Frame], tick_ns: int, order: str) -> bytes:
    """A pcapng file of one section and one interface with nanosecond time stamps."""
    block = partial(block_of, order=order)
    resolution = struct.pack(order + "HHB3xHH", 9, 1, 9, 0, 0)
    out = [
        block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)),
        block(1, struct.pack(order + "HHI", link, 0, 0) + resolution),
    ]
    for frame, length, time in frames:
        high, low = divmod(time * tick_ns, 1 << 32)
        out.append(block(6, struct.pack(order + "IIIII", 0, high, low, len(frame), length) + frame))
    return b"".join(out)
