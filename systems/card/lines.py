"""TOML with the line of every entry, so that errors can name it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Where = tuple[str | int, ...]


def parse(text: str) -> tuple[dict[str, Any], dict[Where, int]]:
    """A document, and the line, from 1, at which each of its tables and keys stands.

    Entries of an inline table or array have the line of the key that it is the value of.

    Args:
        text: the document.

    Returns:
        Its tables, and lines by path; an index of an array of tables is an integer from 0.

    Raises:
        tomllib.TOMLDecodeError: it is no TOML; the text names line and column.
    """
    data = tomllib.loads(text)
    lines: dict[Where, int] = {(): 1}
    table: Where = ()
    counts: dict[Where, int] = {}
    for line, kind, keys in _statements(text):
        path: Where = () if kind != "key" else table
        for depth, key in enumerate(keys, start=1):
            path = (*path, key)
            lines.setdefault(path, line)
            last = depth == len(keys)
            if kind == "array" and last:
                counts[path] = counts.get(path, -1) + 1
            if kind != "key" and path in counts:  # the array's last table is meant
                path = (*path, counts[path])
                lines.setdefault(path, line)
        if kind != "key":
            table = path
    return data, lines


def line_of(lines: Mapping[Where, int], path: Where) -> int:
    """The line of an entry, or of the closest one around it that has one."""
    while path not in lines:
        path = path[:-1]
    return lines[path]


def _statements(text: str) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Line, kind (``table``, ``array``, ``key``) and key of each statement.

    A statement is complete as soon as it is a document by itself, which is what tells a line
    within a multi-line string or array from one that begins a statement.
    """
    start, gathered = 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        if not gathered:
            start = number
        gathered += line.removesuffix("\r") + "\n"
        try:
            found = tomllib.loads(gathered)
        except tomllib.TOMLDecodeError:
            continue
        head = gathered.lstrip()
        gathered = ""
        if not found:
            continue
        kind = "array" if head.startswith("[[") else "table" if head.startswith("[") else "key"
        yield start, kind, tuple(_keys(found, kind))


def _keys(found: Any, kind: str) -> Iterator[str]:
    """The key of a statement: of a value, its inline tables' keys follow while there is one."""
    while isinstance(found, dict) and len(found) == 1:
        key, found = next(iter(found.items()))
        yield key
        if kind == "array" and isinstance(found, list):
            return
