# SPDX-License-Identifier: Apache-2.0
"""Callbacks for the progress of a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from n3ic.training.loop import EpochCallback

StageCallback = Callable[[str], None]


def _ignored(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class TrainingProgress:
    """Callbacks for the progress of a training.

    Attributes:
        epoch: called after every epoch.
        stage: called with a line about each step.
        begin: called with a line about a step of several tasks, and their number.
        task: called with the name of each of these tasks when it is done.
        note: called with lines that should remain visible.
        columns: called with what is done with each column: name, use and why, see
            :class:`~n3ic.runs.column_uses.ColumnUse`.
    """

    epoch: EpochCallback = _ignored
    stage: StageCallback = _ignored
    begin: Callable[[str, int], None] = _ignored
    task: Callable[[str], None] = _ignored
    note: StageCallback = _ignored
    columns: Callable[[Sequence[Mapping[str, Any]]], object] = _ignored
