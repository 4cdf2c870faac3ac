# SPDX-License-Identifier: Apache-2.0
"""Values that a user may give by name: their types and their choices."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from n3ic.errors import UsageError, did_you_mean
from n3ic.options import Option, OptionValue

_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
_KINDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    (tuple, int): "a list of whole numbers",
    (tuple, str): "a list of texts",
}
_LARGE = 2**53  # smaller whole numbers are exact as a float


@dataclass(frozen=True)
class Value:
    """A value with a name.

    Attributes:
        name: name of the attribute.
        kind: its type: str, int, float, bool, a ``Literal`` of texts, or a tuple of str or int.
        help: its description in a sentence.
        owner: the class whose attribute it is.
    """

    name: str
    kind: Any
    help: str
    owner: type

    @property
    def typed_name(self) -> str:
        """Its name on the command line, with dashes."""
        return self.name.replace("_", "-")

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed texts; empty if any is allowed."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def option(self) -> Option:
        """The value as an option without a default of its own."""
        default: OptionValue = False if self.kind is bool else ""
        return Option(self.typed_name, self.help, default, self.choices)

    def parse(self, typed: OptionValue) -> Any:
        """Parse what a user typed.

        Raises:
            UsageError: the text is not a valid value.
        """
        text = str(typed)
        if get_origin(self.kind) is tuple:
            if get_args(self.kind)[0] is int:
                return self._numbers(text)
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if get_origin(self.kind) is Literal:
            return text
        return Option(self.typed_name, "", self.kind()).parse(typed)

    def from_file(self, content: object, name: str = "") -> Any:
        """Check a value from a file, which has numbers, texts and lists.

        Args:
            content: the value.
            name: its name in errors; empty for that of the command line.

        Raises:
            UsageError: the value has another type.
        """
        kind: Any = str if self.choices else self.kind
        if get_origin(kind) is tuple:
            item = get_args(kind)[0]
            if isinstance(content, list) and all(type(element) is item for element in content):
                return tuple(content)
            kind = tuple, item
        elif kind is float and type(content) is int and abs(content) < _LARGE:
            return float(content)
        elif type(content) is kind:
            return content
        text = " ".join(repr(content).split())
        raise UsageError(f"{name or self.typed_name}: expected {_KINDS[kind]}, got {text:.60}")

    def from_python(self, value: Any) -> Any:
        """A value from Python: also of numpy, and for a list any sequence, a text or one item.

        Raises:
            UsageError: the value has another type, or is not among the choices.
        """
        value = _plain(value)
        if get_origin(self.kind) is tuple:
            if isinstance(value, str):
                return self.parse(value)
            several = isinstance(value, Iterable) and not isinstance(value, Mapping | set)
            items = [*value] if several else [value]
            return self.from_file([_plain(item) for item in items], self.name)
        if self.choices and value not in self.choices:
            hint, known = did_you_mean(str(value), self.choices), ", ".join(self.choices)
            raise UsageError(
                f"{self.name}: expected {known}, got {value!r:.60}; {hint}".rstrip("; ")
            )
        if self.kind is str and isinstance(value, Mapping):  # such as weights of classes
            value = ",".join(f"{name}={amount}" for name, amount in value.items())
        return self.from_file(value, self.name)

    def _numbers(self, text: str) -> tuple[int, ...]:
        if not re.fullmatch(r"\s*(\d+(\s*[-,]\s*\d+)*)?\s*", text):
            raise UsageError(
                f"--{self.typed_name}: expected numbers such as 32,16, got {text!r:.60}"
            )
        return tuple(int(part) for part in re.findall(r"\d+", text))


def _plain(value: Any) -> Any:
    """A number of numpy, or an array without dimensions, as Python's own."""
    return value.item() if hasattr(value, "dtype") and not getattr(value, "shape", ()) else value


def values_of(owner: type, without: Collection[str] = ()) -> Iterator[Value]:
    """The attributes of a dataclass, described by its docstring.

    Args:
        owner: the class.
        without: names of attributes to leave out.
    """
    hints, descriptions = get_type_hints(owner), _described(owner)
    for field in fields(owner):
        if field.name not in without:
            yield Value(field.name, hints[field.name], descriptions[field.name], owner)


def _described(owner: type) -> dict[str, str]:
    """The docstring's text on each attribute."""
    text = inspect.cleandoc(owner.__doc__ or "").partition("Attributes:")[2]
    descriptions = {name: " ".join(words.split()) for name, words in _ATTRIBUTE.findall(text)}
    return {name: words.replace("``", "").rstrip(".") for name, words in descriptions.items()}
