# SPDX-License-Identifier: Apache-2.0
"""Counts packets and bytes in 256 classes by a hash of the 5-tuple.

Word ``2 c`` is the packets of class ``c``, word ``2 c + 1`` their bytes by the IPv4 length; both
wrap at 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from n3ic.systems.card.tasks.kind import Entries, TaskKind, TaskState, number, tuple_hash

_CLASSES = 256


class _State(TaskState):
    def __init__(self) -> None:
        self._counts = [0] * (2 * _CLASSES)

    def read(self, address: int) -> int:
        return self._counts[address % len(self._counts)]

    def run(self, head: bytearray) -> int:
        at = 2 * (tuple_hash(head) % _CLASSES)
        for i, by in enumerate((1, number(head[16:18]))):
            self._counts[at + i] = (self._counts[at + i] + by) & 0xFFFFFFFF
        return 0


class Counters(TaskKind):
    """Counts packets and bytes."""

    summary: ClassVar[str] = "counts packets and bytes in 256 classes by a hash of the 5-tuple"
    needs: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"lut_sites": 883, "ff": 754, "bram36": 0}
    )
    acts: ClassVar[bool] = False
    keeps: ClassVar[bool] = True
    counts: ClassVar[bool] = True

    def state(self) -> TaskState:
        """Return counters at 0; see the base class."""
        return _State()

    def aim(self, entries: Entries, head: bytearray, rng: np.random.Generator) -> None:
        """Make a head of one of eight flows; see the base class."""
        head[26:38] = bytes([int(rng.integers(8))]) * 12


KIND = Counters()
