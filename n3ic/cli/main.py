# SPDX-License-Identifier: Apache-2.0
"""The entry point of ``n3ic``: commands, and errors without tracebacks."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperGroup

from n3ic import plugins
from n3ic.cli.console import print_error, print_note
from n3ic.errors import N3icError, N3icWarning, missing_library
from n3ic.evaluation.study import GROUP as STUDIES
from n3ic.evaluation.study import study
from n3ic.util.signals import ending_signals

_PLUG_INS = "n3ic.commands"
_HELP = ("-h", "--help")
_COMPLETION = "_N3IC_COMPLETE"  # set by a shell that completes a line
_COMMANDS = {
    "train": ("train",),
    "model": ("inspect", "features", "predict", "evaluate", "replay", "import"),
    "deploy": ("targets", "export", "verify", "bench", "simulate"),
    "report": ("report",),
    "data": ("data",),
    "recipes": ("recipes",),
}
"""The modules of this folder, and the commands of each."""
_PANELS = {
    "Most used": ("train", "predict", "export", "verify", "report"),
    "Train and use": ("evaluate", "replay", "import"),
    "Look": ("inspect", "features", "recipes"),
    "Deploy": ("targets", "bench", "simulate"),
    "Data": ("data",),
}
"""Panels of the help. A plug-in may name its own; other commands go to Deploy."""


class _Groups(TyperGroup):
    """The command line, whose help shows the commands by panel."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; without any, print the help and end with the code of a wrong call."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per panel, in the order of the commands."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            if command.hidden:
                continue
            text = " ".join((command.help or "").partition("\n\n")[0].split())
            panels.setdefault(getattr(command, "rich_help_panel", ""), []).append((name, text))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


def _version(shown: bool) -> None:
    if shown:
        from n3ic import __version__

        typer.echo(f"n3ic {__version__}")
        raise typer.Exit


def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Train binary neural networks on network traffic and deploy them in network cards."""


def command_line(words: Sequence[str]) -> typer.Typer:
    """Build the commands; the one that is called gets the options of all plug-ins.

    Args:
        words: the typed words. Only the module of the command that they name is imported, and
            plug-ins' options are loaded for that command only.
    """
    command = words[0] if words else "--help"
    app = typer.Typer(
        name="n3ic",
        cls=_Groups,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None if command in _HELP else "rich",  # importing rich takes a while
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    own = {module for module, commands in _COMMANDS.items() if command in commands}
    plug_ins = {} if own else dict.fromkeys(plugins.names(STUDIES), _add_study)
    plug_ins |= {} if own else dict.fromkeys(plugins.names(_PLUG_INS), _add_command)
    if command in plug_ins:
        plug_ins[command](app, command, words)
    if not app.registered_commands and not app.registered_groups:
        for module in own or _COMMANDS:
            import_module(f"n3ic.cli.{module}").register(app, words)
    for name in sorted(plug_ins) if command.startswith("-") else ():
        plug_ins[name](app, name, words)
    if command in _HELP and _COMPLETION not in os.environ:
        _without_options(app)
    return app


def _without_options(app: typer.Typer) -> None:
    """Strip the commands to their names, texts and panels: all that the help of ``n3ic`` shows."""

    def bare(function: Callable[..., Any]) -> Callable[[], None]:
        def command() -> None:
            """Do nothing: only the help is printed."""

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        return command

    panels = {name: panel for panel, commands in _PANELS.items() for name in commands}
    for info in app.registered_commands:
        panel = info.rich_help_panel
        panel = panel if isinstance(panel, str) else "Deploy"
        info.rich_help_panel = panels.get(str(info.name), panel)
        if info.callback is not None:
            info.callback = bare(info.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            panel = group.typer_instance.rich_help_panel
            panel = panel if isinstance(panel, str) else "Systems"
            group.rich_help_panel = panels.get(str(group.name), panel)
            group.typer_instance = typer.Typer(help=group.typer_instance.info.help)
    app.registered_commands.sort(key=lambda info: [*panels, info.name].index(info.name))


def _add_study(app: typer.Typer, name: str, words: Sequence[str]) -> None:
    """Add the command of a study, unless it lies in a group of commands.

    One that fails to load is hidden in the help, and reports the reason when called.
    """
    try:
        plug_in = study(name)
    except N3icError:
        if words[:1] == [name]:
            raise
        return
    if plug_in.register is not None and not plug_in.group:
        plug_in.register(app, words)


def _add_command(app: typer.Typer, name: str, words: Sequence[str]) -> None:
    """Add a command that a plug-in brings: a system's, or one that runs a target's device.

    An entry point of ``n3ic.commands`` names a :class:`typer.Typer`, the function of a single
    command, or a module with ``register(app, words)``, like those of this folder. It must import
    quickly. One that fails to load is hidden in the help, and reports the reason when called.
    """
    try:
        command = plugins.load(_PLUG_INS, name)
    except N3icError:
        if words[:1] == [name]:
            raise
        return
    if isinstance(command, ModuleType):
        command.register(app, words)
    elif isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def main() -> None:
    """Run the command line; a user's mistake ends with one line and an exit code."""
    warnings.showwarning = _show_warning
    warnings.simplefilter("ignore", FutureWarning)  # of libraries, for their developers
    warnings.simplefilter("always", N3icWarning)
    with ending_signals() as ending:
        try:
            code = command_line(sys.argv[1:])(standalone_mode=False)
            sys.stdout.flush()  # reports a full disk here instead of at interpreter shutdown
        except BaseException as error:  # noqa: BLE001 - unknown errors are raised again
            # After a signal, the error is only how some library reacted to it.
            code = None if ending.received else _failed(error)
        if ending.received:
            code = _stopped(ending.received)
    sys.exit(code if isinstance(code, int) else 0)


def _stopped(number: int) -> int:
    """Report in one line that a signal ended the command; return the shell's exit code."""
    how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    with suppress(OSError):  # after SIGHUP there may be no terminal
        print_error(f"{how}; nothing was left half-written")
    return 128 + number  # as shells report signals


def _failed(error: BaseException) -> int:
    """Report in one line why a command failed; return the exit code.

    Raises:
        BaseException: the error, if it is not a user's mistake.
    """
    if isinstance(error, N3icError):
        print_error(str(error))
        return error.exit_code
    if isinstance(error, ModuleNotFoundError) and (advice := missing_library(error, "this")):
        print_error(str(advice))
        return advice.exit_code
    if isinstance(error, BrokenPipeError):
        # The reader of the output has closed the pipe: end quietly, as other Unix tools do.
        _drop_output()
        return 128 + 13  # the shell's exit code for SIGPIPE
    if isinstance(error, OSError):  # such as a full disk, or missing permissions
        print_error(f"{error.filename or 'output'}: {error.strerror or error}")
        _drop_output()
        return N3icError.exit_code
    if isinstance(error, typer.TyperException):
        message = error.format_message()
        if message:  # empty if only the help was printed
            print_error(f"{message}{_model_hint(error)} (--help lists what there is)")
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return _stopped(signal.SIGINT)
    raise error


def _model_hint(error: typer.TyperException) -> str:
    """How a command takes a model, if it was given something else than its arguments."""
    context = getattr(error, "ctx", None)
    options = {name for each in context.command.params for name in each.opts} if context else set()
    is_extra = "unexpected extra argument" in error.format_message()
    return "; a model or a run is named by --model" if is_extra and "--model" in options else ""


def _drop_output() -> None:
    """Discard the rest of the output to a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it at exit


def _show_warning(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> None:
    if issubclass(category, N3icWarning):
        print_note(f"warning: {message}")


if __name__ == "__main__":
    main()
