"""The entry point of ``n3ic``: commands, and errors without tracebacks."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress

import typer

from n3ic.cli import data, decide, deploy, model, report, shunt, sweep, train
from n3ic.cli.console import fail, note
from n3ic.errors import MissingDependencyError, N3icError, N3icWarning
from n3ic.util.signals import ending_signals

_EXTRAS = dict.fromkeys(
    ("torch", "brevitas", "sklearn", "matplotlib", "joblib", "threadpoolctl"), "train"
) | dict.fromkeys(("onnx", "onnxruntime", "qonnx", "onnxoptimizer"), "onnx")
_EXTRAS |= dict.fromkeys(("scipy", "simpy"), "card") | {"distributed": "cluster"}


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
        words: the typed words; plug-ins are loaded only if one of their commands is named, so that
            ``n3ic --help`` is fast.
    """
    app = typer.Typer(
        name="n3ic",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    train.register(app, "train" in words)
    sweep.register(app, "sweep" in words)
    decide.register(app, "decide" in words)
    model.register(app)
    shunt.register(app)
    deploy.register(app, words)
    report.register(app)
    data.register(app, {"data", "generate"} <= set(words))
    _add_commands(app, words)
    return app


def _add_commands(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the commands of plug-ins: of systems, and of targets that run on this machine.

    An entry point of ``n3ic.commands`` names a :class:`typer.Typer` or the function of a single
    command, in a module that imports quickly. One that fails to load is hidden in the help, and
    reports the reason when it is called.
    """
    from n3ic import plugins

    called = words[0] if words else "--help"
    for name in plugins.names("n3ic.commands"):
        if name != called and not called.startswith("-"):
            continue
        try:
            found = plugins.load("n3ic.commands", name)
        except N3icError:
            if name == called:
                raise
            continue
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)


def main() -> None:
    """Run the command line; a user's mistake ends with one line and an exit code."""
    warnings.showwarning = _show_warning
    warnings.simplefilter("ignore", FutureWarning)
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
        fail(f"{how}; nothing was left half-written")
    return 128 + number


def _failed(error: BaseException) -> int:
    """Report in one line why a command failed; return the exit code.

    Raises:
        BaseException: the error, if it is not a user's mistake.
    """
    if isinstance(error, N3icError):
        fail(str(error))
        return error.exit_code
    if isinstance(error, ModuleNotFoundError):
        library = (error.name or "").partition(".")[0]
        if library not in _EXTRAS:
            raise error
        fail(
            f"this needs {library}, which is not installed: pip install 'n3ic[{_EXTRAS[library]}]'"
        )
        return MissingDependencyError.exit_code
    if isinstance(error, BrokenPipeError):
        # The reader of the output has closed the pipe: end quietly, as other Unix tools do.
        _drop_output()
        return 128 + 13
    if isinstance(error, OSError):  # such as a full disk, or missing permissions
        fail(f"{error.filename or 'output'}: {error.strerror or error}")
        _drop_output()
        return N3icError.exit_code
    if isinstance(error, typer.TyperException):
        message = error.format_message()
        if message:  # empty if only the help was printed
            fail(f"{message} (--help lists what there is)")
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return _stopped(signal.SIGINT)
    raise error


def _drop_output() -> None:
    """Discard the rest of the output to a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> None:
    if issubclass(category, N3icWarning):
        note(f"warning: {message}")


if __name__ == "__main__":
    main()
