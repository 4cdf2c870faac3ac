# SPDX-License-Identifier: Apache-2.0
"""Trains trees on prepared rows: grows trees of several sizes, and keeps the best that fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.families.trees.growth import GroupedRows, GrownTrees, Growth, grown
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.rounding import TreesRounder
from n3ic.families.trees.sizing import GrowthSize, best_size
from n3ic.model.bits import Bits, pack
from n3ic.model.summed import n_sums
from n3ic.runs.learner import Learned
from n3ic.runs.preparation import on_bits

if TYPE_CHECKING:
    from n3ic.families.trees.settings import TreesTraining
    from n3ic.model.inputs import InputSpec
    from n3ic.model.passes import Simplified
    from n3ic.runs.progress import TrainingProgress
    from n3ic.runs.training_rows import Prepared

Rows = tuple[Bits, NDArray[np.int64]]
"""Input bits, bool array of shape ``(rows, n_bits)``, and the class index of each row."""
_SPARE = 1.25  # roughly counted bytes that grow, over those of the limit


def train_trees(prepared: Prepared, progress: TrainingProgress) -> Learned:
    """Train trees on the training rows.

    Args:
        prepared: rows, and their experiment.
        progress: receives stages.

    Raises:
        UsageError: no tree fits the limit of bytes.
    """
    experiment, rows, validation = prepared.experiment, prepared.train, prepared.validation
    model = fit_trees(
        (rows.bits, rows.label),
        (validation.bits, validation.label),
        prepared.spec,
        tuple(experiment.table.classes),
        experiment.recipe.settings,
        progress=progress,
    )
    model = replace(model, name=experiment.name, provenance=experiment.provenance)
    if model.input != prepared.spec:
        prepared = on_bits(prepared, model.input, progress.stage)
    return Learned(model, prepared)


def fit_trees(
    rows: Rows,
    validation: Rows,
    spec: InputSpec,
    classes: tuple[str, ...],
    settings: TreesTraining,
    *,
    progress: TrainingProgress,
) -> TreesModel:
    """Grow trees of several sizes, and keep those that are right on most validation rows.

    Args:
        rows: training rows.
        validation: rows that choose the size, and the number of trees if there is no limit.
        spec: the input bits.
        classes: name of each class.
        settings: how trees are grown, and their sizes.
        progress: receives stages.

    Raises:
        UsageError: no tree fits the limit of bytes.
    """
    limit, n_classes = settings.boosted_bytes, len(classes)
    groups = GroupedRows.of(*rows, spec, n_classes)
    judges = GroupedRows.of(*validation, spec, n_classes)
    best: dict[GrowthSize, TreesModel] = {}
    growths: dict[Growth, GrownTrees] = {}

    def worth(size: GrowthSize) -> float:
        how = Growth(
            size.leaves,
            size.rounds,
            size.rate,
            size.price * len(rows[1]) / limit if limit else 0.0,
            settings.boosted_cuts,
            int(_SPARE * limit),
        )
        if how not in growths:
            growths[how] = grown(groups, how)
        rounder = TreesRounder(growths[how], groups, classes, size.leaf_bits)
        fitting = rounder.fitting(limit)
        progress.task("")
        if not fitting:
            return -1
        rounded = rounder.rounded(fitting if limit else rounder.best_count(judges))
        best[size] = rounded.model
        return _right(rounded, validation)

    progress.begin("growing boosted trees", 0)
    size = best_size(settings, n_sums(n_classes), worth)
    if size not in best:
        raise UsageError(f"no tree fits {limit} bytes: take more bytes")
    return best[size]


def _right(rounded: Simplified[TreesModel], rows: Rows) -> int:
    """Count the rows on which a model is right."""
    inputs = pack(rows[0][:, list(rounded.source_bits)])
    return int((rounded.model.infer(inputs).classes == rows[1]).sum())
