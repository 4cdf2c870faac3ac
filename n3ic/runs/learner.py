# SPDX-License-Identifier: Apache-2.0
"""The interface of a family of models for training: choice of the input, training, baselines.

``n3ic train`` imports a learner's module just for its options, so numpy and training libraries are
imported inside its methods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic import plugins
from n3ic.errors import UsageError
from n3ic.plugins import Plugin

if TYPE_CHECKING:
    from n3ic.data.table import FlowTable
    from n3ic.model.classifier import Classifier
    from n3ic.model.inputs import InputSpec
    from n3ic.runs.experiment_spec import Experiment
    from n3ic.runs.progress import TrainingProgress
    from n3ic.runs.training_rows import Prepared
    from n3ic.training.baselines import Prediction
    from n3ic.training.loop import Epoch
    from n3ic.training.recipe import Recipe


@dataclass(frozen=True)
class Candidate:
    """A classifier that was tried within a budget of bytes or of LUT sites.

    Attributes:
        name: what it is, such as ``binary network``.
        memory: bytes by part, everything counted.
        accuracy: share of the validation rows that it classifies correctly.
        balanced: the mean of that share over the classes.
        exported: whether targets take it; others are shown for comparison.
        kept: whether it is the run's model.
        sites: estimated LUT sites of its unrolled core by part; None if sites have no bound.
        values: values of the recipe that chose its size; empty if sites have no bound.
        fits: whether it is within the budget.
    """

    name: str
    memory: Mapping[str, int]
    accuracy: float
    balanced: float
    exported: bool = True
    kept: bool = False
    sites: Mapping[str, int] | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    fits: bool = True

    @property
    def bytes(self) -> int:
        """Bytes of all parts."""
        return sum(self.memory.values())


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained model.

    Attributes:
        model: the integer model, without meter and table rules.
        prepared: its training rows, encoded by its own input.
        history: figures of each epoch; empty without epochs.
        name: its name in the table of candidates; empty for its family's name.
        other_candidates: what the learner tried and did not keep.
    """

    model: Classifier
    prepared: Prepared
    history: tuple[Epoch, ...] = ()
    name: str = ""
    other_candidates: tuple[Candidate, ...] = ()


