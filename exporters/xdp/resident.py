# SPDX-License-Identifier: Apache-2.0
"""Models that are resident in a program, and the rules that choose among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from n3ic.errors import UsageError
from n3ic.exporters.xdp import libbpf

SLOTS = 64
RULES = 64
NO_VLAN = 4096

# The structures of ``c/dispatch.h``.
RULE = np.dtype(
    [
        ("address", np.uint8, 16),
        ("mask", np.uint8, 16),
        ("interface", np.uint32),
        ("vlan", np.uint16),
        ("udp_port", np.uint16),
        ("address_bytes", np.uint8),
        ("slot", np.uint8),
        ("pad", np.uint8, 6),
    ],
    align=True,
)
RULE_TABLE = np.dtype([("count", np.uint32), ("otherwise", np.uint32), ("rule", RULE, RULES)])


@dataclass(frozen=True)
class SlotRule:
    """A rule that assigns flows to a slot: a flow's first packet must match all given fields.

    Attributes:
        slot: number of the slot, 0 to 63.
        interface: index of the receiving interface; 0 for any.
        vlan: outer VLAN id; :data:`NO_VLAN` for untagged, 0 for any.
        udp_port: UDP port of either endpoint; 0 for any.
        address: address of either endpoint, 4 or 16 bytes; empty for any.
        prefix: number of leading bits of the address that must match.
    """

    slot: int
    interface: int = 0
    vlan: int = 0
    udp_port: int = 0
    address: bytes = b""
    prefix: int = 0

    def __post_init__(self) -> None:
        check_slot(self.slot)
        if not 0 <= self.vlan <= NO_VLAN or not 0 <= self.udp_port < 1 << 16:
            raise UsageError(f"a rule needs a VLAN of 1 to 4095 and a port below 65,536: {self}")
        if len(self.address) not in (0, 4, 16) or not 0 <= self.prefix <= 8 * len(self.address):
            raise UsageError(f"a rule needs a prefix of an IPv4 or IPv6 address: {self}")


def check_slot(slot: int) -> None:
    """Check the number of a slot.

    Raises:
        UsageError: the number is not below :data:`SLOTS`.
    """
    if not 0 <= slot < SLOTS:
        raise UsageError(f"slots are 0 to {SLOTS - 1}, got {slot}")


def rule_table(rules: Sequence[SlotRule], otherwise: int) -> bytes:
    """Serialise the rules for the program.

    Raises:
        UsageError: the number of rules exceeds the table.
    """
    check_slot(otherwise)
    if len(rules) > RULES:
        raise UsageError(f"at most {RULES} rules choose a model, got {len(rules)}")
    table = np.zeros(1, dtype=RULE_TABLE)
    table["count"], table["otherwise"] = len(rules), otherwise
    for place, rule in zip(table["rule"][0], rules, strict=False):
        mask = ((1 << rule.prefix) - 1) << (8 * len(rule.address) - rule.prefix)
        octets = mask.to_bytes(len(rule.address), "big")
        masked = bytes(a & m for a, m in zip(rule.address, octets, strict=True))
        for name, value in (("address", masked), ("mask", octets)):
            place[name] = np.frombuffer(value.ljust(16, b"\0"), dtype=np.uint8)
        place["address_bytes"] = len(rule.address)
        for name in ("slot", "interface", "vlan", "udp_port"):
            place[name] = getattr(rule, name)
    return table.tobytes()


def swap(outer: libbpf.BpfMap, slot: int, value: bytes) -> None:
    """Put a value into a slot of a map of maps; each packet sees either the old or the new one.

    When this returns, no packet sees the old value any more.
    """
    with libbpf.create_map(libbpf.ARRAY, outer.name, 4, len(value), 1) as inner:
        inner.update(0, value)
        # The update waits for an RCU grace period, so programs that ran before it have finished.
        outer.update(slot, inner.fd)
