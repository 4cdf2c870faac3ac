# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in C11: the tables, and one source that adds up their entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.host.graph.bit_tables.decode import decode_directory
from n3ic.exporters.host.graph.bit_tables.planes import Plane, ordered, plane_of
from n3ic.exporters.host.sources import compiled_in
from n3ic.model.classifier import Classifier
from n3ic.model.graph.bit_tables import BitTable, BitTables
from n3ic.model.inputs import UINT32_MAX
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Problem
from n3ic.targets.figures import Figure
from n3ic.targets.identifiers import c_string

TEMPLATES = Path(__file__).resolve().parent / "templates"
CODE = ("tables_portable.c", "tables_avx2.c", "tables.c.j2")
BLOCK = 32  # rows at a time, as in the C
REGISTER = 32  # bytes that AVX2 loads at once
MOST_INPUTS = 1 << 15  # a block's masks are on the stack: 32 bytes for each input bit


@dataclass(frozen=True, eq=False)
class BitTablesKernel:
    """C that adds up look-up tables.

    Attributes:
        model: the model.
        tables: the tables that its graph adds up.
    """

    name: ClassVar[str] = "look-up tables"
    compiled: ClassVar[str] = "look-up tables"
    block: ClassVar[int] = BLOCK
    model: Classifier
    tables: BitTables

    def problems(self) -> tuple[Problem, ...]:
        """What it does not take."""
        n_bits, beyond = self.model.input.n_bits, self.tables.beyond
        problems = [Problem(beyond)] if beyond else []
        if n_bits > MOST_INPUTS:
            problems.append(Problem(f"{n_bits:,} input bits, {MOST_INPUTS:,} are allowed"))
        return tuple(problems)

    def source(self) -> str:
        """Write the tables, and the code that adds up their entries."""
        values = _values(self.model, self.tables)
        return compiled_in(TEMPLATES, "tables_constants.c.j2", values, *CODE)

    @property
    def values(self) -> str:
        """What the scores are, in words."""
        first = " (the first of two classes scores 0)" if len(self.tables.bias) == 1 else ""
        return f"sums of table entries, as integers{first}"

    def memory(self) -> dict[str, int]:
        """Count the bytes of the C's constants, by what they hold."""
        tables = self.tables.tables
        read = sum(len(t.bits) for t in tables)
        places = 2 * _room(tables) * max(len(t.bits) for t in tables)
        return {
            "entries": sum(t.entries.size for t in tables) + 16,
            "index_bits": 5 * len(tables) + 2 * read + places,
            "planes": 3 * len({*_planes(ordered(tables))}) + 2 * read,
            "spans": 2 * len(_spans(self.tables)),
            "cuts": 2 * 4 * 32 * self.model.input.n_words,
        }

    def decode(self, directory: Path) -> tuple[Decoded, ...]:
        """Decode the constants of ``bnn.c``, and compare them with the model's."""
        return decode_directory(directory, self.model)

    def figures(self) -> list[Figure]:
        """Count the look-ups."""
        count = len(self.tables.tables)
        return [Figure("lookups", count, "look-up", "measured", "count of the tables")]


def _values(model: Classifier, own: BitTables) -> dict[str, Any]:
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
    sizes = [len(t.bits) for t in own.tables]
    tables = ordered(own.tables)
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
        "starts": np.cumsum([0, *(t.entries.size for t in tables)])[:-1].tolist(),
        "spans": _spans(own),
        "bias": own.bias.tolist(),
        "octets": octets.tolist(),
        "octet_bits": octet_bits.tolist(),
    }


def _planes(tables: Sequence[BitTable]) -> list[Plane]:
    """Return the plane of each index bit, table by table."""
    return [plane_of(bit, place) for t in tables for place, bit in enumerate(t.bits)]


def _room(tables: Sequence[BitTable]) -> int:
    """Number of tables, rounded up to whole registers with one byte per table."""
    return REGISTER * -(-len(tables) // REGISTER)


def _spans(own: BitTables) -> list[int]:
    """Lengths of consecutive runs of tables whose sums all fit a signed byte."""
    out = [0]
    sums = np.zeros((2, len(own.bias)), dtype=np.int64)
    for table in own.tables:
        ends = np.array([table.entries.min(axis=0), table.entries.max(axis=0)], dtype=np.int64)
        if ((sums + ends < -128) | (sums + ends > 127)).any():
            out.append(0)
            sums[:] = 0
        sums += ends
        out[-1] += 1
    return out


def _octets(tables: Sequence[BitTable], n_bits: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
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
