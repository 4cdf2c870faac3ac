# SPDX-License-Identifier: Apache-2.0
"""A cache of key-value pairs in front of a store: 1,024 pairs in 256 sets of four.

A packet's own header of 25 bytes has an operation, a key of 8 bytes and a value of 16. A ``get``
(0) that hits returns to its sender as a ``found`` (2) with the value; one that misses goes on. A
``set`` (1) and the store's answer ``found`` write the pair, and go on; a ``delete`` (3) removes it,
and goes on. A new pair takes the place of the oldest one of its set. Words that the card reads:
gets, hits, pairs written.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from n3ic.systems.card.tasks.kind import (
    FRAME_HEAD,
    Entries,
    TaskKind,
    TaskState,
    mix,
    number,
    reply,
)

GET, SET, FOUND, DELETE = range(4)
_KEY, _VALUE = FRAME_HEAD + 1, FRAME_HEAD + 9
_SETS, _WAYS = 256, 4


class _State(TaskState):
    def __init__(self) -> None:
        self._ways: list[list[tuple[bytes, bytes] | None]] = [[None] * _WAYS for _ in range(_SETS)]
        self._oldest = [0] * _SETS
        self._counts = [0] * 4

    def read(self, address: int) -> int:
        return self._counts[address & 3]

    def run(self, head: bytearray) -> int:
        operation, key = head[FRAME_HEAD], bytes(head[_KEY:_VALUE])
        index = mix(number(key[:4]) ^ number(key[4:])) % _SETS
        ways = self._ways[index]
        hit = next((i for i, pair in enumerate(ways) if pair and pair[0] == key), None)
        if operation == GET:
            self._counts[0] += 1
            pair = None if hit is None else ways[hit]
            if pair is None:
                return 0
            self._counts[1] += 1
            head[FRAME_HEAD] = FOUND
            head[_VALUE:] = pair[1]
            reply(head)
            return 1
        if operation in (SET, FOUND):
            self._counts[2] += 1
            way = self._oldest[index] if hit is None else hit
            if hit is None:
                self._oldest[index] = (way + 1) % _WAYS
            ways[way] = (key, bytes(head[_VALUE:]))
        elif operation == DELETE and hit is not None:
            ways[hit] = None
        return 0


class KeyValueCache(TaskKind):
    """Answers for a key-value store."""

    summary: ClassVar[str] = "answers for a key-value store, 1,024 pairs of 8 and 16 bytes"
    needs: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"lut_sites": 1046, "ff": 1251, "bram36": 12}
    )
    header: ClassVar[int] = 25
    classes: ClassVar[tuple[str, ...]] = ("miss", "hit")
    keeps: ClassVar[bool] = True
    counts: ClassVar[bool] = True

    def state(self) -> TaskState:
        """Return an empty cache; see the base class."""
        return _State()

    def aim(self, entries: Entries, head: bytearray, rng: np.random.Generator) -> None:
        """Ask for one of twelve keys, of which ten are of one set; see the base class."""
        keys = [k << 32 | k ^ 77 for k in range(10)] + [1, 2]
        head[FRAME_HEAD] = int(rng.choice(5, p=[0.5, 0.3, 0.1, 0.08, 0.02]))
        head[_KEY:_VALUE] = keys[int(rng.integers(12))].to_bytes(8, "big")


KIND = KeyValueCache()
