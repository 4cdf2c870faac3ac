# SPDX-License-Identifier: Apache-2.0
"""``n3ic data audit``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from n3ic.cli.console import print_note, spinner
from n3ic.cli.data import KnownDataSet, TableLabel
from n3ic.cli.rows import takes_rows
from n3ic.errors import UsageError
from n3ic.evaluation.study import Study

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
    from n3ic.studies.audit.study import audit_with_losses, audited_table

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
    table, source = audited_table(path, name, label, print_note)
    with spinner("auditing") as notify:
        result = audit_with_losses(table, source, request, losses, network, notify)
    written = write_result(result, out, picture)
    show_result(result, json=json)
    for file in written:
        print_note(f"wrote {file}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


STUDY = Study(register, group="data")
