# SPDX-License-Identifier: Apache-2.0
"""The reference meter: plain and slow; every other meter must equal it register by register.

The clock follows the packets' time stamps as far as they agree (:mod:`n3ic.meter.clock`). Before a
packet is counted, flows that exceed the idle timeout end, the longest idle first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from n3ic.meter.clock import Clock
from n3ic.meter.packet import ACK, FIN, RST, SYN, Packet, Reason
from n3ic.meter.sources import OPEN_SECRET, SourceTable
from n3ic.model.meter_spec import (
    DIRECTED,
    UINT32_MAX,
    Guard,
    MeteredFeature,
    MeterSpec,
    Register,
    Step,
    log_code,
)

End = Literal["packets", "after", "fin", "rst", "idle", "active", "evicted", "capture"]
MAX_FRAGMENTS = 4096  # fragmented datagrams that are tracked at once, to bound memory


@dataclass(frozen=True, order=True)
class FlowKey:
    """The key of a flow in the direction of its first packet; missing parts are 0 or empty."""

    source: bytes
    destination: bytes = b""
    protocol: int = 0
    source_port: int = 0
    destination_port: int = 0

    @property
    def reverse(self) -> FlowKey:
        """The same flow, seen from its other end."""
        ports = self.destination_port, self.source_port
        return FlowKey(self.destination, self.source, self.protocol, *ports)


@dataclass(frozen=True)
class FlowRecord:
    """A flow at a decision.

    Attributes:
        key: key in the direction of the first packet.
        number: number of the flow, from 0, in the order of first packets.
        first: time of its first packet, in units of ``spec.tick_ns``.
        last: time of its last packet so far, in the same units.
        packets: number of its packets so far.
        decided: reason for the decision.
        registers: value of each register of the specification.
        features: value of each feature, also those of windows and of sources, each in
            ``0..2^32 - 1``.
    """

    key: FlowKey
    number: int
    first: int
    last: int
    packets: int
    decided: End
    registers: tuple[int, ...]
    features: Mapping[str, int]


@dataclass
class _Flow:
    key: FlowKey
    number: int
    first: int
    values: list[int]
    before: list[int | None]  # per register: time of the last packet that passed its guard
    passed: list[int]  # per register: packets that passed its guard
    decided_at: tuple[int, int]  # packets and time at the last decision
    last: int
    updated: list[bool]
    packets: int = 0
    decided: bool = False
    fins: set[bool] = field(default_factory=set)
    expected: dict[bool, int] = field(default_factory=dict)  # next sequence number by direction
    closed: bool = False
    answered: bool = False


class ReferenceMeter:
    """A metering process that follows a specification packet by packet.

    Args:
        spec: definition of a flow and of the integers kept for it.
        secret: 16-byte key of the table of sources.

    Attributes:
        aside: packets that belong to no flow, by reason.
        evicted: flows that ended because the cache was full.
        late: packets after the end of their flow, which does not count them.
        tunnelled: packets in tunnels that the specification does not open.
        clock: the clock, with the counts of time stamps that go back or jump.
        sources: the table of sources.
    """

    def __init__(self, spec: MeterSpec, secret: bytes = OPEN_SECRET) -> None:
        self.spec = spec
        self.aside: Counter[str] = Counter()
        self.evicted = 0
        self.late = 0
        self.tunnelled = 0
        self.clock = Clock[Packet](spec.tick_ns)
        self.sources = SourceTable(spec.sources, secret)
        self._flows: OrderedDict[FlowKey, _Flow] = OrderedDict()  # least recently seen first
        self._fragments: OrderedDict[tuple[bytes, bytes, int, int], tuple[int, int]] = OrderedDict()
        self._rings = [deque[tuple[object, ...]](maxlen=w.flows) for w in spec.windows]
        self._counts: list[Counter[tuple[object, ...]]] = [Counter() for _ in spec.windows]
        self._started = 0

    def run(self, packets: Iterable[Packet | Reason]) -> Iterator[FlowRecord]:
        """Yield the records of all flows, in the order in which they are decided."""
        for packet in packets:
            yield from self.count(packet)
        yield from self.finish()

    def count(self, packet: Packet | Reason) -> Iterator[FlowRecord]:
        """Count a packet; yield the records of the flows that it decides."""
        if isinstance(packet, str):
            self.aside[packet] += 1
            return
        self.tunnelled += packet.tunnel is not None and packet.tunnel not in self.spec.tunnels
        for ready, stepped_back in self.clock.follow(packet, packet.time):
            yield from self._count(ready, stepped_back)

    def _count(self, packet: Packet, stepped_back: bool) -> Iterator[FlowRecord]:
        now = self.clock.now
        # A step back of the clock ends all flows, so the cache stays ordered by time: expiry looks
        # only at its front, and no gap is negative.
        yield from self._end_all("idle") if stepped_back else self._expire(now)
        joined = self._join_fragment(packet)
        if joined is None:
            self.aside["fragment without its first"] += 1
            return
        packet = joined
        key = self._key(packet)
        flow, forward = self._find(key)
        opens = bool(packet.tcp_flags & SYN) and not packet.tcp_flags & ACK
        # A closed flow stays in the cache, so that late packets open no flow; a new SYN does.
        if flow is not None and flow.closed and opens:
            del self._flows[flow.key]
            flow = None
        elif flow is not None and flow.closed:
            self.late += 1
            self._touch(flow, now)
            return
        active = self.spec.active_timeout
        if flow is not None and active and now - flow.first >= active:
            yield from self._end(flow, "active")
            flow = None
        if flow is None:
            if len(self._flows) >= self.spec.cache_flows:
                if self.spec.when_full == "drop-new":
                    self.aside["flow cache full"] += 1
                    return
                yield from self._evict()
            flow, forward = self._start(key, now), True
        if self.spec.sources.features:
            self._count_source(flow, forward, now)
        self._update(flow, packet, forward, now)
        yield from self._decide(flow, packet, forward, now)

    def finish(self) -> Iterator[FlowRecord]:
        """Count the packet that still waits and end the remaining flows, longest unseen first."""
        for packet, stepped_back in self.clock.finish():
            yield from self._count(packet, stepped_back)
        yield from self._end_all("capture")

    def _end_all(self, why: End) -> Iterator[FlowRecord]:
        for flow in list(self._flows.values()):
            yield from self._end(flow, why)

    # --- the flow cache ----------------------------------------------------------------------

    def _key(self, packet: Packet) -> FlowKey:
        if self.spec.key == "source-host":
            return FlowKey(packet.source)
        if self.spec.key == "host-pair":
            return FlowKey(packet.source, packet.destination)
        ports = packet.source_port, packet.destination_port
        return FlowKey(packet.source, packet.destination, packet.protocol, *ports)

    def _find(self, key: FlowKey) -> tuple[_Flow | None, bool]:
        """The flow of a key, and whether the packet goes in its forward direction."""
        if key in self._flows:
            return self._flows[key], True
        # A biflow is stored in the direction of its first packet (RFC 5103), an answer reversed.
        either = self.spec.key != "source-host"
        return self._flows.get(key.reverse) if either else None, False

    def _start(self, key: FlowKey, now: int) -> _Flow:
        registers = self.spec.registers
        # A minimum starts from the top, so that the first packet needs no special case.
        values = [r.top if r.update == "min" else 0 for r in registers]
        n = len(registers)
        flow = _Flow(
            key, self._started, now, values, [None] * n, [0] * n, (0, now), now, [False] * n
        )
        self._started += 1
        self._flows[key] = flow
        return flow

    def _touch(self, flow: _Flow, now: int) -> None:
        flow.last = now
        self._flows.move_to_end(flow.key)

    def _expire(self, now: int) -> Iterator[FlowRecord]:
        while self._flows:
            oldest = next(iter(self._flows.values()))
            if now - oldest.last <= self.spec.idle_timeout:
                return
            yield from self._end(oldest, "idle")

    def _evict(self) -> Iterator[FlowRecord]:
        oldest = next(iter(self._flows.values()))
        self.evicted += not oldest.closed  # a closed flow was decided already: nothing is lost
        yield from self._end(oldest, "evicted")

    def _end(self, flow: _Flow, why: End) -> Iterator[FlowRecord]:
        del self._flows[flow.key]
        if not flow.closed:
            yield from self._report(flow, why, flow.last)

    def _join_fragment(self, packet: Packet) -> Packet | None:
        """Give a fragment its datagram's ports; None for a fragment that is ignored."""
        if packet.identification is None:
            return packet
        if self.spec.fragments == "aside" and packet.later:
            return None
        name = (packet.source, packet.destination, packet.protocol, packet.identification)
        if not packet.later:
            # Only the first fragment has ports; later ones find them by the identification.
            self._fragments[name] = (packet.source_port, packet.destination_port)
            self._fragments.move_to_end(name)
            if len(self._fragments) > MAX_FRAGMENTS:
                self._fragments.popitem(last=False)
            return packet
        if name not in self._fragments:
            return None
        source_port, destination_port = self._fragments[name]
        return replace(packet, source_port=source_port, destination_port=destination_port)

    # --- registers ---------------------------------------------------------------------------

    def _update(self, flow: _Flow, packet: Packet, forward: bool, now: int) -> None:
        stream = _stream(flow.expected, packet, forward)
        for i, register in enumerate(self.spec.registers):
            if not _passes(register.guard, packet, forward):
                continue
            before = flow.before[i]
            flow.before[i] = now
            flow.passed[i] += 1
            if register.field == "gap" and before is None:  # one packet has no gap
                continue
            if register.update == "nth" and flow.passed[i] != register.packet:
                continue
            value = _field(register, packet, forward, now - flow.first, now - (before or 0), stream)
            flow.values[i] = _next(register, flow.values[i], value, first=not flow.updated[i])
            flow.updated[i] = True
        flow.packets += 1
        self._touch(flow, now)

    def _count_source(self, flow: _Flow, forward: bool, now: int) -> None:
        key = flow.key
        if not flow.packets:
            ends = key.source, key.destination
            self.sources.begin(*ends, key.protocol, key.destination_port, now)
        elif not forward and not flow.answered:
            flow.answered = True
            self.sources.answer(key.source, now)

    # --- decisions ---------------------------------------------------------------------------

    def _decide(self, flow: _Flow, packet: Packet, forward: bool, now: int) -> Iterator[FlowRecord]:
        # An end takes precedence: a flow that has ended is not decided again.
        closing = self._closing(flow, packet, forward)
        if closing:
            flow.closed = True
            yield from self._report(flow, closing, now)
            return
        rule = self.spec.decision
        packets, time = flow.decided_at
        if flow.decided and not rule.again:
            return
        if flow.packets in rule.schedule[flow.decided :] or (
            rule.packets and flow.packets - packets >= rule.packets
        ):
            yield from self._report(flow, "packets", now)
        elif flow.decided and rule.schedule:
            return  # the time replaces only the first point
        elif rule.after and now - time >= rule.after:
            yield from self._report(flow, "after", now)

    def _closing(self, flow: _Flow, packet: Packet, forward: bool) -> End | None:
        if packet.tcp_flags & RST and "rst" in self.spec.ends:
            return "rst"
        if packet.tcp_flags & FIN and "fin" in self.spec.ends:
            flow.fins.add(forward)  # one FIN closes one direction (RFC 9293, 3.6)
        return "fin" if len(flow.fins) == 2 else None

    def _report(self, flow: _Flow, why: End, now: int) -> Iterator[FlowRecord]:
        if flow.decided and not self.spec.decision.again:
            return
        flow.decided = True
        flow.decided_at = (flow.packets, now)
        features = {f.name: feature_value(self.spec, f, flow.values) for f in self.spec.features}
        yield FlowRecord(
            flow.key,
            flow.number,
            flow.first,
            flow.last,
            flow.packets,
            why,
            tuple(flow.values),
            features | self._windows(flow.key) | self._of_source(flow.key.source, now),
        )

    def _of_source(self, source: bytes, now: int) -> dict[str, int]:
        of_source = self.spec.sources.features
        return {f.name: self.sources.value(f.count, source, now) for f in of_source}

    def _windows(self, key: FlowKey) -> dict[str, int]:
        out = {}
        for window, ring, counts in zip(self.spec.windows, self._rings, self._counts, strict=True):
            entry = tuple(getattr(key, part) for part in window.same)
            if len(ring) == window.flows:
                # append() drops the oldest entry of a full ring (its maxlen): discount it first.
                counts[ring[0]] -= 1
            ring.append(entry)
            counts[entry] += 1
            out[window.name] = counts[entry]
        return out


