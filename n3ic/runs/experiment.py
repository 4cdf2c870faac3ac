"""From a table to a proven integer network, with its figures beside its baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import SplitProtocol
from n3ic.evaluation.metrics import Evaluation, counted_class, evaluate
from n3ic.model.bits import pack
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel
from n3ic.model.spn import SpnModel
from n3ic.model.spn.network import CONSTANT
from n3ic.runs.preparation import (
    Experiment,
    Prepared,
    anomaly_of,
    baseline_figures,
    on_bits,
    prepare,
)
from n3ic.runs.progress import TrainingProgress
from n3ic.training.baselines import TREE_OF_CUTS
from n3ic.training.recipe import Recipe, Training
from n3ic.util.markdown import percent

if TYPE_CHECKING:
    from n3ic.training.baselines import Prediction
    from n3ic.training.loop import Epoch


@dataclass(frozen=True, eq=False)
class Result:
    """A trained network and what it does on the test rows.

    Attributes:
        model: the integer model.
        protocol: how the rows were split.
        recipe: how the network was trained.
        positive: index of the class whose detection is counted; None for the mean over classes.
        test: figures on the test rows.
        validation: figures on the rows that chose the epoch.
        train_accuracy: accuracy on the training rows.
        twin_share: share of the test rows that are equal to some training row.
        baselines: figures of each baseline on the test rows.
        history: figures of each epoch.
        feature_scores: chi-squared statistic of each candidate feature on the training rows.
        test_label: true class of each test row.
        test_scores: scores of the network (``model``) and of the baselines on the test rows.
        rows: number of training, validation and test rows.
        notes: what is to be said of the baselines, as sentences.
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

    @property
    def no_better_than(self) -> str:
        """The most frequent class, where saying it of all test rows is as good; else empty.

        Empty for a model that learned no class but what is normal.
        """
        if isinstance(self.model, SpnModel) and CONSTANT in self.model.roots:
            return ""
        counts = np.bincount(self.test_label, minlength=len(self.model.classes))
        share = counts.max() / max(1, counts.sum())
        return self.model.classes[counts.argmax()] if self.test.accuracy <= share else ""


def train(experiment: Experiment, progress: TrainingProgress | None = None) -> Result:
    """Train on a table and evaluate once on its test rows.

    Args:
        experiment: what decides the network and its figures.
        progress: what is told meanwhile.

    Raises:
        DataError: the table cannot be split that way.
        UsageError: the recipe does not fit the table.
    """
    (result,) = train_shapes(experiment, [experiment.recipe.training.hidden], progress)
    return result


def train_shapes(
    experiment: Experiment,
    shapes: Sequence[tuple[int, ...]],
    progress: TrainingProgress | None = None,
) -> Iterator[Result]:
    """Train networks of several shapes on the same rows, one after the other.

    Rows, input bits and the baselines that have no shape are shared, so that this takes less
    than :func:`train` for each; the results are the same. ``weighted`` bits are chosen for a
    shape: with them, the rows and the boosted trees alone are shared. Of several shapes, none
    gives way to a tree.

    Args:
        experiment: everything else that decides the networks.
        shapes: neurons of the hidden layers of each network.
        progress: what is told meanwhile.

    Raises:
        DataError: the table cannot be split that way.
        UsageError: the recipe does not fit the table.
    """
    progress = progress or TrainingProgress()
    prepared: Prepared | None = None
    for hidden in shapes:
        own = experiment.recipe.with_options({"hidden": tuple(hidden)})
        if len(shapes) > 1:
            own = replace(own, tree_bytes=0)
        this = replace(experiment, recipe=own)
        for_shape = own.encoding == "weighted" and this.keeps is None
        if prepared is None or for_shape:
            prepared = prepare(this, progress.stage, prepared.trees if prepared else None)
        yield train_prepared(replace(prepared, experiment=this), progress)


