"""How the neurons of a network lie in the rows of the sequential executor's memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np

from n3ic.model.bits import WORD_BITS, word_count
from n3ic.model.network import BinaryModel

ROW_BITS = 256  # bits of a memory row, as in the paper
_MAX_DISTRIBUTED_LUTS = 64  # a larger memory goes to block RAM
_MAX_SIDE_LUTS = 32  # of thresholds: deeper ones would be read through too many multiplexers

SCORE_BITS = 12  # of a score, where a popcount has fewer than ten

Packing = Literal["balanced", "full"]
Masks = Literal["model", "all"]
Shunting = Literal["model", "all"]


def clog2(value: int) -> int:
    """Bits that count ``value`` things: the least ``b`` with ``2**b >= value``."""
    return (value - 1).bit_length()


@dataclass(frozen=True)
class LayerLayout:
    """How a layer lies in its memories.

    Attributes:
        index: the layer's index.
        n: inputs.
        m: neurons or classes.
        output: whether it is the output layer.
        masked: whether a mask says which connections count.
        lanes: neurons of a row.
        chunks: rows of a neuron; 1 where there are several lanes.
        trace_at: index of its first bit among all hidden bits.
        bank_w: bits of a bank's number: two banks a model.
    """

    index: int
    n: int
    m: int
    output: bool
    masked: bool
    lanes: int
    chunks: int
    trace_at: int
    bank_w: int = 1

    @property
    def part(self) -> int:
        """Inputs of one neuron in a row."""
        return self.n if self.chunks == 1 else ROW_BITS

    @property
    def groups(self) -> int:
        """Groups of ``lanes`` neurons."""
        return -(-self.m // self.lanes)

    @property
    def rows(self) -> int:
        """Rows of the weight memory, one bank; as many clocks does an input take."""
        return self.groups * self.chunks

    @property
    def lane_words(self) -> int:
        """32-bit words of one neuron in a row."""
        return word_count(self.part)

    @property
    def row_words(self) -> int:
        """32-bit words of a row."""
        return self.lanes * self.lane_words

    @property
    def row_w(self) -> int:
        """Address bits of a row."""
        return max(1, clog2(self.rows))

    @property
    def group_w(self) -> int:
        """Address bits of a group."""
        return max(1, clog2(self.groups))

    @property
    def word_w(self) -> int:
        """Address bits of a word in a row."""
        return max(1, clog2(self.row_words))

    @property
    def side_word_w(self) -> int:
        """Address bits of a threshold in its row."""
        return max(1, clog2(self.lanes))

    @property
    def count_w(self) -> int:
        """Bits of a popcount and of a threshold, which may be one above the fan-in."""
        return clog2(self.n + 2)

    @property
    def block(self) -> bool:
        """Whether the weights lie in block RAM."""
        return (
            distributed_luts(1 << self.row_w + self.bank_w, 32 * self.row_words)
            > _MAX_DISTRIBUTED_LUTS
        )

    @property
    def bram36(self) -> float:
        """Blocks of 36 Kib: half a block holds 512 words of a row's 32-bit column."""
        blocks = (
            self.row_words * -(-(1 << self.row_w + self.bank_w) // 512) / 2 if self.block else 0.0
        )
        side = (
            self.lanes * -(-(1 << self.group_w + self.bank_w) // 512) / 2
            if self.block_side
            else 0.0
        )
        return blocks * (2 if self.masked else 1) + side

    @property
    def block_side(self) -> bool:
        """Whether the thresholds or biases lie in block RAM."""
        return (
            distributed_luts(1 << self.group_w + self.bank_w, self.lanes * self.count_w)
            > _MAX_SIDE_LUTS
        )


def distributed_luts(depth: int, width: int) -> int:
    """LUTs of a dual-port distributed RAM of the 7 series: four hold 32 x 6 or 64 x 3 bits."""
    if depth <= 32:
        return 4 * -(-width // 6)
    return 4 * -(-width // 3) * -(-depth // 64)


@dataclass(frozen=True)
class AddressMap:
    """Fields of a write address, from the lowest: word, row, kind (2 bits), layer.

    Attributes:
        word_w: bits of the word in its row.
        row_w: bits of the row.
        layer_w: bits of the layer.
    """

    word_w: int
    row_w: int
    layer_w: int

    @property
    def kind_at(self) -> int:
        """Index of the lowest bit of the kind."""
        return self.word_w + self.row_w

    @property
    def layer_at(self) -> int:
        """Index of the lowest bit of the layer."""
        return self.kind_at + 2

    @property
    def width(self) -> int:
        """Bits of an address."""
        return self.layer_at + self.layer_w

    def address(self, layer: int, kind: int, row: int, word: int) -> int:
        """Address of one word.

        Kind 0 is weights, 1 masks, 2 thresholds or biases, 3 the model's: word 0 its id, 1 the
        margin from which on it decides.
        """
        return ((layer << 2 | kind) << self.row_w | row) << self.word_w | word


@dataclass(frozen=True)
class SequentialLayout:
    """The sizes of a sequential executor.

    Attributes:
        layers: one layout a layer.
        score_w: bits of a score, two's complement.
        modules: executors in parallel.
        tables: popcount by tables of 256 entries instead of compressors.
        shunts: whether a register a bank holds the margin from which on a result is decided.
        model_w: bits of a model's number, where several of one shape share the executor.
    """

    layers: tuple[LayerLayout, ...]
    score_w: int
    modules: int
    tables: bool
    shunts: bool = False
    model_w: int = 0

    @cached_property
    def address_map(self) -> AddressMap:
        """Where the write port finds a word."""
        return AddressMap(
            word_w=max(max(p.word_w, p.side_word_w) for p in self.layers),
            row_w=max(p.row_w for p in self.layers),
            layer_w=max(1, clog2(len(self.layers))),
        )

    @property
    def text(self) -> str:
        """What an update must have been made for, in one line; see ``update.hex``."""
        addr = self.address_map
        return " ".join(
            (
                "-".join(str(n) for n in (self.layers[0].n, *(p.m for p in self.layers))),
                f"score={self.score_w}",
                "lanes=" + ",".join(str(p.lanes) for p in self.layers),
                "masks=" + ",".join(str(int(p.masked)) for p in self.layers),
                f"address={addr.layer_w},2,{addr.row_w},{addr.word_w}",
                *(["shunting"] if self.shunts else []),
            )
        )

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.layers[-1].m

    @property
    def class_w(self) -> int:
        """Bits of a class index."""
        return max(1, clog2(self.n_classes))

    @property
    def trace_w(self) -> int:
        """Hidden bits of all layers."""
        return sum(p.m for p in self.layers[:-1])

    @property
    def depth_w(self) -> int:
        """log2 of the inferences that the executors may hold at a time."""
        return max(3, clog2(self.modules * (2 * len(self.layers) + 4)))


def plan(
    model: BinaryModel,
    *,
    packing: Packing,
    modules: int,
    tables: bool,
    masks: Masks = "model",
    score_bits: int = SCORE_BITS,
    shunting: Shunting = "model",
) -> SequentialLayout:
    """Sizes of the executor of a model: they follow from its shape and the options alone.

    With ``masks="model"`` they also follow from which of its layers have masks, and with
    ``shunting="model"`` from whether it shunts.

    Args:
        model: the network.
        packing: ``full`` puts as many neurons into a row as it holds, for the least latency;
            ``balanced`` as few as keep that design's rate, for the fewest LUTs.
        modules: executors in parallel.
        tables: popcount by tables of 256 entries, as in the paper.
        masks: ``all`` gives every layer a memory for masks, ``model`` those that have masks.
        score_bits: bits of a score; three more than a popcount has where those are more.
        shunting: ``all`` gives every model the register of the shunting threshold, ``model`` one
            that has a threshold.
    """
    most = [_most_lanes(model, i) for i in range(len(model.layers))]
    chunks = [max(1, -(-layer.n_inputs // ROW_BITS)) for layer in model.layers]
    outputs = [layer.n_outputs for layer in model.layers]
    slowest = max(-(-m // a) * c for m, a, c in zip(outputs, most, chunks, strict=True))
    layers = []
    trace_at = 0
    for i, layer in enumerate(model.layers):
        lanes = most[i]
        if packing == "balanced":
            lanes = max(1, -(-outputs[i] * chunks[i] // slowest))
        layers.append(
            LayerLayout(
                index=i,
                n=layer.n_inputs,
                m=layer.n_outputs,
                output=i == len(model.hidden),
                masked=masks == "all" or layer.mask is not None,
                lanes=lanes,
                chunks=chunks[i],
                trace_at=trace_at,
            )
        )
        trace_at += layer.n_outputs
    score_w = max(score_bits, clog2(model.output.n_inputs + 1) + 3)
    shunts = shunting == "all" or model.shunt > 0
    return SequentialLayout(tuple(layers), score_w, modules, tables, shunts)


def plan_with(model: BinaryModel, options: Mapping[str, Any]) -> SequentialLayout:
    """:func:`plan` with the target's options."""
    return plan(
        model,
        packing=cast(Packing, options["packing"]),
        modules=int(options["modules"]),
        tables=options["popcount"] == "tables",
        masks=cast(Masks, options["masks"]),
        score_bits=int(options["score-bits"]),
        shunting=cast(Shunting, options["shunting"]),
    )


def shared(layouts: Sequence[SequentialLayout]) -> SequentialLayout:
    """The layout of one executor that several models of one shape share, two banks each.

    Args:
        layouts: of each model alone, with the same options.
    """
    first, model_w = layouts[0], clog2(len(layouts))
    layers = tuple(
        replace(p, masked=any(each.layers[i].masked for each in layouts), bank_w=1 + model_w)
        for i, p in enumerate(first.layers)
    )
    return replace(
        first, layers=layers, shunts=any(each.shunts for each in layouts), model_w=model_w
    )


def score_bits_needed(model: BinaryModel) -> int:
    """Bits that hold every score that a model can have, two's complement."""
    largest = int(np.abs(model.output.bias.astype(np.int64)).max()) + model.output.n_inputs
    return clog2(largest + 1) + 1


def _most_lanes(model: BinaryModel, index: int) -> int:
    """Neurons that fit a row; one in the output layer, whose classes are compared in turn."""
    layer = model.layers[index]
    if index == len(model.hidden):
        return 1
    lane_bits = WORD_BITS * word_count(layer.n_inputs)
    return min(layer.n_outputs, max(1, ROW_BITS // lane_bits))
