# SPDX-License-Identifier: Apache-2.0
"""Every value of a recipe as an option of a command, generated from the recipe itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from n3ic.options import Option, OptionValue

if TYPE_CHECKING:
    from n3ic.training.recipe import Recipe


def recipe_options(recipe: Recipe | None = None) -> tuple[Option, ...]:
    """One option per value.

    Args:
        recipe: the recipe whose values the help shows as defaults; None for that of no use case.
    """
    from n3ic.training.recipe import Recipe, recipe_values

    shown = recipe or Recipe("default", "")
    return tuple(
        replace(value.option, default=as_typed(shown.value(value.name)))
        for value in recipe_values().values()
    )


def as_typed(value: Any) -> bool | str:
    """A value of a recipe as a person types it."""
    if isinstance(value, bool):
        return value
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def recipe_overrides(given: Mapping[str, OptionValue]) -> dict[str, Any]:
    """Convert typed options to values of a recipe, by attribute.

    Raises:
        UsageError: a text is not a valid value.
    """
    from n3ic.training.recipe import recipe_values

    found = ((value, given.get(value.typed_name)) for value in recipe_values().values())
    return {value.name: value.parse(typed) for value, typed in found if typed is not None}


def case_options(given: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """The typed options that are not values of a recipe, but options of the use case."""
    of_recipe = {option.name for option in recipe_options()}
    return {name: typed for name, typed in given.items() if name not in of_recipe}
