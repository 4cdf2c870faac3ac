# SPDX-License-Identifier: Apache-2.0
"""One renderer for the templates of every target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3ic.util.markdown import code, prose

if TYPE_CHECKING:
    from jinja2 import Environment


def render(
    folders: Path | tuple[Path, ...],
    name: str,
    values: Mapping[str, Any],
    filters: Mapping[str, Callable[..., Any]] | None = None,
) -> str:
    """Fill in a template; a missing value is an error.

    Block tags leave no line of their own, and the last line end is kept. Nothing is escaped: text
    of a model or a file goes through :mod:`n3ic.targets.identifiers` first, and in Markdown through
    the filters ``code`` or ``prose``.

    Args:
        folders: folders to search for the template and its includes, in this order.
        name: the template's file name.
        values: values of the template's variables.
        filters: functions that the template may apply, by name.
    """
    applied = tuple((filters or {}).items())
    return _environment(_folders(folders), applied, html=False).get_template(name).render(**values)


def render_html(folders: Path | tuple[Path, ...], name: str, values: Mapping[str, Any]) -> str:
    """Like :func:`render`, for HTML: every value is escaped."""
    return _environment(_folders(folders), (), html=True).get_template(name).render(**values)


def _folders(folders: Path | tuple[Path, ...]) -> tuple[Path, ...]:
    return folders if isinstance(folders, tuple) else (folders,)


@cache  # an environment keeps the templates that it compiled
def _environment(
    folders: tuple[Path, ...], filters: tuple[tuple[str, Callable[..., Any]], ...], *, html: bool
) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,  # a misspelt name must not become empty text
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=html,  # noqa: S701 - C, P4, Verilog and Markdown are no HTML
    )
    environment.filters |= {"code": code, "prose": prose, **dict(filters)}
    return environment
