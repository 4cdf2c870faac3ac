# SPDX-License-Identifier: Apache-2.0
"""Packets on the links, counted by hand."""

from collections import deque
from itertools import product

import numpy as np
import pytest

from n3ic.model.bits import pack
from n3ic.model.random_models import random_model
from n3ic.systems.cluster.binary import parts_of
from n3ic.systems.cluster.coordinator import Coordinator, RowFlow
from n3ic.systems.cluster.memory import model_layout
from n3ic.systems.cluster.node import Node
from n3ic.systems.cluster.placement import (
    LayerPlacement,
    LayerSplit,
    ModelPlacement,
    Share,
    even_placement,
    even_shares,
)
from n3ic.systems.cluster.traffic import NodeWork, mean_traffic, period, row_traffic, sum_traffic
from tests.support.rings import by_row, tile_memory


def counted_by_nodes(model, placed, row_words, *, shared):
    """Packets on each link when the nodes' own handlers compute a row, and its scores."""
    results = {}
    memory = tile_memory(model_layout(placed)) if shared else None
    flow = RowFlow(placed, memory=memory)
    flow.slots = 1
    home = Coordinator(placed.nodes, model.digest, flow.accept_data)
    nodes = {
        n: Node(n, parts_of(model, placed, n, memory), model.digest)
        for n in range(1, placed.nodes + 1)
    }
    flow.submit(row_words[None], by_row(results))
    links = np.zeros(placed.nodes + 1)
    waiting = deque((0, packet) for packet in flow.admit())
    while waiting:
        sender, packet = waiting.popleft()
        links[sender] += 1
        past_home = shared and sender == placed.nodes and packet.destination != 0
        to = 1 if past_home else (sender + 1) % (placed.nodes + 1)
        waiting.extend((to, p) for p in (nodes[to] if to else home).handle(packet))
    assert home.error is None
    return links, results[0]


@pytest.mark.parametrize("shared", [False, True], ids=["packets", "tiles"])
@pytest.mark.parametrize("splits", list(product(LayerSplit, repeat=2)))
def test_the_nodes_send_as_many_packets_as_are_counted(splits, shared):
    model = random_model((800, 200, 20), np.random.default_rng(3))
    placed = even_placement(model, 3, list(splits))
    words = pack(np.random.default_rng(4).random((1, 800)) < 0.5)
    links, scores = counted_by_nodes(model, placed, words[0], shared=shared)
    assert links.tolist() == sum_traffic(row_traffic(placed, 0, tiled=shared)).links.tolist()
    assert np.array_equal(scores, model.scores(words)[0])


def placement(shape, nodes, *layers):
    return ModelPlacement("", shape, nodes, layers)


def by_output(neurons, nodes):
    return LayerPlacement(LayerSplit.OUTPUT, even_shares(neurons, nodes))


def test_input_packets_of_a_layer_split_by_output_pass_each_owner_and_end_at_the_last():
    layers = row_traffic(placement((4096, 2048), 4, by_output(2048, (1, 2, 3))))
    assert layers[0].inputs.links.tolist() == [11, 11, 11, 0, 0]  # 4096 bits: 11 packets of 384
    assert layers[0].inputs.consumed.tolist() == [0, 11, 11, 11, 0]
    assert layers[0].work == (
        NodeWork(1, 672, 4096),
        NodeWork(2, 672, 4096),
        NodeWork(3, 704, 4096),
    )
    # scores: 12 a packet, each owner's own, on the way home through all that follow
    assert layers[1].inputs.links.tolist() == [0, 56, 112, 171, 171]


def test_a_task_that_begins_in_the_middle_of_the_owners_is_split_in_two():
    first = LayerPlacement(LayerSplit.OUTPUT, (Share(2, 0, 32),))
    layers = row_traffic(placement((32, 32, 96), 3, first, by_output(96, (1, 2, 3))))
    # node 2 keeps its own; one rest goes to 3, the other through 3 and the coordinator to 1
    assert layers[1].inputs.links.tolist() == [1, 0, 2, 1]
    assert layers[1].inputs.consumed.tolist() == [0, 1, 1, 1]


def test_a_layer_split_by_the_inputs_that_its_nodes_have_takes_no_input_packets():
    shares = even_shares(768, (1, 2))
    second = LayerPlacement(LayerSplit.INPUT, shares, (Share(2, 0, 64),))
    layers = row_traffic(placement((384, 768, 64), 2, by_output(768, (1, 2)), second))
    assert layers[1].inputs.packets == 0
    # 16 sums a packet: node 1 sends 4 to node 2, which adds its own
    assert layers[1].sums.links.tolist() == [0, 4, 0]
    assert layers[1].sums.consumed.tolist() == [0, 0, 8]


def test_a_packet_of_inputs_with_two_owners_is_split_between_them():
    second = LayerPlacement(
        LayerSplit.INPUT, (Share(1, 0, 352), Share(2, 352, 384)), (Share(1, 0, 32),)
    )
    layers = row_traffic(placement((384, 32), 2, second))
    assert layers[0].inputs.links.tolist() == [1, 1, 0]


def test_replicas_take_turns_and_a_row_stays_on_its_node():
    replicas = LayerPlacement(LayerSplit.REPLICATED, (Share(1, 0, 64), Share(2, 0, 64)))
    placed = placement((384, 64, 64), 2, replicas, replicas)
    assert period(placed) == 2
    rows = [row_traffic(placed, row) for row in (0, 1)]
    assert [[layer.work for layer in row] for row in rows] == [
        [(NodeWork(node, 64, 384),), (NodeWork(node, 64, 64),), ()] for node in (1, 2)
    ]
    first, second = (sum_traffic(row) for row in rows)
    assert second.links.tolist() == [1, 1, 6]
    assert mean_traffic([first, second]).links == pytest.approx((first.links + second.links) / 2)
