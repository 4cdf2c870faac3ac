# SPDX-License-Identifier: Apache-2.0
"""``n3ic data audit``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from n3ic.cli.console import print_note, spinner
from n3ic.cli.data import KnownDataSet, TableLabel
from n3ic.cli.rows import takes_rows
from n3ic.errors import UsageError
from n3ic.evaluation.study import Study

if TYPE_CHECKING:
    from n3ic.data.dataset import DataSet
    from n3ic.data.table import FlowTable
    from n3ic.studies.audit.audit import Audit
    from n3ic.training.recipe import Recipe

_LOSSES = 8


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the command."""
    app.command("audit")(audit)


@takes_rows("path")
def audit(
    path: Annotated[
        str, typer.Argument(metavar="TABLE", help="Files, a folder, or an embedded data set.")
    ],
    name: KnownDataSet = None,
    label: TableLabel = "",
    mark: Annotated[
        list[str] | None,
        typer.Option(help="Marked column, repeatable; default: addresses, TTLs, ports, times."),
    ] = None,
    columns: Annotated[
        str,
        typer.Option(help="Columns to audit, comma-separated, or 'all'; default: those in use."),
    ] = "",
    within: Annotated[
        str,
        typer.Option(
            help="Columns that divide the rows; default: protocol, state and frequent ports."
        ),
    ] = "",
    pairs: Annotated[
        int, typer.Option(help="Try all pairs of the N most revealing columns.", min=0, max=64)
    ] = 16,
    bar: Annotated[
        float, typer.Option(help="Balanced accuracy at which a column leaks.", max=1.0)
    ] = 0.95,
    rows: Annotated[int, typer.Option(help="Read at most this many rows.", min=200)] = 30_000,
    losses: Annotated[
        int, typer.Option(help="Measure the loss without the N most revealing columns.", min=0)
    ] = _LOSSES,
    network: Annotated[
        str, typer.Option(help="Measure the loss on networks of this recipe, not boosted trees.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of all random choices.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .md (with its picture), .csv or .json.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Picture to write: .png or .svg.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Find columns that are an address, a TTL, a time or a capture in disguise.

    A column leaks if it reveals a marked column's value within one class, protocol, state and port.
    Columns that training leaves out or doubts, such as a second label, are listed first.
    """
    from n3ic.cli.outputs import check_picture, free_files, show_result
    from n3ic.evaluation.study import write_result
    from n3ic.studies.audit.audit import AuditRequest
    from n3ic.studies.audit.audit import audit as audit_table

    if out is not None and out.suffix not in (".md", ".csv", ".json"):
        raise UsageError(f"--out: expected a name that ends in .md, .csv or .json, got {out}")
    if out is not None and out.suffix == ".md" and picture is None:
        picture = out.with_suffix(".png")
    check_picture(picture, "--picture")
    free_files(out, picture, replace=replace)
    request = AuditRequest(
        marks=tuple(mark or ()),
        columns=_names(columns),
        within=_names(within),
        pairs=pairs,
        bar=bar,
        rows=rows,
        seed=seed,
    )
    table, source = _table(path, name, label)
    with spinner("auditing") as tell:
        found = audit_table(table, source, request, tell)
        if losses:
            found = _with_losses(found, table, source, losses, network, seed, tell)
    written = write_result(found, out, picture)
    show_result(found, json=json)
    for file in written:
        print_note(f"wrote {file}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _table(path: str, name: str | None, label: str) -> tuple[FlowTable, DataSet]:
    """Return the flows and the data set that read them.

    Raises:
        UsageError: no data set knows the files, or the label of a table is unknown.
        DataError: a file is malformed.
    """
    from n3ic import plugins
    from n3ic.data.dataset import data_set, data_set_of
    from n3ic.data.user_table import OWN, describe, description_beside, need_label
    from n3ic.usecases.base import use_case

    if path in plugins.names("n3ic.datasets") and not Path(path).exists():
        source = data_set(path)
        return source.load(), source
    if name == OWN or label or (name is None and description_beside(path)):
        if label:  # as training on this table reads it, with a layout's derived columns
            said = {"label": label, "positive": "", "description": ""}
            table = use_case(OWN).load(path, name, said, lambda line: None)
            if table.rules is None:
                print_note(f"read by the data set {table.name}; --dataset {OWN} infers the columns")
                return table, data_set(table.name)
        own, facts = describe(path, label)
        need_label(own, facts, path)
        return own.load(path), own
    source = data_set(name) if name else data_set_of(path)
    return source.load(path), source


def _with_losses(
    found: Audit,
    table: FlowTable,
    source: DataSet,
    most: int,
    recipe: str,
    seed: int,
    tell: Callable[[str], object],
) -> Audit:
    """Return the audit with the loss for each revealing column, and for all that leak together."""
    from n3ic.studies.audit.ablation import boosted, losses, network

    used = [c for c in found.columns if c in {*table.usable, *found.suspects}]
    base = tuple(dict.fromkeys([*(c for c in table.usable if c not in found.columns), *used]))
    first = dict.fromkeys([*found.suspects, *(f.columns[0] for f in found.best())])
    alone = [name for name in first if name in used][:most]
    asked: list[tuple[str, ...]] = [(name,) for name in alone]
    if len(found.suspects) > 1:
        asked.append(found.suspects)
    if recipe:
        kind, right = "networks", network(table, _recipe(recipe, source), seed, tell)
    else:
        tell("boosted trees with and without columns")
        kind, right = "boosted trees", boosted(table, seed)
    return replaced(found, losses=losses(right, kind, base, asked))


def _recipe(name: str, source: DataSet) -> Recipe:
    """Return a recipe of the use case that trains on a data set, or on any table.

    Raises:
        UsageError: the use case has no such recipe.
    """
    from n3ic import plugins
    from n3ic.data.user_table import OWN
    from n3ic.usecases.base import use_case

    cases = map(use_case, plugins.names("n3ic.usecases"))
    case = next((c for c in cases if source.name in (c.dataset, c.default)), use_case(OWN))
    if name not in case.recipes:
        raise UsageError(f"{case.name} has no recipe {name!r}; it has {', '.join(case.recipes)}")
    return case.recipes[name]


STUDY = Study(register, group="data")
