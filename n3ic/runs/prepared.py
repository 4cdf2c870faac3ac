# SPDX-License-Identifier: Apache-2.0
"""What is asked of a training, and the rows that it is done on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import Split, SplitProtocol
from n3ic.data.table import FlowTable
from n3ic.evaluation.metrics import Evaluation
from n3ic.model.bits import Bits
from n3ic.model.inputs import InputSpec
from n3ic.model.network import BinaryModel
from n3ic.training.recipe import Recipe

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

    from n3ic.training.baselines import BaselineRows


@dataclass(frozen=True, eq=False)
class Experiment:
    """What decides a network and its figures.

    Attributes:
        table: labelled flows.
        recipe: how bits are chosen and how the network is trained.
        protocol: how the rows are split.
        seed: of the split, the choice of bits, and the training.
        name: the model's name.
        positive: index of the class whose detection is counted (false positive rate, ROC); the
            second of two classes where None, and the mean over more than two.
        with_baselines: whether the baselines are trained, too.
        keeps: a network whose input bits are taken instead of chosen; None for none.
    """

    table: FlowTable = field(repr=False)
    recipe: Recipe
    protocol: SplitProtocol = "random"
    seed: int = 0
    name: str = "model"
    positive: int | None = None
    with_baselines: bool = True
    keeps: BinaryModel | None = field(default=None, repr=False)

    @property
    def provenance(self) -> dict[str, str]:
        """Where its models come from, as their files say it."""
        kept = self.keeps
        return {
            "data": self.table.name,
            "data_sha256": self.table.sha256,
            "synthetic": str(self.table.synthetic).lower(),
            "recipe": self.recipe.name,
            "protocol": self.protocol,
            "seed": str(self.seed),
        } | ({} if kept is None else {"input_of": f"{kept.name} {kept.digest}"})


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows split and encoded, and what networks of every shape on them share.

    Attributes:
        experiment: what was asked for.
        parts: the split.
        trees: boosted trees on the training rows; None where nothing needs them.
        spec: the input bits.
        feature_scores: chi-squared statistic of each candidate feature on the training rows.
        bits: of all rows, bool of shape ``(rows, inputs)``.
        train: rows to train on.
        validation: rows to choose with.
        test: rows to evaluate on once.
        unseen: of each test row, whether no training row is equal to it: bool of shape ``(rows,)``.
        teacher: class probabilities of the training rows from boosted trees; None where the
            recipe distils from none, or the trees have a fault.
        baselines: figures of the baselines that have no shape.
        baseline_scores: their scores on the test rows, of those that have scores.
        notes: what is to be said of the boosted trees, as sentences.
    """

    experiment: Experiment
    parts: Split
    trees: HistGradientBoostingClassifier | None = field(repr=False)
    spec: InputSpec
    feature_scores: Mapping[str, float]
    bits: Bits = field(repr=False)
    train: BaselineRows = field(repr=False)
    validation: BaselineRows = field(repr=False)
    test: BaselineRows = field(repr=False)
    unseen: NDArray[np.bool_] = field(repr=False)
    teacher: NDArray[np.float64] | None = field(repr=False)
    baselines: Mapping[str, Evaluation]
    baseline_scores: Mapping[str, NDArray[np.float64]] = field(repr=False)
    notes: tuple[str, ...] = ()
