# SPDX-License-Identifier: Apache-2.0
"""Entries of a TOML document: checked values, and errors that name their line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from n3ic.errors import CardError, did_you_mean
from n3ic.systems.card.description import RATE_UNITS, Rate, RateUnit
from n3ic.systems.card.toml_lines import Where, line_of

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MOST = 1e18
_A_RATE = 'a rate such as "8 Gb/s", "1.8e6 inferences/s" or "200000 packets/s"'
_Text = TypeVar("_Text", bound=str)


@dataclass(frozen=True)
class TomlTable:
    """A table of the document and its position.

    Each method reads one value. It raises :class:`~n3ic.errors.CardError` if the value is invalid,
    or is missing and has no default.

    Attributes:
        values: entries of the table.
        where: keys that lead to it from the root.
        source: name of the file.
        lines: lines of the document's entries.
        folder: folder to which paths are relative.
    """

    values: Mapping[str, Any]
    where: Where
    source: str
    lines: Mapping[Where, int]
    folder: Path

    @property
    def line(self) -> int:
        """Line of the table in the file."""
        return line_of(self.lines, self.where)

    def error(self, message: str, *keys: str | int) -> CardError:
        """Make an error about the table or one of its entries."""
        line = line_of(self.lines, (*self.where, *keys))
        # Texts of the file end up in messages; the bound keeps a hostile file from flooding a
        # terminal.
        return CardError(f"{self.source}:{line}: {message}"[:600])

    def only(self, *keys: str) -> None:
        """Refuse unknown keys."""
        for key in self.values:
            if key not in keys:
                hint = f"; {did_you_mean(key, keys)}".rstrip("; ")
                what = ", ".join(keys)
                raise self.error(f"unknown key {key!r}, expected one of {what}{hint}", key)

    def _expect(self, key: str, what: str, ok: Callable[[Any], object]) -> Any:
        if key not in self.values:
            raise self.error(f"expected {key!r}: {what}; it is missing")
        value = self.values[key]
        if not ok(value):
            raise self.error(f"{key!r}: expected {what}, got {shown(value)}", key)
        return value

    def name(self, key: str = "name") -> str:
        """Read a name that is safe in paths and in generated code."""
        what = "a name of letters, digits, '_', '-' and '.', at most 63"
        return str(self._expect(key, what, lambda v: isinstance(v, str) and NAME.fullmatch(v)))

    def text(self, key: str, default: str | None = None) -> str:
        """Read a non-empty text."""
        if default is not None and key not in self.values:
            return default
        return str(self._expect(key, "a text", lambda v: isinstance(v, str) and v != ""))

    def choice(self, key: str, choices: Sequence[_Text], default: _Text | None = None) -> _Text:
        """Read one of several texts."""
        if default is not None and key not in self.values:
            return default
        listed = "one of " + ", ".join(choices)
        return cast(_Text, self._expect(key, listed, lambda v: v in choices))

    def optional_integer(self, key: str, least: int, most: int) -> int | None:
        """Read a whole number; None if the key is missing."""
        return self.integer(key, least, most, 0) if key in self.values else None

    def integer(self, key: str, least: int, most: int, default: int) -> int:
        """Read a whole number."""
        if key not in self.values:
            return default
        what = f"a whole number from {least} to {most}"
        return int(self._expect(key, what, lambda v: is_int(v) and least <= v <= most))

    def optional_number(self, key: str) -> float | None:
        """Read a number above 0; None if the key is missing."""
        return self.number(key, 0.0) if key in self.values else None

    def number(self, key: str, default: float, most: float = _MOST) -> float:
        """Read a number above 0."""
        if key not in self.values:
            return default
        what = "a number above 0" + (f", at most {most:g}" if most < _MOST else "")
        return float(self._expect(key, what, lambda v: is_number(v) and 0 < v <= most))

    def amounts(self, key: str) -> dict[str, float]:
        """Read amounts by resource name; empty if the key is missing."""
        if key not in self.values:
            return {}
        what = "a table of amounts, such as { lut_sites = 400 }"
        amounts = self._expect(key, what, lambda v: isinstance(v, dict))
        for name, value in amounts.items():
            if not is_number(value) or not 0 <= value <= _MOST:
                raise self.error(
                    f"{key}.{name}: expected an amount of at least 0, got {shown(value)}",
                    key,
                    name,
                )
        return {name: float(value) for name, value in amounts.items()}

    def rate(self, key: str) -> Rate | None:
        """Read a rate with its unit; None if the key is missing."""
        if key not in self.values:
            return None
        text = self._expect(key, _A_RATE, lambda v: isinstance(v, str))
        try:
            return parse_rate(text)
        except CardError as error:
            raise self.error(f"{key!r}: {error}", key) from error

    def path(self, key: str) -> Path | None:
        """Read a path relative to the file's folder; None if the key is missing."""
        return self.folder / self.text(key) if key in self.values else None

    def needed_path(self, key: str, what: str) -> Path:
        """Read a required path."""
        if key not in self.values:
            raise self.error(f"expected {key!r}: {what}; it is missing")
        return self.folder / self.text(key)

    def table(self, key: str) -> TomlTable:
        """Read a nested table; empty if the key is missing."""
        table = self.values.get(key, {})
        if not isinstance(table, dict):
            raise self.error(f"expected [{key}], a table, got {shown(table)}", key)
        return self._below(table, key)

    def tables(self, key: str) -> list[TomlTable]:
        """Read a nested array of tables; empty if the key is missing."""
        tables = self.values.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(e, dict) for e in tables):
            raise self.error(f"expected [[{key}]], an array of tables, got {shown(tables)}", key)
        return [self._below(entry, key, i) for i, entry in enumerate(tables)]

    def _below(self, values: Mapping[str, Any], *keys: str | int) -> TomlTable:
        return TomlTable(values, (*self.where, *keys), self.source, self.lines, self.folder)


def parse_rate(text: str) -> Rate:
    """Parse a rate: a number and its unit.

    Raises:
        CardError: The text is not a rate.
    """
    number, _, unit = text.strip().partition(" ")
    try:
        value = float(number)
    except ValueError:
        # NaN fails every comparison, so it takes the error below.
        value = math.nan
    if not 0 < value <= 1e15 or unit.strip() not in RATE_UNITS:
        raise CardError(f"expected {_A_RATE}, got {shown(text)}")
    return Rate(value, cast(RateUnit, unit.strip()))


def is_int(value: Any) -> bool:
    """Whether a value is a whole number and not a bool."""
    # TOML has booleans of their own, but Python's bool is an int.
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number and not a bool."""
    return is_int(value) or (isinstance(value, float) and math.isfinite(value))


def shown(value: Any) -> str:
    """Format a value briefly for an error."""
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
