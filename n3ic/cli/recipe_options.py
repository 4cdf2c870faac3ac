# SPDX-License-Identifier: Apache-2.0
"""Every value of a recipe as an option of a command, generated from the recipe itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from n3ic.options import Option, OptionValue

if TYPE_CHECKING:
    from n3ic.training.recipe import Recipe


def recipe_options(recipe: Recipe) -> tuple[Option, ...]:
    """One option per value.

    Args:
        recipe: the one whose values the help shows as defaults.
    """
    from n3ic.training.recipe import recipe_values

    return tuple(
        replace(value.option, default=as_typed(recipe.value(value.name)))
        for value in recipe_values().values()
    )


def as_typed(value: Any) -> bool | str:
    """A value of a recipe as a person types it."""
    if isinstance(value, bool):
        return value
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def recipe_overrides(typed_values: Mapping[str, OptionValue]) -> dict[str, Any]:
    """Convert typed options to values of a recipe, by attribute.

    Raises:
        UsageError: a text is not a valid value.
    """
    from n3ic.training.recipe import recipe_values

    pairs = ((value, typed_values.get(value.typed_name)) for value in recipe_values().values())
    return {value.name: value.parse(typed) for value, typed in pairs if typed is not None}


def case_options(typed_values: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """The typed options that are not values of a recipe, but options of the use case."""
    from n3ic.training.recipe import recipe_values

    of_recipe = {value.typed_name for value in recipe_values().values()}
    return {name: typed for name, typed in typed_values.items() if name not in of_recipe}
