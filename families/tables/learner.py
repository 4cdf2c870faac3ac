# SPDX-License-Identifier: Apache-2.0
"""The learner of boosted look-up tables."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic.errors import UsageError
from n3ic.families.tables.settings import TablesTraining
from n3ic.runs.learner import Learned, Learner, refuse_class_weight

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from n3ic.data.table import FlowTable
    from n3ic.model.classifier import Classifier
    from n3ic.model.inputs import InputSpec
    from n3ic.runs.experiment_spec import Experiment
    from n3ic.runs.progress import TrainingProgress
    from n3ic.runs.training_rows import Prepared
    from n3ic.training.recipe import Recipe


class TablesLearner(Learner):
    """Grows look-up tables by boosting, and rounds their entries."""

    name: ClassVar[str] = "tables"
    summary: ClassVar[str] = "look-up tables: sums of small tables that a few bits address"
    settings: ClassVar[type] = TablesTraining
    budgeted: ClassVar[bool] = True

    def distills(self, recipe: Recipe) -> bool:
        """Return whether boosted trees teach the tables."""
        return bool(recipe.settings.teacher)

    def within(self, recipe: Recipe, fixed: Collection[str], budget: int, n_classes: int) -> Recipe:
        """Return a recipe whose tables take at most a number of bytes in total.

        Raises:
            UsageError: no table fits.
        """
        from n3ic.families.tables.sizing import within

        return recipe.with_options(within(recipe.settings, fixed, budget, n_classes))

    def in_sites(
        self, recipe: Recipe, fixed: Collection[str], sites: int, cuts: bool, n_classes: int
    ) -> tuple[Recipe, ...]:
        """Return recipes of tables of two sizes; see the base class."""
        from n3ic.families.tables.sizing import in_sites

        sizes = in_sites(recipe.settings, fixed, sites, cuts, n_classes)
        return tuple(recipe.with_options(size) for size in sizes)

    def kept_recipe(
        self, recipe: Recipe, fixed: Collection[str], models: Sequence[Classifier], n_classes: int
    ) -> Recipe:
        """Return a recipe for new entries of given tables: same input, same indices.

        Raises:
            UsageError: a given value chooses tables, or a model belongs to another family.
        """
        from n3ic.families.tables.train import tables_of

        names = [tables_of(model).name for model in models]
        sizes = {f.name for f in fields(TablesTraining)} - {"teacher", "cell_prior"}
        decided = {"bits", "encoding", "features", "field_bits", "columns", "budget_bytes", *sizes}
        if against := sorted(name.replace("_", "-") for name in decided.intersection(fixed)):
            raise UsageError(
                f"--input-of keeps the input bits and the tables of {names[0]}; leave "
                f"--{' and --'.join(against)} out, or --input-of"
            )
        return recipe

    def choose_input(
        self, experiment: Experiment, rows: FlowTable, trees: Any
    ) -> tuple[InputSpec, dict[str, float]]:
        """Choose the cuts that tables may read; training keeps those that they do read."""
        recipe = experiment.recipe
        refuse_class_weight(recipe)
        if recipe.encoding == "weighted":  # a table needs no cut twice
            experiment = replace(experiment, recipe=replace(recipe, encoding="boosted"))
        spec, scores = super().choose_input(experiment, rows, trees)
        if share := experiment.recipe.settings.coarse_cuts:
            from n3ic.families.tables.round_cuts import with_coarse_cuts

            spec = with_coarse_cuts(spec, rows.features, share)
        return spec, scores

    def train(self, prepared: Prepared, progress: TrainingProgress) -> Learned:
        """Train tables on split and encoded rows."""
        from n3ic.families.tables.train import train_tables

        return train_tables(prepared, progress)


LEARNER = TablesLearner()
