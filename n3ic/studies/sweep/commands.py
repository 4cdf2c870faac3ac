# SPDX-License-Identifier: Apache-2.0
"""The command ``n3ic sweep``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from n3ic.cli.console import print_note, training_bar
from n3ic.cli.outputs import show_result
from n3ic.cli.recipe_options import case_options
from n3ic.cli.rows import case_and_rows, takes_rows
from n3ic.cli.train import (
    MAX_SEED,
    DaskOption,
    DataOption,
    DatasetOption,
    JobsOption,
    ProtocolOption,
    add,
)
from n3ic.errors import UsageError
from n3ic.evaluation.study import Study
from n3ic.options import OptionValue


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the command.

    Args:
        app: the command line.
        words: typed words, which say whether the options of recipes and use cases are needed, too.
    """
    add(app, "sweep", sweep, words, panel="Train and use")


@takes_rows("data")
def sweep(
    use_case: Annotated[
        str | None, typer.Argument(help="anomaly, ...; default: flows, a table of your own.")
    ] = None,
    data: DataOption = None,
    dataset: DatasetOption = None,
    recipe: Annotated[str, typer.Option(help="Recipes of the use case.")] = "default",
    budget_bytes: Annotated[
        str | None,
        typer.Option(
            help="Most bytes in total; family, bits and layers are chosen. Default where no other "
            "value is named: 100 to 3200."
        ),
    ] = None,
    protocol: ProtocolOption = None,
    seed: Annotated[int, typer.Option(help="The first seed.", min=0, max=MAX_SEED)] = 0,
    seeds: Annotated[int, typer.Option(help="Report mean and deviation over N seeds.", min=1)] = 1,
    target: Annotated[
        str, typer.Option(help="Target of the estimates, as NAME or NAME:OPTION=VALUE,...")
    ] = "netfpga:style=unrolled",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the sweep; sweeps/USE_CASE by default.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Discard another sweep in that folder.")
    ] = False,
    jobs: JobsOption = None,
    dask: DaskOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the points as JSON.")] = False,
    given: Mapping[str, OptionValue] | None = None,
) -> None:
    """Train networks of many sizes, and find the best by bytes, sites and latency.

    Values separated by commas are combined with each other: --density 0.25,1 --hidden 32,64-16. An
    interrupted sweep resumes when the same command is run again.
    """
    from n3ic import plugins
    from n3ic.data.user_table import OWN
    from n3ic.studies.sweep.request import SweepRequest
    from n3ic.studies.sweep.training import sweep_use_case
    from n3ic.usecases.request import TrainRequest

    case, data = case_and_rows(use_case, data, plugins.names("n3ic.usecases"))
    typed = given or {}
    axes, fixed = swept(typed)
    if budget_bytes is not None:
        axes = {"budget_bytes": _whole_numbers("budget-bytes", budget_bytes), **axes}
    recipes = _parts(recipe)
    if len(recipes) > 1:
        axes = {"recipe": recipes, **axes}
    name, _, options_text = target.partition(":")
    base = TrainRequest(
        case or OWN,
        data=data,
        dataset=dataset,
        recipe=recipe if len(recipes) < 2 else recipes[0],
        overrides=fixed,
        options=case_options(typed),
        protocol=protocol,
        seed=seed,
        seeds=seeds,
        jobs=jobs,
        dask=dask,
    )
    request = SweepRequest(base, axes, name, _options(options_text), out, replace)
    with training_bar(quiet=json) as progress:
        result = sweep_use_case(request, progress)
    show_result(result, json=json, beside={"path": str(result.path)})
    print_note(f"{result.path}: report.md, points.csv, front.png")


def swept(typed: Mapping[str, OptionValue]) -> tuple[dict[str, tuple[Any, ...]], dict[str, Any]]:
    """Divide the values of a recipe into those that are swept and those that are fixed.

    Args:
        typed: typed text by option, with values separated by commas. Layers of a shape are
            separated by dashes. Columns and switches are the same for all networks.

    Returns:
        Swept and fixed values, by attribute of a recipe.

    Raises:
        UsageError: a text is not a valid value.
    """
    from n3ic.training.recipe import recipe_values

    axes: dict[str, tuple[Any, ...]] = {}
    fixed: dict[str, Any] = {}
    for value in recipe_values().values():
        text = typed.get(value.typed_name)
        if text is None:
            continue
        # A comma separates the columns of one value here, so these cannot be swept.
        if value.kind is bool or value.kind == tuple[str, ...]:
            fixed[value.name] = value.parse(text)
            continue
        if not (parts := _parts(str(text))):
            raise UsageError(f"--{value.typed_name}: no value to try")
        # A value that is typed twice, or in two ways, is tried once.
        axes[value.name] = tuple(dict.fromkeys(value.parse(part) for part in parts))
        if get_origin(value.kind) is tuple and () in axes[value.name]:
            raise UsageError(f"--{value.typed_name}: shapes such as 32,64-16 expected")
    return axes, fixed


def _parts(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _whole_numbers(name: str, text: str) -> tuple[int, ...]:
    parts = _parts(text)
    if not parts or not all(re.fullmatch("0*[1-9][0-9]{0,9}", part) for part in parts):
        raise UsageError(f"--{name}: numbers such as 256,512 expected, got {text!r:.60}")
    return tuple(map(int, parts))


def _options(text: str) -> dict[str, OptionValue]:
    """Parse the options of a target from ``NAME=VALUE,...``."""
    out: dict[str, OptionValue] = {}
    for part in _parts(text):
        name, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"--target: NAME:OPTION=VALUE,... expected, got {part!r:.60}")
        out[name] = value
    return out


STUDY = Study(register)
