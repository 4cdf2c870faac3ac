# SPDX-License-Identifier: Apache-2.0
"""A cache of key-value pairs in front of a store, in pages of on-board memory.

Its packets are those of ``cache``. A key has one slot, a word of 32 bytes, so a new pair takes the
place of another one there. Words that the card reads: gets, hits, pairs written, faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from n3ic.systems.card.tasks.cache.task import DELETE, FOUND, GET, SET, KeyValueCache
from n3ic.systems.card.tasks.kind import FRAME_HEAD, TaskState, mix, number, reply
from n3ic.systems.card.toml_values import TomlTable

_KEY, _VALUE = FRAME_HEAD + 1, FRAME_HEAD + 9
_MOST_PAGES = 4096


class _State(TaskState):
    def __init__(self) -> None:
        self._slots = 0
        self._pairs: dict[int, tuple[bytes, bytes]] = {}
        self._counts = [0] * 4

    def write(self, address: int, word: int) -> None:
        if address == 0:
            self._slots = word

    def read(self, address: int) -> int:
        return self._counts[address & 3]

    def run(self, head: bytearray) -> int:
        operation, key = head[FRAME_HEAD], bytes(head[_KEY:_VALUE])
        slot = mix(number(key[:4]) ^ number(key[4:])) & (self._slots - 1)
        pair = self._pairs.get(slot)
        hit = pair if pair and pair[0] == key else None
        if operation == GET:
            self._counts[0] += 1
            if hit is None:
                return 0
            self._counts[1] += 1
            head[FRAME_HEAD] = FOUND
            head[_VALUE:] = hit[1]
            reply(head)
            return 1
        if operation in (SET, FOUND):
            self._counts[2] += 1
            if self._slots:
                self._pairs[slot] = (key, bytes(head[_VALUE:]))
        elif operation == DELETE and hit:
            del self._pairs[slot]
        return 0


class MemoryCache(KeyValueCache):
    """Answers for a key-value store from on-board memory."""

    summary: ClassVar[str] = "answers for a key-value store, pairs in on-board memory"
    keys: ClassVar[tuple[str, ...]] = ("pages",)
    needs: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"lut_sites": 534, "ff": 1400, "bram36": 0}
    )
    memory: ClassVar[bool] = True

    def pages(self, entry: TomlTable) -> int:
        """Read how many pages it wants, a power of two; see the base class."""
        pages = entry.integer("pages", 1, _MOST_PAGES, 1)
        if pages & pages - 1:
            raise entry.error(f"'pages': expected a power of two, got {pages}", "pages")
        return pages

    def state(self) -> TaskState:
        """Return an empty cache; see the base class."""
        return _State()


KIND = MemoryCache()
