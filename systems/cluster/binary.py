# SPDX-License-Identifier: Apache-2.0
"""Binary layers on a node: shares of neurons, shares of inputs, and reducers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.kernel import prediction
from n3ic.model.bits import WORD_BITS, Words, pack, pad_mask
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import Connections, HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.systems.cluster.gathering import Gathering
from n3ic.systems.cluster.memory import TileMemory, place_in, shared_with
from n3ic.systems.cluster.node import ROW_SLOTS, ArrayPart, status_packet
from n3ic.systems.cluster.placement import LayerSplit, ModelPlacement, Share
from n3ic.systems.cluster.protocol import (
    BY_RANGE,
    DataId,
    ProtocolError,
    TaskId,
    TaskPacket,
    bits_packets,
    score_packets,
    sums_packets,
)
from n3ic.systems.cluster.scrubbing import CheckedWeights, array_digest


@dataclass(frozen=True)
class NextLayer:
    """The layer that reads a layer's bits.

    Attributes:
        array: number of the layer.
        task: ``TaskId.BITS``, or ``TaskId.INPUTS`` for a layer split by inputs.
        outputs: number of its neurons.
        replicas: nodes that take the rows in turn, in order; empty for a split layer.
        memory: memory that the nodes share; None if packets carry the numbers.
    """

    array: int
    task: TaskId
    outputs: int
    replicas: tuple[int, ...] = ()
    memory: TileMemory | None = None

    def packets(
        self, words: Words, row: int, offset: int, tile_bytes: int, *, lap: bool = False
    ) -> list[TaskPacket]:
        """Make the tasks that carry words of this layer's input, of shape ``(rows, n)``."""
        # The tag alone chooses the replica, so that every sender of the row chooses the same one.
        turn = self.replicas[row % len(self.replicas)] if self.replicas else BY_RANGE
        return list(
            bits_packets(
                words,
                task=self.task,
                array=self.array,
                row=row,
                outputs=self.outputs,
                offset=offset,
                destination=turn,
                lap=lap,
                tile_bytes=tile_bytes,
                shared=place_in(self.memory, row, TaskId.BITS, self.array),
            )
        )


def layer_input(
    placement: ModelPlacement, array: int, memory: TileMemory | None = None
) -> NextLayer:
    """Describe how a layer reads its input."""
    layer = placement.layers[array]
    replicated = layer.split is LayerSplit.REPLICATED
    return NextLayer(
        array,
        TaskId.INPUTS if layer.split is LayerSplit.INPUT else TaskId.BITS,
        placement.shape[array + 1],
        tuple(share.node for share in layer.shares) if replicated else (),
        memory,
    )


