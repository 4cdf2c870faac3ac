# SPDX-License-Identifier: Apache-2.0
"""Compares the standard meter with others on captures: how often features are equal, and why not.

Each reason for a difference has a test, computed from the packets of the flow or from the other
program's output. The first reason whose test passes explains the difference. If none passes, it
counts as not explained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from n3ic.meter.capture import Capture
from n3ic.meter.flow_keys import Key, ends_of
from n3ic.meter.packet import LINK_ETHERNET, Packet, parse
from n3ic.meter.reference import FlowRecord, ReferenceMeter
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.markdown import percent, table

NOT_EXPLAINED = "not explained"
DAMAGED = "a capture that was damaged on purpose"
TOLERANCE = 2e-6  # relative; the others compute with 32-bit floats
_PORTS = (6, 17)


@dataclass(frozen=True)
class ObservedFlow:
    """A flow of ours, and its packets.

    Attributes:
        capture: name of the file.
        record: the reference meter's record.
        packets: the packets with its key, during its whole time.
        back: whether a packet's time is earlier than that of a packet before it in the capture.
        unsaid: whether the IPv4 header of a packet has a total length of 0.
        cut: whether a packet was not captured completely.
    """

    capture: str
    record: FlowRecord
    packets: tuple[Packet, ...] = ()
    back: bool = False
    unsaid: bool = False
    cut: bool = False

    @property
    def key(self) -> Key:
        """The key, the same for both directions."""
        key = self.record.key
        source = (key.source, key.source_port)
        return ends_of(source, (key.destination, key.destination_port)), key.protocol

    def of(self, side: str) -> list[Packet]:
        """The packets of side ``s``, the source, or ``d``, the destination, in order."""
        key = self.record.key
        end = (key.source, key.source_port)
        return [p for p in self.packets if ((p.source, p.source_port) == end) == (side == "s")]


@dataclass(frozen=True)
class FlowPair:
    """A flow that both programs report.

    Attributes:
        flow: our flow.
        other: their record, as text by column.
        turned: whether their source is our destination.
        later: whether there is an earlier flow of the same key.
    """

    flow: ObservedFlow
    other: Mapping[str, str]
    turned: bool
    later: bool = False

    def side(self, theirs: str) -> str:
        """Our name for one of their sides, ``s`` or ``d``."""
        return {"s": "d", "d": "s"}[theirs] if self.turned else theirs


Test = Callable[[FlowPair, str, float, float], bool]
"""Tells whether a reason holds, given a pair, one of our sides, our value and theirs."""


@dataclass(frozen=True)
class ComparedFeature:
    """A feature that both programs have, or one for the source and one for the destination.

    Attributes:
        name: name of our features.
        meaning: how our value is converted to theirs.
        sides: their prefixes, such as ``s`` and ``d``; a single empty one if there is one value.
        ours: returns our value for a pair and our side.
        theirs: returns their value for a pair and their side; None if they have none.
        step: resolution of the coarser value, by which they may differ.
        reasons: why they may differ, each with its test.
    """

    name: str
    meaning: str
    sides: tuple[str, ...]
    ours: Callable[[FlowPair, str], float]
    theirs: Callable[[FlowPair, str], float | None]
    step: float = 0.0
    reasons: tuple[tuple[str, Test], ...] = ()


@dataclass
class FeatureAgreement:
    """How often a feature was equal.

    Attributes:
        compared: number of compared values.
        equal: number of equal values.
        why: number of the others, by reason.
    """

    compared: int = 0
    equal: int = 0
    why: Counter[str] = field(default_factory=Counter)


@dataclass
class MeterComparison:
    """The result of comparing captures.

    Attributes:
        captures: number of captures.
        ours: number of our flows.
        theirs: number of their records.
        pairs: number of flows that both report.
        ours_alone: number of our flows without a record, by reason.
        theirs_alone: number of their records without a flow, by reason.
        features: agreement by feature name.
    """

    captures: int = 0
    ours: int = 0
    theirs: int = 0
    pairs: int = 0
    ours_alone: Counter[str] = field(default_factory=Counter)
    theirs_alone: Counter[str] = field(default_factory=Counter)
    features: dict[str, FeatureAgreement] = field(default_factory=dict)

    def add(self, pair: FlowPair, features: Sequence[ComparedFeature]) -> None:
        """Count a pair."""
        self.pairs += 1
        for feature in features:
            for side in feature.sides:
                theirs = feature.theirs(pair, side)
                if theirs is None:
                    continue
                tally = self.features.setdefault(feature.name, FeatureAgreement())
                tally.compared += 1
                own = pair.side(side) if side else ""
                ours = feature.ours(pair, own)
                if abs(ours - theirs) <= max(feature.step, TOLERANCE * abs(theirs)):
                    tally.equal += 1
                else:
                    tally.why[_reason(feature.reasons, pair, own, ours, theirs)] += 1

    def markdown(self, name: str, features: Sequence[ComparedFeature]) -> str:
        """The figures as tables.

        Args:
            name: name of the other program.
            features: the compared features, for their order and meaning.
        """
        lines = [
            f"{self.captures:,} captures, {self.ours:,} flows of ours and {self.theirs:,} of "
            f"{name}, {self.pairs:,} of which both tell.",
            "",
            *table(
                ["feature", f"as {name} has it", "values", "equal", "share", "why not"],
                (
                    [
                        f.name,
                        f.meaning,
                        f"{t.compared:,}",
                        f"{t.equal:,}",
                        percent(t.equal / t.compared, 2),
                        _listed(t.why),
                    ]
                    for f in features
                    if (t := self.features.get(f.name))
                ),
                "llrrrl",
            ),
            "",
        ]
        for whose, alone in (("ours", self.ours_alone), (f"{name}'s", self.theirs_alone)):
            if alone:
                lines += [f"Only {whose}: {_listed(alone)}.", ""]
        return "\n".join(lines)


def damaged(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    """Whether the capture's name says that it was deliberately damaged."""
    return pair.flow.capture.startswith("fuzz-")


