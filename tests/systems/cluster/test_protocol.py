# SPDX-License-Identifier: Apache-2.0
"""Packets and datagrams to the bit, and bytes that are none."""

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from n3ic.systems.cluster.link import Sender
from n3ic.systems.cluster.protocol import (
    BY_RANGE,
    HEADER_BYTES,
    IDENTIFIERS,
    MAX_PACKETS,
    PACKET_BYTES,
    ControlId,
    Datagram,
    DataId,
    PacketType,
    ProtocolError,
    TaskId,
    TaskPacket,
    Tile,
    bits_packets,
    score_packets,
    sums_packets,
    tile_of,
)

TASK = TaskPacket(
    PacketType.TASK,
    TaskId.BITS,
    BY_RANGE,
    array=7,
    start=0x01020304,
    end=0x05060708,
    row=0xABCD,
    count=12,
    offset=0xEF1,
    body=bytes(range(48)),
    lap=True,
)


@st.composite
def packets(draw):
    kind = draw(st.sampled_from(PacketType))
    start = draw(st.integers(0, 2**32 - 2))
    return TaskPacket(
        kind,
        draw(st.sampled_from(list(IDENTIFIERS[kind]))),
        destination=draw(st.integers(0, 255)),
        array=draw(st.integers(0, 255)),
        start=start,
        end=draw(st.integers(start + 1, 2**32 - 1)),
        row=draw(st.integers(0, 2**16 - 1)),
        count=draw(st.integers(0, 12)),
        offset=draw(st.integers(0, 2**12 - 1)),
        body=draw(st.binary(min_size=48, max_size=48)),
        lap=draw(st.booleans()),
    )


@st.composite
def datagrams(draw):
    task_packets = draw(st.lists(packets(), max_size=4))
    sequence = draw(st.integers(0, 2**32 - 1)) if task_packets else 0
    acknowledge = draw(st.none() | st.integers(0, 2**32 - 1))
    return Datagram(
        session=draw(st.integers(0, 2**32 - 1)),
        sender=draw(st.integers(0, 255)),
        receiver=draw(st.integers(0, 255)),
        sequence=sequence,
        acknowledge=acknowledge,
        selective=0 if acknowledge is None else draw(st.integers(0, 2**32 - 1)),
        begin=bool(task_packets) and sequence == 0 and draw(st.booleans()),
        packets=tuple(task_packets),
    )


def sealed(data):
    return data + zlib.crc32(data).to_bytes(4, "big")


def test_a_packet_to_the_bit():
    data = TASK.encode()
    assert data.hex() == (
        "8101ff07" "01020304" "05060708" "abcd" "cef1" + bytes(range(48)).hex()
    )  # fmt: skip
    assert TaskPacket.decode(data) == TASK


def test_a_datagram_to_the_bit():
    data = Datagram(
        0x11223344, 1, 2, sequence=0, acknowledge=5, selective=9, begin=True, packets=(TASK,)
    ).encode()
    head = "4e3301c1112233440102000000000000000500000009"
    assert data[:22].hex() == head
    assert data[22:-4] == TASK.encode()
    assert data[-4:] == zlib.crc32(data[:-4]).to_bytes(4, "big")
    # Ethernet, IPv4 and UDP before it: the packet begins on a beat of 32 bytes
    assert 14 + 20 + 8 + HEADER_BYTES == 64


@given(datagrams())
def test_round_trip(datagram):
    assert Datagram.decode(datagram.encode()) == datagram


@given(datagrams(), st.data())
def test_a_changed_bit_is_found(datagram, data):
    raw = bytearray(datagram.encode())
    at = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[at // 8] ^= 1 << at % 8
    with pytest.raises(ProtocolError):
        Datagram.decode(bytes(raw))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_datagram_or_an_error(data):
    for candidate in (data, sealed(data), sealed(b"N3\1" + data)):
        try:
            datagram = Datagram.decode(candidate)
        except ProtocolError:
            continue
        assert datagram.encode() == candidate


@pytest.mark.parametrize(
    ("at", "byte", "message"),
    [
        (0, 0x00, "packet type 0 with"),
        (0, 0x05, "packet type 5"),
        (0, 0x11, "reserved bits"),
        (1, 0x00, "type 1 with identifier 0"),
        (1, 0x09, "type 1 with identifier 9"),
        (4, 0xFF, "expected a range with start below end"),
        (14, 0xD0, "a count of 13"),
    ],
)
def test_a_packet_that_cannot_be(at, byte, message):
    data = bytearray(replace(TASK, lap=False).encode())
    data[at] = byte
    with pytest.raises(ProtocolError, match=message):
        TaskPacket.decode(bytes(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"magic": 0}, "not a datagram of n3ic"),
        ({"version": 2}, "version 2"),
        ({"flags": 0x20}, "a datagram of 0 packets cannot have 26 bytes"),
        ({"flags": 0x01}, "a datagram of 1 packets cannot have 26 bytes"),
        ({"flags": 23, "more": 23 * PACKET_BYTES}, "a datagram of 23 packets"),
        ({"acknowledge": 1}, "without its flag"),
        ({"selective": 1}, "without its flag"),
        ({"sequence": 1}, "without a packet"),
        ({"flags": 0x80}, "begins with packets"),
    ],
)
def test_a_datagram_that_cannot_be(change, message):
    names = ("magic", "version", "flags", "session", "sender", "receiver", "sequence")
    fields = dict.fromkeys((*names, "acknowledge", "selective"), 0)
    fields |= {"magic": 0x4E33, "version": 1} | change
    more = bytes(fields.pop("more", 0))
    with pytest.raises(ProtocolError, match=message):
        Datagram.decode(sealed(struct.pack(">HBBIBBIII", *fields.values()) + more))


