# SPDX-License-Identifier: Apache-2.0
"""Trains trees on prepared rows: grows trees of several sizes, and keeps the best that fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from n3ic.errors import UsageError
from n3ic.families.trees.growth import GrownTrees, grown
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.rounding import Rows, TreesRounder
from n3ic.families.trees.sizing import sizes
from n3ic.model.bits import pack
from n3ic.runs.learner import Learned
from n3ic.runs.preparation import on_bits

if TYPE_CHECKING:
    from n3ic.families.trees.settings import TreesTraining
    from n3ic.model.inputs import InputSpec
    from n3ic.model.passes import Simplified
    from n3ic.runs.progress import TrainingProgress
    from n3ic.runs.training_rows import Prepared


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
        seed=experiment.seed,
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
    seed: int,
    progress: TrainingProgress,
) -> TreesModel:
    """Grow trees of several sizes, and keep those that are right on most validation rows.

    Args:
        rows: training rows.
        validation: rows that choose the size and the number of trees; the first of equals wins.
        spec: the input bits.
        classes: name of each class.
        settings: how trees are grown, and their sizes.
        seed: seed of the boosting.
        progress: receives stages.

    Raises:
        UsageError: no tree fits the limit of bytes.
        MissingDependencyError: the training libraries are not installed.
    """
    limit = settings.boosted_bytes
    best: tuple[int, Simplified[TreesModel], TreesRounder, int] | None = None
    progress.begin("growing boosted trees", len(sizes(settings, spec.n_bits)))
    for trees in _growths(rows, spec, len(classes), settings, seed):
        rounder = TreesRounder(trees, spec, classes, rows)
        fitting = rounder.fitting(limit)
        if fitting:
            count = rounder.best_count(validation, fitting)
            rounded = rounder.rounded(count)
            if limit and rounded.model.total_bytes > limit:  # fewer trees may have a finer step
                rounded, count = rounder.rounded(fitting), fitting
            right = _right(rounded, validation)
            if best is None or right > best[0]:
                best = right, rounded, rounder, count
        progress.task("")
    if best is None:
        raise UsageError(f"no tree fits {limit} bytes: take more bytes")
    right, rounded, rounder, count = best
    refitted = rounder.refitted(count).rounded(count)
    fits = not limit or refitted.model.total_bytes <= limit
    return (refitted if fits and _right(refitted, validation) >= right else rounded).model


def _right(rounded: Simplified[TreesModel], rows: Rows) -> int:
    """Count the rows on which a model is right."""
    inputs = pack(rows[0][:, list(rounded.source_bits)])
    return int((rounded.model.infer(inputs).classes == rows[1]).sum())


def _growths(
    rows: Rows, spec: InputSpec, n_classes: int, settings: TreesTraining, seed: int
) -> Iterator[GrownTrees]:
    """Grow trees of each size; those of few cuts ask the cuts that gain most without a limit."""
    for leaves, of_leaves in groupby(sizes(settings, spec.n_bits), key=lambda size: size.leaves):
        grow = partial(grown, *rows, spec, n_classes, leaves=leaves, seed=seed)
        every: GrownTrees | None = None
        for size in of_leaves:
            if every is None:
                every = grow(asked=range(spec.n_bits), rounds=size.rounds, rate=size.rate)
            ranking = np.argsort(-every.gains, kind="stable").tolist()
            yield grow(asked={*ranking[: size.cuts]}, rounds=size.rounds, rate=size.rate)
