# SPDX-License-Identifier: Apache-2.0
"""pcapng captures that libpcap refuses or reads in part.

Interfaces of several link types and sections of both byte orders are refused; of a check sequence
behind the frames, libpcap says nothing. Such captures become a stream of one section and one
interface, which libpcap reads. Each frame in it begins with its link type, 32 bits in network byte
order (:data:`~.packet.LINK_EACH`).
Formats: draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from n3ic.data.files import DamagedError, unpack
from n3ic.meter.packet import ALIKE, CHECK_MOST, CHECK_SHIFT, LINKS

SECTION = b"\x0a\x0d\x0d\x0a"  # the same in both byte orders
_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_FORMS = {2: "H2xIIII", 3: "I", _PACKET: "IIIII"}  # of packet blocks: obsolete, simple, enhanced
_OPTION_RESOLUTION, _OPTION_CHECK, _OPTION_OFFSET = 9, 13, 14
_FIRST = 1 << 16  # bytes of a file in which its first interface is expected
_MAX_INTERFACES, _SNAPSHOT = 1 << 16, 1 << 18
_SIZES = range(12, (1 << 24) + 1, 4)  # bytes of a block; a section header's are in _SIZES[4:]
_LAST = 2**63 - 1
# What may be an interface block, anywhere in a file, by the byte order of its section.
_HEADS = {
    b"\x4d\x3c\x2b\x1a": re.compile(rb"\x01\0\0\0(?!\0\0)..\0\0..\0\0", re.DOTALL),
    b"\x1a\x2b\x3c\x4d": re.compile(rb"\0\0\0\x01\0\0(?!\0\0)....\0\0", re.DOTALL),
}
_WRITTEN = 0xFFFF  # link type of the stream; each frame's own precedes it


class BlockError(DamagedError):
    """A block or packet is damaged, or the capture ends inside one."""


def needs_links(path: str | Path) -> bool:
    """Whether a plain file is pcapng with several link types, snapshot lengths or byte orders.

    Also if its frames end with a check sequence.
    """
    try:
        with Path(path).open("rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                if not _may_differ(data):
                    return False
            return begins_with_links(unpack(file))
    except (OSError, ValueError):  # an empty file cannot be mapped
        return False


def begins_with_links(pieces: Iterator[bytes]) -> bool:
    """As :func:`needs_links`, for a stream of bytes up to its end or its first damage."""
    interfaces, orders = set(), set()
    with suppress(BlockError):
        for order, kind, body in _blocks(pieces):
            orders.add(order)
            if kind == _INTERFACE:
                interfaces.add((order, *_unpacked(order + "H2xI", body), _check_bytes(order, body)))
    return len(interfaces) > 1 or len(orders) > 1 or any(check for *_, check in interfaces)


def _may_differ(data: mmap.mmap) -> bool:
    """Whether a file may have several sections or interfaces; quickly rules out most files."""
    head = _HEADS.get(data[8:12])
    return (
        data[:4] == SECTION
        and head is not None
        and (
            data.rfind(SECTION) != 0
            or any(islice(head.finditer(data), 1, None))
            or _first_has_check(data)
        )
    )


def _first_has_check(data: mmap.mmap) -> bool:
    """Whether the first interface says that its frames end with a check sequence."""
    with suppress(BlockError):
        for order, kind, body in _blocks(iter([data[:_FIRST]])):
            if kind == _INTERFACE:
                return _check_bytes(order, body) > 0
    return False


def _check_bytes(order: str, body: bytes) -> int:
    """Bytes of the check sequence that an interface block names; 0 if it is damaged."""
    with suppress(BlockError):
        return _interface(order, body).check
    return 0


@dataclass(frozen=True)
class _Interface:
    link: int
    check: int
    snapshot: int
    resolution: int
    offset: int

    def time(self, units: int) -> int:
        """Nanoseconds since 1970: 0 for earlier times, the largest value beyond 63 bits."""
        seconds = (units // self.resolution + self.offset) % 2**64
        part = units % self.resolution * 10**9
        if self.resolution.bit_count() == 1:
            part %= 2**64  # as libpcap computes with powers of two
        part //= self.resolution
        return 0 if seconds >= 2**63 else min(seconds * 10**9 + part, _LAST)


def with_links(pieces: Iterator[bytes], unread: Counter[int] | None = None) -> Iterator[bytes]:
    """Convert the bytes of any pcapng stream to a pcapng stream that libpcap reads.

    Args:
        pieces: the stream.
        unread: counts the frames whose link type the meter does not read, by link type.

    Raises:
        BlockError: the stream is damaged or cut short; raised after all that comes before.
    """
    interfaces: list[_Interface] = []
    begun = False
    for order, kind, body in _blocks(pieces):
        if kind == _SECTION:
            interfaces = []
        elif kind == _INTERFACE:
            interfaces.append(_interface(order, body))
            if len(interfaces) > _MAX_INTERFACES:
                raise BlockError("it has too many interfaces")
            if not begun:
                yield block_of(_SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
                yield block_of(
                    _INTERFACE, struct.pack("<HHIHHB3xHH", _WRITTEN, 0, 0, 9, 1, 9, 0, 0)
                )
            begun = True
        elif kind in _FORMS:
            interface, written = _packet(order, kind, body, interfaces)
            if unread is not None and interface.link not in LINKS:
                unread[interface.link] += 1
            yield written
    if not begun:
        raise BlockError("it names no interface")


def block_of(kind: int, body: bytes, order: str = "<") -> bytes:
    """Encode a block; ``order`` is the byte order, as in :mod:`struct`."""
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def _packet(
    order: str, kind: int, body: bytes, interfaces: list[_Interface]
) -> tuple[_Interface, bytes]:
    """The interface of a packet, and the block to write for it."""
    form = order + _FORMS[kind]
    *head, length = _unpacked(form, body)
    number, high, low, captured = head or [0] * 4
    if number >= len(interfaces):
        raise BlockError("a block or packet is damaged")
    interface = interfaces[number]
    captured = captured if head else min(length, interface.snapshot)
    start = struct.calcsize(form)
    if captured > min(interface.snapshot, len(body) - start):
        raise BlockError("a block or packet is damaged")
    time = interface.time(high << 32 | low)
    data = body[start : start + min(captured, _SNAPSHOT - 4)]
    sizes = len(data) + 4, min(length + 4, 2**32 - 1)
    written = struct.pack("<IIIII", 0, time >> 32, time & 0xFFFFFFFF, *sizes)
    link = struct.pack(">I", interface.link | interface.check << CHECK_SHIFT)
    return interface, block_of(_PACKET, written + link + data)


def _unpacked(form: str, body: bytes) -> tuple[int, ...]:
    """The numbers at the beginning of a block."""
    try:
        return struct.unpack_from(form, body)
    except struct.error:
        raise BlockError("a block or packet is damaged") from None


def _interface(order: str, body: bytes) -> _Interface:
    link, snapshot = _unpacked(order + "H2xI", body)
    values: dict[int, int] = {}
    at, check = 8, 0
    while at < len(body):
        code, size = struct.unpack_from(order + "HH", body, at)
        value, at = body[at + 4 : at + 4 + size], at + 4 + (size + 3) // 4 * 4
        expected = {0: 0, _OPTION_RESOLUTION: 1, _OPTION_OFFSET: 8}.get(code, size)
        if at > len(body) or size != expected or code in values:
            raise BlockError("a block or packet is damaged")
        if code == 0:
            break
        if code == _OPTION_CHECK and size == 1:
            check = value[0]
        if code in (_OPTION_RESOLUTION, _OPTION_OFFSET):
            values[code] = int.from_bytes(value, "little" if order == "<" else "big")
    resolution = values.get(_OPTION_RESOLUTION, 6)
    base, exponent = (2, resolution & 127) if resolution & 128 else (10, resolution)
    if exponent > (63 if base == 2 else 19):
        raise BlockError("a block or packet is damaged")
    check = check // 8 if check % 8 == 0 else check  # bits by the format, bytes by some writers
    return _Interface(
        ALIKE.get(link, link),
        check if check <= CHECK_MOST else 0,
        snapshot if 0 < snapshot < 2**31 else _SNAPSHOT,
        base**exponent,
        values.get(_OPTION_OFFSET, 0),
    )


class _Taken:
    """Takes bytes from a stream of pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._data, self._at = pieces, b"", 0

    def take(self, size: int, *, may_end: bool = False) -> bytes:
        """Return the next ``size`` bytes; none at the end of the stream, if it ``may_end`` here."""
        while len(self._data) - self._at < size:
            piece = next(self._pieces, b"")
            if not piece:
                if may_end and self._at == len(self._data):
                    return b""
                raise BlockError("it is cut short")
            self._data, self._at = self._data[self._at :] + piece, 0
        self._at += size
        return self._data[self._at - size : self._at]


