# SPDX-License-Identifier: Apache-2.0
"""The cluster's protocol: task packets of 512 bits, tiles of many rows, and their datagrams.

The packets are those of FCsN (Guo et al., section IV-B: a 32-bit header and 480 bits of payload).
docs/reference/cluster-protocol.md describes layout, units and rules.
"""

from __future__ import annotations

import hmac
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from hashlib import blake2s
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.model.bits import WORD_BITS, Words

PACKET_BYTES = 64
BODY_BYTES = 48
BODY_WORDS = BODY_BYTES // 4
SUMS_PER_PACKET = 16
SCORES_PER_PACKET = BODY_WORDS
VALUES_PER_PACKET = BODY_WORDS
WIDE_PER_PACKET = BODY_WORDS // 2
NONZEROS_PER_PACKET = BODY_WORDS // 3
HOME = 0
"""Node number of the host that starts a session and receives its results."""
BY_RANGE = 255
"""Destination of a packet for every node that owns a part of its range."""
MAX_NODES = 254
MAX_ROW = (1 << 16) - 1
MAX_OFFSET = (1 << 12) - 1

_PACKET = struct.Struct(">BBBBIII48s")
_LAP = 0x80
_TYPE = 0x0F

MAGIC = 0x4E33
VERSION = 1
MAX_PACKETS = 22
"""Maximum packets per datagram: as many as fit an IPv4 packet of 1,500 bytes."""
_HEADER = struct.Struct(">HBBIBBIII")
HEADER_BYTES = _HEADER.size
_BEGIN, _ACK, _TILE, _COUNT = 0x80, 0x40, 0x20, 0x1F
_TILE_HEADER = struct.Struct(">BBBBIIHHHHI")
TILE_ROWS = 64
"""Maximum rows of a tile that carries its numbers."""
SHARED_ROWS = 4096
"""Maximum rows of a tile whose numbers lie in shared memory."""
TAG_BYTES = 16
"""Bytes of a keyed tag, which takes the place of the CRC-32."""
MAX_TILE_BYTES = 65_507 - HEADER_BYTES - _TILE_HEADER.size - TAG_BYTES
"""Maximum bytes of a tile's numbers: as many as fit a UDP datagram."""
WINDOW = 32
"""Maximum datagrams in flight on a link: as many as a selective acknowledgement can name."""


class ProtocolError(ClusterError):
    """Bytes that are not a datagram or a packet of this protocol."""


class PacketType(IntEnum):
    """Type of a packet: the three of FCsN, and control."""

    TASK = 1
    RDMA = 2
    DATA = 3
    CONTROL = 4


class TaskId(IntEnum):
    """Identifiers of tasks."""

    BITS = 1
    """Input bits for every neuron of the range."""
    INPUTS = 2
    """Input bits whose positions are the range."""
    SUMS = 3
    """Partial popcounts of the neurons of the range."""
    VALUES = 4
    """A slice of a dense row of integers, for every column of the range."""
    NONZEROS = 5
    """Non-zero elements of a sparse matrix, whose rows are in the range."""
    CONVOLVE = 6
    """Rows of a convolution to compute; the task carries nothing."""
    ACTIVATIONS = 7
    """Activations of the bytes of the range, for the next part of a network; only in tiles."""


class DataId(IntEnum):
    """Identifiers of data packets and of the RDMA tasks that request them."""

    SCORES = 3
    """Scores of the classes of the range."""
    WIDE = 4
    """Integers of 64 bits of one row of an array that is distributed by rows."""
    TOTALS = 5
    """Integers of 64 bits: the elements of a row that are in the range."""


class ControlId(IntEnum):
    """Identifiers of control packets."""

    START = 1
    STATUS = 2
    TERMINATE = 3
    ERROR = 4


IDENTIFIERS: dict[PacketType, type[IntEnum]] = {
    PacketType.TASK: TaskId,
    PacketType.RDMA: DataId,
    PacketType.DATA: DataId,
    PacketType.CONTROL: ControlId,
}


