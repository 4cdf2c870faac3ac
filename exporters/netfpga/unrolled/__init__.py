# SPDX-License-Identifier: Apache-2.0
"""``--style unrolled``: weights folded into logic, one inference per clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError
from n3ic.exporters.netfpga.unrolled.decode import decode
from n3ic.exporters.netfpga.unrolled.network import LutNetwork, build, class_width, score_width
from n3ic.exporters.netfpga.unrolled.schedule import Schedule, schedule
from n3ic.exporters.netfpga.unrolled.verilog import cells_text, comments, core_text
from n3ic.model.network import BinaryModel

OUTPUTS = ("class", "scores")
FILE = "n3ic_core.v"
CELLS = "n3ic_cells.v"
MAX_LEVELS = 8
_NAMES = (
    "l1_n4 is the output of neuron 4 of layer 1, "
    "and l1_c2 a sum that several neurons of the layer share."
)


@dataclass(frozen=True)
class Design:
    """An unrolled core before it is written as Verilog.

    Attributes:
        network: its look-up tables.
        plan: its pipeline schedule.
    """

    network: LutNetwork
    plan: Schedule


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
    made = design(model, pipeline=pipeline, outputs=outputs)
    return {
        FILE: core_text(made.network, made.plan, model, comments(model), _NAMES),
        CELLS: cells_text(made.network, made.plan),
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


def latency(model: BinaryModel, *, pipeline: str | int = 1, outputs: str = "class") -> int:
    """Clocks from an input to its result, counted in pipeline stages."""
    return design(model, pipeline=pipeline, outputs=outputs).plan.depth


def design(model: BinaryModel, *, pipeline: str | int = 1, outputs: str = "class") -> Design:
    """Build the look-up tables and the pipeline of a model.

    Raises:
        UsageError: an option has an invalid value.
    """
    if outputs not in OUTPUTS:
        raise UsageError(f"outputs must be one of {', '.join(OUTPUTS)}, not {outputs!r}")
    try:
        levels = int(pipeline)
    except ValueError:
        levels = 0
    if not 1 <= levels <= MAX_LEVELS:
        raise UsageError(f"pipeline must be 1 to {MAX_LEVELS} tables in series, not {pipeline!r}")
    return _design(model, levels, outputs)


@lru_cache(maxsize=4)
def _design(model: BinaryModel, levels: int, outputs: str) -> Design:
    network = build(model, scores=outputs == "scores")
    return Design(network, schedule(network.net, network.outputs, network.traced, levels))


__all__ = [
    "OUTPUTS",
    "Design",
    "class_width",
    "decode",
    "design",
    "generate",
    "latency",
    "score_width",
    "write",
]
