# SPDX-License-Identifier: Apache-2.0
"""Output of the commands: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from n3ic.util.display import TextTable
from n3ic.util.names import visible

if TYPE_CHECKING:
    from rich.console import Console

    from n3ic.options import Option
    from n3ic.runs.progress import TrainingProgress


def console(*, stderr: bool = False) -> Console:
    """A console; it prints plain text if the stream is not a terminal."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def print_result(text: str) -> None:
    """Print one or more lines of the result."""
    sys.stdout.write(visible(text) + "\n")


def print_note(text: str) -> None:
    """Print a remark on standard error."""
    sys.stderr.write(f"n3ic: {visible(text)}\n")


def print_error(text: str) -> None:
    """Print why a command failed."""
    sys.stderr.write(f"n3ic: error: {' '.join(visible(text).split())}\n")  # on one line


def list_options(options: Sequence[Option]) -> None:
    """Print the options of a use case or a generator, one per line."""
    for option in options:
        print_result(f"  --{option.name:<19} {option.help} [{option.default}]")


def print_json(data: Any) -> None:
    """Print data as JSON."""
    print_result(json.dumps(data, indent=2, sort_keys=True))


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    screen: Console | None = None,
) -> None:
    """Print a table of text; all but the first ``left`` columns are right-aligned.

    Args:
        title: what it is about.
        columns: column names.
        rows: one cell per column.
        left: number of left-aligned columns.
        screen: where it is printed; None for standard output.
    """
    from rich.table import Table
    from rich.text import Text

    out = Table(title=Text(visible(title)), title_justify="left", title_style="bold")
    for i, name in enumerate(columns):
        out.add_column(name, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        out.add_row(*(Text(visible(cell)) for cell in row))
    screen = screen or console()
    if not screen.is_terminal:
        screen.width = 160  # a file or a pipe has no width
    screen.print(out)


def show_table(content: TextTable, screen: Console | None = None) -> None:
    """Print a :class:`TextTable`, on standard output or another screen."""
    table(content.title, content.head, content.rows, left=content.left, screen=screen)


def _show_columns(uses: Sequence[Mapping[str, Any]], screen: Console) -> None:
    from n3ic.runs.column_uses import columns_table

    if uses_table := columns_table(uses):
        show_table(uses_table, screen)


@contextmanager
def training_bar(quiet: bool) -> Iterator[TrainingProgress]:
    """Show a progress bar on standard error during training."""
    from n3ic.runs.progress import TrainingProgress

    screen = console(stderr=True)
    if quiet:
        yield TrainingProgress()
        return
    if not screen.is_terminal:
        yield TrainingProgress(
            stage=print_note,
            begin=lambda text, _: print_note(text),
            note=print_note,
            columns=lambda uses: _show_columns(uses, screen),
        )
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figure]}"),
        console=screen,
        transient=True,
    ) as progress:
        bar = progress.add_task("starting", total=1, figure="")

        def begin(text: str, count: int) -> None:
            progress.reset(bar, total=count, description=text, figure="")

        def stage(text: str) -> None:
            begin(text, 1)

        def epoch(entry: Any, count: int) -> None:
            progress.update(
                bar,
                completed=entry.number,
                total=count,
                description="training the binary network",
                figure=f"validation {entry.validation_accuracy:.2%}",
            )

        def task(name: str) -> None:
            progress.update(bar, advance=1, figure=name)

        def stays(text: str) -> None:
            progress.console.print(f"n3ic: {visible(text)}", markup=False)

        yield TrainingProgress(
            epoch=epoch,
            stage=stage,
            begin=begin,
            task=task,
            note=stays,
            columns=lambda uses: _show_columns(uses, progress.console),
        )


@contextmanager
def spinner(text: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on standard error; yield a function that changes its text."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda _: None
        return
    with screen.status(text) as status:
        yield lambda changed: status.update(changed)


@contextmanager
def counting_bar(text: str, unit: str) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error for work of unknown length; yield a function for the count."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn(text), BarColumn(), TextColumn("{task.fields[count]}"), TimeElapsedColumn()
    with Progress(*columns, console=screen, transient=True) as progress:
        bar = progress.add_task(text, total=None, count="")
        yield lambda count: progress.update(bar, count=f"{count:,} {unit}")


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[float, str], None]]:
    """Show a bar on standard error; yield a function for the share done (0 to 1) and a text."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda share, status: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(text),
        BarColumn(),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as progress:
        bar = progress.add_task(text, total=None, status="")
        yield lambda share, status: progress.update(
            bar, completed=share, total=1.0 if share else None, status=status
        )
