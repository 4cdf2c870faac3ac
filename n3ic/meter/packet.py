# SPDX-License-Identifier: Apache-2.0
"""Parse frames to packets as a meter sees them, or give the reason to ignore them.

Supported are Ethernet with up to two VLAN tags (802.1Q, 802.1ad), PPP, PPPoE and MPLS before IPv4
and IPv6, TCP, UDP and ICMP. GRE, VXLAN and GTP tunnels are opened on request. Frames are not
trusted: every length is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from n3ic.model.metering import Tunnel

TCP, UDP, GRE = 6, 17, 47
FIN, SYN, RST, PUSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10

Reason = Literal[
    "link type not known",
    "link header cut short",
    "not IP",
    "IP header cut short",
    "IP header damaged",
    "ports cut short",
    "fragment without its first",
]
REASONS: tuple[Reason, ...] = get_args(Reason)

LINK_EACH = 1 << 30  # none of pcap's: each frame begins with the number of its own, 4 bytes
LINK_NULL, LINK_ETHERNET, LINK_RAW, LINK_COOKED, LINK_COOKED_2 = 0, 1, 101, 113, 276
LINK_PPP, LINK_HDLC, LINK_PPPOE, LINK_CISCO = 9, 50, 51, 104
_VLAN = (0x8100, 0x88A8, 0x9100)
_MPLS = (0x8847, 0x8848)
_PPPOE, _PPP = 0x8864, 0x10000  # a session; what no EtherType is
_PPP_KINDS = {0x21: 0x0800, 0x57: 0x86DD, 0x281: 0x8847, 0x283: 0x8848}
_MAX_TAGS = 2  # bounds that a data plane can unroll; so is that of the extension headers
_MAX_LABELS = 8
_IPV4, _IPV6 = 0x0800, 0x86DD
_EXTENSIONS = (0, 43, 60)  # hop-by-hop, routing, destination options
_FRAGMENT = 44
_MAX_EXTENSIONS = 8
_TUNNEL_PORTS: dict[int, Tunnel] = {4789: "vxlan", 2152: "gtp"}  # of UDP
_BRIDGED = 0x6558  # GRE's number of Ethernet frames
_MAX_TUNNELS = 2  # one in the other
_MAX_GTP_EXTENSIONS = 4
_MAX_DEPTH = 1024  # at which an inner packet may begin in its frame


@dataclass(frozen=True, slots=True)
class Packet:
    """The fields of a packet that a meter reads.

    Attributes:
        time: time in the units of the specification.
        source: source address, 4 or 16 bytes.
        destination: destination address, 4 or 16 bytes.
        protocol: IP protocol number; for IPv6 that after the extension headers.
        source_port: port of TCP and UDP; 0 for other protocols.
        destination_port: the same for the destination.
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
        """The tunnel that it belongs to by its protocol and port."""
        if self.protocol == UDP:
            return _TUNNEL_PORTS.get(self.destination_port)
        return "gre" if self.protocol == GRE else None


def parse(
    link: int, frame: bytes, length: int, time: int, tunnels: Collection[Tunnel] = ()
) -> Packet | Reason:
    """Read a captured frame.

    Args:
        link: the capture's link type (LINKTYPE_ numbers).
        frame: the captured bytes, which may be fewer than the frame had.
        length: bytes of the frame on the wire.
        time: time in the units of the specification.
        tunnels: tunnels to open. A packet that cannot be opened is the tunnel's own.

    Returns:
        The packet, or the reason why it is ignored.
    """
    return locate(link, frame, length, time, tunnels)[0]


def locate(
    link: int, frame: bytes, length: int, time: int, tunnels: Collection[Tunnel] = ()
) -> tuple[Packet | Reason, int]:
    """As :func:`parse`, with the place of the packet's transport header in the frame."""
    before = 0  # bytes of the number of the frame's link type
    if link == LINK_EACH and len(frame) >= 4:
        link, frame, length, before = _number(frame, 0, 4), frame[4:], max(0, length - 4), 4
    kind, start, outside = _link(link, frame)
    if not isinstance(kind, str):
        kind, start, outside = _opened(frame, kind, start, outside)
    if isinstance(kind, str):
        return kind, 0
    packet, behind = _ip(kind, frame, start, length, outside, time)
    for _ in range(_MAX_TUNNELS):
        if isinstance(packet, str) or packet.tunnel not in tunnels:
            break
        if packet.identification is not None:  # a fragment holds a part alone
            break
        kind, at, end = _inner(frame, behind, start + packet.ip_length, packet.tunnel)
        header = 20 if kind == _IPV4 else 40
        if kind not in (_IPV4, _IPV6) or at > _MAX_DEPTH or end < at + header:
            break
        outside += at - start  # the tunnel's headers do not count
        inner, further = _ip(kind, frame, at, end, outside, time)
        if isinstance(inner, str):
            break
        packet, start, behind = inner, at, further
    return packet, before + behind


