# SPDX-License-Identifier: Apache-2.0
"""What is told while training goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from n3ic.training.loop import EpochCallback

StageCallback = Callable[[str], None]


def _ignored(*_: object) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class TrainingProgress:
    """What is told while training goes on.

    Attributes:
        epoch: called after every epoch.
        stage: called with a line about each step.
        begin: called with a line about a step of several tasks, and how many they are.
        task: called with the name of each of these tasks that is done.
        note: called with lines about the data that stay to be read.
    """

    epoch: EpochCallback = _ignored
    stage: StageCallback = _ignored
    begin: Callable[[str, int], None] = _ignored
    task: Callable[[str], None] = _ignored
    note: StageCallback = _ignored
