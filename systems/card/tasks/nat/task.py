# SPDX-License-Identifier: Apache-2.0
"""Network address translation in both directions, by 32 mappings of an address and a port.

An entry has four words: inside address, outside address, inside port above outside port, and bit 0
for a mapping. A packet from an inside address and port gets the outside ones as its source. One to
an outside address and port gets the inside ones as its destination. The first mapping counts, those
of a source first.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from n3ic.systems.card.tasks.kind import (
    DESTINATION,
    PORTS,
    SOURCE,
    Entries,
    Staging,
    TaskKind,
    TaskState,
    number,
    set_address,
)
from n3ic.systems.card.toml_values import TomlTable


class _State(TaskState):
    def __init__(self) -> None:
        self._table = Staging(Nat.entries, Nat.words)

    def write(self, address: int, word: int) -> None:
        self._table.write(address, word)

    def run(self, head: bytearray) -> int:
        rows = [row for row in self._table.rows if row[3] & 1]
        for at, port, of, shift in ((SOURCE, PORTS, 0, 16), (DESTINATION, PORTS + 2, 1, 0)):
            key = number(head[at : at + 4]), number(head[port : port + 2])
            for row in rows:
                if key == (row[of], row[2] >> shift & 0xFFFF):
                    set_address(head, at, row[1 - of])
                    head[port : port + 2] = (row[2] >> 16 - shift & 0xFFFF).to_bytes(2, "big")
                    return 0
        return 0


class Nat(TaskKind):
    """Translates addresses and ports."""

    summary: ClassVar[str] = "translates addresses and ports in both directions, 32 mappings"
    needs: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"lut_sites": 5845, "ff": 5203, "bram36": 0}
    )
    keys: ClassVar[tuple[str, ...]] = ("mappings",)
    entries: ClassVar[int] = 32
    words: ClassVar[int] = 4

    def table(self, entry: TomlTable) -> Entries:
        """Read ``mappings``; see the base class."""
        rows = [_mapping(mapping) for mapping in entry.tables("mappings")]
        if len(rows) > self.entries:
            raise entry.error(
                f"'mappings': expected at most {self.entries}, got {len(rows)}", "mappings"
            )
        empty: dict[int, tuple[int, ...]] = dict.fromkeys(range(self.entries), (0,) * self.words)
        return empty | dict(enumerate(rows))

    def state(self) -> TaskState:
        """Return a translation without mappings; see the base class."""
        return _State()

    def aim(self, entries: Entries, head: bytearray, rng: np.random.Generator) -> None:
        """Make a head that a mapping meets, or misses by one bit; see the base class."""
        row = entries[int(rng.choice([*entries]))]
        if rng.random() < 0.5:
            head[SOURCE : SOURCE + 4] = row[0].to_bytes(4, "big")
            head[PORTS : PORTS + 2] = (row[2] >> 16).to_bytes(2, "big")
        else:
            head[DESTINATION : DESTINATION + 4] = row[1].to_bytes(4, "big")
            head[PORTS + 2 : PORTS + 4] = (row[2] & 0xFFFF).to_bytes(2, "big")
        if rng.random() < 0.2:
            head[int(rng.integers(SOURCE, PORTS + 4))] ^= 1 << int(rng.integers(8))

    def random_entry(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Draw a mapping, or none; see the base class."""
        # Few addresses, so that mappings overlap.
        inside, outside = (int(v) for v in rng.integers(4, size=2) * 0xFF01FE01)
        ports = int(rng.choice([0, 1, 0xFFFF])) << 16 | int(rng.integers(1 << 16))
        return (inside & 0xFFFFFFFF, outside & 0xFFFFFFFF, ports, int(rng.random() < 0.8))


def _mapping(mapping: TomlTable) -> tuple[int, ...]:
    mapping.only("inside", "outside")
    inside, outside = (_endpoint(mapping, key) for key in ("inside", "outside"))
    return (inside[0], outside[0], inside[1] << 16 | outside[1], 1)


def _endpoint(mapping: TomlTable, key: str) -> tuple[int, int]:
    address, _, port = mapping.text(key).partition(":")
    try:
        if not 0 <= (value := int(port)) < 1 << 16:
            raise ValueError(f"port {value}")
        return int(ipaddress.IPv4Address(address)), value
    except ValueError as error:
        raise mapping.error(f"{key!r}: expected one such as 10.0.0.1:5000: {error}", key) from error


KIND = Nat()
