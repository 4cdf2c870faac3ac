# SPDX-License-Identifier: Apache-2.0
"""Formats of packet sequences: CertTA's JSON and CSV, NFStream's SPLT and CESNET's PPI columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.cell_text import same_spelling
from n3ic.data.files import Content, find_tables, printable, read_bytes
from n3ic.errors import DataError
from n3ic.meter.sequences import Length, Payload
from n3ic.model.meter_spec import MAX_PACKET

SUFFIXES = (".json", ".csv", ".parquet")
_MAX_ROWS = 5_000_000
_MAX_TIME = 1 << 47  # in the units of a meter: far more than any flow lasts
_Row = tuple[Sequence[int], Sequence[int]]  # signed lengths, times


@dataclass(frozen=True)
class SequenceFormat:
    """A format of packet sequences.

    Attributes:
        name: name of the format.
        columns: columns of a table, or keys of a JSON object, that it requires.
        length: what counts as a packet's length.
        payload: which packets are in a sequence.
        tick_ns: unit of the times in nanoseconds.
        row: reads the signed lengths and times since the first packet of one flow.
    """

    name: str
    columns: frozenset[str]
    length: Length
    payload: Payload
    tick_ns: int
    row: Callable[[Mapping[str, Any]], _Row]


@dataclass(frozen=True, eq=False)
class PacketSequenceFile:
    """The first packets of the flows of one file.

    Attributes:
        format: its format.
        lengths: int64 array of shape ``(flows, 32)``: bytes of each packet, negative in reverse,
            0 after the last one.
        times: int64 array of the same shape, in the format's unit since the first packet.
        labels: class of each flow; empty texts where the file has none.
        sha256: digest of the bytes that were read.
    """

    format: SequenceFormat
    lengths: NDArray[np.int64]
    times: NDArray[np.int64]
    labels: tuple[str, ...]
    sha256: str


def _certta(row: Mapping[str, Any]) -> _Row:
    seconds = row["timestamp"]
    return row["direction_length"], [round(1e6 * (time - seconds[0])) for time in seconds]


def _spaced(row: Mapping[str, Any]) -> _Row:
    lengths, times = ([int(n) for n in row[name].split()] for name in ("lengths", "times_us"))
    return lengths, times


def _splt(row: Mapping[str, Any]) -> _Row:
    ways, sizes, gaps = (_list(row[name]) for name in ("splt_direction", "splt_ps", "splt_piat_ms"))
    present = [way != -1 for way in ways]  # -1 stands for a missing packet
    packets = [(-size if way else size, gap) for way, size, gap, t in
            zip(ways, sizes, gaps, present, strict=True) if t]  # fmt: skip
    return [size for size, _ in packets], _summed([gap for _, gap in packets])


def _ppi(row: Mapping[str, Any]) -> _Row:
    gaps, ways, sizes = _list(row["PPI"])[:3]
    signed = [size if way > 0 else -size for size, way in zip(sizes, ways, strict=True)]
    return signed, _summed(gaps)


def _list(cell: Any) -> Any:
    return json.loads(cell) if isinstance(cell, str) else cell


def _summed(gaps: Iterable[float]) -> list[int]:
    """Times since the first packet; the first gap, which has no meaning, is ignored."""
    return [int(t) for t in np.cumsum([0, *(max(0, round(g)) for g in list(gaps)[1:])])]


def _label(row: Mapping[str, Any]) -> str:
    return str(next((row[name] for name in LABELS if row.get(name) not in (None, "")), ""))


LABELS = ("label", "APP", "application_name", "CATEGORY", "application_category_name")
FORMATS = (
    SequenceFormat(
        "CertTA's JSON", frozenset({"timestamp", "direction_length"}),
        "ip_length", "any", 1000, _certta,
    ),
    SequenceFormat(
        "lengths and times", frozenset({"lengths", "times_us"}),
        "ip_length", "any", 1000, _spaced,
    ),
    SequenceFormat(
        "NFStream's SPLT", frozenset({"splt_direction", "splt_ps", "splt_piat_ms"}),
        "wire_length", "any", 1_000_000, _splt,
    ),
    SequenceFormat("CESNET's PPI", frozenset({"PPI"}), "payload_length", "some", 1_000_000, _ppi),
)  # fmt: skip


def format_of(names: Iterable[str]) -> SequenceFormat | None:
    """The format of a table with these columns; None if it has no packet sequences."""
    have = frozenset(names)
    return next((f for f in FORMATS if f.columns <= have), None)


def read_sequences(path: str | Path, *, labelled: bool = True) -> list[PacketSequenceFile]:
    """Read a file, or the files of a folder.

    Args:
        path: JSON, CSV (plain or compressed) or Parquet.
        labelled: whether each flow must have a class.

    Raises:
        DataError: a file is malformed, or of no known format; the error names file and flow.
    """
    return [
        read
        for file in find_tables(path, SUFFIXES)
        for read in (_parquet if file.suffix == ".parquet" else _texts)(file, labelled)
    ]


def _texts(file: Path, labelled: bool) -> Iterator[PacketSequenceFile]:
    content = Content(str(file), read_bytes(file))
    try:
        text = content.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: expected UTF-8 text: {error}") from error
    rows = _json(str(file), text) if text.lstrip()[:1] in ("[", "{") else _csv(text)
    yield _read(str(file), rows, content.sha256, labelled)


def _json(name: str, text: str) -> Iterator[Mapping[str, Any]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: not JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{name}: expected a list with an object for each flow")
    yield from rows


def _csv(text: str) -> Iterator[Mapping[str, Any]]:
    yield from csv.DictReader(io.StringIO(text, newline=""))


def _parquet(file: Path, labelled: bool) -> Iterator[PacketSequenceFile]:
    import pyarrow as pa
    from pyarrow import parquet

    from n3ic.util.files import sha256_file

    try:
        names = parquet.read_schema(file).names
        kind = format_of(names)
        columns = [n for n in names if kind and n in {*kind.columns, *LABELS}]
        rows = parquet.read_table(file, columns=columns).to_pylist() if columns else [{}]
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file}: not a Parquet file: {error}") from error
    yield _read(str(file), iter(rows), sha256_file(file), labelled)


def _read(
    name: str, rows: Iterator[Mapping[str, Any]], sha256: str, labelled: bool
) -> PacketSequenceFile:
    kind: SequenceFormat | None = None
    lengths, times, labels = [], [], []
    for number, row in enumerate(rows):
        where = f"{name}, flow {number + 1}"
        if kind is None:
            kind = format_of(row)
        if kind is None:
            known = "; ".join(f"{f.name}: {', '.join(sorted(f.columns))}" for f in FORMATS)
            raise DataError(f"{name}: no packet sequences; expected the columns of one: {known}")
        if number >= _MAX_ROWS:
            raise DataError(f"{name}: more than {_MAX_ROWS:,} flows; give a part of the file")
        sizes, when = _checked(where, kind, row)
        labels.append(_label(row))
        if labelled and not labels[-1]:
            raise DataError(f"{where}: expected a label, in a column {' or '.join(LABELS)}")
        lengths.append(sizes)
        times.append(when)
    if kind is None:
        raise DataError(f"{name}: no flow")
    spelled = tuple(same_spelling(labels))
    return PacketSequenceFile(kind, np.array(lengths), np.array(times), spelled, sha256)


def _checked(
    where: str, kind: SequenceFormat, row: Mapping[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths and times of one flow, of 32 packets each."""
    try:
        sizes, when = kind.row(row)
        packets = np.zeros((2, MAX_PACKET), np.int64)
        for out, values in zip(packets, (sizes, when), strict=True):
            first_values = np.asarray(values[:MAX_PACKET])
            if first_values.ndim != 1 or not np.issubdtype(first_values.dtype, np.integer):
                raise TypeError("expected integers")
            out[: len(first_values)] = first_values
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
        raise DataError(
            f"{where}: not a flow of {kind.name}: {printable(str(error)) or type(error).__name__}"
        ) from error
    if len(sizes) != len(when) or not len(sizes):
        raise DataError(
            f"{where}: {len(sizes)} lengths and {len(when)} times, expected equal numbers"
        )
    n = min(len(sizes), MAX_PACKET)
    if not packets[0, :n].all() or np.abs(packets[0]).max() >= 1 << 17:
        raise DataError(f"{where}: a packet's length is not in 1..{(1 << 17) - 1}")
    if packets[1, 0] != 0 or packets[1].min() < 0 or packets[1].max() >= _MAX_TIME:
        raise DataError(f"{where}: expected times from 0 up to {_MAX_TIME:,} ticks")
    # A packet with an earlier timestamp than its predecessor gets a gap of 0, as in the meter.
    packets[1, :n] = np.maximum.accumulate(packets[1, :n])
    return packets[0], packets[1]
