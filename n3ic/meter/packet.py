# SPDX-License-Identifier: Apache-2.0
"""Parses frames to packets as a meter sees them, or gives the reason to ignore them.

Ethernet with up to two VLAN tags (802.1Q, 802.1ad), Wi-Fi (802.11), PPP, PPPoE, Frame Relay, SLIP
and MPLS may precede IPv4 and IPv6 with TCP, UDP and ICMP. GRE, VXLAN and GTP tunnels are opened on
request. Frames are not trusted: every length is checked before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast, get_args

from n3ic.model.meter_spec import Tunnel

TCP, UDP, GRE = 6, 17, 47
FIN, SYN, RST, PUSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10

Reason = Literal[
    "link type not known",
    "link header cut short",
    "encrypted, aggregated or in pieces on the link",
    "not IP",
    "IP header cut short",
    "IP header damaged",
    "ports cut short",
    "fragment without its first",
]
REASONS: tuple[Reason, ...] = get_args(Reason)

LINK_EACH = 1 << 30  # n3ic's own: each frame begins with its link type, 4 bytes
LINK_NULL, LINK_ETHERNET, LINK_RAW, LINK_COOKED, LINK_COOKED_2 = 0, 1, 101, 113, 276
LINK_PPP, LINK_HDLC, LINK_PPPOE, LINK_CISCO = 9, 50, 51, 104
LINK_SLIP, LINK_WIFI, LINK_FRAME_RELAY, LINK_RADIOTAP, LINK_PKTAP = 8, 105, 107, 127, 258
_EVERY_SYSTEM = (LINK_NULL, LINK_ETHERNET, LINK_RAW, LINK_COOKED, LINK_COOKED_2, LINK_PKTAP)
_SERIAL = (LINK_PPP, LINK_HDLC, LINK_PPPOE, LINK_CISCO, LINK_SLIP, LINK_FRAME_RELAY)
LINKS = frozenset((*_EVERY_SYSTEM, *_SERIAL, LINK_WIFI, LINK_RADIOTAP))  # those that are read
# Raw IP has several numbers (12 or 14 by system, 228 for IPv4, 229 for IPv6), loopback two.
ALIKE = {12: LINK_RAW, 14: LINK_RAW, 228: LINK_RAW, 229: LINK_RAW, 108: LINK_NULL}
# Bits 26 to 29 beside a link type: bytes of the check sequence at the end of each frame.
CHECK_SHIFT, CHECK_MOST, _TYPE = 26, 15, (1 << 26) - 1
_PADDED = 1 << 29  # 802.11 whose header is padded to words
_VLAN = (0x8100, 0x88A8, 0x9100)
_MPLS = (0x8847, 0x8848)
_PPPOE, _PPP = 0x8864, 0x10000  # EtherType of a session; a number beyond all EtherTypes
_IPV4, _IPV6 = 0x0800, 0x86DD
_PPP_KINDS = dict(zip((0x21, 0x57, 0x281, 0x283), (_IPV4, _IPV6, *_MPLS), strict=True))
_SNAP = (b"\xaa\xaa\3\0\0\0", b"\xaa\xaa\3\0\0\xf8")  # an EtherType follows (RFC 1042, 802.1H)
_MAX_PRESENT = 8  # words of radiotap's bitmap
_MAX_TAGS = 2  # like the bounds below, small enough for a data plane to unroll
_MAX_LABELS = 8
_EXTENSIONS = (0, 43, 60)  # hop-by-hop, routing, destination options
_FRAGMENT = 44
_MAX_EXTENSIONS = 8
_TUNNEL_PORTS: dict[int, Tunnel] = {4789: "vxlan", 2152: "gtp"}  # UDP ports
_BRIDGED = 0x6558  # GRE's protocol type for Ethernet frames
_MAX_TUNNELS = 2  # one inside the other
_MAX_GTP_EXTENSIONS = 4
_MAX_DEPTH = 1024  # largest offset in a frame at which an inner packet may begin


class _IgnoredError(Exception):
    """A frame that holds no packet; its one argument is the reason."""


@dataclass(frozen=True, slots=True)
class Packet:
    """The fields of a packet that a meter reads.

    Attributes:
        time: time in the units of the specification.
        source: source address, 4 or 16 bytes.
        destination: destination address, 4 or 16 bytes.
        protocol: IP protocol number; for IPv6, the one after the extension headers.
        source_port: source port of TCP and UDP; 0 for other protocols.
        destination_port: destination port, likewise.
        wire_length: bytes of the whole frame on the wire, without its check sequence and without
            a capture's own link header.
        ip_length: bytes of the IP packet with its header; see :func:`_ip_length`.
        payload_length: bytes after the transport header, or after IP's if there is none.
        ttl: time to live or hop limit.
        tcp_flags: flag byte of the TCP header; 0 for other protocols, or if it was not captured.
        tcp_window: window of the TCP header, not scaled.
        identification: identification of a fragmented datagram; None for a whole one.
        later: whether it is a fragment without ports, to be joined by identification.
        tcp_sequence: sequence number of the TCP header; None for other protocols, or if it was
            not captured.
    """

    time: int
    source: bytes
    destination: bytes
    protocol: int
    source_port: int
    destination_port: int
    wire_length: int
    ip_length: int
    payload_length: int
    ttl: int
    tcp_flags: int
    tcp_window: int
    identification: int | None = None
    later: bool = False
    tcp_sequence: int | None = None

    @property
    def tunnel(self) -> Tunnel | None:
        """The kind of tunnel that the packet belongs to, by its protocol and port."""
        if self.protocol == UDP:
            return _TUNNEL_PORTS.get(self.destination_port)
        return "gre" if self.protocol == GRE else None


def parse(
    link: int, frame: bytes, length: int, time: int, tunnels: Collection[Tunnel] = ()
) -> Packet | Reason:
    """Read a captured frame.

    Args:
        link: the capture's link type (LINKTYPE_ numbers), plus the bytes of the frames' check
            sequence shifted by :data:`CHECK_SHIFT`.
        frame: the captured bytes, which may be fewer than the frame had.
        length: bytes of the frame on the wire.
        time: time in the units of the specification.
        tunnels: tunnels to open. If an inner packet cannot be read, the outer one is returned.

    Returns:
        The packet, or the reason why it is ignored.
    """
    return locate(link, frame, length, time, tunnels)[0]


def locate(
    link: int, frame: bytes, length: int, time: int, tunnels: Collection[Tunnel] = ()
) -> tuple[Packet | Reason, int]:
    """Read a frame as :func:`parse` does; also return the transport header's offset, or 0."""
    try:
        return _located(link, frame, length, time, tunnels)
    except _IgnoredError as ignored:
        return cast(Reason, ignored.args[0]), 0


