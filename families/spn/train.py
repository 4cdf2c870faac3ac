# SPDX-License-Identifier: Apache-2.0
"""Trains a sum-product network on binned rows: of normal flows, or of each class."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import FlowTable
from n3ic.errors import UsageError
from n3ic.families.spn.fold import fold_spn
from n3ic.families.spn.learn import learn_spn
from n3ic.families.spn.network import SpnModel, bins_of
from n3ic.families.spn.settings import SpnTraining
from n3ic.model.bits import Bits, pack
from n3ic.model.inputs import UINT32_MAX, Field, InputSpec


def bin_fields(table: FlowTable, names: tuple[str, ...], settings: SpnTraining) -> InputSpec:
    """Choose the bins of every feature: between quantiles of the rows, and one beyond all rows.

    Args:
        table: the rows that the network learns from.
        names: features; one without a cut is left out.
        settings: maximum number of cuts of a feature.

    Raises:
        UsageError: no feature has a cut.
    """
    catalogue = {f.name: f for f in table.catalogue}
    fields = []
    for name in names:
        cuts = _cuts(np.clip(table.features[name], 0, UINT32_MAX), settings.leaf_cuts)
        if len(cuts):
            known = catalogue[name]
            fields.append(Field.thermometer(name, cuts, unit=known.unit, scale=known.scale))
    if not fields:
        raise UsageError(f"{table.name}: no feature has a cut, so there is nothing to learn")
    return InputSpec(tuple(fields))


def _cuts(column: NDArray[np.int64], most: int) -> list[int]:
    values = np.unique(column)
    beyond = int(values[-1]) + 1  # values above all rows are a bin of their own: likely anomalies
    if len(values) < most:
        cuts = values[1:]
    else:
        places = np.linspace(0, 1, most + 1)[1:-1]
        cuts = np.unique(np.quantile(column, places, method="higher"))
        cuts = cuts[cuts > values[0]]  # every row reaches the least value: such a cut tells nothing
    return [int(c) for c in cuts if c > 0] + ([beyond] if beyond <= UINT32_MAX else [])


def train_spn(
    bits: Bits,
    label: NDArray[np.int64],
    validation: tuple[Bits, NDArray[np.int64]],
    spec: InputSpec,
    classes: tuple[str, ...],
    settings: SpnTraining,
    *,
    anomaly: int | None,
    seed: int,
    name: str,
    provenance: Mapping[str, str],
    stage: Callable[[str], object],
) -> SpnModel:
    """Learn from training rows, fold, and choose the threshold on validation rows.

    Args:
        bits: input bits of the training rows, bool array of shape ``(rows, n_bits)``.
        label: class of each training row.
        validation: bits and classes of the rows that choose the threshold.
        spec: the input.
        classes: names of the classes.
        settings: how to learn.
        anomaly: index of the class that is not learned: rows that do not fit the other; None to
            learn each class.
        seed: seed of the clustering.
        name: the model's name.
        provenance: facts about its origin.
        stage: called with a description of each stage.

    Raises:
        UsageError: anomaly detection has other than two classes, or the error cannot be kept.
    """
    bins, sizes = bins_of(spec, bits), [f.width + 1 for f in spec.fields]
    order = [anomaly] if anomaly is not None else []
    if anomaly is not None and len(classes) != 2:
        raise UsageError(
            f"anomaly detection needs two classes, got {len(classes)}; "
            "--spn-task classes learns each class"
        )
    learned = [c for c in range(len(classes)) if c not in order]
    networks = []
    for c in learned:
        stage(f"learning a sum-product network of {classes[c]}")
        networks.append(learn_spn(bins[label == c], sizes, settings, seed=seed))
    priors = np.bincount(label, minlength=len(classes))[learned] / len(label)
    names = tuple(classes[c] for c in [*learned, *order])
    model = fold_spn(
        networks, priors.tolist(), spec, names, settings, name=name, provenance=provenance
    )
    if anomaly is not None:
        known = pack(validation[0][validation[1] != anomaly])
        threshold = threshold_for(model.scores(known)[:, 0], settings.false_positives)
        # A score at the threshold is normal. The lowest index wins a tie, so an anomaly that ends
        # up as class 0 needs a threshold one lower.
        model = model.changed(bias=np.array([0, threshold - (anomaly == 0)]))
    if names == classes:
        return model
    back = [names.index(c) for c in classes]  # the order of the table's classes
    return model.changed(
        roots=tuple(model.roots[i] for i in back), bias=model.bias[back], classes=classes
    )


def threshold_for(scores: NDArray[np.int32], false_positives: float) -> int:
    """Choose the largest threshold with at most a share of the scores below it.

    Args:
        scores: scores of normal rows, int32 array of shape ``(rows,)``.
        false_positives: the share.
    """
    ordered = np.sort(scores)
    return int(ordered[min(int(false_positives * len(ordered)), len(ordered) - 1)])
