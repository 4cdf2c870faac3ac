# SPDX-License-Identifier: Apache-2.0
"""The nodes of a sum-product network, and checks that a list of nodes is a valid network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ModelError
from n3ic.families.spn.arithmetic import Arithmetic
from n3ic.model.inputs import InputSpec

MAX_NODES = 1 << 16
MAX_CHILDREN = 1 << 20
_LARGEST = 1 << 30  # bound of a node's value: the sum of two fits 32 bits


def _frozen(array: ArrayLike) -> NDArray[Any]:
    out = np.array(array, dtype=np.int32)
    out.setflags(write=False)
    return out


@dataclass(frozen=True, eq=False)
class Leaf:
    """The distribution of one feature: an integer for each bin between its cuts.

    Attributes:
        field: index of the input field.
        table: int32 array of shape ``(width + 1,)``; entry ``k`` applies if the value reaches ``k``
            of the cuts, so that ``k`` bits of the field are set.
    """

    field: int
    table: NDArray[np.int32]

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", _frozen(self.table))


@dataclass(frozen=True)
class Product:
    """A product of independent distributions.

    Attributes:
        children: indices of earlier nodes without common features.
    """

    children: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Sum:
    """A mixture of distributions.

    Attributes:
        children: indices of earlier nodes with the same features.
        weights: int32 array of shape ``(children,)``.
    """

    children: tuple[int, ...]
    weights: NDArray[np.int32]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _frozen(self.weights))


Node = Leaf | Product | Sum


def scopes(nodes: Sequence[Node], n_fields: int) -> tuple[frozenset[int], ...]:
    """Find the fields that each node depends on.

    Raises:
        ModelError: a child does not come before its parent, the factors of a product share a field,
            or the terms of a sum have different fields.
    """
    if not 1 <= len(nodes) <= MAX_NODES:
        raise ModelError(f"{len(nodes)} nodes: 1 to {MAX_NODES} expected")
    if sum(len(n.children) for n in nodes if not isinstance(n, Leaf)) > MAX_CHILDREN:
        raise ModelError(f"more than {MAX_CHILDREN} edges")
    node_fields: list[frozenset[int]] = []
    for i, node in enumerate(nodes):
        if isinstance(node, Leaf):
            if not 0 <= node.field < n_fields:
                raise ModelError(f"node {i}: field {node.field} of {n_fields}")
            node_fields.append(frozenset((node.field,)))
            continue
        if not node.children or not all(0 <= c < i for c in node.children):
            raise ModelError(f"node {i}: needs children, which must be earlier nodes")
        # Only with disjoint factors and equal terms are the values probabilities.
        parts = [node_fields[c] for c in node.children]
        every = frozenset().union(*parts)
        if isinstance(node, Product):
            if len(every) != sum(map(len, parts)):
                raise ModelError(f"node {i}: the factors of a product must not share a feature")
        elif any(part != every for part in parts):
            raise ModelError(f"node {i}: the terms of a sum must have the same features")
        node_fields.append(every)
    return tuple(node_fields)


def bounds(
    nodes: Sequence[Node], spec: InputSpec, arithmetic: Arithmetic
) -> tuple[tuple[int, int], ...]:
    """Bound the value of each node over all inputs.

    Raises:
        ModelError: a table or weights have the wrong shape or sign, or a value may exceed 31 bits.
    """
    out: list[tuple[int, int]] = []
    for i, node in enumerate(nodes):
        if isinstance(node, Leaf):
            width = spec.fields[node.field].width
            _check_integers(node.table, (width + 1,), arithmetic, f"node {i}: table")
            value_bounds = int(node.table.min()), int(node.table.max())
        elif isinstance(node, Product):
            value_bounds = arithmetic.product_bounds([out[c] for c in node.children])
        else:
            _check_integers(node.weights, (len(node.children),), arithmetic, f"node {i}: weights")
            if arithmetic.one and int(node.weights.sum(dtype=np.int64)) > arithmetic.one:
                raise ModelError(f"node {i}: weights add up to more than 1 ({arithmetic.one})")
            value_bounds = arithmetic.sum_bounds([out[c] for c in node.children], node.weights)
        if max(-value_bounds[0], value_bounds[1]) > _LARGEST:
            raise ModelError(
                f"node {i}: values from {value_bounds[0]:,} to {value_bounds[1]:,} exceed 31 bits"
            )
        out.append(value_bounds)
    return tuple(out)


def _check_integers(
    array: NDArray[np.int32], shape: tuple[int, ...], arithmetic: Arithmetic, what: str
) -> None:
    if array.shape != shape:
        raise ModelError(f"{what}: shape {shape} expected, got {array.shape}")
    if arithmetic.one and not ((array >= 0) & (array <= arithmetic.one)).all():
        raise ModelError(f"{what}: a probability in fixed point must be in 0..{arithmetic.one}")
    if not arithmetic.one and not ((array <= 0) & (array >= -_LARGEST)).all():
        raise ModelError(f"{what}: the logarithm of a probability must be in -2^30..0")


def error_bounds(nodes: Sequence[Node], arithmetic: Arithmetic) -> tuple[float, ...]:
    """Bound the distance of each node's value from the real network's, in steps.

    The proof goes from the leaves up. Every integer of a leaf or a weight is the rounded real one,
    and each operation adds no more than its own rounding.
    """
    out: list[float] = []
    for node in nodes:
        if isinstance(node, Leaf):
            out.append(arithmetic.leaf_error())
        elif isinstance(node, Product):
            out.append(arithmetic.product_error([out[c] for c in node.children]))
        else:
            out.append(arithmetic.sum_error([out[c] for c in node.children]))
    return tuple(out)
