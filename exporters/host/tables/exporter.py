# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in C11: the tables, and one source that adds up their entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.host.embedded_model import EmbeddedModelExporter
from n3ic.exporters.host.sources import compiled_in, readme
from n3ic.exporters.host.tables.decode import decode_directory
from n3ic.exporters.host.tables.planes import Plane, ordered, plane_of
from n3ic.families.tables.network import Table, TablesModel
from n3ic.model.inputs import UINT32_MAX
from n3ic.options import Options
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Fit, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.identifiers import c_string

TEMPLATES = Path(__file__).resolve().parent / "templates"
CODE = ("tables_portable.c", "tables_avx2.c", "tables.c")
BLOCK = 32  # rows at a time, as in the C
REGISTER = 32  # bytes that AVX2 loads at once
MOST_INPUTS = 1 << 15  # a block's masks are on the stack: 32 bytes for each input bit


class HostTablesExporter(EmbeddedModelExporter[TablesModel]):
    """Self-contained C11 that computes look-up tables, with ``bnn-exec``."""

    family: ClassVar[str] = TablesModel.family

    def source(self, model: TablesModel) -> str:
        """Write the tables, and the code that adds up their entries."""
        return compiled_in(TEMPLATES, "tables_constants.c.j2", _values(model), *CODE)

    def readme(self, model: TablesModel) -> str:
        """Write the README of an export."""
        return readme(TEMPLATES, model)

    def memory(self, model: TablesModel) -> dict[str, int]:
        """Count the bytes of the C's constants, by what they hold."""
        read = sum(len(t.bits) for t in model.tables)
        places = 2 * _room(model.tables) * max(len(t.bits) for t in model.tables)
        return {
            "entries": sum(t.entries.size for t in model.tables) + 16,
            "index_bits": 5 * len(model.tables) + 2 * read + places,
            "planes": 3 * len({*_planes(ordered(model.tables))}) + 2 * read,
            "spans": 2 * len(_spans(model)),
            "cuts": 2 * 4 * 32 * model.input.n_words,
        }

    def check(self, model: TablesModel, options: Options) -> Fit:
        """Check that a block's masks fit the stack, and where the constants lie."""
        fit = super().check(model, options)
        if model.input.n_bits <= MOST_INPUTS:
            return fit
        text = f"{model.input.n_bits:,} input bits, {MOST_INPUTS:,} are allowed"
        return replace(fit, problems=(Problem(text), *fit.problems))

    def decode(self, directory: Path, model: TablesModel, options: Options) -> tuple[Decoded, ...]:
        """Decode the constants of ``bnn.c``; see the base class."""
        return decode_directory(directory, model)

    def report(self, model: TablesModel, options: Options, directory: Path) -> Report:
        """Report counted bytes and look-ups; verification measures the time of a flow."""
        figures = self.memory_figures(model)
        figures.append(
            Figure("lookups", len(model.tables), "look-up", "measured", "count of the tables")
        )
        note = (
            f"Rows are computed {BLOCK} at a time; a row alone takes longer. `n3ic verify` "
            "measures the time on one core, from packed bits to classes, margins and scores."
        )
        return Report(tuple(figures), (note,))


def _values(model: TablesModel) -> dict[str, Any]:
    """Values for the template of the constants."""
    spec = model.input
    place = {name: i for i, name in enumerate(spec.features)}
    scale = {f.feature: f.scale for f in spec.fields}
    codes: list[Sequence[Any]] = []
    compared: list[int] = []
    cuts: list[int] = []
    for field in spec.fields:
        raw = int(field.kind == "binary")
        codes.append((place[field.feature], len(cuts), field.width, f"{field.clamp}u", raw))
        compared += [0 if raw else place[field.feature]] * field.width
        cuts += [UINT32_MAX] * field.width if raw else field.cuts
    beyond = 32 * spec.n_words - len(cuts)
    sizes = [len(t.bits) for t in model.tables]
    tables = ordered(model.tables)
    octets, octet_bits = _octets(tables, spec.n_bits)
    planes = _planes(tables)
    different = sorted({*planes})
    return {
        "shape": model.shape_text,
        "digest": model.digest,
        "inputs": spec.n_bits,
        "words": spec.n_words,
        "shunt": model.shunt,
        "features": [{"name": c_string(n), "scale": repr(scale[n])} for n in spec.features],
        "classes": [c_string(name) for name in model.classes],
        "codes": codes,
        "raw": int(any(f.kind == "binary" for f in spec.fields)),
        "compared": compared + [0] * beyond,
        "cuts": [f"{cut}u" for cut in [*cuts, *[UINT32_MAX] * beyond]],
        "sizes": sizes,
        "even": sizes[0] if len(set(sizes)) == 1 else 0,
        "bits": [b for t in tables for b in t.bits],
        "plane_octets": [octet for octet, _ in different],
        "plane_shifts": [shift for _, shift in different],
        "planes": [different.index(plane) for plane in planes],
        "entries": [e for t in tables for e in t.entries.T.ravel().tolist()] + [0] * 16,
        "starts": np.cumsum([0, *(t.entries.size for t in model.tables)])[:-1].tolist(),
        "spans": _spans(model),
        "bias": model.bias.tolist(),
        "octets": octets.tolist(),
        "octet_bits": octet_bits.tolist(),
    }


def _planes(tables: Sequence[Table]) -> list[Plane]:
    """Return the plane of each index bit, table by table."""
    return [plane_of(bit, place) for t in tables for place, bit in enumerate(t.bits)]


def _room(tables: Sequence[Table]) -> int:
    """Number of tables, rounded up to whole registers with one byte per table."""
    return REGISTER * -(-len(tables) // REGISTER)


def _spans(model: TablesModel) -> list[int]:
    """Lengths of consecutive runs of tables whose sums all fit a signed byte."""
    out = [0]
    sums = np.zeros((2, len(model.bias)), dtype=np.int64)
    for table in model.tables:
        ends = np.array([table.entries.min(axis=0), table.entries.max(axis=0)], dtype=np.int64)
        if ((sums + ends < -128) | (sums + ends > 127)).any():
            out.append(0)
            sums[:] = 0
        sums += ends
        out[-1] += 1
    return out


def _octets(tables: Sequence[Table], n_bits: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """For each index bit, the byte of the packed input that holds it, and its mask in that byte.

    Args:
        tables: the tables. Unused places after them, and bits that a short index lacks, get byte
            0 and mask 0.
        n_bits: number of input bits.

    Returns:
        Two uint8 arrays of shape ``(bits of the largest index, room)``, all 0 for more than 256
            input bits.
    """
    most = max(len(t.bits) for t in tables)
    octets, bits = np.zeros((2, most, _room(tables)), dtype=np.uint8)
    for t, table in enumerate(tables if n_bits <= 256 else ()):
        for j, bit in enumerate(table.bits):
            octets[j, t], bits[j, t] = bit // 8, 1 << bit % 8
    return octets, bits
