# SPDX-License-Identifier: Apache-2.0
"""Split and encode rows, and train the baselines that networks of every shape share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic import plugins
from n3ic.data.split import seen_in_training, split
from n3ic.data.table import FlowTable
from n3ic.data.time_scale import with_time_scales
from n3ic.errors import UsageError
from n3ic.evaluation.metrics import Evaluation, evaluate
from n3ic.model.inputs import UINT32_MAX, InputSpec
from n3ic.model.text import check_text
from n3ic.runs.experiment_spec import Experiment
from n3ic.runs.learner import learner
from n3ic.runs.progress import StageCallback
from n3ic.runs.training_rows import Prepared
from n3ic.training.baselines import MAJORITY

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

    from n3ic.training.baselines import Prediction


def prepare(
    experiment: Experiment,
    stage: StageCallback,
    trees: HistGradientBoostingClassifier | None = None,
    *,
    baselines: bool = True,
) -> Prepared:
    """Split a table, choose its input bits and train the baselines that have no shape.

    Args:
        experiment: the experiment. Of its training, only distillation and, for ``weighted`` bits,
            the hidden layers matter.
        stage: called with a line about each step.
        trees: fitted boosted trees on the training rows of this split, if any.
        baselines: train the experiment's baselines here; else :func:`with_baselines` does.

    Raises:
        DataError: the table does not allow the split.
        ModelError: a model cannot carry the name of a class or feature.
        UsageError: the recipe or the kept input does not fit the table, or its training rows have
            a single class.
    """
    from n3ic.training.baselines import BaselineRows, class_probabilities
    from n3ic.training.input_bits import boosted_trees, chi2_scores, fault_of
    from n3ic.training.input_choice import candidates
    from n3ic.training.kept_input import kept_input

    table, recipe, seed = experiment.table, experiment.recipe, experiment.seed
    parts = split(table, experiment.protocol, seed)
    n_classes = len(table.classes)
    absent = set(range(n_classes)) - set(table.label[parts.train].tolist())
    family = learner(recipe.family)
    labelled = len(absent) <= n_classes - 2  # at least two classes to tell apart
    if not labelled and absent != {family.unlearned(experiment)}:
        raise UsageError(f"{table.name}: the training rows have fewer than two classes")
    names = candidates(table, recipe)
    for name in (*table.classes, *names):  # before the training, not at its end
        check_text("a name of a class or feature", name)
    own = table.only(experiment.columns).rows(parts.train)
    training_table = with_time_scales(own, experiment.augment, seed)
    if len(training_table) > len(own):
        stage(
            f"copying the training rows on time scales of 1/{recipe.augment:g} to "
            f"{recipe.augment:g}"
        )
    needs_trees = experiment.with_baselines or family.boosts(experiment)
    if trees is None and needs_trees and labelled:
        stage("training boosted trees")
        fitted = {n: training_table.features[n] for n in names}
        validation_columns = {n: table.features[n][parts.validation] for n in names}
        unseen_rows = validation_columns, table.label[parts.validation]
        trees = boosted_trees(fitted, training_table.label, held=unseen_rows, seed=seed)
    notes: tuple[str, ...] = ()
    if trees is not None and fault_of(trees):
        notes = (fault_of(trees),)
        stage(notes[0])
    stage("choosing input bits" if experiment.keeps is None else "taking the kept input bits")
    if experiment.keeps is not None:
        spec = kept_input(table, experiment.keeps)
        scores = chi2_scores({n: training_table.features[n] for n in names}, training_table.label)
    else:
        chosen = replace(
            experiment, recipe=replace(recipe, columns=names)
        )  # training_table has no others
        spec, scores = family.choose_input(chosen, training_table, trees)
    bits = spec.encode(table.features)

    def rows(of: FlowTable) -> BaselineRows:
        columns = np.clip(of.matrix(names), 0, UINT32_MAX)  # as a network's input stage does
        return BaselineRows(spec.encode(of.features), columns, of.label)

    train_rows, test = rows(training_table), rows(table.rows(parts.test))
    teacher = None
    if trees is not None and family.distills(recipe) and not notes:
        teacher = class_probabilities(trees.predict_proba(train_rows.columns), trees, n_classes)
    unseen = ~seen_in_training(table, parts.train, parts.test)
    prepared = Prepared(
        experiment=experiment,
        parts=parts,
        trees=trees,
        spec=spec,
        feature_scores=scores,
        training_table=training_table,
        bits=bits,
        train=train_rows,
        validation=rows(table.rows(parts.validation)),
        test=test,
        unseen=unseen,
        teacher=teacher,
        baselines={},
        baseline_scores={},
        notes=notes,
    )
    return with_baselines(prepared, stage) if baselines else prepared


def on_bits(prepared: Prepared, spec: InputSpec, stage: StageCallback) -> Prepared:
    """Encode the same rows as other input bits, and train the baselines on these.

    Args:
        prepared: the split rows.
        spec: the input bits.
        stage: called with a line about each step.
    """
    bits, parts = spec.encode(prepared.experiment.table.features), prepared.parts
    other = replace(
        prepared,
        baselines={},
        spec=spec,
        bits=bits,
        train=replace(prepared.train, bits=spec.encode(prepared.training_table.features)),
        validation=replace(prepared.validation, bits=bits[parts.validation]),
        test=replace(prepared.test, bits=bits[parts.test]),
    )
    return with_baselines(other, stage) if prepared.baselines else other


def with_baselines(prepared: Prepared, stage: StageCallback) -> Prepared:
    """Add the figures and scores of the baselines without a shape, if the experiment has them.

    Args:
        prepared: the rows; baselines that they already have are kept.
        stage: called with a line about each baseline.
    """
    experiment, train, test = prepared.experiment, prepared.train, prepared.test
    if not experiment.with_baselines or prepared.baselines:
        return prepared
    from n3ic.training.baselines import non_neural_baselines

    n_classes = len(experiment.table.classes)
    figures: dict[str, Evaluation] = {}
    scores: dict[str, NDArray[np.float64]] = {}
    sizes: dict[str, int] = {}
    predictions: list[Iterator[Prediction]] = [
        learner(experiment.recipe.family).baselines(prepared)
    ]
    if prepared.trees is not None:
        boosted, cuts = prepared.trees, prepared.spec.n_cuts
        predictions.append(
            non_neural_baselines(train, test, n_classes, experiment.seed, boosted, cuts)
        )
        families = (learner(name) for name in plugins.names("n3ic.learners"))
        predictions += [family.shared_baselines(prepared) for family in families]
    for other in chain(*predictions):
        stage(f"baseline: {other.name}")
        figures[other.name] = baseline_figures(experiment, other, test.label, prepared.unseen)
        if other.scores is not None:
            scores[other.name] = other.scores
        if other.bytes:
            sizes[other.name] = other.bytes
    return replace(prepared, baselines=figures, baseline_scores=scores, baseline_bytes=sizes)


def baseline_figures(
    experiment: Experiment,
    other: Prediction,
    label: NDArray[np.int64],
    unseen: NDArray[np.bool_],
) -> Evaluation:
    """Figures of a baseline on the test rows.

    Args:
        experiment: the experiment, which names the positive class.
        other: the baseline's output.
        label: true class indices of the test rows, shape ``(rows,)``.
        unseen: whether each test row equals no training row.
    """
    classes = len(experiment.table.classes)
    scores = other.scores
    if other.name == MAJORITY:  # it scores all rows alike
        scores = np.zeros((len(label), classes))
    return evaluate(
        label,
        other.predicted,
        scores,
        classes,
        unseen=unseen,
        positive=experiment.positive,
    )