def _passes(guard: Guard, packet: Packet, forward: bool) -> bool:
    if guard.direction != "both" and (guard.direction == "forward") != forward:
        return False
    if guard.protocols and packet.protocol not in guard.protocols:
        return False
    if guard.payload != "any" and (guard.payload == "some") != (packet.payload_length > 0):
        return False
    # The flags must include all of flags_set, and must not include any of flags_clear.
    flags = packet.tcp_flags
    return flags & guard.flags_set == guard.flags_set and not flags & guard.flags_clear


def _stream(expected: dict[bool, int], packet: Packet, forward: bool) -> Mapping[str, int]:
    """Count the sequence numbers that a packet repeats and skips in its direction (RFC 9293)."""
    if packet.tcp_sequence is None or packet.tcp_flags & RST:  # a RST may carry any number
        return {}
    size = packet.payload_length + bool(packet.tcp_flags & SYN) + bool(packet.tcp_flags & FIN)
    if forward in expected:
        # signed difference of 32 bits: sequence numbers wrap
        behind = (packet.tcp_sequence - expected[forward]) % (1 << 32)
        behind -= behind >> 31 << 32
        out = {"tcp_repeated": min(max(0, -behind), size), "tcp_skipped": max(0, behind)}
        expected[forward] += max(0, behind + size)
        return out
    expected[forward] = packet.tcp_sequence + size
    return {}


