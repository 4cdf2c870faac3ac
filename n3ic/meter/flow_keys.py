# SPDX-License-Identifier: Apache-2.0
"""Parses keys of flows from text: addresses, ports and protocols."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address

Ends = tuple[tuple[bytes, int], tuple[bytes, int]]
Key = tuple[Ends, int]
"""Both ends, the lesser first, and the protocol's number (0 if unknown)."""

PROTOCOLS = {
    "icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "gre": 47, "esp": 50, "icmp6": 58, "icmpv6": 58,
    "ipv6-icmp": 58, "ospf": 89, "pgm": 113, "sctp": 132,
}  # fmt: skip
_NAMES = {number: name for name, number in reversed(PROTOCOLS.items())}  # the first name of each


def flow_key(source: str, sport: str, destination: str, dport: str, protocol: str) -> Key:
    """The key of a flow, the same for both directions.

    Raises:
        ValueError: an address or a port is invalid.
    """
    sender = (packed_address(source), port_number(sport))
    other = (packed_address(destination), port_number(dport))
    return ends_of(sender, other), protocol_number(protocol)


def ends_of(end: tuple[bytes, int], other: tuple[bytes, int]) -> Ends:
    """Two endpoints in ascending order, so that both directions of a flow have one key."""
    return min(end, other), max(end, other)


@lru_cache(maxsize=1 << 16)
def port_number(text: str) -> int:
    """Parse a port; 0 for an empty text.

    Raises:
        ValueError: the text is not a port.
    """
    number = whole_number(text) if text not in ("", "-") else 0
    if number > 65535:
        raise ValueError(f"a port is in 0..65535, got {number}")
    return number


def protocol_number(text: str) -> int:
    """IP protocol number of a name or a number; 0 if unknown."""
    name = text.strip().lower()
    if name.isascii() and name.isdecimal() and len(name) <= 3 and int(name) < 256:
        return int(name)
    return PROTOCOLS.get(name, 0)


def protocol_name(text: str) -> str:
    """Name of an IP protocol, of its number or a name; ``protocol N`` where it has none here."""
    number = protocol_number(text)
    return _NAMES.get(number, f"protocol {text.strip()}")


def whole_number(text: str) -> int:
    """Parse a number that consists only of decimal digits.

    Raises:
        ValueError: the text is not such a number.
    """
    # int() would also take signs, spaces, underscores and other scripts' digits.
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        raise ValueError(f"expected a whole number, got {text[:40]!r}")
    return int(text)


@lru_cache(maxsize=1 << 16)
def packed_address(text: str) -> bytes:
    """The 4 or 16 bytes of an address.

    Raises:
        ValueError: the text is not an address.
    """
    return ip_address(text).packed
