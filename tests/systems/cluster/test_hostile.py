# SPDX-License-Identifier: Apache-2.0
"""Packets that are well formed and make no sense: an error that says so, and no other end."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.model.random_models import random_model
from n3ic.systems.cluster.binary import parts_of
from n3ic.systems.cluster.convolution import Filters
from n3ic.systems.cluster.coordinator import Coordinator, RingFlow, RowFlow
from n3ic.systems.cluster.dense import GemmFlow
from n3ic.systems.cluster.kernels import ConvolutionKernel, GemmKernel, JobFlow, SparseKernel
from n3ic.systems.cluster.memory import model_layout
from n3ic.systems.cluster.node import Node
from n3ic.systems.cluster.placement import LayerSplit, even_placement
from n3ic.systems.cluster.protocol import (
    IDENTIFIERS,
    DataId,
    PacketType,
    ProtocolError,
    TaskId,
    TaskPacket,
    Tile,
)
from n3ic.systems.cluster.sparse import Combine
from tests.support.rings import tile_memory

MODEL = random_model((70, 64, 40, 3), np.random.default_rng(0))
PLACED = even_placement(MODEL, 2, (LayerSplit.OUTPUT, LayerSplit.INPUT, LayerSplit.REPLICATED))
IMAGE = (6, 5, 1)
KERNELS = {
    "sum": SparseKernel((8, 8), 2),
    "max": SparseKernel((8, 8), 2, Combine.MAX),
    "sparse": SparseKernel((8, 8), 2, sparse=True),
    "gemm": GemmKernel(np.ones((20, 9), dtype=np.int64)),
    "convolution": ConvolutionKernel(Filters(np.ones((2, 1, 3, 3), dtype=int), IMAGE, padding=1)),
    "binary": ConvolutionKernel(Filters(np.ones((2, 1, 3, 3), dtype=int), IMAGE, binary=True)),
}
MEMORY = tile_memory(model_layout(PLACED))
NODES = {
    "model": lambda: Node(2, parts_of(MODEL, PLACED, 2), MODEL.digest),
    "shared": lambda: Node(2, parts_of(MODEL, PLACED, 2, MEMORY), MODEL.digest),
} | {
    name: lambda kernel=kernel: Node(2, kernel.arrays_of(2, 2), kernel.digest)
    for name, kernel in KERNELS.items()
}
FLOWS: dict[str, Callable[[], RingFlow]] = {
    "model": lambda: RowFlow(PLACED),
    "shared": lambda: RowFlow(PLACED, memory=MEMORY),
    "gemm": lambda: GemmFlow(0, 9),
    "jobs": JobFlow,
}
TILED = [TaskId.BITS, TaskId.INPUTS, TaskId.SUMS]
SCORED = PacketType.DATA, DataId.SCORES
BODIES = st.sampled_from(
    [bytes(48), b"\xff" * 48, bytes(range(48)), b"\0\0\0\2" * 12, (b"\0" * 7 + b"\2") * 6]
)


@st.composite
def packets(draw):
    kind = draw(st.sampled_from(PacketType))
    start = draw(st.integers(0, 70))
    return TaskPacket(
        kind,
        draw(st.sampled_from(list(IDENTIFIERS[kind]))),
        destination=draw(st.sampled_from([0, 1, 2, 255])),
        array=draw(st.integers(0, 3)),
        start=start,
        end=start + draw(st.sampled_from([1, 2, 6, 12, 16, 32, 64, 2**31])),
        row=draw(st.integers(0, 3)),
        count=draw(st.integers(0, 12)),
        offset=draw(st.integers(0, 3)),
        body=draw(BODIES),
        lap=draw(st.booleans()),
    )


@st.composite
def tiles(draw):
    """Tiles of any kind, for arrays and ranges that exist or do not."""
    packet = draw(packets())
    rows = draw(st.sampled_from([1, 2, 64]))
    kind, identifier = draw(st.sampled_from([(PacketType.TASK, task) for task in TILED] + [SCORED]))
    size = 2 if identifier is TaskId.SUMS else 4
    numbers = draw(st.sampled_from([1, 2, 3, 10]))
    width = 32 if identifier is TaskId.INPUTS else 1
    start = packet.start // width * width
    end = start + (packet.end if identifier is TaskId.BITS else numbers * width)
    limit = draw(st.sampled_from([0, 256]))
    body = draw(st.sampled_from([b"\0", b"\xff", b"\1"])) * (rows * numbers * size)
    count = numbers if identifier in (TaskId.BITS, TaskId.INPUTS) and kind is not SCORED[0] else 0
    head = packet.destination, packet.array, start, end, packet.row, count, packet.offset
    tile = Tile(kind, identifier, *head, body if limit else b"", packet.lap, rows, limit)
    return Tile.decode(tile.encode())


@pytest.mark.first_case
@pytest.mark.parametrize("name", list(NODES))
@settings(max_examples=20, deadline=None)
@given(sent=st.lists(packets() | tiles(), max_size=25))
def test_a_node_answers_or_refuses(name, sent):
    node = NODES[name]()
    for packet in sent:
        try:
            passed = node.handle(packet)
        except ProtocolError:
            node.clear()
            continue
        for on in passed:
            assert type(on).decode(on.encode()) == on


@pytest.mark.parametrize("name", list(FLOWS))
@settings(max_examples=20, deadline=None)
@given(sent=st.lists(packets() | tiles(), max_size=25))
def test_the_home_takes_or_refuses(name, sent):
    flow: RingFlow = FLOWS[name]()
    home = Coordinator(2, MODEL.digest, flow.accept_data)
    for packet in sent:
        try:
            passed = home.handle(packet)
        except ProtocolError:
            continue
        assert all(p.lap for p in passed)
        assert home.started in (True, False)