def test_a_datagram_cut_short():
    data = Datagram(1, 1, 2, packets=(TASK,)).encode()
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            Datagram.decode(data[:size])
    with pytest.raises(ValueError, match="at most 22 packets, got 23"):
        Datagram(1, 1, 2, packets=(TASK,) * (MAX_PACKETS + 1)).encode()


def test_bits_travel_in_slices_of_twelve_words():
    words = np.arange(1, 30, dtype=np.uint32)
    task_packets = list(
        bits_packets(words[None], task=TaskId.BITS, array=2, row=5, outputs=70, offset=3)
    )
    assert [(p.start, p.end, p.offset, p.count) for p in task_packets] == [
        (0, 70, 3, 12),
        (0, 70, 15, 12),
        (0, 70, 27, 5),
    ]
    read = [TaskPacket.decode(p.encode()) for p in task_packets]
    assert np.concatenate([p.words[0] for p in read]).tolist() == words.tolist()
    task_packets = list(
        bits_packets(words[None], task=TaskId.INPUTS, array=2, row=5, outputs=70, offset=3)
    )
    assert [(p.start, p.end) for p in task_packets] == [(96, 480), (480, 864), (864, 1024)]


def test_sums_stay_in_groups_of_sixteen():
    sums = np.arange(65500, 65536, dtype=np.int32)
    task_packets = list(sums_packets(sums[None], array=1, row=2, offset=4, start=8))
    assert [(p.start, p.end) for p in task_packets] == [(8, 16), (16, 32), (32, 44)]
    assert np.concatenate([p.sums[0] for p in task_packets]).tolist() == sums.tolist()
    # the splitter narrows a range and leaves the body as it is
    assert replace(task_packets[1], start=20, end=22).sums[0].tolist() == sums[12:14].tolist()
    with pytest.raises(ProtocolError, match="not in one packet"):
        _ = replace(task_packets[1], end=33).sums


def test_scores_are_signed():
    scores = np.array([-(2**31), -1, 0, 2**31 - 1, *range(10)], dtype=np.int32)
    task_packets = list(score_packets(scores[None], array=3, row=9))
    assert [(p.start, p.end, p.destination) for p in task_packets] == [(0, 12, 0), (12, 14, 0)]
    assert np.concatenate([p.scores[0] for p in task_packets]).tolist() == scores.tolist()
    with pytest.raises(ProtocolError, match="not in one packet"):
        _ = replace(task_packets[0], end=13).scores


def tile(identifier=TaskId.BITS, rows=3, numbers=5, limit=256, **changes):
    """A tile of numbers from 1, as its own bytes."""
    kind = PacketType.DATA if identifier is DataId.SCORES else PacketType.TASK
    is_input = identifier is TaskId.INPUTS
    end = 64 + numbers * (32 if is_input else 1)
    packet = TaskPacket(kind, identifier, 255, 1, 64, end, 7, 0, 2, b"")
    values = np.arange(1, rows * numbers + 1).reshape(rows, numbers)
    if identifier in (TaskId.BITS, TaskId.INPUTS):
        packet = replace(packet, count=numbers)
    return replace(tile_of(values, limit, packet), **changes)


@pytest.mark.parametrize("identifier", [TaskId.BITS, TaskId.INPUTS, TaskId.SUMS, DataId.SCORES])
@pytest.mark.parametrize(("rows", "numbers"), [(1, 1), (3, 5), (64, 1), (2, 99)])
def test_a_tile_comes_back_from_its_datagram(identifier, rows, numbers):
    packet = tile(identifier, rows, numbers, limit=1400, lap=True)
    whole = Datagram(4, 1, 2, 9, packets=(packet,))
    assert Datagram.decode(whole.encode()) == whole
    assert len(whole.encode()) == HEADER_BYTES + packet.size + 4
    assert (packet.rows, packet.tile_bytes) == (rows, 1400)
    is_data = identifier is DataId.SCORES
    name = "scores" if is_data else "sums" if identifier is TaskId.SUMS else "words"
    numbers_of = getattr(packet, name)
    assert numbers_of.ravel().tolist() == [*range(1, rows * numbers + 1)]
    assert numbers_of.shape == (rows, numbers)
    other = "scores" if identifier is TaskId.SUMS else "sums"
    with pytest.raises(ProtocolError, match="has no such numbers"):
        getattr(packet, other)


