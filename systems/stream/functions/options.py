# SPDX-License-Identifier: Apache-2.0
"""Options of functions, checked."""

from __future__ import annotations

from collections.abc import Mapping
from io import BufferedWriter
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError


def only(options: Mapping[str, Any], *known: str) -> None:
    """Refuse options of other names.

    Raises:
        UsageError: there is one.
    """
    for name in options:
        if name not in known:
            raise UsageError(f"options.{name}: unknown, expected {', '.join(known)}")


def path_of(options: Mapping[str, Any], name: str) -> Path:
    """The path that an option gives.

    Raises:
        UsageError: it gives none.
    """
    value = options.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"options.{name}: expected a path, got {value!r}")
    return Path(value)


def open_output(path: Path) -> BufferedWriter:
    """A file to which a function appends; a function that was started again goes on with it.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        return path.open("ab")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
