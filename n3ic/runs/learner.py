# SPDX-License-Identifier: Apache-2.0
"""What training asks of a family of models: how an input is chosen, a model learned and compared.

The module of a learner is imported for the options of ``n3ic train``: what it needs of numpy and of
training libraries, its methods import.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic import plugins
from n3ic.plugins import Plugin

if TYPE_CHECKING:
    from n3ic.data.table import FlowTable
    from n3ic.model.classifier import Classifier
    from n3ic.model.inputs import InputSpec
    from n3ic.runs.prepared import Experiment, Prepared
    from n3ic.runs.progress import TrainingProgress
    from n3ic.training.baselines import Prediction
    from n3ic.training.loop import Epoch
    from n3ic.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Learned:
    """A model that was trained.

    Attributes:
        model: the integer model, without meter and rules of a table.
        prepared: the rows that it was trained on, encoded by its own input.
        history: figures of each epoch, where there are epochs.
    """

    model: Classifier
    prepared: Prepared
    history: tuple[Epoch, ...] = ()


class Learner(Plugin):
    """How models of a family are trained.

    An entry point in the group ``n3ic.learners`` names an instance.

    Attributes:
        name: as in ``--family NAME``.
        summary: one line.
        settings: a frozen dataclass of the family's own values of a recipe, which has a default for
            each, a sentence on each in its docstring, and checks them; each is an option of
            ``n3ic train``. Its names are no other family's. None where there are none.
        budgeted: whether a number of bytes of weights chooses bits and layers.
    """

    settings: ClassVar[type | None] = None
    budgeted: ClassVar[bool] = True

    def unlearned(self, experiment: Experiment) -> int | None:
        """The class that is not learned, but told by fitting no other; None for none.

        Args:
            experiment: what is asked for.
        """
        return None

    def distills(self, recipe: Recipe) -> bool:
        """Whether boosted trees teach the model.

        Args:
            recipe: how it is trained.
        """
        return False

    def boosts(self, experiment: Experiment) -> bool:
        """Whether the choice of the input, or the training, needs boosted trees.

        Args:
            experiment: what is asked for.
        """
        recipe = experiment.recipe
        chosen = recipe.encoding in ("boosted", "weighted", "greedy") and not recipe.features
        return (chosen and experiment.keeps is None) or self.distills(recipe)

    def choose_input(
        self, experiment: Experiment, rows: FlowTable, trees: Any
    ) -> tuple[InputSpec, dict[str, float]]:
        """The input, and the chi-squared statistic of each feature that might be in it.

        Args:
            experiment: what is asked for.
            rows: the training rows.
            trees: boosted trees on these rows; None where none were asked for.

        Raises:
            UsageError: the recipe cannot be had of the table.
        """
        from n3ic.training.input_choice import choose_input

        return choose_input(rows, experiment.recipe, seed=experiment.seed, trees=trees)

    def train(self, prepared: Prepared, progress: TrainingProgress) -> Learned:
        """A model of rows that are split and encoded.

        Args:
            prepared: the rows, and what is asked for.
            progress: what is told meanwhile.

        Raises:
            UsageError: the recipe cannot be had of the rows.
        """
        raise NotImplementedError

    def baselines(self, prepared: Prepared) -> Iterator[Prediction]:
        """What the family's models are compared with beside the baselines of every family.

        Args:
            prepared: the rows, and what is asked for.
        """
        return iter(())

    def twin(self, prepared: Prepared, progress: TrainingProgress) -> Prediction | None:
        """A baseline that has the model's shape, trained after it; None for none.

        Args:
            prepared: the rows, and what is asked for.
            progress: what is told meanwhile.
        """
        return None


def learner(family: str) -> Learner:
    """Who trains models of that family.

    Args:
        family: its name in a recipe.

    Raises:
        UsageError: nobody.
    """
    found: Learner = plugins.find("n3ic.learners", family, Learner)
    return found
