# SPDX-License-Identifier: Apache-2.0
"""The learner of boosted trees."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic.families.trees.settings import TreesTraining
from n3ic.runs.learner import Learned, Learner, refuse_class_weight

_TREE_SHARE = 4  # a fourth of the candidates are the cuts of one tree

if TYPE_CHECKING:
    from collections.abc import Collection

    from n3ic.data.table import FlowTable
    from n3ic.model.inputs import InputSpec
    from n3ic.runs.experiment_spec import Experiment
    from n3ic.runs.progress import TrainingProgress
    from n3ic.runs.training_rows import Prepared
    from n3ic.training.recipe import Encoding, Recipe


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

        refuse_class_weight(recipe)
        return recipe.with_options(within(fixed, budget, n_classes))

    def in_sites(
        self, recipe: Recipe, fixed: Collection[str], sites: int, cuts: bool, n_classes: int
    ) -> tuple[Recipe, ...]:
        """Return the recipe of trees with about as many bytes as fill the sites."""
        from n3ic.families.trees.sizing import LEAST_SITE_BYTES, SITE_BYTES, within

        refuse_class_weight(recipe)
        if "boosted_bytes" in fixed:
            return (recipe,)
        size = max(LEAST_SITE_BYTES * n_classes, int(SITE_BYTES * sites))
        return (recipe.with_options(within(fixed, size, n_classes)),)

    def choose_input(
        self, experiment: Experiment, rows: FlowTable, trees: Any
    ) -> tuple[InputSpec, dict[str, float]]:
        """Choose the cuts that nodes may ask; training keeps those that they do ask.

        Within a budget of bytes, some are those of one large tree: boosting cuts at few quantiles.
        """
        recipe = experiment.recipe
        refuse_class_weight(recipe)
        if recipe.encoding not in ("boosted", "weighted"):
            return super().choose_input(experiment, rows, trees)

        def chosen(encoding: Encoding, bits: int) -> tuple[InputSpec, dict[str, float]]:
            own = replace(recipe, encoding=encoding, bits=bits)  # a node needs no cut twice
            return super(TreesLearner, self).choose_input(
                replace(experiment, recipe=own), rows, trees
            )

        of_tree = recipe.bits // _TREE_SHARE if recipe.settings.boosted_bytes else 0
        spec, scores = chosen("boosted", recipe.bits - of_tree)
        return (_joined(spec, chosen("tree", of_tree)[0]) if of_tree else spec), scores

    def train(self, prepared: Prepared, progress: TrainingProgress) -> Learned:
        """Train trees on split and encoded rows."""
        from n3ic.families.trees.train import train_trees

        return train_trees(prepared, progress)


def _joined(first: InputSpec, second: InputSpec) -> InputSpec:
    """The cuts of both inputs, each once."""
    from n3ic.model.inputs import Field, InputSpec

    fields = {field.feature: field for field in first.fields}
    for f in second.fields:
        cuts = {*f.cuts, *(fields[f.feature].cuts if f.feature in fields else ())}
        fields[f.feature] = Field.thermometer(f.feature, sorted(cuts), unit=f.unit, scale=f.scale)
    return InputSpec(tuple(fields.values()))


LEARNER = TreesLearner()
