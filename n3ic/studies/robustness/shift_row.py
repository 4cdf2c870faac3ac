# SPDX-License-Identifier: Apache-2.0
"""Figures on changed rows: one row of the table of shifts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ShiftRow:
    """Figures on changed rows.

    Attributes:
        shift: what was changed, in words.
        rows: number of rows.
        accuracy: share of the verdicts that are right; None if the true classes are unknown.
        recall: share of the positive rows that are called positive; None without a positive class.
        false_alarms: share of the others that are called positive; None without a positive class.
        same: share of the rows that keep their verdict; None if the rows themselves are others.
        called: share of the rows that are called positive; None without a positive class.
    """

    shift: str
    rows: int
    accuracy: float | None
    recall: float | None = None
    false_alarms: float | None = None
    same: float | None = None
    called: float | None = None


def shift_row(
    name: str,
    label: NDArray[np.int64],
    verdicts: NDArray[np.integer[Any]],
    positive: int | None,
    before: NDArray[np.integer[Any]] | None = None,
) -> ShiftRow:
    """Compute the figures of a model's verdicts on changed rows.

    Args:
        name: what was changed.
        label: true class of each row, shape ``(rows,)``.
        verdicts: the model's class of each row, shape ``(rows,)``.
        positive: index of the class to detect; None if there is none.
        before: the model's class of each row before the change, shape ``(rows,)``; None if the
            rows are others.
    """
    rates: list[float | None] = [None, None]
    every: float | None = None
    if positive is not None:
        is_positive = verdicts == positive
        parts = [is_positive[label == positive], is_positive[label != positive]]
        rates = [float(part.mean()) if len(part) else None for part in parts]
        every = float(is_positive.mean())
    same = None if before is None else float((verdicts == before).mean())
    return ShiftRow(
        name, len(label), float((verdicts == label).mean()), rates[0], rates[1], same, every
    )
