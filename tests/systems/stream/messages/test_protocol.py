# SPDX-License-Identifier: Apache-2.0
"""The format of messages over UDP, and what becomes of packets that break it."""

import numpy as np
import pytest

from n3ic.systems.stream.messages.assembly import AssemblyLimits, MessageAssembly
from n3ic.systems.stream.messages.protocol import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PacketFault,
    faults_of,
    headers_of,
    last_bytes,
    packets_of,
)
from n3ic.systems.stream.messages.rows import BatchRows

MOST = 1 << 20


def message(size=1000, part=256, number=7, seed=0):
    """Packets, lengths and bytes of a message."""
    data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    packets = packets_of(number, data, part)
    lengths = np.full(len(packets), HEADER_BYTES + part)
    lengths[-1] = last_bytes(size, part)
    return packets, lengths, data


class Receiving:
    """An assembly whose rows are arrays."""

    def __init__(self, rows=4, **limits):
        limits = {"message_bytes": MOST, "exact": False} | limits
        self.rows = BatchRows(rows, 1)
        self.assembly = MessageAssembly(
            AssemblyLimits(**limits), self.rows.take_row, self.rows.give_back
        )
        self.memory = np.zeros((rows, MOST), dtype=np.uint8)
        self.complete = []

    def add(self, packets, lengths, sender=1, now=0):
        senders = np.full(len(packets), sender, dtype=np.uint64)
        placed = self.assembly.add(headers_of(packets), np.asarray(lengths), senders, now)
        for i, row, offset, length in zip(
            placed.index, placed.rows, placed.offsets, placed.lengths, strict=True
        ):
            end = HEADER_BYTES + length
            self.memory[row, offset : offset + length] = packets[i, HEADER_BYTES:end]
        for placed_message in placed.complete:
            self.complete.append(
                (placed_message, self.memory[placed_message.row, : placed_message.size].copy())
            )
            self.rows.complete(placed_message.row)
            self.rows.release(placed_message.row)
        return placed

    @property
    def refused(self):
        return {fault.name: n for fault, n in self.assembly.counts.refused.items()}


@pytest.mark.parametrize("size", [1, 3, 255, 256, 257, 1000, 5000])
def test_packets_give_the_message_back(size):
    packets, lengths, data = message(size)
    assert (faults_of(headers_of(packets), lengths, MOST) == 0).all()
    assert lengths.sum() - HEADER_BYTES * len(packets) == size
    receiving = Receiving()
    receiving.add(packets, lengths)
    ((placed_message, memory),) = receiving.complete
    assert (placed_message.number, placed_message.size) == (7, size)
    assert (memory == data).all()


def test_the_header_is_what_the_page_says():
    packets, _, _ = message(600, number=0x0102030405060708)
    second = packets[1].tobytes()[:HEADER_BYTES]
    assert second == bytes.fromhex(
        "6e33736d 01 20 0000 0102030405060708 00000258 00000100 00000001 00000003"
    )


@pytest.mark.parametrize("part", [0, 12, 18, 65_508])
def test_parts_that_are_no_words_or_too_large_are_refused(part):
    with pytest.raises(ValueError, match="multiple of 4 from 16"):
        packets_of(1, b"abc", part)


def test_order_does_not_matter_and_doubles_are_counted():
    packets, lengths, data = message(5000)
    order = np.random.default_rng(1).permutation(len(packets))
    twice = np.concatenate([order[:10], order[:4], order[2:3], order[10:]])
    receiving = Receiving()
    for part in np.array_split(twice, 5):
        receiving.add(packets[part], lengths[part])
    ((_, memory),) = receiving.complete
    assert (memory == data).all()
    assert receiving.refused == {"DOUBLED": 5}
    receiving.add(packets[:3], lengths[:3])  # after the end
    assert receiving.refused == {"DOUBLED": 5, "LATE": 3}
    assert len(receiving.complete) == 1


