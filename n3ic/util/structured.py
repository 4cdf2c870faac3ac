# SPDX-License-Identifier: Apache-2.0
"""Reads TOML and JSON files that a user names, links and pipes included, up to a given size."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from n3ic.errors import N3icError


def read_bounded(path: str | Path, most: int, error: type[N3icError], description: str) -> bytes:
    """The bytes of a file; see ``read_regular`` for one that another user may control.

    Args:
        path: the file.
        most: largest size in bytes.
        error: class of the error if the file cannot be read or is too large.
        description: what the file ought to be, with its article, for that error.
    """
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(most + 1)  # one byte more reveals a larger file
    except (OSError, ValueError) as failure:  # a name with a NUL is a ValueError
        reason = getattr(failure, "strerror", "") or failure
        raise error(f"{path}: cannot be read: {reason}") from failure
    if len(data) > most:
        size = f"{most >> 20} MiB" if most >> 20 else f"{most >> 10} KiB"
        raise error(f"{path}: not {description}: larger than {size}")
    return data


def read_toml(
    path: str | Path, most: int, error: type[N3icError], description: str
) -> dict[str, Any]:
    """The content of a TOML file; see :func:`read_bounded`."""
    try:
        return tomllib.loads(read_bounded(path, most, error, description).decode())
    except (ValueError, RecursionError) as failure:
        raise error(f"{path}: not a TOML file: {str(failure)[:200]}") from failure


def read_json(path: str | Path, most: int, error: type[N3icError], description: str) -> Any:
    """The content of a JSON file; see :func:`read_bounded`."""
    try:
        return json.loads(read_bounded(path, most, error, description))
    except (ValueError, RecursionError) as failure:
        raise error(f"{path}: not a JSON file: {str(failure)[:200]}") from failure
