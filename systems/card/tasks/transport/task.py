# SPDX-License-Identifier: Apache-2.0
"""The card's part of a go-back-N transport over a network that keeps order, 256 connections.

A packet's own header of 8 bytes has a kind, a spare byte, a connection (its low 8 bits count) and a
sequence number. ``open`` (3) starts a connection at 0. ``send`` (0) becomes ``data`` (1) with the
next number. ``data`` with the expected number goes on; with an older one it returns as a ``nack``
(2) of the expected number; with a later one too, the first time, and is then dropped until the
expected one comes. A ``nack`` that comes lets the numbers of ``send`` go back, and goes on to the
host, which keeps its packets and sends them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from n3ic.systems.card.tasks.kind import (
    DENIED,
    FRAME_HEAD,
    Entries,
    TaskKind,
    TaskState,
    number,
    reply,
)

SEND, DATA, NACK, OPEN = range(4)
_SEQUENCE = slice(FRAME_HEAD + 4, FRAME_HEAD + 8)
_CONNECTIONS = 256


class _State(TaskState):
    def __init__(self) -> None:
        self._next = [0] * _CONNECTIONS
        self._expected = [0] * _CONNECTIONS
        self._asked = [False] * _CONNECTIONS

    def run(self, head: bytearray) -> int:
        kind, at, sequence = head[FRAME_HEAD], head[FRAME_HEAD + 3], number(head[_SEQUENCE])
        if kind == OPEN:
            self._next[at] = self._expected[at] = 0
            self._asked[at] = False
        elif kind == SEND:
            head[FRAME_HEAD] = DATA
            head[_SEQUENCE] = self._next[at].to_bytes(4, "big")
            self._next[at] = (self._next[at] + 1) & 0xFFFFFFFF
        elif kind == NACK:
            self._next[at] = sequence
            return 2
        elif kind == DATA and sequence == self._expected[at]:
            self._expected[at] = (sequence + 1) & 0xFFFFFFFF
            self._asked[at] = False
        elif kind == DATA:
            later = (sequence - self._expected[at]) & 0xFFFFFFFF < 1 << 31
            if later and self._asked[at]:
                return DENIED
            self._asked[at] |= later
            head[FRAME_HEAD] = NACK
            head[_SEQUENCE] = self._expected[at].to_bytes(4, "big")
            reply(head)
            return 1
        return 0


class Transport(TaskKind):
    """Numbers packets, and asks for lost ones."""

    summary: ClassVar[str] = "go-back-N: numbers packets, and asks for lost ones, 256 connections"
    needs: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"lut_sites": 789, "ff": 845, "bram36": 0}
    )
    header: ClassVar[int] = 8
    classes: ClassVar[tuple[str, ...]] = ("data", "asks", "back")
    keeps: ClassVar[bool] = True

    def state(self) -> TaskState:
        """Return connections at 0; see the base class."""
        return _State()

    def aim(self, entries: Entries, head: bytearray, rng: np.random.Generator) -> None:
        """Make a packet of one of two connections, its number near; see the base class."""
        head[FRAME_HEAD] = int(rng.choice(5, p=[0.2, 0.6, 0.1, 0.05, 0.05]))
        head[FRAME_HEAD + 3] = int(rng.integers(2))
        sequence = int(rng.integers(-2, 6)) & 0xFFFFFFFF
        head[_SEQUENCE] = sequence.to_bytes(4, "big")


KIND = Transport()