# One look-up decodes type and identifier; two enum calls would dominate the time of a packet.
_NAMED = {(kind, i.value): (kind, i) for kind, names in IDENTIFIERS.items() for i in names}


@dataclass(frozen=True, slots=True)
class TaskPacket:
    """A packet of 512 bits.

    Attributes:
        type: type of the packet.
        identifier: kind of task, data or control packet; see :data:`IDENTIFIERS`.
        destination: node number, or :data:`BY_RANGE`.
        array: number of the distributed array of the range: a layer, a matrix or a graph.
        start: first element of the range.
        end: one more than the last element; above ``start`` except in control packets.
        row: tag of the batch row to which it belongs.
        count: number of filled words of a body that carries bits.
        offset: position of the body's first word in the vector, in words of 32 bits.
        body: 48 bytes; numbers are big-endian.
        lap: whether the packet has passed the coordinator.
    """

    type: PacketType
    identifier: IntEnum
    destination: int
    array: int
    start: int
    end: int
    row: int = 0
    count: int = 0
    offset: int = 0
    body: bytes = bytes(BODY_BYTES)
    lap: bool = False

    @property
    def rows(self) -> int:
        """Number of rows that the packet carries."""
        return 1

    @property
    def tile_bytes(self) -> int:
        """Maximum bytes of numbers in a tile of its ring; 0 if the ring has packets of 512 bits."""
        return 0

    @property
    def shared(self) -> bool:
        """Whether the numbers lie in memory that the nodes share."""
        return False

    @property
    def size(self) -> int:
        """Number of bytes in a datagram."""
        return PACKET_BYTES

    def encode(self) -> bytes:
        """Serialise the packet to 64 bytes."""
        return _PACKET.pack(
            self.type | _LAP * self.lap,
            self.identifier,
            self.destination,
            self.array,
            self.start,
            self.end,
            self.row << 16 | self.count << 12 | self.offset,
            self.body,
        )

    @classmethod
    def decode(cls, data: bytes) -> TaskPacket:
        """Parse 64 bytes.

        Raises:
            ProtocolError: The bytes are not a packet; the error says why.
        """
        if len(data) != PACKET_BYTES:
            raise ProtocolError(f"a packet has {PACKET_BYTES} bytes, got {len(data)}")
        kind, identifier, destination, array, start, end, place, body = _PACKET.unpack(data)
        if kind & ~(_LAP | _TYPE):
            raise ProtocolError(f"reserved bits are set in the packet type {kind:#04x}")
        try:
            packet_type, named = _NAMED[kind & _TYPE, identifier]
        except KeyError:
            raise ProtocolError(
                f"packet type {kind & _TYPE} with identifier {identifier} does not exist"
            ) from None
        if packet_type is not PacketType.CONTROL and start >= end:
            raise ProtocolError(f"expected a range with start below end, got [{start}, {end})")
        count = place >> 12 & 0xF
        if count > BODY_WORDS:
            raise ProtocolError(f"a body has {BODY_WORDS} words, got a count of {count}")
        return cls(
            type=packet_type,
            identifier=named,
            destination=destination,
            array=array,
            start=start,
            end=end,
            row=place >> 16,
            count=count,
            offset=place & MAX_OFFSET,
            body=body,
            lap=bool(kind & _LAP),
        )

    def ranged(self, start: int, end: int) -> TaskPacket:
        """Return the same packet with another range."""
        # Built directly: dataclasses.replace() takes several times as long, and splits are
        # frequent.
        return TaskPacket(
            self.type,
            self.identifier,
            self.destination,
            self.array,
            start,
            end,
            self.row,
            self.count,
            self.offset,
            self.body,
            self.lap,
        )

    @property
    def words(self) -> Words:
        """The body's filled words: uint32 array of shape ``(rows, count)``."""
        return np.frombuffer(self.body, dtype=">u4", count=self.count).astype(np.uint32)[None]

    @property
    def sums(self) -> NDArray[np.int32]:
        """Partial popcounts of the neurons of the range: int32 array of shape ``(rows, neurons)``.

        Raises:
            ProtocolError: The range is not that of a body.
        """
        at = self.start % SUMS_PER_PACKET
        size = self.end - self.start
        if at + size > SUMS_PER_PACKET:
            raise ProtocolError(f"sums of [{self.start}, {self.end}) are not in one packet")
        sums = np.frombuffer(self.body, dtype=">u2", count=size, offset=2 * at)
        return sums.astype(np.int32)[None]

    @property
    def scores(self) -> NDArray[np.int32]:
        """Scores of the classes of the range: int32 array of shape ``(rows, classes)``.

        Raises:
            ProtocolError: The range is not that of a body.
        """
        size = self.end - self.start
        if size > SCORES_PER_PACKET:
            raise ProtocolError(f"scores of [{self.start}, {self.end}) are not in one packet")
        return np.frombuffer(self.body, dtype=">i4", count=size).astype(np.int32)[None]

    @property
    def totals(self) -> NDArray[np.int64]:
        """Integers of the elements of the range: int64 array."""
        size = self.end - self.start
        if size > WIDE_PER_PACKET:
            raise ProtocolError(f"totals of [{self.start}, {self.end}) are not in one packet")
        return np.frombuffer(self.body, dtype=">i8", count=size).astype(np.int64)