def _blocks(pieces: Iterator[bytes]) -> Iterator[tuple[str, int, bytes]]:
    """Yield byte order, type and body of each block; a section's body is left empty."""
    reader = _Taken(pieces)
    order = ""
    while head := reader.take(4, may_end=True):
        if head == SECTION:
            order = _section(reader, first=not order)
            yield order, _SECTION, b""
            continue
        if not order:
            raise BlockError("not a pcapng capture")
        kind, total = struct.unpack(order + "II", head + (size := reader.take(4)))
        if total not in _SIZES:
            raise BlockError("a block or packet is damaged")
        body = reader.take(total - 8)
        if body[-4:] != size:
            raise BlockError("a block or packet is damaged")
        yield order, kind, body[:-4]


def _section(reader: _Taken, *, first: bool) -> str:
    """Read a section header; return the section's byte order."""
    head = reader.take(8)
    order = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}.get(head[4:])
    if not order or (total := struct.unpack(f"{order}I", head[:4])[0]) not in _SIZES[4:]:
        raise BlockError("a block or packet is damaged")
    remainder = reader.take(total - 12)
    major, minor = struct.unpack_from(order + "HH", remainder)
    if major != 1 or (first and minor not in (0, 2)) or (not first and remainder[-4:] != head[:4]):
        raise BlockError("a section is damaged, or of another version")
    return order
