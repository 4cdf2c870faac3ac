# SPDX-License-Identifier: Apache-2.0
"""A load balancer: a hash of the 5-tuple picks one of 64 buckets, and the bucket a backend.

An entry is a bucket of three words: address, the high 32 bits of the hardware address, and its low
16 bits above bit 0, which tells that there is a backend.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from n3ic.systems.card.tasks.kind import (
    DESTINATION,
    Entries,
    Staging,
    TaskKind,
    TaskState,
    set_address,
    tuple_hash,
)
from n3ic.systems.card.toml_values import TomlTable

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)


class _State(TaskState):
    def __init__(self) -> None:
        self._table = Staging(Balancer.entries, Balancer.words)

    def write(self, address: int, word: int) -> None:
        self._table.write(address, word)

    def run(self, head: bytearray) -> int:
        address, high, low = self._table.rows[tuple_hash(head) % Balancer.entries]
        if low & 1:
            head[0:6] = (high << 16 | low >> 16).to_bytes(6, "big")
            set_address(head, DESTINATION, address)
        return 0


class Balancer(TaskKind):
    """Sends flows to backends."""

    summary: ClassVar[str] = "sends each flow to a backend, by a hash of the 5-tuple"
    needs: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"lut_sites": 565, "ff": 475, "bram36": 0}
    )
    keys: ClassVar[tuple[str, ...]] = ("backends",)
    entries: ClassVar[int] = 64
    words: ClassVar[int] = 3

    def table(self, entry: TomlTable) -> Entries:
        """Read ``backends``, which share the buckets in turn by weight; see the base class."""
        rows = [row for backend in entry.tables("backends") for row in _backend(backend)]
        if not 0 < len(rows) <= self.entries:
            raise entry.error(
                f"'backends': expected weights that sum to 1 to {self.entries}, got {len(rows)}"
            )
        return {i: rows[i % len(rows)] for i in range(self.entries)}

    def state(self) -> TaskState:
        """Return a balancer without backends; see the base class."""
        return _State()

    def aim(self, entries: Entries, head: bytearray, rng: np.random.Generator) -> None:
        """Leave the head as it is: a random one meets any bucket; see the base class."""

    def random_entry(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Draw a backend, or none; see the base class."""
        return tuple(map(int, rng.integers(1 << 32, size=3)))


def _backend(backend: TomlTable) -> list[tuple[int, ...]]:
    backend.only("address", "mac", "weight")
    text = backend.text("mac")
    if not _MAC.fullmatch(text):
        raise backend.error("'mac': expected one such as 02:00:00:00:00:01", "mac")
    try:
        address = int(ipaddress.IPv4Address(backend.text("address")))
    except ValueError as error:
        raise backend.error(f"'address': expected IPv4: {error}", "address") from error
    mac = int(text.replace(":", ""), 16)
    row = (address, mac >> 16, (mac & 0xFFFF) << 16 | 1)
    return [row] * backend.integer("weight", 1, 64, 1)


KIND = Balancer()
