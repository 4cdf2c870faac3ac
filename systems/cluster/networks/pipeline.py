# SPDX-License-Identifier: Apache-2.0
"""A network of integers as a pipeline: its parts on the nodes, and what travels between them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError, needed
from n3ic.systems.cluster.coordinator import TaggedRows
from n3ic.systems.cluster.endpoint import TILE_ROOM
from n3ic.systems.cluster.gathering import Gathering
from n3ic.systems.cluster.memory import (
    SLOTS,
    SharedArray,
    TileLayout,
    TileMemory,
    place_in,
    scores_array,
    scores_in,
    shared_with,
)
from n3ic.systems.cluster.networks.network import IntegerNetwork, Part
from n3ic.systems.cluster.networks.operations import Array, Integers
from n3ic.systems.cluster.node import ROW_SLOTS, ArrayPart
from n3ic.systems.cluster.protocol import (
    SHARED_ROWS,
    TILE_ROWS,
    DataId,
    ProtocolError,
    TaskId,
    TaskPacket,
    Tile,
    activation_tiles,
    score_packets,
)
from n3ic.systems.cluster.scrubbing import CheckedWeights

_REPEATS = 3
_ITEMS = 8
_WIRE_S = 4e-9
"""Seconds that a node needs for a byte of activations, to send or to take it (measured)."""
_TILE_S = 0.1
"""Seconds that a part computes at once: products of many rows are faster."""
_BISECTIONS = 50


@dataclass(frozen=True)
class ByteLayout:
    """Values of an item as bytes, one after another, each of the shortest integer type.

    Attributes:
        values: their shapes and ranges.
    """

    values: tuple[Integers, ...]

    @property
    def bytes(self) -> int:
        """Bytes of an item."""
        return sum(value.size * value.dtype.itemsize for value in self.values)

    def pack(self, arrays: Sequence[Array]) -> NDArray[np.uint8]:
        """Make bytes of shape ``(items, bytes)``: a view of one value that is laid out so."""
        parts = [
            np.ascontiguousarray(array.reshape(len(array), value.size), value.dtype).view(np.uint8)
            for array, value in zip(arrays, self.values, strict=True)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def unpack(self, octets: NDArray[np.uint8]) -> list[Array]:
        """Read the values, each of shape ``(items, *shape)``.

        Raises:
            ProtocolError: a value is outside its range.
        """
        arrays: list[Array] = []
        at = 0
        for value in self.values:
            end = at + value.size * value.dtype.itemsize
            array = np.ascontiguousarray(octets[:, at:end]).view(value.dtype)
            # Sums are proven exact for these ranges alone.
            if array.min() < value.low or array.max() > value.high:
                raise ProtocolError(f"a value outside {value.low} to {value.high}")
            arrays.append(array.reshape(len(octets), *value.shape))
            at = end
        return arrays


def layout(network: IntegerNetwork, at: int) -> ByteLayout:
    """The values that travel before a step."""
    return ByteLayout(tuple(network.values[i] for i in network.alive(at)))


@dataclass(frozen=True)
class NetworkPipeline:
    """Which nodes compute which steps of a network.

    Attributes:
        ends: the first step of each part, then the number of steps.
        seconds: estimated seconds of each part for one item, with its messages; empty if unknown.
        replicas: nodes of each part, which take the tiles in turn; empty for one each.
    """

    ends: tuple[int, ...]
    seconds: tuple[float, ...] = ()
    replicas: tuple[int, ...] = ()

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.ends) - 1

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return sum(self.replicas) or self.parts

    @property
    def rows(self) -> int:
        """Items of a tile that carries them: as many as a part computes in a short time."""
        return min(TILE_ROWS, self.shared_rows)

    @property
    def shared_rows(self) -> int:
        """Items of a tile in shared memory."""
        slowest = max(self.seconds, default=0.0)
        return max(1, min(SHARED_ROWS, int(_TILE_S / slowest))) if slowest else TILE_ROWS

    def part_of(self, node: int) -> int:
        """Return the number of a node's part, from 0."""
        return int(np.searchsorted(np.cumsum(self.counts), node))

    @property
    def bottleneck_s(self) -> float:
        """Estimated seconds for an item, with many in flight."""
        return max(s / count for s, count in zip(self.seconds, self.counts, strict=True))

    def taker(self, part: int, row: int) -> int:
        """Return the node that computes a part of the rows of a tag."""
        # The last node comes first: those before it pass its tile on, then compute theirs.
        return sum(self.counts[: part + 1]) - row % self.counts[part]

    @property
    def counts(self) -> tuple[int, ...]:
        """Nodes of each part."""
        return self.replicas or (1,) * self.parts

    def check(self, network: IntegerNetwork) -> None:
        """Check that the parts are those of a network.

        Raises:
            ClusterError: a part is empty or without a node, or the parts have other steps.
        """
        steps = len(network.steps)
        rises = all(a < b for a, b in pairwise(self.ends))
        if not rises or self.ends[0] != 0 or self.ends[-1] != steps:
            raise ClusterError(
                f"expected the ends of parts of {steps} operations, from 0 on, got {self.ends}"
            )
        if len(self.counts) != self.parts or min(self.counts) < 1:
            raise ClusterError(
                f"expected the nodes of {self.parts} parts, at least one each, got {self.replicas}"
            )


