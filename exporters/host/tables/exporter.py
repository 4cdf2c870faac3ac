# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in C11: the tables, and one source that adds up their entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from n3ic.exporters.host.compiled_in import CompiledInExporter
from n3ic.exporters.host.sources import compiled_in, readme
from n3ic.families.tables.network import TablesModel
from n3ic.families.tables.operations import index_parts, packing
from n3ic.options import Options
from n3ic.targets.figures import Figure, Report
from n3ic.targets.identifiers import c_string

TEMPLATES = Path(__file__).resolve().parent / "templates"
BLOCK = 32  # rows at a time, as in the C


class HostTablesExporter(CompiledInExporter[TablesModel]):
    """Self-contained C11 that computes look-up tables, with ``bnn-exec``."""

    family: ClassVar[str] = TablesModel.family

    def source(self, model: TablesModel) -> str:
        """Write the tables, and the code that adds up their entries."""
        return compiled_in(TEMPLATES, "tables_constants.c.j2", _values(model), "tables.c")

    def readme(self, model: TablesModel) -> str:
        """Write the README of an export."""
        return readme(TEMPLATES, model)

    def memory(self, model: TablesModel) -> dict[str, int]:
        """Count the bytes of the C's constants, by what they hold."""
        parts = index_parts(model)
        rows = sum(len(p.indices) for p in parts)
        return {
            "entries": sum(t.entries.size for t in model.tables) + 32,
            "index_bits": sum(5 + 2 * len(t.bits) for t in model.tables) + 4,
            "intervals": 8 * packing(model, 64, 8).n_words * rows + 24 * len(parts),
            "cuts": model.input_bytes + 4 * sum(len(p.cuts) for p in parts),
        }

    def report(self, model: TablesModel, options: Options, directory: Path) -> Report:
        """Report counted bytes and look-ups; verification measures the time of a flow."""
        figures = self.memory_figures(model)
        figures.append(
            Figure("lookups", len(model.tables), "look-up", "measured", "count of the tables")
        )
        note = (
            f"Rows of packed bits are computed {BLOCK} at a time; a row alone takes longer. `n3ic "
            "verify` measures the time on one core, from packed bits to classes, margins and "
            "scores. From features no bits are packed: their intervals give the indices."
        )
        return Report(tuple(figures), (note,))


def _values(model: TablesModel) -> dict[str, Any]:
    """What the template of the constants takes."""
    spec, parts = model.input, index_parts(model)
    place = {name: i for i, name in enumerate(spec.features)}
    scale = {f.feature: f.scale for f in spec.fields}
    how = packing(model, 64, 8)
    codes: list[Sequence[Any]] = []
    cuts: list[int] = []
    for field in spec.fields:
        raw = int(field.kind == "binary")
        codes.append((place[field.feature], len(cuts), field.width, f"{field.clamp}u", raw))
        cuts += field.cuts
    rows: list[Sequence[Any]] = []
    part_cuts: list[int] = []
    marks: list[list[str]] = []
    for part in parts:
        count = len(part.indices) if part.clamp is not None else len(part.cuts)
        clamp, raw = (0, 0) if part.clamp is None else (part.clamp, 1)
        rows.append((place[part.feature], len(part_cuts), count, len(marks), f"{clamp}u", raw))
        part_cuts += part.cuts
        marks += [[f"0x{word:016x}u" for word in row] for row in how.pack(part.indices).tolist()]
    return {
        "shape": model.shape_text,
        "digest": model.digest,
        "inputs": spec.n_bits,
        "words": spec.n_words,
        "shunt": model.shunt,
        "features": [{"name": c_string(n), "scale": repr(scale[n])} for n in spec.features],
        "classes": [c_string(name) for name in model.classes],
        "codes": codes,
        "cuts": [f"{cut}u" for cut in cuts] or ["0"],  # C has no empty arrays
        "sizes": [len(t.bits) for t in model.tables],
        "bits": [b for t in model.tables for b in t.bits],
        "entries": [e for t in model.tables for e in t.entries.T.ravel().tolist()] + [0] * 32,
        "starts": np.cumsum([0, *(t.entries.size for t in model.tables)]).tolist(),
        "bias": model.bias.tolist(),
        "index_words": how.n_words,
        "parts": rows,
        "part_cuts": [f"{cut}u" for cut in part_cuts] or ["0"],
        "marks": marks,
    }
