# SPDX-License-Identifier: Apache-2.0
"""TreesModel: the frozen, integer-only description of decision trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ModelError
from n3ic.families.trees.arrays import Ints, Links, links
from n3ic.model.bits import Words, checked_words, unpack
from n3ic.model.columns import TableRules
from n3ic.model.file import Tensors
from n3ic.model.inputs import InputSpec
from n3ic.model.meter_spec import MeterSpec
from n3ic.model.summed import SummedModel, n_sums
from n3ic.util.plain_data import from_plain

MAX_TREES = 1 << 14
MAX_NODES = 1 << 20
MAX_SUM = (1 << 30) - 1
"""Bound of a sum's magnitude: the difference of two scores fits 32 bits."""
_CELLS = 1 << 21  # rows times trees, or input bits, that numpy holds at once


@dataclass(frozen=True, eq=False, repr=False)
class TreesModel(SummedModel):
    """Decision trees from packed input bits to integer scores.

    A way begins at the root of each tree and follows, at each node, the side that the node's input
    bit names, up to a leaf. Sum ``s`` is ``bias[s]`` plus ``leaves[i, s]`` of each leaf ``i`` that
    is reached.

    Three classes or more have a sum each, which is the class's score. Two classes have one sum
    ``s`` together: their scores are ``0, s``, so that class 1 wins where ``s > 0`` and the margin
    is ``|s|``.

    Nodes and leaves lie as :mod:`n3ic.families.trees.arrays` describes. Each leaf is reached by
    some input: no node asks what the nodes above it have decided, where the bits of a thermometer
    decide each other (bit ``k`` is 1 only if bit ``k - 1`` is).

    Attributes:
        input: how integer features become input bits.
        sizes: number of nodes of each tree, int64 array of shape ``(trees,)``.
        bits: the input bit of each node, int64 array of shape ``(nodes,)``.
        zero_sizes: number of nodes on the zero side of each node, int64 array of shape
            ``(nodes,)``.
        leaves: int32 array of shape ``(nodes + trees, sums)``.
        bias: int32 array of shape ``(sums,)``.
        classes: name of each class.
        name: what the model is for.
        provenance: facts about its origin, text to text.
        meter: how the features are computed from packets; None without a meter.
        shunt: the smallest margin that is not shunted.
        table: how the features are read from a table of data; None if a data set reads it.
    """

    family: ClassVar[str] = "decision-trees"
    header_keys: ClassVar[tuple[str, ...]] = ("trees", "nodes")
    input: InputSpec
    sizes: NDArray[np.integer[Any]]  # of the types above once the model is made
    bits: NDArray[np.integer[Any]]
    zero_sizes: NDArray[np.integer[Any]]
    leaves: NDArray[np.integer[Any]]
    bias: NDArray[np.integer[Any]]
    classes: tuple[str, ...]
    name: str = "model"
    provenance: Mapping[str, str] = field(default_factory=dict)
    meter: MeterSpec | None = None
    shunt: int = 0
    table: TableRules | None = None

    def __post_init__(self) -> None:
        for name in ("sizes", "bits", "zero_sizes"):
            object.__setattr__(self, name, _integers(name, getattr(self, name), 1, np.int64))
        for name, axes in (("leaves", 2), ("bias", 1)):
            object.__setattr__(self, name, _integers(name, getattr(self, name), axes, np.int32))
        nodes, trees, sums = len(self.bits), len(self.sizes), len(self.bias)
        if not 1 <= trees <= MAX_TREES:
            raise ModelError(f"{trees:,} trees, 1 to {MAX_TREES:,} expected")
        if nodes > MAX_NODES:
            raise ModelError(f"{nodes:,} nodes, at most {MAX_NODES:,} expected")
        if (self.sizes < 0).any() or self.sizes.sum() != nodes or len(self.zero_sizes) != nodes:
            raise ModelError(
                f"{nodes:,} nodes and {len(self.zero_sizes):,} sides, but trees of "
                f"{self.sizes.sum():,} nodes"
            )
        if self.leaves.shape != (nodes + trees, sums):
            raise ModelError(
                f"leaves of shape {self.leaves.shape}, expected one leaf more than nodes in each "
                f"tree and one value a sum: {(nodes + trees, sums)}"
            )
        if sums != n_sums(len(self.classes)):
            raise ModelError(
                f"{sums} sums for {len(self.classes)} classes; "
                "expected one for two classes, one a class for more"
            )
        if nodes and not (self.bits.min() >= 0 and self.bits.max() < self.input.n_bits):
            raise ModelError(f"the bits of nodes are in 0..{self.input.n_bits - 1}")
        self._check_ways()
        if np.abs(self.sum_bounds).max() > MAX_SUM:
            raise ModelError("scores exceed 32 bits: sums are in -(2^30 - 1)..2^30 - 1")
        self._check_shared(len(self.classes))

    def _check_ways(self) -> None:
        """Check that no node asks what the nodes above it have decided."""
        fields = self.input.fields
        number = np.repeat(np.arange(len(fields)), [f.width for f in fields])[self.bits]
        ordered = np.array([f.kind == "thermometer" for f in fields])[number]
        way = self.links
        node = np.flatnonzero(way.parents >= 0)
        above, side = way.parents[node], way.sides[node]
        while len(node):
            ahead = np.where(side == 1, self.bits[node] > self.bits[above],
                             self.bits[node] < self.bits[above])  # fmt: skip
            free = np.where(ordered[node], ahead, self.bits[node] != self.bits[above])
            wrong = (number[node] == number[above]) & ~free
            if wrong.any():
                low, high = int(node[wrong][0]), int(above[wrong][0])
                raise ModelError(
                    f"node {low} asks input bit {self.bits[low]}, which node {high} above it has "
                    f"decided by bit {self.bits[high]}"
                )
            more = way.parents[above] >= 0
            node, side, above = node[more], way.sides[above[more]], way.parents[above[more]]

    # --- sizes -----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Input bits, trees, nodes and classes."""
        return (self.input.n_bits, len(self.sizes), len(self.bits), len(self.classes))

    @property
    def shape_text(self) -> str:
        """The shape as text, such as ``100 trees of 3,123 nodes``."""
        trees, nodes = len(self.sizes), len(self.bits)
        return (
            f"{trees:,} tree{'' if trees == 1 else 's'} of {nodes:,} "
            f"node{'' if nodes == 1 else 's'}{' in all' if trees > 1 else ''}"
        )

    @property
    def depth(self) -> int:
        """The most nodes on the way to a leaf."""
        return self.links.depth

    @cached_property
    def _held(self) -> NDArray[np.bool_]:
        """The sums to which each tree adds anything but 0, bool array ``(trees, sums)``."""
        return np.logical_or.reduceat(self.leaves != 0, self.first_leaves)

    @property
    def leaf_bytes(self) -> int:
        """Bytes of the leaves, bit after bit, for the sums to which their trees add.

        A leaf is stored as its distance from the least one, whose multiple is part of the bias.
        """
        values = int(((self.sizes + 1) * self._held.sum(axis=1)).sum())
        addends = self.leaves[np.repeat(self._held, self.sizes + 1, axis=0)].astype(np.int64)
        return -(-values * int(np.ptp(addends)).bit_length() // 8) if len(addends) else 0

    @property
    def node_bytes(self) -> int:
        """Bytes of the nodes and of the trees' sizes, bit after bit.

        A node holds its input bit, the size of its zero side, and a bit for an empty one side.
        With three classes or more, a tree has a bit per sum for those to which it adds.
        """
        if not len(self.bits):
            return 0
        largest = int(self.zero_sizes.max())
        node = (self.input.n_bits - 1).bit_length() + largest.bit_length() + 1
        tree = int(self.sizes.max()).bit_length() + (len(self.bias) if len(self.bias) > 1 else 0)
        return -(-(len(self.bits) * node + len(self.sizes) * tree) // 8)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the leaves; see :attr:`memory` for the others."""
        return self.leaf_bytes

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by part: leaves, nodes, biases and cuts."""
        return {
            "weight_bytes": self.weight_bytes,
            "index_bytes": self.node_bytes,
            "bias_bytes": self.bias_bytes,
            "input_bytes": self.input_bytes,
        }

    # --- bounds ----------------------------------------------------------------------------

    @cached_property
    def links(self) -> Links:
        """Where the ways of the trees lead."""
        return links(self.sizes.astype(np.int64), self.zero_sizes.astype(np.int64))

    @cached_property
    def first_leaves(self) -> Ints:
        """The first leaf of each tree, int64 array of shape ``(trees,)``."""
        counts = self.sizes + 1
        return np.asarray(np.cumsum(counts) - counts)

    @cached_property
    def sum_bounds(self) -> NDArray[np.int64]:
        """Least and largest value of each sum: int64 array of shape ``(2, sums)``."""
        values, bias = self.leaves.astype(np.int64), self.bias.astype(np.int64)
        ends = (np.minimum.reduceat(values, self.first_leaves),
                np.maximum.reduceat(values, self.first_leaves))  # fmt: skip
        return np.stack([bias + end.sum(axis=0) for end in ends])

    @cached_property
    def largest_margin(self) -> int:
        """Upper bound of the margins: the largest lead that a class can have over every rival."""
        scores = self._as_scores(self.leaves.astype(np.int64))
        biases = self._as_scores(self.bias[None].astype(np.int64))[0]
        leads = []
        for i in range(len(self.classes)):
            lead = np.maximum.reduceat(scores[:, [i]] - scores, self.first_leaves).sum(axis=0)
            leads.append(int(np.delete(lead + biases[i] - biases, i).min()))
        return max(0, *leads)

    # --- inference -------------------------------------------------------------------------

    @cached_property
    def _steps(self) -> tuple[Ints, Ints]:
        """Nodes, then leaves: what each asks, and where 0 and 1 lead; a leaf leads to itself."""
        nodes = len(self.bits)
        asked = np.concatenate([self.bits, np.zeros(len(self.leaves), dtype=np.int64)])
        following = np.repeat(np.arange(len(asked)), 2)
        below = self.links.children.T.reshape(-1)
        following[: 2 * nodes] = np.where(below >= 0, below, nodes + ~below)
        return asked, following

    def reached(self, words: ArrayLike) -> NDArray[np.int32]:
        """Follow the way of some inputs through each tree.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Returns:
            The leaf at which each way ends, int32 array of shape ``(rows, trees)``.

        Raises:
            ModelError: the inputs are not packed inputs of this model.
        """
        checked = checked_words(words, self.input.n_bits, "packed inputs")
        out = np.empty((len(checked), len(self.sizes)), dtype=np.int32)
        step = self._block
        for start in range(0, len(checked), step):
            out[start : start + step] = self._leaves_of(checked[start : start + step])
        return out

    @property
    def _block(self) -> int:
        return max(1, _CELLS // max(len(self.sizes), self.input.n_bits))

    def _leaves_of(self, words: Words) -> Ints:
        bits = unpack(words, self.input.n_bits)
        asked, following = self._steps
        roots = self.links.roots
        nodes = len(self.bits)
        at = np.tile(np.where(roots >= 0, roots, nodes + ~roots), (len(bits), 1))
        rows = np.arange(len(bits))[:, None]
        for _ in range(self.depth):
            at = following[2 * at + bits[rows, asked[at]]]
        return np.asarray(at - nodes)

    def scores(self, words: ArrayLike) -> NDArray[np.int32]:
        """Compute the scores of packed inputs: int32 array of shape ``(rows, classes)``.

        This is the reference that every target must reproduce, in plain numpy.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.
        """
        checked = checked_words(words, self.input.n_bits, "packed inputs")
        sums = np.empty((len(checked), len(self.bias)), dtype=np.int32)
        step = self._block
        for start in range(0, len(checked), step):
            reached = self._leaves_of(checked[start : start + step])
            for s in range(len(self.bias)):
                total = self.leaves[reached, s].sum(axis=1, dtype=np.int32)
                sums[start : start + step, s] = total + self.bias[s]
        return self._as_scores(sums)

    # --- file ------------------------------------------------------------------------------

    def _header(self) -> dict[str, Any]:
        return {"trees": len(self.sizes), "nodes": len(self.bits)}

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {
            "tree.nodes": self.sizes.astype(np.uint32),
            "node.bit": self.bits.astype(np.uint16),
            "node.zero_nodes": self.zero_sizes.astype(np.uint32),
            "leaf": self.leaves,
            "bias": self.bias,
        }

    @classmethod
    def _read(cls, header: Mapping[str, Any], tensors: Tensors, shared: Mapping[str, Any]) -> Self:
        try:
            fields = from_plain(_HeaderFields, {k: header[k] for k in cls.header_keys}, strict=True)
        except ValueError as error:
            raise ModelError(str(error)) from error
        trees, nodes, sums = fields.trees, fields.nodes, n_sums(len(shared["classes"]))
        return cls(
            sizes=tensors.take("tree.nodes", np.uint32, (trees,)),
            bits=tensors.take("node.bit", np.uint16, (nodes,)),
            zero_sizes=tensors.take("node.zero_nodes", np.uint32, (nodes,)),
            leaves=tensors.take("leaf", np.int32, (nodes + trees, sums)),
            bias=tensors.take("bias", np.int32, (sums,)),
            **shared,
        )


@dataclass(frozen=True)
class _HeaderFields:
    """The keys of a file's header that only this family has."""

    trees: int
    nodes: int


def _integers(name: str, values: Any, axes: int, kind: type[np.integer[Any]]) -> NDArray[Any]:
    """A frozen copy of an integer array.

    Raises:
        ModelError: the values are no integers of that type and number of axes.
    """
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(kind)
    if array.ndim != axes or array.dtype.kind not in "iu":
        raise ModelError(
            f"{name}: expected integers in {axes} axes, got {array.dtype} {array.shape}"
        )
    span = np.iinfo(kind)
    if array.size and not (span.min <= int(array.min()) and int(array.max()) <= span.max):
        raise ModelError(f"{name}: expected values of {span.bits} bits")
    out = np.array(array, dtype=kind)
    out.setflags(write=False)
    return out
