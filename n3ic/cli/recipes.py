# SPDX-License-Identifier: Apache-2.0
"""``n3ic recipes``: the values of a recipe, and the options that replace them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from n3ic.cli.console import print_json, print_result, table
from n3ic.errors import UsageError

if TYPE_CHECKING:
    from n3ic.training.recipe import Recipe


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the commands."""
    group = typer.Typer(help="List recipes, or show each value of one.", no_args_is_help=True)
    group.command("list")(list_recipes)
    group.command("show")(show)
    app.add_typer(group, name="recipes")


def list_recipes(
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List the recipes of each use case."""
    from n3ic import plugins
    from n3ic.usecases.base import use_case

    cases = {name: use_case(name).recipes for name in plugins.names("n3ic.usecases")}
    if json:
        print_json(
            {name: {r.name: r.summary for r in recipes.values()} for name, recipes in cases.items()}
        )
        return
    for name, recipes in cases.items():
        for recipe in recipes.values():
            print_result(f"{name:<16}{recipe.name:<18}{recipe.summary}")


def show(
    name: Annotated[str, typer.Argument(help="A recipe, such as default.")],
    use_case: Annotated[
        str | None, typer.Argument(help="Its use case; default: flows, else any that has it.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Print each value of a recipe, and the option that replaces it."""
    from n3ic import plugins
    from n3ic.data.user_table import OWN
    from n3ic.errors import did_you_mean
    from n3ic.usecases.base import use_case as named

    cases = [named(use_case)] if use_case else [*map(named, plugins.names("n3ic.usecases"))]
    cases.sort(key=lambda case: case.name != OWN)  # flows first, the others stay in order
    known = {recipe: None for case in cases for recipe in case.recipes}
    if name not in known:
        raise UsageError(
            f"unknown recipe {name!r}: {did_you_mean(name, known)}known: {', '.join(known)}"
        )
    case = next(case for case in cases if name in case.recipes)
    if json:
        print_json(case.recipes[name].to_dict())
    else:
        show_recipe(case.name, case.recipes[name])


def show_recipe(case: str, recipe: Recipe) -> None:
    """Print the values that matter for the recipe's family, by the options that replace them."""
    from n3ic.training.recipe import Recipe, Training, recipe_values

    def shown(value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

    owners = Recipe, Training if recipe.settings is None else type(recipe.settings)
    rows = [
        [f"--{v.typed_name}", shown(recipe.value(v.name)), v.help]
        for v in recipe_values().values()
        if v.owner in owners
    ]
    title = f"recipe {recipe.name} of {case}: {recipe.summary}"
    table(title, ["option", "value", "what it is"], rows, left=3)
    print_result(f"n3ic train {case} --recipe {recipe.name} --OPTION VALUE replaces a value")