# Identifiers of different types are equal numbers, so the type is a part of the key.
_TILE_NUMBERS = {
    (PacketType.TASK, TaskId.BITS): ">u4",
    (PacketType.TASK, TaskId.INPUTS): ">u4",
    (PacketType.TASK, TaskId.SUMS): ">u2",
    (PacketType.TASK, TaskId.ACTIVATIONS): ">u1",
    (PacketType.DATA, DataId.SCORES): ">i4",
}


@dataclass(frozen=True, slots=True)
class Tile(TaskPacket):
    """A packet with the same numbers of several rows, for processes; a card takes none.

    ``row`` tags the tile. ``count`` is the number of words of each row in a tile of bits.

    Attributes:
        tile_rows: number of rows, 1 to :data:`TILE_ROWS`, or to :data:`SHARED_ROWS` if shared.
        limit: maximum bytes of numbers in the tiles that are computed from this one; 0 if the
            numbers of all lie in shared memory, and the body is empty.
    """

    tile_rows: int = 1
    limit: int = MAX_TILE_BYTES

    @property
    def rows(self) -> int:
        """Number of rows that the packet carries."""
        return self.tile_rows

    @property
    def tile_bytes(self) -> int:
        """Maximum bytes of numbers in a tile of its ring."""
        return self.limit

    @property
    def shared(self) -> bool:
        """Whether the numbers lie in memory that the nodes share."""
        return not self.limit

    @property
    def size(self) -> int:
        """Number of bytes in a datagram."""
        return _TILE_HEADER.size + len(self.body)

    def encode(self) -> bytes:
        """Serialise the tile: its header, then the numbers of each row."""
        head = _TILE_HEADER.pack(
            self.type | _LAP * self.lap,
            self.identifier,
            self.destination,
            self.array,
            self.start,
            self.end,
            self.row,
            self.tile_rows,
            self.offset,
            self.count,
            self.limit,
        )
        return head + self.body

    @classmethod
    def decode(cls, data: bytes) -> Tile:
        """Parse a tile.

        Raises:
            ProtocolError: The bytes are not a tile; the error says why.
        """
        if len(data) < _TILE_HEADER.size:
            raise ProtocolError(f"a tile of {len(data)} bytes is cut short")
        kind, identifier, destination, array, start, end, row, rows, offset, count, limit = (
            _TILE_HEADER.unpack_from(data)
        )
        key = _NAMED.get((kind & _TYPE, identifier))
        if kind & ~(_LAP | _TYPE) or key not in _TILE_NUMBERS:
            raise ProtocolError(f"no tiles are of type {kind:#04x} with identifier {identifier}")
        packet_type, named = key
        if start >= end:
            raise ProtocolError(f"expected a range with start below end, got [{start}, {end})")
        most = TILE_ROWS if limit else SHARED_ROWS
        if not 1 <= rows <= most:
            raise ProtocolError(f"a tile has 1 to {most} rows, got {rows}")
        # A tile of one number a row is the least that a node may have to make of this one.
        if limit and not 4 * TILE_ROWS <= limit <= MAX_TILE_BYTES:
            raise ProtocolError(f"tiles of at most {limit} bytes")
        body = data[_TILE_HEADER.size :]
        if limit and not body:
            raise ProtocolError("a tile without its numbers is cut short")
        is_bits = named is TaskId.BITS or named is TaskId.INPUTS
        columns = (end - start) // (WORD_BITS if is_bits else 1)
        counted = count == columns if named is TaskId.INPUTS else bool(count) == is_bits
        numbers = rows * (count or columns) if limit else 0
        if not counted or len(body) != numbers * int(_TILE_NUMBERS[key][-1]):
            raise ProtocolError(
                f"a tile of {rows} rows for [{start}, {end}) has {len(body)} bytes, {count} words"
            )
        return cls(
            packet_type,
            named,
            destination,
            array,
            start,
            end,
            row,
            count,
            offset,
            body,
            bool(kind & _LAP),
            rows,
            limit,
        )

    def ranged(self, start: int, end: int) -> Tile:
        """Return the tile for another range, with the numbers of that range alone.

        Raises:
            ProtocolError: The range does not consist of whole words of bits.
        """
        if self.identifier is TaskId.BITS:
            return replace(self, start=start, end=end)
        unit = WORD_BITS if self.identifier is TaskId.INPUTS else 1
        if start % unit or end % unit:
            raise ProtocolError(f"inputs [{start}, {end}) are not whole words")
        first, last = (start - self.start) // unit, (end - self.start) // unit
        body = b"" if self.shared else self._numbers[:, first:last].tobytes()
        part = replace(self, start=start, end=end, body=body)
        return part if unit == 1 else replace(part, count=last - first, offset=self.offset + first)

    @property
    def words(self) -> Words:
        """Words of each row: uint32 array of shape ``(rows, count)``."""
        return self._numbers.astype(np.uint32)

    @property
    def sums(self) -> NDArray[np.int32]:
        """Partial popcounts of the neurons of the range: int32 array of shape ``(rows, neurons)``.

        Raises:
            ProtocolError: The tile carries other numbers.
        """
        return self._ints(TaskId.SUMS)

    @property
    def scores(self) -> NDArray[np.int32]:
        """Scores of the classes of the range: int32 array of shape ``(rows, classes)``.

        Raises:
            ProtocolError: The tile carries other numbers.
        """
        return self._ints(DataId.SCORES)

    @property
    def activations(self) -> NDArray[np.uint8]:
        """Bytes of activations of the range: uint8 array of shape ``(rows, bytes)``.

        Raises:
            ProtocolError: The tile carries other numbers.
        """
        if self.identifier is not TaskId.ACTIVATIONS:
            raise ProtocolError(f"a tile of {self.identifier.name.lower()} has no activations")
        return self._numbers

    def _ints(self, identifier: IntEnum) -> NDArray[np.int32]:
        if self.identifier is not identifier:
            raise ProtocolError(f"a tile of {self.identifier.name.lower()} has no such numbers")
        return self._numbers.astype(np.int32)

    @property
    def _numbers(self) -> NDArray[Any]:
        numbers = np.frombuffer(self.body, dtype=_TILE_NUMBERS[self.type, self.identifier])
        return numbers.reshape(self.tile_rows, -1)


