# SPDX-License-Identifier: Apache-2.0
"""What a packet task is: table, reference, and its Verilog and C in its folder.

The folder ``NAME`` holds ``task.py`` with ``KIND``, ``n3ic_task_NAME.v``, and
``NAME.c`` with ``card_task_NAME`` (see ``card_task.h``). A task gets the *head* of a packet: the 44
bytes of its Ethernet, IPv4 and UDP headers and two spare ones, then the task's own header.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from n3ic.systems.card.toml_values import TomlTable

FOLDER = Path(__file__).resolve().parent
FRAME_HEAD = 44
"""Bytes of a packet's headers in its head."""
MEMORY_WORD = 32
"""Bytes of a word of on-board memory."""
DENIED = 0xFFFE
"""Class of a packet that a task drops."""
SOURCE, DESTINATION, PORTS, PROTOCOL = 26, 30, 34, 23
"""First bytes of the addresses and ports in a head, and the byte of the protocol."""

Write = tuple[int, int]
"""An address, 16 times an entry plus a word, and the word of 32 bits."""
Entries = Mapping[int, tuple[int, ...]]
"""Words of a table's entries by their index."""


class TaskState(ABC):
    """A task while it runs: the reference for its Verilog and its C."""

    def write(self, address: int, word: int) -> None:  # noqa: B027
        """Write a word of the table; an entry changes with its last word."""

    def read(self, address: int) -> int:
        """Read a word that the task counts."""
        return 0

    @abstractmethod
    def run(self, head: bytearray) -> int:
        """Process a packet: change its head in place, and return a class or ``DENIED``."""


class TaskKind(ABC):
    """A kind of packet task.

    Attributes:
        summary: what it does, in a few words.
        keys: keys of its own in ``card.toml``.
        entries: entries of its table.
        words: words of an entry.
        header: bytes of its own header in a packet.
        classes: names of its verdicts; empty if it leaves the verdict to others.
        acts: whether it changes or drops packets; else it only reads them.
        keeps: whether packets change what later ones get.
        counts: whether the card can read words of it.
        memory: whether it has pages of on-board memory. Then entry 0 is the number of their words.
        needs: amounts of an instance in Verilog, by resource.
    """

    summary: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()
    entries: ClassVar[int] = 0
    words: ClassVar[int] = 1
    header: ClassVar[int] = 0
    classes: ClassVar[tuple[str, ...]] = ()
    acts: ClassVar[bool] = True
    keeps: ClassVar[bool] = False
    counts: ClassVar[bool] = False
    memory: ClassVar[bool] = False
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({})

    def table(self, entry: TomlTable) -> Entries:
        """Read the table of a task in ``card.toml``; all entries, so that it replaces another.

        Raises:
            CardError: a value is invalid.
        """
        return {}

    def pages(self, entry: TomlTable) -> int:
        """Read the pages of on-board memory that a task in ``card.toml`` wants.

        Raises:
            CardError: the number is invalid.
        """
        return 0

    @abstractmethod
    def state(self) -> TaskState:
        """Return a task with an empty table."""

    @abstractmethod
    def aim(self, entries: Entries, head: bytearray, rng: np.random.Generator) -> None:
        """Change a random head so that it meets the table, at its edges too."""

    def random_entry(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Draw the words of an entry."""
        return ()


class Staging:
    """Words of an entry, which are taken together when the last one comes."""

    def __init__(self, entries: int, words: int) -> None:
        self.rows = [(0,) * words for _ in range(entries)]
        self._staged = [0] * words

    def write(self, address: int, word: int) -> int | None:
        """Write a word; return the index of the entry that it completes."""
        index, at = address >> 4, address & 15
        if at >= len(self._staged):
            return None
        self._staged[at] = word
        if at < len(self._staged) - 1 or index >= len(self.rows):
            return None
        self.rows[index] = tuple(self._staged)
        return index


def writes(entries: Entries) -> Iterator[Write]:
    """Yield the writes that load entries."""
    for index, words in entries.items():
        yield from ((index << 4 | at, word) for at, word in enumerate(words))


def started(kind: TaskKind, entries: Entries) -> TaskState:
    """Return a task with a table."""
    state = kind.state()
    for address, word in writes(entries):
        state.write(address, word)
    return state


@cache
def kinds() -> tuple[str, ...]:
    """Return the names of the packet tasks."""
    return tuple(sorted(path.parent.name for path in FOLDER.glob("*/task.py")))


@cache
def kind_of(name: str) -> TaskKind:
    """Return a packet task by its name, one of :func:`kinds`."""
    kind = import_module(f"n3ic.systems.card.tasks.{name}.task").KIND
    assert isinstance(kind, TaskKind)  # noqa: S101
    return kind


def set_address(head: bytearray, at: int, address: int) -> None:
    """Change an address of the IPv4 header, and its checksum (RFC 1624, equation 3)."""
    words = [number(head[24:26]), number(head[at : at + 2]), number(head[at + 2 : at + 4])]
    total = sum(word ^ 0xFFFF for word in words) + (address >> 16) + (address & 0xFFFF)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    head[24:26] = (total ^ 0xFFFF).to_bytes(2, "big")
    head[at : at + 4] = address.to_bytes(4, "big")


def reply(head: bytearray) -> None:
    """Send a head back to its sender: addresses and ports change places."""
    for one, other, size in ((0, 6, 6), (SOURCE, DESTINATION, 4), (PORTS, PORTS + 2, 2)):
        first, second = head[one : one + size], head[other : other + size]
        head[one : one + size], head[other : other + size] = second, first


def mix(word: int) -> int:
    """Spread the bits of a word (xorshift of Marsaglia, 13, 17, 5)."""
    word ^= word << 13 & 0xFFFFFFFF
    word ^= word >> 17
    return word ^ word << 5 & 0xFFFFFFFF


def tuple_hash(head: bytearray) -> int:
    """Hash the 5-tuple of a head to 32 bits."""
    source, destination, ports = (number(head[at : at + 4]) for at in (SOURCE, DESTINATION, PORTS))
    turned = _turned(destination, 11) ^ _turned(ports, 19)
    return mix(source ^ turned ^ head[PROTOCOL])


def _turned(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & 0xFFFFFFFF


def number(octets: Iterable[int]) -> int:
    """Return bytes as a big-endian number."""
    return int.from_bytes(bytes(octets), "big")
