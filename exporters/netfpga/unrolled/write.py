# SPDX-License-Identifier: Apache-2.0
"""Writes the Verilog of an unrolled core, whose weights are its look-up tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from n3ic.exporters.netfpga.unrolled.design import design
from n3ic.exporters.netfpga.unrolled.network import class_width, score_width
from n3ic.exporters.netfpga.unrolled.verilog import cells_text, comments, core_text
from n3ic.model.network import BinaryModel

FILE = "n3ic_core.v"
CELLS = "n3ic_cells.v"
_NAMES = (
    "l1_n4 is the output of neuron 4 of layer 1, "
    "and l1_c2 a sum that several neurons of the layer share."
)


def generate(
    model: BinaryModel, *, pipeline: str | int = 1, outputs: str = "class"
) -> dict[str, str]:
    """Generate the Verilog of a model as texts by file name; deterministic.

    Args:
        model: the network.
        pipeline: look-up tables in series between two registers, 1 to 8.
        outputs: ``class`` for the class alone, ``scores`` for scores and margin too.

    Raises:
        UsageError: an option has an invalid value.
    """
    logic = design(model, pipeline=pipeline, outputs=outputs)
    return {
        FILE: core_text(logic.network, logic.plan, model, comments(model), _NAMES),
        CELLS: cells_text(logic.network, logic.plan),
    }


def write(
    model: BinaryModel, out: Path, *, pipeline: str | int = 1, outputs: str = "class"
) -> dict[str, Any]:
    """Write the Verilog into ``out/rtl``.

    Returns:
        Port widths of the core, for the test bench and the wrapper.

    Raises:
        UsageError: an option has an invalid value.
    """
    (out / "rtl").mkdir(exist_ok=True)
    for name, text in generate(model, pipeline=pipeline, outputs=outputs).items():
        (out / "rtl" / name).write_text(text, encoding="utf-8")
    return {
        "class_w": class_width(model),
        "score_w": score_width(model),
        "trace_w": sum(layer.n_outputs for layer in model.hidden),
        "write_port": False,
        "wr_aw": 0,
        "wr_dw": 0,
        "shunts": model.shunt > 0,
    }