def _field(
    register: Register,
    packet: Packet,
    forward: bool,
    time: int,
    gap: int,
    stream: Mapping[str, int],
) -> int:
    match register.field:
        case "":
            return register.raw_top
        case "time":
            return time
        case "gap":
            return gap
        case "tcp_repeated" | "tcp_skipped":
            return stream.get(register.field, 0)
        case name:
            value: int = getattr(packet, name.removeprefix(DIRECTED))
            if not name.startswith(DIRECTED):
                return value
            value = min(value, 2047)
            return 2048 + (value if forward else -value)


def _next(register: Register, old: int, value: int, *, first: bool) -> int:
    """The register's next value, saturated."""
    value = min(value, register.raw_top)
    if register.update == "within":
        return min(old + (register.low <= value <= register.high), register.top)
    if register.scale == "log":
        value = log_code(value)
    value = min(value, register.field_top)
    match register.update:
        case "count" | "sum":
            return min(old + value, register.top)
        case "min":
            return min(old, value)
        case "max":
            return max(old, value)
        case "first":
            return value if first else old
        case "last" | "nth":
            return value
        case "or":
            return old | value


def feature_value(spec: MeterSpec, feature: MeteredFeature, registers: list[int]) -> int:
    """Compute a feature from a flow's registers, clamped to ``2^32 - 1``."""
    if feature.register:
        return min(registers[spec.index[feature.register]], UINT32_MAX)
    results: list[int] = []

    def operand(name: str) -> int:
        return results[int(name[1:])] if name.startswith("$") else registers[spec.index[name]]

    for step in feature.program:
        right = operand(step.right) if step.right else step.amount
        results.append(_apply(step, operand(step.left), right))
    return min(results[-1], UINT32_MAX)


def _apply(step: Step, left: int, right: int) -> int:
    match step.operation:
        case "add":
            return left + right
        case "sub":
            return max(0, left - right)
        case "min":
            return min(left, right)
        case "max":
            return max(left, right)
        case "shift":
            return left >> step.amount
        case "quotient":
            return step.amount * left // right if right else 0
