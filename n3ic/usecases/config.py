# SPDX-License-Identifier: Apache-2.0
"""Files of options for a training: TOML, JSON, or the ``options.json`` of a run."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from n3ic.data.user_table import OWN
from n3ic.errors import UsageError, did_you_mean
from n3ic.options import Option
from n3ic.runs.folder import OPTIONS
from n3ic.training.recipe import Recipe, recipe_values
from n3ic.training.values import Value
from n3ic.usecases.base import use_case
from n3ic.usecases.request import ConfigFile, TrainRequest
from n3ic.util.structured import read_bounded

MAX_BYTES = 1 << 20
_COMMAND = "command"  # a key that only options.json has
_FLAG = "--no-"
_KINDS: Mapping[str, Any] = {
    "use_case": str,
    "data": str,
    "dataset": str,
    "rows": int,
    "recipe": str,
    "budget_bytes": int,
    "sites": int,
    "cuts_on_card": bool,
    "input_of": str,
    "protocol": str,
    "seed": int,
    "seeds": int,
    "out": str,
    "jobs": int,
    "dask": str,
}
REQUEST_VALUES = {name: Value(name, kind, "", TrainRequest) for name, kind in _KINDS.items()}


def read_config(path: str | Path) -> ConfigFile:
    """Read a file of options for a training.

    Args:
        path: TOML or JSON, by its suffix, whose keys are the options of ``n3ic train``, or the
            ``options.json`` of a run.

    Raises:
        UsageError: the file cannot be read, is damaged, or holds something else.
    """
    file = Path(path)
    kinds = {".toml": tomllib.loads, ".json": json.loads}
    read = kinds.get(file.suffix.lower())
    if read is None:
        raise UsageError(f"{path}: a file of options ends in .toml or .json")
    content = read_bounded(file, MAX_BYTES, UsageError, "a file of options")
    try:
        content_values = read(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    if not isinstance(content_values, dict):
        raise UsageError(f"{path}: expected options by name, got {content_values!r:.60}")
    if _COMMAND in content_values:
        return ConfigFile(
            str(path), content, _of_command(str(path), content_values[_COMMAND]), typed=True
        )
    values: dict[str, Any] = {}
    for key, value in content_values.items():
        name = key.replace("-", "_")
        if name in values:
            raise UsageError(f"{path}: {name.replace('_', '-')} is given twice")
        values[name] = value
    return ConfigFile(str(path), content, values)


def _of_command(path: str, command: object) -> dict[str, Any]:
    """The options of another run's command line."""
    if command is None:
        raise UsageError(
            f"{path}: no command line repeats that run; it was trained from Python on a table or "
            "a recipe of its own"
        )
    words = command if isinstance(command, list) else []
    if not all(isinstance(word, str) for word in words) or words[:2] != ["n3ic", "train"]:
        raise UsageError(f"{path}: {_COMMAND} is no command line of n3ic train")
    values: dict[str, Any] = {}
    for word in words[2:]:
        name, equals, text = word.partition("=")
        if not word.startswith("--"):
            name, text, equals = "--use_case", word, "="
        no = not equals and name.startswith(_FLAG)  # --no-NAME means false
        name = name.removeprefix(_FLAG if no else "--").replace("-", "_")
        if name in values:
            raise UsageError(f"{path}: {_COMMAND} has --{name.replace('_', '-')} twice")
        values[name] = text if equals else not no
    return values


def train_request(config: str | Path | None = None, **keywords: Any) -> TrainRequest:
    """Make a training request from a file and further values.

    Args:
        config: the file of options, if any.
        **keywords: attributes of :class:`~n3ic.usecases.request.TrainRequest`, which override the
            file; None counts as not given. Without a use case, ``data`` is a table of the user's.

    Raises:
        UsageError: the file cannot be read, a key is unknown, a value has another type, or the
            request is invalid.
    """
    file = None if config is None else read_config(config)
    arguments = {name: value for name, value in keywords.items() if value is not None}
    file_values = {} if file is None else _request_of(file, arguments)
    for of in ("overrides", "options"):
        arguments[of] = {**file_values.get(of, {}), **arguments.get(of, {})}
    arguments = {**file_values, **arguments}
    if "use_case" not in arguments:
        if "data" not in arguments:
            raise UsageError("name a use case, such as anomaly, or data of your own")
        arguments["use_case"] = OWN
    return TrainRequest(**arguments, config=file)


def _request_of(file: ConfigFile, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a request that a file holds."""

    def value(of: Value) -> Any:
        text = file.values[of.name]
        if not file.typed:
            return of.from_file(text)
        if isinstance(text, bool) and of.kind is not bool:
            raise UsageError(f"--{of.typed_name} without a value")
        return of.parse(text)

    try:
        use_case_value = REQUEST_VALUES["use_case"]
        case = keywords.get("use_case") or (
            value(use_case_value) if use_case_value.name in file.values else OWN
        )
        options = {
            (name := option.name.replace("-", "_")): Value(name, type(option.default), "", Option)
            for option in use_case(case).options
        }
        known = {**options, **recipe_values(), **REQUEST_VALUES}  # of equal names, the last wins
        for key in file.values:
            if key not in known:
                raise UsageError(_unknown(key, file.values[key], known))
        pairs = [(known[key], value(known[key])) for key in file.values]
    except UsageError as error:
        raise UsageError(f"{file.source}: {error}") from error
    recipe = recipe_values()
    return {
        **{of.name: v for of, v in pairs if of.owner is TrainRequest},
        "overrides": {of.name: v for of, v in pairs if of.name in recipe},
        "options": {of.typed_name: v for of, v in pairs if of.owner is Option},
    }


def _unknown(key: str, value: object, known: Iterable[str]) -> str:
    """The message about an unknown key."""
    hint = did_you_mean(key, (name.replace("_", "-") for name in known))
    hint = f"; {hint}".rstrip("; ")
    if isinstance(value, dict):
        hint = f"; options are top-level keys, not in a table{hint}"
    return f"unknown option {key.replace('_', '-')!r:.60}{hint}"


def recipe_of(run: Path, n_classes: int) -> Recipe:
    """The recipe of a run, with the run's options applied.

    Raises:
        UsageError: It is not a run folder, or its command is not known.
    """
    if not (run / OPTIONS).is_file():
        raise UsageError(
            f"{run} does not say how it was trained: expected a run folder with its {OPTIONS}"
        )
    request = train_request(run / OPTIONS)
    return request.chosen_recipe(use_case(request.use_case), n_classes)
