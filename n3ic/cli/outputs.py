# SPDX-License-Identifier: Apache-2.0
"""What commands of studies and systems print and write: results, files, pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from n3ic.cli.console import print_json, print_result, show_table
from n3ic.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from n3ic.evaluation.study import StudyResult


class Written(Protocol):
    """An object that can be written as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object as plain data."""


def show_result(
    result: StudyResult, *, json: bool, beside: Mapping[str, Any] | None = None
) -> None:
    """Print the result of a study: as JSON, or its tables, conclusions and commands.

    Args:
        result: the result.
        json: whether to print JSON.
        beside: further entries of the JSON, such as the folder of the result.
    """
    if json:
        print_json({**result.to_dict(), **(beside or {})})
        return
    for each in result.tables:
        show_table(each)
    for line in (*result.conclusions, *(f"{n}: {c}" for n, c in result.commands.items())):
        print_result(line)


def free_files(*paths: Path | None, replace: bool) -> None:
    """Check that files do not exist, and that their folders are writable.

    Raises:
        UsageError: a file exists or a folder is not writable; the error names the first.
    """
    from n3ic.util.files import free_path

    for path in paths:
        if path is not None:
            free_path(path, replace)


def check_picture(path: Path | None, option: str) -> None:
    """Check that a picture's name ends in .png or .svg.

    Raises:
        UsageError: it does not; the error names the option.
    """
    if path is not None and path.suffix not in (".png", ".svg"):
        raise UsageError(f"{option}: expected a name that ends in .png or .svg, got {path}")


def write_picture(path: Path, draw: Callable[[], Figure]) -> None:
    """Write a picture atomically, in the format of its suffix."""
    # Imported here: a command that draws nothing should not pay for matplotlib.
    from n3ic.util.files import new_file
    from n3ic.util.pictures import write

    with new_file(path) as stream:
        write(draw(), stream, "svg" if path.suffix == ".svg" else "png")


def write_plan(
    plan: Written,
    out: Path | None,
    picture: Path | None = None,
    draw: Callable[[], Figure] | None = None,
    *,
    quiet: bool,
) -> None:
    """Write a plan as JSON and as a picture, as requested.

    Args:
        plan: the plan.
        out: file for the JSON, or None.
        picture: file for the picture, or None.
        draw: function that draws the picture; None if there is none.
        quiet: whether standard output is reserved for JSON.
    """
    from n3ic.util.files import write_atomic
    from n3ic.util.json_text import json_text

    if out is not None:
        write_atomic(out, json_text(plan.to_dict()))
    if picture is not None and draw is not None:
        write_picture(picture, draw)
    # With --json, standard output holds one document and nothing else.
    if not quiet:
        for path in filter(None, (out, picture)):
            print_result(f"{path} written")
