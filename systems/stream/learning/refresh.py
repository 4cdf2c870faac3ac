# SPDX-License-Identifier: Apache-2.0
"""Refreshes a model on recent flows, from where it is: same input, same shape, other numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError, needed
from n3ic.families.tables.learner import TablesTraining
from n3ic.families.tables.network import TablesModel
from n3ic.model.bits import pack
from n3ic.model.classifier import Classifier, margins_of
from n3ic.model.network import BinaryModel

_PRIOR = 30.0  # curvature added to each entry of a table: recent flows are few


def columns_of(model: Classifier, features: NDArray[np.uint32]) -> dict[str, NDArray[np.int64]]:
    """Columns by name of a model's features, uint32 of shape ``(rows, features)``."""
    return dict(zip(model.input.features, features.astype(np.int64).T, strict=True))


def refreshed(
    model: Classifier,
    features: NDArray[np.uint32],
    label: NDArray[np.int64],
    class_weight: NDArray[np.float64],
    *,
    teacher: NDArray[np.float64] | None = None,
    rounds: int = 2,
    seed: int = 0,
) -> Classifier:
    """Refresh a model on flows; the same arguments give the same bytes.

    A binary network is fine-tuned by gradient and polished
    (:mod:`n3ic.families.binary.fine_tuning`, :mod:`n3ic.families.binary.polish`); look-up tables
    get new entries. Input, shape, masks and indices stay, so that a card takes the new numbers in
    place of the old. The threshold of shunting moves such that no more of these flows are shunted.

    Args:
        model: a binary network or look-up tables.
        features: uint32, shape ``(rows, features)``, in the order of ``model.input.features``.
        label: class index of each flow, shape ``(rows,)``.
        class_weight: weight of a flow of each class, shape ``(classes,)``.
        teacher: probabilities of the classes by a larger model, shape ``(rows, classes)``, which
            teach half; None for labels alone.
        rounds: most passes of polishing over all neurons.
        seed: of the order in which neurons are visited.

    Raises:
        UsageError: the model is of another family.
    """
    with needed("training"):
        from threadpoolctl import threadpool_limits
    bits = model.input.encode(columns_of(model, features))
    words = pack(bits)
    weights = np.eye(len(model.classes))[label]
    if teacher is not None:
        weights = (weights + teacher) / 2
    weights = weights * class_weight[label][:, None]
    new: Classifier
    with threadpool_limits(1):  # sums of floats would depend on the number of cores
        if isinstance(model, BinaryModel):
            from n3ic.families.binary.fine_tuning import fine_tune
            from n3ic.families.binary.polish import polish

            start = model
            if model.output.mask is None:
                start = fine_tune(model, bits, weights, seed=seed)
            new = polish(start, words, label, rounds=rounds, class_weight=class_weight, seed=seed)
        elif isinstance(model, TablesModel):
            from n3ic.families.tables.train import fit_tables

            new = fit_tables(
                bits,
                weights,
                model.input,
                model.classes,
                replace(TablesTraining(), cell_prior=_PRIOR),
                kept=model,
            )
        else:
            raise UsageError(
                f"{model.name} is of family {model.family}: expected a binary network or look-up "
                "tables, which are trained further"
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
    """The threshold that shunts no more of some flows than the model's own."""
    if not model.shunt:
        return 0
    before, after = (np.sort(margins_of(m.scores(words))) for m in (model, new))
    shunted = int(np.searchsorted(before, model.shunt))
    if shunted == len(after):
        return min(new.largest_margin + 1, int(after[-1]) + 1)
    return max(1, int(after[shunted]))