def body_of(numbers: NDArray[Any], kind: str) -> bytes:
    """Make a body of numbers, padded with zeros.

    Args:
        numbers: array of shape ``(n,)``.
        kind: big-endian numpy dtype of the numbers in the body.
    """
    return numbers.astype(kind).tobytes().ljust(BODY_BYTES, b"\0")


def tile_of(
    numbers: NDArray[Any], tile_bytes: int, packet: TaskPacket, shared: NDArray[Any] | None = None
) -> Tile:
    """Make a tile of numbers of shape ``(rows, n)``, with the other fields of a packet.

    Args:
        numbers: the numbers.
        tile_bytes: maximum bytes of numbers in a tile of the ring.
        packet: the other fields.
        shared: the numbers' place in shared memory; None if the tile carries them.
    """
    body = b""
    if shared is None:
        body = numbers.astype(_TILE_NUMBERS[packet.type, packet.identifier]).tobytes()
    else:
        shared[: len(numbers)] = numbers
    return Tile(
        packet.type,
        packet.identifier,
        packet.destination,
        packet.array,
        packet.start,
        packet.end,
        packet.row,
        packet.count,
        packet.offset,
        body,
        packet.lap,
        len(numbers),
        0 if shared is not None else tile_bytes,
    )


def _columns(
    numbers: NDArray[Any], tile_bytes: int, number_bytes: int, *, whole: bool
) -> Iterator[slice]:
    """Slices of the columns that fit a tile each; of all columns if ``whole``."""
    step = numbers.shape[1] if whole else tile_bytes // (number_bytes * len(numbers))
    return (slice(at, at + step) for at in range(0, numbers.shape[1], step))