def _link(link: int, frame: bytes) -> tuple[int | Reason, int, int]:
    """EtherType (or a reason), where it ends, and bytes that were not on the wire."""
    if link == LINK_RAW:
        return _of_version(frame, 0), 0, 0
    if link == LINK_NULL:
        if len(frame) < 5:
            return "link header cut short", 0, 0
        # The family number differs between systems, IP's version does not.
        return _of_version(frame, 4), 4, 4
    if link in (LINK_PPP, LINK_HDLC, LINK_PPPOE):
        return _PPPOE if link == LINK_PPPOE else _PPP, 0, 0
    if link == LINK_ETHERNET:
        at, outside = 12, 0
    elif link == LINK_CISCO:
        at, outside = 2, 4
    elif link == LINK_COOKED:
        at, outside = 14, 16
    elif link == LINK_COOKED_2:
        if len(frame) < 20:
            return "link header cut short", 0, 0
        return _number(frame, 0, 2), 20, 20
    else:
        return "link type not known", 0, 0
    return *_untagged(frame, at), outside


def _untagged(frame: bytes, at: int) -> tuple[int | Reason, int]:
    """EtherType behind VLAN tags, or a reason, and where it ends."""
    for _ in range(_MAX_TAGS + 1):
        if len(frame) < at + 2:
            return "link header cut short", 0
        kind = _number(frame, at, 2)
        if kind not in _VLAN:
            return kind, at + 2
        at += 4
    return 0, at  # more tags than a meter opens


def _of_version(frame: bytes, at: int) -> int:
    """EtherType of IP by its version; 0 for what is no IP."""
    return {4: _IPV4, 6: _IPV6}.get(frame[at] >> 4, 0) if len(frame) > at else 0


def _opened(frame: bytes, kind: int, at: int, outside: int) -> tuple[int | Reason, int, int]:
    """EtherType behind PPPoE, PPP and MPLS, or a reason; the rest as of :func:`_link`."""
    begins = at == 0  # with PPP or PPPoE, which are the capture's link layer then
    if kind == _PPPOE:
        if len(frame) < at + 6:
            return "link header cut short", 0, 0
        # version 1, type 1, code 0: data of a session (RFC 2516)
        kind, at = _PPP if _number(frame, at, 2) == 0x1100 else 0, at + 6
    if kind == _PPP:
        if len(frame) < at + 4:
            return "link header cut short", 0, 0
        at += 2 if _number(frame, at, 2) == 0xFF03 else 0  # address and control may be left out
        size = 1 if frame[at] & 1 else 2  # an odd byte ends the number (RFC 1661)
        kind, at = _PPP_KINDS.get(_number(frame, at, size), 0), at + size
    outside = at if begins else outside
    if kind in _MPLS:
        for _ in range(_MAX_LABELS):
            if len(frame) < at + 4:
                return "link header cut short", 0, 0
            at += 4
            if frame[at - 2] & 1:  # the bottom of the stack
                return _of_version(frame, at), at, outside
        return 0, at, outside
    return kind, at, outside


def _inner(frame: bytes, at: int, end: int, tunnel: Tunnel | None) -> tuple[int | Reason, int, int]:
    """EtherType of the packet in a tunnel whose header of GRE or UDP is there, its place and end.

    The EtherType is 0 or a reason if the packet is not opened.
    """
    kind: int | Reason = 0
    if tunnel == "gre" and len(frame) >= at + 4:
        flags = _number(frame, at, 2)
        # version 0 (RFC 2784) without routing; checksum, key and sequence number may be there
        kind = 0 if flags & 0x4C07 else _number(frame, at + 2, 2)
        at += 4 + 4 * (flags & 0xB000).bit_count()
    elif tunnel == "vxlan" and len(frame) >= at + 16:
        kind, at = _BRIDGED if frame[at + 8] & 8 else 0, at + 16  # with an identifier
    elif tunnel == "gtp":
        kind, at, end = _gtp(frame, at + 8, end)
    if kind == _BRIDGED:
        kind, at = _untagged(frame, at + 12)
    return kind, at, end


