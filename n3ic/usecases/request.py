# SPDX-License-Identifier: Apache-2.0
"""A request for a training, and the command line that repeats it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from n3ic import plugins
from n3ic.data.split import PROTOCOLS, SplitProtocol
from n3ic.data.table import FlowTable
from n3ic.errors import UsageError, did_you_mean
from n3ic.model.classifier import Classifier
from n3ic.model.load import load_model
from n3ic.options import OptionValue
from n3ic.runs.experiment_spec import SiteBudget
from n3ic.runs.folder import models_of
from n3ic.runs.learner import learner
from n3ic.training.recipe import Recipe, recipe_values
from n3ic.training.sizing import sized
from n3ic.usecases.base import UseCase

_LEARNERS = "n3ic.learners"
_SEEDS = 2**32  # scikit-learn takes seeds of 32 bits


@dataclass(frozen=True)
class ConfigFile:
    """A file of options for a training.

    Attributes:
        source: its name in errors.
        content: its bytes, which are copied into the run.
        values: its values, by names with underscores.
        typed: whether its values are texts of a command line (``options.json`` of a run) rather
            than numbers, texts and lists.
    """

    source: str
    content: bytes
    values: Mapping[str, Any]
    typed: bool = False

    @property
    def name(self) -> str:
        """Its name in a run folder."""
        return f"config{Path(self.source).suffix.lower()}"


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """The arguments of :func:`~n3ic.usecases.training.train_use_case`.

    Attributes:
        use_case: its name, such as ``anomaly``.
        data: files to train on; None for the embedded default.
        dataset: the data set that reads ``data`` or has the sample; None for the use case's own.
        table: a loaded table, instead of ``data``.
        recipe: name of a recipe of the use case, or a recipe of your own.
        overrides: values of the recipe to replace.
        rows: train on so many rows of ``data``, drawn at random by ``seed``, for tables that memory
            does not hold; None for all. See :mod:`n3ic.data.row_sample`.
        budget_bytes: largest size of the model in bytes, everything counted. Unless ``overrides``
            names the family, every family whose size can be chosen is trained within it, and the
            validation rows decide. None for the recipe's size.
        sites: largest estimated number of LUT sites of the unrolled NetFPGA core with class
            output. Several sizes of every family are trained, or of the one that ``overrides``
            names, and the validation rows decide. None for no bound.
        cuts_on_card: count the comparisons of features with cuts among these sites, for cards that
            get features and not input bits.
        input_of: a run or a model file whose input bits, hidden layers and meter are kept, so that
            the new networks can replace the old ones on a device. In a run of several networks,
            each keeps those of its namesake.
        options: the use case's own options.
        protocol: how the rows are split; None for the use case's default. The network of this
            protocol is kept; results of the other protocols that the data allows are reported.
        seed: seed of all random choices.
        seeds: number of seeds for mean and deviation, from ``seed`` on.
        out: the run folder; None for ``runs/USE_CASE``, numbered if that exists.
        replace: replace ``out`` if it is a run.
        jobs: number of networks trained at once, for a use case of several; None for all cores.
        dask: address of a Dask scheduler (``tcp://host:8786``) whose workers have n3ic installed
            and train instead of this machine.
        config: the file of options, which is copied into the run; see
            :func:`~n3ic.usecases.config.train_request`.

    Raises:
        UsageError: the protocol is unknown, a seed is invalid, ``rows`` comes without files, or
            ``sites`` with another choice of the size.
    """

    use_case: str
    data: str | Path | None = None
    dataset: str | None = None
    table: FlowTable | None = field(default=None, repr=False)
    recipe: str | Recipe = "default"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None
    budget_bytes: int | None = None
    sites: int | None = None
    cuts_on_card: bool = False
    input_of: str | Path | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    protocol: SplitProtocol | None = None
    seed: int = 0
    seeds: int = 1
    out: str | Path | None = None
    replace: bool = False
    jobs: int | None = None
    dask: str | None = None
    config: ConfigFile | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.protocol is not None and self.protocol not in PROTOCOLS:
            raise UsageError(f"unknown protocol {self.protocol!r}; known: {', '.join(PROTOCOLS)}")
        if self.seeds < 1 or self.seed < 0 or self.seed + self.seeds > _SEEDS:
            raise UsageError(
                f"seeds are whole numbers from 0 below {_SEEDS}, and at least one; "
                f"got {self.seeds} from {self.seed}"
            )
        if self.rows is not None and self.rows < 1:
            raise UsageError(f"rows must be 1 or more, got {self.rows}")
        if self.rows is not None and self.data is None:
            raise UsageError("rows are drawn from files: name them as data")
        if self.sites is not None and self.sites < 1:
            raise UsageError(f"sites must be 1 or more, got {self.sites}")
        if self.sites is not None and (self.budget_bytes is not None or self.input_of is not None):
            other = "input_of" if self.budget_bytes is None else "budget_bytes"
            raise UsageError(f"sites and {other} both choose the size: give one of them")
        if self.cuts_on_card and self.sites is None:
            raise UsageError("cuts_on_card counts the sites of comparisons: give sites, too")

    @cached_property
    def input_models(self) -> Mapping[str, Classifier]:
        """The models whose input is kept, by name; empty without ``input_of``.

        Raises:
            UsageError: ``input_of`` holds no model.
            ModelError: a file is damaged.
        """
        if self.input_of is None:
            return {}
        return {name: load_model(path) for name, path in models_of(self.input_of).items()}

    def chosen_recipe(self, case: UseCase, n_classes: int = 2) -> Recipe:
        """The recipe with its replaced values, adapted to a number of bits or a kept input.

        Args:
            case: the use case.
            n_classes: number of classes, for a number of bits or a budget of bytes.

        Raises:
            UsageError: the use case has no such recipe, or a value is invalid.
        """
        recipe, fixed = self._with_values(case)
        if self.input_models:
            fixed |= set() if self.budget_bytes is None else {"budget_bytes"}
            models = [*self.input_models.values()]
            return learner(recipe.family).kept_recipe(recipe, fixed, models, n_classes)
        if self.budget_bytes is None:
            return sized(recipe, fixed, n_classes)
        own = learner(recipe.family)
        if not own.budgeted:
            raise UsageError(
                f"a budget of bytes does not choose the size of family {own.name}; take "
                f"{' or '.join(_budgeted())}"
            )
        return own.within(recipe, fixed, self.budget_bytes, n_classes)

    def rivals(self, case: UseCase, n_classes: int = 2) -> tuple[Recipe, ...]:
        """Recipes of the other families within the budget; none if one was named.

        Args:
            case: the use case.
            n_classes: number of classes.
        """
        recipe, fixed = self._with_values(case)
        recipes: list[Recipe] = []
        if "family" in fixed:
            return ()
        if (budget := self.site_budget(case)) is not None:
            others = [name for name in plugins.names(_LEARNERS) if name != recipe.family]
            every = [recipe.with_options({"family": name}) for name in others]
            return tuple(other for other in every if _has_sites(other, budget, n_classes))
        if self.budget_bytes is None or self.input_models:
            return ()
        for name in _budgeted():
            if name != recipe.family:
                other = recipe.with_options({"family": name})
                with suppress(UsageError):  # a family may need more bytes than another
                    recipes.append(learner(name).within(other, fixed, self.budget_bytes, n_classes))
        return tuple(recipes)

    def site_budget(self, case: UseCase) -> SiteBudget | None:
        """The bound on LUT sites; None without one.

        Args:
            case: the use case.

        Raises:
            UsageError: it does not choose the size of the family that was named.
        """
        if self.sites is None:
            return None
        recipe, fixed = self._with_values(case)
        budget = SiteBudget(self.sites, self.cuts_on_card, tuple(sorted(fixed)))
        if not _has_sites(recipe, budget):
            raise UsageError(
                f"a number of sites does not choose the size of family {recipe.family} with the "
                f"values given"
            )
        return budget

    def _with_values(self, case: UseCase) -> tuple[Recipe, set[str]]:
        """The recipe with its replaced values, and their names."""
        recipe = self.recipe
        if not isinstance(recipe, Recipe):
            if recipe not in case.recipes:
                known, hint = ", ".join(case.recipes), did_you_mean(recipe, case.recipes)
                raise UsageError(f"{case.name} has no recipe {recipe!r}; {hint}it has {known}")
            recipe = case.recipes[recipe]
        fixed = {name for name, value in self.overrides.items() if value is not None}
        return recipe.with_options(self.overrides), fixed


def _budgeted() -> list[str]:
    """Families that have a model for a budget of bytes."""
    return [name for name in plugins.names(_LEARNERS) if learner(name).budgeted]


def _has_sites(recipe: Recipe, budget: SiteBudget, n_classes: int = 2) -> bool:
    """Whether a family has models for a number of LUT sites and the given values."""
    try:
        own = learner(recipe.family)
        return bool(own.in_sites(recipe, budget.fixed, budget.most, budget.cuts, n_classes))
    except UsageError:
        return False


def command_words(
    request: TrainRequest,
    case: UseCase,
    recipe: Recipe,
    options: Mapping[str, OptionValue],
    protocol: SplitProtocol,
    n_classes: int = 2,
) -> list[str] | None:
    """The words of a command line that repeats a run.

    Args:
        request: the request.
        case: the use case.
        recipe: the recipe of the training, see :meth:`TrainRequest.chosen_recipe`.
        options: the use case's own options, defaults included.
        protocol: the protocol whose networks are kept.
        n_classes: number of classes.

    Returns:
        ``n3ic train`` and its arguments; None if the table was given in memory, or the recipe is
        not one of the use case's.
    """
    if request.table is not None or recipe.name not in case.recipes:
        return None
    words = ["n3ic", "train", case.name, f"--recipe={recipe.name}"]
    if request.data is not None:
        words.append(f"--data={request.data}")
    if request.rows is not None:
        words.append(f"--rows={request.rows}")
    if request.dataset is not None:
        words.append(f"--dataset={request.dataset}")
    if request.input_of is not None:
        words.append(f"--input-of={request.input_of}")
    base = case.recipes[recipe.name]
    if request.input_models and base.family == recipe.family:
        models = [*request.input_models.values()]
        base = learner(base.family).kept_recipe(base, (), models, n_classes)
    if request.budget_bytes is None and request.sites is None:
        changed = dict(_changes(base, recipe, n_classes))
    else:  # the budget chooses size and family again
        own = request.recipe if isinstance(request.recipe, Recipe) else base
        changed = {name: own.value(name) for name in _differing(base, own)}
        changed |= {n: v for n, v in request.overrides.items() if v is not None}
        if request.sites is None:
            changed["budget_bytes"] = request.budget_bytes
        else:
            changed["sites"] = request.sites
            changed |= {"cuts_on_card": True} if request.cuts_on_card else {}
    words += [_word(name, value) for name, value in {**changed, **options}.items()]
    return [
        *words,
        f"--protocol={protocol}",
        f"--seed={request.seed}",
        f"--seeds={request.seeds}",
    ]


def _changes(base: Recipe, recipe: Recipe, n_classes: int) -> Iterator[tuple[str, Any]]:
    """Names and values of the recipe, and of its training, that differ from the base."""
    if recipe.bits != base.bits:
        yield "bits", recipe.bits
        base = sized(replace(base, bits=recipe.bits), {"bits"}, n_classes)  # what bits imply
    for name in _differing(base, recipe):
        yield name, recipe.value(name)


def _differing(base: Recipe, recipe: Recipe) -> list[str]:
    """Names of the values that differ."""
    return [name for name in recipe_values() if recipe.value(name) != base.value(name)]


def _word(name: str, value: Any) -> str:
    """An option with its value; ``=`` keeps values that are empty or begin with a dash."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    text = ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    return f"--{option}={text}"