def measured_seconds(network: IntegerNetwork) -> list[float]:
    """Measure each step on random inputs: processor seconds of an item, the least of some runs.

    A product with one row reads as many weights as with many, so a quick network is measured with
    as many items as a tile would have.

    Raises:
        MissingDependencyError: threadpoolctl is not installed.
    """
    with needed("the time of a network's operations"):
        from threadpoolctl import threadpool_limits
    with threadpool_limits(1):  # as in a node
        seconds = _measured(network, _ITEMS)
        if _ITEMS * sum(seconds) < _TILE_S:
            seconds = _measured(network, TILE_ROWS)
        return seconds


def _measured(network: IntegerNetwork, items: int) -> list[float]:
    given = network.values[0]
    rng = np.random.default_rng(0)
    drawn = rng.integers(given.low, given.high, (items, *given.shape), endpoint=True)
    arrays: list[Array] = [drawn.astype(given.dtype)]
    seconds = []
    for step in network.steps:
        kernel = step.operation.kernel(*(network.values[i] for i in step.inputs))
        operands = [arrays[i] for i in step.inputs]
        arrays.append(kernel(*operands))
        runs = []
        for _ in range(_REPEATS):
            began = time.process_time()
            kernel(*operands)
            runs.append((time.process_time() - began) / items)
        seconds.append(min(runs))
    return seconds


def plan_pipeline(
    network: IntegerNetwork,
    nodes: int,
    seconds: Sequence[float] | None = None,
    *,
    node_bytes: int | None = None,
) -> NetworkPipeline:
    """Divide a network so that most items are computed in a second.

    Nodes that can hold the whole network take tiles in turn. With less memory, they hold parts, and
    a slow part has several nodes.

    Args:
        network: the network.
        nodes: number of nodes.
        seconds: seconds of each operation for one item; None to measure them here.
        node_bytes: bytes of weights that a node may hold; None for any number.

    Raises:
        ClusterError: the network does not fit the nodes; the error names an operation or the bytes.
    """
    if nodes < 1:
        raise ClusterError(f"{nodes} nodes: expected at least 1")
    steps = len(network.steps)
    each = measured_seconds(network) if seconds is None else seconds
    spent = np.concatenate([[0.0], np.cumsum(each)])
    wire = [_WIRE_S * layout(network, at).bytes for at in range(steps + 1)]
    before = np.cumsum([0, *(step.bytes for step in network.steps)])
    room = before[-1] if node_bytes is None else node_bytes

    def part(start: int, end: int) -> float:
        return float(spent[end] - spent[start]) + wire[start] + wire[end]

    def fewest_nodes(limit: float) -> tuple[int, tuple[int, ...]]:
        """The fewest nodes that compute an item in so many seconds, and the ends of their parts."""
        best: list[tuple[int, tuple[int, ...]]] = [(0, (0,))]
        for end in range(1, steps + 1):
            choices = [
                (
                    best[start][0] + max(1, math.ceil(part(start, end) / limit)),
                    (*best[start][1], end),
                )
                for start in range(end)
                if before[end] - before[start] <= room
            ]
            if not choices:
                step = network.steps[end - 1]
                raise ClusterError(
                    f"{step.name}: {step.bytes:,} bytes of weights: a node holds {room:,}"
                )
            # Of as many nodes, those with fewer parts: less travels.
            best.append(min(choices, key=lambda choice: (choice[0], len(choice[1]))))
        return best[steps]

    least, ends = fewest_nodes(math.inf)
    if least > nodes:
        raise ClusterError(
            f"{nodes} nodes of {room:,} bytes: expected at least {least} for a network of "
            f"{before[-1]:,} bytes of weights"
        )
    low, high = 0.0, sum(part(a, b) for a, b in pairwise(ends))
    for _ in range(_BISECTIONS):
        limit = (low + high) / 2
        low, high = (low, limit) if fewest_nodes(limit)[0] <= nodes else (limit, high)
    _, ends = fewest_nodes(high)
    slowness = [part(a, b) for a, b in pairwise(ends)]
    counts = [1] * len(slowness)
    for _ in range(nodes - len(counts)):
        counts[max(range(len(counts)), key=lambda i: slowness[i] / counts[i])] += 1
    return NetworkPipeline(ends, tuple(slowness), tuple(counts))


