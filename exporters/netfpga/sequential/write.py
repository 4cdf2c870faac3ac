# SPDX-License-Identifier: Apache-2.0
"""Writes the sequential executor: its Verilog and the contents of its memories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from n3ic.exporters.netfpga.core import SHARED_RTL, copy_blocks
from n3ic.exporters.netfpga.sequential.layout import SequentialLayout
from n3ic.exporters.netfpga.sequential.memory_contents import MemoryImage, memory_images
from n3ic.exporters.netfpga.sequential.update import update_text
from n3ic.model.bits import WORD_BITS
from n3ic.model.network import BinaryModel
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent


def write(
    model: BinaryModel, layout: SequentialLayout, out: Path, others: Sequence[BinaryModel] = ()
) -> dict[str, Any]:
    """Write Verilog and memory files below ``out``.

    Args:
        model: the network.
        layout: sizes of the executor.
        out: the export directory.
        others: further networks of the same shape that share the executor.

    Returns:
        Port widths of the core, for the test bench and the wrapper.
    """
    copy_blocks(out, SHARED_RTL, FOLDER / "rtl")
    (out / "mem").mkdir(exist_ok=True)
    models = (model, *others)
    filled = [*models, *[model] * ((1 << layout.model_w) - len(models))]
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
        "model_w": layout.model_w,
        "bank_w": layout.model_w + 1,
        "model_ids": 2 * [m.digest[:8] for m in filled],
        "shunts": layout.shunts,
    }
    for name in ("n3ic_executor", "n3ic_core"):
        (out / "rtl" / f"{name}.v").write_text(render(FOLDER, f"{name}.v.j2", values))
    for same in zip(*(memory_images(m, layout) for m in filled), strict=True):
        image = same[0]
        rows = 2 * [row for each in same for row in _bank(each)]
        (out / "mem" / f"{image.name}.mem").write_text("\n".join(rows) + "\n")
        coe = "memory_initialization_radix=16;\nmemory_initialization_vector=\n"
        (out / "mem" / f"{image.name}.coe").write_text(coe + ",\n".join(rows) + ";\n")
    (out / "mem" / "update.hex").write_text(update_text(model, layout))
    return {
        "class_w": layout.class_w,
        "score_w": layout.score_w,
        "trace_w": layout.trace_w,
        "write_port": True,
        "wr_aw": layout.address_map.width,
        "wr_dw": WORD_BITS,
        "update": layout.text,
        "modules": layout.modules,
        "shunts": layout.shunts,
    }


def _bank(image: MemoryImage) -> list[str]:
    """Format the rows of a bank in hexadecimal, each with its highest word first."""
    bank = ["".join(f"{int(w):08x}" for w in row[::-1]) for row in image.words]
    blank = "0" * len(bank[0])
    return bank + [blank] * ((1 << image.row_w) - len(bank))