def train_prepared(prepared: Prepared, progress: TrainingProgress) -> Result:
    """Train on rows that are split and encoded already, and evaluate once on the test rows.

    Args:
        prepared: rows, and the experiment that they are for.
        progress: what is told meanwhile.
    """
    from n3ic.training.baselines import float_mlp

    this, rows = prepared.experiment, prepared.train
    training, table = this.recipe.training, this.table
    history: tuple[Epoch, ...] = ()
    model: Classifier
    if this.recipe.family == "spn":
        model = _sum_product(prepared, progress)
    elif training.method == "trees":
        model = _forest(prepared, progress)
    elif training.method == "prototypes":
        model = _polished(_prototypes(prepared, progress), prepared, progress)
    else:
        model, history = _gradient(prepared, progress)
    if this.recipe.tree_bytes and this.keeps is None and isinstance(model, BinaryModel):
        tree = _better_tree(model, prepared, progress)
        if tree is not None:
            model, history = tree, ()
            prepared = on_bits(prepared, tree.input, progress.stage)
            rows = prepared.train
    if table.meter is not None and set(model.input.features) <= set(table.meter.feature_names):
        model = model.changed(meter=table.meter)
    if table.rules is not None:
        model = model.changed(table=table.rules.only(model.input.features))
    mlp = None
    if this.with_baselines and this.recipe.family == "binary":
        progress.stage("baseline: float_mlp")
        n_classes = len(table.classes)
        mlp = float_mlp(
            rows, prepared.validation, prepared.test, n_classes, training.hidden, this.seed
        )
    return _result(prepared, model, history, mlp)


def _sum_product(prepared: Prepared, progress: TrainingProgress) -> SpnModel:
    """A sum-product network of what is normal, or of each class."""
    from n3ic.training.spn.train import train_spn

    this, rows, held = prepared.experiment, prepared.train, prepared.validation
    return train_spn(
        rows.bits,
        rows.label,
        (held.bits, held.label),
        prepared.spec.with_rates(rows.bits),
        tuple(this.table.classes),
        this.recipe.spn,
        anomaly=anomaly_of(this),
        seed=this.seed,
        name=this.name,
        provenance=_provenance(this),
        stage=progress.stage,
    )


def _forest(prepared: Prepared, progress: TrainingProgress) -> BinaryModel:
    """A network whose neurons are the leaves and answers of decision trees."""
    from n3ic.training.forest import train_forest

    this, rows = prepared.experiment, prepared.train
    progress.stage("growing decision trees")
    return train_forest(
        rows.bits,
        rows.label,
        prepared.spec.with_rates(rows.bits),
        this.table.classes,
        _taught(prepared),
        seed=this.seed,
        teacher=prepared.teacher,
        name=this.name,
        provenance=_provenance(this),
    )


def _better_tree(
    model: BinaryModel, prepared: Prepared, progress: TrainingProgress
) -> BinaryModel | None:
    """The tree of as many cuts as a network, where it is right on more validation rows and fits."""
    from n3ic.training.baselines import best_first_tree
    from n3ic.training.forest import tree_network
    from n3ic.training.input_choice import candidates

    this, rows, held = prepared.experiment, prepared.train, prepared.validation
    progress.stage("growing a tree of as many cuts")
    grown = best_first_tree(rows.columns, rows.label, prepared.spec.n_cuts, this.seed)
    tree = tree_network(
        grown,
        candidates(this.table, this.recipe),
        this.table.classes,
        catalogue={f.name: f for f in this.table.catalogue},
        name=this.name,
        provenance=_provenance(this) | {"weights": "a decision tree's"},
    )
    if tree is None or tree.weight_bytes + tree.mask_bytes > this.recipe.tree_bytes:
        return None
    bits, parts = tree.input.encode(this.table.features), prepared.parts
    mine, trees = (
        int((m.scores(pack(x[parts.validation])).argmax(axis=1) == held.label).sum())
        for m, x in ((model, prepared.bits), (tree, bits))
    )
    if trees <= mine:
        return None
    progress.stage(f"keeping the tree: right on {trees} validation rows, the network on {mine}")
    return tree.changed(input=tree.input.with_rates(bits[parts.train]))


