# SPDX-License-Identifier: Apache-2.0
"""The ``.info`` file of the UPC-AAU captures: one line per flow, with fields separated by ``#``.

The first seven fields are certain, from programs that read such files: number, start and end in
microseconds since 1970, local and remote address, local and remote port. The other fields are from
memory: transport protocol, operating system, process, and for HTTP the URL, the referer and the
content type. A URL may contain the separator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from n3ic.data.files import decompress
from n3ic.errors import DataError
from n3ic.meter.flow_keys import Key, flow_key, port_number, whole_number

PROTOCOL_FIELD = 7
PROCESS_FIELD = 9
FIRST_UNSURE = 7
SYNTHETIC_MARK = "synthetic-n3ic"  # a field of lines that n3ic's own generator wrote
MAX_LINE = 1 << 16
_EARLIEST, _LATEST = 946_684_800_000_000, 4_102_444_800_000_000  # 2000 and 2100

BadLine = Literal[
    "fewer than 8 fields",
    "longer than 64 KiB",
    "an address is invalid",
    "a port is invalid",
    "a time is invalid, or not in microseconds since 1970",
    "ends before it starts",
]


@dataclass(frozen=True, slots=True)
class InfoFlow:
    """A line of the file.

    Attributes:
        key: key of the flow, the same in both directions; its protocol is 0 if unknown.
        start: microseconds since 1970.
        end: microseconds since 1970.
        fields: all fields of the line.
    """

    key: Key
    start: int
    end: int
    fields: tuple[str, ...]


def parse_info(line: str, protocol_field: int = PROTOCOL_FIELD) -> InfoFlow | BadLine:
    """Read a line, or return what is wrong with it.

    Args:
        line: the line without its end.
        protocol_field: number of the field of the transport protocol, from 0.
    """
    if len(line) > MAX_LINE:
        return "longer than 64 KiB"
    fields = tuple(line.split("#"))
    if len(fields) <= FIRST_UNSURE:
        return "fewer than 8 fields"
    _, start, end, local, remote, local_port, remote_port = fields[:FIRST_UNSURE]
    try:
        first, last = whole_number(start), whole_number(end)
    except ValueError:
        return "a time is invalid, or not in microseconds since 1970"
    if not (_EARLIEST <= first < _LATEST and _EARLIEST <= last < _LATEST):
        return "a time is invalid, or not in microseconds since 1970"
    if last < first:
        return "ends before it starts"
    try:
        for port in (local_port, remote_port):
            port_number(port)
    except ValueError:
        return "a port is invalid"
    protocol = fields[protocol_field] if protocol_field < len(fields) else ""
    try:
        key = flow_key(local, local_port, remote, remote_port, protocol)
    except ValueError:
        return "an address is invalid"
    return InfoFlow(key, first, last, fields)


def info_lines(path: str | Path) -> Iterator[str]:
    """Lines of a file, plain or packed, without their ends.

    Invalid UTF-8 is replaced. A line of more than 64 KiB may be cut, but stays long enough for
    :func:`parse_info` to refuse it.

    Raises:
        DataError: the file cannot be read, or is packed and damaged.
    """
    try:
        with Path(path).open("rb") as stream:
            left = b""
            for piece in decompress(str(path), stream):
                *lines, left = (left + piece).split(b"\n")
                yield from map(_text, lines)
                left = left[: MAX_LINE + 1]  # a file without line ends must not fill the memory
            if left:
                yield _text(left)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _text(line: bytes) -> str:
    if len(line) > MAX_LINE:
        return line.decode("latin-1")  # one letter per byte, so that it stays too long
    return line.decode("utf-8", "replace").rstrip("\r")
