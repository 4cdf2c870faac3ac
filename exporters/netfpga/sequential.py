"""The sequential executor: weights in block RAM, one row of neurons a clock.

The paper's design (section 4.3). Python decides how neurons lie in the rows of the memories and
fills the parameters of the hand-written blocks in ``rtl/``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ExportError
from n3ic.exporters.netfpga.render import render
from n3ic.model.bits import WORD_BITS, Words, word_count
from n3ic.model.layers import Connections, HiddenLayer
from n3ic.model.network import BinaryModel

ROW_BITS = 256  # bits of a memory row, as in the paper
BLOCKS = (
    "n3ic_compress",
    "n3ic_count",
    "n3ic_fifo",
    "n3ic_hidden",
    "n3ic_memory",
    "n3ic_output",
    "n3ic_popcount",
    "n3ic_rows",
    "n3ic_tables",
)
_MAX_DISTRIBUTED_LUTS = 64  # a larger memory goes to block RAM
_MAX_SIDE_LUTS = 32  # of thresholds: deeper ones would be read through too many multiplexers

Packing = Literal["balanced", "full"]


def clog2(value: int) -> int:
    """Bits that count ``value`` things: the least ``b`` with ``2**b >= value``."""
    return (value - 1).bit_length()


@dataclass(frozen=True)
class LayerPlan:
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
    """

    index: int
    n: int
    m: int
    output: bool
    masked: bool
    lanes: int
    chunks: int
    trace_at: int

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
        return distributed_luts(2 << self.row_w, 32 * self.row_words) > _MAX_DISTRIBUTED_LUTS

    @property
    def bram36(self) -> float:
        """Blocks of 36 Kib: half a block holds 512 words of a row's 32-bit column."""
        blocks = self.row_words * -(-(2 << self.row_w) // 512) / 2 if self.block else 0.0
        side = self.lanes * -(-(2 << self.group_w) // 512) / 2 if self.block_side else 0.0
        return blocks * (2 if self.masked else 1) + side

    @property
    def block_side(self) -> bool:
        """Whether the thresholds or biases lie in block RAM."""
        return distributed_luts(2 << self.group_w, self.lanes * self.count_w) > _MAX_SIDE_LUTS


def distributed_luts(depth: int, width: int) -> int:
    """LUTs of a dual-port distributed RAM of the 7 series: four hold 32 x 6 or 64 x 3 bits."""
    if depth <= 32:
        return 4 * -(-width // 6)
    return 4 * -(-width // 3) * -(-depth // 64)


@dataclass(frozen=True)
class AddressMap:
    """Fields of a write address, from the lowest: word, row, kind (2 bits), layer."""

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
        """Address of one word; kind 0 is weights, 1 masks, 2 thresholds or biases."""
        return ((layer << 2 | kind) << self.row_w | row) << self.word_w | word


@dataclass(frozen=True)
class Plan:
    """The sizes of a sequential executor.

    Attributes:
        layers: one plan a layer.
        score_w: bits of a score, two's complement.
        modules: executors in parallel.
        tables: popcount by tables of 256 entries instead of compressors.
    """

    layers: tuple[LayerPlan, ...]
    score_w: int
    modules: int
    tables: bool

    @cached_property
    def address_map(self) -> AddressMap:
        """Where the write port finds a word."""
        return AddressMap(
            word_w=max(max(p.word_w, p.side_word_w) for p in self.layers),
            row_w=max(p.row_w for p in self.layers),
            layer_w=max(1, clog2(len(self.layers))),
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


def plan(model: BinaryModel, *, packing: Packing, modules: int, tables: bool) -> Plan:
    """Sizes of the executor of a model.

    Args:
        model: the network.
        packing: ``full`` puts as many neurons into a row as it holds, for the least latency;
            ``balanced`` as few as keep that design's rate, for the fewest LUTs.
        modules: executors in parallel.
        tables: popcount by tables of 256 entries, as in the paper.
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
            LayerPlan(
                index=i,
                n=layer.n_inputs,
                m=layer.n_outputs,
                output=i == len(model.hidden),
                masked=layer.mask is not None,
                lanes=lanes,
                chunks=chunks[i],
                trace_at=trace_at,
            )
        )
        trace_at += layer.n_outputs
    largest = int(np.abs(model.output.bias.astype(np.int64)).max()) + model.output.n_inputs
    return Plan(tuple(layers), clog2(largest + 1) + 1, modules, tables)


def _most_lanes(model: BinaryModel, index: int) -> int:
    """Neurons that fit a row; one in the output layer, whose classes are compared in turn."""
    layer = model.layers[index]
    if index == len(model.hidden):
        return 1
    lane_bits = WORD_BITS * word_count(layer.n_inputs)
    return min(layer.n_outputs, max(1, ROW_BITS // lane_bits))


# --- memory images ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Image:
    """One bank of one memory.

    Attributes:
        layer: the layer's index.
        kind: 0 weights, 1 masks, 2 thresholds or biases.
        name: file name without its ending.
        words: uint32 array of shape ``(rows, words of a row)``.
        row_w: address bits of a row.
    """

    layer: int
    kind: int
    name: str
    words: Words
    row_w: int


def images(model: BinaryModel, layout: Plan) -> list[Image]:
    """The contents of all memories.

    Raises:
        ExportError: the model has another shape than the layout, masks that it lacks, or biases
            that its scores cannot hold.
    """
    expected = tuple((p.n, p.m) for p in layout.layers)
    if tuple((c.n_inputs, c.n_outputs) for c in model.layers) != expected:
        shape = "-".join(str(n) for n in (expected[0][0], *(m for _, m in expected)))
        raise ExportError(f"the executor computes {shape}, the model is {model.shape_text}")
    out = []
    for p, layer in zip(layout.layers, model.layers, strict=True):
        if layer.mask is not None and not p.masked:
            raise ExportError(f"layer {p.index} has a mask, the executor's layer has none")
        out.append(_image(p, 0, "weights", _rows(p, layer.weight_words, fill=0xFFFFFFFF)))
        if p.masked:
            out.append(_image(p, 1, "masks", _rows(p, layer.mask_words, fill=0)))
        values, name = _side(layer)
        side = np.zeros(p.groups * p.lanes, dtype=np.int64)
        side[: p.m] = values
        if p.output and np.abs(side).max() + p.n >= 1 << (layout.score_w - 1):
            raise ExportError(f"biases up to {np.abs(side).max()} need wider scores")
        words = (side & 0xFFFFFFFF).astype(np.uint32).reshape(p.groups, p.lanes)
        out.append(_image(p, 2, name, words))
    return out


def _side(layer: Connections) -> tuple[NDArray[np.int32], str]:
    if isinstance(layer, HiddenLayer):
        return layer.thresholds, "thresholds"
    return layer.bias, "biases"  # type: ignore[attr-defined]


def _image(p: LayerPlan, kind: int, name: str, words: Words) -> Image:
    row_w = p.group_w if kind == 2 else p.row_w
    return Image(p.index, kind, f"layer{p.index}_{name}", words, row_w)


def _rows(p: LayerPlan, words: Words, fill: int) -> Words:
    """Words of the neurons as rows of the memory."""
    neurons = np.full((p.groups * p.lanes, p.chunks * p.lane_words), fill, dtype=np.uint32)
    neurons[: p.m, : words.shape[1]] = words
    return neurons.reshape(p.rows, p.row_words)


def writes(model: BinaryModel, layout: Plan) -> list[tuple[int, int]]:
    """Addresses and words that put a model into the free bank through the write port.

    Raises:
        ExportError: as :func:`images`.
    """
    return [
        (layout.address_map.address(image.layer, image.kind, row, column), int(word))
        for image in images(model, layout)
        for row, words in enumerate(image.words)
        for column, word in enumerate(words)
    ]


def _both_banks(image: Image) -> list[str]:
    """Rows of both banks in hexadecimal, the highest word first."""
    bank = ["".join(f"{int(w):08x}" for w in row[::-1]) for row in image.words]
    blank = "0" * len(bank[0])
    return 2 * (bank + [blank] * ((1 << image.row_w) - len(bank)))


def write(model: BinaryModel, layout: Plan, out: Path, rtl: Path) -> dict[str, Any]:
    """Write Verilog and memory files below ``out``.

    Args:
        model: the network.
        layout: the executor's sizes.
        out: the export directory.
        rtl: the folder of the hand-written blocks.

    Returns:
        The widths of the core's ports, for the testbench and the wrapper.
    """
    (out / "rtl").mkdir(exist_ok=True)
    (out / "mem").mkdir(exist_ok=True)
    for block in BLOCKS:
        (out / "rtl" / f"{block}.v").write_bytes((rtl / f"{block}.v").read_bytes())
    values = {
        "shape": model.shape_text,
        "n_in": layout.layers[0].n,
        "n_classes": layout.n_classes,
        "class_w": layout.class_w,
        "score_w": layout.score_w,
        "trace_w": layout.trace_w,
        "addr": layout.address_map,
        "layers": layout.layers,
        "modules": layout.modules,
        "depth_w": layout.depth_w,
        "tables": layout.tables,
    }
    for name in ("n3ic_executor", "n3ic_core"):
        (out / "rtl" / f"{name}.v").write_text(render(f"{name}.v.j2", values))
    for image in images(model, layout):
        rows = _both_banks(image)
        (out / "mem" / f"{image.name}.mem").write_text("\n".join(rows) + "\n")
        coe = "memory_initialization_radix=16;\nmemory_initialization_vector=\n"
        (out / "mem" / f"{image.name}.coe").write_text(coe + ",\n".join(rows) + ";\n")
    digits = -(-layout.address_map.width // 4)
    lines = [f"{address:0{digits}x} {word:08x}" for address, word in writes(model, layout)]
    (out / "mem" / "update.hex").write_text("\n".join(lines) + "\n")
    return {
        "class_w": layout.class_w,
        "score_w": layout.score_w,
        "trace_w": layout.trace_w,
        "write_port": True,
        "wr_aw": layout.address_map.width,
        "wr_dw": WORD_BITS,
    }
