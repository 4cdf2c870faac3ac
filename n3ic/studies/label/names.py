# SPDX-License-Identifier: Apache-2.0
"""Names of the flows of captures, from hellos and from earlier DNS answers."""

from __future__ import annotations

import struct
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

import dpkt

from n3ic.errors import DataError, N3icWarning
from n3ic.meter.capture import Capture
from n3ic.meter.packet import SYN, TCP, UDP, Packet, locate
from n3ic.meter.records import unread_lines
from n3ic.studies.label.hello import Hello, joined, read_hello, records_to_hello
from n3ic.studies.label.quic import QuicHello

_IDLE_US = 60_000_000
_MAX_FLOWS = 1 << 18
_MAX_NAMES = 1 << 18
_MAX_STREAM = 1 << 15  # a hello must end within this many bytes of the client's stream
_MAX_PACKETS = 16  # packets with a payload, from the client, that are searched for a hello
_DNS_PORTS = (53, 5353)
_ADDRESSES = {dpkt.dns.DNS_A: "ip", dpkt.dns.DNS_AAAA: "ip6"}


@dataclass
class NamedFlow:
    """A flow and its names.

    Attributes:
        source: address and port of the end that sent the first packet.
        destination: address and port of the other end.
        protocol: IP protocol number.
        first: time of its first packet, microseconds since 1970.
        last: time of its last packet, microseconds since 1970.
        hello: its ClientHello; None if none was found.
        dns: the name that the source had resolved to the destination's address; empty if none.
    """

    source: tuple[bytes, int]
    destination: tuple[bytes, int]
    protocol: int
    first: int
    last: int
    hello: Hello | None = None
    dns: str = ""
    _pieces: dict[int, bytes] = field(default_factory=dict)
    _start: int | None = None
    _quic: QuicHello | None = None
    _left: int = _MAX_PACKETS

    @property
    def name(self) -> str:
        """The server's name from the hello, otherwise from DNS; empty if neither has one."""
        return (self.hello.server_name if self.hello else "") or self.dns

    def add_packet(self, packet: Packet, payload: bytes) -> None:
        """Look for a hello in a packet that the source sent."""
        if self.hello or self._left <= 0:
            return
        if packet.protocol == TCP and packet.tcp_sequence is not None:
            self._stream(packet, payload)
        elif packet.protocol == UDP and payload[:1] >= b"\x80":
            self._left -= 1
            try:
                self._quic = self._quic or QuicHello()
                self.hello = read_hello(self._quic.add(payload), quic=True)
            except ValueError:
                pass  # not QUIC, or a packet after the Initial ones: no hello so far

    def _stream(self, packet: Packet, payload: bytes) -> None:
        sequence = packet.tcp_sequence or 0
        if packet.tcp_flags & SYN:
            self._start = sequence + 1
        if not payload:
            return
        self._left -= 1
        self._start = sequence if self._start is None else self._start
        offset = (sequence - self._start) % (1 << 32)
        if offset + len(payload) > _MAX_STREAM:
            return
        self._pieces[offset] = max(self._pieces.get(offset, b""), payload, key=len)
        handshake = records_to_hello(joined(self._pieces))
        if handshake is None:  # not TLS yet: after STARTTLS, a later packet may begin it
            self._pieces.clear()
            self._start = None
        else:
            self.hello = read_hello(handshake)
        if self.hello or not self._left:
            self._pieces.clear()


def named_flows(captures: Iterable[str]) -> Iterator[NamedFlow]:
    """Yield the flows of captures, each with the names that were found.

    A flow ends after 60 s without a packet, and at the end of its capture.

    Warns:
        N3icWarning: A capture ends early, cannot be read and is skipped, or has packets of a link
            type that is not read.
    """
    for path in captures:
        try:
            with Capture(path) as capture:
                yield from _flows(capture)
                for line in unread_lines(capture.unread):
                    warnings.warn(f"{path}: {line}", N3icWarning, stacklevel=2)
        except DataError as error:
            warnings.warn(str(error), N3icWarning, stacklevel=2)


def _flows(capture: Capture) -> Iterator[NamedFlow]:
    flows: OrderedDict[tuple[object, ...], NamedFlow] = OrderedDict()
    queried: OrderedDict[tuple[bytes, bytes], str] = OrderedDict()  # asker and address: name
    for frame, length, time in _until_damage(capture):
        now = time // 1000
        packet, at = locate(capture.link, frame, length, now)
        if isinstance(packet, str) or packet.protocol not in (TCP, UDP) or packet.later:
            continue
        payload = _payload(packet, frame, at)
        if packet.protocol == UDP and packet.source_port in _DNS_PORTS:
            _remember(queried, packet, payload)
        ends = (packet.source, packet.source_port), (packet.destination, packet.destination_port)
        key = (*ends, packet.protocol)
        back = (*ends[::-1], packet.protocol)
        known = key if key in flows else back
        flow = flows.get(known)
        if flow is not None and now - flow.last > _IDLE_US:
            yield flows.pop(known)
            flow = None
        if flow is None:
            if len(flows) >= _MAX_FLOWS:
                yield flows.popitem(last=False)[1]
            name = queried.get((packet.source, packet.destination), "")
            known = key
            flow = flows[key] = NamedFlow(*ends, packet.protocol, now, now, dns=name)
        flow.last = max(flow.last, now)
        flows.move_to_end(known)
        if ends[0] == flow.source:
            flow.add_packet(packet, payload)
    yield from flows.values()


def _until_damage(capture: Capture) -> Iterator[tuple[bytes, int, int]]:
    """Packets up to the end of the file, or up to where it is damaged."""
    try:
        yield from capture.packets()
    except DataError as error:
        warnings.warn(str(error), N3icWarning, stacklevel=2)


def _payload(packet: Packet, frame: bytes, at: int) -> bytes:
    """The captured bytes after the transport header, without padding."""
    header = 8
    if packet.protocol == TCP:
        if len(frame) < at + 13:
            return b""
        header = max(20, 4 * (frame[at + 12] >> 4))
    return frame[at + header : at + header + packet.payload_length]


def _remember(
    queried: OrderedDict[tuple[bytes, bytes], str], packet: Packet, payload: bytes
) -> None:
    """Keep the queried name for each address in a DNS answer."""
    try:
        answer = dpkt.dns.DNS(payload)
        if answer.qr != dpkt.dns.DNS_R or not answer.qd:
            return
        name = str(answer.qd[0].name).lower()
        addresses = [getattr(rr, _ADDRESSES[rr.type]) for rr in answer.an if rr.type in _ADDRESSES]
    except (dpkt.Error, struct.error, IndexError, ValueError, AttributeError, RecursionError):
        return  # damaged, or not DNS: nothing to remember
    if not name.isascii() or not name.isprintable() or len(name) > 253:
        return
    for address in addresses:
        queried[packet.destination, bytes(address)] = name
        queried.move_to_end((packet.destination, bytes(address)))
    while len(queried) > _MAX_NAMES:
        queried.popitem(last=False)


def text_of(address: bytes) -> str:
    """An address as text."""
    return str(ip_address(address))
