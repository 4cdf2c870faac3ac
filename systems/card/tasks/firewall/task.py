# SPDX-License-Identifier: Apache-2.0
"""A firewall by 5-tuple: the first rule that matches allows or denies a packet.

An entry has nine words: source, destination, ports (source's high), protocol; a mask of each; bit 0
of the last one for a rule, bit 1 to deny. Packets without a rule pass.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from n3ic.systems.card.tasks.kind import (
    DENIED,
    DESTINATION,
    PORTS,
    PROTOCOL,
    SOURCE,
    Entries,
    Staging,
    TaskKind,
    TaskState,
    number,
)
from n3ic.systems.card.toml_values import TomlTable

_ALL = 0xFFFFFFFF


class _State(TaskState):
    def __init__(self) -> None:
        self._table = Staging(Firewall.entries, Firewall.words)

    def write(self, address: int, word: int) -> None:
        self._table.write(address, word)

    def run(self, head: bytearray) -> int:
        key = [number(head[at : at + 4]) for at in (SOURCE, DESTINATION, PORTS)]
        key.append(head[PROTOCOL])
        for row in self._table.rows:
            near = all((k ^ v) & m == 0 for k, v, m in zip(key, row[:4], row[4:8], strict=True))
            if row[8] & 1 and near:
                return DENIED if row[8] & 2 else 0
        return 0


class Firewall(TaskKind):
    """Allows or denies by addresses, ports and protocol."""

    summary: ClassVar[str] = "drops packets by 5-tuple, the first of 32 rules that matches"
    needs: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"lut_sites": 2243, "ff": 7714, "bram36": 0}
    )
    keys: ClassVar[tuple[str, ...]] = ("rules", "default")
    entries: ClassVar[int] = 32
    words: ClassVar[int] = 9

    def table(self, entry: TomlTable) -> Entries:
        """Read ``rules`` and ``default``; see the base class."""
        rules = entry.tables("rules")
        if len(rules) >= self.entries:
            raise entry.error(
                f"'rules': expected at most {self.entries - 1}, got {len(rules)}", "rules"
            )
        denies = entry.choice("default", ("allow", "deny"), "allow") == "deny"
        table = {i: _rule(rule) for i, rule in enumerate(rules)}
        # All entries are written, so that a new table replaces an old one whole.
        empty = dict.fromkeys(range(len(table), self.entries - 1), (0,) * self.words)
        return table | empty | {self.entries - 1: (0,) * 8 + (1 | denies << 1,)}

    def state(self) -> TaskState:
        """Return a firewall without rules; see the base class."""
        return _State()

    def aim(self, entries: Entries, head: bytearray, rng: np.random.Generator) -> None:
        """Make a head that a rule matches, or misses by one bit; see the base class."""
        row = entries[int(rng.choice([*entries]))]
        for at, value, mask in zip((SOURCE, DESTINATION, PORTS), row[:3], row[4:7], strict=True):
            old = number(head[at : at + 4])
            head[at : at + 4] = (old & ~mask | value & mask).to_bytes(4, "big")
        if rng.random() < 0.4:
            at = int(rng.integers(SOURCE, PORTS + 4))
            head[at] ^= 1 << int(rng.integers(8))

    def random_entry(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Draw a rule with prefixes; see the base class."""
        masks = [_ALL << int(rng.integers(33)) & _ALL for _ in range(2)]
        masks += [int(rng.choice([0, 0xFFFF, _ALL])), int(rng.choice([0, 255]))]
        values = [int(v) for v in rng.integers(1 << 32, size=3)] + [17]
        return (*values, *masks, int(rng.choice([0, 1, 3], p=[0.2, 0.4, 0.4])))


def _rule(rule: TomlTable) -> tuple[int, ...]:
    rule.only("action", "source", "destination", "source_port", "port", "protocol")
    denies = rule.choice("action", ("allow", "deny")) == "deny"
    source, destination = (_network(rule, key) for key in ("source", "destination"))
    ports = [rule.optional_integer(key, 0, 65535) for key in ("source_port", "port")]
    protocol = rule.optional_integer("protocol", 0, 255)
    value = (ports[0] or 0) << 16 | (ports[1] or 0)
    mask = (0 if ports[0] is None else 0xFFFF0000) | (0 if ports[1] is None else 0xFFFF)
    return (
        *(int(source.network_address), int(destination.network_address), value, protocol or 0),
        *(int(source.netmask), int(destination.netmask), mask),
        *(0 if protocol is None else 255, 1 | denies << 1),
    )


def _network(rule: TomlTable, key: str) -> Any:
    text = rule.text(key, "0.0.0.0/0")
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise rule.error(f"{key!r}: expected IPv4 such as 10.0.0.0/8: {error}", key) from error


KIND = Firewall()
