# SPDX-License-Identifier: Apache-2.0
"""Rings on loopback sockets: nodes on threads, the coordinator's session, losses, a dead node."""

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from n3ic.errors import ClusterError, ModelError, VerifyError
from n3ic.model.bits import pack
from n3ic.model.columns import ColumnRule, TableRules
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.systems.cluster.binary import parts_of
from n3ic.systems.cluster.coordinator import NodeLostError
from n3ic.systems.cluster.endpoint import Endpoint
from n3ic.systems.cluster.launch import Ring
from n3ic.systems.cluster.link import LinkTiming, Sender
from n3ic.systems.cluster.measurement import compare, rows_to_compare
from n3ic.systems.cluster.merged_model import merge_models
from n3ic.systems.cluster.networks.network import IntegerNetwork, NetworkStep
from n3ic.systems.cluster.networks.operations import Dense, Integers, arrays_of
from n3ic.systems.cluster.networks.pipeline import NetworkPart, NetworkPipeline
from n3ic.systems.cluster.networks.ring import NetworkSession, pipeline_digest
from n3ic.systems.cluster.node import Node
from n3ic.systems.cluster.placement import LayerSplit, even_placement
from n3ic.systems.cluster.protocol import (
    BY_RANGE,
    ControlId,
    Datagram,
    PacketType,
    TaskId,
    TaskPacket,
)
from n3ic.systems.cluster.replacement import LastingRing
from n3ic.systems.cluster.session import RingLink, Session, talk
from n3ic.systems.cluster.udp import (
    FaultInjection,
    UdpEndpoint,
    neighbours,
    open_socket,
    run_endpoint,
)
from tests.support.memory_faults import flip_weight

MODEL = random_model((500, 200, 70, 3), np.random.default_rng(2))
MIXED = (LayerSplit.OUTPUT, LayerSplit.INPUT, LayerSplit.REPLICATED)


class LoopbackRing:
    """Nodes on threads, each with a socket of its own."""

    def __init__(self, model, placement, *, timing=None, loss=0.0, parts=None, digest=None):
        self.timing = timing or LinkTiming(limit=60)  # a busy machine is silent for seconds, too
        self.stopped = set()
        numbers = range(placement.nodes + 1)
        socks = {n: open_socket("127.0.0.1") for n in numbers}
        self.key = b"a key"
        self.addresses = {n: sock.getsockname() for n, sock in socks.items()}
        self.faults = FaultInjection(loss, 1)
        self.threads = []
        for n in numbers[1:]:
            holds = (parts or parts_of)(model, placement, n)
            node = Node(n, holds, digest or model.digest)
            near = neighbours(n, placement.nodes, self.addresses)
            wire = UdpEndpoint(socks[n], near, FaultInjection(loss, n + 2))
            station = Endpoint(
                node,
                placement.nodes,
                timing=self.timing,
                successor=talk(n, placement.nodes, ()),
                key=self.key,
                inner=True,
            )
            thread = threading.Thread(
                target=run_endpoint,
                args=(station, wire),
                kwargs={"timing": self.timing, "stopped": lambda n=n: n in self.stopped},
                daemon=True,
            )
            thread.start()
            self.threads.append(thread)
        self.model, self.placement, self.sock = model, placement, socks[0]

    def stop(self, node):
        """End a node, which looks twice a second whether it is to stop."""
        self.stopped.add(node)
        self.threads[node - 1].join(60)
        assert not self.threads[node - 1].is_alive()

    def session(self, tile_bytes=0, key=None, kind=Session):
        link = RingLink(
            self.addresses,
            timing=self.timing,
            faults=self.faults,
            tile_bytes=tile_bytes,
            key=key or self.key,
        )
        return kind(self.model, self.placement, link, self.sock)


