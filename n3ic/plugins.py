# SPDX-License-Identifier: Apache-2.0
"""Data sets, use cases, families, targets and their own commands, found through entry points."""

from __future__ import annotations

import inspect
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar

from n3ic.errors import MissingDependencyError, UsageError, did_you_mean, missing_library

FAMILIES = "n3ic.families"
"""The group of families of models, which models themselves look up, too."""
_NOUNS: dict[str, str] = {
    "n3ic.datasets": "data set",
    "n3ic.usecases": "use case",
    "n3ic.exporters": "target",
    "n3ic.commands": "command",
    FAMILIES: "family of models",
    "n3ic.learners": "family of models",
    "n3ic.studies": "study",
}


class Plugin:
    """The base class of data sets, use cases, families of models, learners and targets.

    A plug-in subclasses :class:`~n3ic.data.dataset.DataSet`, :class:`~n3ic.usecases.base.UseCase`,
    :class:`~n3ic.model.family.Family`, :class:`~n3ic.runs.learner.Learner` or
    :class:`~n3ic.targets.base.Exporter`. Class attributes describe it, and methods that it does not
    override have a default. An entry point of its group names an instance.

    Attributes:
        name: as typed on the command line.
        summary: one line.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    @cached_property
    def folder(self) -> Path:
        """The folder of the plug-in's module, where its data and templates lie."""
        return Path(inspect.getfile(type(self))).resolve().parent


@cache  # reading the metadata of all installed distributions is slow
def _entry_points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda p: p.name)}


def names(group: str) -> tuple[str, ...]:
    """Names of all installed plug-ins of a group, sorted."""
    return tuple(_entry_points(group))


def _noun(group: str) -> str:
    """The word for a plug-in of a group; derived from the group's name for a system's own group."""
    return _NOUNS.get(group, group.removeprefix("n3ic.").replace("_", " ").removesuffix("s"))


@cache
def load(group: str, name: str) -> Any:
    """The plug-in of that name: the object that its entry point names.

    Raises:
        UsageError: no plug-in has that name; the message suggests the nearest and lists all.
        MissingDependencyError: the plug-in needs a library that is not installed.
    """
    points = _entry_points(group)
    if name not in points:
        known = ", ".join(points) or "none installed"
        hint = did_you_mean(name, points)
        raise UsageError(f"unknown {_noun(group)} {name!r}: {hint}known: {known}")
    try:
        return points[name].load()
    except ModuleNotFoundError as error:
        needs = f"the {_noun(group)} {name!r}"
        raise missing_library(error, needs) or MissingDependencyError(
            f"{needs} needs {error.name}, which is not installed"
        ) from error
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the {_noun(group)} {name!r} is broken: {error}") from error


def find(group: str, name: str, kind: type[Plugin]) -> Any:
    """The plug-in of that name, checked to be of a kind.

    Raises:
        UsageError: no plug-in has that name, or it is of another kind.
        MissingDependencyError: the plug-in needs a library that is not installed.
    """
    plug_in = load(group, name)
    if not isinstance(plug_in, kind):
        raise UsageError(f"the plug-in {name!r} is not an n3ic {kind.__name__}")
    return plug_in
