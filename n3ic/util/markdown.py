# SPDX-License-Identifier: Apache-2.0
"""Markdown as n3ic writes it: tables, text that cannot break them, and shares in percent."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from n3ic.util.names import visible

_RULES = {"l": "---", "r": "---:"}


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent, such as ``97.1 %``; empty for None."""
    return "" if value is None else f"{100 * value:.{digits}f} %"


def escaped(text: str) -> str:
    """Text on one line that cannot begin a cell, a tag or a character's name, such as ``&lt;``."""
    safe = re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("|", "\\|").replace("<", "&lt;")
    return " ".join(safe.split())


def prose(name: str) -> str:
    """A user's name in a sentence, a heading or a cell: no tag, no emphasis, one line."""
    text = html.escape(" ".join(visible(name).split()), quote=False)
    # An underscore between letters is no emphasis.
    return re.sub(r"[|`*~\[\]\\]|\b_+|_+\b", _entities, text)


def _entities(match: re.Match[str]) -> str:
    return "".join(f"&#{ord(character)};" for character in match[0])


def code(name: str) -> str:
    """A user's name as code, as it is, in a sentence, a list or a cell."""
    text = " ".join(visible(name).split())
    # Back-ticks end code, and bars a cell, in code as well.
    return f"<code>{prose(name)}</code>" if not text or {*text} & {*"`|"} else f"`{text}`"


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
