# SPDX-License-Identifier: Apache-2.0
"""From a table to an integer network, with its figures and those of its baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import SplitProtocol
from n3ic.evaluation.interval import clearly_better
from n3ic.evaluation.metrics import Evaluation, counted_class, evaluate
from n3ic.model.bits import pack
from n3ic.model.classifier import Classifier
from n3ic.runs.experiment_spec import Experiment
from n3ic.runs.learner import Candidate, Learned, learner
from n3ic.runs.model_selection import select_within_budget
from n3ic.runs.preparation import baseline_figures, prepare
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.site_selection import select_within_sites
from n3ic.runs.trained import trained
from n3ic.runs.training_rows import Prepared
from n3ic.training.baselines import BOOSTED, MAJORITY, TREE_DEPTHS, TREE_OF_CUTS
from n3ic.training.recipe import Recipe
from n3ic.util.markdown import percent

if TYPE_CHECKING:
    from n3ic.training.baselines import Prediction
    from n3ic.training.loop import Epoch


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """A trained network and its results on the test rows.

    Attributes:
        model: the integer model.
        protocol: how the rows were split.
        recipe: how the network was trained.
        positive: index of the class whose detection is counted; None for the mean over classes.
        test: figures on the test rows.
        validation: figures on the validation rows, which chose the epoch.
        train_accuracy: accuracy on the training rows.
        twin_share: share of the test rows that equal some training row.
        baselines: figures of each baseline on the test rows.
        history: figures of each epoch.
        feature_scores: chi-squared statistic of each candidate feature on the training rows.
        test_label: class index of each test row, int64, shape ``(rows,)``.
        test_scores: scores ``(rows, classes)`` of the network (``model``) and of baselines.
        rows: number of training, validation and test rows.
        notes: remarks on the baselines, as sentences.
        baseline_bytes: bytes of the baselines that are packed.
        candidates: what was tried within a budget of bytes or LUT sites, the kept model first.
    """

    model: Classifier
    protocol: SplitProtocol
    recipe: Recipe
    positive: int | None
    test: Evaluation
    validation: Evaluation
    train_accuracy: float
    twin_share: float
    baselines: Mapping[str, Evaluation]
    history: tuple[Epoch, ...]
    feature_scores: Mapping[str, float]
    test_label: NDArray[np.int64]
    test_scores: Mapping[str, NDArray[np.floating]] = field(repr=False)
    rows: Mapping[str, int]
    notes: tuple[str, ...] = ()
    baseline_bytes: Mapping[str, int] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()

    @property
    def no_better_than(self) -> str:
        """The most frequent class if always predicting it is as accurate; else empty.

        Also empty for a model that learned only normal traffic, or a recipe that aims at another
        figure than accuracy.
        """
        if not self.model.learned_all or not self.recipe.training.for_accuracy:
            return ""
        counts = np.bincount(self.test_label, minlength=len(self.model.classes))
        share = counts.max() / max(1, counts.sum())
        return self.model.classes[counts.argmax()] if self.test.accuracy <= share else ""


def train(experiment: Experiment, progress: TrainingProgress | None = None) -> TrainingResult:
    """Train on a table and evaluate once on its test rows.

    Args:
        experiment: the table, the recipe and the split.
        progress: receives messages on the way.

    Raises:
        DataError: the table does not allow the split.
        UsageError: the recipe does not fit the table.
    """
    (result,) = train_shapes(experiment, [experiment.recipe.training.hidden], progress)
    return result


def train_shapes(
    experiment: Experiment,
    shapes: Sequence[tuple[int, ...]],
    progress: TrainingProgress | None = None,
) -> Iterator[TrainingResult]:
    """Train networks of several shapes on the same rows, one after the other.

    The results are those of :func:`train`, in less time: the networks share the rows, the input
    bits and the baselines without a shape. ``weighted`` bits depend on the shape, so these networks
    share only rows and boosted trees. A network of several is never replaced by a tree. Under a
    budget of bytes or LUT sites, the best model replaces that of the recipe's own shape.

    Args:
        experiment: everything else that determines the networks.
        shapes: neurons of the hidden layers of each network.
        progress: receives messages on the way.

    Raises:
        DataError: the table does not allow the split.
        UsageError: the recipe does not fit the table.
    """
    progress = progress or TrainingProgress()
    prepared: Prepared | None = None
    for hidden in shapes:
        own = experiment.recipe.with_options({"hidden": tuple(hidden)})
        if len(shapes) > 1:
            own = replace(own, tree_bytes=0)  # shapes are compared, and a tree has none
        variant = replace(experiment, recipe=own)
        own_shape = own.training.hidden == experiment.recipe.training.hidden
        if variant.sites is not None and own_shape:
            learned, candidates = select_within_sites(experiment, variant.sites, progress)
            yield replace(_finished(learned, progress), candidates=candidates)
            continue
        if variant.budget and own_shape:
            learned, candidates, notes = select_within_budget(experiment, progress)
            result = _finished(learned, progress)
            yield replace(result, candidates=candidates, notes=(*result.notes, *notes))
            continue
        for_shape = own.encoding == "weighted" and variant.keeps is None
        if prepared is None or for_shape:
            prepared = prepare(variant, progress.stage, prepared.trees if prepared else None)
        yield train_prepared(replace(prepared, experiment=variant), progress)


def train_prepared(prepared: Prepared, progress: TrainingProgress) -> TrainingResult:
    """Train on split and encoded rows, and evaluate once on the test rows.

    Args:
        prepared: the rows and their experiment.
        progress: receives messages on the way.
    """
    return _finished(trained(prepared, progress), progress)


def _finished(learned: Learned, progress: TrainingProgress) -> TrainingResult:
    """Add bit rates, meter and table rules to a model, and evaluate it once on the test rows."""
    model, prepared = learned.model, learned.prepared
    experiment = prepared.experiment
    family, table = learner(experiment.recipe.family), experiment.table
    train = prepared.parts.train
    known = {n: table.features[n][train] for n in model.input.features}
    # What is usual, and what is not, the flows themselves tell, and not their copies.
    spec = model.input.with_rates(prepared.bits[train], table.label[train], known)
    model = model.changed(input=spec)
    meter = (
        table.meter if experiment.keeps is None else experiment.keeps.meter
    )  # a device keeps its meter
    # A network that reads further columns could not be fed by the meter alone.
    if meter is not None and set(model.input.features) <= set(meter.feature_names):
        model = model.changed(meter=meter)
    if table.rules is not None:
        model = model.changed(table=table.rules.only(model.input.features))
    twin = family.twin(prepared, progress) if experiment.with_baselines else None
    return _result(prepared, model, learned.history, twin)


def _result(
    prepared: Prepared,
    model: Classifier,
    history: tuple[Epoch, ...],
    twin: Prediction | None,
) -> TrainingResult:
    experiment, parts, bits, unseen = (
        prepared.experiment,
        prepared.parts,
        prepared.bits,
        prepared.unseen,
    )
    n_classes, every = len(experiment.table.classes), experiment.table.label
    label = every[parts.test]
    scores = {
        name: model.scores(pack(bits[index])).astype(np.float64)
        for name, index in vars(parts).items()
    }
    predicted = {name: s.argmax(axis=1).astype(np.int64) for name, s in scores.items()}

    def figures(name: str, index: NDArray[np.int64], of: NDArray[np.bool_] | None) -> Evaluation:
        return evaluate(
            every[index],
            predicted[name],
            scores[name],
            n_classes,
            unseen=of,
            positive=experiment.positive,
        )

    test_scores = {"model": scores["test"]} | dict(prepared.baseline_scores)
    baselines = dict(prepared.baselines)
    if twin is not None:
        baselines[twin.name] = baseline_figures(experiment, twin, label, unseen)
        if twin.scores is not None:
            test_scores[twin.name] = twin.scores
    return TrainingResult(
        model=model,
        protocol=experiment.protocol,
        recipe=experiment.recipe,
        positive=counted_class(n_classes, experiment.positive),
        test=figures("test", parts.test, unseen),
        validation=figures("validation", parts.validation, None),
        train_accuracy=float((predicted["train"] == every[parts.train]).mean()),
        twin_share=float((~unseen).mean()),
        baselines=baselines,
        history=history,
        feature_scores=prepared.feature_scores,
        test_label=label,
        test_scores=test_scores,
        rows={name: len(index) for name, index in vars(parts).items()},
        notes=(*prepared.notes, *_worse_than_smaller(baselines, test_scores, label)),
        baseline_bytes=prepared.baseline_bytes,
    )


def _worse_than_smaller(
    baselines: Mapping[str, Evaluation],
    scores: Mapping[str, NDArray[np.floating]],
    label: NDArray[np.int64],
) -> Iterator[str]:
    """A sentence about each baseline that is right on fewer test rows than a smaller one."""
    if MAJORITY not in baselines:
        return
    least = baselines[MAJORITY].accuracy
    for name in ("float_mlp", BOOSTED, TREE_OF_CUTS):
        if name in baselines and (accuracy := baselines[name].accuracy) < least:
            yield (
                f"baseline {name.replace('_', ' ')} is worse than always saying the most frequent "
                f"class ({percent(accuracy)} of the test rows, {percent(least)})"
            )
    right = {name: of.argmax(axis=1) == label for name, of in scores.items()}
    trees = [f"tree_depth_{depth}" for depth in TREE_DEPTHS]
    best = max(trees, key=lambda name: baselines[name].accuracy)
    if clearly_better(right[best], right[BOOSTED]):
        yield (
            f"baseline {BOOSTED.replace('_', ' ')} is worse than {best.replace('_', ' ')} "
            f"({percent(baselines[BOOSTED].accuracy)} of the test rows, "
            f"{percent(baselines[best].accuracy)})"
        )
