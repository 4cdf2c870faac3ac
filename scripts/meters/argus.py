# SPDX-License-Identifier: Apache-2.0
"""Compares the standard meter with argus, from whose records UNSW-NB15 was made."""

from __future__ import annotations

import csv
import io
import math
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

from n3ic.errors import MissingDependencyError
from n3ic.meter.flow_keys import Key, flow_key
from n3ic.meter.packet import ACK, FIN, RST, SYN, TCP, UDP
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

HOUR_US = 3_600_000_000
SPEC = replace(
    standard_spec(idle_timeout_us=2 * HOUR_US), ends=(), active_timeout=HOUR_US, windows=()
)
"""The standard meter with argus' end of a flow: only an hour after its first packet."""
COLUMNS = (
    "stime", "proto", "saddr", "sport", "daddr", "dport", "flgs", "dur", "spkts", "dpkts",
    "sbytes", "dbytes", "sttl", "dttl", "sload", "dload", "rate", "sintpkt", "dintpkt", "tcprtt",
    "synack", "ackdat", "smeansz", "dmeansz", "swin", "dwin",
)  # fmt: skip
"""The columns requested from ``ra``."""
ARGUS = ("argus", "-J", "-R", "-S", "3600")
RA = ("ra", "-nn", "-u", "-c", ",", "-p", "6")
_DNS, _ECHO = 53, 0xC0  # a port; the TCP flags of explicit congestion notification
_ICMP, _GRE, _ESP, _ICMP6, _IGMP = 1, 47, 50, 58, 2
_MANAGEMENT = "man"  # the protocol of argus' records of itself
_TIMEOUT_S = 120

Row = Mapping[str, str]


# --- argus -----------------------------------------------------------------------------------


def argus_rows(path: str | Path) -> list[Row] | None:
    """The records of a capture, in order of their starts; None if argus cannot read it.

    Raises:
        MissingDependencyError: argus or ra is not installed.
    """
    for tool in (ARGUS[0], RA[0]):
        if which(tool) is None:
            raise MissingDependencyError(
                f"{tool} is not installed (Debian: apt-get install argus-server argus-client)"
            )
    with tempfile.TemporaryDirectory(prefix="n3ic-argus-") as scratch:
        file = Path(scratch) / "x.argus"
        process = _run([*ARGUS, "-r", str(path), "-w", str(file)])
        if process.returncode != 0 or not file.is_file():
            return None
        return parse_rows(_run([*RA, "-r", str(file), "-s", *COLUMNS]).stdout)


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_S,
        check=False,
        env={**os.environ, "TZ": "UTC", "LC_ALL": "C"},
    )


def parse_rows(text: str) -> list[Row]:
    """Parse the flow records in ``ra``'s output, whose first line is a header.

    Argus also writes management records of its own when it starts and ends; these are skipped.
    """
    rows = list(csv.DictReader(io.StringIO(text), fieldnames=COLUMNS))[1:]
    flows = (row for row in rows if row["proto"] != _MANAGEMENT)
    return sorted(flows, key=lambda row: float(row["stime"] or 0))


def row_key(row: Row) -> Key | None:
    """The key of a record; None for a record without IP."""
    ports = (row["sport"], row["dport"]) if row["proto"] in ("6", "17") else ("", "")
    if not row["proto"].isdecimal() or int(row["proto"]) > 255:
        return None
    try:
        return flow_key(row["saddr"], ports[0], row["daddr"], ports[1], row["proto"])
    except ValueError:
        return None


# --- what both have --------------------------------------------------------------------------


def _ours(name: str) -> Any:
    """A feature of ours; ``{}`` in its name is the side."""
    return lambda pair, side: float(pair.flow.record.features[name.format(side)])


def _theirs(name: str, factor: float = 1.0, *, tcp: bool = False) -> Any:
    """A column of argus; ``{}`` in its name is the side."""

    def value(pair: FlowPair, side: str) -> float | None:
        if tcp and pair.flow.record.key.protocol != TCP:
            return None
        text = pair.other[name.format(side)].strip()
        return float(text) * factor if text not in ("", "nan", "-nan") else 0.0

    return value


def _mean(pair: FlowPair, side: str) -> float:
    """Mean size, rounded half up as in UNSW-NB15."""
    return float(math.floor(float(pair.other[f"{side}meansz"] or 0) + 0.5))


def _ttl(pair: FlowPair, side: str) -> float | None:
    return float(pair.other[f"{side}ttl"] or 0) if int(pair.other[f"{side}pkts"]) else None


def _window(pair: FlowPair, side: str) -> float | None:
    several = pair.flow.record.packets > 1  # argus prints 0 for one packet
    value: float | None = _theirs("{}win", tcp=True)(pair, side) if several else None
    return value


