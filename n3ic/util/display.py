# SPDX-License-Identifier: Apache-2.0
"""How objects are displayed: as a line in a terminal, as tables in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from n3ic.util.names import visible
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
        rows: one cell per column; the first one names the row.
        left: number of left-aligned columns; the others hold numbers and are right-aligned.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


@dataclass(frozen=True)
class View:
    """The display of an object.

    Attributes:
        line: what it is, in one line.
        tables: its details.
        notes: remarks, as sentences.
    """

    line: str
    tables: tuple[TextTable, ...] = ()
    notes: tuple[str, ...] = ()


class Displayed(ABC):
    """An object displayed as a line in a terminal (``repr``) and as tables in a notebook.

    A dataclass that derives from it must set ``repr=False``.
    """

    @abstractmethod
    def view(self) -> View:
        """The line and tables to display; called often, so it must be quick."""

    def __repr__(self) -> str:
        line = " ".join(visible(self.view().line).split())
        cut = line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"
        return f"<{type(self).__name__} {cut}>"

    def _repr_html_(self) -> str:
        values = {"kind": type(self).__name__, "view": self.view(), "shown": _SHOWN}
        return visible(render_html(HTML, "view.html.j2", values))


def facts(title: str, pairs: Iterable[tuple[str, object]]) -> TextTable:
    """A table of names and values, without values that are None or empty."""
    rows = ((name, str(value)) for name, value in pairs if value not in (None, ""))
    return TextTable(title, ("", ""), tuple(rows), left=2)


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names separated by commas; only the first ``most`` and a count if there are more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
