# SPDX-License-Identifier: Apache-2.0
"""The errors that a user may meet, each with a text that says what to do."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import requires
from itertools import chain

_DISTRIBUTIONS = {
    "sklearn": "scikit-learn", "dask": "distributed", "hdrh": "hdrhistogram", "nats": "nats-py"
}  # fmt: skip
"""Distributions whose name differs from that of the module that they install."""


_TELLING = 4
"""Letters of a name by which it is recognised within another."""
_FLAGS = frozenset(("best_effort", "force", "replace", "run_changed"))
_OPTION = re.compile(
    r"--(?P<no>no-)?(?P<name>[a-z][a-z0-9-]*[a-z0-9])"
    r"(?:[ =](?P<value>[A-Z][A-Z]+\b|nic\b|source\b))?"
)


class N3icError(Exception):
    """A mistake in the user's input; the CLI prints its text without a traceback.

    Attributes:
        exit_code: the exit code of the CLI.
    """

    exit_code = 1


class UsageError(N3icError):
    """An option, a name or a combination of them that does not exist."""

    exit_code = 2


class ArgumentError(UsageError, TypeError, ValueError):
    """An argument of a Python call that is unknown or has no effect, in Python's terms."""


class DataError(N3icError):
    """A table that cannot be read as what it claims to be; the text names file, line and column."""


class ModelError(N3icError):
    """A model file or a network description that breaks the BinaryModel contract."""


class CardError(N3icError):
    """A shared card's description that cannot be read or planned; the text names file and line."""


class ClusterError(N3icError):
    """A cluster that cannot be planned or started, or a node of it that failed or fell silent."""


class ExportError(N3icError):
    """A model that a target cannot hold or compute."""


class VerifyError(N3icError):
    """An artefact that does not compute the model's scores."""

    exit_code = 3


class MissingDependencyError(N3icError):
    """A library or a tool that this call needs and this machine lacks."""

    exit_code = 4


class N3icWarning(UserWarning):
    """Something that the user should know, though the work goes on."""


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """The question that suggests the closest known name in an error; empty if none is close.

    Close is a name of similar spelling, one within the other (``hidden_layer_sizes``), or the
    initials of its words (``lr`` for ``learning_rate``).
    """
    by_text = {name.lower().replace("_", "-"): name for name in known}
    typed = wrong.lower().replace("_", "-")
    near = difflib.get_close_matches(typed, by_text, n=1)
    parts = {text for text in (typed, *typed.split("-")) if len(text) >= _TELLING}
    near += sorted((n for n in by_text if n in parts), key=len, reverse=True)
    near += [n for n in by_text if len(typed) >= _TELLING and n.startswith(typed)]
    near += [n for n in by_text if "".join(word[:1] for word in n.split("-")) == typed]
    return f"did you mean {by_text[near[0]]!r}? " if near else ""


def python_text(text: str) -> str:
    """A message in Python's terms: ``--label COLUMN`` becomes ``label='COLUMN'``."""

    def keyword(option: re.Match[str]) -> str:
        name, value = option["name"].replace("-", "_"), option["value"]
        if option["no"] or name in _FLAGS:
            return f"{name}={not option['no']}"
        return f"{name}={value!r}" if value else name

    return _OPTION.sub(keyword, text)


@contextmanager
def in_python() -> Iterator[None]:
    """Wrap a function that users call from Python, so that its errors are in Python's terms.

    Raises:
        ArgumentError: a UsageError, whose message names options as keywords.
    """
    try:
        yield
    except UsageError as error:
        raise ArgumentError(python_text(str(error))) from None
    except N3icError as error:
        error.args = (python_text(str(error)),)
        raise


def missing_library(error: ModuleNotFoundError, by: str) -> MissingDependencyError | None:
    """The error that names the extra to install for a missing library; None if no extra has it.

    If several extras have the library, it names that of the system whose code is running (``card``
    for ``n3ic.systems.card``), else the first one in pyproject.toml.

    Args:
        error: the error that an import raised.
        by: what needs the library, such as ``choosing input bits``.
    """
    library = (error.name or "").partition(".")[0]
    name = _DISTRIBUTIONS.get(library, library.replace("_", "-"))
    # A name that goes on with a dash is another library's: onnx is not onnx-ir.
    pattern = rf"""{re.escape(name)}\b(?!-).*extra == ['"](?!all|dev|docs)(\w+)['"]"""
    extras = [m[1] for line in requires("n3ic") or () if (m := re.match(pattern, line))]
    if not extras:
        return None
    # A traceback begins where the error was caught, so the callers above are searched, too.
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    callers = [frame for frame, _ in traceback.walk_stack(frames[0])] if frames else []
    modules = [frame.f_globals.get("__name__", "") for frame in chain(callers[::-1], frames)]
    systems = [module.split(".")[2] for module in modules if module.startswith("n3ic.systems.")]
    extra = next((system for system in systems if system in extras), extras[0])
    return MissingDependencyError(
        f"{by} needs {library}, which is not installed: pip install 'n3ic[{extra}]'"
    )


@contextmanager
def needed(by: str) -> Iterator[None]:
    """Wrap an import or a function so that a missing library becomes advice on what to install.

    Raises:
        MissingDependencyError: a library that an extra installs is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        advice = missing_library(error, by)
        if advice is None:
            raise
        raise advice from error
