# SPDX-License-Identifier: Apache-2.0
"""Turn the options that plug-ins define into options of a command, with help and types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from n3ic.errors import N3icError, UsageError
from n3ic.options import Option

Owned = tuple[str, Sequence[Option]]  # owner for the help, and its options
_PARAMETER = "given"


def with_options(
    function: Callable[..., None], owners: Iterable[Owned], hidden: Container[str] = ()
) -> Callable[..., None]:
    """Wrap a command so that its parameter ``given`` is filled from plug-ins' options.

    Args:
        function: a command; its ``given`` maps the typed options' names to values.
        owners: owners and their options. If several share a name, the addressed one checks it.
        hidden: owners whose options work, but are not in the help.

    Raises:
        UsageError: a plug-in's option has the name of one of the command's own.
    """
    signature = inspect.signature(function, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name != _PARAMETER]
    added: dict[str, inspect.Parameter] = {}
    names: dict[str, str] = {}
    for name, declarations in _by_name(owners).items():
        key = f"option_{name.replace('-', '_')}"
        if name.replace("-", "_") in signature.parameters:
            raise UsageError(
                f"{declarations[0][0]}: its option --{name} is one of the command's own"
            )
        names[key] = name
        added[key] = inspect.Parameter(
            key,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,  # None: the option was not typed
            annotation=_annotation(name, declarations, hidden),
        )

    def command(**values: Any) -> None:
        options = {names[k]: values.pop(k) for k in names}
        values[_PARAMETER] = {k: v for k, v in options.items() if v is not None}
        function(**values)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    # Typer reads a command's options from its signature.
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + [*added.values()]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def options_of(loaders: Mapping[str, Callable[[], Sequence[Option]]]) -> list[Owned]:
    """Options by owner; a plug-in that fails to load has none here, and reports why when used."""
    out: list[Owned] = []
    for owner, load in loaders.items():
        try:
            out.append((owner, load()))
        except N3icError:
            continue
    return out


def _by_name(owners: Iterable[Owned]) -> dict[str, list[tuple[str, Option]]]:
    out: dict[str, list[tuple[str, Option]]] = {}
    for owner, options in owners:
        for option in options:
            out.setdefault(option.name, []).append((owner, option))
    return out


def _annotation(
    name: str, declarations: Sequence[tuple[str, Option]], hidden: Container[str]
) -> Any:
    visible = [(owner, option) for owner, option in declarations if owner not in hidden]
    declarations = visible or declarations
    flag = all(isinstance(option.default, bool) for _, option in declarations)
    declaration = f"--{name}/--no-{name}" if flag else f"--{name}"
    panel = f"Options of {', '.join(dict.fromkeys(owner for owner, _ in declarations))}"
    texts = dict.fromkeys(_help(option) for _, option in declarations)
    option = typer.Option(
        declaration,
        help="; ".join(texts),
        rich_help_panel=panel,
        metavar=None if flag else "|".join(declarations[0][1].choices) or "VALUE",
        show_default=False,
        hidden=not visible,
    )
    return Annotated[bool | None if flag else str | None, option]


def _help(option: Option) -> str:
    default_text = (
        str(option.default).lower() if isinstance(option.default, bool) else option.default
    )
    return f"{option.help} [{default_text}]" if default_text != "" else option.help
