# SPDX-License-Identifier: Apache-2.0
"""Compiles a sum-product network to a graph of integer operations with exactly its scores.

With logarithms, adding a constant to a product equals adding it to one factor, and adding it to a
sum equals adding it to every term. Thus weights and biases move down into the leaves' tables.
"""

from __future__ import annotations

from collections import Counter

from n3ic.families.spn.arithmetic import LogArithmetic
from n3ic.families.spn.network import CONSTANT, SpnModel
from n3ic.families.spn.nodes import Leaf, Product, Sum
from n3ic.model.graph.arithmetic import pairwise_reduce
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import Graph


def spn_graph(model: SpnModel) -> Graph:
    """Compile a network to a graph; deterministic."""
    builder = GraphBuilder(model.input, model.arithmetic.integers)
    log = isinstance(model.arithmetic, LogArithmetic)
    return builder.build((_log_scores if log else _linear_scores)(builder, model))


def _log_scores(builder: GraphBuilder, model: SpnModel) -> list[int]:
    """Make the scores in logarithms: move constants down to the leaves, then compute upwards."""
    references = Counter(root for root in model.roots if root != CONSTANT)
    for i in reversed(range(len(model.nodes))):
        node = model.nodes[i]
        if i in references and not isinstance(node, Leaf):
            references.update(node.children)
    # A constant may move into a node that one parent reads; others would see the change too.
    own = dict.fromkeys(references, 0)
    for root, bias in zip(model.roots, model.bias, strict=True):
        if references[root] == 1:  # never true of CONSTANT
            own[root] = int(bias)
    edges: dict[int, list[int]] = {}
    for i in reversed(range(len(model.nodes))):
        node = model.nodes[i]
        if i not in references or isinstance(node, Leaf):
            continue
        if isinstance(node, Sum):
            offsets = [int(weight) + own[i] for weight in node.weights]
        else:
            # The factor that takes the constant at no cost: a table, or one without other readers.
            free = [references[c] == 1 or isinstance(model.nodes[c], Leaf) for c in node.children]
            offsets = [0] * len(node.children)
            offsets[free.index(True) if any(free) else 0] = own[i]
        edges[i] = [
            0 if references[c] == 1 else by for c, by in zip(node.children, offsets, strict=True)
        ]
        for child, by in zip(node.children, offsets, strict=True):
            if references[child] == 1:
                own[child] = by
    values: dict[int, int] = {}
    for i, node in enumerate(model.nodes):
        if i not in references:
            continue
        if isinstance(node, Leaf):
            values[i] = builder.lookup(node.field, [int(entry) + own[i] for entry in node.table])
            continue
        parts = [
            builder.offset(values[c], by) for c, by in zip(node.children, edges[i], strict=True)
        ]
        values[i] = (
            builder.total(parts)
            if isinstance(node, Product)
            else pairwise_reduce(parts, builder.log_add)
        )
    return [
        builder.constant(bias)
        if root == CONSTANT
        else values[root]
        if references[root] == 1
        else builder.offset(values[root], bias)
        for root, bias in zip(model.roots, model.bias.tolist(), strict=True)
    ]


def _linear_scores(builder: GraphBuilder, model: SpnModel) -> list[int]:
    """Make the scores in fixed point, without moving constants: products are rounded."""
    values: list[int] = []
    for node in model.nodes:
        if isinstance(node, Leaf):
            values.append(builder.lookup(node.field, node.table.tolist()))
        elif isinstance(node, Product):
            values.append(pairwise_reduce([values[c] for c in node.children], builder.times))
        else:
            terms = zip((values[c] for c in node.children), node.weights.tolist(), strict=True)
            values.append(builder.weighted(list(terms)))
    return [
        builder.constant(bias) if root == CONSTANT else builder.offset(values[root], bias)
        for root, bias in zip(model.roots, model.bias.tolist(), strict=True)
    ]
