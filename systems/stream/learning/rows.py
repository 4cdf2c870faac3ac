# SPDX-License-Identifier: Apache-2.0
"""Labelled flows of a stream, and the reservoir of training flows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import DataError
from n3ic.model.inputs import UINT32_MAX
from n3ic.systems.stream.batch import FlowColumns

_MIXING = 0.002  # weight of a new row in the shares of the classes: half of it after 350 rows


@dataclass(frozen=True, eq=False)
class LabelledRows(FlowColumns):
    """Labelled flows, in the order of their labels' arrival.

    Attributes:
        features: the model's features, uint32, shape ``(rows, features)``.
        label: class index of each flow, int64, shape ``(rows,)``.
        block: hash of each flow's block, uint64, shape ``(rows,)``; see
            :func:`~n3ic.systems.stream.learning.blocks.block_hashes`.
    """

    features: NDArray[np.uint32]
    label: NDArray[np.int64]
    block: NDArray[np.uint64]

    @classmethod
    def none(cls, features: int) -> Self:
        """No flows; ``features`` is the number of features."""
        return cls(
            np.empty((0, features), np.uint32), np.empty(0, np.int64), np.empty(0, np.uint64)
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {f.name: getattr(self, f.name).tolist() for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Any, features: int, classes: int) -> Self:
        """Read what :meth:`to_dict` wrote.

        Raises:
            DataError: The data are not labelled flows, or do not fit the model.
        """
        try:
            label, block = np.array(data["label"], np.int64), np.array(data["block"], np.uint64)
            values = np.array(data["features"], np.int64).reshape(-1, features)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"not labelled flows: {error}") from error
        if not (len(values) == len(label) == len(block) and label.ndim == block.ndim == 1):
            raise DataError(f"{len(values)} flows, {len(label)} labels and {len(block)} blocks")
        if len(label) and not (
            0 <= label.min() <= label.max() < classes and 0 <= values.min() <= values.max()
            and values.max() <= UINT32_MAX
        ):  # fmt: skip
            raise DataError("a label is no class, or a feature is not in 0..2^32-1")
        return cls(values.astype(np.uint32), label, block)


def key_hash(key: object, seed: int) -> int:
    """A 64-bit hash of plain data, the same on every machine.

    Args:
        key: a key of :func:`n3ic.meter.flow_keys.flow_key`, or other tuples of numbers and bytes.
        seed: seed of the hash.
    """
    text = repr(key).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=b"%d" % seed).digest(), "little")


def held_out(block: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """Mark the flows that are never trained on; all flows of a block are on the same side.

    Args:
        block: hashes of the flows' blocks, uint64, shape ``(rows,)``.
        share: share of the blocks to hold out.

    Returns:
        A bool array of shape ``(rows,)``.
    """
    return np.asarray(block < np.uint64(min(int(share * 2**64), 2**64 - 1)))


class Reservoir:
    """A bounded sample of flows to train on, with equal room for each class.

    In a full class, a new flow replaces a random one, so the probability that a flow is still there
    falls exponentially with the number of later ones (Aggarwal, "On biased reservoir sampling in
    the presence of stream evolution", VLDB 2006).

    Args:
        room: the most flows.
        features: number of features of a flow.
        classes: number of classes.
        seed: seed of the places.
    """

    def __init__(self, room: int, features: int, classes: int, seed: int) -> None:
        self._each = max(1, room // classes)
        self._features = np.zeros((classes, self._each, features), np.uint32)
        self._counts = np.zeros(classes, np.int64)
        self._share = np.full(classes, 1 / classes)
        self._random = np.random.default_rng(seed)

    def __len__(self) -> int:
        return int(self._counts.sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, from which :meth:`restore` makes the same sample."""
        random = self._random.bit_generator.state
        return {"random": random, **{name: array.tolist() for name, array in self._arrays.items()}}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over what :meth:`to_dict` gave."""
        for name, array in self._arrays.items():
            array[...] = data[name]
        self._random.bit_generator.state = data["random"]

    @property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"features": self._features, "counts": self._counts, "share": self._share}

    def add(self, rows: LabelledRows) -> None:
        """Take flows, in their order."""
        for features, label in zip(rows.features, rows.label.tolist(), strict=True):
            place = int(self._counts[label])
            if place == self._each:
                place = int(self._random.integers(self._each))
            else:
                self._counts[label] += 1
            self._features[label, place] = features
            self._share *= 1 - _MIXING
            self._share[label] += _MIXING

    def rows(self) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.float64]]:
        """The features, the labels, and the weight of a flow of each class.

        The weights restore the classes' recent shares of the stream, which the equal room hides.

        Returns:
            uint32 of shape ``(rows, features)``, int64 of shape ``(rows,)``, and float64 of shape
            ``(classes,)``.
        """
        label = np.repeat(np.arange(len(self._counts)), self._counts)
        features = np.concatenate(
            [part[:n] for part, n in zip(self._features, self._counts.tolist(), strict=True)]
        )
        weight = self._share * len(self) / np.maximum(self._counts, 1)
        return features, label, weight
