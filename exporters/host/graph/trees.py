# SPDX-License-Identifier: Apache-2.0
"""Trees of choices between constants, as packed nodes that a row descends."""

from __future__ import annotations

from dataclasses import dataclass

from n3ic.model.graph.operations import Choose, Constant, Graph
from n3ic.model.graph.trees import choices_of_constants, roots_of

MOST_NODES = 1 << 16  # of a tree: a node names its children in 16 bits
LEAF = (1 << 32) - 1  # no value of a feature is above: a leaf leads to itself


@dataclass(frozen=True)
class TreeNode:
    """A node: a row goes to ``next`` if its field's value is at most ``most``, else beside it.

    Attributes:
        most: the cut less 1, or ``LEAF``.
        field: the field whose value is compared.
        next: place in the tree of the first of two nodes side by side; its own place for a leaf.
        leaf: the value of a leaf.
    """

    most: int
    field: int
    next: int
    leaf: int = 0


@dataclass(frozen=True)
class Tree:
    """The nodes of a tree, the root first.

    Attributes:
        nodes: the nodes.
        depth: the most choices from the root to a leaf.
    """

    nodes: tuple[TreeNode, ...]
    depth: int


def comparison(graph: Graph, bit: int) -> tuple[int, int]:
    """The field of an input bit, and the largest of its values for which the bit is 0."""
    spec = graph.input
    field = next(i for i in reversed(range(len(spec.fields))) if spec.offsets[i] <= bit)
    return field, spec.fields[field].cuts[bit - spec.offsets[field]] - 1


def trees(graph: Graph) -> dict[int, Tree]:
    """The trees whose leaves are all constants and that other operations or scores read, by root.

    Choices within them are nodes only. Trees of more than ``MOST_NODES`` nodes are left out.
    """
    depth = choices_of_constants(graph)
    made = {i: _packed(graph, i, depth[i]) for i in roots_of(graph, depth)}
    return {i: tree for i, tree in made.items() if tree is not None}


def _packed(graph: Graph, root: int, depth: int) -> Tree | None:
    """Place a tree's nodes breadth first; equal pairs of children are placed once.

    Returns:
        The tree; None if it has more nodes than places.
    """
    at: list[int] = [root]  # the step of each place
    pairs: dict[tuple[int, int], int] = {}
    nodes: list[TreeNode] = []
    while len(nodes) < len(at):
        if len(at) > MOST_NODES:
            return None
        step = graph.steps[at[len(nodes)]]
        if isinstance(step, Constant):
            nodes.append(TreeNode(LEAF, 0, len(nodes), step.value))
        elif isinstance(step, Choose):
            pair = (step.zero, step.one)
            if pair not in pairs:
                pairs[pair] = len(at)
                at += pair
            field, most = comparison(graph, step.bit)
            nodes.append(TreeNode(most, field, pairs[pair]))
    return Tree(tuple(nodes), depth)
