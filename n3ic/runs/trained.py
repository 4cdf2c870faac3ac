# SPDX-License-Identifier: Apache-2.0
"""Training by the learner of a recipe's family, and the false-alarm rate that the recipe wants."""

from __future__ import annotations

from dataclasses import replace

from n3ic.evaluation.false_alarms import with_false_alarms
from n3ic.evaluation.metrics import counted_class
from n3ic.model.bits import pack
from n3ic.runs.learner import Learned, learner
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.training_rows import Prepared


def trained(prepared: Prepared, progress: TrainingProgress) -> Learned:
    """Train on split and encoded rows; the bias then keeps the wanted false-alarm rate.

    Args:
        prepared: the rows and their experiment.
        progress: receives messages on the way.

    Raises:
        UsageError: the recipe does not fit the rows, or scores of the family have no bias.
    """
    experiment = prepared.experiment
    learned = learner(experiment.recipe.family).train(prepared, progress)
    share = experiment.recipe.training.false_alarms
    if not share:
        return learned
    rows, table = learned.prepared, experiment.table
    scores = learned.model.scores(pack(rows.validation.bits))
    positive = counted_class(len(learned.model.classes), experiment.positive)
    flow = None if table.flow is None else table.flow[rows.parts.validation]
    model = with_false_alarms(learned.model, scores, rows.validation.label, positive, share, flow)
    progress.stage(f"false alarms: {model.provenance['false_alarms']}")
    return replace(learned, model=model)
