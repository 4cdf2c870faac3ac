# SPDX-License-Identifier: Apache-2.0
"""A whole ring over a network that loses, repeats, reorders and damages: the model's scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import ClusterError
from n3ic.model.bits import pack
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from n3ic.systems.cluster.coordinator import Coordinator
from n3ic.systems.cluster.endpoint import CARD, Endpoint
from n3ic.systems.cluster.link import LinkTiming, Receiver, Sender
from n3ic.systems.cluster.node import Node
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
    DataId,
    PacketType,
    TaskId,
    TaskPacket,
    Tile,
    bits_packets,
)
from tests.support.rings import BinaryRing, by_row

RNG = np.random.default_rng(11)
PLAIN = random_model((500, 200, 70, 3), RNG)
MASKED = random_model((500, 200, 70, 3), RNG, density=0.3)
MIXED = (LayerSplit.OUTPUT, LayerSplit.INPUT, LayerSplit.REPLICATED)


@pytest.mark.first_case
@pytest.mark.parametrize("model", [PLAIN, MASKED], ids=["plain", "masked"])
@pytest.mark.parametrize("splits", [*[(s,) * 3 for s in LayerSplit], MIXED], ids=str)
@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("tile_bytes", [0, 256, 2000, None])
def test_every_split_gives_the_models_scores(model, splits, nodes, tile_bytes):
    numbers = {"shared": True} if tile_bytes is None else {"tile_bytes": tile_bytes}
    ring = BinaryRing(model, even_placement(model, nodes, splits), **numbers)
    ring.start()
    words = verification_vectors(model, 30)
    words = words[:: len(words) // 12]
    assert np.array_equal(ring.run(words), model.scores(words))
    assert np.array_equal(ring.run(words[::-1]), model.scores(words[::-1]))


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    loss=st.floats(0, 0.3),
    repeat=st.floats(0, 0.3),
    damage=st.floats(0, 0.3),
    jitter=st.sampled_from([0, 0.001, 0.1]),
    talk=st.sampled_from([None, CARD]),
    tile_bytes=st.sampled_from([0, 256, 1400]),
    shared=st.booleans(),
)
def test_faults_of_the_network_change_no_score(
    seed, loss, repeat, damage, jitter, talk, tile_bytes, shared
):
    faults = {"seed": seed, "loss": loss, "repeat": repeat, "damage": damage, "jitter": jitter}
    timing = LinkTiming(limit=60)  # at these losses a time limit is one for the dead alone
    placed = even_placement(PLAIN, 3, MIXED)
    ring = BinaryRing(PLAIN, placed, timing, talk, tile_bytes=tile_bytes, shared=shared, **faults)
    ring.start()
    words = pack(np.random.default_rng(seed).random((12, 500)) < 0.5)
    assert np.array_equal(ring.run(words), PLAIN.scores(words))
    if loss > 0.1:
        assert ring.station.resent + sum(s.resent for s in ring.network.stations.values()) > 0


@pytest.mark.parametrize("shared", [False, True])
def test_the_coordinator_of_processes_feeds_and_collects_alone(shared):
    ring = BinaryRing(PLAIN, even_placement(PLAIN, 3), tile_bytes=2000, shared=shared)
    ring.start()
    handle, kinds = ring.home.handle, set()
    ring.home.handle = lambda packet: kinds.add(packet.type) or handle(packet)
    words = pack(RNG.random((100, 500)) < 0.5)
    assert np.array_equal(ring.run(words), PLAIN.scores(words))
    assert kinds == {PacketType.DATA}


def test_a_receiver_that_keeps_nothing_early_gets_everything(monkeypatch):
    """As a card does: what is not expected next is dropped, and acknowledged all the same."""
    accept = Receiver.accept

    def in_order(self, datagram):
        expected = self.acknowledgement[0]
        return accept(self, datagram) if datagram.sequence == expected else []

    monkeypatch.setattr(Receiver, "accept", in_order)
    ring = BinaryRing(
        PLAIN, even_placement(PLAIN, 3), talk=CARD, slots=1, seed=5, loss=0.1, jitter=0.01
    )
    ring.start()
    words = pack(RNG.random((10, 500)) < 0.5)
    assert np.array_equal(ring.run(words), PLAIN.scores(words))


@pytest.mark.parametrize("dead", [1, 2, 3])
def test_a_dead_node_is_named_within_the_time_limit(dead):
    timing = LinkTiming(limit=1.0)
    ring = BinaryRing(PLAIN, even_placement(PLAIN, 3), timing)
    ring.start()
    ring.run(pack(RNG.random((5, 500)) < 0.5))
    killed = ring.network.now
    ring.network.dead.add(dead)
    with pytest.raises(ClusterError, match=rf"node {dead} is dead or cut off .*1 s"):
        ring.run(pack(RNG.random((5, 500)) < 0.5))
    assert ring.network.now - killed < 1.5
    assert ring.flow._flying


def test_a_node_dies_in_the_middle_of_a_batch():
    ring = BinaryRing(PLAIN, even_placement(PLAIN, 3), LinkTiming(limit=1.0), slots=2)
    ring.start()
    words = pack(RNG.random((50, 500)) < 0.5)
    ring.flow.submit(words, by_row(ring.scores))
    ring.station.send(ring.flow.admit())
    ring.network.run(lambda: len(ring.scores) >= 20)
    ring.network.dead.add(2)
    ring.network.run(lambda: ring.home.error)
    assert "node 2 is dead" in str(ring.home.error)
    want = PLAIN.scores(words)
    assert 20 <= len(ring.scores) < 50  # what is home is right, and the rest is no number
    assert all(np.array_equal(s, want[row]) for row, s in ring.scores.items())


def test_a_greater_session_begins_anew_and_an_older_one_is_dropped():
    placed = even_placement(PLAIN, 2)
    ring = BinaryRing(PLAIN, placed)
    ring.start()
    words = pack(RNG.random((3, 500)) < 0.5)
    ring.flow.submit(words, by_row({}))
    ring.station.send(ring.flow.admit())  # and the coordinator dies with rows half way
    again = BinaryRing(PLAIN, placed)
    nodes = {n: s for n, s in ring.network.stations.items() if n}
    again.network.stations = nodes | {0: Endpoint(again.home, 2, session=8)}
    again.station = again.network.stations[0]
    again.start()
    assert np.array_equal(again.run(words), PLAIN.scores(words))
    dropped = nodes[1].dropped
    for _, data in ring.station.outgoing(99.0):
        nodes[1].receive(data, 99.0)
    assert nodes[1].dropped > dropped


def test_a_node_with_another_model_is_refused():
    ring = BinaryRing(PLAIN, even_placement(PLAIN, 2))
    other = BinaryRing(MASKED, even_placement(MASKED, 2))
    ring.network.stations[2] = other.network.stations[2]
    with pytest.raises(ClusterError, match="node 2 holds model"):
        ring.start()


def test_a_node_with_another_share_is_refused():
    ring = BinaryRing(PLAIN, even_placement(PLAIN, 2))
    shares = (Share(1, 0, 64), Share(2, 64, 200))
    moved = ModelPlacement(
        PLAIN.digest,
        PLAIN.shape,
        2,
        (LayerPlacement(LayerSplit.OUTPUT, shares), *even_placement(PLAIN, 2).layers[1:]),
    )
    ring.placement = moved
    with pytest.raises(ClusterError, match="unlike the plan"):
        ring.start()


def test_a_task_that_nobody_owns_ends_the_session():
    ring = BinaryRing(PLAIN, even_placement(PLAIN, 2))
    ring.start()
    lost = bits_packets(
        np.zeros((1, 1), np.uint32), task=TaskId.BITS, array=9, row=0, outputs=5, lap=True
    )
    ring.station.send(lost)
    ring.network.run(lambda: ring.home.error)
    assert "array 9 went round the ring" in str(ring.home.error)


def test_a_task_that_cannot_be_ends_the_session():
    ring = BinaryRing(PLAIN, even_placement(PLAIN, 2))
    ring.start()
    wrong = bits_packets(
        np.zeros((1, 9), np.uint32), task=TaskId.BITS, array=0, row=0, outputs=5, offset=90
    )
    ring.station.send(wrong)
    ring.network.run(lambda: ring.home.error)
    assert "node 1 failed: row 0: words 90" in str(ring.home.error)


def test_scores_that_nobody_asked_for_end_the_session():
    ring = BinaryRing(PLAIN, even_placement(PLAIN, 2))
    ring.start()
    ring.station.send([TaskPacket(PacketType.DATA, DataId.SCORES, 0, 2, 0, 3, row=4)])
    ring.network.run(lambda: ring.home.error)
    assert "unrequested scores [0, 3) of row 4" in str(ring.home.error)


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_the_ring_ends_when_it_is_told_to(loss):
    ring = BinaryRing(PLAIN, even_placement(PLAIN, 3), seed=3, loss=loss)
    ring.start()
    ring.station.send([TaskPacket(PacketType.CONTROL, ControlId.TERMINATE, BY_RANGE, 0, 0, 0)])
    stations = ring.network.stations.values()
    assert ring.network.run(lambda: all(s.finished for s in stations))
    assert ring.home.error is None


def test_a_window_bounds_what_is_on_its_way_and_acknowledgements_open_it():
    sender = Sender(1, 0, 1, window=4, per_datagram=1)
    packet = TaskPacket(PacketType.TASK, TaskId.BITS, BY_RANGE, 0, 0, 1)
    sender.push([packet] * 10)
    assert [d.sequence for d in sender.due(0.0)] == [0, 1, 2, 3]
    assert sender.due(0.01) == []
    sender.acknowledged(1, 0b110, 0.01)  # 1 is lost, 3 and 4 would be there
    assert [d.sequence for d in sender.due(0.011)] == [4]
    sender.acknowledged(1, 0b111, 0.012)  # three later ones: 1 is sent again at once
    assert [d.sequence for d in sender.due(0.012)] == [1]
    sender.acknowledged(99, 0, 0.013)  # never sent
    assert not sender.idle
    assert sender.silent(6.0)


def test_tiles_for_others_pass_a_node_that_has_not_looked_at_its_own():
    def tile(kind, identifier, destination):
        return Tile(kind, identifier, destination, 0, 0, 4, 7, body=b"", tile_rows=2, limit=0)

    passing = [
        tile(PacketType.TASK, TaskId.ACTIVATIONS, 3),
        tile(PacketType.DATA, DataId.SCORES, HOME),
    ]
    start = TaskPacket(PacketType.CONTROL, ControlId.START, BY_RANGE, 0, 0, 0)
    waiting = [
        start,
        tile(PacketType.TASK, TaskId.ACTIVATIONS, 2),
        tile(PacketType.TASK, TaskId.ACTIVATIONS, BY_RANGE),
        TaskPacket(PacketType.TASK, TaskId.VALUES, 3, 0, 0, 4),  # packets keep their order
    ]
    before = Sender(5, 1, 2)
    before.push([*waiting, *passing])
    station = Endpoint(Node(2, [], PLAIN.digest), 3)
    for datagram in before.due(0.0):
        station.receive(datagram.encode(), 0.0)
    sent = [Datagram.decode(data) for node, data in station.outgoing(0.0) if node == 3]
    assert [packet for datagram in sent for packet in datagram.packets] == passing


def test_datagrams_of_strangers_are_dropped():
    station = Endpoint(Node(2, [], PLAIN.digest), 3)
    packet = TaskPacket(PacketType.CONTROL, ControlId.START, BY_RANGE, 0, 0, 0)
    for wrong in (
        Datagram(5, 1, 3, begin=True, packets=(packet,)),  # for another node
        Datagram(5, 3, 2, begin=True, packets=(packet,)),  # the successor begins nothing
        Datagram(5, 1, 2, sequence=4, packets=(packet,)),  # no session yet
    ):
        station.receive(wrong.encode(), 0.0)
        assert station.outgoing(0.0) == []
    assert station.dropped == 3
    home = Endpoint(Coordinator(3, PLAIN.digest, lambda _: ()), 3, session=5)
    home.receive(Datagram(9, 3, 0, begin=True, packets=(packet,)).encode(), 0.0)
    assert home.outgoing(0.0) == []
