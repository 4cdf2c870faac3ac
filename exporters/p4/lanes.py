# SPDX-License-Identifier: Apache-2.0
"""Divides a layer's counters into words that one statement counts in, for the templates of `p4`.

A lane is the room in which a neuron counts. A word holds the lanes of many neurons, so that one
popcount stage serves them all. The input passes in parts as wide as a lane, one after the other, so
that the words are used again; each neuron's counter adds up the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from n3ic.exporters.p4.shared.pipeline import PipelineLayer, PopcountStage, popcount_stages

_WORD_BITS = 2048  # p4c's default limit of a field
_SHORTEST_LANE = 64  # narrower lanes would need more parts, each with stages of its own
_WIDEST_LANE = 1024  # its stages shift by at most 256, as p4c does


@dataclass(frozen=True)
class LaneSize:
    """The size of a layer whose neurons count in lanes.

    Attributes:
        inputs: number of input bits.
        outputs: number of neurons.
    """

    inputs: int
    outputs: int

    @property
    def lane_bits(self) -> int:
        """Width of a lane, a power of two from 2 on, and of a part of the input."""
        all_inputs = 1 << max(1, (self.inputs - 1).bit_length())
        lane = _SHORTEST_LANE
        while lane < _WIDEST_LANE and lane * self.outputs * 2 <= _WORD_BITS:
            lane *= 2
        return min(lane, all_inputs)

    @property
    def words(self) -> int:
        """Number of words of lanes."""
        return -(-self.outputs * self.lane_bits // _WORD_BITS)

    @property
    def lanes(self) -> int:
        """Lanes of each word; the last word may have more than it needs."""
        return -(-self.outputs // self.words)

    @property
    def count_bits(self) -> int:
        """Width of a word, the field in which popcount stages count."""
        return self.lanes * self.lane_bits

    @property
    def half_bits(self) -> int:
        """Bits of the count of half a lane."""
        return (self.lane_bits // 2).bit_length()

    @property
    def part_count(self) -> int:
        """Number of parts of the input."""
        return -(-self.inputs // self.lane_bits)

    @property
    def stage_count(self) -> int:
        """Popcount stages of a part; two counts of half a lane each remain, and are added."""
        return self.lane_bits.bit_length() - 2

    @property
    def popcount_stages(self) -> int:
        """Popcount stages of all parts, one after the other, with the sums of halves."""
        return self.part_count * (self.stage_count + 1)

    @property
    def statements(self) -> int:
        """Number of statements that count."""
        return self.part_count * (self.words * self.stage_count + self.outputs)

    @property
    def part_tables(self) -> int:
        """Number of tables of all parts: weights, popcount stages, and the counters' additions."""
        return self.part_count + self.popcount_stages


@dataclass(frozen=True)
class LanePart:
    """A part of a layer's input, and what is applied to it.

    Attributes:
        index: its number.
        start: its first input bit.
        weights: a word of weights for each word of lanes; bits of no input or neuron are 1, so that
            they count nothing.
        masks: the same for connection masks, with 0 for such bits; empty without masks.
    """

    index: int
    start: int
    weights: tuple[int, ...]
    masks: tuple[int, ...]


@dataclass(frozen=True)
class LaneLayer(LaneSize):
    """A layer whose neurons count in lanes.

    Attributes:
        index: index of the layer in the network.
        source: field with the input bits.
        counter_bits: width of a hidden neuron's counter, including the sign.
        hidden: whether the neurons have thresholds; otherwise they are class scores.
        masked: whether the layer has a connection mask.
        stages: popcount stages of a part.
        parts: the parts of the input, in order.
        offsets: thresholds of the neurons, or biases as numbers of 32 bits.
    """

    index: int
    source: str
    counter_bits: int
    hidden: bool
    masked: bool
    stages: tuple[PopcountStage, ...]
    parts: tuple[LanePart, ...]
    offsets: tuple[int, ...]

    @property
    def tables(self) -> int:
        """Number of tables: of all parts, of the offsets, and of a hidden layer's signs."""
        return self.part_tables + 1 + self.hidden

    @property
    def phv_bits(self) -> int:
        """Bits of the words, and of a hidden layer's counters and outputs."""
        return self.words * self.count_bits + self.hidden * self.outputs * (self.counter_bits + 1)


def lane_layers(layers: Sequence[PipelineLayer]) -> tuple[LaneLayer, ...]:
    """Divide the counters of layers into lanes."""
    return tuple(map(_lane_layer, layers))


def statements(shape: tuple[int, ...]) -> int:
    """Count the statements that count ones, which are most of a program."""
    return sum(LaneSize(k, m).statements for k, m in pairwise(shape))


def tables(shape: tuple[int, ...]) -> int:
    """Count the tables of a program, without forwarding."""
    layers = sum(LaneSize(k, m).part_tables + 2 for k, m in pairwise(shape))
    # The output layer has no signs. Arg max takes 2 classes - 1; the others are load_input, model,
    # model_again and result.
    return layers - 1 + 2 * shape[-1] + 3


def _lane_layer(layer: PipelineLayer) -> LaneLayer:
    size = LaneSize(layer.inputs, layer.outputs)
    return LaneLayer(
        layer.inputs,
        layer.outputs,
        index=layer.index,
        source=layer.source,
        counter_bits=layer.difference_bits,
        hidden=layer.hidden,
        masked=layer.masked,
        stages=popcount_stages(size.count_bits)[: size.stage_count],
        parts=tuple(_parts(layer, size)),
        offsets=tuple(n.offset for n in layer.neurons),
    )


def _parts(layer: PipelineLayer, size: LaneSize) -> Iterator[LanePart]:
    # Bits of no input are 0, so weights of 1 count nothing there.
    weights = [n.weights | (-1 << layer.inputs) for n in layer.neurons]
    masks = [n.mask for n in layer.neurons if n.mask is not None]
    for index in range(size.part_count):
        start = index * size.lane_bits
        yield LanePart(
            index, start, _words(weights, start, size, -1), _words(masks, start, size, 0)
        )


def _words(values: Sequence[int], start: int, size: LaneSize, missing: int) -> tuple[int, ...]:
    """A part of all values, a lane each, in words; ``missing`` fills lanes of no neuron."""
    low = (1 << size.lane_bits) - 1
    words = []
    for first in range(0, len(values), size.lanes):
        neurons = [*values[first : first + size.lanes], *[missing] * size.lanes][: size.lanes]
        lanes = ((value >> start & low) << (i * size.lane_bits) for i, value in enumerate(neurons))
        words.append(sum(lanes))
    return tuple(words)
