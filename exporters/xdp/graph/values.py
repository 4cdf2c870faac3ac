# SPDX-License-Identifier: Apache-2.0
"""Start values and entries of a graph, for the network's map value.

An entry is two 32-bit words. A node has the number of the value that it tests; and the number of
the first of the two entries that may follow, above the byte to which the value is added: a carry
leads to the second one. A leaf has what it adds to the score, and leads to itself: its byte is 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ExportError
from n3ic.exporters.xdp.graph.structure import ENTRY
from n3ic.exporters.xdp.network.groups import input_groups
from n3ic.exporters.xdp.network.sums import Structure, input_of
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.targets.forest import Forest, Tree, WalkNode, forest_of

Place = tuple[int, int]  # of a test: index of a value, and the largest value that gives 0


def graph_parts(structure: Structure, model: Classifier) -> dict[str, bytes]:
    """Compute the members of the map value that hold a graph.

    Args:
        structure: structure that the program was compiled for.
        model: the model.

    Raises:
        ExportError: the model does not fit the structure; the error says where.
    """
    if len(model.classes) != structure.classes:
        raise ExportError(f"{len(model.classes)} classes, the program has {structure.classes}")
    forest = forest_of(graph_of(model))
    start = np.array([each.start for each in forest.sums], dtype="<i8")
    entries = _entries(forest, _roots(structure, forest), _places(structure, model))
    if entries.nbytes > structure.entries:
        raise ExportError(
            f"{len(entries):,} entries, the program has room for {structure.entries // ENTRY:,}"
        )
    return {"start": start.tobytes(), "entries": entries.tobytes()}


def _roots(structure: Structure, forest: Forest) -> list[Tree | None]:
    """Return the tree of each walk, None for a walk that is not needed.

    Raises:
        ExportError: a class has more or deeper trees than the program walks.
    """
    roots: list[Tree | None] = []
    known: dict[Tree, int] = {}
    for c, (each, walks) in enumerate(zip(forest.sums, structure.walks, strict=True)):
        trees = sorted(each.trees, key=lambda tree: -forest.depth(tree, known))
        if len(trees) > len(walks):
            raise ExportError(
                f"class {c}: {len(trees)} trees, the program has room for {len(walks)}"
            )
        for tree, room in zip(trees, walks, strict=False):
            if (depth := known[tree]) > room:
                raise ExportError(
                    f"class {c}: a tree of depth {depth}, the program has room for {room} there"
                )
        roots += [*trees, *[None] * (len(walks) - len(trees))]
    return roots


def _entries(
    forest: Forest, roots: list[Tree | None], places: dict[int, Place]
) -> NDArray[np.uint32]:
    """Return the entries: those of the roots, then two below each node."""
    nodes = forest.nodes()
    below: dict[Tree, int] = {}  # number of the first of a node's two entries
    following: list[Tree] = []
    for parent, node in nodes.items():
        if isinstance(node, WalkNode):
            below[parent] = len(roots) + len(following)
            following += [node.zero, node.one]
    out = np.zeros((len(roots) + len(following), 2), dtype="<u4")
    every: list[Tree | None] = [*roots, *following]
    for i, tree in enumerate(every):
        node = 0 if tree is None else nodes[tree]
        if isinstance(node, int):
            out[i] = node & 0xFFFFFFFF, i << 8
        elif tree is not None:
            if node.test not in places:  # only counts of set bits are not of every program
                feature = forest.builder.input.feature_of(node.test - forest.builder.input.n_bits)
                raise ExportError(
                    f"a look-up by {feature!r}, whose set bits the program does not count"
                )
            value, most = places[node.test]
            out[i] = value, below[tree] << 8 | 255 - most
    return out


def _places(structure: Structure, model: Classifier) -> dict[int, Place]:
    """Return for each test the value that decides it, and the largest one that gives 0."""
    out: dict[int, Place] = {}
    first = structure.value_places
    for group in input_groups(input_of(structure, model)):
        index = structure.keys.get(group.key)
        if index is None:
            raise ExportError(f"the program does not read {group.feature!r} as the model does")
        for j, bit in enumerate(group.bits):
            out[bit] = (first[index], group.steps[j]) if group.cuts else (first[index] + j, 0)
    n_bits = model.input.n_bits
    if not structure.bits:
        return out | {n_bits + bit: place for bit, place in out.items()}
    fields = {*zip(model.input.offsets, (f.width for f in model.input.fields), strict=True)}
    for i, (start, width) in enumerate(structure.counted):
        for k in range(width if (start, width) in fields else 0):
            out[n_bits + start + k] = first[-1] + i, k
    return out
