# SPDX-License-Identifier: Apache-2.0
"""Builds the frames that hosts send to a card, and parses the card's frames.

It is the reference for the Verilog stack, so it shares no code with that stack or the host's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

ARP, IPV4 = 0x0806, 0x0800
ICMP, TCP, UDP = 1, 6, 17
LEAST_FRAME = 60


@dataclass(frozen=True)
class SocketAddress:
    """One endpoint of a connection: addresses and a port."""

    mac: bytes
    ip: bytes
    port: int = 0


def checksum(data: bytes) -> int:
    """Compute the Internet checksum (RFC 1071); it is 0 over bytes with their own checksum."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def pseudo(source: bytes, target: bytes, protocol: int, length: int) -> bytes:
    """Build the pseudo header that the checksums of UDP and TCP cover."""
    return source + target + struct.pack(">BBH", 0, protocol, length)


def ipv4(
    source: SocketAddress,
    target: SocketAddress,
    protocol: int,
    payload: bytes,
    *,
    flags: int = 0x4000,
    ttl: int = 64,
) -> bytes:
    """Build an Ethernet frame with an IPv4 packet, padded to the minimum length."""
    head = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, flags, ttl, protocol, 0,
        source.ip, target.ip,
    )  # fmt: skip
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    frame = target.mac + source.mac + struct.pack(">H", IPV4) + head + payload
    return frame.ljust(LEAST_FRAME, b"\0")


def udp(
    source: SocketAddress, target: SocketAddress, payload: bytes, *, summed: bool = True
) -> bytes:
    """Build a UDP datagram; ``summed=False`` omits its checksum."""
    length = 8 + len(payload)
    head = struct.pack(">HHHH", source.port, target.port, length, 0)
    if summed:
        value = checksum(pseudo(source.ip, target.ip, UDP, length) + head + payload) or 0xFFFF
        head = head[:6] + struct.pack(">H", value)
    return ipv4(source, target, UDP, head + payload)


FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


def tcp(
    source: SocketAddress,
    target: SocketAddress,
    flags: int,
    seq: int,
    ack: int = 0,
    payload: bytes = b"",
    *,
    window: int = 65535,
    options: bytes = b"",
) -> bytes:
    """Build a TCP segment; ``options`` must fill whole 32-bit words."""
    words = (20 + len(options)) // 4
    head = struct.pack(
        ">HHIIBBHHH", source.port, target.port, seq % (1 << 32), ack % (1 << 32),
        words << 4, flags, window, 0, 0,
    ) + options  # fmt: skip
    value = checksum(pseudo(source.ip, target.ip, TCP, len(head + payload)) + head + payload)
    head = head[:16] + struct.pack(">H", value) + head[18:]
    return ipv4(source, target, TCP, head + payload)


def mss(size: int) -> bytes:
    """Build the TCP option of the maximum segment size."""
    return struct.pack(">BBH", 2, 4, size)


@dataclass(frozen=True)
class Ipv4Packet:
    """Content of an IPv4 frame with valid checksums.

    Attributes:
        target_mac: MAC address of the receiver.
        source: addresses and port of the sender.
        target: address and port of the receiver.
        protocol: IP protocol number of the payload.
        header: bytes of the UDP, ICMP or TCP header.
        payload: bytes after the header, without padding.
    """

    source: SocketAddress
    target: SocketAddress
    protocol: int
    header: bytes
    payload: bytes


def read_ipv4(frame: bytes) -> Ipv4Packet:
    """Parse the packet of a frame.

    Raises:
        ValueError: a checksum or length is wrong, or the frame holds another kind of packet.
    """
    if len(frame) < LEAST_FRAME or frame[12:14] != IPV4.to_bytes(2, "big") or frame[14] != 0x45:
        raise ValueError("not a whole frame with an IPv4 packet without options")
    length = int.from_bytes(frame[16:18], "big")
    source_ip, target_ip, protocol = frame[26:30], frame[30:34], frame[23]
    if checksum(frame[14:34]):
        raise ValueError("the IPv4 header's checksum is wrong")
    if len(frame) != max(LEAST_FRAME, 14 + length) or any(frame[14 + length :]):
        raise ValueError(f"a frame of {len(frame)} bytes holds a packet of {length}")
    body = frame[34 : 14 + length]
    above = b"" if protocol == ICMP else pseudo(source_ip, target_ip, protocol, len(body))
    if checksum(above + body):
        raise ValueError("the payload's checksum is wrong")
    ports = (0, 0) if protocol == ICMP else struct.unpack(">HH", body[:4])
    size = 4 * (body[12] >> 4) if protocol == TCP else 8
    if protocol == UDP and int.from_bytes(body[4:6], "big") != len(body):
        raise ValueError("the datagram's length is wrong")
    return Ipv4Packet(
        SocketAddress(frame[6:12], source_ip, ports[0]),
        SocketAddress(frame[:6], target_ip, ports[1]),
        protocol,
        body[:size],
        body[size:],
    )
