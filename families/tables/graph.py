# SPDX-License-Identifier: Apache-2.0
"""Writes look-up tables as a graph of integer operations: look-ups by bits, and their sums."""

from __future__ import annotations

from n3ic.families.tables.network import TablesModel
from n3ic.model.graph.bit_tables import added_tables
from n3ic.model.graph.operations import Graph


def tables_graph(model: TablesModel) -> Graph:
    """Write a model's tables as look-ups by bits, and their sums."""
    return added_tables(model.input, [(t.bits, t.entries) for t in model.tables], model.bias)
