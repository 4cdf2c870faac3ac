# SPDX-License-Identifier: Apache-2.0
"""Removes from look-up tables what makes no difference to a score. Exact by construction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from n3ic.families.tables.network import Table, TablesModel
from n3ic.model.passes import Findings, Simplified, unchanged
from n3ic.model.passes.unused import narrowed


def simplified(model: TablesModel) -> Simplified[TablesModel]:
    """Remove index bits, tables and input bits that change no score.

    An index bit goes if the entries are the same with and without it. A table whose entries are all
    equal is added to the biases; one is kept if no other is left. Input bits that no table
    reads go last.
    """
    bias = model.bias.astype(np.int64)
    tables = []
    for each in model.tables:
        shorter = _shortened(each)
        if shorter is None:
            bias = bias + each.entries[0]
        else:
            tables.append(shorter)
    if not tables:
        first = model.tables[0]
        tables = [replace(first, bits=first.bits[:1], entries=first.entries[:2])]
        bias = bias - first.entries[0]
    read = {b for t in tables for b in t.bits}
    spec, kept_bits = narrowed(model.input, set(range(model.input.n_bits)) - read)
    constant = len(model.tables) - len(tables)
    fewer = sum(len(t.bits) for t in model.tables) - sum(len(t.bits) for t in tables)
    if not fewer and len(kept_bits) == model.input.n_bits:
        return unchanged(model)
    place = {bit: i for i, bit in enumerate(kept_bits)}
    result = replace(
        model,
        input=spec,
        tables=tuple(replace(t, bits=tuple(place[b] for b in t.bits)) for t in tables),
        bias=bias.astype(np.int32),
        provenance={**model.provenance, "simplified from": model.digest},
    )
    parts = [
        *([f"tables: {constant:,} constant removed"] if constant else []),
        *([f"tables: {fewer:,} index bits that change no entry removed"] if fewer else []),
    ]
    removed_bits = tuple(sorted({*range(model.input.n_bits)} - {*kept_bits}))
    unread = tuple(name for name in model.input.features if name not in spec.features)
    findings = Findings(bits=removed_bits, features=unread, parts=tuple(parts))
    return Simplified(model, result, tuple(kept_bits), findings)


def _shortened(table: Table) -> Table | None:
    """Drop the index bits that change no entry; None if all entries are equal."""
    bits, entries = list(table.bits), table.entries
    for j in reversed(range(len(bits))):
        # Axis 1 is bit j of the index: C order has the most significant bit first.
        halves = entries.reshape(-1, 2, 1 << j, entries.shape[1])
        if np.array_equal(halves[:, 0], halves[:, 1]):
            entries = halves[:, 0].reshape(-1, entries.shape[1])
            del bits[j]
    return replace(table, bits=tuple(bits), entries=entries) if bits else None
