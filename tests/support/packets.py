# SPDX-License-Identifier: Apache-2.0
"""Packets byte for byte, and two with what the meter reads of them."""

import struct

from n3ic.meter.packet import LINK_ETHERNET, TCP, UDP, Packet, parse

SOURCE4, DESTINATION4 = bytes([10, 1, 2, 3]), bytes([10, 4, 5, 6])
SOURCE6, DESTINATION6 = bytes(range(16)), bytes(range(100, 116))
IPV4, IPV6, FRAGMENT = 0x0800, 0x86DD, 44


def ipv4(payload, protocol=UDP, *, fragment=0, options=b"", total=None, first=None):
    header = 20 + len(options)
    length = header + len(payload) if total is None else total
    first = 0x40 | header // 4 if first is None else first
    fixed = struct.pack(">BBHHHBBH", first, 0, length, 0xABCD, fragment, 61, protocol, 0)
    return fixed + SOURCE4 + DESTINATION4 + options + payload


def ipv6(payload, following=UDP, *, length=None):
    length = len(payload) if length is None else length
    return struct.pack(">IHBB", 6 << 28, length, following, 62) + SOURCE6 + DESTINATION6 + payload


def udp(data=b"123"):
    return struct.pack(">HHHH", 0x1234, 0x5678, 8 + len(data), 0) + data


def tcp(data=b"12345", words=6):
    fixed = struct.pack(">HHIIBBHHH", 0x1234, 0x5678, 9, 9, words << 4, 0x1B, 0x0203, 0, 0)
    return fixed + bytes(4 * words - 20) + data


def ethernet(packet, kind=IPV4, tags=b""):
    return bytes(range(12)) + tags + struct.pack(">H", kind) + packet


def read(frame, *, link=LINK_ETHERNET, captured=None, length=None):
    return parse(link, frame[:captured], len(frame) if length is None else length, 77)


UDP4 = Packet(77, SOURCE4, DESTINATION4, UDP, 0x1234, 0x5678, 45, 31, 3, 61, 0, 0)
TCP6 = Packet(
    77, SOURCE6, DESTINATION6, TCP, 0x1234, 0x5678, 83, 69, 5, 62, 0x1B, 0x0203, tcp_sequence=9
)