def _gradient(
    prepared: Prepared, progress: TrainingProgress
) -> tuple[BinaryModel, tuple[Epoch, ...]]:
    """A network trained by gradient, folded and polished, and the figures of its epochs."""
    from n3ic.training.fit import fit_network
    from n3ic.training.fold import check_fold, fold

    this, rows, held = prepared.experiment, prepared.train, prepared.validation
    training = _taught(prepared)
    progress.stage("training the binary network")
    trained = fit_network(
        rows.bits,
        rows.label,
        len(this.table.classes),
        training,
        seed=this.seed,
        validation=(held.bits, held.label),
        teacher=prepared.teacher,
        progress=progress.epoch,
    )
    model = fold(
        trained.network,
        prepared.spec.with_rates(rows.bits),
        this.table.classes,
        name=this.name,
        provenance=_provenance(this),
    )
    progress.stage("comparing the folded network with the trained one")
    check_fold(trained.network, model, prepared.bits)
    return _polished(model, prepared, progress), trained.history


def _taught(prepared: Prepared) -> Training:
    """How the network is trained; from the labels alone where there is no teacher."""
    training = prepared.experiment.recipe.training
    return training if prepared.teacher is not None else replace(training, distill=0.0)


def _prototypes(prepared: Prepared, progress: TrainingProgress) -> BinaryModel:
    """A network whose neurons are prototypes, chosen one by one."""
    from n3ic.training.prototypes import prototype_network

    this, rows = prepared.experiment, prepared.train
    progress.stage("choosing prototypes")
    return prototype_network(
        rows.bits,
        rows.label,
        prepared.spec.with_rates(rows.bits),
        this.table.classes,
        this.recipe.training.hidden[0],
        name=this.name,
        provenance=_provenance(this),
    )


def _polished(model: BinaryModel, prepared: Prepared, progress: TrainingProgress) -> BinaryModel:
    """The network after the recipe's rounds of polishing."""
    training = prepared.experiment.recipe.training
    if not training.polish:
        return model
    from n3ic.training.polish import polish

    progress.stage("polishing the integer network")
    rows = prepared.train
    return polish(
        model,
        pack(rows.bits),
        rows.label,
        rounds=training.polish,
        q=training.bounded_by,
        seed=prepared.experiment.seed,
    )


def _provenance(experiment: Experiment) -> dict[str, str]:
    kept = experiment.keeps
    return {
        "data": experiment.table.name,
        "data_sha256": experiment.table.sha256,
        "synthetic": str(experiment.table.synthetic).lower(),
        "recipe": experiment.recipe.name,
        "protocol": experiment.protocol,
        "seed": str(experiment.seed),
    } | ({} if kept is None else {"input_of": f"{kept.name} {kept.digest}"})


def _result(
    prepared: Prepared,
    model: Classifier,
    history: tuple[Epoch, ...],
    mlp: Prediction | None,
) -> Result:
    this, parts, bits, unseen = (
        prepared.experiment,
        prepared.parts,
        prepared.bits,
        prepared.unseen,
    )
    n_classes, every = len(this.table.classes), this.table.label
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
            positive=this.positive,
        )

    kept = {"model": scores["test"]} | dict(prepared.baseline_scores)
    baselines = dict(prepared.baselines)
    if mlp is not None:
        baselines[mlp.name] = baseline_figures(this, mlp, label, unseen)
        if mlp.scores is not None:
            kept[mlp.name] = mlp.scores
    return Result(
        model=model,
        protocol=this.protocol,
        recipe=this.recipe,
        positive=counted_class(n_classes, this.positive),
        test=figures("test", parts.test, unseen),
        validation=figures("validation", parts.validation, None),
        train_accuracy=float((predicted["train"] == every[parts.train]).mean()),
        twin_share=float((~unseen).mean()),
        baselines=baselines,
        history=history,
        feature_scores=prepared.feature_scores,
        test_label=label,
        test_scores=kept,
        rows={name: len(index) for name, index in vars(parts).items()},
        notes=(*prepared.notes, *_worse_than_majority(baselines)),
    )


def _worse_than_majority(baselines: Mapping[str, Evaluation]) -> Iterator[str]:
    """A sentence on each classifier that is right on fewer test rows than the majority class."""
    if "majority" not in baselines:
        return
    least = baselines["majority"].accuracy
    for name in ("float_mlp", "hist_gradient_boosting", TREE_OF_CUTS):
        if name in baselines and (found := baselines[name].accuracy) < least:
            yield (
                f"baseline {name.replace('_', ' ')} is worse than always saying the most frequent "
                f"class ({percent(found)} of the test rows, {percent(least)})"
            )
