# SPDX-License-Identifier: Apache-2.0
"""The threshold of a network that shunts: chosen on validation rows, reported on test rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import Split, seen_in_training, split
from n3ic.errors import N3icWarning, UsageError
from n3ic.evaluation.held_out import known_split
from n3ic.evaluation.metrics import Evaluation
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import UINT32_MAX
from n3ic.systems.shunt.points import (
    ShuntPoint,
    TwoStageRows,
    point_for_accuracy,
    point_for_host_load,
    shunt_points,
    stage_figures,
    thresholds_of,
)
from n3ic.systems.shunt.result import ShuntStudy, ThresholdObjective
from n3ic.training.recipe import Recipe
from n3ic.usecases.evaluation import LabelledFlows, labelled_flows
from n3ic.util.markdown import percent


def study_shunting(
    model: str | Path,
    data: str | Path | None = None,
    *,
    dataset: str | None = None,
    task: str = "",
    aim: ThresholdObjective | None = None,
) -> dict[str, ShuntStudy]:
    """Study the shunting of each network of a run, or of a model file.

    The second stage is gradient-boosted trees on a host's features of a flow, fitted to the
    training rows. The data of a network's training are split as in that training.

    Args:
        model: a run folder or a model file.
        data: files of labelled flows; None for the data set's embedded sample.
        dataset: name of the data set that reads them; None for the network's own.
        task: name of one network of a run of several; empty for all.
        aim: the aim of the threshold; None reports on the model's own threshold.

    Returns:
        Studies by task; under an empty name for a single network.

    Raises:
        UsageError: no data set reads the flows, or no threshold reaches the aim.
        DataError: the flows cannot be read, or their classes are not the network's.
        ModelError: the network cannot have that threshold.
        MissingDependencyError: scikit-learn is missing.
        N3icWarning: boosting of the second stage has a fault.
    """
    flows = labelled_flows(model, data, dataset)
    if task:
        if task not in flows:
            known = ", ".join(name for name in flows if name) or "a single one"
            raise UsageError(f"{model}: no network {task!r}; it holds {known}")
        flows = {task: flows[task]}
    return {name: _study(found, aim or ThresholdObjective(), name) for name, found in flows.items()}


def _study(flows: LabelledFlows, aim: ThresholdObjective, task: str) -> ShuntStudy:
    from n3ic.training.input_bits import boosted_trees, fault_of
    from n3ic.training.input_choice import candidates

    table, model = flows.table, flows.model
    own = aim == ThresholdObjective() and model.shunt > 0
    if own:
        aim = ThresholdObjective(margin=model.shunt)
    if aim.margin is not None:
        model.with_shunt(aim.margin)  # an impossible threshold fails before the work
    protocol, seed, trained = known_split(model, table)
    parts = split(table, protocol, seed)
    columns = Recipe("host", "what a host gets of a flow", columns=flows.columns)
    names = candidates(table, columns)
    known, held = (
        ({n: table.features[n][rows] for n in names}, flows.label[rows])
        for rows in (parts.train, parts.validation)
    )
    trees = boosted_trees(*known, held=held, seed=seed)
    if fault_of(trees):
        warnings.warn(fault_of(trees), N3icWarning, stacklevel=2)
    columns_of = np.clip(table.matrix(names), 0, UINT32_MAX)

    def stages(index: NDArray[np.int64]) -> TwoStageRows:
        rows = table.rows(index)
        found = predict(model, model.encode(rows.features))
        host = trees.predict(columns_of[index]).astype(np.int64)
        unseen = ~seen_in_training(table, parts.train, index)
        return TwoStageRows(flows.label[index], found.classes, found.margins, host, unseen)

    validation, test = stages(parts.validation), stages(parts.test)
    thresholds = thresholds_of(validation.margins)
    if aim.margin is not None:
        thresholds = sorted({*thresholds, aim.margin})
    found = shunt_points(validation, thresholds)
    chosen = _chosen(found, aim, task)
    figures: Mapping[str, Evaluation] = {}
    if chosen is not None:
        if not own:
            model = _with_threshold(model, chosen, aim, len(validation.label))
        figures = stage_figures(test, chosen, len(model.classes), flows.positive)
    return ShuntStudy(
        model,
        aim,
        protocol,
        seed,
        trained,
        names,
        _counts(parts),
        found,
        shunt_points(test, thresholds),
        chosen,
        figures,
    )


def _with_threshold(
    model: Classifier, threshold: int, aim: ThresholdObjective, rows: int
) -> Classifier:
    """The network with a threshold, and the threshold's aim in its provenance."""
    known = {k: v for k, v in model.provenance.items() if k != "shunting"}
    if threshold:
        where = "" if aim.margin is not None else f", of {rows:,} validation rows"
        known["shunting"] = f"{aim}{where}"
    return model.changed(shunt=threshold, provenance=known)


def _chosen(points: tuple[ShuntPoint, ...], aim: ThresholdObjective, task: str) -> int | None:
    if aim.margin is not None:
        return aim.margin
    if aim.host_load is not None:
        return point_for_host_load(points, aim.host_load).threshold
    if aim.accuracy is None:
        return None
    found = point_for_accuracy(points, aim.accuracy)
    if found is None:
        accuracies = [(p.accuracy, p.threshold) for p in points if p.accuracy is not None]
        best, threshold = max(accuracies)
        raise UsageError(
            f"{f'{task}: ' if task else ''}no threshold gives an accuracy of "
            f"{percent(aim.accuracy)} on the card: the best on the validation rows is "
            f"{percent(best)}, at a margin of {threshold}"
        )
    return found.threshold


def _counts(parts: Split) -> dict[str, int]:
    return {name: len(index) for name, index in vars(parts).items()}