@dataclass(frozen=True, eq=False)
class Activation:
    """Converts the popcounts of some neurons to bits or scores.

    Attributes:
        array: number of the layer.
        start: index of the first neuron.
        limits: threshold of each hidden neuron or bias of each class, int32.
        following: the next layer; None for the last layer, which sends its scores home.
        memory: memory that the nodes share; None if packets carry the numbers.
    """

    array: int
    start: int
    limits: NDArray[np.int32]
    following: NextLayer | None
    memory: TileMemory | None = None

    def results(self, popcounts: NDArray[np.int32]) -> NDArray[Any]:
        """Return packed bits for the next layer, or scores, of popcounts.

        Args:
            popcounts: int32 array of shape ``(rows, neurons)``.
        """
        if self.following is None:
            return popcounts + self.limits
        return pack(popcounts >= self.limits)

    def packets(self, results: NDArray[Any], row: int, tile_bytes: int) -> Iterable[TaskPacket]:
        """Make packets for the next layer or for the coordinator.

        Args:
            results: packed bits or scores, of shape ``(rows, n)``.
            row: tag of the rows.
            tile_bytes: maximum bytes of numbers in a tile; 0 for packets of 512 bits.
        """
        if self.following is not None:
            # Shares begin at multiples of 32, so their bits are whole words of the next layer.
            return self.following.packets(results, row, self.start // WORD_BITS, tile_bytes)
        return score_packets(
            results,
            array=self.array,
            row=row,
            start=self.start,
            tile_bytes=tile_bytes,
            shared=place_in(self.memory, row, DataId.SCORES),
        )


def counting(connections: Connections) -> CheckedWeights:
    """Weights that count ``popcount(XNOR(w, x) & mask)``, int32 of shape ``(rows, outputs)``."""
    if connections.n_outputs >= 2:  # the compiled kernel needs at least two classes
        bias = np.zeros(connections.n_outputs, dtype=np.int32)
        model = _network((), OutputLayer(connections.weights, mask=connections.mask, bias=bias))
        network = prediction.load_anew(model)
        if network is not None:
            return CheckedWeights(
                network.scores, network.digest
            )  # called for each packet: unchecked
    arrays = connections.weight_words, connections.mask_words
    return CheckedWeights(connections.popcounts, lambda: array_digest(arrays))


def _firing_weights(connections: Connections, firing: Activation) -> CheckedWeights:
    """Return weights that compute bits for the next layer, or scores."""
    if firing.following is not None:
        layer = HiddenLayer(connections.weights, mask=connections.mask, thresholds=firing.limits)
        # The kernel needs two classes; nobody reads their scores.
        unread = OutputLayer(np.zeros((2, layer.n_outputs), np.bool_), bias=np.zeros(2, np.int32))
        network = prediction.load_anew(_network((layer,), unread))
        if network is not None:
            return CheckedWeights(network.hidden, network.digest)
    sums = counting(connections)
    return CheckedWeights(lambda words: firing.results(sums.compute(words)), sums.digest)


def _network(hidden: tuple[HiddenLayer, ...], output: OutputLayer) -> BinaryModel:
    inputs = (*hidden, output)[0].n_inputs
    classes = tuple(str(j) for j in range(output.n_outputs))
    return BinaryModel(input=InputSpec.raw(inputs), hidden=hidden, output=output, classes=classes)


class _InputWords:
    """Input words of a share's incomplete rows.

    Args:
        array: number of the layer.
        first: first of the layer's input words that the share needs.
        words: number of these words.
        memory: memory that the nodes share, in which shared tiles have their words.
    """

    def __init__(self, array: int, first: int, words: int, memory: TileMemory | None) -> None:
        self._array = array
        self._needed = slice(first, first + words)
        self._memory = memory
        self._rows = Gathering(words, np.uint32)

    def clear(self) -> None:
        """Forget every row."""
        self._rows.clear()

    def add_words(self, packet: TaskPacket, first: int, last: int) -> Words | None:
        """Take a packet's words ``first`` to ``last``; return all words of its rows once there.

        Returns:
            uint32 array of shape ``(rows, words)``; None while words are missing.

        Raises:
            ProtocolError: Words came before, or lie outside.
        """
        row, at = packet.row, packet.offset + first - self._needed.start
        if not packet.shared:
            return self._rows.add_words(row, at, packet.words[:, first:last])
        place = shared_with(self._memory, packet).numbers(row, TaskId.BITS, self._array)
        return self._rows.add_placed(row, at, last - first, place[: packet.rows, self._needed])


class NeuronShare(ArrayPart):
    """Some neurons of a layer with all their inputs, or all neurons of a replicated layer."""

    tasks: ClassVar = frozenset({TaskId.BITS})

    def __init__(
        self, connections: Connections, firing: Activation, memory: TileMemory | None = None
    ) -> None:
        super().__init__(firing.array, firing.start, firing.start + connections.n_outputs)
        self._weights = _firing_weights(connections, firing)
        self._firing = firing
        self._words = connections.n_words
        self._pad = pad_mask(connections.n_inputs)
        self._rows = _InputWords(firing.array, 0, connections.n_words, memory)

    def clear(self) -> None:
        """Forget every row."""
        self._rows.clear()

    def perform_task(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Store input bits; compute when a row is complete."""
        words = self._rows.add_words(packet, 0, packet.count)
        if words is None:
            return ()
        # Weights pad with 1, so an input of 0 there does not match; a 1 would add to the popcount.
        if (words & ~self._pad).any():
            raise ProtocolError(f"row {packet.row}: pad bits of layer {self.array} are set")
        return self._firing.packets(
            self._weights.results(words, f"layer {self.array}"), packet.row, packet.tile_bytes
        )

    @property
    def status(self) -> TaskPacket:
        """The packet that tells the coordinator what this node holds."""
        return status_packet(self, kind=1, slots=ROW_SLOTS, offset=0, words=self._words)


class InputShare(ArrayPart):
    """Some inputs of all neurons of a layer; its range counts input bits in whole words."""

    tasks: ClassVar = frozenset({TaskId.INPUTS})

    def __init__(
        self, array: int, start: int, connections: Connections, memory: TileMemory | None = None
    ) -> None:
        words = connections.n_words
        super().__init__(array, start, start + WORD_BITS * words)
        self._weights = counting(connections)
        self._words = words
        self._pad = pad_mask(connections.n_inputs)
        self.memory = memory
        self._rows = _InputWords(array, start // WORD_BITS, words, memory)

    def clear(self) -> None:
        """Forget every row."""
        self._rows.clear()

    def perform_task(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Store input bits; count when a row is complete."""
        if packet.start % WORD_BITS or packet.end % WORD_BITS:
            raise ProtocolError(f"inputs [{packet.start}, {packet.end}) are not whole words")
        # A split packet keeps its body; the range says which of its words are for this share.
        first = packet.start // WORD_BITS - packet.offset
        last = packet.end // WORD_BITS - packet.offset
        if not 0 <= first < last <= packet.count:
            raise ProtocolError(f"inputs [{packet.start}, {packet.end}) are not in the packet")
        words = self._rows.add_words(packet, first, last)
        if words is None:
            return ()
        if (words & ~self._pad).any():
            raise ProtocolError(f"row {packet.row}: pad bits of layer {self.array} are set")
        offset = self.start // WORD_BITS
        memory = self.memory if packet.shared else None
        return sums_packets(
            self._weights.results(words, f"layer {self.array}"),
            array=self.array,
            row=packet.row,
            offset=offset,
            tile_bytes=packet.tile_bytes,
            shared=place_in(memory, packet.row, TaskId.SUMS, self.array, offset),
        )

    @property
    def status(self) -> TaskPacket:
        """The packet that tells the coordinator what this node holds."""
        first = self.start // WORD_BITS
        return status_packet(self, kind=2, slots=ROW_SLOTS, offset=first, words=self._words)


class Reducer(ArrayPart):
    """Adds the partial popcounts of some neurons of a layer split by inputs.

    Args:
        parts: first input word of each part.
        neurons: number of neurons.
        firing: turns the sums into bits or scores.
        memory: memory that the nodes share, in which shared tiles have their popcounts.
    """

    tasks: ClassVar = frozenset({TaskId.SUMS})

    def __init__(
        self,
        parts: Iterable[int],
        neurons: int,
        firing: Activation,
        memory: TileMemory | None = None,
    ) -> None:
        super().__init__(firing.array, firing.start, firing.start + neurons)
        self._parts = {offset: i for i, offset in enumerate(parts)}
        self._firing = firing
        self.memory = memory
        self._rows: dict[int, tuple[NDArray[np.int32], NDArray[np.bool_]]] = {}

    def clear(self) -> None:
        """Forget every row."""
        self._rows.clear()

    def perform_task(self, packet: TaskPacket) -> Iterable[TaskPacket]:
        """Add partial popcounts; fire when all parts of a row have arrived."""
        part = self._parts.get(packet.offset)
        if part is None:
            raise ProtocolError(f"layer {self.array} has no part at word {packet.offset}")
        if packet.row not in self._rows:
            if len(self._rows) == ROW_SLOTS:
                raise ProtocolError(f"row {packet.row}: more than {ROW_SLOTS} rows at once")
            size = self.end - self.start
            self._rows[packet.row] = (
                np.zeros((packet.rows, size), dtype=np.int32),
                np.zeros((len(self._parts), size), dtype=np.bool_),
            )
        total, parts = self._rows[packet.row]
        if len(total) != packet.rows:
            raise ProtocolError(f"tile {packet.row}: of {len(total)} and of {packet.rows} rows")
        here = slice(packet.start - self.start, packet.end - self.start)
        if parts[part, here].any():
            raise ProtocolError(f"row {packet.row}: a partial popcount arrived twice")
        # Parts may arrive in any order. Addition is not idempotent, so `seen` catches a part that
        # would be counted twice.
        total[:, here] += self._sums(packet)
        parts[part, here] = True
        if not parts.all():
            return ()
        del self._rows[packet.row]
        return self._firing.packets(self._firing.results(total), packet.row, packet.tile_bytes)

    def _sums(self, packet: TaskPacket) -> NDArray[Any]:
        if not packet.shared:
            return packet.sums
        memory = shared_with(self.memory, packet)
        sums = memory.numbers(packet.row, TaskId.SUMS, self.array, packet.offset)
        return sums[: packet.rows, packet.start : packet.end]

    @property
    def status(self) -> TaskPacket:
        """The packet that tells the coordinator what this node holds."""
        return status_packet(self, kind=3, slots=ROW_SLOTS, offset=0, words=0)


def parts_of(
    model: BinaryModel, placement: ModelPlacement, node: int, memory: TileMemory | None = None
) -> list[ArrayPart]:
    """Make the shares of a model that a node holds.

    Args:
        model: the placed model.
        placement: placement of the model.
        node: number of the node.
        memory: memory that the nodes share; None if packets carry the numbers.
    """
    placement.check_model(model)
    shares: list[ArrayPart] = []
    for array, (layer, placed) in enumerate(zip(model.layers, placement.layers, strict=True)):
        for share in placed.shares:
            if share.node != node:
                continue
            if placed.split is LayerSplit.INPUT:
                part = _columns(layer, share.start, share.end)
                shares.append(InputShare(array, share.start, part, memory))
            else:
                firing = _firing(model, placement, array, share, memory)
                shares.append(NeuronShare(_rows(layer, share.start, share.end), firing, memory))
        # The first input word identifies a partial sum: shares of a layer do not overlap.
        parts = [share.start // WORD_BITS for share in placed.shares]
        shares += [
            Reducer(parts, r.end - r.start, _firing(model, placement, array, r, memory), memory)
            for r in placed.reducers
            if r.node == node
        ]
    return shares


def _rows(layer: Connections, start: int, end: int) -> Connections:
    mask = None if layer.mask is None else layer.mask[start:end]
    return Connections(layer.weights[start:end], mask=mask)


def _columns(layer: Connections, start: int, end: int) -> Connections:
    mask = None if layer.mask is None else layer.mask[:, start:end]
    return Connections(layer.weights[:, start:end], mask=mask)


def _firing(
    model: BinaryModel,
    placement: ModelPlacement,
    array: int,
    share: Share,
    memory: TileMemory | None,
) -> Activation:
    layer = model.layers[array]
    limits = layer.thresholds if isinstance(layer, HiddenLayer) else model.output.bias
    last = array == len(placement.layers) - 1
    following = None if last else layer_input(placement, array + 1, memory)
    return Activation(array, share.start, limits[share.start : share.end], following, memory)
