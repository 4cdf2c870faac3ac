# SPDX-License-Identifier: Apache-2.0
"""Refreshes a model on recent flows: it keeps its input and shape, and gets new numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import needed
from n3ic.model.bits import pack
from n3ic.model.classifier import Classifier, margins_of
from n3ic.model.family import family


def columns_of(model: Classifier, features: NDArray[np.uint32]) -> dict[str, NDArray[np.int64]]:
    """Split a model's features, uint32 of shape ``(rows, features)``, into columns by name."""
    return dict(zip(model.input.features, features.astype(np.int64).T, strict=True))


def refreshed(
    model: Classifier,
    features: NDArray[np.uint32],
    label: NDArray[np.int64],
    class_weight: NDArray[np.float64],
    *,
    rounds: int = 2,
    seed: int = 0,
) -> Classifier:
    """Refresh a model on flows; the same arguments give the same bytes.

    The model's family trains it further (:meth:`~n3ic.model.family.Family.trained_further`).
    Input, shape, masks and indices stay the same, so a card can load the new numbers in place of
    the old. The shunting threshold is adjusted so that no more of these flows are shunted than
    before.

    Args:
        model: a model of a family that is trained further.
        features: uint32, shape ``(rows, features)``, in the order of ``model.input.features``.
        label: class index of each flow, shape ``(rows,)``.
        class_weight: weight of a flow of each class, shape ``(classes,)``.
        rounds: the most rounds of polishing over all neurons.
        seed: seed of the order in which neurons are visited.

    Raises:
        UsageError: Models of this family are not trained further.
    """
    with needed("training"):
        from threadpoolctl import threadpool_limits
    bits = model.input.encode(columns_of(model, features))
    words = pack(bits)
    weights = np.eye(len(model.classes))[label] * class_weight[label][:, None]
    with threadpool_limits(1):  # otherwise, float sums depend on the number of cores
        new = family(model.family).trained_further(
            model, bits, weights, label, class_weight, rounds=rounds, seed=seed
        )
    parts = {
        "name": model.name,
        "meter": model.meter,
        "table": model.table,
        "input": model.input.with_rates(bits, label),
        "provenance": {
            **model.provenance,
            "refreshed": f"from {model.digest}, on {len(label)} flows of a stream",
        },
        "shunt": _shunting(model, new, words),
    }
    return new.changed(**parts)


def _shunting(model: Classifier, new: Classifier, words: NDArray[np.uint32]) -> int:
    """The threshold with which the new model shunts no more of these flows than the old one."""
    if not model.shunt:
        return 0
    before, after = (np.sort(margins_of(m.scores(words))) for m in (model, new))
    shunted = int(np.searchsorted(before, model.shunt))
    if shunted == len(after):
        return min(new.largest_margin + 1, int(after[-1]) + 1)
    return max(1, int(after[shunted]))