def test_a_doubled_packet_does_not_replace_the_first():
    packets, lengths, data = message(1000)
    other = packets.copy()
    other[:, HEADER_BYTES:] ^= 255
    receiving = Receiving()
    receiving.add(np.concatenate([packets[:2], other[:2]]), [*lengths[:2], *lengths[:2]])
    receiving.add(packets[2:], lengths[2:])
    assert (receiving.complete[0][1] == data).all()


def test_messages_of_two_senders_with_one_number_stay_apart():
    first, lengths, data = message(2000, seed=1)
    second, _, other = message(2000, seed=2)
    receiving = Receiving()
    for i in range(len(first)):
        receiving.add(first[i : i + 1], lengths[i : i + 1], sender=1)
        receiving.add(second[i : i + 1], lengths[i : i + 1], sender=2)
    memories = {m.sender: memory for m, memory in receiving.complete}
    assert (memories[1] == data).all()
    assert (memories[2] == other).all()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("magic", MAGIC ^ 1, "FOREIGN"),
        ("version", 2, "FOREIGN"),
        ("header", 64, "FOREIGN"),
        ("zero", 1, "FOREIGN"),
        ("size", 0, "MALFORMED"),
        ("size", 2**32 - 1, "MALFORMED"),
        ("offset", 0, "MALFORMED"),
        ("offset", 257, "MALFORMED"),
        ("offset", 2**32 - 256, "MALFORMED"),
        ("number", 4, "MALFORMED"),
        ("number", 2**32 - 1, "MALFORMED"),
        ("packets", 0, "MALFORMED"),
        ("packets", 2**32 - 1, "MALFORMED"),
        ("packets", 1, "MALFORMED"),
    ],
)
def test_a_field_that_cannot_be_true_is_refused(field, value, reason):
    packets, lengths, _ = message(1000)
    header = headers_of(packets[1:2]).copy()
    header[field] = value
    packets[1, :HEADER_BYTES] = header.view(np.uint8)
    receiving = Receiving()
    receiving.add(packets[1:2], lengths[1:2])
    assert receiving.refused == {reason: 1}
    assert len(receiving.assembly) == 0


def forged(**fields):
    """A packet of 256 bytes that claims what it is told."""
    packets, lengths, _ = message(1000)
    header = headers_of(packets[1:2]).copy()
    for field, value in fields.items():
        header[field] = value
    packets[1, :HEADER_BYTES] = header.view(np.uint8)
    return packets[1:2], lengths[1:2]


def test_a_huge_claim_takes_no_memory():
    receiving = Receiving()
    receiving.add(*forged(size=2**32 - 1, packets=2**24))  # true in itself
    assert receiving.refused == {"WRONG_SIZE": 1}
    assert len(receiving.assembly) == 0


def test_packets_that_would_overlap_are_refused():
    packets, lengths, data = message(1000, part=256)
    others, other_lengths, _ = message(1000, part=128)
    receiving = Receiving()
    receiving.add(packets[:1], lengths[:1])
    receiving.add(others, other_lengths)
    receiving.add(*forged(size=1001))
    receiving.add(packets[1:], lengths[1:])
    assert receiving.refused == {"CONFLICTING": len(others) + 1}
    assert (receiving.complete[0][1] == data).all()


@pytest.mark.parametrize("length", [0, 1, 31, 32])
def test_a_cut_packet_is_refused(length):
    packets, lengths, _ = message(1000)
    receiving = Receiving()
    receiving.add(packets[:1], [length])
    assert receiving.refused == {"SHORT": 1}
    receiving.add(packets[:1], lengths[:1] - 1)  # a payload that lacks a byte
    assert receiving.refused == {"SHORT": 1, "MALFORMED": 1}


