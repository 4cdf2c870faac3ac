# SPDX-License-Identifier: Apache-2.0
"""The learner of boosted trees."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic.errors import UsageError
from n3ic.families.trees.settings import TreesTraining
from n3ic.runs.learner import Learned, Learner

if TYPE_CHECKING:
    from collections.abc import Collection

    from n3ic.data.table import FlowTable
    from n3ic.model.inputs import InputSpec
    from n3ic.runs.experiment_spec import Experiment
    from n3ic.runs.progress import TrainingProgress
    from n3ic.runs.training_rows import Prepared
    from n3ic.training.recipe import Recipe


class TreesLearner(Learner):
    """Grows boosted trees that share few cuts, and rounds their leaves."""

    name: ClassVar[str] = "trees"
    summary: ClassVar[str] = "boosted decision trees of few leaves that share their cuts"
    settings: ClassVar[type] = TreesTraining
    budgeted: ClassVar[bool] = True

    def within(self, recipe: Recipe, fixed: Collection[str], budget: int, n_classes: int) -> Recipe:
        """Return a recipe whose trees take at most a number of bytes in total.

        Raises:
            UsageError: no tree fits, or rows are weighed.
        """
        from n3ic.families.trees.sizing import within

        _check_aim(recipe)
        return recipe.with_options(within(fixed, budget, n_classes))

    def choose_input(
        self, experiment: Experiment, rows: FlowTable, trees: Any
    ) -> tuple[InputSpec, dict[str, float]]:
        """Choose the cuts that nodes may ask; training keeps those that they do ask."""
        _check_aim(experiment.recipe)
        if experiment.recipe.encoding == "weighted":  # a node needs no cut twice
            experiment = replace(experiment, recipe=replace(experiment.recipe, encoding="boosted"))
        return super().choose_input(experiment, rows, trees)

    def train(self, prepared: Prepared, progress: TrainingProgress) -> Learned:
        """Train trees on split and encoded rows."""
        from n3ic.families.trees.train import train_trees

        return train_trees(prepared, progress)


def _check_aim(recipe: Recipe) -> None:
    if recipe.training.class_weight != "none":
        raise UsageError("class_weight applies to binary networks only")


LEARNER = TreesLearner()
