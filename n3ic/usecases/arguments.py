# SPDX-License-Identifier: Apache-2.0
"""The keywords of a training in Python: values of the recipe, options, and what a request has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from n3ic import plugins
from n3ic.data.table import FlowTable
from n3ic.data.user_table import OWN
from n3ic.errors import ArgumentError, did_you_mean
from n3ic.meter.capture import is_capture
from n3ic.training.recipe import Recipe, recipe_values
from n3ic.training.values import Value
from n3ic.usecases.base import use_case
from n3ic.usecases.config import REQUEST_VALUES, read_config

_PATHS = ("data", "input_of", "out")


def request_of(
    keywords: Mapping[str, Any], values: Mapping[str, Any], config: str | Path | None = None
) -> dict[str, Any]:
    """The attributes of a request from the keywords of :func:`n3ic.train`; None is not given.

    Args:
        keywords: attributes of :class:`~n3ic.usecases.request.TrainRequest`, checked here.
        values: values of the recipe and options of the use case, by name.
        config: a file that may name the use case.

    Raises:
        ArgumentError: a name is unknown, or a value has another type.
        UsageError: a value of the recipe is not allowed.
    """
    arguments = {
        name: _checked(name, value) for name, value in keywords.items() if value is not None
    }
    known = recipe_values()
    file_values = {} if config is None else read_config(config).values
    case = use_case(arguments.get("use_case") or str(file_values.get("use_case", OWN)))
    options = {option.name.replace("-", "_"): option for option in case.options}
    overrides = dict(_mapping("overrides", arguments.get("overrides", {})))
    case_options = dict(_mapping("options", arguments.get("options", {})))
    for name, value in values.items():
        if name in options:
            case_options |= {} if value is None else {options[name].name: value}
        elif name in known:
            overrides[name] = value
        else:
            names = (*REQUEST_VALUES, *known, *options)
            raise ArgumentError(
                f"train has no argument {name!r}; "
                f"{did_you_mean(name, names) or 'help(n3ic.train) lists them'}".rstrip()
            )
    unknown = [name for name in overrides if name not in known]
    if unknown:
        raise ArgumentError(
            f"overrides: a recipe has no value {unknown[0]!r}; {did_you_mean(unknown[0], known)}"
            "help(n3ic.Training) lists them"
        )
    recipe_overrides = {
        name: known[name].from_python(v) for name, v in overrides.items() if v is not None
    }
    return {**arguments, "overrides": recipe_overrides, "options": case_options}


def _checked(name: str, value: Any) -> Any:
    """A value of the request, of the type that it must have."""
    if name in _PATHS and not isinstance(value, str):
        several = name == "data" and isinstance(value, list | tuple) and value
        if several and all(isinstance(path, str | Path) for path in value):
            return [str(path) for path in value]
        if not isinstance(value, Path):
            raise ArgumentError(f"{name}: expected a path, got {_kind(value)}")
        return value
    if name == "recipe" and isinstance(value, Recipe):
        return value
    of: Value | None = REQUEST_VALUES.get(name)
    return value if of is None else of.from_python(value)


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{name}: expected values by name, such as a dict, got {_kind(value)}")
    return value


def _kind(value: object) -> str:
    return f"{type(value).__name__} {' '.join(repr(value).split()):.60}"


def source_of(first: Any) -> dict[str, Any]:
    """What the first argument of :func:`n3ic.train` names: a use case, or files to train on.

    Raises:
        ArgumentError: it is neither, or a capture, which holds no classes.
    """
    if first is None:
        return {}
    if isinstance(first, FlowTable):
        return {"table": first, "use_case": OWN}
    several = isinstance(first, list | tuple) and first
    if several and all(isinstance(path, str | Path) for path in first):
        return {"use_case": OWN, "data": first}
    if not isinstance(first, str | Path):
        raise ArgumentError(
            "expected a use case, a table, columns by name or a path to train on, got "
            f"{_kind(first)}"
        )
    path, cases = Path(first), plugins.names("n3ic.usecases")
    if str(first) in cases:
        return {"use_case": str(first)}
    if not path.exists() and isinstance(first, str) and not path.suffix and len(path.parts) == 1:
        raise ArgumentError(
            f"{first!r} is neither a use case nor a file; {did_you_mean(first, cases)}"
            f"use cases are {', '.join(cases)}"
        )
    if path.is_file() and is_capture(path):
        raise ArgumentError(
            f"{first} is a capture, whose packets say no class: "
            "n3ic.train(n3ic.extract(captures, labels=...), label='label') trains on its flows"
        )
    return {"use_case": OWN, "data": first}
