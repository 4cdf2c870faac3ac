# SPDX-License-Identifier: Apache-2.0
"""Choose the best model within a budget of look-up table (LUT) sites of an FPGA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from n3ic import plugins
from n3ic.errors import UsageError
from n3ic.model.classifier import Classifier, family_text
from n3ic.runs.experiment_spec import Experiment, SiteBudget
from n3ic.runs.learner import Candidate, Learned, learner
from n3ic.runs.model_selection import candidate
from n3ic.runs.preparation import prepare, with_baselines
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.trained import trained
from n3ic.runs.training_rows import Prepared
from n3ic.targets.base import exporter
from n3ic.targets.capabilities import SiteCount
from n3ic.targets.estimates import estimates
from n3ic.training.recipe import Recipe, recipe_values

CORE, COMPARISONS = "core", "comparisons"
TRIALS = 4
"""Most trainings of a kind of shape: each corrects the size by the sites of the one before."""
FULL = 0.9
"""Share of the sites from which a model is large enough."""
_MOST_GROWTH = 4.0  # of the size from a training to the next
_MARGIN = 0.97


@dataclass(frozen=True, eq=False)
class _Trial:
    """A trained model and its figures."""

    candidate: Candidate
    learned: Learned


def sites_of(model: Classifier, cuts: bool) -> dict[str, int] | None:
    """Estimate the LUT sites of a model's unrolled core with class output, by part.

    Args:
        model: a model of any family.
        cuts: whether the card compares features with cuts.

    Returns:
        The sites of the core and, with ``cuts``, of the comparisons; None if the target does not
        take the model.
    """
    target, count = _counting_target()
    figures = estimates(model, target, {**count.options, **(count.cuts if cuts else {})})
    by_name = {figure.name: int(figure.value) for figure in figures}
    if "lut_sites" not in by_name:
        return None
    own = {CORE: by_name["lut_sites"]}
    return own | ({COMPARISONS: by_name["comparisons.lut_sites"]} if cuts else {})


@cache
def _counting_target() -> tuple[str, SiteCount]:
    """The first target that counts sites, and how it does.

    Raises:
        UsageError: none of those that are installed does.
    """
    for name in plugins.names("n3ic.exporters"):
        if (count := exporter(name).site_count) is not None:
            return name, count
    raise UsageError("no installed target counts LUT sites")


def select_within_sites(
    experiment: Experiment, budget: SiteBudget, progress: TrainingProgress
) -> tuple[Learned, tuple[Candidate, ...]]:
    """Train every family in several kinds of shapes, and keep the best that fits.

    The best has the highest accuracy on validation rows, or the highest balanced accuracy if the
    recipe weighs classes. The first of equals wins.

    Args:
        experiment: the experiment, with the recipes of other families.
        budget: the bound.
        progress: receives messages on the way.

    Returns:
        The model, and the best candidate of each kind of shape, the kept one first. If none of a
        kind fits, it has its smallest one.

    Raises:
        UsageError: no model fits; the error names the smallest.
    """
    by_class = experiment.recipe.training.class_weight != "none"

    def worth(trial: _Trial) -> float:
        return trial.candidate.balanced if by_class else trial.candidate.accuracy

    kinds: list[_Trial] = []
    refusals: list[UsageError] = []
    prepared: Prepared | None = None
    for recipe in (experiment.recipe, *experiment.rivals):
        family: list[_Trial] = []
        for kind in range(len(_recipes(recipe, budget, budget.most, experiment))):
            trials: list[_Trial] = []
            for trial in _trials(recipe, kind, budget, experiment, prepared, refusals, progress):
                trials.append(trial)
                prepared = trial.learned.prepared
            if fitting := [trial for trial in trials if trial.candidate.fits]:
                family.append(max(fitting, key=worth))
            elif trials:
                family.append(min(trials, key=_total))
        kinds += _with_values(family, recipe)
    every = [trial for trial in kinds if trial.candidate.fits]
    if not kinds and refusals:
        raise refusals[0]
    if not every:
        least = min(kinds, key=_total, default=None)
        smallest = least and f": the smallest is {least.candidate.name}, {_total(least):,} sites"
        raise UsageError(f"no model fits {budget.most:,} LUT sites{smallest or ''}; take more")
    best = max(every, key=worth)  # the first of equals
    losers = sorted((t for t in kinds if t is not best), key=worth, reverse=True)
    learned = best.learned
    learned = replace(learned, prepared=with_baselines(learned.prepared, progress.stage))
    winner = replace(best.candidate, kept=True)
    return learned, (winner, *(trial.candidate for trial in losers))


def _trials(
    recipe: Recipe,
    kind: int,
    budget: SiteBudget,
    experiment: Experiment,
    prepared: Prepared | None,
    refusals: list[UsageError],
    progress: TrainingProgress,
) -> Iterator[_Trial]:
    """Train a kind of shape in sizes that come closer to the bound.

    Args:
        recipe: the recipe of a family.
        kind: index of the kind of shape.
        budget: the bound.
        experiment: the experiment.
        prepared: rows of an earlier training, whose boosted trees serve again; None without one.
        refusals: gets the reason if a size cannot be trained.
        progress: receives messages on the way.
    """
    aim, before = float(budget.most), list[Recipe]()
    for _ in range(TRIALS):
        own = _recipes(recipe, budget, max(1, int(aim)), experiment)[kind]
        if own in before:
            return
        before.append(own)
        variant = replace(experiment, recipe=own, rivals=(), sites=None)
        trees = prepared.trees if prepared else None  # the same rows give the same trees
        try:
            prepared = prepare(variant, progress.stage, trees, baselines=False)
            learned = trained(prepared, progress)
        except UsageError as error:  # such as a tree of too few leaves for any split
            refusals.append(error)
            return
        trial = _trial(learned, budget)
        if trial is None:  # the target takes no such model
            return
        taken = max(1, _total(trial))
        progress.stage(f"{trial.candidate.name}: {taken:,} of {budget.most:,} LUT sites")
        yield trial
        if FULL * budget.most <= taken <= budget.most:
            return
        # Comparisons hardly shrink with the shape, so a size that is too large shrinks by more.
        share = budget.most / taken
        aim *= min(_MARGIN * share, _MOST_GROWTH) if share >= 1 else _MARGIN * share**1.5


def _recipes(
    recipe: Recipe, budget: SiteBudget, sites: int, experiment: Experiment
) -> tuple[Recipe, ...]:
    n_classes = len(experiment.table.classes)
    return learner(recipe.family).in_sites(recipe, budget.fixed, sites, budget.cuts, n_classes)


def _trial(learned: Learned, budget: SiteBudget) -> _Trial | None:
    sites = sites_of(learned.model, budget.cuts)
    if sites is None:
        return None
    name = learned.name or family_text(learned.model.family)
    figures = candidate(name, learned.model, learned.prepared)
    fits = sum(sites.values()) <= budget.most
    return _Trial(replace(figures, sites=sites, fits=fits), learned)


def _with_values(trials: Sequence[_Trial], base: Recipe) -> list[_Trial]:
    """The trials of a family with the values that chose their sizes: all that any of them has."""
    recipes = [trial.learned.prepared.experiment.recipe for trial in trials]
    names = [n for n in recipe_values() if any(own.value(n) != base.value(n) for own in recipes)]
    return [
        replace(t, candidate=replace(t.candidate, values={n: own.value(n) for n in names}))
        for t, own in zip(trials, recipes, strict=True)
    ]


def _total(trial: _Trial) -> int:
    return sum((trial.candidate.sites or {}).values())
