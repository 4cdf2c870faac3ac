# SPDX-License-Identifier: Apache-2.0
"""Compares the standard meter with nDPI, by the flows that nDPI's CSV lists."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from n3ic.errors import DataError
from n3ic.meter.flow_keys import Key, flow_key
from n3ic.meter.packet import ACK, FIN, RST, SYN
from n3ic.meter.standard import standard_spec

from .comparison import (
    DAMAGED,
    NOT_EXPLAINED,
    ComparedFeature,
    FlowPair,
    MeterComparison,
    ObservedFlow,
    Test,
    damaged,
    match_flows,
    reference_flows_of,
)

SPEC = replace(standard_spec(idle_timeout_us=1 << 47), ends=(), windows=())
"""The standard meter with flows that only end with the capture, as in nDPI's regression suite."""
_SIDE = {"s": "c2s", "d": "s2c"}
_TUNNELS = (4, 41, 47, 132)
_GTP, _CAPWAP = 2152, (5246, 5247)
_ESP = 50
_LONGEST_S = (2**32 - 1) / 1e6
_HEADERS = (4, 16, 20, -4, -8)  # null, cooked v1 and v2; one or two VLAN tags

Row = Mapping[str, str]


def ndpi_rows(path: str | Path) -> dict[str, list[Row]]:
    """Read the flows of nDPI's CSV, by capture.

    Raises:
        DataError: The file cannot be read, or lacks a column.
    """
    needed = {"pcap", "l4", "src", "sport", "dst", "dport", "duration_s", "c2s_pkts", "s2c_bytes"}
    rows: dict[str, list[Row]] = {}
    try:
        with Path(path).open(encoding="utf-8", errors="replace", newline="") as stream:
            reader = csv.DictReader(stream)
            if missing := needed - set(reader.fieldnames or ()):
                raise DataError(f"{path}: column {min(missing)!r} is missing")
            for row in reader:
                rows.setdefault(row["pcap"], []).append(row)
    except (OSError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    return rows


def row_key(row: Row) -> Key | None:
    """The key of a flow; None if the CSV cuts an address short."""
    try:
        return flow_key(row["src"], row["sport"], row["dst"], row["dport"], row["l4"])
    except ValueError:
        return None


def _ours(name: str, factor: float = 1.0) -> Any:
    return lambda pair, side: float(pair.flow.record.features[name.format(side)]) * factor


def _theirs(name: str) -> Any:
    def value(pair: FlowPair, side: str) -> float | None:
        text = pair.other[name.format(_SIDE.get(side, ""))].strip()
        return float(text) if text else None

    return value


def _duration(pair: FlowPair, side: str) -> float:
    text = pair.other["duration_s"]
    return 0.5 if text == "<1" else float(text)


def _our_duration(pair: FlowPair, side: str) -> float:
    seconds = pair.flow.record.features["dur"] / 1e6
    return 0.5 if pair.other["duration_s"] == "<1" and seconds < 1 else seconds


def _length(name: str) -> Any:
    """One of our lengths; 0 if the direction has no packet."""
    value = _ours(name)
    packets = _ours("{}pkts")
    return lambda pair, side: value(pair, side) if packets(pair, side) else 0.0


def _largest_gap(pair: FlowPair, side: str) -> float:
    return float(pair.flow.record.features[f"{side}maxgap"] // 1000)


def _link_header(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    """Whether each packet of the direction differs by the same link header."""
    packets = pair.flow.record.features[f"{side}pkts"]
    return any(theirs - ours in (n * packets, n) for n in _HEADERS)


def _link_header_mean(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return any(abs(theirs - ours - n) <= 1 for n in _HEADERS)


def _fragments(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return any(p.identification is not None for p in pair.flow.packets)


def _again(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    """Whether a second connection has the same 5-tuple."""
    return _connections(pair.flow) > 1


def _connections(flow: ObservedFlow) -> int:
    """How often a connection begins: at a SYN, or at a SYN-ACK after an end."""
    count, ended = 0, True
    for packet in flow.packets:
        if packet.tcp_flags & SYN and (ended or not packet.tcp_flags & ACK):
            count, ended = count + 1, False
        ended = ended or bool(packet.tcp_flags & (FIN | RST))
    return count


def _too_long(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return theirs > _LONGEST_S and abs(ours - _LONGEST_S) < 1e-3


def _cut(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return pair.flow.cut


def _capwap(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    key = pair.flow.record.key
    return not {key.source_port, key.destination_port}.isdisjoint(_CAPWAP)


def _back(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return pair.flow.back or theirs >= 1 << 62


def _fewer(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return theirs < ours


_WHOLE: tuple[tuple[str, Test], ...] = (
    (DAMAGED, damaged),
    ("fragments: nDPI counts later ones to no flow", _fragments),
    ("a SYN again: nDPI leaves out packets, or makes a new flow", _again),
    ("nDPI leaves out packets that are not captured as a whole", _cut),
    ("CAPWAP: nDPI opens the tunnel", _capwap),
)
_LENGTHS: tuple[tuple[str, Test], ...] = (
    ("nDPI counts the capture's own link header, and no VLAN tag", _link_header),
    *_WHOLE,
)
_MEANS: tuple[tuple[str, Test], ...] = ((_LENGTHS[0][0], _link_header_mean), *_WHOLE)
_SIDES = ("s", "d")
FEATURES: tuple[ComparedFeature, ...] = (
    ComparedFeature(
        "direction",
        "source is the client",
        ("",),
        lambda pair, side: 0.0,
        lambda pair, side: float(pair.turned),
    ),
    ComparedFeature(
        "dur",
        "s, two places",
        ("",),
        _our_duration,
        _duration,
        0.0101,
        (
            ("ours ends at 2^32 - 1 us", _too_long),
            ("times go back in the capture, our clock does not", _back),
            *_WHOLE,
        ),
    ),
    ComparedFeature(
        "spkts, dpkts", "", _SIDES, _ours("{}pkts"), _theirs("{}_pkts"), reasons=_WHOLE
    ),
    ComparedFeature(
        "sbytes, dbytes", "", _SIDES, _ours("{}bytes"), _theirs("{}_bytes"), reasons=_LENGTHS
    ),
    ComparedFeature(
        "smean, dmean", "", _SIDES, _length("{}mean"), _theirs("pktlen_avg_{}"), 1, _MEANS
    ),
    ComparedFeature(
        "sminlen, dminlen", "", _SIDES, _length("{}minlen"), _theirs("pktlen_min_{}"), 0, _LENGTHS
    ),
    ComparedFeature(
        "smaxlen, dmaxlen", "", _SIDES, _length("{}maxlen"), _theirs("pktlen_max_{}"), 0, _LENGTHS
    ),
    ComparedFeature(
        "smaxgap, dmaxgap",
        "ms",
        _SIDES,
        _largest_gap,
        _theirs("iat_ms_max_{}"),
        1,
        (
            ("times go back in the capture", _back),
            ("nDPI's is smaller: it does not take every packet", _fewer),
            *_WHOLE,
        ),
    ),
)


def compare_ndpi(captures: Sequence[str | Path], flows: str | Path) -> MeterComparison:
    """Compare the standard meter with nDPI.

    Args:
        captures: the files; those without a flow in the CSV are skipped.
        flows: nDPI's CSV.

    Raises:
        DataError: A file cannot be read.
        MissingDependencyError: libpcap is not installed.
    """
    rows = ndpi_rows(flows)
    comparison = MeterComparison()
    for path in captures:
        if Path(path).name in rows:
            add_ndpi(comparison, path, rows[Path(path).name])
    return comparison


def add_ndpi(comparison: MeterComparison, path: str | Path, rows: Sequence[Row]) -> None:
    """Count a capture.

    Args:
        comparison: the comparison to update.
        path: the capture.
        rows: nDPI's flows of it.
    """
    flows, aside = reference_flows_of(path, SPEC)
    comparison.captures += 1
    comparison.ours += len(flows)
    comparison.theirs += len(rows)
    keyed = [(key, row) for row in rows if (key := row_key(row))]
    if len(keyed) < len(rows):
        comparison.theirs_alone["the CSV cuts its address short"] += len(rows) - len(keyed)
    tunnel = any(_is_tunnel(flow) for flow in flows)
    unread = bool(aside["not IP"] or aside["link type not known"])
    for ours, theirs in match_flows(flows, keyed):
        if len(ours) == len(theirs):
            for flow, row in zip(ours, theirs, strict=True):
                comparison.add(FlowPair(flow, row, _is_turned(flow, row)), FEATURES)
            continue
        why = DAMAGED
        if not Path(path).name.startswith("fuzz-"):
            why = _why_alone(ours, theirs, tunnel, unread, cut=len(keyed) < len(rows))
        if ours:
            comparison.ours_alone[why] += len(ours)
        if theirs:
            comparison.theirs_alone[why] += len(theirs)


def _is_turned(flow: ObservedFlow, row: Row) -> bool:
    key = flow.record.key
    source = flow_key(row["src"], row["sport"], row["src"], row["sport"], "")[0][0]
    return source[0] != key.source or (
        key.source == key.destination and source[1] != key.source_port
    )


def _is_tunnel(flow: ObservedFlow) -> bool:
    key = flow.record.key
    return key.protocol in _TUNNELS or _GTP in (key.source_port, key.destination_port)


def _why_alone(
    ours: Sequence[ObservedFlow], theirs: Sequence[Row], tunnel: bool, unread: bool, cut: bool
) -> str:
    if ours and theirs and _connections(ours[0]) > 1:
        return "a new connection of the same 5-tuple: nDPI makes a new flow"
    if ours and theirs and ours[0].record.key.protocol == _ESP:
        return "ESP: nDPI makes a flow of each direction"
    if tunnel and not (ours and theirs):
        return "tunnels: nDPI opens them"
    if cut and not theirs:
        return "the CSV cuts its address short"
    if unread and not ours:
        return "a link layer or an encapsulation that only nDPI reads"
    return NOT_EXPLAINED
