# SPDX-License-Identifier: Apache-2.0
"""The meter's specification: what a flow is, and which integers describe it.

A metering process (RFC 7011) on a host, in a kernel or on a card is generated from this data, and
training reads the process's output. Each packet updates state registers. Features are programs over
registers, without division: a quotient is compared by multiplication. Arithmetic is unsigned and
saturates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, get_args

from n3ic.errors import ModelError
from n3ic.model.text import check_text
from n3ic.util.plain_data import from_plain, shown

VERSION = 1
MAX_REGISTERS = 128
MAX_GUARDS = 64  # each has a bit in one word of a flow's state
MAX_PACKET = 32  # of a sequence
MAX_STATE = 4096  # bits of a flow's registers, and of sequences up to their last packet
MAX_FEATURES = 256
SOURCE_WAYS = 8  # places of a set of the table of sources
MAX_STEPS = 64
UINT32_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1

FlowKey = Literal["five-tuple", "host-pair", "source-host"]
FullCache = Literal["evict-oldest", "drop-new"]
Fragments = Literal["by-identification", "aside"]
Tunnel = Literal["gre", "vxlan", "gtp"]
Direction = Literal["both", "forward", "reverse"]
Update = Literal["count", "sum", "min", "max", "first", "last", "or", "nth", "within"]
Scale = Literal["linear", "log"]
PacketField = Literal[
    "wire_length", "ip_length", "payload_length", "time", "gap",
    "protocol", "ttl", "tcp_flags", "tcp_window",
    "directed_wire_length", "directed_ip_length", "directed_payload_length",
    "tcp_repeated", "tcp_skipped",
]  # fmt: skip
Operation = Literal["add", "sub", "min", "max", "shift", "quotient"]
KeyPart = Literal["source", "destination", "protocol", "source_port", "destination_port"]
SourceCount = Literal["new_flows", "unanswered", "ports", "hosts"]

_KEY_PARTS: dict[FlowKey, tuple[KeyPart, ...]] = {
    "five-tuple": get_args(KeyPart),
    "host-pair": ("source", "destination"),
    "source-host": ("source",),
}
_FIELD_BITS: dict[PacketField, int] = {
    "wire_length": 17,
    "ip_length": 17,
    "payload_length": 17,
    "time": 48,
    "gap": 48,
    "protocol": 8,
    "ttl": 8,
    "tcp_flags": 8,
    "tcp_window": 16,
    "directed_wire_length": 12,
    "directed_ip_length": 12,
    "directed_payload_length": 12,
    "tcp_repeated": 17,
    "tcp_skipped": 31,
}
_SOURCE_UNITS: dict[SourceCount, str] = {
    "new_flows": "flow",
    "unanswered": "flow",
    "ports": "port",
    "hosts": "host",
}
DIRECTED = "directed_"  # before the name of a length
TCP_STREAM: tuple[PacketField, ...] = ("tcp_repeated", "tcp_skipped")


def _one_of(field_name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise ModelError(f"{field_name}: expected {', '.join(known)}, got {shown(value)}")


def log_code(value: int) -> int:
    """A rounded logarithm in integers: ``value`` below 8, then 8 steps for each power of two.

    The three bits behind the leading one are the fraction, so a step is 9 to 12 % and no target
    divides. 48 bits give codes up to 367; 8 bits hold a time of up to 4.7 hours in microseconds.
    """
    if value < 8:
        return value
    exponent = value.bit_length() - 1
    return 8 * (exponent - 2) + (value >> (exponent - 3) & 7)


@dataclass(frozen=True)
class Guard:
    """Which packets of a flow update a register.

    Attributes:
        direction: ``forward`` is that of the flow's first packet.
        protocols: protocol numbers (6 TCP, 17 UDP, 1 ICMP, 58 ICMPv6); empty for all.
        flags_set: TCP flags that must be set, as the bits of the header's flag byte.
        flags_clear: TCP flags that must not be set. A packet that is not TCP has none set.
        payload: ``any``, or only packets with (``some``) or without (``none``) transport payload.
    """

    direction: Direction = "both"
    protocols: tuple[int, ...] = ()
    flags_set: int = 0
    flags_clear: int = 0
    payload: Literal["any", "some", "none"] = "any"

    def __post_init__(self) -> None:
        _one_of("direction", self.direction, get_args(Direction))
        _one_of("payload", self.payload, ("any", "some", "none"))
        if any(not 0 <= p <= 255 for p in self.protocols) or len(self.protocols) > 256:
            raise ModelError("guard: protocol numbers are in 0..255, each once")
        if not 0 <= self.flags_set <= 255 or not 0 <= self.flags_clear <= 255:
            raise ModelError("guard: TCP flags are the bits of a byte")
        if self.flags_set & self.flags_clear:
            raise ModelError("guard: a flag cannot be required to be both set and clear")


@dataclass(frozen=True)
class Register:
    """A state register of a flow.

    Attributes:
        name: the name that features use.
        update: ``count`` of the packets, ``sum``, ``min``, ``max``, ``first``, ``last`` or
            bitwise ``or`` of a field, the field of the ``nth`` packet that passed the guard, or
            the number of packets whose field was ``within`` a range. All start at 0 but ``min``,
            which starts at its largest value and keeps it if no packet passes the guard.
        field: the packet's field; empty for ``count``. ``wire_length`` is the frame without its
            check sequence, never the captured part; ``time`` the time since the flow's first
            packet; ``gap`` the time since the previous packet that passed the guard (the first
            such packet has none and does not update). Times that run backwards count as 0.
            A ``directed_`` length is 2048 plus the length in the forward direction and 2048 minus
            it in reverse; lengths above 2047 count as 2047. ``tcp_repeated`` are sequence
            numbers of the packet that its direction sent before (a retransmission, or one that was
            overtaken), ``tcp_skipped`` those between the last one before it and its first (lost
            or overtaken); both are 0 in the first packet of a direction.
        guard: which packets update it.
        width: bits of the register, 1 to 64; larger values saturate. Fields saturate, too:
            lengths at 17 bits, times at 48.
        packet: of ``nth``, the number of the packet among those that passed the guard, 1 to 32.
        low: least value of ``within``.
        high: largest value of ``within``.
        scale: ``log`` replaces the field by :func:`log_code` of it, eight steps an octave.
    """

    name: str
    update: Update
    field: PacketField | Literal[""] = ""
    guard: Guard = Guard()
    width: int = 32
    packet: int = 0
    low: int = 0
    high: int = 0
    scale: Scale = "linear"

    def __post_init__(self) -> None:
        where = f"register {self.name!r}"
        if not isinstance(self.name, str) or not self.name.isidentifier() or len(self.name) > 64:
            raise ModelError(f"{where}: a register's name is an identifier of at most 64 letters")
        _one_of(f"{where}: update", self.update, get_args(Update))
        if (self.update == "count") != (self.field == ""):
            raise ModelError(f"{where}: a count has no field, and everything else has one")
        if self.field:
            _one_of(f"{where}: field", self.field, get_args(PacketField))
        if isinstance(self.width, bool) or not 1 <= self.width <= 64:
            raise ModelError(f"{where}: a register has 1 to 64 bits, got {self.width}")
        _one_of(f"{where}: scale", self.scale, get_args(Scale))
        if self.scale == "log" and self.update in ("count", "within"):
            raise ModelError(f"{where}: a {self.update} has no scale")
        if (self.update == "nth") != (1 <= self.packet <= MAX_PACKET) or (
            self.update != "nth" and self.packet
        ):
            raise ModelError(
                f"{where}: nth takes packet 1 to {MAX_PACKET}, and only nth does, "
                f"got {self.update} of packet {self.packet}"
            )
        if not 0 <= self.low <= self.high < 1 << 48 or (self.update != "within" and self.high):
            raise ModelError(
                f"{where}: within takes a range in 0..2^48-1, and only within does, "
                f"got {self.update} of {self.low}..{self.high}"
            )

    @property
    def top(self) -> int:
        """The largest value of its width."""
        return (1 << self.width) - 1

    @property
    def raw_top(self) -> int:
        """The largest value of its field before the scale; larger ones saturate."""
        return (1 << _FIELD_BITS[self.field]) - 1 if self.field else 1

    @property
    def field_top(self) -> int:
        """The largest value that it takes from its field; larger ones saturate."""
        if self.update in ("count", "within"):
            return 1
        return min(self.top, log_code(self.raw_top) if self.scale == "log" else self.raw_top)

    @property
    def largest(self) -> int:
        """The largest value that it can hold, given its width and its field."""
        # Counts and sums grow up to the width, and `min` starts at the top of it.
        return self.field_top if self.update in ("first", "last", "max", "or", "nth") else self.top


@dataclass(frozen=True)
class Step:
    """One operation of a feature's program.

    Attributes:
        operation: ``add``; ``sub``, at least 0; ``min``; ``max``; ``shift``, to the right by
            ``amount`` bits; ``quotient``, ``floor(amount * left / right)``, 0 where ``right`` is
            0 and only as a program's last step: a target compares ``amount * left >= cut * right``.
        left: a register's name, or ``$k`` for the result of step ``k``.
        right: the second operand, likewise; empty for ``shift``, or if ``amount`` is the operand.
        amount: constant of ``shift`` and ``quotient``, and of the others if ``right`` is empty.
    """

    operation: Operation
    left: str
    right: str = ""
    amount: int = 0


@dataclass(frozen=True)
class MeteredFeature:
    """A feature: a program over registers; its result is clamped to ``2^32 - 1``.

    Attributes:
        name: the name in tables and in the input stage.
        program: steps in order; the feature is the result of the last one.
        register: the register that is the feature; empty if there is a program.
        unit: the integer unit, such as ``us`` or ``byte``.
    """

    name: str
    register: str = ""
    program: tuple[Step, ...] = ()
    unit: str = ""


@dataclass(frozen=True)
class Window:
    """How many of the last flows share parts of the key with this one, itself included.

    A flow enters the window when it is decided, so the count is causal: a ring of the last
    ``flows`` keys with a counter for each.

    Attributes:
        name: the feature's name.
        flows: size of the ring.
        same: the parts of the key that must be equal.
    """

    name: str
    flows: int
    same: tuple[KeyPart, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.flows <= 1 << 16:
            raise ModelError(f"window {self.name!r}: 1 to 65,536 flows, got {self.flows}")
        if not self.same or len(set(self.same)) != len(self.same):
            raise ModelError(f"window {self.name!r}: names parts of the key, each once")
        for part in self.same:
            _one_of(f"window {self.name!r}", part, get_args(KeyPart))


@dataclass(frozen=True)
class SourceFeature:
    """What the source of a flow did in the present window of time and the one before it.

    Attributes:
        name: the feature's name.
        count: ``new_flows``, those that it began; ``unanswered``, these less the flows whose first
            answer came in the same time, at least 0; ``ports``, how many bits of 64 its pairs of
            protocol and destination port set; ``hosts``, the same of its destinations' addresses.
    """

    name: str
    count: SourceCount

    def __post_init__(self) -> None:
        _one_of(f"source feature {self.name!r}: count", self.count, get_args(SourceCount))

    @property
    def largest(self) -> int:
        """Its largest value."""
        return 64 if self.count in ("ports", "hosts") else UINT32_MAX


@dataclass(frozen=True)
class Sources:
    """The table of sources: addresses of IPv4, and the first 64 bits of those of IPv6.

    Attributes:
        features: integers that it gives a flow when it is decided.
        window: a window has 2 to the power of this units of time. A source's first window begins
            with its first flow, and each other one where the one before it ends.
        entries: sources that the table holds, in sets of eight.
    """

    features: tuple[SourceFeature, ...] = ()
    window: int = 20
    entries: int = 1 << 16

    def __post_init__(self) -> None:
        if not 0 <= self.window <= 40:
            raise ModelError(
                f"sources: a window has 2^0 to 2^40 units of time, got 2^{self.window}"
            )
        if not SOURCE_WAYS <= self.entries <= 1 << 24 or self.entries % SOURCE_WAYS:
            raise ModelError(
                f"sources: 8 to 2^24 entries in sets of {SOURCE_WAYS}, got {self.entries:,}"
            )


@dataclass(frozen=True)
class Decision:
    """When a flow is decided: at whichever of these comes first, at its end at the latest.

    Attributes:
        packets: at its N-th packet; 0 for never.
        after: at the first packet this long after the flow's first; 0 for never.
        repeat: whether it is decided again after every further ``packets`` or ``after``, and at
            its end; otherwise it is decided once.
        schedule: packets, increasing, at each of which it is decided, and again at its end; in
            place of ``packets`` and ``repeat``. ``after`` decides a flow that was not decided
            before and then takes the place of the first of them; the others stay as they are.
    """

    packets: int = 0
    after: int = 0
    repeat: bool = False
    schedule: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.packets < 1 << 48 or not 0 <= self.after < 1 << 48:
            raise ModelError("decision: packets and after are in 0..2^48-1")
        points = self.schedule
        if len(points) > 16 or any(a >= b for a, b in pairwise((0, *points, 1 << 48))):
            raise ModelError(f"decision: at most 16 increasing packets in 1..2^48-1, got {points}")
        if points and (self.packets or self.repeat):
            raise ModelError("decision: a schedule takes the place of packets and of repeat")

    @property
    def again(self) -> bool:
        """Whether a flow is decided more than once."""
        return self.repeat or bool(self.schedule)


@dataclass(frozen=True)
class MeterSpec:
    """What a flow is, when it ends, when it is decided, and which integers describe it.

    Attributes:
        key: ``five-tuple`` and ``host-pair`` make biflows (RFC 5103) whose forward direction is
            that of the first packet; ``source-host`` makes flows of one direction.
        registers: the state of a flow.
        features: integers that are computed when a flow is decided.
        windows: features over recent flows.
        idle_timeout: a flow without a packet for longer has ended.
        active_timeout: a packet this long after the flow's first begins a new one; 0 for never.
        cache_flows: flows that the flow cache holds.
        when_full: the flow that was updated longest ago ends (``evict-oldest``), or packets of
            new flows are counted and dropped (``drop-new``).
        ends: only for the ``five-tuple``: ``fin`` ends a flow at the second direction's FIN,
            ``rst`` at a RST. Later packets belong to the ended flow, without being counted, until
            its idle time-out or a SYN.
        decision: when the flow is decided.
        fragments: later fragments belong to the flow of the first by address and identification,
            or are counted and put aside.
        tick_ns: nanoseconds of the unit in which times and time-outs are given.
        tunnels: tunnels whose inner packets are metered in place of the outer ones, in the order
            of :data:`Tunnel`; others stay closed.
        sources: features over the flows of a source; only for the ``five-tuple``.
    """

    registers: tuple[Register, ...]
    features: tuple[MeteredFeature, ...]
    key: FlowKey = "five-tuple"
    windows: tuple[Window, ...] = ()
    idle_timeout: int = 60_000_000
    active_timeout: int = 0
    cache_flows: int = 1 << 16
    when_full: FullCache = "evict-oldest"
    ends: tuple[Literal["fin", "rst"], ...] = ("fin", "rst")
    decision: Decision = Decision()
    fragments: Fragments = "by-identification"
    tick_ns: int = 1000
    tunnels: tuple[Tunnel, ...] = ()
    sources: Sources = Sources()

    def __post_init__(self) -> None:
        _one_of("key", self.key, get_args(FlowKey))
        _one_of("when_full", self.when_full, get_args(FullCache))
        _one_of("fragments", self.fragments, get_args(Fragments))
        for end in self.ends:
            _one_of("ends", end, ("fin", "rst"))
        if not 0 < self.idle_timeout < 1 << 48 or not 0 <= self.active_timeout < 1 << 48:
            raise ModelError("time-outs are in 1..2^48-1 units of time, the active one may be 0")
        if not 1 <= self.cache_flows <= 1 << 24:
            raise ModelError(f"a flow cache holds 1 to 2^24 flows, got {self.cache_flows}")
        if self.tunnels != tuple(t for t in get_args(Tunnel) if t in self.tunnels):
            known = ", ".join(get_args(Tunnel))
            raise ModelError(f"tunnels: some of {known} in this order, got {shown(self.tunnels)}")
        if not 1 <= self.tick_ns <= 10**9:
            raise ModelError(f"a unit of time has 1 to 10^9 ns, got {self.tick_ns}")
        if len(self.registers) > MAX_REGISTERS:
            raise ModelError(f"at most {MAX_REGISTERS} registers, got {len(self.registers)}")
        firsts = sum(r.update == "first" for r in self.registers)
        gaps = len({r.guard for r in self.registers if r.field == "gap"})
        if max(firsts, gaps) > MAX_GUARDS:
            raise ModelError(
                f"at most {MAX_GUARDS} registers of a first value and as many guards of gaps, "
                f"got {firsts} and {gaps}"
            )
        if self.state_bits > MAX_STATE:
            raise ModelError(
                f"a flow's registers have at most {MAX_STATE:,} bits, got {self.state_bits:,}; "
                "a sequence is kept up to its last packet"
            )
        if not 1 <= len(self.feature_names) <= MAX_FEATURES:
            raise ModelError(f"1 to {MAX_FEATURES} features, got {len(self.feature_names)}")
        registers = [r.name for r in self.registers]
        if len(set(registers)) != len(registers):
            raise ModelError("two registers have one name")
        if len(set(self.feature_names)) != len(self.feature_names):
            raise ModelError("two features have one name")
        parts = _KEY_PARTS[self.key]
        if self.key != "five-tuple" and self.ends:
            raise ModelError(f"FIN and RST end connections, not the flows of a {self.key}")
        if self.key != "five-tuple" and any(r.field in TCP_STREAM for r in self.registers):
            raise ModelError(f"TCP's sequence numbers are a connection's, not a {self.key}'s")
        if self.key != "five-tuple" and self.sources.features:
            name = self.sources.features[0].name
            raise ModelError(f"{name!r} counts connections of a source, not flows of a {self.key}")
        for window in self.windows:
            unknown = [part for part in window.same if part not in parts]
            if unknown:
                raise ModelError(f"window {window.name!r}: a {self.key} key has no {unknown[0]}")
        for name in self.feature_names:
            check_text("a feature's name", name)
        for f in self.features:
            check_text(f"unit of feature {f.name!r}", f.unit, least=0)
            if len(f.program) > MAX_STEPS:
                raise ModelError(f"feature {f.name!r}: at most {MAX_STEPS} steps")
        for feature in self.features:
            self.largest(feature)  # checks names, order and widths

    @property
    def feature_names(self) -> list[str]:
        """Names of the features: those of registers, of windows, then of sources."""
        of_sources = (f.name for f in self.sources.features)
        return [*(f.name for f in self.features), *(w.name for w in self.windows), *of_sources]

    @property
    def units(self) -> Mapping[str, str]:
        """Integer unit of each feature, by name; windows count flows."""
        units = {f.name: f.unit for f in self.features} | {w.name: "flow" for w in self.windows}
        return units | {f.name: _SOURCE_UNITS[f.count] for f in self.sources.features}

    @property
    def state_bits(self) -> int:
        """Bits of all registers; a sequence has a place for each packet up to its last one."""
        bits: dict[object, int] = {}
        for r in self.registers:
            if r.update == "nth":
                sequence = (r.guard, r.field, r.scale, r.width)
                bits[sequence] = max(r.packet * r.width, bits.get(sequence, 0))
            else:
                bits[r.name] = r.width
        return sum(bits.values())

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Number of each register, by name."""
        return {register.name: i for i, register in enumerate(self.registers)}

    def only(self, names: Collection[str]) -> MeterSpec:
        """The same flows with only these features and the registers that they read."""
        features = tuple(f for f in self.features if f.name in names)
        read = {f.register for f in features}
        read |= {name for f in features for s in f.program for name in (s.left, s.right)}
        of_sources = tuple(f for f in self.sources.features if f.name in names)
        return replace(
            self,
            features=features,
            windows=tuple(w for w in self.windows if w.name in names),
            registers=tuple(r for r in self.registers if r.name in read),
            sources=replace(self.sources, features=of_sources) if of_sources else Sources(),
        )

    def agrees(self, other: MeterSpec, names: Collection[str]) -> bool:
        """Whether another meter computes these features in the same way for the same flows."""
        shared = {*self.feature_names} & {*other.feature_names}
        return {*names} <= shared and self.only(names) == other.only(names)

    def largest(self, feature: MeteredFeature) -> int:
        """The largest value of a feature before it is clamped to ``2^32 - 1``.

        Raises:
            ModelError: the program reads an unknown name, or a result could exceed 64 bits.
        """
        where = f"feature {feature.name!r}"
        if bool(feature.register) == bool(feature.program):
            raise ModelError(f"{where}: either a register or a program")
        if feature.register:
            return self._operand(where, feature.register, [])
        results: list[int] = []
        for i, step in enumerate(feature.program):
            last = i == len(feature.program) - 1
            results.append(self._largest_step(f"{where}, step {i}", step, results, last))
        return results[-1]

    def _operand(self, where: str, name: str, results: Sequence[int]) -> int:
        if name.startswith("$") and name[1:].isdecimal() and int(name[1:]) < len(results):
            return results[int(name[1:])]
        if name not in self.index:
            raise ModelError(f"{where}: {name!r} is no register and no earlier step")
        return self.registers[self.index[name]].largest

    def _largest_step(self, where: str, step: Step, results: Sequence[int], last: bool) -> int:
        _one_of(where, step.operation, get_args(Operation))
        left = self._operand(where, step.left, results)
        if step.operation == "shift":
            if step.right or not 0 <= step.amount < 64:
                raise ModelError(f"{where}: a shift has one operand and 0 to 63 bits")
            return left >> step.amount  # like all operations, largest for the largest left operand
        constant = step.operation != "quotient" and not step.right
        right = step.amount if constant else self._operand(where, step.right, results)
        if constant and not 0 <= step.amount <= UINT32_MAX:
            raise ModelError(f"{where}: a constant has 32 bits, got {step.amount}")
        if step.operation == "quotient":
            if not last or not 1 <= step.amount <= UINT64_MAX:
                raise ModelError(f"{where}: a quotient is the last step, its factor has 64 bits")
            # A cut has 32 bits, so cut * right fits 64 bits if `right` has 32.
            if step.amount * left > UINT64_MAX or right > UINT32_MAX:
                raise ModelError(
                    f"{where}: a quotient is compared as factor * left >= cut * right in 64 bits: "
                    f"{step.amount} * {left} or 2^32 * {right} does not fit; use narrower registers"
                )
            return step.amount * left
        if step.amount and step.right:
            raise ModelError(f"{where}: expected a second operand or an amount, got both")
        if step.operation == "add" and left + right > UINT64_MAX:
            raise ModelError(f"{where}: the sum could exceed 64 bits")
        # `sub` has its largest result where the right operand is 0.
        out = {"add": left + right, "sub": left, "min": min(left, right), "max": max(left, right)}
        return out[step.operation]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        fields = {"version": VERSION, **asdict(self)}
        if not self.decision.schedule:  # keeps the digest of specifications before schedules
            del fields["decision"]["schedule"]
        if not self.tunnels:  # and of those before tunnels
            del fields["tunnels"]
        if not self.sources.features:  # and of those before features of sources
            del fields["sources"]
        for register in fields["registers"]:  # and of those before sequences
            for name, usual in (("packet", 0), ("low", 0), ("high", 0), ("scale", "linear")):
                if register[name] == usual:
                    del register[name]
        return fields

    def to_json(self) -> str:
        """One line of JSON; the same specification gives the same bytes."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """SHA-256 of :meth:`to_json`."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def __str__(self) -> str:
        rule = self.decision
        when = ["repeatedly"] * rule.repeat
        when += [f"at packet {packet:,}" for packet in rule.schedule or (rule.packets,) if packet]
        when += [f"after {rule.after * self.tick_ns / 10**9:g} s"] * bool(rule.after)
        return (
            f"flows by {self.key}, {len(self.registers)} registers, "
            f"{len(self.feature_names)} features, decided {', '.join([*when, 'at the end'])}, "
            f"idle time-out {self.idle_timeout * self.tick_ns / 10**9:g} s"
            + (f", in {', '.join(self.tunnels)} tunnels" if self.tunnels else "")
        )

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> MeterSpec:
        """Read JSON that :meth:`to_dict` gave.

        Args:
            text: the JSON.
            source: what to call it in errors.

        Raises:
            ModelError: the JSON is damaged, or of a newer version.
        """
        try:
            return cls.from_dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{source}: not a meter's specification: {error}") from error
        except ModelError as error:
            raise ModelError(f"{source}: {error}") from error

    @classmethod
    def from_dict(cls, data: Any) -> MeterSpec:
        """Read what :meth:`to_dict` wrote.

        Raises:
            ModelError: the data is not a specification, or one of a newer version.
        """
        try:
            fields = dict(data)
            version = fields.pop("version")
            if type(version) is not int or version != VERSION:
                raise ModelError(
                    f"a meter's specification of version {shown(version)}, "
                    f"this n3ic reads {VERSION}"
                )
            return from_plain(cls, fields, strict=True)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"not a meter's specification: {error}") from error
