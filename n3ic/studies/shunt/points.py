# SPDX-License-Identifier: Apache-2.0
"""Shunting: the card decides flows with large margins, and a second stage on the host the others.

A flow whose margin (best score minus second-best score) reaches the threshold is decided on the
card. All others are shunted to the host (paper, Section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.evaluation.metrics import Evaluation, evaluate


@dataclass(frozen=True, eq=False)
class TwoStageRows:
    """Labelled rows and the predictions of the two stages.

    Attributes:
        label: true class indices, int64 of shape ``(rows,)``.
        card: class indices from the network, int64 of shape ``(rows,)``.
        margins: the network's margins, int32 of shape ``(rows,)``.
        host: class indices from the second stage, int64 of shape ``(rows,)``.
        unseen: rows without a duplicate among the training rows, bool of shape ``(rows,)``.
    """

    label: NDArray[np.int64]
    card: NDArray[np.int64]
    margins: NDArray[np.int32]
    host: NDArray[np.int64]
    unseen: NDArray[np.bool_]


@dataclass(frozen=True)
class ShuntPoint:
    """Results of one threshold on some rows; an accuracy over zero rows is None.

    Attributes:
        threshold: smallest margin that is decided on the card.
        decided: number of rows decided on the card.
        share: their share of all rows.
        accuracy: share of the card's decisions that are correct.
        accuracy_unseen: the same accuracy on rows without a duplicate among the training rows.
        share_unseen: share of rows without a duplicate that are decided on the card.
        shunted_accuracy: share of the shunted rows that the second stage gets right.
        end_to_end: share of all rows that are decided correctly, by either stage.
        end_to_end_unseen: the same share on rows without a duplicate.
        decided_unseen: number of rows without a duplicate that are decided on the card.
    """

    threshold: int
    decided: int
    share: float
    accuracy: float | None
    accuracy_unseen: float | None
    share_unseen: float | None
    shunted_accuracy: float | None
    end_to_end: float
    end_to_end_unseen: float | None
    decided_unseen: int = 0

    @property
    def host_load(self) -> float:
        """Share of all rows that are shunted to the host."""
        return 1 - self.share


def thresholds_of(margins: NDArray[np.int32]) -> list[int]:
    """Return the thresholds that distinguish rows with these margins.

    They are 0, which decides every row; each margin that occurs, except the smallest; and the
    largest plus one, which decides no row.
    """
    # A threshold at the smallest margin would decide every row, as 0 does.
    return [0, *np.unique(margins).tolist()[1:], int(margins.max(initial=0)) + 1]


def shunt_points(stages: TwoStageRows, thresholds: Sequence[int]) -> tuple[ShuntPoint, ...]:
    """Compute the results of each threshold on some rows.

    Args:
        stages: the rows; at least one.
        thresholds: thresholds, such as those of :func:`thresholds_of`.
    """
    return tuple(_point(stages, threshold) for threshold in thresholds)


def _point(stages: TwoStageRows, threshold: int) -> ShuntPoint:
    decided = stages.margins >= threshold
    unseen = stages.unseen
    card, host = stages.card == stages.label, stages.host == stages.label
    either = np.where(decided, card, host)
    share = _mean(decided)
    assert share is not None  # noqa: S101 - there are rows
    return ShuntPoint(
        threshold=int(threshold),
        decided=int(decided.sum()),
        share=share,
        accuracy=_mean(card[decided]),
        accuracy_unseen=_mean(card[decided & unseen]),
        share_unseen=_mean(decided[unseen]),
        shunted_accuracy=_mean(host[~decided]),
        end_to_end=float(either.mean()),
        end_to_end_unseen=_mean(either[unseen]),
        decided_unseen=int((decided & unseen).sum()),
    )


def stage_figures(
    stages: TwoStageRows, threshold: int, n_classes: int, positive: int | None = None
) -> dict[str, Evaluation]:
    """Evaluate each stage, alone and together, at one threshold.

    Returns:
        Figures by name: ``card`` and ``host`` (each alone, on all rows), ``decided`` (the card on
        the rows that it decides), ``shunted_card`` and ``shunted_host`` (both on the others), and
        ``end_to_end``. A name without rows is left out.
    """
    decided = stages.margins >= threshold
    every = np.ones(len(decided), dtype=np.bool_)
    parts = {
        "card": (stages.card, every),
        "host": (stages.host, every),
        "decided": (stages.card, decided),
        "shunted_card": (stages.card, ~decided),
        "shunted_host": (stages.host, ~decided),
        "end_to_end": (np.where(decided, stages.card, stages.host), every),
    }
    return {
        name: evaluate(
            stages.label[rows],
            predicted[rows],
            None,
            n_classes,
            unseen=stages.unseen[rows],
            positive=positive,
        )
        for name, (predicted, rows) in parts.items()
        if rows.any()
    }


def _mean(right: NDArray[np.bool_]) -> float | None:
    return float(right.mean()) if len(right) else None
