# SPDX-License-Identifier: Apache-2.0
"""The learner of binary networks; ``Training`` holds its settings in a recipe."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, ClassVar

from n3ic.runs.learner import Candidate, Learned, Learner

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from n3ic.model.classifier import Classifier
    from n3ic.runs.progress import TrainingProgress
    from n3ic.runs.training_rows import Prepared
    from n3ic.training.baselines import Prediction
    from n3ic.training.recipe import Recipe


class BinaryLearner(Learner):
    """Trains binary networks: by gradient, as prototypes or as trees."""

    name: ClassVar[str] = "binary"
    summary: ClassVar[str] = "binary networks: XNOR, popcount and thresholds"

    def within(self, recipe: Recipe, fixed: Collection[str], budget: int, n_classes: int) -> Recipe:
        """Choose the input bits and hidden layers."""
        from n3ic.families.binary.sizing import within

        return within(recipe, fixed, budget, n_classes)

    def in_sites(
        self, recipe: Recipe, fixed: Collection[str], sites: int, cuts: bool, n_classes: int
    ) -> tuple[Recipe, ...]:
        """Return recipes of one tree, of three that vote, and of a network; see the base class."""
        from n3ic.families.binary.sizing import in_sites

        return in_sites(recipe, fixed, sites, n_classes)

    def distills(self, recipe: Recipe) -> bool:
        """Return whether boosted trees teach the network."""
        return recipe.training.distill > 0

    def kept_recipe(
        self, recipe: Recipe, fixed: Collection[str], models: Sequence[Classifier], n_classes: int
    ) -> Recipe:
        """Return a recipe for networks that keep the input bits and hidden layers of others."""
        from n3ic.model.network import binary_network
        from n3ic.training.kept_input import kept_recipe

        networks = [binary_network(model) for model in models]
        return kept_recipe(recipe, fixed, networks, n_classes)

    def train(self, prepared: Prepared, progress: TrainingProgress) -> Learned:
        """Train the network of the recipe, or a tree that is better and fits."""
        from n3ic.families.binary.train import train_binary

        return train_binary(prepared, progress)

    def packed_candidates(self, prepared: Prepared, budget: int) -> Iterator[Candidate]:
        """Grow a tree and forests on the columns, packed within the budget."""
        from n3ic.families.binary.packed_trees import trees_within
        from n3ic.runs.model_selection import on_rows

        validation = prepared.validation
        for name, trees in trees_within(prepared, budget):
            votes = trees.votes(validation.columns)
            yield on_rows(name, trees.memory, votes, validation.label, exported=False)

    def shared_baselines(self, prepared: Prepared) -> Iterator[Prediction]:
        """Grow a random forest on the columns, and pack it."""
        from n3ic.families.binary.packed_trees import forest_baseline

        yield forest_baseline(prepared)

    def twin(self, prepared: Prepared, progress: TrainingProgress) -> Prediction | None:
        """Train the float MLP of the same shape."""
        from n3ic.training.baselines import float_mlp

        experiment = prepared.experiment
        progress.stage("baseline: float_mlp")
        return float_mlp(
            prepared.train,
            prepared.validation,
            prepared.test,
            len(experiment.table.classes),
            experiment.recipe.training.hidden,
            experiment.seed,
        )


LEARNER = BinaryLearner()