def _located(
    link: int, frame: bytes, length: int, time: int, tunnels: Collection[Tunnel]
) -> tuple[Packet, int]:
    before = 0  # bytes that hold the frame's link type
    if link == LINK_EACH and len(frame) >= 4:
        link, frame, length, before = _u32(frame, 0), frame[4:], length - 4, 4
    link, wrapped, frame, length = _unwrapped(link, frame, length)
    before += wrapped
    kind, start, outside = _opened(frame, *_link(link, frame))
    packet, behind = _ip(kind, frame, start, length, outside, time)
    for _ in range(_MAX_TUNNELS):
        # a fragment holds only a part of the inner packet
        if packet.tunnel not in tunnels or packet.identification is not None:
            break
        try:
            kind, at, end = _inner(frame, behind, start + packet.ip_length, packet.tunnel)
            outside += at - start  # the tunnel's headers do not count
            inner, further = _ip(kind, frame, at, end, outside, time)
        except _IgnoredError:
            break
        if at > _MAX_DEPTH or end < at + (20 if kind == _IPV4 else 40):
            break
        packet, start, behind = inner, at, further
    return packet, before + behind


def _unwrapped(link: int, frame: bytes, length: int) -> tuple[int, int, bytes, int]:
    """Take off what a capture adds to a frame: PKTAP, radiotap, and the check sequence behind it.

    Returns:
        The link type of what is left, the bytes taken off before it, its bytes, and its length.
    """
    if link >= LINK_EACH:
        raise _IgnoredError("link type not known")
    check, link, wrapped = link >> CHECK_SHIFT, link & _TYPE, 0
    if link == LINK_PKTAP:  # little-endian, as all systems that write it
        if len(frame) < 12:
            raise _IgnoredError("link header cut short")
        wrapped, _, link = struct.unpack_from("<III", frame)
        link = ALIKE.get(link, min(link, _TYPE))
        if not 12 <= wrapped <= len(frame):
            raise _IgnoredError("link header cut short")
    if link == LINK_RADIOTAP:
        size, flags = _radiotap(frame[wrapped:])
        wrapped += size
        check = 4 if flags & 0x10 else 0
        link = _PADDED if flags & 0x20 else LINK_WIFI
    if not wrapped and not check:
        return link, 0, frame, length
    length = max(0, length - wrapped - check)
    return link, wrapped, frame[wrapped : wrapped + length if check else None], length


