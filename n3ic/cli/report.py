"""``n3ic report``: a row a target."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from n3ic.cli.console import note, print_json, say, show_table, working

if TYPE_CHECKING:
    from n3ic.targets.overview import Known, TargetRow

_HEAD = ("target", "fits", "bytes", "latency", "a second", "resources", "equality")
_WIDE = 80
_NO_BREAK = "\u00a0"  # between a number and its unit, while lines are wrapped
_EQUALITY = 12  # width of the last column; the one before it gets what is left


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(
    run: Annotated[Path | None, typer.Argument(help="A run or model; the newest run.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every figure of every target, with its source.")
    ] = False,
    exports: Annotated[
        Path, typer.Option(help="Exports of the same models there are reported on, not made anew.")
    ] = Path("exports"),
    json: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
) -> None:
    """Print a row a target: does it fit, memory, latency, throughput, resources, what is shown."""
    from n3ic.runs.folder import open_models
    from n3ic.targets.batch import report_all
    from n3ic.targets.overview import overview

    source, models, metrics = open_models(run)
    if run is None:
        note(f"run: {source}")
    with working("collecting and writing exports") as progress:
        found = report_all(models, metrics, exports, progress, note)
    if json:
        print_json({o.name: o.details() for o in found})
        return
    rows = overview(found)
    say(f"{source}: {', '.join(dict.fromkeys(m.shape_text for m in models.values()))}")
    for line in rows_text(rows):
        say(line)
    if every:
        for outcome in found:
            say("")
            if outcome.exported is None:
                say(f"{outcome.name}: {outcome.error}")
                continue
            show_table(replace(outcome.exported.report.table, title=outcome.name))
            where = f"{outcome.exported.path}: " if outcome.kept else ""
            say(f"{where}{outcome.equality}")
            for remark in outcome.exported.report.notes:
                say(f"- {remark}")


def rows_text(rows: Sequence[TargetRow], width: int = 0) -> list[str]:
    """The table as lines of at most 80 characters, or of the terminal where that is narrower.

    Args:
        rows: of the targets.
        width: of the lines; the terminal's, 80 at most, where 0.
    """
    wide = width or min(_WIDE, shutil.get_terminal_size((_WIDE, 24)).columns)
    cells = [_cells(row) for row in rows]
    narrow = [max(len(c[i]) for c in (_HEAD, *cells)) for i in range(5)]
    left = wide - sum(narrow) - _EQUALITY - 2 * (len(_HEAD) - 1)
    widths = (*narrow, max(left, len("resources")), _EQUALITY)
    lines = _lines(_HEAD, widths)
    for row, of_row in zip(rows, cells, strict=True):
        lines += _lines(of_row, widths)
        for remark in row.remarks:
            lines += textwrap.wrap(remark, wide, initial_indent="  ", subsequent_indent="    ")
    kinds = "m measured, s simulated, e estimated; equality: weights read back and compared "
    kinds += "(checked), artefacts run on vectors (tested)."
    return [line.rstrip() for line in (*lines, *textwrap.wrap(kinds, wide))]


def _cells(row: TargetRow) -> tuple[str, ...]:
    fits = "yes" if row.fitting else "no"
    if row.networks > 1:
        fits = f"{row.fitting}/{row.networks}" if row.together is not False else "apart"
    return (
        row.target,
        fits,
        "-" if row.bytes is None else f"{row.bytes:,}",
        "-" if row.latency is None else f"{duration(row.latency.value)} {row.latency.kind[0]}",
        "-" if row.throughput is None else _known(row.throughput),
        ", ".join(_known(r).replace(" ", _NO_BREAK) for r in row.resources) or "-",
        ", ".join(row.shown) or "-",
    )


def duration(nanoseconds: float) -> str:
    """A time with three digits and a unit that suits it."""
    for limit, scale, unit in ((1e3, 1.0, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if nanoseconds < limit:
            return f"{nanoseconds / scale:.3g} {unit}"
    return f"{nanoseconds / 1e9:,.3g} s"


def _known(found: Known) -> str:
    unit = "" if found.unit == "/s" else f" {found.unit}"
    return f"{number(found.value)}{unit} {found.kind[0]}"


def number(value: float) -> str:
    """A number with three digits, whole below a hundred thousand: ``589``, ``6.25M``."""
    for least, scale, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e5, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / scale:.3g}{letter}"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:.3g}"


def _lines(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """A row, its last two cells over as many lines as they need."""
    wrapped = [
        textwrap.wrap(cell, width) for cell, width in zip(cells[5:], widths[5:], strict=True)
    ]
    out = []
    for i in range(max(1, *map(len, wrapped))):
        row = (*(cells[:5] if i == 0 else [""] * 5), *("".join(w[i : i + 1]) for w in wrapped))
        columns = zip(row, widths, (*"<<>>><<",), strict=True)
        line = "  ".join(f"{cell:{side}{width}}" for cell, width, side in columns)
        out.append(line.replace(_NO_BREAK, " "))
    return out
