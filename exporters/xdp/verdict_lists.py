# SPDX-License-Identifier: Apache-2.0
"""Verdicts that outlive flows: how they are named, and what n3icd tells of their maps.

The order of precedence is that of ``c/state.h``: allowed sources first, then sources that the
operator listed, then verdicts from decisions on a flow, a host and a prefix.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from socket import AF_INET, inet_ntop
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.exporters.xdp import layout
from n3ic.model.meter_spec import MeterSpec

Action = Literal[
    "pass", "drop", "interface", "socket", "cpu", "mark", "rate-limit", "allow", "mirror", "shared"
]  # in the order of enum action
Scope = Literal["none", "flow", "host", "prefix"]
ACTIONS: tuple[Action, ...] = get_args(Action)
ALLOWING: tuple[Action, ...] = ("allow", "shared")
"""Actions on the list of allowed sources."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
SECOND_NS = 10**9
MAX_BLOCKED, NEW_FLOWS, VERDICTS = 1024, 1000, 16_384
PREFIX_BITS = (24, 64)
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmp6": 58, "sctp": 132}
_FLOW = re.compile(r"(.+):(\d+)-(.+):(\d+)/(\w+)")
_FORMS = (
    "expected an address (192.0.2.1), a prefix (192.0.2.0/24) or a flow "
    "(192.0.2.1:1234-198.51.100.2:80/tcp, IPv6 addresses in brackets)"
)


@dataclass(frozen=True)
class Limits:
    """Limits of verdicts and new flows.

    Attributes:
        dry_run: whether verdicts and policies are only counted, and every packet passes.
        max_blocked: maximum number of hosts that decisions block at one time; a host is an IPv4
            address or the first 64 bits of an IPv6 address.
        prefix_bits: lengths of the prefixes that decisions block, for IPv4 and IPv6.
        new_flows: flows that a source may begin per second, and in one burst; 0 for no limit.
    """

    dry_run: bool = False
    max_blocked: int = MAX_BLOCKED
    prefix_bits: tuple[int, int] = PREFIX_BITS
    new_flows: int = 0

    def value(self) -> bytes:
        """Serialise the limits as the value of the map ``config``."""
        interval, burst = rate(self.new_flows) if self.new_flows else (0, 0)
        value = (self.dry_run, self.prefix_bits, 0, self.max_blocked, interval, burst)
        return np.array([value], dtype=layout.CONFIG).tobytes()


def rate(per_second: int) -> tuple[int, int]:
    """Return the nanoseconds between two tokens of a bucket that holds a second's, and its room.

    Raises:
        UsageError: the rate is not 1 to a billion.
    """
    if not 1 <= per_second <= SECOND_NS:
        raise UsageError(f"a rate is 1 to {SECOND_NS:,} a second, got {per_second:,}")
    interval = SECOND_NS // per_second
    return interval, SECOND_NS - interval


@dataclass(frozen=True)
class VerdictSubject:
    """The target of a verdict: a flow, or the sources in a prefix.

    Attributes:
        text: the target as text.
        key: the target's key in its map.
        flow: whether the target is a flow.
        bits: length of the prefix in bits; 0 for a flow.
    """

    text: str
    key: bytes
    flow: bool
    bits: int


def verdict_subject(text: str, spec: MeterSpec) -> VerdictSubject:
    """Parse an address, a prefix or a flow as typed.

    Raises:
        UsageError: the text is none of these, the prefix is the whole Internet, or the meter has no
            such flows.
    """
    match = _FLOW.fullmatch(text)
    try:
        if not match:
            network = ipaddress.ip_network(text)
            if not network.prefixlen:
                raise UsageError(f"{text}: this prefix is every address: give a longer one")
            return VerdictSubject(_short(network), _prefix_key(network), False, network.prefixlen)
        ends = [ipaddress.ip_address(match[i].strip("[]")) for i in (1, 3)]
        protocol = _PROTOCOLS.get(match[5].lower()) or int(match[5])
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}; {_FORMS}") from error
    ports = [int(match[i]) for i in (2, 4)]
    if ends[0].version != ends[1].version or max(*ports, protocol << 8) > 0xFFFF:
        raise UsageError(f"{text!r}: {_FORMS}")
    if spec.key == "source-host":
        raise UsageError(f"{text}: this meter's flows are sources; name the address alone")
    if spec.key == "host-pair":
        protocol, ports = 0, [0, 0]
    # The order of canonical_key in meter.c: addresses as two words of the processor, then ports.
    sides = sorted(
        zip((e.packed for e in ends), ports, strict=True),
        key=lambda side: (*np.frombuffer(side[0].ljust(16, b"\0"), np.uint64).tolist(), side[1]),
    )
    key = np.zeros(1, layout.KEY)
    for name, (address, port) in zip(("source", "destination"), sides, strict=True):
        key[name][0, : len(address)] = list(address)
        key[f"{name}_port"] = port
    key["protocol"], key["address_bytes"] = protocol, len(ends[0].packed)
    return VerdictSubject(flow_text(key[0]), key.tobytes(), True, 0)


def flow_text(key: np.void) -> str:
    """Format a flow's key in the form that :func:`target` reads."""
    size, out = int(key["address_bytes"]), []
    for name in ("source", "destination"):
        address = ipaddress.ip_address(key[name][:size].tobytes())
        shown = f"[{address}]" if address.version == 6 else str(address)
        out.append(f"{shown}:{key[f'{name}_port']}")
    names = {number: name for name, number in _PROTOCOLS.items()}
    protocol = int(key["protocol"])
    return f"{out[0]}-{out[1]}/{names.get(protocol, protocol)}"