def _radiotap(frame: bytes) -> tuple[int, int]:
    """Bytes of a radiotap header, and its flags."""
    size = int.from_bytes(frame[2:4], "little")
    if len(frame) < 8 or not 8 <= size <= len(frame):
        raise _IgnoredError("link header cut short")
    at = 4
    for _ in range(_MAX_PRESENT):
        more = at + 4 <= size and frame[at + 3] & 0x80
        at += 4
        if not more:
            break
    if frame[4] & 1:  # a time stamp, aligned
        at += -at % 8 + 8
    return size, frame[at] if frame[4] & 2 and at < size else 0


def _wifi(frame: bytes, *, padded: bool) -> int:
    """Where the EtherType of an 802.11 data frame lies."""
    if len(frame) < 24:
        raise _IgnoredError("link header cut short")
    kind, flags = frame[0], frame[1]
    if kind & 0x4F != 8:  # version 0, type 2, and a payload
        raise _IgnoredError("not IP")
    quality = kind & 0x80
    at = 24 + (6 if flags & 3 == 3 else 0)
    aggregated = quality and _u8(frame, at) & 0x80
    at += (2 if quality else 0) + (4 if quality and flags & 0x80 else 0)
    # encrypted; more pieces follow; not the first piece; several packets in one frame
    if flags & 0x44 or frame[22] & 15 or aggregated:
        raise _IgnoredError("encrypted, aggregated or in pieces on the link")
    at = (at + 3) // 4 * 4 if padded else at
    if len(frame) < at + 8:
        raise _IgnoredError("link header cut short")
    if frame[at : at + 6] not in _SNAP:
        raise _IgnoredError("not IP")
    return at + 6


def _frame_relay(frame: bytes) -> tuple[int, int]:
    """The EtherType behind a header of Frame Relay (RFC 2427, or Cisco's), and where it ends."""
    at = next((i + 1 for i in range(4) if _u8(frame, i) & 1), 0)
    if len(frame) < 8:
        raise _IgnoredError("link header cut short")
    if at < 2:
        raise _IgnoredError("not IP")
    if frame[at] != 3:
        return _u16(frame, at), at + 2
    at += 1 if frame[at + 1] else 2  # a zero may pad
    kind = {0xCC: _IPV4, 0x8E: _IPV6}.get(_u8(frame, at), 0)
    if _u8(frame, at) != 0x80:
        return kind, at + 1
    if len(frame) < at + 6:
        raise _IgnoredError("link header cut short")
    return 0 if any(frame[at + 1 : at + 4]) else _u16(frame, at + 4), at + 6


def _link(link: int, frame: bytes) -> tuple[int, int, int]:
    """The EtherType, where it ends, and the number of bytes that were not on the wire."""
    if link == LINK_RAW:
        return _of_version(frame, 0), 0, 0
    if link == LINK_NULL:
        if len(frame) < 5:
            raise _IgnoredError("link header cut short")
        # The family number differs between systems, but IP's version does not.
        return _of_version(frame, 4), 4, 4
    if link in (LINK_PPP, LINK_HDLC, LINK_PPPOE):
        return _PPPOE if link == LINK_PPPOE else _PPP, 0, 0
    if link == LINK_SLIP:
        if len(frame) < 17:
            raise _IgnoredError("link header cut short")
        return _of_version(frame, 16), 16, 16
    if link == LINK_FRAME_RELAY:
        kind, at = _frame_relay(frame)
        return kind, at, at
    if link == LINK_ETHERNET:
        at, outside = 12, 0
    elif link in (LINK_WIFI, _PADDED):
        at, outside = _wifi(frame, padded=link == _PADDED), 0
    elif link == LINK_CISCO:
        at, outside = 2, 4
    elif link == LINK_COOKED:
        at, outside = 14, 16
    elif link == LINK_COOKED_2:
        if len(frame) < 20:
            raise _IgnoredError("link header cut short")
        return _u16(frame, 0), 20, 20
    else:
        raise _IgnoredError("link type not known")
    return *_untagged(frame, at), outside


