# SPDX-License-Identifier: Apache-2.0
"""Every value of a recipe as an option of a command, generated from the recipe itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from n3ic.options import Option, OptionValue


def recipe_options() -> tuple[Option, ...]:
    """One option per value; the recipe shows the defaults."""
    from n3ic.training.recipe import recipe_values

    return tuple(value.option for value in recipe_values().values())


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
