# SPDX-License-Identifier: Apache-2.0
"""The sequential executor of look-up tables: entries in block RAM, in two banks.

Each lane looks up one table per clock, so an input takes as many clocks as a lane has tables. The
indices are wired. Entries and biases can be replaced at run time and are swapped as a whole, by the
banks and the write port of the binary networks' core (:mod:`n3ic.exporters.netfpga.sequential`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import ExportError
from n3ic.exporters.netfpga.core import SHARED_RTL, copy_blocks
from n3ic.exporters.netfpga.graph.bit_tables.unrolled import added, class_width, score_width
from n3ic.exporters.netfpga.graph.tournament import BLOCK, pair_scores
from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.sequential.layout import AddressMap, clog2, distributed_luts
from n3ic.exporters.netfpga.sequential.update import compose
from n3ic.exporters.netfpga.sequential.write import FOLDER as CORE_FOLDER
from n3ic.families.tables.network import Table, TablesModel
from n3ic.families.tables.vectors import tables_vectors
from n3ic.model.bits import WORD_BITS
from n3ic.model.classifier import Classifier, margins_of
from n3ic.model.graph.bit_tables import BitTables, entry_widths
from n3ic.targets.identifiers import comment
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
ENTRIES, BIASES, MODEL = 0, 2, 3  # kinds of words
_MAX_DISTRIBUTED_LUTS = 16  # larger memories go to block RAM
_SRL_MINIMUM = 4  # clocks of the shortest delay that synthesis turns into a shift register
_READ = 5  # clocks from an input to its sums, without its turns


@dataclass(frozen=True)
class TablesLayout:
    """Sizes of a sequential executor.

    Attributes:
        lanes: tables looked up per clock; lane ``l`` has the tables ``l``, ``l + lanes`` and so on.
        turns: clocks per input.
        index_w: bits of the longest index.
        entry_w: bits of the widest entry.
        sums: number of sums.
        classes: number of classes.
        score_w: width of a score in two's complement, for any entries of these widths.
        shunts: whether each bank has a register for the shunting threshold.
        wiring: digest of the input bits that each table reads.
    """

    lanes: int
    turns: int
    index_w: int
    entry_w: int
    sums: int
    classes: int
    score_w: int
    shunts: bool
    wiring: str
    modules: int = 1

    @property
    def turn_w(self) -> int:
        """Width of a turn's number, in bits."""
        return max(1, clog2(self.turns))

    @property
    def address_map(self) -> AddressMap:
        """Address map of the write port: lane, kind, turn and index, sum."""
        return AddressMap(
            word_w=max(1, clog2(self.sums)),
            row_w=self.turn_w + self.index_w,
            layer_w=max(1, clog2(self.lanes)),
        )

    @property
    def late(self) -> int:
        """Clocks from the sums to the result."""
        return 2 * clog2(self.classes) + 1

    @property
    def latency(self) -> int:
        """Clocks from an input to its result."""
        return self.turns + _READ + self.late

    @property
    def depth_w(self) -> int:
        """Binary logarithm of the inferences in flight."""
        return max(3, clog2(self.latency // self.turns + 2))

    @property
    def block(self) -> bool:
        """Whether entries are in block RAM."""
        rows = 2 << self.turn_w + self.index_w
        return distributed_luts(rows, self.entry_w) > _MAX_DISTRIBUTED_LUTS

    @property
    def bram36(self) -> float:
        """Block memories of 36 Kib; half a block holds 2,048 entries of five to nine bits."""
        rows = 2048 << max(0, 3 - clog2(self.entry_w))
        halves = -(-(2 << self.turn_w + self.index_w) // rows)
        return self.lanes * self.sums * halves / 2 if self.block else 0.0

    @property
    def text(self) -> str:
        """Description of the executor, which an update must match; see ``update.hex``."""
        addr = self.address_map
        return " ".join(
            (
                f"tables={self.lanes}x{self.turns}",
                f"index={self.index_w} entry={self.entry_w} score={self.score_w}",
                f"classes={self.classes} wiring={self.wiring}",
                f"address={addr.layer_w},2,{addr.row_w},{addr.word_w}",
                *(["shunting"] if self.shunts else []),
            )
        )


def plan(model: Classifier, lanes: int, *, shunting: bool = False) -> TablesLayout:
    """Compute the executor's sizes, which depend only on the indices and the widths.

    Args:
        model: a model whose graph adds up look-up tables.
        lanes: maximum number of tables looked up per clock.
        shunting: whether to add the register of the shunting threshold even if the model has none.
    """
    own = added(model)
    lanes = min(lanes, len(own.tables))
    bits = [t.bits for t in own.tables]
    entry_w = max(entry_widths(model, own))
    most = len(bits) << entry_w  # twice the largest sum of one entry per table
    return TablesLayout(
        lanes=lanes,
        turns=-(-len(bits) // lanes),
        index_w=max(len(b) for b in bits),
        entry_w=entry_w,
        sums=len(own.bias),
        classes=len(model.classes),
        score_w=max(score_width(model), most.bit_length() + 1),
        shunts=shunting or model.shunt > 0,
        wiring=hashlib.sha256(repr((model.input.n_bits, bits)).encode()).hexdigest()[:16],
    )


def check_fits(model: Classifier, layout: TablesLayout) -> None:
    """Check that a model's entries can replace those of an executor.

    Raises:
        ExportError: the model has other indices, wider entries or scores, or a threshold for which
            the executor has no register.
    """
    own = plan(model, layout.lanes, shunting=layout.shunts)
    if own.wiring != layout.wiring or own.classes != layout.classes:
        raise ExportError("the executor has other indices: train with --input-of its model")
    if own.entry_w > layout.entry_w or own.score_w > layout.score_w:
        raise ExportError(
            f"entries of {own.entry_w} bits and scores of {own.score_w}, the executor has "
            f"{layout.entry_w} and {layout.score_w}"
        )
    if own.shunts and not layout.shunts:
        raise ExportError(
            f"the model shunts margins below {model.shunt}, the executor has no threshold: "
            "--shunting all"
        )


def writes(model: Classifier, layout: TablesLayout) -> list[tuple[int, int]]:
    """List the addresses and words that load a model into the free bank.

    The first write clears the bank's id, the last one sets the model's.

    Raises:
        ExportError: as for :func:`check_fits`.
    """
    check_fits(model, layout)
    address, mask, own = layout.address_map.address, (1 << WORD_BITS) - 1, added(model)
    contents = [
        (address(t % layout.lanes, ENTRIES, _row(layout, t, i), s), int(value) & mask)
        for t, table in enumerate(own.tables)
        for i, row in enumerate(table.entries)
        for s, value in enumerate(row)
    ]
    contents += [(address(0, BIASES, 0, s), int(bias) & mask) for s, bias in enumerate(own.bias)]
    if layout.shunts:
        contents.append((address(0, MODEL, 0, 1), model.shunt))
    begin, end = (address(0, MODEL, row, 0) for row in (1, 0))
    return [(begin, 0), *contents, (end, int(model.digest[:8], 16))]


def memories(model: Classifier, layout: TablesLayout) -> dict[str, list[str]]:
    """The rows of one bank of each memory in hexadecimal, by file name without extension."""
    check_fits(model, layout)
    own, out = added(model), dict[str, list[str]]()
    for lane in range(layout.lanes):
        for s in range(layout.sums):
            rows = np.zeros(1 << layout.turn_w + layout.index_w, dtype=np.int64)
            for t in range(lane, len(own.tables), layout.lanes):
                column = own.tables[t].entries[:, s]
                rows[_row(layout, t, 0) :][: len(column)] = column
            out[f"lane{lane}_sum{s}"] = _hex(rows.tolist(), layout.entry_w)
    for s, bias in enumerate(own.bias.tolist()):
        out[f"biases{s}"] = _hex([bias], layout.score_w)
    if layout.shunts:
        out["shunting"] = _hex([model.shunt], layout.score_w)
    return out


def _row(layout: TablesLayout, table: int, index: int) -> int:
    return table // layout.lanes << layout.index_w | index


def _hex(values: Sequence[int], width: int) -> list[str]:
    return [f"{value % (1 << width):0{-(-width // 4)}x}" for value in values]


def write(model: Classifier, layout: TablesLayout, out: Path) -> dict[str, Any]:
    """Write Verilog and memory files below ``out``.

    Returns:
        Port widths of the core, for the test bench and the wrapper.
    """
    copy_blocks(out, SHARED_RTL, FOLDER / "rtl")
    (out / "rtl" / BLOCK.name).write_bytes(BLOCK.read_bytes())
    (out / "mem").mkdir(exist_ok=True)
    own, score_w, class_w = added(model), layout.score_w, class_width(model)
    matches, last = pair_scores(layout.classes, score_w, class_w)
    sums = [f"sum{s}" for s in range(layout.sums)]
    values = [f"{score_w}'d0", *sums] if layout.sums == 1 else sums
    wiring = [
        [_wires(own, layout, lane + turn * layout.lanes) for turn in range(layout.turns)]
        for lane in range(layout.lanes)
    ]
    template_values = {
        "shape": model.shape_text,
        "n_in": model.input.n_bits,
        "n_classes": layout.classes,
        "class_w": class_w,
        "score_w": score_w,
        "addr": layout.address_map,
        "lanes": layout.lanes,
        "turns": layout.turns,
        "turn_w": layout.turn_w,
        "index_w": layout.index_w,
        "entry_w": layout.entry_w,
        "sums": layout.sums,
        "block": layout.block,
        "wiring": wiring,
        "late": layout.late,
        "matches": matches,
        "last": last,
        "scores": [
            {"value": value, "comment": comment(name)}
            for value, name in zip(values, model.classes, strict=True)
        ],
        "trace_w": 0,
        "modules": 1,
        "model_w": 0,
        "depth_w": layout.depth_w,
        "model_ids": 2 * [model.digest[:8]],
        "shunts": layout.shunts,
    }
    for folder, name in ((FOLDER, "n3ic_executor"), (CORE_FOLDER, "n3ic_core")):
        (out / "rtl" / f"{name}.v").write_text(render(folder, f"{name}.v.j2", template_values))
    for name, bank in memories(model, layout).items():
        (out / "mem" / f"{name}.mem").write_text("\n".join(2 * bank) + "\n")
        coe = "memory_initialization_radix=16;\nmemory_initialization_vector=\n"
        (out / "mem" / f"{name}.coe").write_text(coe + ",\n".join(2 * bank) + ";\n")
    (out / "mem" / "update.hex").write_text(
        compose(layout.text, model.digest, layout.address_map.width, writes(model, layout))
    )
    return {
        "class_w": class_w,
        "score_w": score_w,
        "write_port": True,
        "wr_aw": layout.address_map.width,
        "wr_dw": WORD_BITS,
        "update": layout.text,
        "shunts": layout.shunts,
    }


def _wires(own: BitTables, layout: TablesLayout, table: int) -> list[str]:
    """The signals of a table's index, the highest bit first; all 0 if there is no such table."""
    bits = own.tables[table].bits if table < len(own.tables) else ()
    return ["1'b0"] * (layout.index_w - len(bits)) + [f"x[{bit}]" for bit in reversed(bits)]


def another(
    model: Classifier, layout: TablesLayout, rng: np.random.Generator
) -> tuple[TablesModel, list[tuple[int, int]]]:
    """Make a model of random entries that shunts half of the inputs, and the writes to load it."""
    tables, own = [], added(model)
    for table, width in zip(own.tables, entry_widths(model, own), strict=True):
        half = 1 << width - 1
        # A sum to which a table adds nothing may get entries, too: each sum has a memory.
        entries = rng.integers(-half, half, table.entries.shape, dtype=np.int8)
        tables.append(Table(table.bits, entries, width))
    near = rng.permutation(own.bias).astype(np.int32)
    bias = near + rng.integers(-1, 2, len(near), dtype=np.int32)
    other = TablesModel(model.input, tuple(tables), bias, model.classes, name="another")
    if layout.shunts:
        margins = margins_of(other.scores(tables_vectors(other, 64)))
        other = other.with_shunt(max(1, int(np.median(margins))))
    return other, writes(other, layout)


def resources(model: Classifier, layout: TablesLayout) -> Resources:
    """Estimate the resources of the executor, by constants fitted to Yosys."""
    own = added(model)
    width, matches = layout.score_w, layout.classes - 1
    places = layout.lanes * layout.sums
    read = len({bit for table in own.tables for bit in table.bits})
    delayed = width * (layout.classes if layout.sums > 1 else 1)
    srls = delayed if layout.late >= _SRL_MINIMUM else 0
    wiring = 0.3 * len(own.tables) * layout.index_w
    logic = 50 + wiring + 0.6 * width * (places + layout.sums) + width * (4 * matches + 1)
    memory = 0
    if not layout.block:
        memory = places * distributed_luts(2 << layout.turn_w + layout.index_w, layout.entry_w)
    ffs = (
        77
        + read
        + layout.lanes * layout.index_w
        + places * layout.entry_w
        + 2 * layout.sums * width
        + matches * (6 * width + 3)
        + (0 if srls else delayed * layout.late)
    )
    return Resources(
        luts=round(1.17 * logic) + memory + srls,
        lut_sites=round(logic) + memory + srls,
        ffs=ffs,
        bram36=layout.bram36,
        carry=None,
        srls=srls,
        source="constants fitted to Yosys",
        kind="estimated",
    )
