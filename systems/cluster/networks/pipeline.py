# SPDX-License-Identifier: Apache-2.0
"""A network of integers as a pipeline: its parts on the nodes, and what travels between them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.systems.cluster.coordinator import TaggedRows
from n3ic.systems.cluster.endpoint import TILE_ROOM
from n3ic.systems.cluster.gathering import Gathering
from n3ic.systems.cluster.networks.network import IntegerNetwork, Part
from n3ic.systems.cluster.networks.operations import Array, Integers
from n3ic.systems.cluster.node import ROW_SLOTS, ArrayPart
from n3ic.systems.cluster.protocol import (
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
_WIRE_S = 4e-9
"""Seconds that a node needs for a byte of activations, to send or to take it (measured)."""
_TILE_S = 0.03
"""Seconds that a part computes at once: beyond, its neighbours wait for acknowledgements."""


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
        """Make bytes of shape ``(items, bytes)``."""
        parts = [
            array.reshape(len(array), value.size).astype(value.dtype, order="C").view(np.uint8)
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
    """Which node computes which steps of a network.

    Attributes:
        ends: the first step of each node's part, then the number of steps.
        seconds: estimated seconds of each part for one item, with its messages; empty if unknown.
    """

    ends: tuple[int, ...]
    seconds: tuple[float, ...] = ()

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.ends) - 1

    @property
    def rows(self) -> int:
        """Items of a tile: as many as the slowest part computes in a short time."""
        slowest = max(self.seconds, default=0.0)
        return max(1, min(TILE_ROWS, int(_TILE_S / slowest) if slowest else TILE_ROWS))

    def check(self, network: IntegerNetwork) -> None:
        """Check that the parts are those of a network.

        Raises:
            ClusterError: a part is empty, or the parts have other steps.
        """
        steps = len(network.steps)
        rises = all(a < b for a, b in pairwise(self.ends))
        if not rises or self.ends[0] != 0 or self.ends[-1] != steps:
            raise ClusterError(
                f"expected the ends of parts of {steps} operations, from 0 on, got {self.ends}"
            )


def measured_seconds(network: IntegerNetwork, items: int = 8) -> list[float]:
    """Measure each step on random inputs: processor seconds of an item, the least of some runs."""
    given = network.values[0]
    rng = np.random.default_rng(0)
    arrays: list[Array] = [
        rng.integers(given.low, given.high, (items, *given.shape), endpoint=True).astype(
            given.dtype
        )
    ]
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
    network: IntegerNetwork, nodes: int, seconds: Sequence[float] | None = None
) -> NetworkPipeline:
    """Divide a network so that the slowest part is as fast as possible.

    Args:
        network: the network.
        nodes: number of parts, each of at least one operation.
        seconds: seconds of each operation for one item; None to measure them here.

    Raises:
        ClusterError: the network has fewer operations than nodes.
    """
    steps = len(network.steps)
    if not 1 <= nodes <= steps:
        raise ClusterError(f"{nodes} nodes: expected 1 to {steps}, the operations of the network")
    each = measured_seconds(network) if seconds is None else seconds
    spent = np.concatenate([[0.0], np.cumsum(each)])
    wire = [_WIRE_S * layout(network, at).bytes for at in range(steps + 1)]

    def part(start: int, end: int) -> float:
        return float(spent[end] - spent[start]) + wire[start] + wire[end]

    # best[end]: the slowest part of the first `end` steps on some nodes, and where the last begins.
    best: dict[int, tuple[float, tuple[int, ...]]]
    best = {end: (part(0, end), (0, end)) for end in range(1, steps + 1)}
    for node in range(2, nodes + 1):
        best = {
            end: min(
                (max(best[start][0], part(start, end)), (*best[start][1], end))
                for start in range(node - 1, end)
            )
            for end in range(node, steps + 1)
        }
    ends = best[steps][1]
    return NetworkPipeline(ends, tuple(part(a, b) for a, b in pairwise(ends)))


class NetworkPart(ArrayPart):
    """A node's part of a network.

    Args:
        network: the network.
        pipeline: its parts.
        node: number of the node.
    """

    tasks: ClassVar = frozenset({TaskId.ACTIVATIONS})

    def __init__(self, network: IntegerNetwork, pipeline: NetworkPipeline, node: int) -> None:
        first, last = pipeline.ends[node - 1], pipeline.ends[node]
        self._part: Part = network.part(first, last)
        self._given, self._gives = layout(network, first), layout(network, last)
        self._node = node
        self._last = node == pipeline.nodes
        self._rows = Gathering(self._given.bytes, np.uint8)
        super().__init__(node - 1, 0, self._given.bytes)

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
        octets = self._rows.add_words(packet.row, packet.start, packet.activations)
        if octets is None:
            return ()
        results = self._weights.results(octets, f"part {self._node}")
        if self._last:
            scores = results[0].reshape(len(octets), -1).astype(np.int32)
            return score_packets(
                scores, array=self.array, row=packet.row, tile_bytes=packet.tile_bytes
            )
        return activation_tiles(
            self._gives.pack(results),
            array=self.array + 1,
            row=packet.row,
            node=self._node + 1,
            tile_bytes=packet.tile_bytes,
        )


class NetworkFlow(TaggedRows[np.int32]):
    """Items in flight through a network; a row is the bytes of an item.

    Args:
        network: the network.
        pipeline: its parts.
        tile_bytes: maximum bytes of numbers in a tile.
    """

    def __init__(self, network: IntegerNetwork, pipeline: NetworkPipeline, tile_bytes: int) -> None:
        width = network.values[-1].size
        super().__init__(pipeline.nodes - 1, DataId.SCORES, width, np.int32, pipeline.rows)
        self._tile_bytes = tile_bytes
        widest = max(layout(network, at).bytes for at in pipeline.ends[:-1])
        tiles = -(-pipeline.rows * max(widest, 4 * width) // tile_bytes) + 1
        # All tags in flight fit a node's queue, so that none is dropped while it computes.
        self._room = max(1, min(ROW_SLOTS, 4 * pipeline.nodes, TILE_ROOM // tiles))

    @property
    def slots(self) -> int:
        """Maximum number of tags in flight."""
        return min(self._slots, self._room)

    @slots.setter
    def slots(self, slots: int) -> None:
        self._slots = slots

    def _tasks(self, tag: int, operand: NDArray[Any]) -> list[TaskPacket]:
        return list(
            activation_tiles(
                operand, array=0, row=tag, node=1, tile_bytes=self._tile_bytes, lap=True
            )
        )

    def _values(self, packet: TaskPacket) -> NDArray[np.int32]:
        return packet.scores
