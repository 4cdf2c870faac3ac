# SPDX-License-Identifier: Apache-2.0
"""Layout of a network's neurons in the rows of the sequential executor's memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np

from n3ic.exporters.netfpga.core import SCORE_BITS
from n3ic.model.bits import WORD_BITS, word_count
from n3ic.model.network import BinaryModel

ROW_BITS = 256  # bits of a memory row, as in the paper
_MAX_DISTRIBUTED_LUTS = 64  # larger memories go to block RAM
_MAX_SIDE_LUTS = 32  # for thresholds: a deeper memory would need too many read multiplexers

Packing = Literal["balanced", "full"]
Masks = Literal["model", "all"]
Shunting = Literal["model", "all"]


def clog2(value: int) -> int:
    """Bits that count ``value`` things: the smallest ``b`` with ``2**b >= value``."""
    return (value - 1).bit_length()


@dataclass(frozen=True)
class LayerLayout:
    """Layout of a layer in its memories.

    Attributes:
        index: index of the layer.
        n: number of inputs.
        m: number of neurons or classes.
        output: whether it is the output layer.
        masked: whether a mask selects the connections that count.
        lanes: neurons per row.
        chunks: rows per neuron; 1 if there are several lanes.
        trace_at: index of the layer's first bit among all hidden bits.
        row_bits: bits of a row of a neuron that takes several.
        bank_w: width of a bank's number in bits, with two banks per model.
    """

    index: int
    n: int
    m: int
    output: bool
    masked: bool
    lanes: int
    chunks: int
    trace_at: int
    row_bits: int = ROW_BITS
    bank_w: int = 1

    @property
    def part(self) -> int:
        """Inputs of one neuron that one row holds."""
        return self.n if self.chunks == 1 else self.row_bits

    @property
    def groups(self) -> int:
        """Number of groups of ``lanes`` neurons."""
        return -(-self.m // self.lanes)

    @property
    def rows(self) -> int:
        """Rows of a bank of the weight memory; an input takes one clock per row."""
        return self.groups * self.chunks

    @property
    def lane_words(self) -> int:
        """32-bit words per neuron in a row."""
        return word_count(self.part)

    @property
    def row_words(self) -> int:
        """32-bit words per row."""
        return self.lanes * self.lane_words

    @property
    def row_w(self) -> int:
        """Address width of a row, in bits."""
        return max(1, clog2(self.rows))

    @property
    def group_w(self) -> int:
        """Address width of a group, in bits."""
        return max(1, clog2(self.groups))

    @property
    def word_w(self) -> int:
        """Address width of a word in a row, in bits."""
        return max(1, clog2(self.row_words))

    @property
    def side_word_w(self) -> int:
        """Address width of a threshold in its row, in bits."""
        return max(1, clog2(self.lanes))

    @property
    def count_w(self) -> int:
        """Width of a popcount and of a threshold; a threshold may be the fan-in plus one."""
        return clog2(self.n + 2)

    @property
    def block(self) -> bool:
        """Whether the weights are in block RAM."""
        return (
            distributed_luts(1 << self.row_w + self.bank_w, 32 * self.row_words)
            > _MAX_DISTRIBUTED_LUTS
        )

    @property
    def bram36(self) -> float:
        """Block memories of 36 Kib: half a block holds 512 words of one 32-bit column of a row."""
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
        """Whether the thresholds or biases are in block RAM."""
        return (
            distributed_luts(1 << self.group_w + self.bank_w, self.lanes * self.count_w)
            > _MAX_SIDE_LUTS
        )


def distributed_luts(depth: int, width: int) -> int:
    """LUTs of a dual-port distributed RAM (7 series): four LUTs hold 32 x 6 or 64 x 3 bits."""
    if depth <= 32:
        return 4 * -(-width // 6)
    return 4 * -(-width // 3) * -(-depth // 64)


@dataclass(frozen=True)
class AddressMap:
    """Fields of a write address, from the lowest: word, row, kind (2 bits), layer.

    Attributes:
        word_w: width of a word's index in its row, in bits.
        row_w: width of a row's index, in bits.
        layer_w: width of a layer's index, in bits.
    """

    word_w: int
    row_w: int
    layer_w: int

    @property
    def kind_at(self) -> int:
        """Position of the lowest bit of the kind."""
        return self.word_w + self.row_w

    @property
    def layer_at(self) -> int:
        """Position of the lowest bit of the layer."""
        return self.kind_at + 2

    @property
    def width(self) -> int:
        """Width of an address, in bits."""
        return self.layer_at + self.layer_w

    def address(self, layer: int, kind: int, row: int, word: int) -> int:
        """Compute the address of one word.

        Kind 0 is weights, 1 masks, 2 thresholds or biases, 3 the whole model: word 0 is its id,
        word 1 the smallest margin that is not shunted. Word 0 of row 1 clears the id, which begins
        an update.
        """
        return ((layer << 2 | kind) << self.row_w | row) << self.word_w | word


@dataclass(frozen=True)
class SequentialLayout:
    """Sizes of a sequential executor.

    Attributes:
        layers: one layout per layer.
        score_w: width of a score in two's complement, in bits.
        modules: number of executors in parallel.
        tables: whether popcounts use tables of 256 entries instead of compressors.
        shunts: whether each bank has a register for the shunting threshold.
        model_w: width of a model's number in bits, if several of one shape share the executor.
    """

    layers: tuple[LayerLayout, ...]
    score_w: int
    modules: int
    tables: bool
    shunts: bool = False
    model_w: int = 0

    @cached_property
    def address_map(self) -> AddressMap:
        """Address map of the write port."""
        return AddressMap(
            word_w=max(max(p.word_w, p.side_word_w) for p in self.layers),
            row_w=max(p.row_w for p in self.layers),
            layer_w=max(1, clog2(len(self.layers))),
        )

    @property
    def text(self) -> str:
        """Description of the executor, which an update must match; see ``update.hex``."""
        addr, row_bits = self.address_map, self.layers[0].row_bits
        return " ".join(
            (
                "-".join(str(n) for n in (self.layers[0].n, *(p.m for p in self.layers))),
                f"score={self.score_w}",
                "lanes=" + ",".join(str(p.lanes) for p in self.layers),
                "masks=" + ",".join(str(int(p.masked)) for p in self.layers),
                f"address={addr.layer_w},2,{addr.row_w},{addr.word_w}",
                *(
                    [f"rows={row_bits}"]
                    if (row_bits := self.layers[0].row_bits) != ROW_BITS
                    else []
                ),
                *(["shunting"] if self.shunts else []),
            )
        )

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.layers[-1].m

    @property
    def class_w(self) -> int:
        """Width of a class index, in bits."""
        return max(1, clog2(self.n_classes))

    @property
    def trace_w(self) -> int:
        """Number of hidden bits of all layers."""
        return sum(p.m for p in self.layers[:-1])

    @property
    def depth_w(self) -> int:
        """Binary logarithm of the inferences in flight in the executors."""
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
    row_bits: int = ROW_BITS,
) -> SequentialLayout:
    """Compute the executor's sizes, which depend only on the model's shape and the options.

    With ``masks="model"`` they also depend on which layers have masks, and with
    ``shunting="model"`` on whether the model shunts.

    Args:
        model: the network.
        packing: ``full`` puts as many neurons into a row as fit, for the least latency;
            ``balanced`` puts as few as keep the same rate, for the fewest LUTs.
        modules: number of executors in parallel.
        tables: whether to compute popcounts by tables of 256 entries, as in the paper.
        masks: ``all`` gives every layer a memory for masks, ``model`` only the layers with masks.
        score_bits: minimum width of a score, in bits; raised to three more than a popcount's width.
        shunting: ``all`` always adds the register of the shunting threshold, ``model`` only for a
            model with a threshold.
        row_bits: most bits of a memory row; fewer take fewer LUTs and more clocks.
    """
    most = [_most_lanes(model, i, row_bits) for i in range(len(model.layers))]
    chunks = [max(1, -(-layer.n_inputs // row_bits)) for layer in model.layers]
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
                row_bits=row_bits,
            )
        )
        trace_at += layer.n_outputs
    score_w = max(score_bits, clog2(model.output.n_inputs + 1) + 3)
    shunts = shunting == "all" or model.shunt > 0
    return SequentialLayout(tuple(layers), score_w, modules, tables, shunts)


def plan_with(model: BinaryModel, options: Mapping[str, Any]) -> SequentialLayout:
    """Call :func:`plan` with the target's options."""
    return plan(
        model,
        packing=cast(Packing, options["packing"]),
        modules=int(options["modules"]),
        tables=options["popcount"] == "tables",
        masks=cast(Masks, options["masks"]),
        score_bits=int(options["score-bits"]),
        shunting=cast(Shunting, options["shunting"]),
        row_bits=int(options["row-bits"]),
    )


def shared(layouts: Sequence[SequentialLayout]) -> SequentialLayout:
    """Lay out one executor for several models of one shape, with two banks each."""
    first, model_w = layouts[0], clog2(len(layouts))
    layers = tuple(
        replace(p, masked=any(each.layers[i].masked for each in layouts), bank_w=1 + model_w)
        for i, p in enumerate(first.layers)
    )
    return replace(
        first, layers=layers, shunts=any(each.shunts for each in layouts), model_w=model_w
    )


def score_bits_needed(model: BinaryModel) -> int:
    """Bits that hold every score that the model can have, in two's complement."""
    largest = int(np.abs(model.output.bias.astype(np.int64)).max()) + model.output.n_inputs
    return clog2(largest + 1) + 1


def _most_lanes(model: BinaryModel, index: int, row_bits: int) -> int:
    """Maximum neurons per row; one in the output layer, which compares the classes in turn."""
    layer = model.layers[index]
    if index == len(model.hidden):
        return 1
    lane_bits = WORD_BITS * word_count(layer.n_inputs)
    return min(layer.n_outputs, max(1, row_bits // lane_bits))
