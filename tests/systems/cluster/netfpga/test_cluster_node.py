# SPDX-License-Identifier: Apache-2.0
"""A ring of processes' stations and one Verilated card: the model's scores, whatever arrives."""

import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import ClusterError
from n3ic.model.bits import pack
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from n3ic.systems.cluster.netfpga.image import node_image
from n3ic.systems.cluster.netfpga.sources import TOP, node_sources
from n3ic.systems.cluster.placement import (
    LayerPlacement,
    LayerSplit,
    ModelPlacement,
    Share,
    even_placement,
)
from n3ic.systems.cluster.protocol import (
    BY_RANGE,
    HOME,
    ControlId,
    Datagram,
    PacketType,
    TaskId,
    TaskPacket,
    bits_packets,
)
from tests.support.card_rig import CARD_IP, MixedRing, endpoints, frame, opened
from tests.support.lone_card import CARD, INPUT, MODEL, PLACED, START, Alone, bits, placement

needs_verilator = pytest.mark.skipif(
    shutil.which("verilator") is None or shutil.which("g++") is None,
    reason="needs Verilator and g++",
)


def check_scores(model, placed, folder, **faults):
    """A ring with the card gives the model's scores; returns what the card counted."""
    ring = MixedRing(model, placed, CARD, folder, **faults)
    try:
        ring.start()
        words = verification_vectors(model, 40)
        words = words[:: max(1, len(words) // 24)]
        assert np.array_equal(ring.run(words), model.scores(words))
    finally:
        seen = ring.rig.stop()
    return seen


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize("name", PLACED)
def test_a_card_in_a_ring_gives_the_models_scores(name, tmp_path):
    seen = check_scores(MODEL, placement(*PLACED[name]), tmp_path)
    assert seen.bad_frames == seen.bad_datagrams == seen.strays == seen.bad_packets == 0
    assert (seen.stored > 0) == (name != "nothing")


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize("name", ["neurons", "inputs"])
def test_a_card_counts_masked_connections(name, tmp_path):
    model = random_model(MODEL.shape, np.random.default_rng(4), density=0.4)
    placed = replace(placement(*PLACED[name]), model=model.digest)
    check_scores(model, placed, tmp_path)


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize("name", ["neurons", "inputs"])
def test_faults_change_no_score(name, tmp_path):
    """One datagram in twenty is lost, as many come twice or are damaged."""
    faults = {"seed": 5, "loss": 0.05, "repeat": 0.05, "damage": 0.05}
    seen = check_scores(MODEL, placement(*PLACED[name]), tmp_path, **faults)
    assert seen.bad_datagrams > 0
    assert seen.again > 0
    assert seen.resent > 0
    assert seen.bad_packets == 0


@pytest.fixture
def card(tmp_path):
    made = Alone(tmp_path)
    yield made
    if made.rig.process.poll() is None:
        made.rig.stop()


@pytest.fixture
def begun(card):
    card.begin()
    return card


@pytest.mark.slow
@needs_verilator
def test_hostile_frames_are_dropped(begun):
    """Each is dropped and counted where it is for the card; then the card works as before."""
    good = frame(begun.raw(bits(0)[0]))

    def changed(at, value):
        return good[:at] + value + good[at + len(value) :]

    def wrong(at):
        return changed(at, bytes([good[at] ^ 0x10]))

    for_the_card = [
        wrong(24),  # the header's checksum
        wrong(41),  # UDP's
        wrong(70),  # a byte of the packet
        wrong(131),  # the last one
        good[:-1],
        good[:60],
        good[:35],
        changed(16, b"\xff\xff"),
        changed(16, b"\x00\x1c"),
        changed(38, b"\xff\xff"),
        changed(38, b"\x00\x00"),
        changed(20, b"\x20\x00"),  # a fragment
        changed(23, b"\x06"),  # TCP
        frame(begun.raw(bits(0)[0]), target=(CARD_IP, 5998)),
        frame(b""),
        frame(b"\0" * 26),
        frame(begun.raw(bits(0)[0])[:-1]),
        frame(begun.raw(bits(0)[0]) + b"\0"),
        frame(begun.raw(*bits(0)[:1] * 2)),  # two packets
    ]
    others = [
        good[:33],
        good[:1],
        changed(12, b"\x86\xdd"),
        changed(12, b"\x81\x00"),
        changed(14, b"\x46"),  # options
        changed(0, b"\x02\x00\x00\x00\x00\x77"),
        frame(begun.raw(bits(0)[0]), target=("10.9.9.3", 5999)),
        bytes(1514),
        b"\xff" * 9000,
    ]
    for data in (*for_the_card, *others):
        begun.rig.send(data)
    begun.quiet()
    begun.send_packet(bits(0)[0])
    assert begun.packet() == replace(bits(0)[0], end=64)
    assert begun.packet() == replace(bits(0)[0], start=544)
    seen = begun.rig.stop()
    assert seen.stored == 1
    assert seen.bad_datagrams + seen.bad_frames == len(for_the_card)


@pytest.mark.slow
@needs_verilator
def test_the_udp_checksum_may_be_left_out(begun):
    good = frame(begun.raw(bits(0)[0]))
    begun.rig.send(good[:40] + b"\0\0" + good[42:])
    begun.sequence += 1
    begun.acknowledged()


@pytest.mark.slow
@needs_verilator
def test_datagrams_of_others_are_strays(begun):
    packet = bits(0)[0]
    strays = [
        begun.raw(packet, session=8),
        begun.raw(packet, session=10),
        begun.raw(packet, sender=3),
        begun.raw(packet, sender=0),
        begun.raw(packet, receiver=1),
        begun.raw(packet, sequence=0, begin=True, session=10),  # not START
        begun.raw(START, sequence=0, begin=True, session=8),
        begun.raw(sequence=0),
        begun.raw(acknowledge=1, sequence=0),  # not from the successor
    ]
    for data in strays:
        begun.rig.send(frame(data))
    begun.quiet()
    begun.send_packet(packet)
    assert begun.rig.stop().strays == len(strays)


@pytest.mark.slow
@needs_verilator
def test_repeated_and_early_datagrams_are_done_once(begun):
    first, second, third = bits(4)
    begun.send_packet(first)
    for _ in range(2):
        assert begun.packet().row == 4
    begun.rig.send(frame(begun.raw(first, sequence=1)))  # again
    begun.acknowledged()
    early = Datagram(begun.session, CARD, 1, acknowledge=2, selective=1)
    for _ in range(2):  # out of turn, and again
        begun.rig.send(frame(begun.raw(third, sequence=3)))
        assert begun.next(1) == early
    begun.rig.send(frame(begun.raw(third, sequence=2 + 32)))  # before its time
    assert begun.next(1) == early
    begun.quiet()
    begun.rig.send(frame(begun.raw(second)))
    while begun.next(1).acknowledge < 4:  # both are done, in order
        pass
    assert [begun.packet().offset for _ in range(4)] == [12, 12, 24, 24]
    layer = MODEL.hidden[0]
    popcounts = layer.popcounts(INPUT[None])[0]
    fired = pack((popcounts >= layer.thresholds)[64:544])
    wanted = list(bits_packets(fired[None], task=TaskId.BITS, array=1, row=4, outputs=90, offset=2))
    assert [begun.packet() for _ in wanted] == wanted
    assert begun.rig.stop().again == 3


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize(
    "fields",
    [
        {"offset": 31},
        {"offset": 4095},
        {"count": 0},
        {"start": 100},
        {"end": 543},
        {"count": 12, "offset": 24},
        {"row": 16, "again": True},
        {"again": True},
        {"pad": True},
    ],
    ids=str,
)
def test_packets_that_cannot_be_are_told_home(begun, fields):
    """Nothing is computed of them: an error goes home in their place."""
    packet = bits(0)[0]
    if fields.pop("again", False):  # the same words twice, or another row in the same slot
        begun.send_packet(packet)
        begun.packet()
        begun.packet()
    if fields.pop("pad", False):
        packet = replace(bits(0)[2], body=b"\xff" * 48)
    begun.send_packet(replace(packet, **fields))
    error_packet = begun.packet()
    assert (error_packet.type, error_packet.identifier, error_packet.destination) == (
        PacketType.CONTROL,
        ControlId.ERROR,
        HOME,
    )
    assert error_packet.row == CARD
    assert error_packet.body[:8] == bytes([0, 0, 0, 2, 0, 0, 0, CARD])
    assert error_packet.body[8:].rstrip(b"\0") == b"a packet that cannot be"
    begun.quiet()
    assert begun.rig.stop().bad_packets == 1


@pytest.mark.slow
@needs_verilator
def test_parts_of_words_are_told_home(tmp_path):
    """A share of inputs takes whole words, and those that the packet carries."""
    card = Alone(tmp_path, "inputs")
    card.begin()
    words = np.arange(1, 13, dtype=np.uint32)
    (packet,) = bits_packets(words[None], task=TaskId.INPUTS, array=1, row=0, outputs=90)
    wrong = [
        {"start": 100},
        {"end": 383},
        {"end": 416},
        {"count": 11},
        {"offset": 4, "start": 96, "end": 480},
        {"destination": CARD},
    ]
    for fields in wrong:
        card.send_packet(replace(packet, **fields))
        assert card.packet().identifier == ControlId.ERROR
    card.send_packet(packet)
    assert card.packet() == replace(packet, end=96)
    card.send_packet(replace(packet, row=1, destination=CARD, start=96, end=384))
    seen = card.rig.stop()
    assert seen.bad_packets == len(wrong)
    assert seen.stored == 2


@pytest.mark.slow
@needs_verilator
def test_what_concerns_others_is_passed_on(begun):
    packet = bits(3)[0]
    others = [
        replace(packet, destination=3),
        replace(packet, array=1),
        replace(packet, identifier=TaskId.INPUTS, start=0, end=384),
        replace(packet, identifier=TaskId.SUMS),
        replace(packet, end=64),
        replace(packet, start=544),
        replace(packet, start=600, end=1 << 31, lap=True),
        TaskPacket(PacketType.DATA, TaskId.SUMS, HOME, 2, 0, 5, body=bytes(range(48))),
        TaskPacket(PacketType.CONTROL, ControlId.TERMINATE, BY_RANGE, 0, 0, 0),
    ]
    for other in others:
        begun.send_packet(other)
        assert begun.packet() == other
    assert begun.rig.stop().stored == 0


@pytest.mark.slow
@needs_verilator
def test_an_unacknowledged_packet_is_sent_again(begun):
    begun.send_packet(replace(bits(0)[0], array=7))
    for _ in range(3):
        assert begun.next(3).sequence == begun.expected
    begun.packet()
    assert begun.rig.stop().resent >= 2


@pytest.mark.slow
@needs_verilator
def test_a_new_session_forgets_the_old_one(begun):
    begun.send_packet(bits(0)[0])
    for _ in range(2):
        begun.packet()
    begun.session += 1
    begun.begin()
    for packet in bits(0):  # row 0 again, all of it
        begun.send_packet(packet)
        for _ in range(2):
            assert begun.packet().array == 0
    assert begun.packet().array == 1
    assert begun.rig.stop().bad_packets == 0


@pytest.mark.slow
@needs_verilator
def test_a_new_session_begins_while_the_old_one_computes(begun):
    """No packet of the old session leaves under the number of the new one, whenever it begins."""
    for _ in range(150):
        for packet in bits(0):
            begun.rig.send(frame(begun.raw(packet)))
            begun.sequence += 1
        begun.session += 1
        begun.sequence = begun.expected = 0
        begun.rig.send(frame(begun.raw(START, begin=True)))
        datagram = None
        while datagram is None or datagram.session < begun.session:
            data = begun.rig.receive(60)  # a busy machine simulates slowly
            assert data is not None
            datagram = Datagram.decode(opened(data)[1])
        for left in begun.inbox.values():
            left.clear()  # the old session's, sent again before an acknowledgement came
        begun.inbox[datagram.receiver].append(datagram)
        begun.sequence = 1
        begun.acknowledged()
        assert begun.packet() == START
        assert begun.packet().identifier == ControlId.STATUS
    begun.quiet()


@pytest.mark.slow
@needs_verilator
def test_arp_is_answered(card):
    ask = b"\xff" * 6 + bytes.fromhex(
        "020000000a01 0806 0001 0800 06 04 0001 020000000a01 0a090901"
    )
    card.rig.send(ask + bytes(6) + bytes([10, 9, 9, 2]) + bytes(18))
    card.rig.send(ask + bytes(6) + bytes([10, 9, 9, 3]) + bytes(18))  # somebody else's address
    answer = card.rig.receive()
    wanted = "020000000a01 020000000a02 0806 0001 0800 06 04 0002 020000000a02 0a090902"
    assert answer == bytes.fromhex(wanted + "020000000a01 0a090901") + bytes(18)
    card.quiet()


def test_a_card_takes_one_share():
    three = even_placement(MODEL, 3)
    with pytest.raises(ClusterError, match="holds one share"):
        node_image(MODEL, three, CARD, **endpoints(three, CARD))
    replicas = tuple(Share(node, 0, 90) for node in range(3, 20))
    layers = (
        LayerPlacement(LayerSplit.OUTPUT, (Share(1, 0, 64), Share(2, 64, 700))),
        LayerPlacement(LayerSplit.REPLICATED, replicas),
        LayerPlacement(LayerSplit.OUTPUT, (Share(1, 0, 5),)),
    )
    many = ModelPlacement(MODEL.digest, MODEL.shape, 20, layers)
    with pytest.raises(ClusterError, match="layer 1 has 17"):
        node_image(MODEL, many, CARD, **endpoints(many, CARD))


def test_the_same_model_and_placement_give_the_same_image():
    placed = placement(*PLACED["inputs"])
    texts = {node_image(MODEL, placed, CARD, **endpoints(placed, CARD)).text for _ in range(2)}
    assert len(texts) == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("verilator") is None, reason="needs Verilator")
def test_lint_finds_nothing():
    files = [str(path) for path in node_sources()]
    for masked in (0, 1):
        command = ["verilator", "--lint-only", "-Wall", f"-GMASKED={masked}", "--top-module", TOP]
        done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
