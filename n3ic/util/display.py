# SPDX-License-Identifier: Apache-2.0
"""How objects show themselves: a line in a terminal, tables in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from n3ic.util.templates import render_html

HTML = Path(__file__).with_name("html")
_LINE = 200  # characters of a line in a terminal
_SHOWN = 60  # rows of a table in a notebook


@dataclass(frozen=True)
class TextTable:
    """A table of text.

    Attributes:
        title: what it is about.
        head: column names.
        rows: as many cells each; the first one names the row.
        left: how many columns stand left; the others are numbers and stand right.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


@dataclass(frozen=True)
class View:
    """What an object shows of itself.

    Attributes:
        line: what it is, in a line.
        tables: more of it.
        notes: sentences that a reader needs.
    """

    line: str
    tables: tuple[TextTable, ...] = ()
    notes: tuple[str, ...] = ()


class Displayed(ABC):
    """An object that is a line in a terminal (``repr``) and tables in a notebook.

    A dataclass that is one says ``repr=False``.
    """

    @abstractmethod
    def view(self) -> View:
        """What it shows of itself; called often, so it counts and does not compute."""

    def __repr__(self) -> str:
        line = " ".join(visible(self.view().line).split())
        cut = line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"
        return f"<{type(self).__name__} {cut}>"

    def _repr_html_(self) -> str:
        values = {"kind": type(self).__name__, "view": self.view(), "shown": _SHOWN}
        return visible(render_html(HTML, "view.html.j2", values))


def facts(title: str, pairs: Iterable[tuple[str, object]]) -> TextTable:
    """A table of names and values; what is None or empty is left out."""
    rows = ((name, str(value)) for name, value in pairs if value not in (None, ""))
    return TextTable(title, ("", ""), tuple(rows), left=2)


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names side by side, the first of them where they are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def visible(text: str) -> str:
    """Text without control characters: names from files must not move a terminal's cursor.

    Line ends and tabs stay; other characters that are not printable are shown as escapes.
    """
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii")
        for c in text
    )