def _short(network: _Network) -> str:
    """Format a prefix, or its address if it holds only one."""
    whole = network.prefixlen == network.max_prefixlen
    return str(network.network_address if whole else network)


def _prefix_key(network: _Network) -> bytes:
    address = network.network_address.packed
    key = np.zeros(1, layout.PREFIX)
    key["bits"], key["family"] = layout.PREFIX_FAMILY + network.prefixlen, len(address)
    key["address"][0, : len(address)] = list(address)
    return key.tobytes()


@dataclass(frozen=True)
class ListedVerdict:
    """A verdict in the maps.

    Attributes:
        target: address, prefix or flow.
        action: its action.
        argument: packets per second of a rate limit, or the action's argument; otherwise 0.
        by: ``operator``, ``file`` (one of n3icd's lists), or the verdict of the flow that brought
            the entry.
        left_s: seconds for which the entry still holds; None for ever.
        packets: number of packets to which it was applied.
        since: when it was made, in seconds of the Unix epoch.
        margin: margin of the decision that made it; None without a decision.
        flow_packets: packets of the flow at that decision; None without one.
        repeats: how often the source had a verdict before, each time soon after the last one.
    """

    target: str
    action: Action
    argument: int
    by: str
    left_s: float | None
    packets: int
    since: float
    margin: int | None
    flow_packets: int | None
    repeats: int


class DumpedMap(Protocol):
    """A map of verdicts whose entries can be read."""

    @property
    def name(self) -> str:
        """Its name."""

    def contents(self) -> tuple[bytes, bytes]:
        """Keys and values, one after the other."""


def list_verdicts(
    maps: Mapping[str, DumpedMap], now: int, tick_ns: int, verdicts: Mapping[int, str]
) -> dict[str, list[ListedVerdict]]:
    """Return the verdicts that hold, by list: ``allowed``, ``listed`` and ``decided``.

    Args:
        maps: maps of the metering program.
        now: present time in units of the meter.
        tick_ns: nanoseconds per unit.
        verdicts: names of classes and of the other verdicts, by number.
    """
    out: dict[str, list[ListedVerdict]] = {"allowed": [], "listed": [], "decided": []}
    names = {**verdicts, layout.BY_OPERATOR: "operator", layout.BY_FILE: "file"}
    for name in ("allowed", "listed", "tuples", "hosts"):
        keys, values = _rows(maps[name])
        holds = values["until"] > now
        entries = _entries(name, keys[holds], values[holds], now, tick_ns, names)
        for entry, by in zip(entries, values["by"][holds].tolist(), strict=True):
            given = "allowed" if entry.action in ALLOWING else "listed"
            out[given if by in (layout.BY_OPERATOR, layout.BY_FILE) else "decided"].append(entry)
    return out


def _entries(
    name: str,
    keys: NDArray[np.void],
    values: NDArray[np.void],
    now: int,
    tick_ns: int,
    names: Mapping[int, str],
) -> Iterator[ListedVerdict]:
    """Decode a map's entries by column, as a list may have many."""
    epoch = time.time()
    if name == "tuples":
        targets = [flow_text(key) for key in keys]
    else:
        size = "address_bytes" if name == "hosts" else "family"
        targets = prefix_texts(keys["address"], keys[size], values["bits"])
    names_of = ("action", "argument", "by", "until", "packets", "since", "margin", "flow_packets",
                "repeats")  # fmt: skip
    columns = (values[name].tolist() for name in names_of)
    for target, action, argument, by, until, packets, since, margin, of_flow, repeats in zip(
        targets, *columns, strict=True
    ):
        decided = by not in (layout.BY_OPERATOR, layout.BY_FILE)
        yield ListedVerdict(
            target,
            ACTIONS[action],
            SECOND_NS // argument if ACTIONS[action] == "rate-limit" and argument else argument,
            names.get(by, str(by)),
            None if until == layout.FOR_EVER else (until - now) * tick_ns / SECOND_NS,
            packets,
            round(epoch - (now - since) * tick_ns / SECOND_NS, 3),
            margin if decided else None,
            of_flow if decided else None,
            repeats,
        )


def prefix_texts(
    addresses: NDArray[np.uint8], sizes: NDArray[np.generic], bits: NDArray[np.uint32]
) -> list[str]:
    """Format prefixes, or the addresses of those that hold only one.

    Args:
        addresses: bytes of the addresses, of shape (prefixes, 16); IPv4 has 4, and zeros.
        sizes: bytes that each address has.
        bits: lengths of the prefixes.
    """
    raw, out = addresses.tobytes(), []
    for at, (size, length) in enumerate(zip(sizes.tolist(), bits.tolist(), strict=True)):
        packed = raw[16 * at : 16 * at + size]
        # Of IPv6, inet_ntop writes some addresses in another form than the module does.
        text = inet_ntop(AF_INET, packed) if size == 4 else str(ipaddress.IPv6Address(packed))
        out.append(text if length == 8 * size else f"{text}/{length}")
    return out


def _rows(place: DumpedMap) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Return the keys and values of a map of verdicts."""
    kinds = {"tuples": layout.KEY, "hosts": layout.SUBJECT}
    keys, values = place.contents()
    return (
        np.frombuffer(keys, kinds.get(place.name, layout.PREFIX)),
        np.frombuffer(values, layout.VERDICT),
    )