def bits_packets(
    words: Words,
    *,
    task: TaskId,
    array: int,
    row: int,
    outputs: int,
    offset: int = 0,
    destination: int = BY_RANGE,
    lap: bool = False,
    tile_bytes: int = 0,
    shared: Words | None = None,
) -> Iterator[TaskPacket]:
    """Make the task packets that carry packed input bits to a layer.

    Args:
        words: uint32 array of shape ``(rows, n)``, packed as the layer's input; one row for packets
            of 512 bits.
        task: ``TaskId.BITS``, whose range is all neurons, or ``TaskId.INPUTS``, whose range is the
            bits that each packet carries.
        array: number of the layer.
        row: tag of the row.
        outputs: number of neurons of the layer.
        offset: position of the words in the layer's input, in words.
        destination: node number, or :data:`BY_RANGE`.
        lap: whether the sender is the coordinator.
        tile_bytes: maximum bytes of numbers in a tile; 0 for packets of 512 bits.
        shared: the layer's input in shared memory, which takes the words; None if packets do.
    """
    whole = shared is not None
    for columns in _columns(words, tile_bytes or BODY_BYTES, 4, whole=whole):
        part = words[:, columns]
        first, count = offset + columns.start, part.shape[1]
        inputs = task is TaskId.INPUTS
        start = WORD_BITS * first if inputs else 0
        end = start + WORD_BITS * count if inputs else outputs
        tiled = whole or tile_bytes
        body = b"" if tiled else body_of(part[0], ">u4")
        packet = TaskPacket(
            PacketType.TASK, task, destination, array, start, end, row, count, first, body, lap
        )
        place = None if shared is None else shared[:, first : first + count]
        yield tile_of(part, tile_bytes, packet, place) if tiled else packet