@pytest.mark.first_case
@pytest.mark.parametrize("loss", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("tile_bytes", [1400, 0, 1 << 15])
def test_every_row_has_the_models_scores_whatever_is_lost(loss, tile_bytes):
    ring = LoopbackRing(MODEL, even_placement(MODEL, 4, MIXED), loss=loss)
    words = rows_to_compare(MODEL, 60, seed=0)
    with ring.session(tile_bytes) as session:
        measured = compare(session, MODEL, words)
    assert measured.rows == 60
    assert measured.to_dict()["kind"] == "measured"
    for thread in ring.threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("tile_bytes", [1 << 15, 0])
def test_a_node_that_flips_a_bit_ends_the_session(tile_bytes):
    """A weight differs, and the node gives the model's digest all the same."""

    def faulty(model, placement, node):
        weights = model.output.weights.copy()
        weights[1, 64:] ^= node == 2
        changed = replace(model, output=replace(model.output, weights=weights))
        return parts_of(changed, replace(placement, model=changed.digest), node)

    words = pack(np.random.default_rng(0).random((1000, 500)) < 0.5)
    given = 0
    splits = (LayerSplit.OUTPUT, LayerSplit.OUTPUT, LayerSplit.INPUT)
    with LoopbackRing(MODEL, even_placement(MODEL, 2, splits), parts=faulty).session(
        tile_bytes
    ) as session:
        with pytest.raises(ClusterError, match=r"faulty: .* one process has .*rows have no scores"):
            for at in range(0, 1000, 50):
                session.scores(words[at : at + 50])
                given += 50
        with pytest.raises(ClusterError, match="faulty"):
            session.submit(words)
    assert given < 500


def test_a_node_that_flips_a_bit_of_a_networks_weight_ends_the_session():
    rng = np.random.default_rng(0)
    given = Integers((20,), -128, 127)
    layers = [Dense(rng.integers(-9, 9, (n, 20)), rng.integers(-9, 9, n)) for n in (20, 3)]

    def network_of(*operations):
        return IntegerNetwork(
            given, [NetworkStep(operation, (i,)) for i, operation in enumerate(operations)]
        )

    network, pipeline = network_of(*layers), NetworkPipeline((0, 1, 2))
    other = layers[1].weights.copy()
    other[1, 4] ^= 1
    faulty = network_of(layers[0], replace(layers[1], weights=other))

    def faulty_parts(own, parts, node):
        return [NetworkPart(faulty if node == 2 else own, parts, node)]

    items, scored = rng.integers(-128, 128, (1000, 20)), 0
    ring = LoopbackRing(
        network, pipeline, parts=faulty_parts, digest=pipeline_digest(network, pipeline)
    )
    with ring.session(1400, kind=NetworkSession) as session:
        assert session.scores(items[:0]).shape == (0, 3)
        with pytest.raises(ClusterError, match=r"faulty: .* one process has .*rows have no scores"):
            for at in range(0, 1000, 50):
                session.scores(items[at : at + 50])
                scored += 50
    assert scored < 500


@pytest.mark.parametrize("layer", [0, 2])
def test_a_bit_that_changes_in_a_nodes_weights_ends_the_session(layer, monkeypatch):
    """No row may show it: the bit is of a neuron far from its threshold, or nobody samples it."""
    monkeypatch.setattr("n3ic.systems.cluster.session.SAMPLED", 1 << 30)
    networks = {}

    def parts_of_node(model, placement, node):
        parts: list[Any] = list(parts_of(model, placement, node))
        networks[node] = [part._weights.digest.__self__ for part in parts]
        return parts

    splits = (LayerSplit.OUTPUT, LayerSplit.OUTPUT, LayerSplit.REPLICATED)
    words = pack(np.random.default_rng(0).random((4096, 500)) < 0.5)
    with LoopbackRing(MODEL, even_placement(MODEL, 2, splits), parts=parts_of_node).session(
        1400
    ) as session:
        assert np.array_equal(session.scores(words), MODEL.scores(words))
        flip_weight(networks[2][layer])
        with pytest.raises(ClusterError, match=rf"node 2 failed: layer {layer}: weights changed"):
            session.scores(words)


def test_a_bit_that_changes_in_a_networks_numbers_ends_the_session(monkeypatch):
    """In the array that the sums read, on a place that no item shows."""
    monkeypatch.setattr("n3ic.systems.cluster.session.SAMPLED", 1 << 30)
    rng = np.random.default_rng(0)
    layers = [Dense(rng.integers(-9, 9, (n, 20)), rng.integers(-9, 9, n)) for n in (20, 3)]
    steps = [NetworkStep(operation, (i,)) for i, operation in enumerate(layers)]
    network = IntegerNetwork(Integers((20,), 0, 127), steps)
    pipeline, parts = NetworkPipeline((0, 1, 2)), {}

    def parts_of_node(own, of, node):
        parts[node] = NetworkPart(own, of, node)
        return [parts[node]]

    items = rng.integers(0, 128, (4096, 20))
    items[:, 4] = 0
    ring = LoopbackRing(
        network, pipeline, parts=parts_of_node, digest=pipeline_digest(network, pipeline)
    )
    with ring.session(1400, kind=NetworkSession) as session:
        assert np.array_equal(session.scores(items), network.scores(items))
        ((_, kernel, _),) = parts[1]._part._kernels
        matrix = max(arrays_of(kernel), key=lambda array: array.size)
        matrix[0, 2, 4] += 1
        with pytest.raises(ClusterError, match="node 1 failed: part 1: weights changed in memory"):
            session.scores(items)


def test_batches_overlap_and_come_in_any_order():
    words = pack(np.random.default_rng(0).random((90, 500)) < 0.5)
    want = MODEL.scores(words)
    with LoopbackRing(MODEL, even_placement(MODEL, 2)).session() as session:
        batches = [session.submit(words[at : at + 7]) for at in range(0, 90, 7)]
        empty = session.submit(words[:0])
        scores = [batch.result() for batch in reversed(batches)][::-1]
        assert empty.result().shape == (0, 3)
        with pytest.raises(ModelError):
            session.submit(words[:, :3])
    assert np.array_equal(np.concatenate(scores), want)


def test_a_node_that_dies_is_an_error_that_names_it_and_the_rows():
    ring = LoopbackRing(MODEL, even_placement(MODEL, 3), timing=LinkTiming(limit=8))
    words = pack(np.random.default_rng(0).random((40, 500)) < 0.5)
    with ring.session() as session:
        assert np.array_equal(session.scores(words[:5]), MODEL.scores(words[:5]))
        ring.stop(2)
        with pytest.raises(ClusterError, match=r"node 2 is dead or cut off.*; 40 rows have no"):
            session.scores(words)
        with pytest.raises(ClusterError, match="node 2 is dead"):
            session.submit(words)


def test_a_lost_node_is_replaced_and_every_row_has_the_models_scores():
    rings = []

    @contextmanager
    def start():
        ring = LoopbackRing(MODEL, even_placement(MODEL, 3), timing=LinkTiming(limit=2))
        rings.append(ring)
        with ring.session(1 << 15) as session:
            yield Ring(session, {})

    words = pack(np.random.default_rng(0).random((300, 500)) < 0.5)
    want = MODEL.scores(words)
    with LastingRing(start, replacements=1) as ring:
        assert np.array_equal(ring.scores(words[:5]), want[:5])
        rings[0].stop(2)
        batches = [ring.submit(words[at : at + 100]) for at in (0, 100, 200)]
        assert np.array_equal(np.concatenate([b.result(120) for b in batches]), want)
        assert ["node 2 is dead" in text for text in ring.lost] == [True]
        rings[1].stop(3)
        for _ in range(2):
            with pytest.raises(NodeLostError, match="node 3 is dead or cut off"):
                ring.submit(words).result(120)
        with pytest.raises(ModelError):
            ring.submit(words[:, :3])
    assert len(rings) == 2


def test_a_ring_with_a_node_that_never_ran_does_not_start():
    ring = LoopbackRing(MODEL, even_placement(MODEL, 2), timing=LinkTiming(limit=0.3))
    ring.stop(1)
    with pytest.raises(ClusterError, match="node 1 is dead or cut off"):
        ring.session()


def test_a_coordinator_with_another_key_is_not_answered():
    ring = LoopbackRing(MODEL, even_placement(MODEL, 2), timing=LinkTiming(limit=0.3))
    with pytest.raises(ClusterError, match="node 1 is dead or cut off"):
        ring.session(key=b"another")


def test_nodes_of_another_plan_are_refused():
    def other(model, placement, node):
        return parts_of(model, even_placement(model, 2, (LayerSplit.INPUT,) * 3), node)

    with pytest.raises(ClusterError, match="unlike the plan"):
        LoopbackRing(MODEL, even_placement(MODEL, 2), parts=other).session()


def test_a_wrong_score_is_an_error_that_names_row_and_class():
    wrong = random_model((500, 200, 70, 3), np.random.default_rng(9))
    words = rows_to_compare(MODEL, 10, seed=0)
    with (
        LoopbackRing(MODEL, even_placement(MODEL, 1)).session() as session,
        pytest.raises(VerifyError, match="row 0, class 'class0'"),
    ):
        compare(session, wrong, words)


def test_a_port_that_is_taken_is_an_error():
    with (
        open_socket("127.0.0.1") as sock,
        pytest.raises(ClusterError, match=r"127.0.0.1:.*Address already in use"),
    ):
        open_socket(*sock.getsockname())


@pytest.mark.parametrize("density", [None, 0.4])
def test_networks_side_by_side_are_one_wide_network_of_their_scores(density):
    rng = np.random.default_rng(5)
    models = {f"q{i}": random_model((152, 32, 16, 2), rng, density=density) for i in range(5)}
    wide = merge_models(models)
    assert wide.shape == (152, 160, 80, 10)
    assert wide.classes[2:4] == ("q1/class0", "q1/class1")
    words = rows_to_compare(wide, 50, seed=1)
    want = np.concatenate([m.scores(words) for m in models.values()], axis=1)
    assert np.array_equal(wide.scores(words), want)
    with pytest.raises(ClusterError, match="other has 2 layers, q0 3"):
        merge_models(models | {"other": random_model((152, 32, 2), rng)})
    with pytest.raises(ClusterError, match="no network"):
        merge_models({})


def test_networks_side_by_side_share_the_input_fields_that_they_have_in_common():
    rng = np.random.default_rng(6)
    delay, other = Field.binary("delay", 8), Field.thermometer("other", (3, 9, 700))
    specs = {
        "a": InputSpec((delay, other)),
        "b": InputSpec((Field.thermometer("delay", (5, 6)), delay)),
        "c": InputSpec((other,)),
    }
    models = {
        name: replace(random_model((spec.n_bits, 9, 2), rng), input=spec)
        for name, spec in specs.items()
    }
    wide = merge_models(models)
    assert wide.shape == (13, 27, 6)
    features = {"delay": rng.integers(0, 300, 200), "other": rng.integers(0, 999, 200)}
    want = [m.scores(m.encode(features)) for m in models.values()]
    assert np.array_equal(wide.scores(wide.encode(features)), np.concatenate(want, axis=1))


def test_networks_side_by_side_read_the_columns_of_all_of_their_tables():
    def network(rules, *names):
        spec = InputSpec(tuple(Field.binary(name, 4) for name in names))
        model = random_model((spec.n_bits, 3, 2), np.random.default_rng(7)).with_input(spec)
        return model.changed(table=rules)

    size, proto = ColumnRule(unit="byte"), ColumnRule("category", values=("tcp", "udp"))
    a = network(TableRules({"size": size}, "app"), "size")
    b = network(TableRules({"proto": proto, "size": size}, "other"), "proto", "size")
    wide = merge_models({"a": a, "b": b})
    assert wide.table == TableRules({"size": size, "proto": proto}, "app")
    assert merge_models({"a": a, "b": b.changed(table=None)}).table is None
    assert merge_models({"a": a.changed(table=None), "b": b}).table is None
    in_bits = network(TableRules({"size": ColumnRule(unit="bit")}, "app"), "size")
    with pytest.raises(ClusterError, match="b reads the column 'size' differently"):
        merge_models({"a": a, "b": in_bits})


def test_a_node_acknowledges_while_it_computes():
    computing, go_on = threading.Event(), threading.Event()

    class Slow(Node):
        def handle(self, packet):
            if packet.type is not PacketType.CONTROL:
                computing.set()
                assert go_on.wait(60)
            return super().handle(packet)

    home, sock = open_socket("127.0.0.1"), open_socket("127.0.0.1")
    ring = {0: home.getsockname(), 1: sock.getsockname()}
    station = Endpoint(Slow(1, (), MODEL.digest), 1)
    stopped = threading.Event()
    node = threading.Thread(
        target=run_endpoint,
        args=(station, UdpEndpoint(sock, neighbours(1, 1, ring))),
        kwargs={"stopped": stopped.is_set},
        daemon=True,
    )
    node.start()
    task = TaskPacket(PacketType.TASK, TaskId.BITS, BY_RANGE, 0, 0, 1)
    sender = Sender(1, 0, 1)
    start = TaskPacket(PacketType.CONTROL, ControlId.START, BY_RANGE, 0, 0, 0)
    sender.push([start, task])
    home.settimeout(60)
    for datagram in sender.due(0.0):
        home.sendto(datagram.encode(), ring[1])
    assert computing.wait(60)
    sender.push([task])
    home.sendto(sender.due(0.0)[0].encode(), ring[1])
    while Datagram.decode(home.recv(1 << 16)).acknowledge != 3:  # or time runs out
        pass
    assert not go_on.is_set()
    go_on.set()
    stopped.set()
    node.join(60)
    assert not node.is_alive()
    home.close()
