# SPDX-License-Identifier: Apache-2.0
"""Writes look-up tables as a graph of integer operations: look-ups by bits, and their sums."""

from __future__ import annotations

import numpy as np

from n3ic.families.tables.network import TablesModel
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import Graph


def tables_graph(model: TablesModel) -> Graph:
    """Write a model's tables as look-ups, those of a table one after the other.

    A table has a look-up for each sum to which it adds. One that adds 0 throughout keeps one, for
    the first sum, and all have the model's bits: a device may load other entries of that shape.
    """
    builder = GraphBuilder(model.input)
    sums: list[list[int]] = [[] for _ in model.bias]
    for table in model.tables:
        for s in np.flatnonzero(table.held).tolist() or [0]:
            column = table.entries[:, s].tolist()
            sums[s].append(builder.select(table.bits, column, shaped=True))
    totals = [
        builder.offset(builder.total(of), bias)
        for of, bias in zip(sums, model.bias.tolist(), strict=True)
    ]
    return builder.build(totals if len(totals) > 1 else [builder.constant(0), *totals])
