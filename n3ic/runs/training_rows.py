# SPDX-License-Identifier: Apache-2.0
"""A training's rows: split and encoded, with what networks of every shape share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import Split
from n3ic.data.table import FlowTable
from n3ic.evaluation.metrics import Evaluation
from n3ic.model.bits import Bits
from n3ic.model.inputs import InputSpec
from n3ic.runs.experiment_spec import Experiment

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

    from n3ic.training.baselines import BaselineRows


@dataclass(frozen=True, eq=False)
class Prepared:
    """Split and encoded rows, and results that networks of every shape share.

    Attributes:
        experiment: the experiment.
        parts: the split.
        trees: boosted trees on the training rows; None if nothing needs them.
        spec: the input bits.
        feature_scores: chi-squared statistic of each candidate feature on the training rows.
        training_table: the training rows as a table, with the copies that ``augment`` adds.
        bits: input bits of all rows, bool of shape ``(rows, inputs)``.
        train: the same rows, encoded.
        validation: validation rows.
        test: test rows, which are used once.
        unseen: whether each test row equals no training row, bool of shape ``(rows,)``.
        teacher: class probabilities of the training rows from boosted trees, float64 of shape
            ``(rows, classes)``; None without distillation, or if the trees have a fault.
        baselines: figures of the baselines without a shape.
        baseline_scores: their scores on the test rows, if they have any.
        baseline_bytes: bytes of the packed baselines, as a card would store them.
        notes: remarks on the boosted trees, as sentences.
    """

    experiment: Experiment
    parts: Split
    trees: HistGradientBoostingClassifier | None = field(repr=False)
    spec: InputSpec
    feature_scores: Mapping[str, float]
    training_table: FlowTable = field(repr=False)
    bits: Bits = field(repr=False)
    train: BaselineRows = field(repr=False)
    validation: BaselineRows = field(repr=False)
    test: BaselineRows = field(repr=False)
    unseen: NDArray[np.bool_] = field(repr=False)
    teacher: NDArray[np.float64] | None = field(repr=False)
    baselines: Mapping[str, Evaluation]
    baseline_scores: Mapping[str, NDArray[np.float64]] = field(repr=False)
    baseline_bytes: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
