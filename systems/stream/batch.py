# SPDX-License-Identifier: Apache-2.0
"""Flows that a model decided, as they pass from one part of a stream to the next."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from n3ic.meter.compiled import Records


@dataclass(frozen=True, eq=False)
class FlowBatch:
    """Decided flows, in the order of their decision.

    Attributes:
        records: keys, times, packets and features, of
            :func:`n3ic.meter.compiled.record_type`, shape ``(flows,)``.
        features: the model's features, uint32, shape ``(flows, features)``.
        scores: int32, shape ``(flows, classes)``.
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

    def __len__(self) -> int:
        return len(self.records)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64] | slice) -> Self:
        """The flows that a mask, indices or a slice select."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})