def test_a_part_of_a_tile_carries_its_own_numbers():
    part = tile(TaskId.SUMS).ranged(65, 67)
    assert (part.start, part.end, part.offset, part.sums.tolist()) == (
        65, 67, 2, [[2, 3], [7, 8], [12, 13]]
    )  # fmt: skip
    part = tile(TaskId.INPUTS).ranged(128, 224)
    assert (part.offset, part.count) == (4, 3)
    assert part.words.tolist() == [[3, 4, 5], [8, 9, 10], [13, 14, 15]]
    assert Tile.decode(part.encode()) == part
    whole = tile(TaskId.BITS)
    assert whole.ranged(65, 66) == replace(whole, start=65, end=66)
    with pytest.raises(ProtocolError, match="not whole words"):
        tile(TaskId.INPUTS).ranged(64, 100)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (tile(tile_rows=0), "1 to 64 rows, got 0"),
        (tile(tile_rows=65), "1 to 64 rows, got 65"),
        (tile(tile_rows=2, body=bytes(4 * 3)), "has 12 bytes"),
        (tile(body=b""), "cut short"),
        (tile(end=64), "start below end"),
        (tile(limit=255), "tiles of at most 255 bytes"),
        (tile(limit=1 << 20), "tiles of at most 1048576 bytes"),
        (tile(TaskId.SUMS, end=70), "a tile of 3 rows"),
        (tile(TaskId.INPUTS, end=480), "a tile of 3 rows"),
        (tile(DataId.SCORES, end=90), "a tile of 3 rows"),
        (replace(tile(), identifier=TaskId.VALUES), "no tiles are of type"),
        (
            replace(tile(), type=PacketType.CONTROL, identifier=ControlId.START),
            "no tiles are of type",
        ),
    ],
)
def test_tiles_that_cannot_be(wrong, message):
    with pytest.raises(ProtocolError, match=message):
        Tile.decode(wrong.encode())
    if wrong.body:
        with pytest.raises(ProtocolError, match=message):
            Datagram.decode(Datagram(1, 1, 2, 1, packets=(wrong,)).encode())


def test_a_tile_travels_alone():
    with pytest.raises(ValueError, match="a tile alone"):
        Datagram(1, 1, 2, packets=(tile(), TASK)).encode()
    sender = Sender(1, 0, 1)
    control = TaskPacket(PacketType.CONTROL, ControlId.START, 255, 0, 0, 0)
    sender.push([control, TASK, TASK, tile(), tile(), TASK])
    assert [len(d.packets) for d in sender.due(0.0)] == [1, 2, 1, 1, 1]


def test_tiles_in_flight_fit_a_sockets_buffer():
    sender = Sender(1, 0, 1)
    large = tile(rows=64, numbers=64, limit=1 << 14)
    sender.push([large] * 9)
    assert [d.sequence for d in sender.due(0.0)] == [0, 1, 2]
    sender.acknowledged(1, 0, 0.001)
    assert [d.sequence for d in sender.due(0.001)] == [3]
    huge = tile(rows=64, numbers=255, limit=65_400)
    alone = Sender(1, 0, 1)
    alone.push([huge] * 2)
    assert [d.sequence for d in alone.due(0.0)] == [0]


def test_the_reference_names_every_identifier():
    page = Path(__file__).parents[3] / "docs" / "reference" / "cluster-protocol.md"
    text = page.read_text(encoding="utf-8")
    for kind in (TaskId, DataId, ControlId):
        for named in kind:
            assert f"`{named.name}`" in text, named


def test_a_tag_is_of_its_key_and_of_every_byte():
    datagram = Datagram(5, 1, 2, sequence=3, packets=(tile(),))
    data = datagram.encode(b"key")
    assert Datagram.decode(data, b"key") == datagram
    forged = datagram.encode(b"other"), datagram.encode(), data[:-1], data[:-12]
    flipped = (data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :] for i in range(len(data)))
    for wrong in (*forged, *flipped):
        with pytest.raises(ProtocolError, match="forged"):
            Datagram.decode(wrong, b"key")
    with pytest.raises(ProtocolError, match="cut short"):
        Datagram.decode(data[:30], b"key")
