# SPDX-License-Identifier: Apache-2.0
"""Flows that a model has decided, as the parts of a stream hand them on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from n3ic.kernel.prediction import encode, predict
from n3ic.meter.compiled import Records
from n3ic.model.classifier import Classifier


@dataclass(frozen=True, eq=False)
class FlowColumns:
    """Arrays with an entry for each flow: what dataclasses of such arrays have in common."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64] | slice) -> Self:
        """The flows that a mask, indices or a slice select."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @classmethod
    def joined(cls, *parts: Self) -> Self:
        """Join parts, one after the other."""
        names = [f.name for f in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True, eq=False)
class FlowBatch(FlowColumns):
    """Decided flows, in the order of their decision.

    Attributes:
        records: keys, times, packets and features, of dtype
            :func:`n3ic.meter.compiled.record_type`, shape ``(flows,)``.
        features: the model's features, uint32, shape ``(flows, features)``.
        scores: the score of each class, int32, shape ``(flows, classes)``.
        classes: index of the winning class, int64, shape ``(flows,)``.
        margins: best score minus second best, int32, shape ``(flows,)``.
        verdicts: class index, or :data:`n3ic.model.classifier.SHUNT`, int64, shape ``(flows,)``.
    """

    records: Records
    features: NDArray[np.uint32]
    scores: NDArray[np.int32]
    classes: NDArray[np.int64]
    margins: NDArray[np.int32]
    verdicts: NDArray[np.int64]


def features_read(model: Classifier, names: Sequence[str], records: Records) -> NDArray[np.uint32]:
    """Select the features that a model reads from a meter's records.

    Args:
        model: the model.
        names: names of the features of ``records``, in their order.
        records: of dtype :func:`n3ic.meter.compiled.record_type`, shape ``(flows,)``.

    Returns:
        uint32 array of shape ``(flows, features)``.
    """
    index = {name: i for i, name in enumerate(names)}
    columns = [index[name] for name in model.input.features]
    return np.ascontiguousarray(records["features"][:, columns])


def encoded(model: Classifier, features: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Encode a model's features, shape ``(flows, features)``, as packed input bits.

    Returns:
        uint32 array of shape ``(flows, n_words)``.
    """
    return encode(model.input, dict(zip(model.input.features, features.T, strict=True)))


def decided(
    model: Classifier,
    records: Records,
    features: NDArray[np.uint32],
    words: NDArray[np.uint32] | None = None,
) -> FlowBatch:
    """Decide flows with a model.

    Args:
        model: the model.
        records: keys and times, shape ``(flows,)``.
        features: the model's features, uint32, shape ``(flows, features)``.
        words: packed input bits, uint32, shape ``(flows, n_words)``; None to encode the features.
    """
    inference = predict(model, encoded(model, features) if words is None else words)
    assert inference.verdicts is not None  # noqa: S101 - the model knows its threshold
    scores, classes = inference.scores, inference.classes
    return FlowBatch(records, features, scores, classes, inference.margins, inference.verdicts)


def counted(model: Classifier, verdicts: NDArray[np.int64]) -> dict[str, int]:
    """The number of flows by verdict, of those that came."""
    names = model.verdict_names
    # SHUNT is -1: modulo the number of names, it is the index of the last.
    counts = np.bincount(verdicts % len(names), minlength=len(names)).tolist()
    return {name: count for name, count in zip(names, counts, strict=True) if count}
