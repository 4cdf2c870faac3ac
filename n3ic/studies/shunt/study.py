# SPDX-License-Identifier: Apache-2.0
"""The threshold of a network that shunts: chosen on validation rows, reported on test rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import Split, seen_in_training, split
from n3ic.data.table import FlowTable
from n3ic.errors import N3icWarning, UsageError
from n3ic.evaluation.held_out import known_split
from n3ic.evaluation.metrics import Evaluation
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import UINT32_MAX
from n3ic.studies.shunt.guarantee import (
    ClaimRow,
    KindRow,
    at_least,
    claim_row,
    first_threshold,
    threshold_for_accuracy,
    threshold_for_load,
)
from n3ic.studies.shunt.left_out import LeftOutKind, left_out_kinds, threshold_for_kinds
from n3ic.studies.shunt.points import (
    TwoStageRows,
    shunt_points,
    stage_figures,
    thresholds_of,
)
from n3ic.studies.shunt.result import ShuntStudy, ThresholdObjective
from n3ic.training.recipe import Recipe
from n3ic.usecases.config import recipe_of
from n3ic.usecases.evaluation import LabelledFlows, labelled_flows
from n3ic.util.markdown import percent

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier


def study_shunting(
    model: str | Path,
    data: str | Path | None = None,
    *,
    dataset: str | None = None,
    task: str = "",
    aim: ThresholdObjective | None = None,
    other_rows: str | Path | None = None,
) -> dict[str, ShuntStudy]:
    """Study the shunting of each network of a run, or of a model file.

    The second stage is gradient-boosted trees, fitted to the training rows on the flow features
    that a host has. If the network was trained on these flows, they are split as in that training.

    Args:
        model: a run folder or a model file.
        data: files of labelled flows; None for the data set's embedded sample.
        dataset: name of the data set that reads them; None for the network's own.
        task: name of one network of a run of several; empty for all.
        aim: the aim of the threshold; None reports on the model's own threshold.
        other_rows: files of further labelled flows on which to show the threshold.

    Returns:
        Studies by task; a single network has the empty name.

    Raises:
        UsageError: no data set reads the flows, or no threshold reaches the aim.
        DataError: the flows cannot be read, or their classes are not the network's.
        ModelError: the network does not allow that threshold.
        MissingDependencyError: scikit-learn is missing.
        N3icWarning: the boosting library of the second stage is faulty.
    """
    flows = labelled_flows(model, data, dataset)
    if task:
        if task not in flows:
            known = ", ".join(name for name in flows if name) or "a single one"
            raise UsageError(f"{model}: no network {task!r}; it holds {known}")
        flows = {task: flows[task]}
    other_flows = labelled_flows(model, other_rows, dataset) if other_rows is not None else {}
    where = "" if other_rows is None else Path(other_rows).name
    return {
        name: _study(
            Path(model),
            network_flows,
            aim or ThresholdObjective(),
            name,
            other_flows.get(name),
            where,
        )
        for name, network_flows in flows.items()
    }


def _study(
    run: Path,
    flows: LabelledFlows,
    aim: ThresholdObjective,
    task: str,
    other_flows: LabelledFlows | None,
    where: str,
) -> ShuntStudy:
    table, model = flows.table, flows.model
    own = aim == ThresholdObjective() and model.shunt > 0
    if own:
        aim = ThresholdObjective(margin=model.shunt)
    if aim.margin is not None:
        model.with_shunt(aim.margin)  # an impossible threshold fails before the work
    protocol, seed, trained = known_split(model, table)
    parts = split(table, protocol, seed)
    trees, names = second_stage_trees(flows, parts, seed)
    columns_of = np.clip(table.matrix(names), 0, UINT32_MAX)

    def stages(index: NDArray[np.int64]) -> TwoStageRows:
        rows = table.rows(index)
        inference = predict(model, model.encode(rows.features))
        host = trees.predict(columns_of[index]).astype(np.int64)
        unseen = ~seen_in_training(table, parts.train, index)
        return TwoStageRows(flows.label[index], inference.classes, inference.margins, host, unseen)

    validation, test = stages(parts.validation), stages(parts.test)
    thresholds = thresholds_of(validation.margins)
    if aim.margin is not None:
        thresholds = sorted({*thresholds, aim.margin})
    left_out: tuple[LeftOutKind, ...] = ()
    if aim.left_out is None:
        chosen = _chosen(flows, parts, validation, aim, task)
    else:
        recipe = recipe_of(run, len(model.classes))
        left_out = left_out_kinds(flows, recipe, protocol, seed, aim.times)
        chosen = threshold_for_kinds(left_out, aim.left_out, aim.confidence)
    figures: Mapping[str, Evaluation] = {}
    claims: list[ClaimRow] = []
    kinds: tuple[KindRow, ...] = ()
    if chosen is not None:
        thresholds = sorted({*thresholds, chosen})
        if not own:
            rows = validation.unseen.sum() if aim.accuracy is not None else len(validation.label)
            by = f"{len(left_out)} kinds" if left_out else f"{int(rows):,} validation rows"
            model = _with_threshold(model, chosen, aim, by)
        figures = stage_figures(test, chosen, len(model.classes), flows.positive)
        claims = [
            *_claims("validation", validation, chosen),
            *_claims("test", test, chosen),
        ]
        kinds = _kinds(table.rows(parts.test), test, chosen)
        if other_flows is not None:
            claims += _claims(where, _other_rows(flows, parts.train, other_flows), chosen)
    return ShuntStudy(
        model,
        aim,
        protocol,
        seed,
        trained,
        names,
        _counts(parts),
        shunt_points(validation, thresholds),
        shunt_points(test, thresholds),
        chosen,
        figures,
        tuple(claims),
        kinds,
        left_out,
    )


def second_stage_trees(
    flows: LabelledFlows, parts: Split, seed: int
) -> tuple[HistGradientBoostingClassifier, tuple[str, ...]]:
    """Fit boosted trees to the training rows, on what a host gets of a flow.

    Returns:
        The trees, and the features that they read, in their order.

    Raises:
        MissingDependencyError: scikit-learn is missing.

    Warns:
        N3icWarning: the installed version of boosting has a fault.
    """
    from n3ic.training.input_bits import boosted_trees, fault_of
    from n3ic.training.input_choice import candidates

    columns = Recipe("host", "what a host gets of a flow", columns=flows.columns)
    names = candidates(flows.table, columns)
    known, unseen_rows = (
        ({n: flows.table.features[n][rows] for n in names}, flows.label[rows])
        for rows in (parts.train, parts.validation)
    )
    trees = boosted_trees(*known, held=unseen_rows, seed=seed)
    if fault_of(trees):
        warnings.warn(fault_of(trees), N3icWarning, stacklevel=2)
    return trees, names


def _claims(name: str, rows: TwoStageRows, threshold: int) -> tuple[ClaimRow, ClaimRow]:
    """Count the card's decisions on all rows, and on those that duplicate no training row."""
    right, unseen = rows.card == rows.label, rows.unseen
    new = f"{name}, deduplicated"
    return (
        claim_row(name, right, rows.margins, threshold),
        claim_row(new, right[unseen], rows.margins[unseen], threshold),
    )


