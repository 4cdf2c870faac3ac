# SPDX-License-Identifier: Apache-2.0
"""Class weights, for classes of which there are few rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError


def class_weights(
    weighting: str, classes: tuple[str, ...], label: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Compute the weight of a row of each class, so that the average weight of a row is 1.

    Args:
        weighting: ``none``, ``balanced``, or ``CLASS=WEIGHT,...``; see ``Training.class_weight``.
        classes: names of the classes.
        label: class index of each training row, shape ``(rows,)``.

    Returns:
        Shape ``(classes,)``; None for ``none``.

    Raises:
        UsageError: a name is unknown or occurs twice.
    """
    if weighting == "none":
        return None
    counts = np.bincount(label, minlength=len(classes))
    if weighting == "balanced":
        weights = 1 / np.maximum(counts, 1)
    else:
        weight_of: dict[str, float] = {}
        for part in weighting.split(","):
            name, _, weight = part.rpartition("=")
            name = name.strip()
            if name not in classes or name in weight_of:
                why = (
                    "is named twice" if name in weight_of else f"is not one of {', '.join(classes)}"
                )
                raise UsageError(f"class_weight: class {name!r:.60} {why}")
            weight_of[name] = float(weight)
        weights = np.array([weight_of.get(name, 1.0) for name in classes])
    return np.asarray(weights * len(label) / (weights * counts).sum())
