# SPDX-License-Identifier: Apache-2.0
"""Rows of a command: an argument, or ``--data``, whichever a person types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.models import OptionInfo

from n3ic.errors import UsageError

_OPTION = "option_data"


def takes_rows(parameter: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take its rows as an argument and as ``--data``.

    Args:
        parameter: the command's own argument or option for the rows; without a default, one of the
            two forms must be typed. Other names of an option, such as ``--rows``, stay.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        own = signature.parameters[parameter]
        kind, info = get_args(own.annotation)
        metavar = info.metavar or "FLOWS"
        required = own.default is inspect.Parameter.empty
        names = dict.fromkeys(["--data", *_names(parameter, info)])

        def typed(name: str, declared: Any) -> inspect.Parameter:
            by_name = inspect.Parameter.KEYWORD_ONLY
            return inspect.Parameter(
                name, by_name, default=None, annotation=Annotated[kind | None, declared]
            )

        argument = typer.Argument(metavar=metavar, help=info.help, show_default=False)
        option = typer.Option(*names, metavar=metavar, help=f"The same as {metavar}.")
        parameters = []
        for each in signature.parameters.values():
            if each.name == parameter:
                parameters += [typed(parameter, argument), typed(_OPTION, option)]
            else:
                parameters.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))

        @wraps(function)
        def command(**values: Any) -> None:
            words = [values.pop(parameter, None), values.pop(_OPTION, None)]
            rows = [word for word in words if word is not None]
            if len(rows) > 1:
                raise UsageError(f"{rows[0]} and --data {rows[1]}: name the rows once")
            if required and not rows:
                raise UsageError(f"no rows are named: type {metavar}, or --data {metavar}")
            function(**values, **({parameter: rows[0]} if rows else {}))

        # Typer reads a command's options from its signature.
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _names(parameter: str, info: Any) -> tuple[str, ...]:
    """The names of an option; an argument has none."""
    if not isinstance(info, OptionInfo):
        return ()
    return tuple(info.param_decls or (f"--{parameter.replace('_', '-')}",))


def case_and_rows(
    use_case: str | None, rows: Path | None, known: Container[str]
) -> tuple[str | None, Path | None]:
    """A use case and rows as typed; a lone file where the use case stands is the rows.

    Args:
        use_case: the first word.
        rows: the second word, or ``--data``.
        known: names of the use cases.

    Raises:
        UsageError: the first word looks like a path, and there is no such file.
    """
    if use_case is None or rows is not None or use_case in known:
        return use_case, rows
    file = Path(use_case)
    if not file.exists() and file.name == use_case and not file.suffix:
        return use_case, rows  # a mistyped use case
    if not file.exists():
        raise UsageError(f"{file}: no such file")
    return None, file