def _reason(
    reasons: Iterable[tuple[str, Test]], pair: FlowPair, side: str, ours: float, theirs: float
) -> str:
    return next((why for why, holds in reasons if holds(pair, side, ours, theirs)), NOT_EXPLAINED)


def _listed(why: Mapping[str, int]) -> str:
    ordered = sorted(why.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{reason} ({count:,})" for reason, count in ordered)


@dataclass(frozen=True)
class _Frame:
    packet: Packet
    back: bool
    unsaid: bool
    cut: bool


def reference_flows_of(
    path: str | Path, spec: MeterSpec
) -> tuple[list[ObservedFlow], Counter[str]]:
    """Meter a capture with the reference meter.

    Returns:
        The flows with their packets, and what was put aside.

    Raises:
        DataError: The capture cannot be read.
        MissingDependencyError: libpcap is not installed.
    """
    meter = ReferenceMeter(spec)
    frames: dict[Key, list[_Frame]] = {}
    records: list[FlowRecord] = []
    clock = 0
    with Capture(path) as capture:
        for data, length, time in capture.packets():
            packet = parse(capture.link, data, length, time // spec.tick_ns)
            records += meter.count(packet)
            if isinstance(packet, Packet):
                unsaid = _says_no_length(capture.link, data)
                frame = _Frame(packet, packet.time < clock, unsaid, len(data) < length)
                frames.setdefault(_key(packet), []).append(frame)
                clock = max(clock, packet.time)
    records += meter.finish()
    return [_seen(Path(path).name, record, frames) for record in records], meter.aside


def _says_no_length(link: int, frame: bytes) -> bool:
    """Whether a frame's IPv4 header has a total length of 0."""
    return link == LINK_ETHERNET and frame[12:14] == b"\x08\0" and frame[16:18] == b"\0\0"


def _key(packet: Packet) -> Key:
    source = (packet.source, packet.source_port)
    return ends_of(source, (packet.destination, packet.destination_port)), packet.protocol


def _seen(capture: str, record: FlowRecord, frames: Mapping[Key, list[_Frame]]) -> ObservedFlow:
    bare = ObservedFlow(capture, record)
    own = [
        frame
        for frame in frames.get(bare.key, ())
        if frame.back or record.first <= frame.packet.time <= record.last
    ]
    return replace(
        bare,
        packets=tuple(frame.packet for frame in own),
        back=any(frame.back for frame in own),
        unsaid=any(frame.unsaid for frame in own),
        cut=any(frame.cut for frame in own),
    )


def match_flows(
    ours: Sequence[ObservedFlow],
    theirs: Sequence[tuple[Key, Any]],
) -> Iterator[tuple[list[ObservedFlow], list[Any]]]:
    """Group our flows and their records by key, each in order.

    Args:
        ours: our flows.
        theirs: their records with keys; ports only count for TCP and UDP.
    """
    flows: dict[Key, tuple[list[ObservedFlow], list[Any]]] = {}
    for flow in sorted(ours, key=lambda flow: flow.record.first):
        flows.setdefault(without_ports(flow.key), ([], []))[0].append(flow)
    for key, record in theirs:
        flows.setdefault(without_ports(key), ([], []))[1].append(record)
    yield from flows.values()


def without_ports(key: Key) -> Key:
    """The key, without ports unless its protocol has them."""
    ((one, _), (other, _)), protocol = key
    return key if protocol in _PORTS else (ends_of((one, 0), (other, 0)), protocol)
