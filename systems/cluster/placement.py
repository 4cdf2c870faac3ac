# SPDX-License-Identifier: Apache-2.0
"""The placement of a model: the shares of each layer, and the ring of nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from n3ic.errors import ClusterError, UsageError
from n3ic.model.bits import WORD_BITS
from n3ic.model.network import BinaryModel
from n3ic.systems.cluster.protocol import MAX_NODES

PLACEMENT_VERSION = 1
MAX_SUM = (1 << 16) - 1


class LayerSplit(StrEnum):
    """How a layer is divided among its nodes."""

    OUTPUT = "output"
    """Each node holds some neurons, with all their inputs."""
    INPUT = "input"
    """Each node holds some inputs of all neurons; partial popcounts are added up."""
    REPLICATED = "replicated"
    """Each node holds the whole layer, and the nodes take the rows in turn."""


@dataclass(frozen=True)
class Share:
    """The part of a layer that one node holds.

    Attributes:
        node: number of the node in the ring, from 1; the coordinator is 0 and holds nothing.
        start: first neuron, or first input for a layer split by inputs.
        end: one past the last.
    """

    node: int
    start: int
    end: int


@dataclass(frozen=True)
class LayerPlacement:
    """The placement of one layer.

    Attributes:
        split: how the layer is divided.
        shares: share of each node with a part. Shares of a split layer are contiguous and cover it;
            each boundary but the last is a multiple of 32.
        reducers: for a layer split by inputs, the nodes that add the partial popcounts of each
            range of neurons, as for a layer split by outputs; empty otherwise.
    """

    split: LayerSplit
    shares: tuple[Share, ...]
    reducers: tuple[Share, ...] = ()

    @property
    def shares_text(self) -> str:
        """The shares as text, cut to the first eight nodes."""
        text = " ".join(f"{s.node}:[{s.start},{s.end})" for s in self.shares[:8])
        return text + (f" ... {len(self.shares)} nodes" if len(self.shares) > 8 else "")


@dataclass(frozen=True)
class ModelPlacement:
    """The placement of a model.

    Attributes:
        model: digest of the model file.
        shape: input bits, then the neurons of each layer.
        nodes: number of nodes beside the coordinator.
        layers: placement of each layer.
    """

    model: str
    shape: tuple[int, ...]
    nodes: int
    layers: tuple[LayerPlacement, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MAX_NODES:
            raise ClusterError(f"a ring has 1 to {MAX_NODES} nodes, got {self.nodes}")
        if len(self.shape) < 2 or len(self.layers) != len(self.shape) - 1:
            raise ClusterError(
                f"{len(self.layers)} layers are placed, the shape has {len(self.shape) - 1}"
            )
        for number, ((inputs, outputs), layer) in enumerate(
            zip(pairwise(self.shape), self.layers, strict=True)
        ):
            self._check(number, layer, inputs, outputs)

    def _check(self, number: int, layer: LayerPlacement, inputs: int, outputs: int) -> None:
        where = f"layer {number}"
        holders = [share.node for share in layer.shares]
        for node in (*holders, *(share.node for share in layer.reducers)):
            if not 1 <= node <= self.nodes:
                raise ClusterError(f"{where}: node {node} is not in a ring of {self.nodes}")
        if len(set(holders)) != len(holders):
            raise ClusterError(f"{where}: a node holds at most one share of a layer")
        if not holders:
            raise ClusterError(f"{where}: no node holds it")
        if layer.split is LayerSplit.REPLICATED:
            if any((share.start, share.end) != (0, outputs) for share in layer.shares):
                raise ClusterError(f"{where}: a replica is the whole layer, [0, {outputs})")
        elif layer.split is LayerSplit.OUTPUT:
            _check_cover(where, layer.shares, outputs)
        else:
            _check_cover(where, layer.shares, inputs)
            _check_cover(f"{where}, reducers", layer.reducers, outputs)
            if inputs > MAX_SUM:
                raise ClusterError(
                    f"{where}: expected at most {MAX_SUM:,} inputs to split, got {inputs:,}"
                )
        if layer.split is not LayerSplit.INPUT and layer.reducers:
            raise ClusterError(f"{where}: only a layer split by inputs has reducers")

    def check_model(self, model: BinaryModel) -> None:
        """Check that a model is the one that was placed.

        Raises:
            ClusterError: The digest or the shape differs.
        """
        if (model.digest, model.shape) != (self.model, self.shape):
            raise ClusterError(
                f"the plan places model {self.model[:12]}, this is {model.digest[:12]}; "
                "plan again: n3ic cluster plan"
            )

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        return {
            "version": PLACEMENT_VERSION,
            "model": self.model,
            "shape": list(self.shape),
            "nodes": self.nodes,
            "layers": [
                {
                    "split": layer.split.value,
                    "shares": [[s.node, s.start, s.end] for s in layer.shares],
                    "reducers": [[s.node, s.start, s.end] for s in layer.reducers],
                }
                for layer in self.layers
            ],
        }

    @classmethod
    def from_dict(cls, data: Any) -> ModelPlacement:
        """Read the result of :meth:`to_dict`.

        Raises:
            ClusterError: The data is not a placement.
        """
        fields = _fields(data, {"version", "model", "shape", "nodes", "layers"})
        if fields["version"] != PLACEMENT_VERSION:
            raise ClusterError(
                f"expected a placement of version {PLACEMENT_VERSION}, got {fields['version']}"
            )
        if not isinstance(fields["model"], str) or not isinstance(fields["layers"], list):
            raise ClusterError("a placement has the model's digest and a list of layers")
        return cls(
            model=fields["model"],
            shape=_integers(fields["shape"]),
            nodes=_integers([fields["nodes"]])[0],
            layers=tuple(_layer(layer) for layer in fields["layers"]),
        )


def _check_cover(where: str, shares: Sequence[Share], size: int) -> None:
    at = 0
    for share in shares:
        if share.start != at or not share.start < share.end:
            raise ClusterError(
                f"{where}: node {share.node} has [{share.start}, {share.end}); "
                f"expected a share that begins at {at}"
            )
        at = share.end
        # A boundary within a word would make two nodes share a word, and packets carry whole words.
        if at % WORD_BITS and at != size:
            raise ClusterError(f"{where}: expected a multiple of {WORD_BITS} as boundary, got {at}")
    if at != size:
        raise ClusterError(f"{where}: the shares end at {at} of {size}")


def _fields(data: Any, names: set[str]) -> Mapping[str, Any]:
    if not isinstance(data, dict) or set(data) != names:
        raise ClusterError(f"a placement's fields are {', '.join(sorted(names))}")
    return data


def _integers(data: Any) -> tuple[int, ...]:
    if not isinstance(data, list) or any(
        isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 1 << 32 for n in data
    ):
        raise ClusterError(f"a placement has lists of integers from 0, got {data!r:.60}")
    return tuple(data)


def _layer(data: Any) -> LayerPlacement:
    fields = _fields(data, {"split", "shares", "reducers"})
    try:
        split = LayerSplit(fields["split"])
    except ValueError as error:
        raise ClusterError(f"a layer's split: {error}") from None
    return LayerPlacement(split, _shares(fields["shares"]), _shares(fields["reducers"]))


def _shares(data: Any) -> tuple[Share, ...]:
    if not isinstance(data, list):
        raise ClusterError("a layer's shares are a list of [node, start, end]")
    shares = []
    for item in data:
        numbers = _integers(item)
        if len(numbers) != 3:
            raise ClusterError(f"a share is [node, start, end], got {item!r:.60}")
        shares.append(Share(*numbers))
    return tuple(shares)


def even_shares(size: int, nodes: Sequence[int]) -> tuple[Share, ...]:
    """Divide neurons or inputs evenly in words of 32; nodes that would get none are left out."""
    words = -(-size // WORD_BITS)
    bounds = [min(size, WORD_BITS * (words * i // len(nodes))) for i in range(len(nodes) + 1)]
    # The last word may be partly filled; the last share ends with the neurons, not with the word.
    bounds[-1] = size
    return tuple(
        Share(node, start, end)
        for node, (start, end) in zip(nodes, pairwise(bounds), strict=True)
        if start < end
    )


def splits_of(names: str | Sequence[str], layers: int) -> list[LayerSplit]:
    """Read the splits of layers.

    Args:
        names: names of splits, one for all layers or one for each; a text has commas between them.
        layers: number of layers.

    Raises:
        UsageError: a name is unknown, or the number of names is wrong.
    """
    parts = names.split(",") if isinstance(names, str) else [*names]
    splits = [s.value for s in LayerSplit]
    for name in parts:
        if name not in splits:
            raise UsageError(f"--split: expected {', '.join(splits)}, got {name!r}")
    if len(parts) not in (1, layers):
        raise UsageError(f"--split: expected one or {layers} of them, got {len(parts)}")
    return [LayerSplit(n) for n in (parts * layers if len(parts) == 1 else parts)]


def even_placement(
    model: BinaryModel,
    nodes: int,
    splits: Sequence[LayerSplit] | None = None,
    single: Collection[int] = (),
) -> ModelPlacement:
    """Place every layer evenly over all nodes.

    Args:
        model: the model.
        nodes: number of nodes beside the coordinator.
        splits: how each layer is divided; all by outputs if None.
        single: nodes that hold a share of only one layer and no reducer, as cards do. They get a
            share of the layer with the most weights.

    Raises:
        ClusterError: Only single-share nodes are left for several layers or for reducers.
    """
    chosen_splits = splits if splits is not None else [LayerSplit.OUTPUT] * len(model.layers)
    sizes = [inputs * outputs for inputs, outputs in pairwise(model.shape)]
    # Single-share nodes help most where most of the work is.
    largest = sizes.index(max(sizes))
    others = [node for node in range(1, nodes + 1) if node not in single]
    if not others and (len(sizes) > 1 or LayerSplit.INPUT in chosen_splits):
        raise ClusterError(
            "each card holds a share of one layer and adds no partial sums: a ring with this model "
            "also needs a process"
        )
    layers = []
    for number, ((inputs, outputs), split) in enumerate(
        zip(pairwise(model.shape), chosen_splits, strict=True)
    ):
        ring = range(1, nodes + 1) if number == largest else others
        if split is LayerSplit.REPLICATED:
            layers.append(LayerPlacement(split, tuple(Share(node, 0, outputs) for node in ring)))
        elif split is LayerSplit.OUTPUT:
            layers.append(LayerPlacement(split, even_shares(outputs, ring)))
        else:
            layers.append(
                LayerPlacement(split, even_shares(inputs, ring), even_shares(outputs, others))
            )
    return ModelPlacement(model.digest, model.shape, nodes, tuple(layers))