class NetworkPart(ArrayPart):
    """A node's part of a network.

    Args:
        network: the network.
        pipeline: its parts.
        node: number of the node.
    """

    tasks: ClassVar = frozenset({TaskId.ACTIVATIONS})

    def __init__(self, network: IntegerNetwork, pipeline: NetworkPipeline, node: int) -> None:
        number = pipeline.part_of(node)
        first, last = pipeline.ends[number : number + 2]
        self._part: Part = network.part(first, last)
        self._given, self._gives = layout(network, first), layout(network, last)
        self._pipeline = pipeline
        self._last = number == pipeline.parts - 1
        self._rows = Gathering(self._given.bytes, np.uint8)
        super().__init__(number, 0, self._given.bytes)

    def clear(self) -> None:
        """Forget every row."""
        self._rows.clear()

    @cached_property
    def _weights(self) -> CheckedWeights:
        """The part's numbers; not made before it is in its process."""
        part, given = self._part, self._given
        return CheckedWeights(lambda octets: part.compute(given.unpack(octets)), part.digest)

    def perform_task(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Store activations; compute when the rows are complete."""
        if not isinstance(packet, Tile):
            raise ProtocolError("activations outside a tile")
        memory = shared_with(self.memory, packet) if packet.shared else None
        octets = self._octets(packet, memory)
        if octets is None:
            return ()
        results = self._weights.results(octets, f"part {self.array + 1}")
        if self._last:
            return score_packets(
                results[0].reshape(len(octets), -1).astype(np.int32),
                array=self.array,
                row=packet.row,
                tile_bytes=packet.tile_bytes,
                shared=place_in(memory, packet.row, DataId.SCORES),
            )
        return activation_tiles(
            self._gives.pack(results),
            array=self.array + 1,
            row=packet.row,
            node=self._pipeline.taker(self.array + 1, packet.row),
            tile_bytes=packet.tile_bytes,
            shared=place_in(memory, packet.row, TaskId.ACTIVATIONS, self.array + 1),
        )

    def _octets(self, packet: Tile, memory: TileMemory | None) -> NDArray[np.uint8] | None:
        """Take a tile's bytes; return all bytes of its rows once there."""
        if memory is None:
            return self._rows.add_words(packet.row, packet.start, packet.activations)
        place = memory.numbers(packet.row, TaskId.ACTIVATIONS, self.array)[: packet.rows]
        return self._rows.add_placed(packet.row, packet.start, packet.end - packet.start, place)


def network_tiles(network: IntegerNetwork, pipeline: NetworkPipeline) -> TileLayout:
    """Return the memory of the tiles of a network's parts."""
    activations = (
        SharedArray(TaskId.ACTIVATIONS, array, 0, layout(network, at).bytes, "=u1")
        for array, at in enumerate(pipeline.ends[:-1])
    )
    slots = min(SLOTS, 1 << (4 * pipeline.nodes - 1).bit_length())
    arrays = (*activations, scores_array(network.values[-1].size))
    return TileLayout.fitting(arrays, pipeline.shared_rows, slots)


class NetworkFlow(TaggedRows[np.int32]):
    """Items in flight through a network; a row is the bytes of an item.

    Args:
        network: the network.
        pipeline: its parts.
        tile_bytes: maximum bytes of numbers in a tile.
        memory: memory that the nodes share; None if tiles carry the numbers.
    """

    def __init__(
        self,
        network: IntegerNetwork,
        pipeline: NetworkPipeline,
        tile_bytes: int,
        memory: TileMemory | None = None,
    ) -> None:
        width = network.values[-1].size
        self._pipeline, self._tile_bytes, self._memory = pipeline, tile_bytes, memory
        if memory is not None:
            rows, room = memory.rows, memory.slots
        else:
            rows = pipeline.rows
            widest = max(layout(network, at).bytes for at in pipeline.ends[:-1])
            tiles = -(-rows * max(widest, 4 * width) // tile_bytes) + 1
            # All tags in flight fit a node's queue, so that none is dropped while it computes.
            room = max(1, min(ROW_SLOTS, 4 * pipeline.nodes, TILE_ROOM // tiles))
        turns = math.lcm(*pipeline.counts)
        super().__init__(pipeline.parts - 1, DataId.SCORES, width, np.int32, rows, room, turns)

    def _tasks(self, tag: int, operand: NDArray[Any]) -> list[TaskPacket]:
        return list(
            activation_tiles(
                operand,
                array=0,
                row=tag,
                node=self._pipeline.taker(0, tag),
                tile_bytes=self._tile_bytes,
                lap=True,
                shared=place_in(self._memory, tag, TaskId.ACTIVATIONS),
            )
        )

    def _values(self, packet: TaskPacket) -> NDArray[np.int32]:
        return scores_in(self._memory, packet)