def sums_packets(
    sums: NDArray[np.int32],
    *,
    array: int,
    row: int,
    offset: int,
    start: int = 0,
    destination: int = BY_RANGE,
    tile_bytes: int = 0,
    shared: NDArray[np.uint16] | None = None,
) -> Iterator[TaskPacket]:
    """Make the task packets that carry partial popcounts to the reducers.

    Args:
        sums: int32 array of shape ``(rows, neurons)``, each in 0..65535; one row for packets of 512
            bits.
        array: number of the layer.
        row: tag of the row.
        offset: first of the counted input words; it identifies the part.
        start: the first neuron.
        destination: node number, or :data:`BY_RANGE`.
        tile_bytes: maximum bytes of numbers in a tile; 0 for packets of 512 bits.
        shared: the part's popcounts in shared memory; None if packets carry them.
    """
    if tile_bytes or shared is not None:
        for columns in _columns(sums, tile_bytes, 2, whole=shared is not None):
            part = sums[:, columns]
            first = start + columns.start
            last = first + part.shape[1]
            packet = TaskPacket(
                PacketType.TASK, TaskId.SUMS, destination, array, first, last, row, 0, offset, b""
            )
            yield tile_of(
                part, tile_bytes, packet, None if shared is None else shared[:, first:last]
            )
        return
    # Bodies are aligned to multiples of 16 neurons, so a reducer finds a neuron's sum in the body
    # from the range alone, even after the range was split.
    end = start + sums.shape[1]
    for group in range(start - start % SUMS_PER_PACKET, end, SUMS_PER_PACKET):
        first, last = max(group, start), min(group + SUMS_PER_PACKET, end)
        filled = np.zeros(SUMS_PER_PACKET, dtype=np.int32)
        filled[first - group : last - group] = sums[0, first - start : last - start]
        yield TaskPacket(
            PacketType.TASK,
            TaskId.SUMS,
            destination,
            array,
            first,
            last,
            row=row,
            offset=offset,
            body=body_of(filled, ">u2"),
        )


def score_packets(
    scores: NDArray[np.int32],
    *,
    array: int,
    row: int,
    start: int = 0,
    tile_bytes: int = 0,
    shared: NDArray[np.int32] | None = None,
) -> Iterator[TaskPacket]:
    """Make the data packets that carry scores home.

    Args:
        scores: int32 array of shape ``(rows, classes)``; one row for packets of 512 bits.
        array: number of the layer.
        row: tag of the row.
        start: the first class.
        tile_bytes: maximum bytes of numbers in a tile; 0 for packets of 512 bits.
        shared: the scores in shared memory; None if packets carry them.
    """
    for columns in _columns(scores, tile_bytes or BODY_BYTES, 4, whole=shared is not None):
        part = scores[:, columns]
        first = start + columns.start
        last = first + part.shape[1]
        tiled = tile_bytes or shared is not None
        body = b"" if tiled else body_of(part[0], ">i4")
        packet = TaskPacket(
            PacketType.DATA, DataId.SCORES, HOME, array, first, last, row, body=body
        )
        place = None if shared is None else shared[:, first:last]
        yield tile_of(part, tile_bytes, packet, place) if tiled else packet


def activation_tiles(
    activations: NDArray[np.uint8],
    *,
    array: int,
    row: int,
    node: int,
    tile_bytes: int,
    lap: bool = False,
    shared: NDArray[np.uint8] | None = None,
) -> Iterator[Tile]:
    """Make the tiles that carry activations to the node of a network's next part.

    Args:
        activations: uint8 array of shape ``(rows, bytes)``.
        array: number of the part.
        row: tag of the rows.
        node: number of the node.
        tile_bytes: maximum bytes of numbers in a tile.
        lap: whether the coordinator sends them.
        shared: the part's input in shared memory; None if tiles carry them.
    """
    for columns in _columns(activations, tile_bytes, 1, whole=shared is not None):
        part = activations[:, columns]
        end = columns.start + part.shape[1]
        packet = TaskPacket(
            PacketType.TASK, TaskId.ACTIVATIONS, node, array, columns.start, end, row, lap=lap
        )
        yield tile_of(part, tile_bytes, packet, shared)


def _tail(data: bytes, key: bytes) -> bytes:
    if key:
        return blake2s(data, key=key, digest_size=TAG_BYTES).digest()
    return zlib.crc32(data).to_bytes(4, "big")


