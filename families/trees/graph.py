# SPDX-License-Identifier: Apache-2.0
"""Writes trees as a graph of integer operations: choices, and sums of the trees' values."""

from __future__ import annotations

from n3ic.families.trees.network import TreesModel
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import Graph


def trees_graph(model: TreesModel) -> Graph:
    """Write a model's trees as choices between constants, whose values are added."""
    builder = GraphBuilder(model.input)
    sums = []
    for s, bias in enumerate(model.bias.tolist()):
        values = [v for v in _values(builder, model, s) if builder.bounds[v] != (0, 0)]
        sums.append(builder.offset(builder.total(values), bias))
    return builder.build(sums if len(sums) > 1 else [builder.constant(0), *sums])


def _values(builder: GraphBuilder, model: TreesModel, s: int) -> list[int]:
    """The value that each tree adds to a sum."""
    leaves = [builder.constant(v) for v in model.leaves[:, s].tolist()]
    zero, one = model.links.children.tolist()
    made = [0] * len(model.bits)

    def value(place: int) -> int:
        return made[place] if place >= 0 else leaves[~place]

    bits = model.bits.tolist()
    for node in reversed(range(len(bits))):  # children have higher numbers
        made[node] = builder.choose(bits[node], value(zero[node]), value(one[node]))
    return [value(root) for root in model.links.roots.tolist()]
