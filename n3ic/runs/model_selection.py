# SPDX-License-Identifier: Apache-2.0
"""Choose the best model within a budget of bytes, and compare it with trees of the same size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from n3ic import plugins
from n3ic.errors import UsageError
from n3ic.model.bits import pack
from n3ic.model.classifier import Classifier, family_text
from n3ic.runs.experiment_spec import Experiment
from n3ic.runs.learner import Candidate, Learned, learner
from n3ic.runs.preparation import prepare, with_baselines
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.trained import trained
from n3ic.runs.training_rows import Prepared
from n3ic.util.markdown import percent


def select_within_budget(
    experiment: Experiment, progress: TrainingProgress
) -> tuple[Learned, tuple[Candidate, ...], tuple[str, ...]]:
    """Train every family that fits a budget of bytes, and keep the best on validation rows.

    The best has the highest accuracy, or the highest balanced accuracy if the recipe weighs
    classes. The first of equals wins.

    Args:
        experiment: the experiment, with its budget and the recipes of other families.
        progress: receives messages on the way.

    Returns:
        The model, all candidates with the kept one first, and a line on each packed tree or forest
        that is better but that no target takes.

    Raises:
        UsageError: no model fits.
    """
    by_class = experiment.recipe.training.class_weight != "none"

    def worth(candidate: Candidate) -> float:
        return candidate.balanced if by_class else candidate.accuracy

    candidates: list[tuple[Candidate, Learned]] = []
    smaller: list[Candidate] = []
    prepared: Prepared | None = None
    for recipe in (experiment.recipe, *experiment.rivals):
        own = replace(experiment, recipe=recipe, rivals=())
        trees = prepared.trees if prepared else None  # the same rows give the same trees
        prepared = prepare(own, progress.stage, trees, baselines=False)
        learned = trained(prepared, progress)
        name = learned.name or family_text(learned.model.family)
        candidates.append((candidate(name, learned.model, learned.prepared), learned))
        smaller += learned.other_candidates
    fitting = [entry for entry in candidates if entry[0].bytes <= experiment.budget]
    if not fitting:
        sizes = ", ".join(f"{c.name} {c.bytes:,} bytes" for c, _ in candidates)
        raise UsageError(f"no model fits {experiment.budget:,} bytes: {sizes}; take more bytes")
    winner, learned = max(fitting, key=lambda entry: worth(entry[0]))  # the first of equals
    rows = learned.prepared
    progress.stage(f"comparing with trees of {experiment.budget:,} bytes")
    every = (learner(name) for name in plugins.names("n3ic.learners"))
    packed = [c for family in every for c in family.packed_candidates(rows, experiment.budget)]
    losers = sorted([*(c for c, _ in candidates if c is not winner), *smaller, *packed], key=worth)
    notes = tuple(
        f"{c.name}: better on validation rows in as many bytes ({percent(worth(c))} in "
        f"{c.bytes:,} B, the {winner.name} {percent(worth(winner))} in {winner.bytes:,} B); no "
        "target takes it"
        for c in packed
        if worth(c) > worth(winner)
    )
    learned = replace(learned, prepared=with_baselines(rows, progress.stage))
    return learned, (replace(winner, kept=True), *reversed(losers)), notes


def candidate(name: str, model: Classifier, prepared: Prepared) -> Candidate:
    """Evaluate a trained model on the validation rows.

    Args:
        name: its name in the comparison.
        model: the model.
        prepared: the rows, encoded by the model's input.
    """
    validation = prepared.validation
    return on_rows(name, model.memory, model.scores(pack(validation.bits)), validation.label)


def on_rows(
    name: str,
    memory: Mapping[str, int],
    scores: NDArray[np.integer],
    label: NDArray[np.int64],
    *,
    exported: bool = True,
) -> Candidate:
    """Make a candidate of a classifier's scores on some rows.

    Args:
        name: the classifier's name.
        memory: its bytes by part.
        scores: shape ``(rows, classes)``.
        label: class index of each row, shape ``(rows,)``.
        exported: whether targets take it.
    """
    right = scores.argmax(axis=1) == label
    shares = [right[label == c].mean() for c in np.unique(label)]
    return Candidate(name, dict(memory), float(right.mean()), float(np.mean(shares)), exported)