@dataclass(frozen=True)
class Datagram:
    """The payload of one UDP datagram from a node to a neighbour.

    Attributes:
        session: number of the session; a greater number begins a new session.
        sender: node number of the sender.
        receiver: node number of the receiver.
        sequence: number of this datagram on its link, from 0; 0 if it carries no packet.
        acknowledge: sequence number that the sender expects next from the receiver; None if the
            datagram acknowledges nothing.
        selective: bit ``i`` is set if sequence ``acknowledge + 1 + i`` has arrived too.
        begin: whether this is the first datagram of a session on this link.
        packets: 0 to :data:`MAX_PACKETS` packets of 512 bits, or one tile.
    """

    session: int
    sender: int
    receiver: int
    sequence: int = 0
    acknowledge: int | None = None
    selective: int = 0
    begin: bool = False
    packets: tuple[TaskPacket, ...] = field(default=())

    def encode(self, key: bytes = b"") -> bytes:
        """Serialise the datagram: header, packets, and their tag, or the CRC-32 without a key."""
        if len(self.packets) > MAX_PACKETS:
            raise ValueError(f"expected at most {MAX_PACKETS} packets, got {len(self.packets)}")
        acknowledges = self.acknowledge is not None
        has_tile = any(isinstance(packet, Tile) for packet in self.packets)
        if has_tile and len(self.packets) > 1:
            raise ValueError(f"expected a tile alone, got {len(self.packets)} packets")
        flags = _BEGIN * self.begin | _ACK * acknowledges | _TILE * has_tile | len(self.packets)
        head = _HEADER.pack(
            MAGIC,
            VERSION,
            flags,
            self.session,
            self.sender,
            self.receiver,
            self.sequence,
            self.acknowledge or 0,
            self.selective,
        )
        data = head + b"".join(packet.encode() for packet in self.packets)
        return data + _tail(data, key)

    @classmethod
    def decode(cls, data: bytes, key: bytes = b"") -> Datagram:
        """Parse a datagram.

        Args:
            data: the datagram.
            key: key of the ring's tags; empty for a CRC-32.

        Raises:
            ProtocolError: The datagram is damaged, forged or of another protocol; the error says
                why.
        """
        end = len(data) - (TAG_BYTES if key else 4)
        if end < HEADER_BYTES:
            raise ProtocolError(f"a datagram of {len(data)} bytes is cut short")
        # This goes first: fields of a damaged datagram would give misleading errors.
        if not hmac.compare_digest(_tail(data[:end], key), data[end:]):
            what = "damaged or forged (BLAKE2s)" if key else "damaged (CRC-32)"
            raise ProtocolError(f"the datagram is {what}")
        magic, version, flags, session, sender, receiver, sequence, acknowledge, selective = (
            _HEADER.unpack_from(data)
        )
        if magic != MAGIC or version != VERSION:
            raise ProtocolError(f"magic {magic:#06x}, version {version}: not a datagram of n3ic")
        count, has_tile = flags & _COUNT, bool(flags & _TILE)
        fits = count == 1 if has_tile else end == HEADER_BYTES + PACKET_BYTES * count
        if count > MAX_PACKETS or not fits:
            raise ProtocolError(f"a datagram of {count} packets cannot have {len(data)} bytes")
        acknowledges = bool(flags & _ACK)
        if not acknowledges and (acknowledge or selective):
            raise ProtocolError("an acknowledgement without its flag")
        if not count and sequence:
            raise ProtocolError("a sequence number without a packet")
        begins = bool(flags & _BEGIN)
        # A session is a reset of the link, so nothing but its first packet may carry the flag.
        if begins and (sequence or not count):
            raise ProtocolError("a session begins with packets at sequence 0")
        packets: tuple[TaskPacket, ...]
        if has_tile:
            packets = (Tile.decode(data[HEADER_BYTES:end]),)
        else:
            starts = range(HEADER_BYTES, end, PACKET_BYTES)
            packets = tuple(TaskPacket.decode(data[at : at + PACKET_BYTES]) for at in starts)
        return cls(
            session=session,
            sender=sender,
            receiver=receiver,
            sequence=sequence,
            acknowledge=acknowledge if acknowledges else None,
            selective=selective,
            begin=begins,
            packets=packets,
        )
