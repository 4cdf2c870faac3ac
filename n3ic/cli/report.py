# SPDX-License-Identifier: Apache-2.0
"""``n3ic report``: one row per target."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from n3ic.cli.console import print_json, print_note, print_result, show_table, spinner
from n3ic.cli.rows import takes_rows
from n3ic.errors import UsageError
from n3ic.util.files import free_path, write_atomic

if TYPE_CHECKING:
    from n3ic.targets.batch import ExportOutcome
    from n3ic.targets.overview import TargetRow

_WIDE = 80
_NO_BREAK = "\u00a0"  # keeps a number and its unit on one line
_EQUALITY = 12  # width of the last column; the column before it gets the rest


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the command."""
    app.command("report")(report)


@takes_rows("data")
def report(
    run: Annotated[Path | None, typer.Argument(help="Run or model; default: newest run.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Print every figure of every target, with its source.")
    ] = False,
    exports: Annotated[
        Path | None,
        typer.Option(
            help="Folder of exports; those of the same models are used as they are.",
            show_default="exports, here or beside the run's folder",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with everything known about the run.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="With --html: labelled flows to use; default: the embedded sample."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="With --html: data set that reads them.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing page.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
) -> None:
    """Print a row per target: fit, memory, latency, throughput, resources, verification."""
    from n3ic.evaluation.plugin import tables_of
    from n3ic.runs.folder import open_models
    from n3ic.targets.batch import failure, report_all
    from n3ic.targets.overview import overview

    if html is not None:
        free_path(html, replace)
    elif data is not None or dataset is not None:
        raise UsageError("--data and --dataset go with --html")
    source, models, metrics = open_models(run)
    if run is None:
        print_note(f"run: {source}")
    with spinner("collecting and writing exports") as progress:
        places = exports_near(source) if exports is None else (exports,)
        outcomes = report_all(models, metrics, places, progress, print_note)
    rows = overview(outcomes)
    if html is not None:
        from n3ic.usecases.html_report.page import html_report

        with spinner("looking at flows"):
            page = html_report(source, models, metrics, rows, data=data, dataset=dataset)
        write_atomic(html, page)
        print_note(f"wrote {html}")
    if json:
        print_json({o.name: o.details() for o in outcomes})
    else:
        shapes = dict.fromkeys(m.shape_text for m in models.values())
        print_result(f"{source}: {', '.join(shapes)}")
        for line in rows_text(rows):
            print_result(line)
        for figures in tables_of(metrics or {}):
            show_table(figures)
        if every:
            _print_figures(outcomes)
    failed = failure(outcomes)
    if failed is not None:
        raise failed


def exports_near(source: Path) -> tuple[Path, ...]:
    """The folders ``exports`` of the working folder and of those that a run or model lies in.

    ``runs/NAME`` and ``exports`` lie in one folder, from where the report need not be called.
    """
    run = source if source.is_dir() else source.parent
    candidates = [parent / "exports" for parent in run.absolute().parents[:2]]
    own = Path("exports")
    return (own, *(folder for folder in candidates if folder != own.absolute()))


def _print_figures(outcomes: Sequence[ExportOutcome]) -> None:
    """Print every figure of every target, with its source."""
    for outcome in outcomes:
        print_result("")
        if outcome.exported is None:
            print_result(str(outcome))
            continue
        show_table(changed(outcome.exported.report.table, title=outcome.name))
        where = f"{outcome.exported.path}: " if outcome.permanent else ""
        print_result(f"{where}{outcome.equality}")
        for remark in outcome.exported.report.notes:
            print_result(f"- {remark}")


def rows_text(rows: Sequence[TargetRow], width: int = 0) -> list[str]:
    """The table as lines of at most 80 characters, or of the terminal's width if it is narrower.

    Args:
        rows: one row per target.
        width: characters per line; 0 for the terminal's width, 80 at most.
    """
    from n3ic.targets.overview import HEAD, LEGEND

    wide = width or min(_WIDE, shutil.get_terminal_size((_WIDE, 24)).columns)
    cells = [row.cells for row in rows]
    narrow = [max(len(c[i]) for c in (HEAD, *cells)) for i in range(5)]
    left = wide - sum(narrow) - _EQUALITY - 2 * (len(HEAD) - 1)  # two blanks between columns
    widths = (*narrow, max(left, len("resources")), _EQUALITY)
    lines = _lines(HEAD, widths)
    for row, of_row in zip(rows, cells, strict=True):
        lines += _lines(of_row, widths)
        for remark in row.remarks:
            lines += textwrap.wrap(remark, wide, initial_indent="  ", subsequent_indent="    ")
    return [
        line.replace(_NO_BREAK, " ").rstrip() for line in (*lines, *textwrap.wrap(LEGEND, wide))
    ]


def _lines(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The lines of a row; its last two cells wrap."""
    whole = (re.sub("(?<!,) ", _NO_BREAK, cells[5]), cells[6])  # resources break at commas only
    wrapped = [textwrap.wrap(c, width) for c, width in zip(whole, widths[5:], strict=True)]
    out = []
    for i in range(max(1, *map(len, wrapped))):
        row = (*(cells[:5] if i == 0 else [""] * 5), *("".join(w[i : i + 1]) for w in wrapped))
        columns = zip(row, widths, (*"<<>>><<",), strict=True)
        line = "  ".join(f"{cell:{side}{width}}" for cell, width, side in columns)
        out.append(line)
    return out
