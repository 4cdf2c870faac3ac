# SPDX-License-Identifier: Apache-2.0
"""Makes the inputs for verifying trees, and counts the parameters that they decide.

An input decides the leaf that it reaches in each tree: another value there changes a sum. It
decides on which side of a node it passes. It tells the node's bit from the next one of its feature
where it is at the node's cut or one below; the vectors hold both for each node.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from n3ic.families.trees.network import TreesModel
from n3ic.model.bits import Bits, Words, pack
from n3ic.model.family import Decided
from n3ic.model.inputs import InputSpec

MOST_DECIDING = 4096
_TRIED = 8  # edges of a tree that are tried for an input
_Box = dict[int, tuple[int, int]]  # least and largest value of some parts of an input


def decided_by(model: TreesModel, words: Words) -> Decided:
    """Count the leaves that some inputs reach, and the nodes that they pass on both sides.

    A node is passed on both sides if a leaf of each is reached.

    Args:
        model: the model.
        words: packed inputs, uint32 array of shape ``(rows, n_words)``.
    """
    hit = np.zeros(len(model.leaves), dtype=np.bool_)
    hit[model.reached(words)] = True
    passed: NDArray[np.bool_] = np.asarray(_passed(model, hit).all(axis=0))
    tree_of = np.repeat(np.arange(len(model.sizes)), model.sizes + 1)
    missing = np.bincount(tree_of[~hit], minlength=len(model.sizes))
    undecided = tuple(
        f"tree {t}: {missing[t]:,} of {model.sizes[t] + 1:,} leaves"
        for t in np.flatnonzero(missing)
    )
    total, known = len(hit) + len(passed), int(hit.sum() + passed.sum())
    return Decided("leaves and nodes", total, known, undecided)


def _passed(model: TreesModel, hit: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each side of each node has a leaf that is hit, bool array ``(2, nodes)``."""
    children, nodes = model.links.children, len(model.bits)
    out = np.zeros((2, nodes), dtype=np.bool_)
    for side in (0, 1):
        leaf = children[side] < 0
        out[side, leaf] = hit[~children[side, leaf]]
    parents, sides = model.links.parents, model.links.sides
    for node in range(nodes - 1, -1, -1):  # children have higher numbers
        if parents[node] >= 0 and out[:, node].any():
            out[sides[node], parents[node]] = True
    return out


def trees_vectors(model: TreesModel, count: int, seed: int = 0) -> Words:
    """Make vectors that pass both edges of every node, the extremes, then random ones.

    All are inputs that an input stage gives: the bits of a thermometer are in order.

    Returns:
        Packed inputs, uint32 array of shape ``(rows, n_words)``: ``count`` or more.
    """
    rng = np.random.default_rng(seed)
    n = model.input.n_bits
    deciding = deciding_bits(model, rng, max(count, MOST_DECIDING))
    extremes = np.array([[False] * n, [True] * n])
    rest = max(0, count - len(deciding) - len(extremes))
    random = np.concatenate(
        [np.arange(width) < rng.integers(0, width + 1, (rest, 1)) for _, width in _parts(model)],
        axis=1,
    )
    return pack(np.concatenate([deciding, extremes, random]))


def deciding_bits(model: TreesModel, rng: np.random.Generator, most: int) -> Bits:
    """Find inputs that pass each node on both sides, at its cut and one below.

    So every leaf is reached, too. Each input is filled tree by tree, in random order: what is still
    free is set so that a further edge is passed. The first tree of an input always has one.

    Args:
        model: the model.
        rng: the source of randomness.
        most: the largest number of inputs; a forest of very many nodes may need more.

    Returns:
        bool array of shape ``(rows, n_bits)``.
    """
    walk, wanted, parts = _Walk(model), _edges(model), _parts(model)
    unseen = np.ones(2 * len(model.bits), dtype=np.bool_)
    ends = np.cumsum(model.sizes).tolist()
    left = [rng.permutation(np.arange(2 * (end - size), 2 * end)).tolist()
            for end, size in zip(ends, model.sizes.tolist(), strict=True)]  # fmt: skip
    rows: list[NDArray[np.bool_]] = []
    while len(rows) < most:
        box: _Box = {}
        for events in sorted(left, key=len, reverse=True):
            while events and not unseen[events[-1]]:
                events.pop()
            for event in events[: -1 - _TRIED : -1]:
                joined = _joined(box, wanted[event])
                if joined is not None:
                    box = joined
                    break
        if not box:
            break
        rows.append(_row(parts, box, rng))
        unseen[walk.edges_of(rows[-1])] = False
    return np.array(rows, dtype=np.bool_).reshape(-1, model.input.n_bits)


