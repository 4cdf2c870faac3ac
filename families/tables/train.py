# SPDX-License-Identifier: Apache-2.0
"""Trains look-up tables on prepared rows: grows, renews and rounds them, narrows the input."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from n3ic.errors import UsageError, needed
from n3ic.families.tables.boosting import Size, TableBooster
from n3ic.families.tables.loss import Floats, merged
from n3ic.families.tables.network import Table, TablesModel
from n3ic.families.tables.rounding import SWEEPS, rounded
from n3ic.families.tables.simplify import simplified
from n3ic.model.bits import pack
from n3ic.runs.learner import Learned
from n3ic.runs.preparation import on_bits

if TYPE_CHECKING:
    from n3ic.families.tables.settings import TablesTraining
    from n3ic.model.bits import Bits
    from n3ic.model.classifier import Classifier
    from n3ic.model.inputs import InputSpec
    from n3ic.runs.progress import TrainingProgress
    from n3ic.runs.training_rows import Prepared

PRIORS = (3.0, 30.0, 100.0)
"""Curvatures, one of which validation rows choose. Where boosted trees memorise nearly every
training row, as in tomography, the largest is best: 95.9 % of its validation rows against 95.4."""


def train_tables(prepared: Prepared, progress: TrainingProgress) -> Learned:
    """Train look-up tables on the training rows.

    Args:
        prepared: rows, and their experiment.
        progress: receives stages.
    """
    experiment, rows = prepared.experiment, prepared.train
    classes = tuple(experiment.table.classes)
    weights = np.eye(len(classes))[rows.label]
    settings: TablesTraining = experiment.recipe.settings
    if prepared.teacher is not None:
        weights = (1 - settings.teacher) * weights + settings.teacher * prepared.teacher
    priors = [settings.cell_prior] if settings.cell_prior else PRIORS
    candidates = [
        fit_tables(
            rows.bits,
            weights,
            prepared.spec,
            classes,
            replace(settings, cell_prior=prior),
            q=experiment.recipe.training.bounded_by,
            template=tables_of(experiment.keeps) if experiment.keeps else None,
            name=experiment.name,
            provenance=experiment.provenance,
            progress=progress,
        )
        for prior in priors
    ]
    model = (
        candidates[0] if len(candidates) == 1 else max(candidates, key=partial(_right, prepared))
    )
    if model.input != prepared.spec:
        prepared = on_bits(prepared, model.input, progress.stage)
    return Learned(model, prepared)


def _right(prepared: Prepared, model: TablesModel) -> int:
    """Count the validation rows on which a model is right."""
    features, parts = prepared.experiment.table.features, prepared.parts.validation
    bits = model.input.encode({name: features[name][parts] for name in model.input.features})
    return int((model.infer(pack(bits)).classes == prepared.validation.label).sum())


def fit_tables(
    bits: Bits,
    weights: Floats,
    spec: InputSpec,
    classes: tuple[str, ...],
    settings: TablesTraining,
    *,
    q: float = 0.0,
    template: TablesModel | None = None,
    name: str = "model",
    provenance: dict[str, str] | None = None,
    progress: TrainingProgress | None = None,
) -> TablesModel:
    """Grow look-up tables and round them.

    Args:
        bits: training rows, bool array of shape ``(rows, n_bits)``.
        weights: weight of each row for each class, float64 array of shape ``(rows, classes)``.
        spec: the input bits.
        classes: name of each class.
        settings: sizes, and the prior of a cell, which must not be 0.
        q: exponent of the bounded loss; 0 for the cross-entropy.
        template: a model of the same input whose tables get new entries; None to choose tables.
        name: what the model is for.
        provenance: facts about its origin.
        progress: receives stages.

    Raises:
        MissingDependencyError: the training libraries are not installed.
    """
    from n3ic.runs.progress import TrainingProgress

    with needed("training look-up tables"):
        from threadpoolctl import threadpool_limits
    reporter = progress or TrainingProgress()

    def done() -> None:
        reporter.task("")

    plain = merged(bits, weights)
    own = settings
    size = Size(own.tables, own.table_bits, own.entry_bits, plain.sums, own.table_bytes)
    # One thread: float sums by several threads would depend on their number.
    with threadpool_limits(1):
        grower = TableBooster(plain, size, spec, done, own.cell_prior)
        if template is None:
            reporter.begin("growing look-up tables", size.most)
            grower.grow()
        else:
            reporter.begin("fitting the entries of look-up tables", len(template.tables))
            grower.add_tables([(t.bits, t.held | ~t.held.any()) for t in template.tables])
        # A bounded loss is flat where all is wrong: growth begins with the cross-entropy.
        grower.rows = replace(plain, q=q)
        for _ in range(own.renewals if template is None else 0):
            count = len(grower.tables)
            reporter.begin(f"growing {count} look-up tables anew, one by one", count)
            grower.renew()
            grower.grow()  # cuts that are no longer read leave room
        grower.refit(1)
        reporter.begin("rounding the entries", SWEEPS * len(grower.tables))
        widths = [own.entry_bits] * len(grower.tables)
        if template is not None:
            widths = [t.width for t in template.tables]
        whole = rounded(grower.rows, grower.tables, grower.bias, widths, done=done)
    model = TablesModel(
        input=spec,
        tables=tuple(
            Table(t.bits, e, w)
            for t, e, w in zip(grower.tables, whole.entries, widths, strict=True)
        ),
        bias=whole.bias.astype(np.int32),
        classes=classes,
        name=name,
        provenance=provenance or {},
    )
    return model if template is not None else without_idle_parts(model)


def tables_of(model: Classifier) -> TablesModel:
    """Check that a model is of this family.

    Raises:
        UsageError: the model belongs to another family.
    """
    if not isinstance(model, TablesModel):
        raise UsageError(
            f"--input-of: expected look-up tables, {model.name} is of family {model.family}"
        )
    return model


def without_idle_parts(model: TablesModel) -> TablesModel:
    """Drop what changes no score, as if it had never grown."""
    return replace(simplified(model).model, provenance=model.provenance)
