"""Every value of a recipe as an option of ``n3ic train``, generated from the recipe itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from n3ic.errors import UsageError
from n3ic.options import Option, OptionValue
from n3ic.training.recipe import Recipe, SpnTraining, Training

_KINDS = (Recipe, Training, SpnTraining)
_IDENTITY = ("name", "summary", "training", "spn")  # what a recipe is called, and its parts
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)


def recipe_options() -> tuple[Option, ...]:
    """One option a value; the default is shown by the recipe, not here."""
    return tuple(_option(kind, name) for kind in _KINDS for name in _values(kind))


def recipe_overrides(given: Mapping[str, OptionValue]) -> dict[str, Any]:
    """Values of a recipe from what was typed, by field.

    Raises:
        UsageError: a text is no value of its field.
    """
    out: dict[str, Any] = {}
    for kind in _KINDS:
        hints = get_type_hints(kind)
        for name in _values(kind):
            typed = given.get(_typed_name(name))
            if typed is not None:
                out[name] = _parse(name, hints[name], typed)
    return out


def _values(kind: type) -> list[str]:
    return [f.name for f in fields(kind) if f.name not in _IDENTITY]


def _typed_name(field: str) -> str:
    return field.replace("_", "-")


def _option(kind: type, name: str) -> Option:
    hint = get_type_hints(kind)[name]
    choices = tuple(get_args(hint)) if get_origin(hint) is Literal else ()
    default: OptionValue = False if hint is bool else ""
    return Option(_typed_name(name), _described(kind)[name], default, choices)


def _described(kind: type) -> dict[str, str]:
    """First sentence on each attribute in the class's docstring."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:")[2]
    found = {name: " ".join(words.split()) for name, words in _ATTRIBUTE.findall(text)}
    return {name: words.replace("``", "").rstrip(".") for name, words in found.items()}


def _parse(name: str, hint: Any, typed: OptionValue) -> Any:
    text = str(typed)
    if get_origin(hint) is tuple:
        kind = get_args(hint)[0]
        if kind is int:
            return _numbers(name, text)
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if get_origin(hint) in (Literal, UnionType):
        return text
    return Option(_typed_name(name), "", hint()).parse(typed)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\s*(\d+(\s*[-,]\s*\d+)*)?\s*", text):
        raise UsageError(f"--{_typed_name(name)}: numbers such as 32,16 expected, got {text!r}")
    return tuple(int(part) for part in re.findall(r"\d+", text))
