# SPDX-License-Identifier: Apache-2.0
"""Markdown as n3ic writes it: tables, text that cannot break them, and shares in percent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_RULES = {"l": "---", "r": "---:"}


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent, such as ``97.1 %``; empty for None."""
    return "" if value is None else f"{100 * value:.{digits}f} %"


def escaped(text: str) -> str:
    """Text on one line that cannot begin a cell or a tag."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "lr") -> list[str]:
    """The lines of a table; its cells are escaped.

    Args:
        head: column names.
        rows: one cell per column.
        align: ``l`` (left) or ``r`` (right) for each column; the last letter holds for the rest.
    """
    sides = align + align[-1] * (len(head) - len(align))
    rule = "".join(f"|{_RULES[side]}" for side in sides[: len(head)]) + "|"
    return [_row(head), rule, *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"
