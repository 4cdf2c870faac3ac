# SPDX-License-Identifier: Apache-2.0
"""The packet tasks of a card while they run, in their references."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from n3ic.systems.card.description import PacketTask
from n3ic.systems.card.tasks.kind import DENIED, FRAME_HEAD, kind_of, started


def header_bytes(tasks: Iterable[PacketTask]) -> int:
    """Return the bytes that all packets of a card have for the tasks' own headers."""
    return max((kind_of(task.task).header for task in tasks), default=0)


def head_of(frame: bytes | bytearray, offset: int, header: int) -> bytearray:
    """Return the head of a frame whose input begins at ``offset``."""
    return bytearray(frame[:FRAME_HEAD] + frame[offset - header : offset])


def write_head(frame: bytearray, head: bytes | bytearray, offset: int, header: int) -> None:
    """Write a head into its frame."""
    frame[:FRAME_HEAD] = head[:FRAME_HEAD]
    frame[offset - header : offset] = head[FRAME_HEAD:]


class RunningTasks:
    """The tasks of a card, which see packets in the order in which they are admitted."""

    def __init__(self, tasks: Iterable[PacketTask]) -> None:
        self._states = {t.name: (t, started(kind_of(t.task), t.entries)) for t in tasks}

    def run(self, names: Sequence[str], head: bytearray) -> int | None:
        """Run tasks on a head in place; return the last class, ``DENIED``, or None for neither."""
        verdict = None
        for name in names:
            task, state = self._states[name]
            last = state.run(head)
            if last == DENIED:
                return DENIED
            if kind_of(task.task).classes:
                verdict = last
        return verdict

    def aim(self, names: Sequence[str], head: bytearray, rng: np.random.Generator) -> None:
        """Change a random head so that it meets the tables of some tasks."""
        for name in names:
            task = self._states[name][0]
            if rng.random() < 0.8:
                ports = head[36:38]
                kind_of(task.task).aim(task.entries, head, rng)
                # Its headers stay those of the graph's UID.
                head[12:15], head[20:22], head[23] = b"\x08\x00\x45", b"\x40\x00", 17
                head[36:38] = ports