def _gtp(frame: bytes, at: int, end: int) -> tuple[int, int, int]:
    """The same of a user packet in GTP version 1 (3GPP TS 29.281)."""
    if len(frame) < at + 8 or frame[at] >> 4 != 3 or frame[at + 1] != 255:
        return 0, at, end
    stop = at + 8 + _number(frame, at + 2, 2)
    # sequence number, number of the N-PDU and next extension: all are there if any is
    start = at + (12 if frame[at] & 7 else 8)
    following = frame[at + 11 : at + 12] if frame[at] & 4 else b"\0"
    for _ in range(_MAX_GTP_EXTENSIONS):
        size = 4 * frame[start] if following > b"\0" and len(frame) > start else 0
        following = frame[start + size - 1 : start + size] if size else following
        start += size
    kind = _of_version(frame, start) if following == b"\0" and stop <= end else 0
    return kind, start, stop


# Addresses, protocol, length, place of the transport header, TTL, identification, later fragment.
_Header = tuple[bytes, bytes, int, int, int, int, int | None, bool]


def _ip(
    kind: int | Reason, frame: bytes, at: int, length: int, outside: int, time: int
) -> tuple[Packet | Reason, int]:
    """An IP packet of an EtherType, or a reason, and where its transport header begins."""
    if kind not in (_IPV4, _IPV6):
        return "not IP", at
    ip = _ipv4(frame, at, length) if kind == _IPV4 else _ipv6(frame, at, length)
    if isinstance(ip, str):
        return ip, at
    source, destination, protocol, total, start, ttl, identification, later = ip
    ports = 0, 0
    header = flags = window = 0
    sequence = None
    if protocol in (TCP, UDP) and not later:
        if len(frame) < start + 4:
            return "ports cut short", at
        ports = _number(frame, start, 2), _number(frame, start + 2, 2)
        header = 8 if protocol == UDP else 20
        if protocol == TCP and len(frame) >= start + 16:  # flags and window were captured
            header = max(20, 4 * (frame[start + 12] >> 4))
            flags, window = frame[start + 13], _number(frame, start + 14, 2)
            sequence = _number(frame, start + 4, 4)
    lengths = max(length - outside, 0), total, max(0, total - (start - at) - header)
    packet = Packet(
        time, source, destination, protocol, *ports, *lengths, ttl, flags, window,
        identification, later, sequence,
    )  # fmt: skip
    return packet, start


def _ipv4(frame: bytes, at: int, length: int) -> _Header | Reason:
    if len(frame) < at + 20:
        return "IP header cut short"
    header = 4 * (frame[at] & 15)
    total = _number(frame, at + 2, 2)
    if frame[at] >> 4 != 4 or header < 20 or (total and total < header):
        return "IP header damaged"
    offset = _number(frame, at + 6, 2)
    fragmented = bool(offset & 0x3FFF)  # "more fragments" or an offset
    identification = _number(frame, at + 4, 2) if fragmented else None
    source, destination = frame[at + 12 : at + 16], frame[at + 16 : at + 20]
    protocol, ttl, later = frame[at + 9], frame[at + 8], bool(offset & 0x1FFF)
    total = _ip_length(total, header, length - at)
    return source, destination, protocol, total, at + header, ttl, identification, later


def _ip_length(said: int, header: int, held: int) -> int:
    """Length of an IP packet, from the length in its header and the bytes in its frame.

    A header says 0 if the sender's NIC was to segment it, and in a jumbogram. Padding after the
    packet does not count, and a header cannot make a packet longer than its frame.
    """
    # Trust the header only downwards, and never below its own length.
    return max(header, min(said or held, held))


def _ipv6(frame: bytes, at: int, length: int) -> _Header | Reason:
    if len(frame) < at + 40:
        return "IP header cut short"
    if frame[at] >> 4 != 6:
        return "IP header damaged"
    payload = _number(frame, at + 4, 2)
    # no payload behind hop-by-hop options: a jumbogram (RFC 2675)
    said = 0 if payload == 0 and frame[at + 6] == 0 else payload + 40
    total = _ip_length(said, 40, length - at)
    protocol, start = frame[at + 6], at + 40
    identification, later = None, False
    for _ in range(_MAX_EXTENSIONS):
        if protocol not in (*_EXTENSIONS, _FRAGMENT) or later:
            break
        if len(frame) < start + 8:
            return "IP header cut short"
        size = 8 if protocol == _FRAGMENT else 8 + 8 * frame[start + 1]
        if protocol == _FRAGMENT:
            offset = _number(frame, start + 2, 2)
            if offset & 0xFFF9:  # else an atomic fragment (RFC 6946), which is a whole datagram
                identification, later = _number(frame, start + 4, 4), bool(offset & 0xFFF8)
        protocol, start = frame[start], start + size
    source, destination = frame[at + 8 : at + 24], frame[at + 24 : at + 40]
    ttl = frame[at + 7]
    return source, destination, protocol, total, start, ttl, identification, later


def _number(frame: bytes, at: int, size: int) -> int:
    return int.from_bytes(frame[at : at + size], "big")
