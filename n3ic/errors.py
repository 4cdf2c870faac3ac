# SPDX-License-Identifier: Apache-2.0
"""The errors that a user may meet, each with a text that says what to do."""

from __future__ import annotations


class N3icError(Exception):
    """A mistake in what the user gave; the CLI prints its text and no traceback.

    Attributes:
        exit_code: the process exit code that the CLI ends with.
    """

    exit_code = 1


class UsageError(N3icError):
    """An option, a name or a combination of them that does not exist."""

    exit_code = 2


class DataError(N3icError):
    """A table that cannot be read as what it claims to be; names file, line and column."""


class ModelError(N3icError):
    """A model file or a network description that breaks the BinaryModel contract."""


class CardError(N3icError):
    """A description of a shared card that cannot be read or planned; names file and line."""


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