def _kinds(table: FlowTable, rows: TwoStageRows, threshold: int) -> tuple[KindRow, ...]:
    """Count the card's verdicts by class and category, the kinds with fewest right ones first."""
    kind = np.full(len(table), "") if table.category is None else table.category
    decided = rows.margins >= threshold
    out = []
    for index in np.unique(rows.label).tolist():
        of_class = rows.label == index
        for name in np.unique(kind[of_class]).tolist():
            of = of_class & (kind == name)
            right = int((of & decided & (rows.card == index)).sum())
            wrong = int((of & decided & (rows.card != index)).sum())
            out.append(KindRow(table.classes[index], str(name), int(of.sum()), right, wrong))
    return tuple(sorted(out, key=lambda row: (row.right / row.flows, -row.flows)))


def _other_rows(
    flows: LabelledFlows, train: NDArray[np.int64], other_flows: LabelledFlows
) -> TwoStageRows:
    """Return rows of other files; the second stage is not run, and the card's classes stand in."""
    table = other_flows.table
    inference = predict(other_flows.model, other_flows.model.encode(table.features))
    index = np.arange(len(table), dtype=np.int64)
    joined = _joined(flows.table.rows(train), table)
    known = np.arange(len(train), dtype=np.int64)
    unseen = ~seen_in_training(joined, known, len(train) + index)
    classes = inference.classes.astype(np.int64)
    return TwoStageRows(other_flows.label, classes, inference.margins, classes, unseen)


def _joined(table: FlowTable, other: FlowTable) -> FlowTable:
    """Concatenate two tables' rows over their shared features, to look for duplicates."""
    shared = [f for f in table.catalogue if f.name in table.features and f.name in other.features]
    features = {
        f.name: np.concatenate([table.features[f.name], other.features[f.name]]) for f in shared
    }
    label = np.zeros(len(table) + len(other), dtype=np.int64)
    return FlowTable(
        table.name, features, tuple(shared), label, table.classes, table.synthetic, table.sha256
    )


def _with_threshold(
    model: Classifier, threshold: int, aim: ThresholdObjective, by: str
) -> Classifier:
    """Return the network with a threshold, and with the threshold's aim in its provenance."""
    known = {k: v for k, v in model.provenance.items() if k != "shunting"}
    if threshold:
        where = "" if aim.margin is not None else f", by {by}"
        known["shunting"] = f"{aim}{where}"
    return model.changed(shunt=threshold, provenance=known)


def _chosen(
    flows: LabelledFlows, parts: Split, rows: TwoStageRows, aim: ThresholdObjective, task: str
) -> int | None:
    if aim.margin is not None:
        return aim.margin
    if aim.host_load is not None:
        return threshold_for_load(rows.margins, aim.host_load, aim.confidence)
    if aim.accuracy is None:
        return None
    # Rows that duplicate a training row would only test what the network memorized.
    right, margins = (rows.card == rows.label)[rows.unseen], rows.margins[rows.unseen]
    first = first_threshold(
        _other_margins(flows, parts.train), len(margins), aim.accuracy, aim.confidence
    )
    threshold = threshold_for_accuracy(right, margins, aim.accuracy, aim.confidence, first)
    if threshold is None:
        tested = claim_row("", right, margins, first)
        bound = float(at_least(tested.right, tested.decided, aim.confidence))
        raise UsageError(
            f"{f'{task}: ' if task else ''}no threshold gives {aim}: where the test begins, at a "
            f"margin of {first}, {tested.decided:,} decided validation rows that duplicate no "
            f"training row show {percent(bound)} at least; ask for less, or give more flows"
        )
    return threshold


def _other_margins(flows: LabelledFlows, train: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return margins of training rows, which choose where the tests begin and are never tested.

    Only rows of one half that duplicate no row of the other half count, because the tested rows
    duplicate no training row either.
    """
    half = train[1::2]
    new = half[~seen_in_training(flows.table, train[::2], half)]
    rows = flows.table.rows(new if len(new) else train)
    return predict(flows.model, flows.model.encode(rows.features)).margins


def _counts(parts: Split) -> dict[str, int]:
    return {name: len(index) for name, index in vars(parts).items()}
