# SPDX-License-Identifier: Apache-2.0
"""Sum-product networks in C11: the network's tables and steps, and one source that runs them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from n3ic.exporters.host.embedded_model import EmbeddedModelExporter
from n3ic.exporters.host.sources import compiled_in, readme
from n3ic.exporters.host.spn.program import LEAST_ROWS, SpnProgram, program
from n3ic.families.spn.arithmetic import LogArithmetic
from n3ic.families.spn.network import SpnModel
from n3ic.options import Options
from n3ic.targets.device import Fit, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.identifiers import c_string

TEMPLATES = Path(__file__).resolve().parent / "templates"
MAX_SCRATCH = 1 << 20  # bytes of stack that one call may use


class HostSpnExporter(EmbeddedModelExporter[SpnModel]):
    """Self-contained C11 that computes a sum-product network, with ``bnn-exec``."""

    family: ClassVar[str] = SpnModel.family

    def check(self, model: SpnModel, options: Options) -> Fit:
        """Check that a block's values fit the stack, and place the tables in a memory."""
        steps, fit = program(model), super().check(model, options)
        scratch = steps.scratch_bytes(LEAST_ROWS)
        if scratch <= MAX_SCRATCH:
            return fit
        text = f"{steps.slots:,} values live at once take {scratch:,} bytes of the stack"
        problem = Problem(f"{text}, {MAX_SCRATCH:,} are allowed", missing_bytes=scratch)
        return replace(fit, problems=(problem, *fit.problems))

    def source(self, model: SpnModel) -> str:
        """Write the tables and the steps, and the code that runs them."""
        return _source(model)

    def readme(self, model: SpnModel) -> str:
        """Write the README of an export."""
        return readme(TEMPLATES, model, log=isinstance(model.arithmetic, LogArithmetic))

    def memory(self, model: SpnModel) -> dict[str, int]:
        """Count the bytes of the C's constants, by what they hold."""
        return _memory(model, program(model))

    def report(self, model: SpnModel, options: Options, directory: Path) -> Report:
        """Report counted bytes and steps; verification measures the time of a flow."""
        steps = program(model)
        figures = self.memory_figures(model)
        figures.append(
            Figure("operations", len(steps.steps), "step", "measured", "count of the C's steps")
        )
        note = (
            f"Rows are computed {steps.block} at a time; a row alone takes longer. `n3ic verify` "
            "measures the time on one core, from packed bits to classes, margins and scores."
        )
        return Report(tuple(figures), (note,))


def _memory(model: SpnModel, steps: SpnProgram) -> dict[str, int]:
    """Bytes of the C's constants, by content."""
    log_add = model.arithmetic.table if isinstance(model.arithmetic, LogArithmetic) else ()
    return {
        "tables": steps.value_bytes * len(steps.tables),
        # One more entry, 0, serves all differences beyond the table.
        "log_add": steps.value_bytes * (len(log_add) + 1) if len(log_add) else 0,
        "steps": (16 + steps.value_bytes) * len(steps.steps),  # four words and one value
        "cuts": model.input_bytes,
    }


def _source(model: SpnModel) -> str:
    """Return the network's part of ``bnn.c``."""
    steps = program(model)
    spec = model.input
    parts = []
    for i, (start, field) in enumerate(zip(spec.offsets, spec.fields, strict=True)):
        # A field may cross words: a part is its share of one word.
        for word in range(start // 32, (start + field.width - 1) // 32 + 1):
            low, high = max(start - 32 * word, 0), min(start + field.width - 32 * word, 32)
            parts.append({"field": i, "word": word, "mask": (1 << high) - (1 << low)})
    arithmetic = model.arithmetic
    values = {
        "shape": model.shape_text,
        "digest": model.digest,
        "inputs": spec.n_bits,
        "words": spec.n_words,
        "shunt": model.shunt,
        "fraction": arithmetic.fraction,
        "log_add": arithmetic.table.tolist() if isinstance(arithmetic, LogArithmetic) else [],
        "block": steps.block,
        "slots": steps.slots,
        "fields": [
            {"name": c_string(f.feature), "scale": repr(f.scale), "first": start, "width": f.width}
            for start, f in zip(spec.offsets, spec.fields, strict=True)
        ],
        "cuts": [f"{cut}u" for f in spec.fields for cut in f.cuts],
        "classes": [c_string(name) for name in model.classes],
        "parts": parts,
        "program": steps.steps,
        "tables": steps.tables,
        "scores": steps.scores,
    }
    return compiled_in(TEMPLATES, "spn_tables.c.j2", values, "spn.c")
