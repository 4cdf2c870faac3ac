# SPDX-License-Identifier: Apache-2.0
"""Labels of captured flows from other programs' tables, joined by key and time, never guessed."""

from __future__ import annotations

import csv
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import accumulate
from pathlib import Path
from typing import Literal

from n3ic.data.files import decompress
from n3ic.errors import DataError, N3icWarning, UsageError
from n3ic.meter.flow_keys import Key, ends_of, flow_key
from n3ic.meter.info_labels import PROCESS_FIELD, SYNTHETIC_MARK, info_lines, parse_info

Format = Literal["table", "ndpi", "zeek", "upc-aau", "hosts"]
FORMATS: tuple[Format, ...] = ("table", "ndpi", "zeek", "upc-aau", "hosts")
Network = IPv4Network | IPv6Network
MAX_LINE = 1 << 16
SLACK_US = 1_000_000  # tolerates different clocks, and rounding to whole seconds
_FOREVER = 1 << 62
_COLUMNS: Mapping[Format, tuple[str, ...]] = {
    "table": ("source", "source_port", "destination", "destination_port", "protocol"),
    "hosts": ("network",),
    "ndpi": ("src", "sport", "dst", "dport", "l4"),
    "zeek": ("id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p", "proto"),
}
_LABEL: Mapping[Format, str] = {
    "table": "label", "hosts": "label", "ndpi": "ndpi_proto", "zeek": "service",
}  # fmt: skip

Outcome = Literal["matched", "unmatched", "ambiguous"]


@dataclass(frozen=True)
class Labelled:
    """A label, and the time during which it holds.

    Attributes:
        label: the label.
        start: start of the flow, microseconds since 1970; 0 if unknown.
        end: end of the flow; the largest time if unknown.
        capture: name of the capture that the label is about; empty for any capture.
        synthetic: whether the file says that a generator made the flow.
        kind: the kind of traffic that the file names beside the label; empty without one.
    """

    label: str
    start: int = 0
    end: int = _FOREVER
    capture: str = ""
    synthetic: bool = False
    kind: str = ""


@dataclass(frozen=True)
class Timeline:
    """The labels of one key, in order of time.

    Attributes:
        entries: labels by their start.
        latest: for each label, the latest end of it and of the labels before it.
    """

    entries: tuple[Labelled, ...]
    latest: tuple[int, ...]

    @classmethod
    def of(cls, entries: Iterable[Labelled]) -> Timeline:
        """The entries in order."""
        ordered = tuple(sorted(entries, key=lambda entry: entry.start))
        return cls(ordered, tuple(accumulate((entry.end for entry in ordered), max)))

    def during(self, first: int, last: int) -> Iterator[Labelled]:
        """Labels that hold at some time from ``first`` to ``last``."""
        for i in reversed(range(bisect_right(self.entries, last, key=lambda entry: entry.start))):
            # No earlier entry ends later than this bound, so none can reach `first`.
            if self.latest[i] < first:
                return
            if self.entries[i].end >= first:
                yield self.entries[i]


@dataclass(frozen=True)
class Labels:
    """Labels by key; a key is the same for both directions of a flow.

    Attributes:
        by_key: labels of each pair of ends and protocol (0 if the table has none), and of each
            network that flows come from.
        synthetic: whether any label says that a generator made its flow.
        networks: the networks, longest prefixes first; the first one that contains a flow's source
            counts.
        kinds: the kind of traffic of each network; empty if none has one.
    """

    by_key: Mapping[Key | Network, Timeline]
    synthetic: bool = False
    networks: tuple[Network, ...] = ()
    kinds: Mapping[Network, str] = field(default_factory=dict)

    @classmethod
    def of_entries(cls, entries: Iterable[tuple[Key | Network, Labelled]]) -> Labels:
        """Labels from pairs of a key and a label."""
        entries_of: dict[Key | Network, list[Labelled]] = {}
        for key, entry in entries:
            entries_of.setdefault(key, []).append(entry)
        synthetic = any(entry.synthetic for group in entries_of.values() for entry in group)
        networks = [key for key in entries_of if isinstance(key, Network)]
        return cls(
            {key: Timeline.of(group) for key, group in entries_of.items()},
            synthetic,
            tuple(sorted(networks, key=lambda network: -network.prefixlen)),
            {
                network: entry.kind
                for network in networks
                for entry in entries_of[network]
                if entry.kind
            },
        )

    def kind(self, source: bytes) -> str:
        """The kind of traffic that comes from an address; empty if the file names none."""
        network = self._network(source)
        return self.kinds.get(network, "") if network else ""

    def _network(self, source: bytes) -> Network | None:
        address = ip_address(source)
        return next((network for network in self.networks if address in network), None)

    def of(
        self,
        source: tuple[bytes, int],
        destination: tuple[bytes, int],
        protocol: int,
        first: int,
        last: int,
        capture: str = "",
    ) -> tuple[str, Outcome]:
        """Find the label of a flow, empty unless exactly one matches, and the outcome of the join.

        Args:
            source: address and port of the endpoint that began the flow.
            destination: address and port of the other endpoint.
            protocol: IP protocol number.
            first: time of the first packet, microseconds since 1970.
            last: time of the last packet, microseconds since 1970.
            capture: name of the capture.
        """
        ends = ends_of(source, destination)
        keys: list[Key | Network] = [(ends, protocol), (ends, 0)]
        if self.networks and source[0] and (network := self._network(source[0])):
            keys.append(network)
        # Different labels are ambiguous; the same label from several lines is one.
        labels = {
            entry.label
            for key in keys
            if key in self.by_key
            for entry in self.by_key[key].during(first - SLACK_US, last + SLACK_US)
            if not entry.capture or not capture or entry.capture == capture
        }
        if len(labels) == 1:
            return labels.pop(), "matched"
        return "", "ambiguous" if labels else "unmatched"


