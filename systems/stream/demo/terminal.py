# SPDX-License-Identifier: Apache-2.0
"""Shows the demonstration on the terminal: tables that grow, and a summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from n3ic.cli.console import console, print_note
from n3ic.systems.stream.demo.loop import LoopFigures, LoopWindow
from n3ic.util.display import TextTable
from n3ic.util.markdown import percent

_HEAD = ("flows", "traffic", "shunted", "card", "rest", "all", "labels", "kernel", "swaps")
_SHOWN = 6  # digits of a digest


def _share(value: float | None) -> str:
    return "-" if value is None else percent(value, 0)


def _row(window: LoopWindow) -> tuple[str, ...]:
    return (
        f"{window.flows:,}",
        "new" if window.changed else "old",
        *map(_share, (window.shunted, window.card, window.rest, window.both)),
        f"{window.labelled:,}",
        window.kernel[:_SHOWN],
        str(window.pushes),
    )


def loop_table(f: LoopFigures) -> TextTable:
    """A row for each window."""
    title = (
        f"{f.flows:,} of {f.total:,} flows in {f.seconds:.1f} s, {f.refreshed} models trained; "
        "right by the card, by the second stage of the rest, of all"
    )
    return TextTable(title, _HEAD, tuple(map(_row, f.windows)), 2)


def loop_lines(f: LoopFigures) -> list[str]:
    """The lines of the summary."""
    shares = (f"{name} {percent(window.both)}" for name, window in f.summary().items())
    swaps = f.windows[-1].pushes if f.windows else 0
    return [
        f"flows decided right: {', '.join(shares)}",
        f"{f.refreshed} models trained, {swaps} swapped in, {f.failed} swaps failed; "
        f"{f.total - f.flows:,} flows lost on the link, {f.lost:,} in the ring buffer; "
        f"{f.unlike:,} with other scores than their model's",
    ]


@contextmanager
def watched(quiet: bool) -> Iterator[tuple[Callable[[LoopFigures], object], Callable[[str], None]]]:
    """Show progress live on standard error.

    If standard error is not a terminal, each row of the table and each line is printed as a note.

    Yields:
        A function that shows the loop, and one that shows a line.
    """
    screen = console(stderr=True)
    if quiet or not screen.is_terminal:
        count_shown = 0

        def note(figures: LoopFigures) -> None:
            nonlocal count_shown
            for window in figures.windows[count_shown:]:
                cells = zip(_HEAD, _row(window), strict=True)
                print_note(", ".join(f"{name} {cell}" for name, cell in cells))
            count_shown = len(figures.windows)

        yield (lambda _: None, lambda _: None) if quiet else (note, print_note)
        return
    from rich.live import Live
    from rich.table import Table

    def rich_table(text_table: TextTable) -> Table:
        out = Table(title=text_table.title, title_justify="left")
        for name in text_table.head:
            out.add_column(name, justify="right")
        for row in text_table.rows:
            out.add_row(*row)
        return out

    with Live(console=screen, transient=True) as live:
        yield lambda figures: live.update(rich_table(loop_table(figures))), live.update
