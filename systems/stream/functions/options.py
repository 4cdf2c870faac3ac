# SPDX-License-Identifier: Apache-2.0
"""Checks the options of functions."""

from __future__ import annotations

from collections.abc import Mapping
from io import BufferedWriter
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError


def only(options: Mapping[str, Any], *names: str) -> None:
    """Check that there are no options other than the known ones.

    Raises:
        UsageError: There is another option.
    """
    for name in options:
        if name not in names:
            raise UsageError(f"options.{name}: unknown, expected {', '.join(names)}")


def path_of(options: Mapping[str, Any], name: str) -> Path:
    """The path that an option gives.

    Raises:
        UsageError: The option is missing or is not a path.
    """
    value = options.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"options.{name}: expected a path, got {value!r}")
    return Path(value)


def open_output(path: Path) -> BufferedWriter:
    """Open a file to which a function appends, also after a restart.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        return path.open("ab")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