def read_labels(path: str | Path, form: Format, column: str = "") -> Labels:
    """Read a table of labels.

    Args:
        path: the file, plain or packed.
        form: ``table``: CSV with source, source_port, destination, destination_port, protocol
            (a number or a name), label, and optionally start and end (seconds since 1970);
            ``hosts``: CSV with network (the address or prefix that the flow comes from), label,
            and optionally kind (of traffic), start and end;
            ``ndpi``: nDPI's CSV of flows; ``zeek``: a ``conn.log``; ``upc-aau``: the ``.info`` of
            the UPC-AAU captures.
        column: the label's column (``upc-aau``: its field, from 0); empty for the format's own.

    Raises:
        DataError: the file is malformed; the message names the line.
        UsageError: the format is unknown, or the column is no field of it.

    Warns:
        N3icWarning: the address, port or time of some lines cannot be read.
    """
    if form not in FORMATS:
        raise UsageError(f"labels are read from {', '.join(FORMATS)}, got {form!r}")
    entries: list[tuple[Key | Network, Labelled]] = []
    unread: list[str] = []
    try:
        with Path(path).open("rb") as stream:
            rows: Iterator[tuple[Key | Network, Labelled] | str]
            if form == "upc-aau":
                rows = _info(path, info_lines(path), column)
            else:
                rows = _table(path, _lines(path, decompress(str(path), stream)), form, column)
            for row in rows:
                if isinstance(row, str):
                    unread.append(row)
                else:
                    entries.append(row)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not entries:
        raise DataError(unread[0] if unread else f"{path}: no labelled flow in it")
    if unread:
        warnings.warn(
            f"{len(unread)} lines were left out, the first is {unread[0]}",
            N3icWarning,
            stacklevel=2,
        )
    return Labels.of_entries(entries)


def _lines(path: str | Path, pieces: Iterator[bytes]) -> Iterator[str]:
    """Lines of text with their ends; invalid UTF-8 is replaced."""
    left = b""
    for piece in pieces:
        *lines, left = (left + piece).split(b"\n")
        yield from (line.decode("utf-8", "replace") + "\n" for line in lines)
        if len(left) > MAX_LINE:
            raise DataError(
                f"{path}: a line of more than {MAX_LINE:,} bytes; not a table of labels"
            )
    if left:
        yield left.decode("utf-8", "replace")


def _table(
    path: str | Path, text: Iterator[str], form: Format, column: str
) -> Iterator[tuple[Key | Network, Labelled] | str]:
    lines, tab = (_zeek_lines(text), "\t") if form == "zeek" else (text, ",")
    reader = csv.reader(lines, delimiter=tab)
    names = [name.strip() for name in next(filter(None, reader), ())]
    label = column or _LABEL[form]
    missing = [name for name in (*_COLUMNS[form], label) if name not in names]
    if missing:
        raise DataError(
            f"{path}: column {missing[0]!r} is missing; a {form} table has "
            f"{', '.join((*_COLUMNS[form], label))}"
        )
    for cells in filter(None, reader):
        row = dict(zip(names, cells, strict=False))
        where = f"{path}, line {reader.line_num}"
        values = [row.get(name, "").strip() for name in _COLUMNS[form]]
        try:
            key = ip_network(values[0]) if form == "hosts" else flow_key(*values)
            begins, ends = _times(row, form)
        except (ValueError, OverflowError) as error:  # a time may be "inf"
            yield f"{where}: {error}"
            continue
        class_name = row.get(label, "").strip()
        if class_name and class_name != "-":
            capture = row.get("pcap", "").strip() if form == "ndpi" else ""
            kind = row.get("kind", "").strip() if form == "hosts" else ""
            yield key, Labelled(class_name, begins, ends, capture, kind=kind)


def _zeek_lines(text: Iterator[str]) -> Iterator[str]:
    """The lines of a Zeek log from its field names on; lines that are not rows become blank."""
    for line in text:
        if line.startswith("#fields\t"):
            yield line.removeprefix("#fields\t")
            break
        yield "\n"
    yield from ("\n" if line.startswith("#") else line for line in text)


def _times(row: Mapping[str, str], form: Format) -> tuple[int, int]:
    if form == "zeek":
        start = _microseconds(row.get("ts"))
        lasts = _microseconds(row.get("duration"))
        return start, start + lasts if start else _FOREVER
    start, end = _microseconds(row.get("start")), _microseconds(row.get("end"))
    return start, end or _FOREVER


def _microseconds(text: str | None) -> int:
    return round(float(text) * 1e6) if text and text.strip() not in ("", "-") else 0


def _info(
    path: str | Path, text: Iterator[str], column: str
) -> Iterator[tuple[Key | Network, Labelled] | str]:
    if column and not (column.isascii() and column.isdecimal()):
        raise UsageError(f"expected the number of a field of {path}, from 0, got {column!r}")
    index = int(column or PROCESS_FIELD)
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        flow = parse_info(line)
        if isinstance(flow, str):
            yield f"{path}, line {number}: {flow}"
        elif index >= len(flow.fields):
            yield f"{path}, line {number}: {len(flow.fields)} fields, no field {index}"
        elif label := flow.fields[index].strip():
            synthetic = SYNTHETIC_MARK in flow.fields
            yield flow.key, Labelled(label, flow.start, flow.end, synthetic=synthetic)
