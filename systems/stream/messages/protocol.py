# SPDX-License-Identifier: Apache-2.0
"""The format of messages over UDP: what a packet holds, and whether it is consistent.

A packet is a header of 32 bytes, big-endian, and a part of a message:

====== ===== ==========================================================================
offset bytes field
====== ===== ==========================================================================
0      4     magic ``n3sm``
4      1     version, 1
5      1     bytes of the header, 32
6      2     zero
8      8     message: its number, which a sender uses once
16     4     size of the message in bytes
20     4     offset of the part in the message
24     4     number of the packet in the message, from 0
28     4     packets of the message
====== ===== ==========================================================================

All packets of a message but the last carry equally many bytes, a multiple of 4 and at least 16.
Number, offset and count therefore follow from one another. A packet in which they do not is
refused, so no two accepted packets of a message overlap. Only UDP's checksum protects the payload.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

HEADER_BYTES = 32
MAGIC = int.from_bytes(b"n3sm", "big")
VERSION = 1
LEAST_PART = 16  # bounds the packets of a message, and so the memory that records them
MOST_PART = 65_507 - HEADER_BYTES  # a UDP datagram over IPv4 holds 65,507 bytes
PART_MULTIPLE = 4  # a device copies words

HEADER = np.dtype(
    [
        ("magic", ">u4"),
        ("version", "u1"),
        ("header", "u1"),
        ("zero", ">u2"),
        ("message", ">u8"),
        ("size", ">u4"),
        ("offset", ">u4"),
        ("number", ">u4"),
        ("packets", ">u4"),
    ]
)


class PacketFault(IntEnum):
    """Why a packet is refused."""

    NONE = 0
    SHORT = 1
    FOREIGN = 2
    MALFORMED = 3
    WRONG_SIZE = 4
    CONFLICTING = 5
    DOUBLED = 6
    LATE = 7
    NO_ROOM = 8
    EXPIRED = 9


FAULT_TEXTS = {
    PacketFault.SHORT: "shorter than a header, or cut by the buffer",
    PacketFault.FOREIGN: "of another protocol or version",
    PacketFault.MALFORMED: "size, offset, number and count contradict one another",
    PacketFault.WRONG_SIZE: "of a message whose size the receiver does not take",
    PacketFault.CONFLICTING: "contradicts an earlier packet of its message",
    PacketFault.DOUBLED: "received before",
    PacketFault.LATE: "of a message that is complete or expired",
    PacketFault.NO_ROOM: "no room for another message",
    PacketFault.EXPIRED: "of a message that stayed incomplete",
}


def check_part(part: int) -> None:
    """Check how many bytes of a message a packet carries.

    Raises:
        ValueError: They are not a multiple of 4, too few or too many.
    """
    if part % PART_MULTIPLE or not LEAST_PART <= part <= MOST_PART:
        raise ValueError(
            f"expected a multiple of {PART_MULTIPLE} from {LEAST_PART} to {MOST_PART} bytes of a "
            f"message in a packet, got {part}"
        )


def packets_of(message: int, payload: bytes | NDArray[np.uint8], part: int) -> NDArray[np.uint8]:
    """Make the packets of a message, one per row.

    Args:
        message: the message's number.
        payload: its bytes, at least one.
        part: bytes of the message in each packet but the last.

    Returns:
        uint8 array of shape ``(packets, 32 + part)``. The last packet ends with the message:
        :func:`last_bytes` gives its length.

    Raises:
        ValueError: The message is empty, or :func:`check_part` refuses ``part``.
    """
    check_part(part)
    data = np.frombuffer(payload, dtype=np.uint8)
    if not len(data):
        raise ValueError("expected a message of at least one byte")
    count = -(-len(data) // part)
    out = np.zeros((count, HEADER_BYTES + part), dtype=np.uint8)
    whole = len(data) // part
    out[:whole, HEADER_BYTES:] = data[: whole * part].reshape(whole, part)
    out[whole:, HEADER_BYTES : HEADER_BYTES + len(data) % part] = data[whole * part :]
    header = np.zeros(count, dtype=HEADER)
    header["magic"], header["version"], header["header"] = MAGIC, VERSION, HEADER_BYTES
    header["message"], header["size"], header["packets"] = message, len(data), count
    header["number"] = np.arange(count)
    header["offset"] = np.arange(count, dtype=np.uint64) * part
    out[:, :HEADER_BYTES] = header.view(np.uint8).reshape(count, HEADER_BYTES)
    return out


def last_bytes(size: int, part: int) -> int:
    """Bytes of the last packet of a message of ``size`` bytes, header included."""
    return HEADER_BYTES + (size - 1) % part + 1


def headers_of(slots: NDArray[np.uint8]) -> NDArray[np.void]:
    """Read the headers of packets, uint8 rows of at least 32 bytes.

    Returns:
        An array of dtype :data:`HEADER` and shape ``(packets,)``.
    """
    return np.ascontiguousarray(slots[:, :HEADER_BYTES]).view(HEADER)[:, 0]


def parts_of(headers: NDArray[np.void], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bytes of a message in each packet but the last, as each packet implies; int64."""
    packets = headers["packets"].astype(np.int64)
    last = (headers["number"].astype(np.int64) == packets - 1) & (packets > 1)
    before = headers["offset"].astype(np.int64) // np.maximum(packets - 1, 1)
    return np.where(last, before, lengths - HEADER_BYTES)


def faults_of(
    headers: NDArray[np.void], lengths: NDArray[np.int64], most: int
) -> NDArray[np.uint8]:
    """Find what is wrong with each packet, regardless of the others.

    Args:
        headers: headers of dtype :data:`HEADER`, shape ``(packets,)``.
        lengths: bytes of each packet, header included, shape ``(packets,)``.
        most: bytes of the largest accepted message.

    Returns:
        The :class:`PacketFault` of each packet, uint8, shape ``(packets,)``.
    """
    size, offset, number, packets = (
        headers[name].astype(np.int64) for name in ("size", "offset", "number", "packets")
    )
    payload_bytes = lengths - HEADER_BYTES
    part = parts_of(headers, lengths)
    fits = (number < packets) & (packets > 0) & (size > 0) & (part > 0)
    fits &= (packets == 1) | ((part % PART_MULTIPLE == 0) & (part >= LEAST_PART))
    fits &= (offset == number * part) & (payload_bytes == np.minimum(part, size - offset))
    fits &= ((packets - 1) * part < size) & (size <= packets * part)
    ours = (headers["magic"] == MAGIC) & (headers["version"] == VERSION)
    ours &= (headers["header"] == HEADER_BYTES) & (headers["zero"] == 0)
    # The first match counts: the fields of a foreign packet would give misleading reasons.
    return np.select(
        [lengths <= HEADER_BYTES, ~ours, ~fits, size > most],
        [PacketFault.SHORT, PacketFault.FOREIGN, PacketFault.MALFORMED, PacketFault.WRONG_SIZE],
        PacketFault.NONE,
    ).astype(np.uint8)
