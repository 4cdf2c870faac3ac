# SPDX-License-Identifier: Apache-2.0
"""Larger models for the host: boosted trees and a float network, as arrays in one file.

Both read integer columns by name and return probabilities of the classes. Their files are
containers of :mod:`n3ic.model.file`: they hold no pickle, are checked completely, and have the same
bytes for the same model.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ModelError
from n3ic.model.file import Tensors, pack_file, read_file, short, unpack_file
from n3ic.model.inputs import UINT32_MAX
from n3ic.util.files import write_atomic

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

_MOST = 1 << 24
_MOST_LAYERS = 16
_HIDDEN = (64, 32)
_EPOCHS = 30
_FURTHER = 10
_BATCH = 256
_LEAST_SCALE = 1e-3
_LEARNING_RATE = 3e-3
_FARTHEST = 8.0  # standard deviations; no value of the training rows lies farther out


@dataclass(frozen=True, eq=False)
class HostModel:
    """A model that runs on the host.

    Attributes:
        features: the columns that it reads, in its order.
        classes: class names.
    """

    kind: ClassVar[str]
    features: tuple[str, ...]
    classes: tuple[str, ...]

    @abstractmethod
    def odds(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute the probabilities of the classes.

        Args:
            columns: integers in ``0..2^32-1``, shape ``(rows, features)``.

        Returns:
            float64 array of shape ``(rows, classes)``.
        """

    @abstractmethod
    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays of the file."""

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The sizes from which the arrays' shapes follow."""

    @classmethod
    @abstractmethod
    def _of(cls, features: tuple[str, ...], classes: tuple[str, ...], file: _File) -> Self:
        """Make a model from a file's arrays, and check them."""

    def matrix(self, columns: Mapping[str, ArrayLike]) -> NDArray[np.int64]:
        """Stack the columns that the model reads.

        Returns:
            int64 array of shape ``(rows, features)``, clipped to ``0..2^32-1``.

        Raises:
            ModelError: A column is missing.
        """
        lacking = [name for name in self.features if name not in columns]
        if lacking:
            raise ModelError(f"the second stage reads {lacking[0]!r}, which the flows lack")
        values = [np.asarray(columns[name], dtype=np.int64) for name in self.features]
        return np.clip(np.stack(values, axis=1), 0, UINT32_MAX)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file's bytes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def size(self) -> int:
        """Size of the arrays in bytes."""
        return sum(array.nbytes for array in self.tensors().values())

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        header = {
            "features": list(self.features),
            "classes": list(self.classes),
            "sizes": self.sizes,
        }
        return pack_file(self.kind, header, self.tensors())

    def save(self, path: str | Path) -> None:
        """Write the file, completely or not at all.

        Raises:
            N3icError: The file cannot be written.
        """
        write_atomic(path, self.to_bytes())


