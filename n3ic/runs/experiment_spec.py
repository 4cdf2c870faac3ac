# SPDX-License-Identifier: Apache-2.0
"""A training's specification: the table, the recipe, the split and the seed."""

from __future__ import annotations

from dataclasses import dataclass, field

from n3ic.data.split import SplitProtocol
from n3ic.data.table import FlowTable
from n3ic.data.time_scale import powers
from n3ic.model.classifier import Classifier
from n3ic.training.input_choice import candidates
from n3ic.training.recipe import Recipe


@dataclass(frozen=True)
class SiteBudget:
    """A bound on the LUT sites of the unrolled NetFPGA core with class output.

    Attributes:
        most: largest estimated number of LUT sites.
        cuts: whether the card compares features with cuts, which takes sites, too.
        fixed: names of the given values of the recipe, which stay.
    """

    most: int
    cuts: bool = False
    fixed: tuple[str, ...] = ()


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
        sites: bound on LUT sites, which chooses the size of the recipe and of the rivals; None
            without one.
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
    sites: SiteBudget | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Features that the recipe chooses from, and those of a kept input.

        Raises:
            UsageError: a column of the recipe does not exist.
        """
        input_columns = () if self.keeps is None else self.keeps.input.features
        return tuple(dict.fromkeys((*candidates(self.table, self.recipe), *input_columns)))

    @property
    def augment(self) -> float:
        """The recipe's ``augment``; 1, for no copies, if no column is a time or a rate."""
        scales = self.recipe.augment > 1 and powers(self.table, self.columns)
        return self.recipe.augment if scales else 1.0

    @property
    def provenance(self) -> dict[str, str]:
        """The origin of its models, as their files record it."""
        input_model, most = self.keeps, self.augment
        return {
            "data": self.table.name,
            "data_sha256": self.table.sha256,
            "synthetic": str(self.table.synthetic).lower(),
            "recipe": self.recipe.name,
            "protocol": self.protocol,
            "seed": str(self.seed),
            **({} if most == 1 else {"augment": f"{most:g}"}),
            **(
                {}
                if input_model is None
                else {"input_of": f"{input_model.name} {input_model.digest}"}
            ),
        }