def _load(pair: FlowPair, side: str) -> float:
    """Bits per second by argus' rule: all bytes less one mean packet, over the duration."""
    f = pair.flow.record.features
    packets, size, time = f[f"{side}pkts"], f[f"{side}bytes"], f["dur"]
    return 8e6 * (size - size // packets) / time if packets > 1 and time else 0.0


# --- why they differ -------------------------------------------------------------------------


def _back(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return pair.flow.back


def _icmp_error(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return "U" in pair.other["flgs"]


def _unsaid(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return pair.flow.unsaid


def _turned(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return pair.turned


def _begins_with_syn_ack(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return any(p.tcp_flags & (SYN | ACK) == SYN | ACK for p in pair.flow.packets[:1])


def _joined_late(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    """Whether no SYN was seen and the first packet came from the lower port."""
    key = pair.flow.record.key
    syn = any(p.tcp_flags & SYN for p in pair.flow.packets)
    return key.protocol == TCP and not syn and key.source_port < key.destination_port


def _same_times(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    """Whether argus' rule, which skips packets with no later time, gives its value."""
    total = number = 0
    last: int | None = None
    for packet in pair.flow.of(side):
        if packet.later:
            continue
        if last is not None and not 0 < packet.time - last < 2 * HOUR_US:
            continue
        total, number = (
            (total, number) if last is None else (total + packet.time - last, number + 1)
        )
        last = packet.time
    mean = total / number if number else 0.0
    return abs(mean - theirs) <= max(1.0, 2e-6 * mean)


def _goes_on(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return pair.later


def _since_1970(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return pair.flow.record.first < 1_000_000


def _scaled(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return any(ours * (1 << k) == theirs for k in range(1, 15))


def _only_ends(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return all(p.tcp_flags & (FIN | RST) for p in pair.flow.of(side))


def _closed_window(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return ours == 0 and theirs in [p.tcp_window for p in pair.flow.of(side)]


def _much_later(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    return ours > 60_000_000


def _syn_with_ecn(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    syns = [p for p in pair.flow.packets if p.tcp_flags & SYN]
    return bool(syns) and bool(syns[0].tcp_flags & _ECHO) and theirs == 0


def _syn_ack_again(pair: FlowPair, side: str, ours: float, theirs: float) -> bool:
    answers = [p for p in pair.flow.packets if p.tcp_flags & (SYN | ACK) == SYN | ACK]
    return len(answers) > 1


def _no_bare_ack(pair: FlowPair, side: str, value: float, theirs: float) -> bool:
    """Whether data came with the first ACK after the SYN-ACK."""
    behind = False
    for packet in pair.flow.packets:
        flags = packet.tcp_flags
        ours = packet.source == pair.flow.record.key.source
        if ours and behind and flags & ACK and not flags & (SYN | FIN | RST):
            return packet.payload_length > 0
        behind = behind or flags & (SYN | ACK) == SYN | ACK
    return False


_TIMES: tuple[tuple[str, Test], ...] = (
    ("times go back in the capture, our clock does not", _back),
    ("argus counts the time of an ICMP error about the flow to it", _icmp_error),
    ("IPv4 length 0 (large segment): argus takes the frame for no IP", _unsaid),
    ("stamped in 1970: argus passes over the first second", _since_1970),
    (DAMAGED, damaged),
)
_SIZES: tuple[tuple[str, Test], ...] = (_TIMES[2], _TIMES[4])
_SETUP: tuple[tuple[str, Test], ...] = (
    ("the SYN carries ECN flags: argus does not know it", _syn_with_ecn),
    _TIMES[0],
    ("the SYN-ACK came again: argus counts from the last", _syn_ack_again),
    ("data came with the first ACK: argus takes none of it", _no_bare_ack),
    ("more than a minute late, of another connection: we have no idle time-out here", _much_later),
    _TIMES[4],
)
_SIDES = ("s", "d")
FEATURES: tuple[ComparedFeature, ...] = (
    ComparedFeature(
        "direction",
        "source is the sender of the first packet",
        ("",),
        lambda pair, side: 0.0,
        lambda pair, side: float(pair.turned),
        reasons=(
            ("begins with a SYN-ACK: argus turns the flow round", _begins_with_syn_ack),
            ("no SYN was seen: argus takes the lower port for the server's", _joined_late),
        ),
    ),
    ComparedFeature("dur", "us", ("",), _ours("dur"), _theirs("dur", 1e6), 1.01, _TIMES),
    ComparedFeature("spkts, dpkts", "", _SIDES, _ours("{}pkts"), _theirs("{}pkts"), reasons=_SIZES),
    ComparedFeature(
        "sbytes, dbytes", "", _SIDES, _ours("{}bytes"), _theirs("{}bytes"), reasons=_SIZES
    ),
    ComparedFeature(
        "smean, dmean", "rounded half up", _SIDES, _ours("{}mean"), _mean, reasons=_SIZES
    ),
    ComparedFeature("sttl, dttl", "of the last packet", _SIDES, _ours("{}ttl"), _ttl),
    ComparedFeature(
        "sload, dload",
        "8 (bytes - bytes / packets) / dur of our registers; our feature leaves out no packet",
        _SIDES,
        _load,
        _theirs("{}load"),
        reasons=(
            ("argus does not swap the loads of a flow that it turns round", _turned),
            *_TIMES,
        ),
    ),
    ComparedFeature(
        "rate", "packets a 1000 s", ("",), _ours("rate"), _theirs("rate", 1e3), 1.01, _TIMES
    ),
    ComparedFeature(
        "sinpkt, dinpkt",
        "us",
        _SIDES,
        _ours("{}inpkt"),
        _theirs("{}intpkt", 1e3),
        1.01,
        (
            ("a record that goes on: argus counts the gap to the one before", _goes_on),
            ("argus passes over packets that are not later than the one before", _same_times),
            *_TIMES,
        ),
    ),
    *(
        ComparedFeature(name, "us", ("",), _ours(name), _theirs(name, 1e6, tcp=True), 1.01, _SETUP)
        for name in ("synack", "ackdat", "tcprtt")
    ),
    ComparedFeature(
        "swin, dwin",
        "not scaled; flows of one packet aside",
        _SIDES,
        _ours("{}win"),
        _window,
        reasons=(
            ("argus shifts by the window scale option", _scaled),
            ("argus has none of a side that it turned round", _turned),
            ("only FIN and RST were seen: we take none of them", _only_ends),
            ("a last window of 0, which argus does not take", _closed_window),
        ),
    ),
)


# --- the comparison --------------------------------------------------------------------------


def compare_argus(captures: Sequence[str | Path]) -> MeterComparison:
    """Compare the standard meter with argus.

    Args:
        captures: the files.

    Raises:
        MissingDependencyError: argus, ra or libpcap is not installed.
        DataError: A capture cannot be read.
    """
    comparison = MeterComparison()
    with ThreadPoolExecutor(8) as pool:  # argus sleeps when it is done
        for path, rows in zip(captures, pool.map(argus_rows, captures), strict=True):
            add_argus(comparison, path, rows)
    return comparison


def add_argus(comparison: MeterComparison, path: str | Path, rows: Sequence[Row] | None) -> None:
    """Count a capture.

    Args:
        comparison: the comparison to update.
        path: the capture.
        rows: argus' records of it; None if argus cannot read it.
    """
    flows, aside = reference_flows_of(path, SPEC)
    comparison.captures += 1
    comparison.ours += len(flows)
    comparison.theirs += len(rows or ())
    if not rows:
        comparison.ours_alone["argus does not read the capture"] += len(flows)
        return
    keyed = [(key, row) for row in rows if (key := row_key(row))]
    others = [row for row in rows if row_key(row) is None]
    comparison.theirs_alone["not IP"] += len(others)
    tunnel = any(flow.record.key.protocol == _GRE for flow in flows)
    counted = sum(int(row["spkts"]) + int(row["dpkts"]) for row in others)
    unread = aside["not IP"] + aside["link type not known"] > counted
    for ours, theirs in match_flows(flows, keyed):
        if len(ours) == len(theirs):
            for i, (flow, row) in enumerate(zip(ours, theirs, strict=True)):
                comparison.add(FlowPair(flow, row, _is_turned(flow, row), later=i > 0), FEATURES)
            continue
        why = DAMAGED
        if not Path(path).name.startswith("fuzz-"):
            why = _why_alone(ours, theirs, tunnel, unread)
        comparison.ours_alone[why] += len(ours)
        comparison.theirs_alone[why] += len(theirs)
    for alone in (comparison.ours_alone, comparison.theirs_alone):
        for why in [why for why, count in alone.items() if not count]:
            del alone[why]


def _is_turned(flow: ObservedFlow, row: Row) -> bool:
    key = flow.record.key
    same = flow_key(row["saddr"], "", row["saddr"], "", "")[0][0][0] == key.source
    if key.source == key.destination:
        same = row["sport"] == str(key.source_port)
    return not same


def _why_alone(
    ours: Sequence[ObservedFlow], theirs: Sequence[Row], tunnel: bool, unread: bool
) -> str:
    key = ours[0].key if ours else row_key(theirs[0])
    if key is None:
        return NOT_EXPLAINED
    ends, protocol = key
    if protocol == UDP and _DNS in (ends[0][1], ends[1][1]):
        return "DNS: argus' key has the transaction number"
    if protocol in (_ICMP, _ICMP6):
        return "ICMP: argus tells messages apart by type, code and what they carry"
    if protocol == _ESP:
        return "ESP: argus' key has the security parameters index"
    if protocol == _IGMP:
        return "IGMP: argus' key has the group"
    if tunnel and (protocol == _GRE or not ours):
        return "GRE: argus opens the tunnel"
    if ends[0][0] == ends[1][0] and len(theirs) == 2 * len(ours):
        return "IPv6 from a host to itself: argus makes a record of each direction"
    if unread and not ours:
        return "a link layer or an encapsulation that only argus reads"
    return NOT_EXPLAINED