@dataclass(frozen=True, eq=False)
class HostTrees(HostModel):
    """Gradient-boosted trees.

    Attributes:
        feature: the column that a node compares, int32, shape ``(nodes,)``; -1 for a leaf.
        cut: the smallest integer that goes right, int64, shape ``(nodes,)``.
        left: number of the left child, int32, shape ``(nodes,)``; greater than the node's own.
        right: number of the right child, likewise.
        value: what a leaf adds to its sum, float64, shape ``(nodes,)``.
        roots: the root of each tree, int32, shape ``(rounds, sums)``.
        base: what each sum begins with, float64, shape ``(sums,)``.
        known: class index of each sum, int32; with a single sum, the indices of both classes.
    """

    kind: ClassVar[str] = "host-trees"
    feature: NDArray[np.int32]
    cut: NDArray[np.int64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    roots: NDArray[np.int32]
    base: NDArray[np.float64]
    known: NDArray[np.int32]

    def odds(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """See :meth:`HostModel.odds`."""
        rounds, sums = self.roots.shape
        at = np.tile(self.roots.reshape(-1), len(columns))
        flat, start = columns.reshape(-1), np.repeat(np.arange(len(columns)), rounds * sums)
        start *= columns.shape[1]
        moving = np.flatnonzero(self.feature[at] >= 0)
        while len(moving):  # children come after their parents, so this ends
            node = at[moving]
            big = flat[start[moving] + self.feature[node]] >= self.cut[node]
            at[moving] = node = np.where(big, self.right[node], self.left[node])
            moving = moving[self.feature[node] >= 0]
        total = self.value[at].reshape(len(columns), rounds, sums).sum(axis=1) + self.base
        if sums == 1:
            one = 1 / (1 + np.exp(-total[:, 0]))
            share = np.stack([1 - one, one], axis=1)
        else:
            each = np.exp(total - total.max(axis=1, keepdims=True))
            share = each / each.sum(axis=1, keepdims=True)
        out = np.zeros((len(columns), len(self.classes)))
        out[:, self.known] = share
        return out

    @classmethod
    def of_boosted(
        cls,
        trees: HistGradientBoostingClassifier,
        features: tuple[str, ...],
        classes: tuple[str, ...],
    ) -> Self:
        """Convert fitted trees of :func:`n3ic.training.input_bits.boosted_trees`."""
        # scikit-learn exposes the trees of this estimator only through `_predictors`.
        nodes = [tree.nodes for round_ in trees._predictors for tree in round_]
        starts = np.cumsum([0, *map(len, nodes)])
        rounds = len(trees._predictors)
        every = np.concatenate(nodes)
        offset = np.repeat(starts[:-1], [len(n) for n in nodes])
        leaf = every["is_leaf"].astype(np.bool_)
        # value <= threshold goes left; so with an infinite threshold, every value goes left.
        least = np.floor(np.minimum(every["num_threshold"], UINT32_MAX)) + 1
        return cls(
            features,
            classes,
            np.where(leaf, -1, every["feature_idx"]).astype(np.int32),
            np.where(leaf, 0, least).astype(np.int64),
            np.where(leaf, 0, every["left"] + offset).astype(np.int32),
            np.where(leaf, 0, every["right"] + offset).astype(np.int32),
            every["value"].astype(np.float64),
            starts[:-1].reshape(rounds, -1).astype(np.int32),
            np.asarray(trees._baseline_prediction, np.float64).reshape(-1),
            trees.classes_.astype(np.int32),
        )

    @property
    def sizes(self) -> dict[str, int]:
        """See :attr:`HostModel.sizes`."""
        rounds, sums = self.roots.shape
        sizes = {"nodes": len(self.feature), "rounds": rounds, "sums": sums}
        return {**sizes, "known": len(self.known)}

    def tensors(self) -> dict[str, NDArray[Any]]:
        """See :meth:`HostModel.tensors`."""
        names = ("feature", "cut", "left", "right", "value", "roots", "base", "known")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def _of(cls, features: tuple[str, ...], classes: tuple[str, ...], file: _File) -> Self:
        nodes, rounds, sums, n_known = (
            file.number(n) for n in ("nodes", "rounds", "sums", "known")
        )
        shapes: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
            "feature": (np.int32, (nodes,)),
            "cut": (np.int64, (nodes,)),
            "left": (np.int32, (nodes,)),
            "right": (np.int32, (nodes,)),
            "value": (np.float64, (nodes,)),
            "roots": (np.int32, (rounds, sums)),
            "base": (np.float64, (sums,)),
            "known": (np.int32, (n_known,)),
        }
        trees = cls(features, classes, **{n: file.tensors.take(n, *t) for n, t in shapes.items()})
        own, inner = np.arange(nodes), trees.feature >= 0
        for side in (trees.left[inner], trees.right[inner]):
            if not ((side > own[inner]) & (side < nodes)).all():
                raise ModelError("a node's children come after it")
        if not (
            (trees.feature < len(features)).all()
            and ((trees.roots >= 0) & (trees.roots < nodes)).all()
            and ((trees.known >= 0) & (trees.known < len(classes))).all()
            and n_known == (2 if sums == 1 else sums)
            and np.isfinite(trees.value).all()
            and np.isfinite(trees.base).all()
        ):
            raise ModelError("a node, a root, a class or a value is out of range")
        return trees


@dataclass(frozen=True, eq=False)
class HostMlp(HostModel):
    """A float network: logarithms of the columns, standardised; ReLU; softmax.

    Attributes:
        mean: means of the logarithms, float32, shape ``(features,)``.
        scale: their standard deviations, float32, shape ``(features,)``.
        weights: a matrix ``(inputs, outputs)`` and a vector ``(outputs,)`` per layer, float32.
    """

    kind: ClassVar[str] = "host-mlp"
    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    weights: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]

    def odds(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """See :meth:`HostModel.odds`."""
        x = standardised(columns, self.mean, self.scale)
        for i, (matrix, bias) in enumerate(self.weights):
            x = x @ matrix + bias
            if i + 1 < len(self.weights):
                x = np.maximum(x, 0)
        each = np.exp((x - x.max(axis=1, keepdims=True)).astype(np.float64))
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    @property
    def sizes(self) -> dict[str, int]:
        """See :attr:`HostModel.sizes`."""
        widths = {f"width{i}": len(bias) for i, (_, bias) in enumerate(self.weights)}
        return {"layers": len(self.weights), **widths}

    def tensors(self) -> dict[str, NDArray[Any]]:
        """See :meth:`HostModel.tensors`."""
        layers = {
            f"{name}{i}": array
            for i, pair in enumerate(self.weights)
            for name, array in zip(("matrix", "bias"), pair, strict=True)
        }
        return {"mean": self.mean, "scale": self.scale, **layers}

    @classmethod
    def _of(cls, features: tuple[str, ...], classes: tuple[str, ...], file: _File) -> Self:
        take, before = file.tensors.take, len(features)
        mean, scale = (take(name, np.float32, (before,)) for name in ("mean", "scale"))
        layers = []
        for i in range(min(file.number("layers"), _MOST_LAYERS)):
            width = file.number(f"width{i}")
            layers.append(
                (take(f"matrix{i}", np.float32, (before, width)),
                 take(f"bias{i}", np.float32, (width,)))
            )  # fmt: skip
            before = width
        if before != len(classes) or not (scale > 0).all():
            raise ModelError("the last layer has an output a class, and scales are positive")
        return cls(features, classes, mean, scale, tuple(layers))


@dataclass(frozen=True, eq=False)
class _File:
    """The parts of a file: sizes and arrays."""

    header: Mapping[str, Any]
    tensors: Tensors

    def number(self, name: str) -> int:
        """A size from the header.

        Raises:
            ModelError: The value is not a valid size.
        """
        value = self.header["sizes"][name]
        if type(value) is not int or not 1 <= value <= _MOST:
            raise ModelError(f"{name}: expected a size, got {value!r}"[:120])
        return value


def load_host_model(path: str | Path) -> HostModel:
    """Read the file of a host model.

    Raises:
        ModelError: The file is missing, damaged or of another kind.
    """
    header, tensors = unpack_file(read_file(path), str(path))
    kinds: dict[str, type[HostModel]] = {HostTrees.kind: HostTrees, HostMlp.kind: HostMlp}
    try:
        kind = header["family"]
        if kind not in kinds:
            raise ModelError(f"a model of family {kind!r}, expected {' or '.join(kinds)}")
        features, classes = (tuple(header[name]) for name in ("features", "classes"))
        if any(not isinstance(one, str) for one in (*features, *classes)) or len(classes) < 2:
            raise ModelError("features and classes are names, two classes or more")
        host_model = kinds[kind]._of(features, classes, _File(header, tensors))
        tensors.close()
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: damaged model ({short(error)})") from error
    return host_model


def fit_host_mlp(
    columns: NDArray[np.int64],
    label: NDArray[np.int64],
    held_out: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    features: tuple[str, ...],
    classes: tuple[str, ...],
    seed: int,
    *,
    start: HostMlp | None = None,
    class_weight: NDArray[np.float64] | None = None,
) -> HostMlp:
    """Train a float network, or continue the training of one.

    Args:
        columns: integers, shape ``(rows, features)``.
        label: class index of each row, shape ``(rows,)``.
        held_out: columns and labels of held-out rows, whose smallest loss chooses the epoch; None
            keeps the last epoch.
        features: names of the columns.
        classes: class names.
        seed: seed of the weights and the shuffling.
        start: the network to continue from, for fewer epochs; None for a new one.
        class_weight: weight of a row of each class, shape ``(classes,)``; None for equal weights.
    """
    import torch
    from torch import Tensor, nn

    from n3ic.training.loop import Passes, class_indices, deterministic, run_epochs

    if start is None:
        logs = np.log1p(columns.astype(np.float64))
        mean = logs.mean(axis=0).astype(np.float32)
        scale = np.maximum(logs.std(axis=0), _LEAST_SCALE).astype(np.float32)
    else:
        mean, scale = start.mean, start.scale
    with deterministic(seed):
        x, y = torch.from_numpy(standardised(columns, mean, scale)), class_indices(label)
        widths = (len(features), *_HIDDEN, len(classes))
        linear = [nn.Linear(a, b) for a, b in pairwise(widths)]
        parts = [part for layer in linear for part in (layer, nn.ReLU())][:-1]
        network = nn.Sequential(*parts)
        if start is not None:
            with torch.no_grad():
                for layer, (matrix, bias) in zip(linear, start.weights, strict=True):
                    layer.weight.copy_(torch.from_numpy(matrix.T.copy()))
                    layer.bias.copy_(torch.from_numpy(bias))
        weight = None if class_weight is None else torch.from_numpy(class_weight).float()

        def loss(index: Tensor) -> Tensor:
            return nn.functional.cross_entropy(network(x[index]), y[index], weight)

        run_epochs(
            network,
            torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE),
            loss,
            len(x),
            Passes(_EPOCHS if start is None else _FURTHER, min(_BATCH, len(x))),
            validation=None
            if held_out is None
            else (
                torch.from_numpy(standardised(held_out[0], mean, scale)),
                class_indices(held_out[1]),
            ),
        )
    weights = tuple(
        (layer.weight.detach().numpy().T.copy(), layer.bias.detach().numpy().copy())
        for layer in linear
    )
    return HostMlp(features, classes, mean, scale, weights)


def standardised(
    columns: NDArray[np.int64], mean: NDArray[np.float32], scale: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Standardise the logarithms of columns and clip outliers: float32, ``(rows, features)``."""
    logs = np.log1p(columns.astype(np.float64)).astype(np.float32)
    return np.asarray(np.clip((logs - mean) / scale, -_FARTHEST, _FARTHEST), np.float32)