def test_random_bytes_never_break_it():
    rng = np.random.default_rng(3)
    receiving = Receiving(rows=2, per_sender=2)
    good, _, _ = message(1000)
    for _ in range(30):
        packets = good[rng.integers(0, 4, 64)]
        at = rng.integers(0, HEADER_BYTES, (64, 2))
        packets[np.arange(64)[:, None], at] = rng.integers(0, 256, (64, 2))
        receiving.add(packets, rng.integers(0, 289, 64), sender=int(rng.integers(3)))
    counts = receiving.assembly.counts
    assert counts.packets == 30 * 64
    assert counts.accepted + sum(counts.refused.values()) == counts.packets
    assert len(receiving.assembly) <= 2


def test_a_message_that_stays_incomplete_expires_once_and_frees_its_row():
    packets, lengths, data = message(1000)
    receiving = Receiving(rows=1, timeout_s=2.0)
    receiving.add(packets[:3], lengths[:3], now=0)
    assert receiving.assembly.expire(2_000_000_000) == []
    (over,) = receiving.assembly.expire(2_000_000_001)
    assert over.missing == 1
    assert receiving.assembly.counts.expired == 1
    receiving.add(packets[3:], lengths[3:], now=2_000_000_002)
    assert receiving.refused == {"EXPIRED": 3, "LATE": 1}
    again, _, _ = message(1000, number=8)
    receiving.add(again, lengths, now=2_000_000_003)
    assert (receiving.complete[0][1] == data).all()


def test_without_room_a_message_is_refused_whole():
    receiving = Receiving(rows=1)
    packets, lengths, _ = message(1000, number=1)
    receiving.add(packets[:1], lengths[:1])
    other, _, _ = message(1000, number=2)
    receiving.add(other[:2], lengths[:2])
    receiving.add(packets[1:], lengths[1:])  # now the row is free again
    receiving.add(other[2:], lengths[2:])
    assert receiving.refused == {"NO_ROOM": 4}
    assert receiving.assembly.counts.no_room == 1
    assert [m.number for m, _ in receiving.complete] == [1]


def test_one_sender_cannot_take_all_rows():
    receiving = Receiving(rows=4, per_sender=2)
    for number in range(3):
        packets, lengths, _ = message(1000, number=number)
        receiving.add(packets[:1], lengths[:1], sender=1)
    assert receiving.refused == {"NO_ROOM": 1}
    receiving.add(packets, lengths, sender=2)
    assert [m.sender for m, _ in receiving.complete] == [2]


def test_what_is_remembered_of_ended_messages_is_bounded():
    receiving = Receiving(remembered=8)
    for number in range(50):
        receiving.add(*message(64, number=number)[:2])
    assert len(receiving.assembly._ended) == 8
    assert len(receiving.complete) == 50


def test_an_exact_size_is_held():
    receiving = Receiving(message_bytes=1000, exact=True)
    packets, lengths, _ = message(996)
    receiving.add(packets, lengths)
    assert receiving.refused == {"WRONG_SIZE": 4}


def test_fields_are_where_the_table_has_them():
    offsets = {name: HEADER.fields[name][1] for name in HEADER.names}
    assert list(offsets.values()) == [0, 4, 5, 6, 8, 16, 20, 24, 28]
    assert HEADER.itemsize == HEADER_BYTES
    assert PacketFault.NONE == 0


class TestBatchRows:
    def test_batches_are_filled_one_after_the_other(self):
        rows = BatchRows(2, 2)
        assert [rows.take_row() for _ in range(5)] == [0, 1, 2, 3, None]
        assert rows.complete(1) is None
        assert rows.complete(0) == [0, 1]
        rows.release(0)
        assert rows.take_row() == 0

    def test_a_row_given_back_goes_to_the_oldest_batch(self):
        rows = BatchRows(3, 2)
        taken = [rows.take_row() for _ in range(3)]
        rows.give_back(1)
        assert taken == [0, 1, 2]
        assert rows.take_row() == 1
        assert rows.take_row() == 3

    def test_what_is_complete_is_flushed(self):
        rows = BatchRows(2, 3)
        for _ in range(4):
            rows.take_row()
        for row in (3, 2, 0):
            rows.complete(row)
        assert rows.flush() == [[0, 2], [3]]
        assert rows.flush() == []
