# SPDX-License-Identifier: Apache-2.0
"""A request for a sweep, and the networks of the sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError
from n3ic.options import OptionValue
from n3ic.runs.report import values_text
from n3ic.training.recipe import Recipe, recipe_values
from n3ic.usecases.request import TrainRequest, command_words
from n3ic.usecases.training_data import TrainingData

BUDGETS = (100, 200, 400, 800, 1600, 3200)
"""Bytes in total that are tried by default."""
TARGET = "netfpga"
"""The target of the estimates by default, with ``TARGET_OPTIONS``."""
TARGET_OPTIONS: Mapping[str, OptionValue] = {"style": "unrolled"}
MOST_POINTS = 10_000
_REQUEST_AXES = ("recipe", "budget_bytes")
SIZES = ("budget_bytes", "bits", "hidden", "trees", "leaves", "leaf_cuts")
"""Axes along which a network grows."""


@dataclass(frozen=True, eq=False)
class SweepRequest:
    """The arguments of :func:`~n3ic.studies.sweep.training.sweep_use_case`.

    Attributes:
        base: the common values of all trainings; its ``seeds`` are those of each point.
        axes: values by name, tried in all combinations: ``budget_bytes``, ``recipe``, or any
            value of a recipe such as ``hidden``, ``bits``, ``density`` and ``encoding``. By
            default ``BUDGETS``, unless an axis has several values or a size is given.
        target: the target that estimates size and latency of each point.
        target_options: the target's options; None for its defaults, and for ``TARGET_OPTIONS`` of
            ``TARGET``.
        out: the sweep's folder; None for ``sweeps/USE_CASE``. The same sweep resumes there.
        replace: remove the results of another sweep in that folder.

    Raises:
        UsageError: an axis is unknown or empty, there are too many points, or the base keeps an
            input.
    """

    base: TrainRequest
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    target: str = TARGET
    target_options: Mapping[str, OptionValue] | None = None
    out: str | Path | None = None
    replace: bool = False

    def __post_init__(self) -> None:
        if self.base.input_of is not None:
            raise UsageError(
                "a sweep varies inputs and shapes, and --input-of keeps both: use n3ic train"
            )
        if self.base.sites is not None:
            raise UsageError("a sweep varies sizes, and --sites chooses one: use n3ic train")
        # Counted before any data is read, because products of axes grow fast by mistake.
        count = 1
        for name, values in self.axes.items():
            if name not in (*_REQUEST_AXES, *recipe_values()):
                known = ", ".join((*_REQUEST_AXES, *recipe_values()))
                raise UsageError(f"{name!r} cannot be swept; expected one of {known}")
            if not values:
                raise UsageError(f"{name.replace('_', '-')} has no value to try")
            count *= len(values)
        if count > MOST_POINTS:
            raise UsageError(f"{count:,} networks; expected at most {MOST_POINTS:,}")

    @property
    def target_values(self) -> Mapping[str, OptionValue]:
        """Options of the target that differ from its defaults."""
        if self.target_options is not None:
            return self.target_options
        return TARGET_OPTIONS if self.target == TARGET else {}

    @property
    def grid(self) -> Mapping[str, tuple[Any, ...]]:
        """Axes of the sweep, including the default one."""
        fixed = {*self.axes, *self.base.overrides}
        # Budgets are the default only where the caller has chosen neither a size nor another axis.
        several = any(len(values) > 1 for values in self.axes.values())
        chosen = isinstance(self.base.recipe, Recipe) or self.base.budget_bytes is not None
        if several or chosen or not fixed.isdisjoint((*SIZES, "family")):
            return self.axes
        return {"budget_bytes": BUDGETS, **self.axes}


@dataclass(frozen=True, eq=False)
class SweepNetwork:
    """A network of a sweep.

    Attributes:
        values: its values on the axes.
        recipe: its recipe.
        command: the words of the command that trains it, or None.
        budget: most bytes in total; None without a bound.
        rivals: recipes of other families within the budget.
    """

    values: Mapping[str, Any]
    recipe: Recipe
    command: tuple[str, ...] | None
    budget: int | None = None
    rivals: tuple[Recipe, ...] = ()


def sweep_networks(
    request: SweepRequest, data: TrainingData
) -> tuple[list[SweepNetwork], list[str]]:
    """Return the different networks of a sweep, and why others are impossible.

    Args:
        request: the sweep.
        data: training data of the use case.

    Returns:
        The networks, and a line about each impossible combination.

    Raises:
        UsageError: no combination is possible.
    """
    networks: list[SweepNetwork] = []
    refused: list[str] = []
    names = tuple(request.grid)
    for places in product(*request.grid.values()):
        values = dict(zip(names, places, strict=True))
        variant = replace(
            request.base,
            **{n: values[n] for n in _REQUEST_AXES if n in values},
            overrides={
                **request.base.overrides,
                **{n: v for n, v in values.items() if n not in _REQUEST_AXES},
            },
        )
        try:
            recipe = variant.chosen_recipe(data.case, data.n_classes)
            rivals = variant.rivals(data.case, data.n_classes)
        except UsageError as error:
            # A grid may hold impossible combinations; the others are still worth training.
            refused.append(f"left out {values_text(values)}: {error}")
            continue
        if any(
            (recipe, variant.budget_bytes) == (other.recipe, other.budget) for other in networks
        ):
            continue  # training it twice would give the same figures
        words = command_words(
            variant, data.case, recipe, data.options, data.protocols[0], data.n_classes
        )
        command = None if words is None else tuple(words)
        networks.append(SweepNetwork(values, recipe, command, variant.budget_bytes, rivals))
    if not networks:
        raise UsageError(f"none of these networks is possible; {refused[0]}")
    return networks, refused
