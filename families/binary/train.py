# SPDX-License-Identifier: Apache-2.0
"""Trains a binary network by gradient, as prototypes or as trees, and polishes it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.families.binary.class_imbalance import class_weights
from n3ic.families.binary.sizing import fitted
from n3ic.model.bits import pack
from n3ic.model.network import BinaryModel
from n3ic.runs.learner import Candidate, Learned
from n3ic.runs.model_selection import candidate
from n3ic.runs.preparation import on_bits
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.training_rows import Prepared
from n3ic.training.recipe import Training
from n3ic.util.signals import held

if TYPE_CHECKING:
    from n3ic.training.loop import Epoch

_NETWORK, _TREE = "binary network", "tree as a binary network"
_FOREST_NAME = "voting trees"


def train_binary(prepared: Prepared, progress: TrainingProgress) -> Learned:
    """Train the network of a recipe, or a tree that is better and fits.

    Args:
        prepared: rows, and their experiment.
        progress: receives stages and figures of the training.
    """
    experiment = prepared.experiment
    if experiment.budget:
        recipe = fitted(
            experiment.recipe,
            experiment.budget,
            len(experiment.table.classes),
            prepared.spec.memory_bytes,
        )
        experiment = replace(experiment, recipe=recipe)
        prepared = replace(prepared, experiment=experiment)
    history: tuple[Epoch, ...] = ()
    name = _NETWORK
    if experiment.recipe.training.method == "trees":
        model, name = _forest(prepared, progress), _FOREST_NAME
    elif experiment.recipe.training.method == "prototypes":
        model = _polished(_prototypes(prepared, progress), prepared, progress)
    else:
        model, history = _gradient(prepared, progress)
    candidates_tried: tuple[Candidate, ...] = ()
    tree_result = None
    if experiment.recipe.tree_bytes and experiment.keeps is None:
        tree_result = _tree(model, prepared, progress)
    if tree_result is not None:
        tree, better = tree_result
        if better:
            candidates_tried = (candidate(name, model, prepared),)
            model, prepared = tree, on_bits(prepared, tree.input, progress.stage)
            history, name = (), _TREE
        elif experiment.budget:
            on_tree = on_bits(prepared, tree.input, progress.stage)
            candidates_tried = (candidate(_TREE, tree, on_tree),)
    return Learned(model, prepared, history, name, candidates_tried)


def _weights(prepared: Prepared) -> NDArray[np.float64] | None:
    """Compute the weight of a row of each class."""
    experiment = prepared.experiment
    weighting = experiment.recipe.training.class_weight
    return class_weights(weighting, tuple(experiment.table.classes), prepared.train.label)


def _forest(prepared: Prepared, progress: TrainingProgress) -> BinaryModel:
    """Grow a network whose neurons are the leaves and answers of decision trees."""
    from n3ic.families.binary.forest import train_forest

    experiment, rows = prepared.experiment, prepared.train
    progress.stage("growing decision trees")
    return train_forest(
        rows.bits,
        rows.label,
        prepared.spec.with_rates(rows.bits),
        experiment.table.classes,
        _training_settings(prepared),
        seed=experiment.seed,
        teacher=prepared.teacher,
        class_weight=_weights(prepared),
        name=experiment.name,
        provenance=experiment.provenance,
    )


def _tree(
    model: BinaryModel, prepared: Prepared, progress: TrainingProgress
) -> tuple[BinaryModel, bool] | None:
    """Grow a tree with as many cuts as a network, or of as many bytes, and write it as a network.

    Returns:
        The tree, and whether it is better than the network; None if it does not fit.
    """
    from sklearn.tree import DecisionTreeClassifier

    from n3ic.families.binary.forest import tree_network
    from n3ic.families.binary.packed_trees import most_leaves
    from n3ic.training.baselines import best_first_tree
    from n3ic.training.input_choice import candidates

    experiment, rows, validation = prepared.experiment, prepared.train, prepared.validation
    most, names = experiment.recipe.tree_bytes, candidates(experiment.table, experiment.recipe)
    weights = _weights(prepared)
    weight = None if weights is None else weights[rows.label]
    if experiment.budget:
        progress.stage("growing a tree of as many bytes")
        estimator = DecisionTreeClassifier(
            max_leaf_nodes=max(2, most), random_state=experiment.seed
        )
        estimator.fit(rows.columns, rows.label, weight)
    else:
        progress.stage("growing a tree of as many cuts")
        estimator = best_first_tree(
            rows.columns, rows.label, prepared.spec.n_cuts, experiment.seed, weight
        )

    def network(leaves: int) -> BinaryModel | None:
        return tree_network(
            estimator,
            names,
            experiment.table.classes,
            n_leaves=leaves,
            catalogue={f.name: f for f in experiment.table.catalogue},
            name=experiment.name,
            provenance=experiment.provenance | {"weights": "a decision tree's"},
        )

    def fits(leaves: int) -> bool:
        packed = network(leaves)
        return packed is None or packed.total_bytes <= most

    whole = int(estimator.get_n_leaves())
    tree = network(most_leaves(min(whole, most), fits) if experiment.budget else whole)
    if tree is None or tree.total_bytes > most:
        return None
    bits, parts = tree.input.encode(experiment.table.features), prepared.parts
    counts = np.ones(len(validation.label)) if weights is None else weights[validation.label]
    network_right, trees = (
        round(
            float(counts @ (m.scores(pack(x[parts.validation])).argmax(axis=1) == validation.label))
        )
        for m, x in ((model, prepared.bits), (tree, bits))
    )
    if trees > network_right:
        progress.stage(
            f"keeping the tree: right on {trees} validation rows, the network on {network_right}"
        )
    return tree.changed(input=tree.input.with_rates(bits[parts.train])), trees > network_right


def _gradient(
    prepared: Prepared, progress: TrainingProgress
) -> tuple[BinaryModel, tuple[Epoch, ...]]:
    """Train a network by gradient, fold and polish it; return the figures of its epochs too."""
    with held():  # a signal within PyTorch's import would end the process in C++
        from n3ic.families.binary.fit import fit_network
    from n3ic.families.binary.fold import check_fold, fold

    experiment, rows, validation_rows = prepared.experiment, prepared.train, prepared.validation
    training = _training_settings(prepared)
    progress.stage("training the binary network")
    trained = fit_network(
        rows.bits,
        rows.label,
        len(experiment.table.classes),
        training,
        seed=experiment.seed,
        validation=(validation_rows.bits, validation_rows.label),
        teacher=prepared.teacher,
        class_weight=_weights(prepared),
        progress=progress.epoch,
    )
    model = fold(
        trained.network,
        prepared.spec.with_rates(rows.bits),
        experiment.table.classes,
        name=experiment.name,
        provenance=experiment.provenance,
    )
    progress.stage("comparing the folded network with the trained one")
    check_fold(trained.network, model, prepared.bits)
    return _polished(model, prepared, progress), trained.history


def _training_settings(prepared: Prepared) -> Training:
    """Drop distillation from the settings if the experiment has no teacher."""
    training = prepared.experiment.recipe.training
    return training if prepared.teacher is not None else replace(training, distill=0.0)


def _prototypes(prepared: Prepared, progress: TrainingProgress) -> BinaryModel:
    """Choose a network whose neurons are prototypes, one by one."""
    from n3ic.families.binary.prototypes import prototype_network

    experiment, rows = prepared.experiment, prepared.train
    progress.stage("choosing prototypes")
    return prototype_network(
        rows.bits,
        rows.label,
        prepared.spec.with_rates(rows.bits),
        experiment.table.classes,
        experiment.recipe.training.hidden[0],
        class_weight=_weights(prepared),
        name=experiment.name,
        provenance=experiment.provenance,
    )


def _polished(model: BinaryModel, prepared: Prepared, progress: TrainingProgress) -> BinaryModel:
    """Polish a network for the recipe's number of rounds."""
    training = prepared.experiment.recipe.training
    if not training.polish:
        return model
    from n3ic.families.binary.polish import polish

    progress.stage("polishing the integer network")
    rows = prepared.train
    return polish(
        model,
        pack(rows.bits),
        rows.label,
        rounds=training.polish,
        q=training.bounded_by,
        class_weight=_weights(prepared),
        seed=prepared.experiment.seed,
    )
