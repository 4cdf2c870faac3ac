# SPDX-License-Identifier: Apache-2.0
"""SpnModel: the frozen, integer-only description of a trained sum-product network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ModelError
from n3ic.families.spn.arithmetic import Arithmetic, LinearArithmetic, LogArithmetic
from n3ic.families.spn.nodes import Leaf, Node, Product, Sum, bounds, error_bounds, scopes
from n3ic.model.bits import Bits, bytes_for, checked_words, unpack
from n3ic.model.classifier import Classifier
from n3ic.model.columns import TableRules
from n3ic.model.file import Tensors
from n3ic.model.inputs import InputSpec
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.plain_data import from_plain, shown

CONSTANT = -1
"""The root of a class whose score is its bias, such as an anomaly's: the threshold."""
_ROWS = 4096  # rows whose node values numpy holds at once
_KINDS = (Leaf, Product, Sum)


@dataclass(frozen=True, eq=False, repr=False)
class SpnModel(Classifier):
    """A sum-product network from packed input bits to integer scores.

    The score of a class is the value of its root plus its bias. If each class has a root, and the
    logarithm of its prior probability as bias, the network is a Bayes classifier. If only
    ``normal`` has a root, the bias of ``anomaly`` is a threshold: a flow is an anomaly if its
    likelihood is below it.

    Attributes:
        input: how integer features become input bits: one thermometer field per feature. The number
            of bits set in a field is its bin.
        nodes: leaves, products and sums, children before parents.
        arithmetic: how integers represent their values.
        roots: index of the root of each class, or ``CONSTANT``.
        bias: int32 array of shape ``(classes,)``.
        classes: name of each class.
        name: what the model is for.
        provenance: facts about its origin, text to text.
        meter: how the features are computed from packets; None without a meter.
        shunt: the smallest margin that is not shunted.
        table: how the features are read from a table; None if a data set reads it.
    """

    family: ClassVar[str] = "sum-product-network"
    header_keys: ClassVar[tuple[str, ...]] = ("arithmetic", "fraction", "sizes")
    input: InputSpec
    nodes: tuple[Node, ...]
    arithmetic: Arithmetic
    roots: tuple[int, ...]
    bias: NDArray[np.int32]
    classes: tuple[str, ...]
    name: str = "model"
    provenance: Mapping[str, str] = field(default_factory=dict)
    meter: MeterSpec | None = None
    shunt: int = 0
    table: TableRules | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "roots", tuple(int(r) for r in self.roots))
        bias = np.array(self.bias, dtype=np.int32)
        bias.setflags(write=False)
        object.__setattr__(self, "bias", bias)
        if any(f.kind != "thermometer" for f in self.input.fields):
            raise ModelError("the fields of a sum-product network must be thermometers")
        if len(self.input.features) != len(self.input.fields):
            raise ModelError("a sum-product network must have one field per feature")
        scopes(self.nodes, len(self.input.fields))
        if bias.shape != (len(self.roots),):
            raise ModelError(f"biases of shape {bias.shape} for {len(self.roots)} roots")
        if not any(r >= 0 for r in self.roots) or any(
            not CONSTANT <= r < len(self.nodes) for r in self.roots
        ):
            raise ModelError(f"roots must be nodes or {CONSTANT}, and at least one a node")
        # Checked for all inputs: targets compute scores and margins in signed 32 bits.
        if (np.abs(bias.astype(np.int64)) > 1 << 30).any() or self.score_bounds[1] >= 1 << 31:
            raise ModelError("scores exceed 32 bits")
        if self.largest_margin >= 1 << 31:
            raise ModelError("margins exceed 32 bits")
        self._check_shared(len(self.roots))

    @cached_property
    def value_bounds(self) -> tuple[tuple[int, int], ...]:
        """Least and largest value of each node, over all inputs."""
        return bounds(self.nodes, self.input, self.arithmetic)

    @property
    def score_bounds(self) -> tuple[int, int]:
        """Least and largest score of any class."""
        ranges = self._ranges
        return min(lo for lo, _ in ranges), max(hi for _, hi in ranges)

    @property
    def _ranges(self) -> list[tuple[int, int]]:
        values = [(0, 0) if r == CONSTANT else self.value_bounds[r] for r in self.roots]
        return [(lo + int(b), hi + int(b)) for (lo, hi), b in zip(values, self.bias, strict=True)]

    @cached_property
    def error_bound(self) -> float:
        """Bound of the distance of a score from the real network's, in steps of the arithmetic.

        The bound is proven from the leaves up (:func:`~n3ic.families.spn.nodes.error_bounds`); a
        bias adds half a step.
        """
        node_bounds = error_bounds(self.nodes, self.arithmetic)
        return max(node_bounds[r] for r in self.roots if r != CONSTANT) + 0.5

    @property
    def largest_margin(self) -> int:
        """Bound of the margins: a class's highest score less the least that its best rival has."""
        ranges = self._ranges
        return max(
            hi - max(lo for j, (lo, _) in enumerate(ranges) if j != i)
            for i, (_, hi) in enumerate(ranges)
        )

    def favouring(self, positive: int, step: int, rates: str) -> Self:
        """The network with a step added to a class's bias.

        Raises:
            ModelError: a score or a margin exceeds 32 bits.
        """
        bias = self.bias.astype(np.int64)
        bias[positive] += step
        if (np.abs(bias) > 1 << 30).any():
            raise ModelError(f"a bias of {bias[positive]:,} exceeds 2^30")
        return self.changed(bias=bias, provenance={**self.provenance, "false_alarms": rates})

    @property
    def learned_all(self) -> bool:
        """Whether every class has a root; otherwise one class takes the rows that fit no other."""
        return CONSTANT not in self.roots

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves, in order."""
        return tuple(n for n in self.nodes if isinstance(n, Leaf))

    @property
    def shape(self) -> tuple[int, ...]:
        """Features, leaves, products, sums and classes."""
        counts = [sum(isinstance(n, kind) for n in self.nodes) for kind in _KINDS]
        return (len(self.input.fields), *counts, len(self.classes))

    @property
    def shape_text(self) -> str:
        """The shape as text."""
        features, leaves, products, sums, _ = self.shape
        return f"SPN of {features} features, {leaves} leaves, {products} products, {sums} sums"

    @property
    def weight_bytes(self) -> int:
        """Bytes of the leaves' tables, the sums' weights, and the table of log-add."""
        integers = [n.table for n in self.leaves]
        integers += [n.weights for n in self.nodes if isinstance(n, Sum)]
        if isinstance(self.arithmetic, LogArithmetic):
            integers.append(self.arithmetic.table)
        return sum(len(a) * bytes_for(int(np.abs(a).max())) for a in integers)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by part: tables and weights, operands of the nodes with their number, cuts."""
        operands = sum(1 if isinstance(n, Leaf) else len(n.children) for n in self.nodes)
        index = bytes_for(max(len(self.nodes), len(self.input.fields)) - 1)
        return super().memory | {
            "index_bytes": len(self.nodes) + index * operands,
            "bias_bytes": 4 * len(self.bias),
        }

    # --- inference -------------------------------------------------------------------------

    def bins(self, words: ArrayLike) -> NDArray[np.int64]:
        """Count the set bits of each field: the bin of its feature.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Returns:
            int64 array of shape ``(rows, fields)``.

        Raises:
            ModelError: the inputs are not packed inputs of this model.
        """
        checked = checked_words(words, self.input.n_bits, "packed inputs")
        return bins_of(self.input, unpack(checked, self.input.n_bits))

    def values(
        self, words: ArrayLike, absent: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Compute the value of every node.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.
            absent: features that are marginalised, bool array of shape ``(rows, fields)`` or
                ``(fields,)``: their leaves have probability 1.

        Returns:
            int64 array of shape ``(nodes, rows)``.

        Raises:
            ModelError: the inputs are not packed inputs of this model.
        """
        bins = self.bins(words)
        missing = None if absent is None else np.broadcast_to(absent, bins.shape)
        out = np.empty((len(self.nodes), len(bins)), dtype=np.int64)
        for i, node in enumerate(self.nodes):
            if isinstance(node, Leaf):
                out[i] = node.table[bins[:, node.field]]
                if missing is not None:
                    out[i][missing[:, node.field]] = self.arithmetic.one
            elif isinstance(node, Product):
                out[i] = self.arithmetic.product([out[c] for c in node.children])
            else:
                out[i] = self.arithmetic.sum([out[c] for c in node.children], node.weights)
        return out

    def scores(
        self, words: ArrayLike, absent: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int32]:
        """Compute the scores of packed inputs: int32 array of shape ``(rows, classes)``.

        This is the reference that every target must reproduce, in plain numpy.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.
            absent: features that are marginalised; see :meth:`values`.
        """
        packed = np.asarray(words)
        out = np.tile(self.bias, (len(packed), 1))
        scored = [c for c, r in enumerate(self.roots) if r != CONSTANT]
        roots = [self.roots[c] for c in scored]
        for start in range(0, len(packed), _ROWS):
            part = slice(start, start + _ROWS)
            left = absent if absent is None or absent.ndim == 1 else absent[part]
            out[part, scored] += self.values(packed[part], left)[roots].T.astype(np.int32)
        return out

    # --- file ------------------------------------------------------------------------------

    def _header(self) -> dict[str, Any]:
        return {
            "arithmetic": self.arithmetic.name,
            "fraction": self.arithmetic.fraction,
            "sizes": {name: len(array) for name, array in self._tensors().items()},
        }

    def _tensors(self) -> dict[str, NDArray[Any]]:
        operands = [(n.field,) if isinstance(n, Leaf) else n.children for n in self.nodes]
        tensors: dict[str, NDArray[Any]] = {
            "node.kind": np.array([_KINDS.index(type(n)) for n in self.nodes], dtype=np.uint8),
            "node.operands": np.array([len(o) for o in operands], dtype=np.int32),
            "operands": np.array([o for each in operands for o in each], dtype=np.int32),
            "leaf.tables": _joined(n.table for n in self.leaves),
            "sum.weights": _joined(n.weights for n in self.nodes if isinstance(n, Sum)),
            "roots": np.array(self.roots, dtype=np.int32),
            "bias": self.bias,
        }
        if isinstance(self.arithmetic, LogArithmetic):
            tensors["log_add"] = self.arithmetic.table
        return tensors

    @classmethod
    def _read(cls, header: Mapping[str, Any], tensors: Tensors, shared: Mapping[str, Any]) -> Self:
        try:
            fields = from_plain(_HeaderFields, {k: header[k] for k in cls.header_keys}, strict=True)
        except ValueError as error:
            raise ModelError(str(error)) from error
        sizes = dict(fields.sizes)

        def take(name: str, dtype: type[np.generic] = np.int32) -> NDArray[Any]:
            return tensors.take(name, dtype, (sizes.pop(name),))

        arithmetic: Arithmetic = (
            LogArithmetic(fields.fraction, take("log_add"))
            if fields.arithmetic == LogArithmetic.name
            else LinearArithmetic(fields.fraction)
        )
        nodes = _nodes(
            take("node.kind", np.uint8),
            take("node.operands"),
            take("operands"),
            take("leaf.tables"),
            take("sum.weights"),
            [f.width + 1 for f in shared["input"].fields],
        )
        roots, bias = tuple(take("roots").tolist()), take("bias")
        if sizes:
            raise ModelError(f"sizes: unknown tensor {shown(min(sizes))}")
        return cls(nodes=nodes, arithmetic=arithmetic, roots=roots, bias=bias, **shared)


@dataclass(frozen=True)
class _HeaderFields:
    """The keys of a file's header that only this family has."""

    arithmetic: Literal["log", "linear"]
    fraction: int
    sizes: Mapping[str, int]


def _joined(arrays: Any) -> NDArray[np.int32]:
    return np.concatenate([np.empty(0, dtype=np.int32), *arrays])


def _nodes(
    kinds: NDArray[np.uint8],
    counts: NDArray[np.int32],
    operands: NDArray[np.int32],
    tables: NDArray[np.int32],
    weights: NDArray[np.int32],
    bins: Sequence[int],
) -> tuple[Node, ...]:
    """Build the nodes from the arrays of a file.

    Raises:
        ModelError: the arrays contradict each other.
    """
    if (
        len(kinds) != len(counts)
        or (counts < 1).any()
        or counts.sum(dtype=np.int64) != len(operands)
    ):
        raise ModelError("the numbers of operands and nodes contradict each other")
    out: list[Node] = []
    at = table_at = weight_at = 0
    for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        own = tuple(operands[at : at + count].tolist())
        at += count
        if kind == _KINDS.index(Leaf):
            if count != 1 or not 0 <= own[0] < len(bins):
                raise ModelError(f"node {len(out)}: a leaf needs one field, below {len(bins)}")
            size = bins[own[0]]
            out.append(Leaf(own[0], tables[table_at : table_at + size]))
            table_at += size
        elif kind == _KINDS.index(Product):
            out.append(Product(own))
        elif kind == _KINDS.index(Sum):
            out.append(Sum(own, weights[weight_at : weight_at + count]))
            weight_at += count
        else:
            raise ModelError(f"node {len(out)}: unknown kind {kind}")
    if (table_at, weight_at) != (len(tables), len(weights)):
        raise ModelError("the sizes of tables, weights and nodes contradict each other")
    return tuple(out)


def bins_of(spec: InputSpec, bits: Bits) -> NDArray[np.int64]:
    """Count the set bits of each field: the bin of its feature.

    Args:
        spec: the input stage.
        bits: bool array of shape ``(rows, n_bits)``.

    Returns:
        int64 array of shape ``(rows, fields)``.
    """
    return np.add.reduceat(bits.astype(np.int64), np.array(spec.offsets), axis=1)
