# SPDX-License-Identifier: Apache-2.0
"""Features by source: what the host that began a flow did with its other flows.

A flood of flows of one packet each, a scan of ports and a sweep over hosts look harmless flow by
flow. The table of sources is bounded. Meters that have the same secret and count the same packets
in the same order have the same table: ``c/sources.h`` says in C what :class:`SourceTable` does.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from n3ic.meter.siphash import siphash
from n3ic.model.meter_spec import (
    SOURCE_WAYS,
    UINT32_MAX,
    MeterSpec,
    SourceCount,
    SourceFeature,
    Sources,
)

OPEN_SECRET = bytes(16)  # of meters that read captures, so that the same packets give the same rows
_SET_BYTES = 656  # of struct source_set in c/sources.h
_NETWORK_BYTES = 8  # of an address of IPv6: the part that one host or site chooses addresses from
_BITS = 64  # of a sketch
NAMES: dict[SourceCount, str] = {
    "new_flows": "src_new_flows",
    "unanswered": "src_unanswered",
    "ports": "src_ports_tried",
    "hosts": "src_hosts_tried",
}


def with_sources(spec: MeterSpec) -> MeterSpec:
    """The same meter with the four features by source among its features.

    Raises:
        ModelError: the meter's key is not the ``five-tuple``, or it has a feature of such a name.
    """
    added = tuple(SourceFeature(name, count) for count, name in NAMES.items())
    return replace(spec, sources=replace(spec.sources, features=added))


def table_bytes(spec: Sources) -> int:
    """Bytes of the table of sources in C; 0 if no feature reads it."""
    return spec.entries // SOURCE_WAYS * _SET_BYTES if spec.features else 0


@dataclass
class _Counts:
    """Of one window."""

    flows: int = 0
    answered: int = 0
    ports: int = 0  # the bits of a sketch
    hosts: int = 0


@dataclass
class _Source:
    begun: int  # when its window began
    now: _Counts = field(default_factory=_Counts)
    before: _Counts = field(default_factory=_Counts)


class SourceTable:
    """The sources of flows, in sets of eight; a new one takes the place of the least recently used.

    Args:
        spec: size of the table and of the windows.
        secret: 16-byte key of the hashes; whoever knows it can choose addresses that share a set.

    Attributes:
        forgotten: sources that made room for others.
    """

    def __init__(self, spec: Sources, secret: bytes = OPEN_SECRET) -> None:
        self._spec, self._secret = spec, secret
        # Of each set, its sources by network, those that were looked up longest ago first.
        self._sets: defaultdict[int, dict[bytes, _Source]] = defaultdict(dict)
        self.forgotten = 0

    def begin(self, source: bytes, destination: bytes, protocol: int, port: int, now: int) -> None:
        """Count a flow that a source begins to a destination and its port."""
        network = _network(source)
        members = self._set_of(network)
        if network not in members:
            if len(members) == SOURCE_WAYS:
                del members[next(iter(members))]
                self.forgotten += 1
            members[network] = _Source(begun=now)
        counts = self._used(members, network, now).now
        counts.flows = min(counts.flows + 1, UINT32_MAX)
        counts.ports |= self._bit(port.to_bytes(2, "little") + bytes([protocol]))
        counts.hosts |= self._bit(destination)

    def answer(self, source: bytes, now: int) -> None:
        """Count the first answer to a flow of a source, if the table has the source."""
        network = _network(source)
        members = self._set_of(network)
        if network in members:
            counts = self._used(members, network, now).now
            counts.answered = min(counts.answered + 1, UINT32_MAX)

    def value(self, count: SourceCount, source: bytes, now: int) -> int:
        """What a source did in the present window and the one before; 0 if the table lacks it."""
        network = _network(source)
        entry = self._set_of(network).get(network)
        if entry is None:
            return 0
        passed = max(0, now - entry.begun) >> self._spec.window
        both = [entry.now, entry.before] if passed == 0 else [entry.now] * (passed == 1)
        flows = min(sum(c.flows for c in both), UINT32_MAX)
        if count == "new_flows":
            return flows
        if count == "unanswered":
            return max(0, flows - min(sum(c.answered for c in both), UINT32_MAX))
        bits = 0
        for counts in both:
            bits |= counts.ports if count == "ports" else counts.hosts
        return bits.bit_count()

    # --- sets ----------------------------------------------------------------------------------

    def _bit(self, message: bytes) -> int:
        return 1 << (siphash(self._secret, message) // ((1 << 64) // _BITS))

    def _set_of(self, network: bytes) -> dict[bytes, _Source]:
        sets = self._spec.entries // SOURCE_WAYS
        return self._sets[(siphash(self._secret, network) >> 32) * sets >> 32]

    def _used(self, members: dict[bytes, _Source], network: bytes, now: int) -> _Source:
        """Note the look-up of a source that its set has, and go on to the window of that time."""
        source = members[network] = members.pop(network)  # the latest look-up is the last entry
        window = 1 << self._spec.window
        if source.begun - now > window:  # the clock was set back
            source.begun, source.now, source.before = now, _Counts(), _Counts()
        passed = max(0, now - source.begun) // window
        if passed:
            source.before = source.now if passed == 1 else _Counts()
            source.now = _Counts()
            source.begun += passed * window
        return source


def _network(address: bytes) -> bytes:
    return address[:_NETWORK_BYTES]
