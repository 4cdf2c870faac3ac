# SPDX-License-Identifier: Apache-2.0
"""Handles rare classes: class weights, and the bias that keeps a false-alarm rate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.model.network import BinaryModel
from n3ic.util.markdown import percent

_FARTHEST = (1 << 24) - 1  # a bias is below 2^24 in size


def class_weights(
    said: str, classes: tuple[str, ...], label: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Compute the weight of a row of each class, so that the average weight of a row is 1.

    Args:
        said: ``none``, ``balanced``, or ``CLASS=WEIGHT,...``; see ``Training.class_weight``.
        classes: names of the classes.
        label: class index of each training row, shape ``(rows,)``.

    Returns:
        Shape ``(classes,)``; None for ``none``.

    Raises:
        UsageError: a name is unknown or occurs twice.
    """
    if said == "none":
        return None
    counts = np.bincount(label, minlength=len(classes))
    if said == "balanced":
        weights = 1 / np.maximum(counts, 1)
    else:
        named: dict[str, float] = {}
        for part in said.split(","):
            name, _, weight = part.rpartition("=")
            name = name.strip()
            if name not in classes or name in named:
                why = "is named twice" if name in named else f"is not one of {', '.join(classes)}"
                raise UsageError(f"class_weight: class {name!r:.60} {why}")
            named[name] = float(weight)
        weights = np.array([named.get(name, 1.0) for name in classes])
    return np.asarray(weights * len(label) / (weights * counts).sum())


def with_false_alarms(
    model: BinaryModel,
    scores: NDArray[np.int32],
    label: NDArray[np.int64],
    positive: int | None,
    share: float,
) -> BinaryModel:
    """Set the highest bias of a class that keeps a false-alarm rate; see :func:`step_for`.

    The bias is part of the output layer, so every target has it.

    Returns:
        The network; its provenance holds the rates on these rows.
    """
    step, said = step_for(model.classes, scores, label, positive, share)
    bias = model.output.bias.copy()
    bias[positive] = np.clip(bias[positive] + step, -_FARTHEST, _FARTHEST)
    return replace(
        model,
        output=replace(model.output, bias=bias),
        provenance={**model.provenance, "false_alarms": said},
    )


def step_for(
    classes: tuple[str, ...],
    scores: NDArray[np.int32],
    label: NDArray[np.int64],
    positive: int | None,
    share: float,
) -> tuple[int, str]:
    """Find the most that can be added to a class's score within a false-alarm rate.

    Args:
        classes: names of the classes.
        scores: a model's scores of validation rows, shape ``(rows, classes)``.
        label: class index of each of these rows, shape ``(rows,)``.
        positive: index of the class to detect; None if the task has no such class.
        share: largest share of the rows of other classes that may get this class.

    Returns:
        The step, and the rates on these rows in words.

    Raises:
        UsageError: the task has no class to detect, or no row has another class.
    """
    if positive is None:
        raise UsageError(
            "a false-alarm rate needs one class to detect: for your own flows, name it with "
            "--positive; several classes have no single threshold"
        )
    others = np.flatnonzero(label != positive)
    if not len(others):
        raise UsageError("a false-alarm rate needs validation rows of other classes")
    # The class wins if its score is above those of the classes before it, and not below the rest.
    rivals = scores.astype(np.int64) + (np.arange(scores.shape[1]) < positive)
    needed = np.delete(rivals, positive, axis=1).max(axis=1) - scores[:, positive]
    allowed = int(share * len(others))
    bound = np.sort(needed[others])[allowed] - 1  # the first row that must stay below
    called, found = needed <= bound, label == positive
    said = (
        f"{percent(share)} at most of {len(others):,} validation rows: "
        f"{percent(float(called[others].mean()))}, with "
        f"{percent(float(called[found].mean()) if found.any() else 0.0)} of "
        f"{classes[positive]} found"
    )
    return int(bound), said
