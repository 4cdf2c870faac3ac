# SPDX-License-Identifier: Apache-2.0
"""The shape of a study: what the command line adds, and a result that is shown and written alike.

A study looks at one model, at a table or at captures. Its request is a frozen dataclass; its result
is a :class:`StudyResult`.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3ic import plugins
from n3ic.errors import UsageError
from n3ic.util.display import Displayed, TextTable, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUP = "n3ic.studies"
PAGE, CSV, JSON = ".md", ".csv", ".json"


class StudyResult(Displayed):
    """The result of a study, for the terminal, notebooks, pages and files.

    A dataclass that derives from it must set ``repr=False``.
    """

    @property
    @abstractmethod
    def title(self) -> str:
        """What was studied, in one line."""

    @property
    @abstractmethod
    def tables(self) -> tuple[TextTable, ...]:
        """The figures."""

    @property
    def conclusions(self) -> tuple[str, ...]:
        """What follows from them or limits them, a line each."""
        return ()

    @property
    def commands(self) -> Mapping[str, str]:
        """Commands for a shell by what they belong to, such as the row of a table."""
        return {}

    def figure(self) -> Figure | None:
        """The picture; None if there is nothing to draw.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        return None

    def records(self) -> Sequence[Mapping[str, object]]:
        """The rows of the CSV file, all with the same columns."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; by default the fields of the dataclass."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def view(self) -> View:
        """The title, the tables, the commands and the conclusions."""
        commands = TextTable("commands", ("", "command"), tuple(self.commands.items()), left=2)
        tables = (*self.tables, commands) if commands.rows else self.tables
        return View(self.title, tables, self.conclusions)


@dataclass(frozen=True)
class Study:
    """A study for the command line; an entry point in the group ``n3ic.studies`` names one.

    Its module must import quickly, because the help loads it.

    Attributes:
        register: adds its command to a :class:`typer.Typer`; the typed words tell which options are
            needed. None without a command.
        group: the group of commands that has its command, such as ``data``; empty for none.
        bench: measures with ``n3ic bench NAME``, on a capture or generated packets, and returns a
            :class:`~n3ic.targets.figures.Bench`. None if it is no benchmark.
    """

    register: Callable[[Any, Sequence[str]], None] | None = None
    group: str = ""
    bench: Callable[[str | Path | None], Any] | None = None


def study(name: str) -> Study:
    """The study of that name.

    Raises:
        UsageError: no study has that name, or its entry point names something else.
        MissingDependencyError: it needs a library that is not installed.
    """
    plug_in = plugins.load(GROUP, name)
    if not isinstance(plug_in, Study):
        raise UsageError(f"the study {name!r} is not an n3ic Study")
    return plug_in


def bench_of(name: str) -> Callable[[str | Path | None], Any] | None:
    """The benchmark of that name; None if no study is one."""
    return study(name).bench if name in plugins.names(GROUP) else None


def page_text(result: StudyResult, picture: str = "") -> str:
    """Format a result as a Markdown page.

    Args:
        result: the result.
        picture: file name of the picture beside the page; empty for none.
    """
    from n3ic.util.markdown import escaped, table
    from n3ic.util.names import visible

    lines = [f"# {escaped(result.title)}", ""]
    lines += [*(f"- {escaped(line)}" for line in result.conclusions), ""]
    for each in result.tables:
        head = escaped(each.title[:1].upper() + each.title[1:])
        lines += [f"## {head}", ""] if head else []
        lines += [*table(each.head, each.rows, "l" * each.left + "r"), ""]
    commands = [visible(f"{command}  # {name}") for name, command in result.commands.items()]
    lines += ["```sh", *commands, "```", ""] if commands else []
    lines += [f"![{escaped(result.title)}]({picture})", ""] if picture else []
    return "\n".join(lines).rstrip() + "\n"


def csv_text(result: StudyResult) -> bytes:
    """Format the records of a result as CSV in UTF-8."""
    from n3ic.data.streaming import csv_cell

    records = result.records()
    stream = io.BytesIO()
    for cells in ([*records[0]], *(each.values() for each in records)) if records else ():
        texts = (csv_cell(v) if isinstance(v, str) else _number(v) for v in cells)
        stream.write(b",".join(texts) + b"\n")
    return stream.getvalue()


def _number(value: object) -> bytes:
    return b"" if value is None else str(value).encode()


def write_result(
    result: StudyResult, out: Path | None = None, picture: Path | None = None, kind: str = ""
) -> tuple[Path, ...]:
    """Write a result and its picture, each atomically, in the format of the file's suffix.

    Args:
        result: the result.
        out: a page (``.md``), ``.csv`` or ``.json``; None for none.
        picture: ``.png`` or ``.svg``, which a page shows if it lies in the same folder; None for
            none.
        kind: the suffix whose format ``out`` has; empty for its own.

    Returns:
        The files written: without a figure, no picture.
    """
    from n3ic.util.files import new_file, write_atomic
    from n3ic.util.json_text import json_text
    from n3ic.util.pictures import write

    written = []
    figure = None if picture is None else result.figure()
    if picture is not None and figure is not None:
        with new_file(picture) as stream:
            write(figure, stream, "svg" if picture.suffix == ".svg" else "png")
        written.append(picture)
    if out is not None:
        kind = kind or out.suffix
        if kind == CSV:
            write_atomic(out, csv_text(result))
        elif kind == JSON:
            write_atomic(out, json_text(result.to_dict()))
        else:
            write_atomic(out, page_text(result, *(path.name for path in written)))
        written.insert(0, out)
    return tuple(written)
