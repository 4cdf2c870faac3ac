# SPDX-License-Identifier: Apache-2.0
"""Generates the C header of a graph of integer operations, which the XDP program includes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from n3ic.exporters.xdp.network.sums import Selector, Structure
from n3ic.exporters.xdp.network.values import layout
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
WALKS = "graph_walks.h"


def graph_source(structure: Structure, prefix: str) -> dict[str, str]:
    """Generate the files of a graph by name, but for ``network_rows.h``.

    Args:
        structure: structure that is compiled in.
        prefix: prefix of the C names.
    """
    where = layout(structure)
    trees = sum(map(len, structure.walks))
    values = {
        "p": prefix,
        "P": prefix.upper(),
        "shape": f"{trees:,} tree{'' if trees == 1 else 's'}",
        "features": structure.features,
        "bits": structure.bits,
        "classes": structure.classes,
        "selectors": structure.selectors,
        "room": 1 << (structure.values - 1).bit_length(),
        "entries": structure.entries,
        "entries_at": where.offset("entries"),
        "members": where.members,
        "bytes": where.bytes,
        "counted": range(len(structure.counted)),
        "first_count": structure.values - len(structure.counted),
        "steps": list(_steps(structure)),
        "walks": list(_walks(structure.walks)),
    }
    return {
        WALKS: (FOLDER / WALKS).read_text(encoding="utf-8"),
        f"{prefix}.h": render(FOLDER, "graph.h.j2", values),
    }


def _steps(structure: Structure) -> Iterator[dict[str, Any]]:
    """Yield the selection of each row, in the form that the template needs."""
    where = layout(structure)
    before: Selector | None = None
    first = structure.value_places
    for s, place, value in zip(structure.selectors, where.places, first, strict=False):
        bits = range(value, value + s.width) if structure.bits else ()
        counters = [
            [i for i, (start, width) in enumerate(structure.counted) if start <= b < start + width]
            for b in bits
        ]
        same = before is not None and (before.feature, before.part) == (s.feature, s.part)
        yield {
            "form": s.form,
            "feature": s.feature,
            "at": place.at,
            "value": value,
            "searches": s.searches,
            "shift": s.shift,
            "width": s.width,
            "clamped": s.clamped,
            "reads": before is None or before.form != "bits" or not same,
            "counters": counters,
        }
        before = s


def _walks(walks: Sequence[Sequence[int]]) -> Iterator[list[tuple[int, int, int]]]:
    """Yield for each class the steps of its walks, and the first and last of as many steps."""
    at = 0
    for of_class in walks:
        runs = []
        for steps, same in groupby(of_class):
            runs.append((steps, at, at := at + len(list(same))))
        yield runs
