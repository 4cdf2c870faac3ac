# SPDX-License-Identifier: Apache-2.0
"""A model file that is replaced while its model runs, such as by ``--push file:PATH``."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

from n3ic.errors import ModelError, N3icWarning
from n3ic.model.classifier import Classifier
from n3ic.model.load import load_model

EVERY_S = 0.1  # between two looks at the file

_Stamp = tuple[int, int, int, int]


class FollowedModel:
    """A model file, and what was last seen of it.

    Args:
        path: the file. Whoever replaces it renames a complete file, as model files are saved.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: _Stamp | None = None
        self._looked = -EVERY_S

    def successor(self, running: Classifier) -> Classifier | None:
        """The model to run from now on; None if the running one stays.

        Args:
            running: the running model.

        Warns:
            N3icWarning: The file was replaced by something that cannot take the running model's
                place; the message gives the reason.
        """
        now = time.monotonic()
        if now - self._looked < EVERY_S:
            return None
        self._looked = now
        stamp = _stamp(self.path)
        if stamp is None or stamp == self._stamp:
            return None
        self._stamp = stamp  # before reading: a file that is replaced meanwhile is read again
        try:
            model = load_model(self.path)
        except ModelError as error:
            reason = str(error)
        else:
            if model.digest == running.digest:
                return None
            reason = refusal(running, model)
            if not reason:
                return model
            reason = f"{self.path}: {reason}"
        message = f"{reason}; the model {running.digest[:12]} goes on"
        warnings.warn(message, N3icWarning, stacklevel=2)
        return None


def refusal(running: Classifier, other: Classifier) -> str:
    """Why a model cannot take the place of a running one amid its flows; empty if it can."""
    if other.meter != running.meter:
        return f"the model {other.digest[:12]} has another meter, whose flows would begin anew"
    for what, new, old in (
        ("reads", other.input.features, running.input.features),
        ("decides among", other.verdict_names, running.verdict_names),
    ):
        if new != old:
            names = f"{', '.join(new)}; expected {', '.join(old)}"
            return f"the model {other.digest[:12]} {what} {names}"
    return ""


def _stamp(path: Path) -> _Stamp | None:
    """What changes when a file is replaced; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