class Learner(Plugin):
    """How models of a family are trained.

    An entry point in the group ``n3ic.learners`` names an instance.

    Attributes:
        name: as in ``--family NAME``.
        summary: one line.
        settings: a frozen dataclass that checks the family's own values of a recipe, with a default
            and a sentence in the docstring for each. Each is an option of ``n3ic train``, so no two
            families may share a name. None without such values.
        budgeted: whether it can fit a model into a budget of bytes (:meth:`within`). Without
            ``--family``, models of all such learners are trained, and the best is kept.
    """

    settings: ClassVar[type | None] = None
    budgeted: ClassVar[bool] = True

    def within(self, recipe: Recipe, fixed: Collection[str], budget: int, n_classes: int) -> Recipe:
        """A recipe whose model takes at most a number of bytes.

        Args:
            recipe: a recipe of the family, with the given values.
            fixed: names of the given values, which must not change.
            budget: largest :attr:`~n3ic.model.classifier.Classifier.total_bytes` of the model.
            n_classes: number of classes.

        Raises:
            UsageError: no model fits, or a given value leaves nothing to choose.
        """
        raise UsageError(f"family {self.name} has no size that a budget of bytes chooses")

    def in_sites(
        self, recipe: Recipe, fixed: Collection[str], sites: int, cuts: bool, n_classes: int
    ) -> tuple[Recipe, ...]:
        """Recipes of models whose unrolled core takes about a number of LUT sites.

        Training with several numbers finds the one whose model fits; see
        :func:`~n3ic.runs.site_selection.select_within_sites`.

        Args:
            recipe: a recipe of the family, with the given values.
            fixed: names of the given values, which must not change.
            sites: LUT sites of the core, 1 or more. More sites never give a smaller model.
            cuts: whether comparisons of features with cuts are among the sites.
            n_classes: number of classes.

        Returns:
            One recipe for each kind of shape, the same kinds for every number of sites; empty if
            the family has none.
        """
        return ()

    def kept_recipe(
        self, recipe: Recipe, fixed: Collection[str], models: Sequence[Classifier], n_classes: int
    ) -> Recipe:
        """A recipe for models that keep the input and the shape of others (``--input-of``).

        Args:
            recipe: a recipe of the family, with the given values.
            fixed: names of the given values, which may include ``budget_bytes``.
            models: the models whose input is kept, one or more, of any family.
            n_classes: number of classes.

        Raises:
            UsageError: the family always chooses inputs and shape, a model is of another family,
                or a given value contradicts it.
        """
        raise UsageError(
            f"--input-of is for models that learn weights only; family {self.name} chooses inputs "
            "and shape: take another recipe or family"
        )

    def unlearned(self, experiment: Experiment) -> int | None:
        """The class of rows that fit no learned class; None if every class is learned.

        Args:
            experiment: the experiment.
        """
        return None

    def distills(self, recipe: Recipe) -> bool:
        """Whether boosted trees teach the model.

        Args:
            recipe: the recipe.
        """
        return False

    def boosts(self, experiment: Experiment) -> bool:
        """Whether the choice of the input, or the training, needs boosted trees.

        Args:
            experiment: the experiment.
        """
        recipe = experiment.recipe
        chosen = recipe.encoding in ("boosted", "weighted", "greedy") and not recipe.features
        return (chosen and experiment.keeps is None) or self.distills(recipe)

    def choose_input(
        self, experiment: Experiment, rows: FlowTable, trees: Any
    ) -> tuple[InputSpec, dict[str, float]]:
        """Choose the input; also return the chi-squared statistic of each candidate feature.

        Args:
            experiment: the experiment.
            rows: the training rows.
            trees: boosted trees on these rows; None if :meth:`boosts` asked for none.

        Raises:
            UsageError: the recipe does not fit the table.
        """
        from n3ic.training.input_choice import choose_input

        return choose_input(rows, experiment.recipe, seed=experiment.seed, trees=trees)

    def train(self, prepared: Prepared, progress: TrainingProgress) -> Learned:
        """Train a model on split and encoded rows.

        Args:
            prepared: the rows and their experiment.
            progress: receives messages on the way.

        Raises:
            UsageError: the recipe does not fit the rows.
        """
        raise NotImplementedError

    def baselines(self, prepared: Prepared) -> Iterator[Prediction]:
        """Baselines of the family, in addition to those of every family.

        Args:
            prepared: the rows and their experiment.
        """
        return iter(())

    def packed_candidates(self, prepared: Prepared, budget: int) -> Iterator[Candidate]:
        """Classifiers that no target takes, shown beside the models of all families.

        Args:
            prepared: the rows and their experiment.
            budget: largest size of each, in bytes.
        """
        return iter(())

    def shared_baselines(self, prepared: Prepared) -> Iterator[Prediction]:
        """Baselines shown beside the models of every family, if all classes are learned.

        Args:
            prepared: the rows and their experiment.
        """
        return iter(())

    def twin(self, prepared: Prepared, progress: TrainingProgress) -> Prediction | None:
        """A baseline of the model's shape, trained after the model; None without one.

        Args:
            prepared: the rows and their experiment.
            progress: receives messages on the way.
        """
        return None


def refuse_class_weight(recipe: Recipe) -> None:
    """Check that a recipe does not weigh classes, for families that cannot.

    Raises:
        UsageError: it does; the error says what to use instead.
    """
    if recipe.training.class_weight != "none":
        raise UsageError(
            f"class_weight {recipe.training.class_weight}: only binary networks weigh classes; "
            "false_alarms bounds the rate of false alarms of every family"
        )


def learner(family: str) -> Learner:
    """The learner of a family.

    Args:
        family: its name in a recipe.

    Raises:
        UsageError: no family has that name.
    """
    plug_in: Learner = plugins.find("n3ic.learners", family, Learner)
    return plug_in
