"""The entry point of ``n3ic``: commands, and errors without tracebacks."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

import typer

from n3ic.cli import data, deploy, model, train
from n3ic.cli.console import fail, note
from n3ic.errors import MissingDependencyError, N3icError, N3icWarning

INTERRUPTED = 130
_STOPPED = "interrupted; nothing was left half-written"
_EXTRAS = dict.fromkeys(
    ("torch", "brevitas", "sklearn", "matplotlib", "joblib", "threadpoolctl"), "train"
) | dict.fromkeys(("onnx", "onnxruntime", "qonnx", "onnxoptimizer"), "onnx")


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
    """The commands; the one that is called has the options of all plug-ins.

    Args:
        words: what was typed; plug-ins are loaded only for a command that is named in it, so
            that ``n3ic --help`` answers at once.
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
    model.register(app)
    deploy.register(app, not {"export", "verify", "bench", "simulate"}.isdisjoint(words))
    data.register(app, {"data", "generate"} <= set(words))
    return app


def main() -> None:
    """Run the command line; a user's mistake ends with one line and its exit code."""
    warnings.showwarning = _show_warning
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("always", N3icWarning)
    try:
        code = command_line(sys.argv[1:])(standalone_mode=False)
        sys.stdout.flush()  # a full disk shows here, not while Python ends
    except N3icError as error:
        fail(str(error))
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _EXTRAS:
            raise
        extra = _EXTRAS[library]
        fail(f"this needs {library}, which is not installed: pip install 'n3ic[{extra}]'")
        sys.exit(MissingDependencyError.exit_code)
    except BrokenPipeError:
        # the reader of our output went away: as other Unix tools do, end quietly
        _drop_output()
        sys.exit(128 + 13)
    except OSError as error:  # BrokenPipeError aside: a full disk, a folder without rights
        fail(f"{error.filename or 'output'}: {error.strerror or error}")
        _drop_output()
        sys.exit(N3icError.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        fail(_STOPPED)
        sys.exit(INTERRUPTED)
    except typer.TyperException as error:
        message = error.format_message()
        if message:  # without a command, the help has been printed and there is none
            fail(f"{message} (--help lists what there is)")
        sys.exit(error.exit_code)
    if code == INTERRUPTED:  # Typer turns Ctrl-C into this code
        fail(_STOPPED)
    sys.exit(code if isinstance(code, int) else 0)


def _drop_output() -> None:
    """Let what is still to be written to a broken output go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> None:
    if issubclass(category, N3icWarning):
        note(f"warning: {message}")


if __name__ == "__main__":
    main()