def _untagged(frame: bytes, at: int) -> tuple[int, int]:
    """The EtherType behind VLAN tags, and where it ends."""
    for _ in range(_MAX_TAGS + 1):
        if len(frame) < at + 2:
            raise _IgnoredError("link header cut short")
        kind = _u16(frame, at)
        if kind not in _VLAN:
            return kind, at + 2
        at += 4
    raise _IgnoredError("not IP")  # more tags than a meter opens


def _of_version(frame: bytes, at: int) -> int:
    """IP's EtherType by its version; for any other version the version, which is no EtherType."""
    version = _u8(frame, at) >> 4
    return {4: _IPV4, 6: _IPV6}.get(version, version)


def _opened(frame: bytes, kind: int, at: int, outside: int) -> tuple[int, int, int]:
    """The EtherType behind PPPoE, PPP and MPLS; otherwise as :func:`_link`."""
    begins = at == 0  # PPP or PPPoE is the capture's link layer
    if kind == _PPPOE:
        if len(frame) < at + 6:
            raise _IgnoredError("link header cut short")
        if _u16(frame, at) == 0x1100:  # version 1, type 1, code 0: data (RFC 2516)
            kind, at = _PPP, at + 6
    if kind == _PPP:
        if len(frame) < at + 4:
            raise _IgnoredError("link header cut short")
        at += 2 if _u16(frame, at) == 0xFF03 else 0  # address and control may be left out
        size = 1 if frame[at] & 1 else 2  # an odd byte ends the number (RFC 1661)
        kind, at = _PPP_KINDS.get(_number(frame, at, size=size), _PPP), at + size
    outside += at if begins else 0
    if kind in _MPLS:
        for _ in range(_MAX_LABELS):
            if len(frame) < at + 4:
                raise _IgnoredError("link header cut short")
            at += 4
            if frame[at - 2] & 1:  # the bottom of the stack
                return _of_version(frame, at), at, outside
    return kind, at, outside


def _inner(frame: bytes, at: int, end: int, tunnel: Tunnel | None) -> tuple[int, int, int]:
    """An inner packet's EtherType, start and end; GRE's or UDP's header begins at ``at``."""
    if tunnel == "gtp":
        return _gtp(frame, at + 8, end)
    if tunnel == "gre":
        flags, kind = _u16(frame, at), _u16(frame, at + 2)
        # version 0 (RFC 2784) without routing; checksum, key and sequence number may be present
        opens = not flags & 0x4C07
        at += 4 + 4 * (flags >> 12 & 11).bit_count()
    else:  # VXLAN, with an identifier
        opens, kind, at = bool(_u8(frame, at + 8) & 8), _BRIDGED, at + 16
    if not opens:
        raise _IgnoredError("not IP")
    if kind == _BRIDGED:
        kind, at = _untagged(frame, at + 12)
    return kind, at, end


def _gtp(frame: bytes, at: int, end: int) -> tuple[int, int, int]:
    """The same for a user packet in GTP version 1 (3GPP TS 29.281)."""
    if _u16(frame, at) & 0xF0FF != 0x30FF:
        raise _IgnoredError("not IP")
    stop = at + 8 + _u16(frame, at + 2)
    # sequence number, number of the N-PDU and next extension: all are present if any is
    start = at + (12 if frame[at] & 7 else 8)
    following = _u8(frame, at + 11) if frame[at] & 4 else 0
    for _ in range(_MAX_GTP_EXTENSIONS):
        size = 4 * _u8(frame, start) if following else 0
        following = _u8(frame, start + size - 1) if size else following
        start += size
    if following or stop > end:
        raise _IgnoredError("not IP")
    return _of_version(frame, start), start, stop


# Addresses, protocol, length, offset of the transport header, TTL, identification, later fragment.
_Header = tuple[bytes, bytes, int, int, int, int, int | None, bool]


