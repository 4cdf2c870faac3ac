# SPDX-License-Identifier: Apache-2.0
"""A node's handlers: what it takes, what it splits off, what it passes on, what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.model.bits import pack
from n3ic.model.random_models import random_model
from n3ic.systems.cluster.binary import NeuronShare, Reducer, parts_of
from n3ic.systems.cluster.node import Node, split
from n3ic.systems.cluster.placement import LayerSplit, even_placement
from n3ic.systems.cluster.protocol import (
    BY_RANGE,
    ControlId,
    DataId,
    PacketType,
    ProtocolError,
    TaskId,
    TaskPacket,
    bits_packets,
    sums_packets,
)

MODEL = random_model((100, 96, 5), np.random.default_rng(3))
BITS = np.random.default_rng(4).random((70, 100)) < 0.5
ROWS = pack(BITS)


def node(number, nodes=3, splits=None, model=MODEL):
    placed = even_placement(model, nodes, splits)
    return Node(number, parts_of(model, placed, number), model.digest)


def task(row=0, start=0, end=96, destination=BY_RANGE):
    (packet,) = bits_packets(
        ROWS[[row]], task=TaskId.BITS, array=0, row=row, outputs=96, destination=destination
    )
    return replace(packet, start=start, end=end)


@pytest.mark.parametrize(
    ("own", "local", "rests"),
    [
        ((0, 10), (5, 10), [(10, 20)]),
        ((5, 20), (5, 20), []),
        ((0, 30), (5, 20), []),
        ((8, 9), (8, 9), [(5, 8), (9, 20)]),
        ((15, 99), (15, 20), [(5, 15)]),
        ((0, 5), None, [(5, 20)]),
        ((20, 30), None, [(5, 20)]),
    ],
)
def test_the_splitter_cuts_the_own_range_out(own, local, rests):
    packet = task(start=5, end=20)
    own_part, left = split(packet, *own)
    assert (own_part and (own_part.start, own_part.end)) == local
    assert [(p.start, p.end) for p in left] == rests
    assert all(p.body == packet.body and p.offset == packet.offset for p in left)


def test_a_task_is_done_where_its_data_lies_and_the_rest_passes_on():
    passed = node(2).handle(task())
    rests, new = passed[:2], passed[2:]
    assert [(p.start, p.end) for p in rests] == [(0, 32), (64, 96)]
    fired = MODEL.hidden[0].fire(ROWS[:1])[0]
    assert [(p.array, p.start, p.end, p.offset, p.count) for p in new] == [(1, 0, 5, 1, 1)]
    assert new[0].words.tolist() == [[int(fired[1])]]


def test_a_task_waits_frozen_until_its_row_is_complete():
    (whole,) = bits_packets(ROWS[:1], task=TaskId.BITS, array=0, row=0, outputs=96)
    halves = [
        replace(whole, count=2, offset=2, body=whole.body[8:16].ljust(48, b"\xff")),
        replace(whole, count=2, offset=0, body=whole.body[:8].ljust(48, b"\xff")),
    ]
    card = node(1)
    assert [p.array for p in card.handle(halves[0])] == [0]
    done = card.handle(halves[1])
    assert [p.array for p in done] == [0, 1]
    assert done[1].words.tolist() == MODEL.hidden[0].fire(ROWS[:1])[0][None, :1].tolist()
    assert [p.array for p in card.handle(halves[0])] == [0]  # another row of that tag begins
    card.clear()
    card.handle(halves[0])
    assert len(card.handle(halves[1])) == 2


def test_what_is_for_others_passes_untouched():
    card = node(2)
    for packet in (
        task(destination=3),
        task(start=0, end=32),
        replace(task(), array=9),
        replace(task(), identifier=TaskId.SUMS),
        TaskPacket(PacketType.DATA, DataId.SCORES, 0, 1, 0, 5),
        TaskPacket(PacketType.RDMA, DataId.WIDE, BY_RANGE, 0, 0, 5),
        TaskPacket(PacketType.CONTROL, ControlId.ERROR, 0, 0, 0, 0),
    ):
        assert card.handle(packet) == [packet]
    assert not card.ended
    end = TaskPacket(PacketType.CONTROL, ControlId.TERMINATE, BY_RANGE, 0, 0, 0)
    assert card.handle(end) == [end]
    assert card.ended


def test_inputs_are_taken_by_those_who_hold_them_from_within_a_packet():
    splits = (LayerSplit.INPUT, LayerSplit.OUTPUT)
    packets = list(bits_packets(ROWS[:1], task=TaskId.INPUTS, array=0, row=0, outputs=96))
    seen = set()
    for number in (1, 2, 3):
        left = [p for packet in packets for p in node(number, splits=splits).handle(packet)]
        packets = [p for p in left if p.identifier is TaskId.INPUTS]
        seen |= {p.offset for p in left if p.identifier is TaskId.SUMS}
    assert packets == []
    assert seen == {0, 1, 2}


def test_partial_popcounts_add_up_to_the_layer():
    splits = (LayerSplit.INPUT, LayerSplit.OUTPUT)
    placed = even_placement(MODEL, 3, splits)
    (reducer,) = [h for h in parts_of(MODEL, placed, 1) if isinstance(h, Reducer)]
    layer = MODEL.hidden[0]
    out = []
    for share in placed.layers[0].shares:
        part = BITS[0, share.start : share.end] == layer.weights[:32, share.start : share.end]
        counts = part.sum(axis=1).astype(np.int32)[None]
        for packet in sums_packets(counts, array=0, row=0, offset=share.start // 32):
            out += reducer.perform_task(packet)
    assert out[0].words.tolist() == [[int(layer.fire(ROWS[:1])[0][0])]]


def full_row_again(card):
    card.handle(replace(task(), count=2))
    card.handle(replace(task(), count=2))


def too_many_rows(card):
    for row in range(65):
        card.handle(replace(task(row), count=2))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda card: card.handle(replace(task(), offset=1)), "words 1 to 5 of 4"),
        (full_row_again, "words 0 to 2"),
        (too_many_rows, "more than 64 rows"),
        (lambda card: card.handle(task(start=0, end=200, destination=2)), "is not held by node 2"),
        (lambda card: card.handle(replace(task(), array=5, destination=2)), "holds nothing"),
        (
            lambda card: card.handle(replace(task(), body=b"\xff" * 48)),
            "pad bits of layer 0 are set",
        ),
        (lambda card: card.handle(TaskPacket(PacketType.DATA, DataId.WIDE, 2, 0, 0, 5)), "data of"),
    ],
)
def test_what_cannot_be_is_an_error_and_no_number(wrong, message):
    with pytest.raises(ProtocolError, match=message):
        wrong(node(2))


def sums(offset=0, row=0):
    return next(iter(sums_packets(np.ones((1, 16), np.int32), array=0, row=row, offset=offset)))


@pytest.mark.parametrize(
    ("packets", "message"),
    [
        ([sums(offset=7)], "no part at word 7"),
        ([sums(), sums()], "arrived twice"),
        ([sums(row=r) for r in range(65)], "more than 64 rows"),
    ],
)
def test_sums_that_cannot_be(packets, message):
    placed = even_placement(MODEL, 3, (LayerSplit.INPUT, LayerSplit.OUTPUT))
    (reducer,) = [h for h in parts_of(MODEL, placed, 1) if isinstance(h, Reducer)]
    with pytest.raises(ProtocolError, match=message):
        for packet in packets:
            reducer.perform_task(packet)


@pytest.mark.parametrize("change", [{"start": 8}, {"start": 0, "end": 800}])
def test_inputs_that_cannot_be(change):
    placed = even_placement(MODEL, 1, (LayerSplit.INPUT, LayerSplit.OUTPUT))
    (packet,) = bits_packets(ROWS[:1], task=TaskId.INPUTS, array=0, row=0, outputs=96)
    share = parts_of(MODEL, placed, 1)[0]
    with pytest.raises(ProtocolError):
        share.perform_task(replace(packet, **change))


def test_a_share_without_a_compiled_kernel_computes_the_same(monkeypatch):
    monkeypatch.setenv("N3IC_NATIVE", "0")
    masked = random_model((70, 33, 3), np.random.default_rng(0), density=0.4)
    placed = even_placement(masked, 2)
    (share,) = [
        h for h in parts_of(masked, placed, 2) if isinstance(h, NeuronShare) and h.array == 0
    ]
    x = pack(np.random.default_rng(1).random((1, 70)) < 0.5)
    packets = bits_packets(x, task=TaskId.BITS, array=0, row=0, outputs=33)
    (answer,) = [p for packet in packets for p in share.perform_task(packet)]
    assert answer.words[0, 0] == masked.hidden[0].fire(x)[0][1]
