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
    flow: NDArray[np.int64] | None = None,
) -> Model:
    """Set the highest bias of a class that keeps a false-alarm rate.

    The bias is part of the model, so every target has it. A flow that is decided several times
    counts once, and as called if any of its rows is: more decisions bring no more false alarms.

    Args:
        model: the model.
        scores: its scores of validation rows, shape ``(rows, classes)``.
        label: class index of each of these rows, shape ``(rows,)``.
        positive: index of the class to detect; None if the task has no such class.
        share: largest share of the flows of other classes that may get this class.
        flow: each row's flow, int64 array of shape ``(rows,)``; None if each row is a flow.

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
    step, rates = _step(model.classes, scores, label, positive, share, flow)
    return model.favouring(positive, step, rates)


def _step(
    classes: tuple[str, ...],
    scores: NDArray[np.int32],
    label: NDArray[np.int64],
    positive: int,
    share: float,
    flow: NDArray[np.int64] | None,
) -> tuple[int, str]:
    """The most that can be added to a class's score, and the rates on these rows in words."""
    detectable = label == positive
    if detectable.all():
        raise UsageError("a false-alarm rate needs validation rows of other classes")
    # The class wins if its score is above those of the classes before it, and not below the rest.
    rivals = scores.astype(np.int64) + (np.arange(scores.shape[1]) < positive)
    needed = np.delete(rivals, positive, axis=1).max(axis=1) - scores[:, positive]
    of = np.arange(len(label)) if flow is None else flow
    others, detected = (_least(needed[rows], of[rows]) for rows in (~detectable, detectable))
    bound = np.sort(others)[int(share * len(others))] - 1  # the first flow that must stay below
    summary = (
        f"{percent(share)} at most of {len(others):,} validation "
        f"{'rows' if flow is None else 'flows'}: {percent(float((others <= bound).mean()))}, with "
        f"{percent(float((detected <= bound).mean()) if len(detected) else 0.0)} of "
        f"{classes[positive]} found"
    )
    return int(bound), summary


def _least(values: NDArray[np.int64], flow: NDArray[np.int64]) -> NDArray[np.int64]:
    """The least of each flow's values."""
    order = np.lexsort((values, flow))
    return values[order][np.unique(flow[order], return_index=True)[1]]