def _edges(model: TreesModel) -> list[_Box]:
    """What leads to each node, and past it at its edge on the side of 0 and on that of 1."""
    keys = _keys(model.input)
    ways: list[_Box] = []
    out: list[_Box] = []
    links = model.links
    above = zip(links.parents.tolist(), links.sides.tolist(), strict=True)
    for node, (parent, side) in enumerate(above):
        way: _Box = {}
        if parent >= 0:
            key, place, width = keys[model.bits[parent]]
            low, high = ways[parent].get(key, (0, width))
            span = (place + 1, high) if side else (low, place)
            way = {**ways[parent], key: span}
        ways.append(way)
        key, place, _ = keys[model.bits[node]]
        out += [{**way, key: (place, place)}, {**way, key: (place + 1, place + 1)}]
    return out


def _keys(spec: InputSpec) -> list[tuple[int, int, int]]:
    """For each bit what it is part of, its place there, and how many bits that has.

    A thermometer is one part, whose value is the number of its bits that are 1; a bit of a binary
    field is a part of its own.
    """
    out = []
    for start, field in zip(spec.offsets, spec.fields, strict=True):
        for k in range(field.width):
            ordered = field.kind == "thermometer"
            out.append((start, k, field.width) if ordered else (start + k, 0, 1))
    return out


def _joined(box: _Box, other: _Box) -> _Box | None:
    """What is in both boxes; None if nothing is."""
    for key, (low, high) in other.items():
        least, largest = box.get(key, (low, high))
        if max(low, least) > min(high, largest):
            return None
    out = dict(box)
    for key, (low, high) in other.items():
        least, largest = box.get(key, (low, high))
        out[key] = (max(low, least), min(high, largest))
    return out


def _parts(model: TreesModel) -> list[tuple[int, int]]:
    """First bit and number of bits of each part of an input; see :func:`_keys`."""
    return sorted({(start, width) for start, _, width in _keys(model.input)})


def _row(parts: list[tuple[int, int]], box: _Box, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A random input in a box, bool array of shape ``(n_bits,)``."""
    return np.concatenate(
        [
            np.arange(width) < rng.integers(*box.get(start, (0, width)), endpoint=True)
            for start, width in parts
        ]
    )


class _Walk:
    """Follows inputs through all trees of a model at once.

    Args:
        model: the model.
    """

    def __init__(self, model: TreesModel) -> None:
        self._model = model
        n = model.input.n_bits
        keys = _keys(model.input)
        # Two more bits stand for what is beyond the ends of a part: 0 above, 1 below.
        self._above = np.array([b + 1 if k + 1 < w else n for b, (_, k, w) in enumerate(keys)])
        self._below = np.array([b - 1 if k else n + 1 for b, (_, k, _) in enumerate(keys)])

    def edges_of(self, row: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The edges that an input passes: ``2 * node`` on the side of 0, one more on that of 1."""
        bits = np.append(row, [False, True])
        at = self._model.links.roots
        edges = []
        while len(at := at[at >= 0]):
            asked = self._model.bits[at]
            value = bits[asked]
            sharp = np.where(value, ~bits[self._above[asked]], bits[self._below[asked]])
            edges.append((2 * at + value)[sharp])
            at = self._model.links.children[value.astype(np.int64), at]
        return np.concatenate(edges) if edges else np.zeros(0, dtype=np.int64)
