# SPDX-License-Identifier: Apache-2.0
"""TOML with the line of every entry, so that errors can name it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Where = tuple[str | int, ...]

DEEPEST = 64  # brackets within brackets
MOST_PARTS = 8  # of a dotted key: tomllib keeps every prefix of it
LONGEST_WORD = 1000  # characters of a number or of a bare key

# Every position of any text matches some token, so a document is scanned once, in linear time. The
# possessive quantifiers (++, *+) rule out backtracking.
_TOKEN = re.compile(
    r'''
      (?P<newline> \n )
    | (?P<space> [^\S\n]++ | \#[^\n]*+ )
    | (?P<quoted> """ (?: [^"\\]++ | \\. | "(?!"") )*+ "{0,5}
                | \'\'\' (?: [^']++ | '(?!\'\') )*+ '{0,5}
                | " (?: [^"\\\n]++ | \\. )*+ "?
                | ' [^'\n]*+ '? )
    | (?P<bare> [A-Za-z0-9_-]++ )
    | (?P<open> [\[{] )
    | (?P<close> [\]}] )
    | (?P<other> . )
    ''',
    re.VERBOSE | re.DOTALL,
)


class LimitError(ValueError):
    """A document exceeds a limit, at a line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def parse(text: str) -> tuple[dict[str, Any], dict[Where, int]]:
    """Parse a document, and find the line, from 1, of each of its tables and keys.

    Entries of an inline table or array have no line of their own; see :func:`line_of`. The text is
    scanned twice, however long it is.

    Args:
        text: the document.

    Returns:
        The tables, and lines by path; an index into an array of tables is an integer from 0.

    Raises:
        tomllib.TOMLDecodeError: The text is not TOML; the error names line and column.
        LimitError: The text is nested too deeply or has too long a word.
    """
    # The limits are checked before tomllib sees the text: deep nesting or long dotted keys would
    # exhaust its stack or memory.
    statements = list(_statements(text))
    data = tomllib.loads(text)
    lines: dict[Where, int] = {(): 1}
    table: Where = ()
    counts: dict[Where, int] = {}
    for line, brackets, words in statements:
        path: Where = () if brackets else table
        for depth, word in enumerate(words, start=1):
            path = (*path, _key(word))
            lines.setdefault(path, line)
            # Each [[table]] begins a new element of the array.
            if brackets == 2 and depth == len(words):
                counts[path] = counts.get(path, -1) + 1
            if brackets and path in counts:  # the array's last table is meant
                path = (*path, counts[path])
                lines.setdefault(path, line)
        if brackets:
            table = path
    return data, lines


def line_of(lines: Mapping[Where, int], path: Where) -> int:
    """Return the line of an entry, or of the closest enclosing entry that has one."""
    while path not in lines:
        path = path[:-1]
    return lines[path]


def _statements(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield line, brackets before the key (2 for ``[[table]]``) and words of the key, in TOML.

    The result is meaningless for a text that is not TOML, so the caller also runs tomllib.
    """
    line, start, brackets, depth, dots = 1, 1, 0, 0, 0
    words: list[str] = []
    in_key = True
    for token in _TOKEN.finditer(text):
        kind, part = token.lastgroup, token[0]
        if part == ".":
            dots += 1
            if dots >= MOST_PARTS:
                raise LimitError(line, f"nested too deeply, a key of more than {MOST_PARTS} parts")
        elif kind not in ("quoted", "bare", "space"):
            dots = 0
        if kind in ("quoted", "bare"):
            if kind == "bare" and len(part) > LONGEST_WORD:
                message = f"a word of {len(part)} characters, expected {LONGEST_WORD} at most"
                raise LimitError(line, message)
            if in_key:
                start = start if words or brackets else line
                words.append(part)
        elif kind == "open":
            depth += 1
            if depth > DEEPEST:
                raise LimitError(line, f"nested too deeply, more than {DEEPEST} brackets")
            if in_key and not words:
                start = start if brackets else line
                brackets += 1
        elif kind == "close":
            # A surplus bracket is an error that tomllib reports better.
            depth = max(depth - 1, 0)
        elif part == "=":
            in_key = False
        # Newlines inside brackets do not end a statement.
        elif kind == "newline" and depth == 0:
            if words:
                yield start, brackets, words
            words, brackets, in_key = [], 0, True
        line += part.count("\n")
    if words:
        yield start, brackets, words


def _key(word: str) -> str:
    """Decode a part of a key: a bare word or a quoted string."""
    if word[0] == "'":
        return word[1:-1]
    if word[0] == '"':
        return str(tomllib.loads(f"k={word}")["k"]) if "\\" in word else word[1:-1]
    return word