def _ip(
    kind: int, frame: bytes, at: int, length: int, outside: int, time: int
) -> tuple[Packet, int]:
    """Parse an IP packet; return it and the offset of its transport header."""
    if kind not in (_IPV4, _IPV6):
        raise _IgnoredError("not IP")
    ip = _ipv4(frame, at, length) if kind == _IPV4 else _ipv6(frame, at, length)
    source, destination, protocol, total, start, ttl, identification, later = ip
    ports = 0, 0
    header = flags = window = 0
    sequence = None
    if protocol in (TCP, UDP) and not later:
        if len(frame) < start + 4:
            raise _IgnoredError("ports cut short")
        ports = _u16(frame, start), _u16(frame, start + 2)
        header = 8 if protocol == UDP else 20
        if protocol == TCP and len(frame) >= start + 16:  # flags and window were captured
            header = max(20, 4 * (frame[start + 12] >> 4))
            flags, window = frame[start + 13], _u16(frame, start + 14)
            sequence = _u32(frame, start + 4)
    lengths = max(length - outside, 0), total, max(0, total - (start - at) - header)
    packet = Packet(
        time, source, destination, protocol, *ports, *lengths, ttl, flags, window,
        identification, later, sequence,
    )  # fmt: skip
    return packet, start


def _ipv4(frame: bytes, at: int, length: int) -> _Header:
    if len(frame) < at + 20:
        raise _IgnoredError("IP header cut short")
    header = 4 * (frame[at] & 15)
    total = _u16(frame, at + 2)
    if not 0x45 <= frame[at] <= 0x4F or (total and total < header):
        raise _IgnoredError("IP header damaged")
    offset = _u16(frame, at + 6)
    fragmented = bool(offset & 0x3FFF)  # "more fragments" or an offset
    identification = _u16(frame, at + 4) if fragmented else None
    source, destination = frame[at + 12 : at + 16], frame[at + 16 : at + 20]
    protocol, ttl, later = frame[at + 9], frame[at + 8], bool(offset & 0x1FFF)
    total = _ip_length(total, header, length - at)
    return source, destination, protocol, total, at + header, ttl, identification, later


def _ip_length(stated: int, header: int, available: int) -> int:
    """Length of an IP packet, from the length in its header and the bytes in its frame.

    A header says 0 in a jumbogram, or if the sender's NIC was to segment it. Padding after the
    packet does not count, and a header cannot make a packet longer than its frame.
    """
    # Trust the header only downwards, and never below its own length.
    return max(header, min(stated or available, available))


def _ipv6(frame: bytes, at: int, length: int) -> _Header:
    if len(frame) < at + 40:
        raise _IgnoredError("IP header cut short")
    if frame[at] >> 4 != 6:
        raise _IgnoredError("IP header damaged")
    payload = _u16(frame, at + 4)
    # no payload behind hop-by-hop options: a jumbogram (RFC 2675)
    stated = 0 if payload == 0 and frame[at + 6] == 0 else payload + 40
    total = _ip_length(stated, 40, length - at)
    protocol, start = frame[at + 6], at + 40
    identification, later = None, False
    for _ in range(_MAX_EXTENSIONS):
        if protocol not in (*_EXTENSIONS, _FRAGMENT) or later:
            break
        if len(frame) < start + 8:
            raise _IgnoredError("IP header cut short")
        size = 8 if protocol == _FRAGMENT else 8 + 8 * frame[start + 1]
        if protocol == _FRAGMENT:
            offset = _u16(frame, start + 2)
            if offset & 0xFFF9:  # else an atomic fragment (RFC 6946), which is a whole datagram
                identification, later = _u32(frame, start + 4), bool(offset & 0xFFF8)
        protocol, start = frame[start], start + size
    source, destination = frame[at + 8 : at + 24], frame[at + 24 : at + 40]
    ttl = frame[at + 7]
    return source, destination, protocol, total, start, ttl, identification, later


def _number(frame: bytes, at: int, *, size: int) -> int:
    """Read ``size`` bytes of a frame as a big-endian number, or fewer if the frame ends."""
    return int.from_bytes(frame[at : at + size], "big")


_u8, _u16, _u32 = (partial(_number, size=size) for size in (1, 2, 4))
