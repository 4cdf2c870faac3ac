# SPDX-License-Identifier: Apache-2.0
"""Entries of a TOML document: values that are checked, and errors that name their line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from n3ic.errors import CardError, nearest
from n3ic.systems.card.description import RATE_UNITS, Rate, RateUnit
from n3ic.systems.card.toml_lines import Where, line_of

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MOST = 1e18
_A_RATE = 'a rate such as "8 Gb/s", "1.8e6 inferences/s" or "200000 packets/s"'
_Text = TypeVar("_Text", bound=str)


@dataclass(frozen=True)
class TomlTable:
    """A table of the document, and where it stands.

    Its methods read a value each. They raise :class:`~n3ic.errors.CardError` where it is not what
    was expected, or is missing and has no default.

    Attributes:
        values: its entries.
        where: keys that lead to it from the root.
        source: the file's name.
        lines: lines of the document's entries.
        folder: what paths are relative to.
    """

    values: Mapping[str, Any]
    where: Where
    source: str
    lines: Mapping[Where, int]
    folder: Path

    @property
    def line(self) -> int:
        """Its line in the file."""
        return line_of(self.lines, self.where)

    def error(self, message: str, *keys: str | int) -> CardError:
        """An error about it, or about one of its entries."""
        line = line_of(self.lines, (*self.where, *keys))
        return CardError(f"{self.source}:{line}: {message}"[:600])

    def only(self, *known: str) -> None:
        """Refuse keys that are not known."""
        for key in self.values:
            if key not in known:
                hint = f"; {nearest(key, known)}".rstrip("; ")
                what = ", ".join(known)
                raise self.error(f"unknown key {key!r}, expected one of {what}{hint}", key)

    def _expect(self, key: str, what: str, ok: Callable[[Any], object]) -> Any:
        if key not in self.values:
            raise self.error(f"expected {key!r}: {what}; it is missing")
        value = self.values[key]
        if not ok(value):
            raise self.error(f"{key!r}: expected {what}, got {shown(value)}", key)
        return value

    def name(self, key: str = "name") -> str:
        """A name that may stand in a path and in generated code."""
        what = "a name of letters, digits, '_', '-' and '.', at most 63"
        return str(self._expect(key, what, lambda v: isinstance(v, str) and NAME.fullmatch(v)))

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty."""
        if default is not None and key not in self.values:
            return default
        return str(self._expect(key, "a text", lambda v: isinstance(v, str) and v != ""))

    def choice(self, key: str, choices: Sequence[_Text], default: _Text | None = None) -> _Text:
        """One of several texts."""
        if default is not None and key not in self.values:
            return default
        listed = "one of " + ", ".join(choices)
        return cast(_Text, self._expect(key, listed, lambda v: v in choices))

    def optional_integer(self, key: str, least: int, most: int) -> int | None:
        """A whole number, or None where the key is missing."""
        return self.integer(key, least, most, 0) if key in self.values else None

    def integer(self, key: str, least: int, most: int, default: int) -> int:
        """A whole number."""
        if key not in self.values:
            return default
        what = f"a whole number from {least} to {most}"
        return int(self._expect(key, what, lambda v: is_int(v) and least <= v <= most))

    def optional_number(self, key: str) -> float | None:
        """A number above 0, or None where the key is missing."""
        return self.number(key, 0.0) if key in self.values else None

    def number(self, key: str, default: float, most: float = _MOST) -> float:
        """A number above 0."""
        if key not in self.values:
            return default
        what = "a number above 0" + (f", at most {most:g}" if most < _MOST else "")
        return float(self._expect(key, what, lambda v: is_number(v) and 0 < v <= most))

    def amounts(self, key: str) -> dict[str, float]:
        """Amounts by the name of their resource; nothing where the key is missing."""
        if key not in self.values:
            return {}
        what = "a table of amounts, such as { lut_sites = 400 }"
        found = self._expect(key, what, lambda v: isinstance(v, dict))
        for name, value in found.items():
            if not is_number(value) or not 0 <= value <= _MOST:
                raise self.error(
                    f"{key}.{name}: expected an amount of at least 0, got {shown(value)}",
                    key,
                    name,
                )
        return {name: float(value) for name, value in found.items()}

    def rate(self, key: str) -> Rate | None:
        """A rate with its unit, or None where the key is missing."""
        if key not in self.values:
            return None
        text = self._expect(key, _A_RATE, lambda v: isinstance(v, str))
        try:
            return parse_rate(text)
        except CardError as error:
            raise self.error(f"{key!r}: {error}", key) from error

    def path(self, key: str) -> Path | None:
        """A path, relative to the file's folder, or None where the key is missing."""
        return self.folder / self.text(key) if key in self.values else None

    def needed_path(self, key: str, what: str) -> Path:
        """A path that must be given."""
        if key not in self.values:
            raise self.error(f"expected {key!r}: {what}; it is missing")
        return self.folder / self.text(key)

    def table(self, key: str) -> TomlTable:
        """A table in it; an empty one where the key is missing."""
        found = self.values.get(key, {})
        if not isinstance(found, dict):
            raise self.error(f"expected [{key}], a table, got {shown(found)}", key)
        return self._below(found, key)

    def tables(self, key: str) -> list[TomlTable]:
        """An array of tables in it; an empty one where the key is missing."""
        found = self.values.get(key, [])
        if not isinstance(found, list) or not all(isinstance(e, dict) for e in found):
            raise self.error(f"expected [[{key}]], an array of tables, got {shown(found)}", key)
        return [self._below(entry, key, i) for i, entry in enumerate(found)]

    def _below(self, values: Mapping[str, Any], *keys: str | int) -> TomlTable:
        return TomlTable(values, (*self.where, *keys), self.source, self.lines, self.folder)


def parse_rate(text: str) -> Rate:
    """A rate from a number and its unit.

    Raises:
        CardError: it is none.
    """
    number, _, unit = text.strip().partition(" ")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1e15 or unit.strip() not in RATE_UNITS:
        raise CardError(f"expected {_A_RATE}, got {shown(text)}")
    return Rate(value, cast(RateUnit, unit.strip()))


def is_int(value: Any) -> bool:
    """Whether it is a whole number, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and no truth value."""
    return is_int(value) or (isinstance(value, float) and math.isfinite(value))


def shown(value: Any) -> str:
    """A value as it is shown in an error: briefly."""
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
