# SPDX-License-Identifier: Apache-2.0
"""Packets of generated conversations as Ethernet frames in a pcap file."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import IO

import numpy as np
from numpy.typing import NDArray

from n3ic.meter.packet import SYN, TCP, UDP

SNAP = 96  # bytes that are kept of a frame
WHOLE = 1 << 16  # more bytes than a frame has
_CHUNK = 1 << 17
_RECORD, _ETHERNET, _IP4, _IP6 = 16, 14, 20, 40
_SHORTEST = 60  # least bytes of an inbound frame; a host's own frames are captured before padding
_LOCAL_4, _REMOTE_4 = int(IPv4Address("198.18.0.1")), int(IPv4Address("198.19.0.0"))
_LOCAL_6, _REMOTE_6 = int(IPv6Address("2001:db8:0:1::1")), int(IPv6Address("2001:db8:1::"))

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Conversations:
    """Endpoints of conversations; arrays of shape ``(flows,)``.

    Attributes:
        udp: whether it is UDP; TCP otherwise.
        version_6: whether it is IPv6.
        local: number of the local host.
        remote: number of the remote host, below 65,536.
        local_port: port of the local host.
        remote_port: port of the remote host.
        inbound: whether the remote host opened it.
        hops: routers between the tap and the remote host.
        window: TCP window of both ends.
        first_sequence: initial sequence numbers, shape ``(2, flows)``: remote, local.
    """

    udp: NDArray[np.bool_]
    version_6: NDArray[np.bool_]
    local: Ints
    remote: Ints
    local_port: Ints
    remote_port: Ints
    inbound: NDArray[np.bool_]
    hops: Ints
    window: Ints
    first_sequence: Ints


@dataclass(frozen=True, eq=False)
class Packets:
    """Packets in order of time; arrays of shape ``(packets,)``.

    Attributes:
        flow: index of the conversation.
        time: microseconds since 1970.
        outbound: whether the local host sends it.
        payload: number of bytes after the TCP or UDP header; all of them are 0.
        flags: TCP flags.
        sequence: TCP sequence number.
        acknowledged: TCP acknowledgement number.
    """

    flow: Ints
    time: Ints
    outbound: NDArray[np.bool_]
    payload: Ints
    flags: Ints
    sequence: Ints
    acknowledged: Ints


def host(flows: Conversations, i: int, *, local: bool) -> str:
    """Address of one end of a conversation, as text."""
    number = int((flows.local if local else flows.remote)[i])
    if flows.version_6[i]:
        return str(IPv6Address((_LOCAL_6 if local else _REMOTE_6) + number))
    return str(IPv4Address((_LOCAL_4 if local else _REMOTE_4) + number))


def write_pcap(stream: IO[bytes], flows: Conversations, packets: Packets, snap: int = SNAP) -> None:
    """Write packets as a pcap file in microseconds, with the first ``snap`` bytes of each frame."""
    stream.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, snap, 1))
    chunk = _CHUNK if snap <= SNAP else max(1, _CHUNK // 16)  # whole frames are that much longer
    for start in range(0, len(packets.time), chunk):
        part = slice(start, start + chunk)
        chosen = Packets(*(column[part] for column in vars(packets).values()))
        stream.write(_records(flows, chosen, start, snap))


def _records(flows: Conversations, p: Packets, number: int, snap: int) -> bytes:
    """Records of packets, one after the other."""
    udp, six, syn = flows.udp[p.flow], flows.version_6[p.flow], (p.flags & SYN) != 0
    transport = np.where(udp, 8, np.where(syn, 24, 20))  # a SYN has the option of the MSS
    length = _ETHERNET + np.where(six, _IP6, _IP4) + transport + p.payload
    length = np.where(p.outbound, length, np.maximum(length, _SHORTEST))
    captured = np.minimum(length, snap)
    width = _RECORD + max(SNAP, int(captured.max()))
    rows = np.zeros((len(p.time), width), dtype=np.uint8)
    header = np.stack([p.time // 10**6, p.time % 10**6, captured, length], axis=1)
    rows[:, :_RECORD] = header.astype("<u4").view(np.uint8)
    frames = rows[:, _RECORD:]
    _ethernet(frames, p, six)
    for version_6 in (False, True):
        of_version = np.flatnonzero(six == version_6)
        at = _ETHERNET + (_IP6 if version_6 else _IP4)
        for is_udp in (False, True):
            i = of_version[udp[of_version] == is_udp]
            frame = frames[i]
            size = transport[i] + p.payload[i]
            pseudo = _ip(frame, flows, p, i, size, number, version_6)
            (_udp if is_udp else _tcp)(frame, at, flows, p, i)
            pseudo += size + (UDP if is_udp else TCP)
            _put(frame, at + (6 if is_udp else 16), _checksum(frame[:, at : at + 24], pseudo), 2)
            frames[i] = frame
    captured_bytes = np.arange(width) < (_RECORD + captured)[:, None]
    return rows[captured_bytes].tobytes()


def _ethernet(frames: Bytes, p: Packets, six: NDArray[np.bool_]) -> None:
    frames[:, 0] = frames[:, 6] = 2  # locally administered
    frames[:, 5] = np.where(p.outbound, 254, 1)
    frames[:, 11] = np.where(p.outbound, 1, 254)
    _put(frames, 12, np.where(six, 0x86DD, 0x0800), 2)


def _ip(
    frame: Bytes,
    flows: Conversations,
    p: Packets,
    i: Ints,
    size: Ints,
    number: int,
    version_6: bool,
) -> Ints:
    """Write the IP header; return the sum of its addresses for the pseudo header."""
    flow, outbound = p.flow[i], p.outbound[i]
    protocol = np.where(flows.udp[flow], UDP, TCP)
    ttl = 64 - np.where(outbound, 0, flows.hops[flow])
    local, remote = flows.local[flow], flows.remote[flow]
    at = _ETHERNET
    if version_6:
        frame[:, at] = 0x60
        _put(frame, at + 4, size, 2)
        frame[:, at + 6], frame[:, at + 7] = protocol, ttl
        bases = [np.frombuffer(b.to_bytes(16, "big"), np.uint8) for b in (_LOCAL_6, _REMOTE_6)]
        for where, is_local in ((at + 8, outbound), (at + 24, ~outbound)):
            frame[:, where : where + 16] = np.where(is_local[:, None], *bases)
            _put(frame, where + 14, np.where(is_local, 1 + local, remote), 2)
        return _words(frame[:, at + 8 : at + 40])
    frame[:, at] = 0x45
    _put(frame, at + 2, _IP4 + size, 2)
    _put(frame, at + 4, (number + i) & 0xFFFF, 2)
    _put(frame, at + 6, np.full(len(i), 0x4000), 2)  # not to be fragmented
    frame[:, at + 8], frame[:, at + 9] = ttl, protocol
    for where, is_local in ((at + 12, outbound), (at + 16, ~outbound)):
        _put(frame, where, np.where(is_local, _LOCAL_4 + local, _REMOTE_4 + remote), 4)
    _put(frame, at + 10, _checksum(frame[:, at : at + _IP4], np.zeros(len(i), np.int64)), 2)
    return _words(frame[:, at + 12 : at + 20])


def _ports(frame: Bytes, at: int, flows: Conversations, p: Packets, i: Ints) -> None:
    flow, outbound = p.flow[i], p.outbound[i]
    local, remote = flows.local_port[flow], flows.remote_port[flow]
    _put(frame, at, np.where(outbound, local, remote), 2)
    _put(frame, at + 2, np.where(outbound, remote, local), 2)


def _udp(frame: Bytes, at: int, flows: Conversations, p: Packets, i: Ints) -> None:
    _ports(frame, at, flows, p, i)
    _put(frame, at + 4, 8 + p.payload[i], 2)


def _tcp(frame: Bytes, at: int, flows: Conversations, p: Packets, i: Ints) -> None:
    _ports(frame, at, flows, p, i)
    syn = (p.flags[i] & SYN) != 0
    _put(frame, at + 4, p.sequence[i], 4)
    _put(frame, at + 8, p.acknowledged[i], 4)
    frame[:, at + 12] = np.where(syn, 0x60, 0x50)
    frame[:, at + 13] = p.flags[i]
    _put(frame, at + 14, flows.window[p.flow[i]], 2)
    frame[syn, at + 20 : at + 24] = (2, 4, 1460 >> 8, 1460 & 255)


def _put(frame: Bytes, at: int, values: Ints, size: int) -> None:
    """Write numbers of two or four bytes, the most significant first."""
    frame[:, at : at + size] = values.astype(f">u{size}")[:, None].view(np.uint8)


def _words(data: Bytes) -> Ints:
    """Sums of the 16-bit words of each row."""
    total: Ints = np.ascontiguousarray(data).view(">u2").sum(axis=1, dtype=np.int64)
    return total


def _checksum(data: Bytes, more: Ints) -> Ints:
    """The Internet checksum (RFC 1071) of each row, with ``more`` added to its sum."""
    total = _words(data) + more
    for _ in range(2):
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
