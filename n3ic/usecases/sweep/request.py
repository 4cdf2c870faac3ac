# SPDX-License-Identifier: Apache-2.0
"""What is asked of a sweep, and the networks that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError
from n3ic.options import OptionValue
from n3ic.runs.learner import learner
from n3ic.training.recipe import Recipe, recipe_values
from n3ic.usecases.request import TrainRequest, command_words
from n3ic.usecases.training_data import TrainingData

BUDGETS = (128, 256, 512, 1024, 2048, 4096)
"""Bytes of weights that are tried where nothing is asked for."""
TARGET = "netfpga"
"""Whose estimates are taken where no target is named; with ``TARGET_OPTIONS``."""
TARGET_OPTIONS: Mapping[str, OptionValue] = {"style": "unrolled"}
MOST_POINTS = 10_000
_REQUEST_AXES = ("recipe", "budget_bytes")
SIZES = ("budget_bytes", "bits", "hidden", "trees", "leaves", "leaf_cuts")
"""Axes along which a network grows."""


@dataclass(frozen=True, eq=False)
class SweepRequest:
    """What is asked of :func:`~n3ic.usecases.sweep.training.sweep_use_case`.

    Attributes:
        base: what all trainings have in common; its ``seeds`` are those of each point.
        axes: values that are all tried with one another, by name: ``budget_bytes``, ``recipe``, or
            any value of a recipe such as ``hidden``, ``bits``, ``density`` and ``encoding``.
            ``BUDGETS`` of bytes where nothing has several values and no size is named.
        target: whose estimates of size and latency stand beside each point.
        target_options: the target's options; where None its defaults, ``TARGET_OPTIONS`` of
            ``TARGET``.
        out: the sweep's folder; ``sweeps/USE_CASE`` where None. One of the same sweep is gone on
            with.
        replace: throw the results of another sweep in that folder away.

    Raises:
        UsageError: an axis has no such name or no value, points are too many, or the base keeps
            an input.
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
                "a sweep tries inputs and shapes, --input-of keeps both: n3ic train retrains one"
            )
        count = 1
        for name, values in self.axes.items():
            if name not in (*_REQUEST_AXES, *recipe_values()):
                known = ", ".join((*_REQUEST_AXES, *recipe_values()))
                raise UsageError(f"{name!r} cannot be swept; what can: {known}")
            if not values:
                raise UsageError(f"{name.replace('_', '-')} has no value to try")
            count *= len(values)
        if count > MOST_POINTS:
            raise UsageError(f"{count:,} networks are asked for; {MOST_POINTS:,} at most")

    @property
    def told(self) -> Mapping[str, OptionValue]:
        """The target's options that are not its defaults."""
        if self.target_options is not None:
            return self.target_options
        return TARGET_OPTIONS if self.target == TARGET else {}

    @property
    def grid(self) -> Mapping[str, tuple[Any, ...]]:
        """The axes, those that are chosen where none is named included."""
        given = {*self.axes, *self.base.overrides}
        several = any(len(values) > 1 for values in self.axes.values())
        chosen = isinstance(self.base.recipe, Recipe) or self.base.budget_bytes is not None
        if several or chosen or not given.isdisjoint((*SIZES, "family")):
            return self.axes
        return {"budget_bytes": BUDGETS, **self.axes}


@dataclass(frozen=True, eq=False)
class SweepNetwork:
    """A network that a sweep asks for.

    Attributes:
        values: its places on the axes.
        recipe: how it is trained.
        command: the words of the command that trains it; None where there is none.
    """

    values: Mapping[str, Any]
    recipe: Recipe
    command: tuple[str, ...] | None


def places_text(values: Mapping[str, Any]) -> str:
    """Places on axes, in a line."""

    def text(value: Any) -> str:
        return "-".join(map(str, value)) if isinstance(value, tuple | list) else str(value)

    return ", ".join(f"{name.replace('_', ' ')} {text(v)}" for name, v in values.items())


def sweep_networks(
    request: SweepRequest, given: TrainingData
) -> tuple[list[SweepNetwork], list[str]]:
    """The networks of a sweep, those that are equal once, and why others cannot be.

    Args:
        request: the sweep.
        given: what it trains on.

    Returns:
        The networks, and a line about each that cannot be.

    Raises:
        UsageError: none can be.
    """
    found: list[SweepNetwork] = []
    refused: list[str] = []
    names = tuple(request.grid)
    for places in product(*request.grid.values()):
        values = dict(zip(names, places, strict=True))
        one = replace(
            request.base,
            **{n: values[n] for n in _REQUEST_AXES if n in values},
            overrides={
                **request.base.overrides,
                **{n: v for n, v in values.items() if n not in _REQUEST_AXES},
            },
        )
        try:
            recipe = one.chosen_recipe(given.case, given.n_classes)
            if one.budget_bytes is not None and not learner(recipe.family).budgeted:
                raise UsageError("a budget of bytes is for the weights of binary networks")
        except UsageError as error:
            refused.append(f"left out {places_text(values)}: {error}")
            continue
        if any(recipe == other.recipe for other in found):
            continue
        words = command_words(
            one, given.case, recipe, given.options, given.protocols[0], given.n_classes
        )
        found.append(SweepNetwork(values, recipe, None if words is None else tuple(words)))
    if not found:
        raise UsageError(f"none of these networks can be; {refused[0]}")
    return found, refused
