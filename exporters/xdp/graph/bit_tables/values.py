# SPDX-License-Identifier: Apache-2.0
"""Start values, entries and rows of indices of look-up tables, for the network's map value."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ExportError
from n3ic.exporters.xdp.graph.bit_tables.arrange import ProgramTables, index_places, placed
from n3ic.exporters.xdp.graph.bit_tables.structure import MAX_BYTE, fits_lane
from n3ic.exporters.xdp.network.sums import (
    LayerPlan,
    Structure,
    layer_groups,
    score_offset,
)
from n3ic.model.classifier import Classifier
from n3ic.model.graph.bit_tables import BitTable


def table_parts(structure: Structure, model: Classifier) -> dict[str, bytes]:
    """Compute the members of the map value that hold the tables.

    The smallest entry of each table and sum is subtracted from the entries and added to the start
    value. So entries are never negative, and the fields of a word do not borrow from each other.

    Args:
        structure: structure that the program was compiled for.
        model: the model.

    Raises:
        ExportError: the model does not fit the structure; the error says where.
    """
    own = ProgramTables.of(model, bits=structure.bits)
    tables = placed(structure, own)
    plan = structure.layers[-1]
    if structure.classes > 2 and not fits_lane(own, plan.lane):
        raise ExportError(f"the scores are too large: the program's have {plan.lane} bits")
    start = own.bias
    rows = []
    remaining_tables = iter(tables)
    for joint in structure.tables:
        sums = np.zeros((1, len(own.bias)), dtype=np.int64)
        for bits, table in zip(joint, remaining_tables, strict=False):
            each = np.zeros((1 << bits, len(own.bias)), dtype=np.int64)
            if table is not None:
                least = table.entries.min(axis=0)
                each[: len(table.entries)] = table.entries - least
                start = start + least
            sums = (each[:, None] + sums[None]).reshape(-1, len(own.bias))
        rows.append(sums)
    entries, indices = np.concatenate(rows), _index_rows(structure, own, tables)
    if structure.classes > 2:
        first, rows_bytes = (
            _lanes(start[None] + score_offset(plan.lane), plan),
            _lanes(entries, plan),
        )
    elif (most := int(entries.max())) > MAX_BYTE:
        raise ExportError(f"entries that the program reads together sum to {most} in a byte")
    else:
        first, rows_bytes = start.astype("<i8").tobytes(), entries.astype(np.uint8).tobytes()
    return {"start1": first, "rows1": rows_bytes, "rows0": indices}


def _index_rows(structure: Structure, own: ProgramTables, tables: list[BitTable | None]) -> bytes:
    """Return the rows of all selectors: what each row adds to the index words."""
    marks = np.zeros((own.input.n_bits, structure.layers[0].words), dtype=np.uint64)
    remaining_tables = iter(tables)
    places = index_places([sum(joint) for joint in structure.tables])
    for joint, (word, shift) in zip(structure.tables, places, strict=True):
        for bits, table in zip(joint, remaining_tables, strict=False):
            for j, bit in enumerate(table.bits if table else ()):
                marks[bit, word] |= np.uint64(1 << (shift + j))
            shift += bits
    rows = [
        patterns.astype(np.uint64) @ marks[np.ix_(bits, words)]
        for (bits, patterns), words in zip(
            layer_groups(structure, None, own.input), structure.touched, strict=True
        )
    ]
    return b"".join(each.astype("<u8").tobytes() for each in rows)


def _lanes(values: NDArray[np.int64], plan: LayerPlan) -> bytes:
    padded = np.zeros((len(values), 64 * plan.words // plan.lane), dtype=np.int64)
    padded[:, : values.shape[1]] = values
    return padded.astype(f"<u{plan.lane // 8}").tobytes()
