# SPDX-License-Identifier: Apache-2.0
"""The bias of the class to detect that keeps a false-alarm rate."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.model.classifier import Classifier
from n3ic.util.markdown import percent

Model = TypeVar("Model", bound=Classifier)


def with_false_alarms(
    model: Model,
    scores: NDArray[np.int32],
    label: NDArray[np.int64],
    positive: int | None,
    share: float,
) -> Model:
    """Set the highest bias of a class that keeps a false-alarm rate.

    The bias is part of the model, so every target has it.

    Args:
        model: the model.
        scores: its scores of validation rows, shape ``(rows, classes)``.
        label: class index of each of these rows, shape ``(rows,)``.
        positive: index of the class to detect; None if the task has no such class.
        share: largest share of the rows of other classes that may get this class.

    Returns:
        The model; its provenance holds the rates on these rows.

    Raises:
        UsageError: the task has no class to detect, no row has another class, or the scores of
            this family have no bias.
    """
    if positive is None:
        raise UsageError(
            "a false-alarm rate needs one class to detect: for your own flows, name it with "
            "--positive; several classes have no single threshold"
        )
    step, rates = _step(model.classes, scores, label, positive, share)
    return model.favouring(positive, step, rates)


def _step(
    classes: tuple[str, ...],
    scores: NDArray[np.int32],
    label: NDArray[np.int64],
    positive: int,
    share: float,
) -> tuple[int, str]:
    """The most that can be added to a class's score, and the rates on these rows in words."""
    negatives = np.flatnonzero(label != positive)
    if not len(negatives):
        raise UsageError("a false-alarm rate needs validation rows of other classes")
    # The class wins if its score is above those of the classes before it, and not below the rest.
    rivals = scores.astype(np.int64) + (np.arange(scores.shape[1]) < positive)
    needed = np.delete(rivals, positive, axis=1).max(axis=1) - scores[:, positive]
    allowed = int(share * len(negatives))
    bound = np.sort(needed[negatives])[allowed] - 1  # the first row that must stay below
    flagged, detectable = needed <= bound, label == positive
    summary = (
        f"{percent(share)} at most of {len(negatives):,} validation rows: "
        f"{percent(float(flagged[negatives].mean()))}, with "
        f"{percent(float(flagged[detectable].mean()) if detectable.any() else 0.0)} of "
        f"{classes[positive]} found"
    )
    return int(bound), summary
