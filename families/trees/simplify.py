# SPDX-License-Identifier: Apache-2.0
"""Removes from trees what makes no difference to a score. Exact by construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from n3ic.families.trees.arrays import Preorder, links, preorder
from n3ic.families.trees.network import TreesModel
from n3ic.model.inputs import InputSpec
from n3ic.model.passes import Findings, Simplified, unchanged
from n3ic.model.passes.unused import narrowed


def possible(
    spec: InputSpec,
    roots: Sequence[int],
    bits: Sequence[int],
    zero: Sequence[int],
    one: Sequence[int],
) -> Preorder:
    """Lay out trees without the nodes that those above them decide.

    The bits of a thermometer decide each other: bit ``k`` is 1 only if bit ``k - 1`` is.

    Args:
        spec: the input.
        roots: the root of each tree, a node or ``~leaf``; see :func:`.arrays.preorder`.
        bits: the input bit of each node.
        zero: what follows each node where its bit is 0.
        one: what follows where it is 1.
    """
    field_of = [i for i, f in enumerate(spec.fields) for _ in range(f.width)]
    ordered = [f.kind == "thermometer" for f in spec.fields]
    new_bits: list[int] = []
    sides: tuple[list[int], list[int]] = ([], [])
    new_roots: list[int] = []
    for root in roots:
        # What comes next, the list and the place that it belongs into, and what is decided: for
        # each thermometer the bits below which all are 1 and from which on all are 0, or a bit.
        stack: list[tuple[int, list[int], int, dict[tuple[int, int], tuple[int, int]]]]
        new_roots.append(0)
        stack = [(root, new_roots, len(new_roots) - 1, {})]
        while stack:
            place, into, index, known = stack.pop()
            while place >= 0:
                bit = bits[place]
                key = (field_of[bit], -1 if ordered[field_of[bit]] else bit)
                low, high = known.get(key, (-1, 1 << 30))
                if low < bit < high:
                    break
                place = one[place] if bit <= low else zero[place]
            if place < 0:
                into[index] = place
                continue
            into[index] = node = len(new_bits)
            new_bits.append(bit)
            for side in sides:
                side.append(0)
            stack.append((one[place], sides[1], node, {**known, key: (bit, high)}))
            stack.append((zero[place], sides[0], node, {**known, key: (low, bit)}))
    return preorder(new_roots, new_bits, *sides)


def merged(
    trees: Preorder, values: Sequence[tuple[int, ...]]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Give equal parts of trees one number, and drop nodes whose sides are equal.

    Args:
        trees: the trees.
        values: the values of each leaf, in the order of the trees' leaves.

    Returns:
        Roots, bits and both sides of the parts, as :func:`.arrays.preorder` takes them; a leaf is
        the first one in ``values`` that is equal.
    """
    way = links(np.array(trees.sizes, np.int64), np.array(trees.zero_sizes, np.int64))
    first: dict[tuple[int, ...], int] = {}
    leaf = [~first.setdefault(each, i) for i, each in enumerate(values)]
    children = way.children.tolist()
    number: dict[tuple[int, int, int], int] = {}
    place = [0] * len(trees.bits)
    for node in reversed(range(len(trees.bits))):  # children have higher numbers
        zero, one = (place[side[node]] if side[node] >= 0 else leaf[~side[node]]
                     for side in children)  # fmt: skip
        part = (trees.bits[node], zero, one)
        place[node] = zero if zero == one else number.setdefault(part, len(number))
    roots = [place[root] if root >= 0 else leaf[~root] for root in way.roots.tolist()]
    bits, zeros, ones = ([part[k] for part in number] for k in range(3))
    return roots, bits, zeros, ones


def simplified(model: TreesModel) -> Simplified[TreesModel]:
    """Remove nodes, trees and input bits that change no score.

    A node goes if its sides are equal. A tree without nodes is added to the biases; one is kept if
    no other is left. Input bits that no node asks go last.
    """
    values = [tuple(row) for row in model.leaves.tolist()]
    whole = Preorder(
        model.sizes.tolist(), model.bits.tolist(), model.zero_sizes.tolist(), [*range(len(values))]
    )
    roots, *parts = merged(whole, values)
    bias = model.bias.astype(np.int64)
    for root in roots:
        bias = bias + (values[~root] if root < 0 else 0)
    growing = [root for root in roots if root >= 0]
    if not growing:
        values[0] = (0,) * len(bias)
    trees = preorder(growing or [~0], *parts)
    spec, kept_bits = narrowed(model.input, set(range(model.input.n_bits)) - {*trees.bits})
    constant, fewer = len(roots) - len(trees.sizes), len(model.bits) - len(trees.bits)
    if not constant and not fewer and len(kept_bits) == model.input.n_bits:
        return unchanged(model)
    place = {bit: i for i, bit in enumerate(kept_bits)}
    result = replace(
        model,
        input=spec,
        sizes=np.array(trees.sizes),
        bits=np.array([place[b] for b in trees.bits]),
        zero_sizes=np.array(trees.zero_sizes),
        leaves=np.array([values[i] for i in trees.leaves], dtype=np.int64),
        bias=bias,
        provenance={**model.provenance, "simplified from": model.digest},
    )
    lines = [
        *([f"trees: {constant:,} constant removed"] if constant else []),
        *([f"nodes: {fewer:,} with equal sides removed"] if fewer else []),
    ]
    findings = Findings(
        bits=tuple(sorted({*range(model.input.n_bits)} - {*kept_bits})),
        features=tuple(name for name in model.input.features if name not in spec.features),
        parts=tuple(lines),
    )
    return Simplified(model, result, tuple(kept_bits), findings)
