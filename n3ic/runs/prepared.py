# SPDX-License-Identifier: Apache-2.0
"""A training's specification and its rows."""

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
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import InputSpec
from n3ic.training.recipe import Recipe

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

    from n3ic.training.baselines import BaselineRows


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything that determines a network and its figures.

    Attributes:
        table: labelled flows.
        recipe: how bits are chosen and how the network is trained.
        protocol: how the rows are split.
        seed: seed of the split, the choice of bits, and the training.
        name: the model's name.
        positive: index of the class whose detection is counted (false positive rate, ROC); None
            for the second of two classes, and for the mean over more than two.
        with_baselines: whether the baselines are trained as well.
        keeps: a model whose input bits are kept; None to choose the bits.
        budget: largest size of the model in bytes, everything counted; 0 for no bound.
        rivals: recipes of other families within the budget; the validation rows choose among them.
    """

    table: FlowTable = field(repr=False)
    recipe: Recipe
    protocol: SplitProtocol = "random"
    seed: int = 0
    name: str = "model"
    positive: int | None = None
    with_baselines: bool = True
    keeps: Classifier | None = field(default=None, repr=False)
    budget: int = 0
    rivals: tuple[Recipe, ...] = field(default=(), repr=False)

    @property
    def provenance(self) -> dict[str, str]:
        """The origin of its models, as their files record it."""
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
    """Split and encoded rows, and results that networks of every shape share.

    Attributes:
        experiment: the experiment.
        parts: the split.
        trees: boosted trees on the training rows; None if nothing needs them.
        spec: the input bits.
        feature_scores: chi-squared statistic of each candidate feature on the training rows.
        bits: input bits of all rows, bool of shape ``(rows, inputs)``.
        train: training rows.
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
