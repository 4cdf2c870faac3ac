# SPDX-License-Identifier: Apache-2.0
"""Makes the inputs for verifying a sum-product network, and measures what they decide.

A vector decides an entry of a leaf's table, or a weight, if adding one step to that integer changes
a score. Such a vector shows an executor in which the integer is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.families.spn.network import CONSTANT, SpnModel
from n3ic.families.spn.nodes import Leaf, Product, Sum
from n3ic.model.bits import Bits, Words, pack
from n3ic.model.inputs import InputSpec

_ROWS = 1024


@dataclass(frozen=True)
class SpnCoverage:
    """The integers of a network that some vectors decide.

    Attributes:
        total: number of table entries and weights.
        decided: number of them that some vector decides.
        undecided: descriptions of the nodes with undecided integers.
    """

    total: int
    decided: int
    undecided: tuple[str, ...]


def bits_of_bins(spec: InputSpec, bins: NDArray[np.int64]) -> Bits:
    """Set the first ``bins`` bits of each field, as an input stage does.

    Args:
        spec: the input.
        bins: int array of shape ``(rows, fields)``, each in ``0..width``.
    """
    return np.concatenate(
        [np.arange(f.width) < bins[:, [i]] for i, f in enumerate(spec.fields)], axis=1
    )


def spn_vectors(model: SpnModel, count: int, seed: int = 0) -> Words:
    """Make deciding vectors, boundary vectors, then random ones: at least ``count`` in all.

    Returns:
        Packed inputs, uint32 array of shape ``(rows, n_words)``. Half of the random vectors have
        random bins, the other half random bits.
    """
    rng = np.random.default_rng(seed)
    n = model.input.n_bits
    deciding = _deciding_bins(model, rng)
    edges = np.concatenate([np.zeros((1, n), bool), np.ones((1, n), bool), np.eye(n, dtype=bool)])
    extra = max(0, count - len(deciding) - len(edges))
    widths = np.array([f.width for f in model.input.fields])
    bins = rng.integers(0, widths + 1, (extra - extra // 2, len(widths)))
    random = bits_of_bins(model.input, bins)
    # Bits that no input stage gives: their popcounts are bins too, so targets must agree on them.
    stray = rng.random((extra // 2, n)) < rng.random((extra // 2, 1))
    return pack(np.concatenate([bits_of_bins(model.input, deciding), edges, random, stray]))


def spn_coverage(model: SpnModel, words: Words) -> SpnCoverage:
    """Find the entries and weights that a set of vectors decides.

    Args:
        model: the network.
        words: packed inputs, uint32 array of shape ``(rows, n_words)``.
    """
    used = _above(model)
    known = {
        i: np.zeros(len(node.table if isinstance(node, Leaf) else node.weights), dtype=np.bool_)
        for i, node in enumerate(model.nodes)
        if not isinstance(node, Product)
    }
    for start in range(0, len(words), _ROWS):
        part = words[start : start + _ROWS]
        bins, values = model.bins(part), model.values(part)
        for i, decided in known.items():
            node = model.nodes[i]
            if i not in used or decided.all():
                continue
            if isinstance(node, Leaf):
                # One run for the whole table: a row reads one entry, so the entries do not mix.
                changed = _changes(model, used[i], values, i, values[i] + 1)
                decided[bins[changed, node.field]] = True
            elif isinstance(node, Sum):
                for k in np.flatnonzero(~decided):
                    more = node.weights + (np.arange(len(node.weights)) == k)
                    moved = model.arithmetic.sum([values[c] for c in node.children], more)
                    decided[k] = _changes(model, used[i], values, i, moved).any()
    undecided = tuple(
        f"node {i} ({type(model.nodes[i]).__name__.lower()}): {int((~f).sum())} of {len(f)}"
        for i, f in known.items()
        if not f.all()
    )
    total = sum(len(decided) for decided in known.values())
    return SpnCoverage(total, sum(int(decided.sum()) for decided in known.values()), undecided)


def _above(model: SpnModel) -> dict[int, tuple[int, ...]]:
    """List the nodes above each node that a score depends on, in order."""
    parents: dict[int, set[int]] = {i: set() for i in range(len(model.nodes))}
    for i, node in enumerate(model.nodes):
        for child in () if isinstance(node, Leaf) else node.children:
            parents[child].add(i)
    roots = set(model.roots) - {CONSTANT}
    out: dict[int, tuple[int, ...]] = {}
    for i in reversed(range(len(model.nodes))):  # parents come after their children
        above = {p for p in parents[i] if p in out}
        if above or i in roots:
            out[i] = tuple(sorted(above.union(*(out[p] for p in above))))
    return out


def _changes(
    model: SpnModel,
    above: tuple[int, ...],
    values: NDArray[np.int64],
    node: int,
    value: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Find the rows on which another value of a node changes a score."""
    other = {node: value}
    for i in above:
        each = model.nodes[i]
        assert not isinstance(each, Leaf)  # noqa: S101 - a leaf has no children
        operands = [other.get(c, values[c]) for c in each.children]
        if isinstance(each, Product):
            other[i] = model.arithmetic.product(operands)
        else:
            other[i] = model.arithmetic.sum(operands, each.weights)
    roots = [r for r in model.roots if r in other]
    return np.asarray(np.any([other[r] != values[r] for r in roots], axis=0))


def _deciding_bins(model: SpnModel, rng: np.random.Generator) -> NDArray[np.int64]:
    """Find the likeliest flow through each bin of each leaf.

    Returns:
        Bins of these flows, int64 array of shape ``(rows, fields)`` without equal rows.
    """
    likely = _likeliest(model)
    inner = [(i, n) for i, n in enumerate(model.nodes) if not isinstance(n, Leaf)]
    parent = {child: i for i, node in inner for child in node.children}
    rows = []
    for i, leaf in enumerate(model.nodes):
        if not isinstance(leaf, Leaf):
            continue
        flow = np.array([rng.integers(0, f.width + 1) for f in model.input.fields])
        # From the root down: the factors next to the leaf's own way take their likeliest bins.
        for top in _lineage(parent, i):
            node = model.nodes[top]
            if isinstance(node, Product):
                for child in node.children:
                    for field, chosen in likely[child].items():
                        flow[field] = chosen
        every = np.tile(flow, (len(leaf.table), 1))
        every[:, leaf.field] = np.arange(len(leaf.table))
        rows.append(every)
    return np.unique(np.concatenate(rows), axis=0)


def _lineage(parent: dict[int, int], node: int) -> Iterator[int]:
    """List the nodes on one way from the root to a leaf."""
    way = []
    while node in parent:
        node = parent[node]
        way.append(node)
    return reversed(way)


def _likeliest(model: SpnModel) -> list[dict[int, int]]:
    """Choose the likeliest bin of each feature below each node, by the likeliest term of a sum."""
    best: list[int] = []
    likely: list[dict[int, int]] = []
    for node in model.nodes:
        if isinstance(node, Leaf):
            best.append(int(node.table.max()))
            likely.append({node.field: int(node.table.argmax())})
        elif isinstance(node, Product):
            operands = [np.array([best[c]]) for c in node.children]
            best.append(int(model.arithmetic.product(operands)[0]))
            likely.append({f: b for c in node.children for f, b in likely[c].items()})
        else:
            terms = [
                int(model.arithmetic.sum([np.array([best[c]])], node.weights[k : k + 1])[0])
                for k, c in enumerate(node.children)
            ]
            chosen = int(np.argmax(terms))
            best.append(terms[chosen])
            likely.append(likely[node.children[chosen]])
    return likely
