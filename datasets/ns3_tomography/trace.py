# SPDX-License-Identifier: Apache-2.0
"""Tomography traces: probe delays and queue occupancies of a simulated network, in one file.

A trace file is one xz stream. Decompressed, it is

1. the line ``n3ic-tomography 1``,
2. one line of JSON, the header,
3. the columns that the header lists under ``columns``, one after the other, each of ``rows``
   little-endian unsigned integers of one byte (``u1``) or two (``u2``), and nothing after them.

Lines end with one newline byte. Delays are in units of ``delay_unit_ns``, 250 of them per interval:
0 to 249 is the delay rounded down, and 255 means that the probe had not arrived when its interval
ended, late or lost. Occupancies are in quarters of a full packet, rounded up, so that comparing
with a whole number of packets is exact.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.files import read_bytes
from n3ic.errors import DataError
from n3ic.util.files import write_atomic

MAGIC = b"n3ic-tomography 1\n"
SUFFIX = ".tomo.xz"
STREAM = "n3ic-tomography-1"
UNITS_PER_INTERVAL = 250
MISSING = 255
QUARTERS = 4
_STREAM_MISSING = 0xFFFFFFFF
_MAX_HEADER = 1 << 20
_KEPT_FACTS = (
    "duration_s",
    "warmup_s",
    "link_mbps",
    "load",
    "incast",
    "queue_packets",
    "queue_bytes",
    "packet_bytes",
    "answer_bytes",
    "other_pod",
    "other_tor",
    "focus",
    "interval_ns",
    "propagation_us",
    "seed",
)


@dataclass(frozen=True, eq=False)
class ProbeTrace:
    """Delays of the probes and occupancies of the queues, interval by interval.

    Attributes:
        header: the options of the simulation, its runs, the queues and the path of each probe.
        delays: uint8 array of shape ``(rows, paths)``; see the module's docstring.
        occupancy: uint16 array of shape ``(rows, queues)``, in quarters of a full packet.
    """

    header: Mapping[str, Any]
    delays: NDArray[np.uint8]
    occupancy: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.delays)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Name of each delay column, after the switches on the probe's path."""
        return tuple(p["name"] for p in self.header["paths"])

    @cached_property
    def queues(self) -> tuple[str, ...]:
        """Name of each queue: the switch that holds it, and the node that it leads to."""
        return tuple(self.header["queues"])

    def congested(self, threshold: float) -> NDArray[np.bool_]:
        """Which queues hold more than ``threshold`` full packets: shape ``(rows, queues)``."""
        return self.occupancy > threshold * QUARTERS

    def to_bytes(self) -> bytes:
        """The decompressed bytes of the file."""
        dtype = "<u1" if self.occupancy.max(initial=0) < 256 else "<u2"
        columns = [{"name": n, "kind": "delay", "type": "u1"} for n in self.paths]
        columns += [{"name": n, "kind": "occupancy", "type": dtype[1:]} for n in self.queues]
        header = dict(self.header) | {"rows": len(self), "columns": columns}
        line = json.dumps(header, sort_keys=True).encode() + b"\n"
        body = np.ascontiguousarray(self.delays.T).tobytes()
        return MAGIC + line + body + np.ascontiguousarray(self.occupancy.T.astype(dtype)).tobytes()

    def save(self, path: str | Path) -> Path:
        """Write the file, whole or not at all.

        Raises:
            N3icError: the file cannot be written.
        """
        packed = lzma.compress(self.to_bytes(), preset=9 | lzma.PRESET_EXTREME)
        write_atomic(path, packed)
        return Path(path)


@dataclass(frozen=True)
class TraceSource:
    """A trace and the SHA-256 of the file's decompressed bytes."""

    trace: ProbeTrace
    sha256: str


def path_name(queues: Sequence[str]) -> str:
    """Column name of a path to the first server: ``owd_tor2_agg2_core0_agg0``.

    Args:
        queues: the output queues on the path, ``tor2_agg2`` and so on.
    """
    switches = [q.split("_")[0] for q in queues]
    return "_".join(("owd", *switches[:-1])) if len(switches) > 1 else f"owd_{switches[0]}"


def join(traces: Sequence[ProbeTrace]) -> ProbeTrace:
    """Join several runs of the same simulation to one trace, one after the other.

    Raises:
        DataError: the runs differ in more than their substream.
    """
    first = traces[0]

    def common(trace: ProbeTrace) -> dict[str, Any]:
        return {k: v for k, v in trace.header.items() if k not in ("runs", "duration_s")}

    for trace in traces[1:]:
        if common(trace) != common(first):
            raise DataError("these traces are not runs of one simulation: their options differ")
    header = dict(first.header) | {
        "runs": [run for t in traces for run in t.header["runs"]],
        "duration_s": sum(t.header["duration_s"] for t in traces),
    }
    return ProbeTrace(
        header,
        np.concatenate([t.delays for t in traces]),
        np.concatenate([t.occupancy for t in traces]),
    )


def from_stream(data: bytes, facts: Mapping[str, Any] | None = None) -> ProbeTrace:
    """Make a trace from the standard output of the simulator.

    Args:
        data: a line of JSON, then the records; an incomplete last record is dropped.
        facts: entries to add to the header.

    Raises:
        DataError: the bytes are not the simulator's output, or hold no record.
    """
    end = data.find(b"\n", 0, _MAX_HEADER)
    try:
        header_line = json.loads(data[: max(end, 0)])
        stream = header_line["stream"]
        probes, queues = header_line["probes"], header_line["queues"]
        probe_indices = [i for i, p in enumerate(probes) if p["kept"]]
        header = {key: header_line[key] for key in _KEPT_FACTS}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"this is not the output of the simulator: {error!r}") from error
    if stream != STREAM:
        raise DataError(f"the simulator writes {stream!r}, {STREAM!r} is expected: build it again")
    width = len(probes) + len(queues)
    rows = (len(data) - end - 1) // (4 * width)
    if not rows:
        raise DataError("the simulator wrote no record: simulate for a longer time")
    records = np.frombuffer(data, "<u4", rows * width, end + 1).reshape(rows, width)
    delays = quantise_delays(records[:, : len(probes)][:, probe_indices], header["interval_ns"])
    occupancy = quantise_occupancy(records[:, len(probes) :], header["packet_bytes"])
    header |= dict(facts or {}) | {
        "format": "n3ic-tomography 1",
        "delay_unit_ns": header["interval_ns"] / UNITS_PER_INTERVAL,
        "missing": MISSING,
        "occupancy_unit_bytes": header["packet_bytes"] / QUARTERS,
        "sampled_at": header_line["sampled_at"],
        "queues": queues,
        "paths": [
            {"name": path_name(probes[i]["path"]), **_path(probes[i])} for i in probe_indices
        ],
        "other_probes": [_path(p) for p in probes if not p["kept"]],
        "runs": [{"run": header_line["run"], "rows": rows}],
    }
    return ProbeTrace(header, delays, occupancy)


def _path(probe: Mapping[str, Any]) -> dict[str, Any]:
    return {key: probe[key] for key in ("server", "source_port", "path")}


def quantise_delays(nanoseconds: NDArray[np.uint32], interval_ns: int) -> NDArray[np.uint8]:
    """Delays in 250ths of the interval, rounded down; 255 for a probe that had not arrived.

    Args:
        nanoseconds: uint32 array of any shape; 0xffffffff where the probe had not arrived in its
            interval.
        interval_ns: nanoseconds between two probes of a server.
    """
    units = nanoseconds.astype(np.int64) * UNITS_PER_INTERVAL // interval_ns
    late = (nanoseconds == _STREAM_MISSING) | (units >= UNITS_PER_INTERVAL)
    return np.where(late, MISSING, units).astype(np.uint8)


def quantise_occupancy(occupied: NDArray[np.uint32], packet_bytes: int) -> NDArray[np.uint16]:
    """Bytes in quarters of a full packet, rounded up; at most 65,535."""
    quarters = -(-occupied.astype(np.int64) * QUARTERS // packet_bytes)
    return np.minimum(quarters, 0xFFFF).astype(np.uint16)


def read(path: str | Path) -> TraceSource:
    """Read a trace file.

    Raises:
        DataError: the file is missing, truncated or damaged, or not a trace.
    """
    data = read_bytes(path)
    return TraceSource(parse(data, str(path)), hashlib.sha256(data).hexdigest())


def parse(data: bytes, name: str = "trace") -> ProbeTrace:
    """Parse the decompressed bytes of a trace file.

    Raises:
        DataError: the bytes are not a trace; the error says what was expected.
    """
    if not data.startswith(MAGIC):
        raise DataError(
            f"{name}: not a tomography trace; its first line must be {MAGIC.decode().strip()!r}"
        )
    end = data.find(b"\n", len(MAGIC), len(MAGIC) + _MAX_HEADER)
    if end < 0:
        raise DataError(f"{name}: the header's line does not end")
    try:
        header = json.loads(data[len(MAGIC) : end])
        columns = header.pop("columns")
        rows = header.pop("rows")
        paths = [p["name"] for p in header["paths"]]
        queues = header["queues"]
        types = [c["type"] for c in columns]
        names = [(c["kind"], c["name"]) for c in columns]
        interval, packet = header["interval_ns"], header["packet_bytes"]
        covered = sum(r["rows"] for r in header["runs"])
        sound = (
            all(isinstance(n, str) and n for n in (*paths, *queues))
            and all(isinstance(v, int) and v > 0 for v in (rows, interval, packet))
            and covered == rows
            and set(types) <= {"u1", "u2"}
            and names == [("delay", p) for p in paths] + [("occupancy", q) for q in queues]
            and len(set(names)) == len(names)
            and len(paths) > 0
            and len(queues) > 0
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{name}: the header is not one of a trace: {error!r}") from error
    if not sound:
        raise DataError(f"{name}: the header contradicts itself; expected paths, queues and rows")
    sizes = [rows * int(t[1]) for t in types]
    if len(data) - end - 1 != sum(sizes):
        raise DataError(
            f"{name}: {len(data) - end - 1:,} bytes of columns, the header says {sum(sizes):,}"
        )
    arrays, start = [], end + 1
    for kind, size in zip(types, sizes, strict=True):
        arrays.append(np.frombuffer(data, f"<{kind}", rows, start))
        start += size
    delays = np.stack(arrays[: len(paths)], axis=1)
    if delays.dtype != np.uint8 or ((delays >= UNITS_PER_INTERVAL) & (delays != MISSING)).any():
        raise DataError(
            f"{name}: a delay is 0 to {UNITS_PER_INTERVAL - 1}, or {MISSING} where it is missing"
        )
    occupancy = np.stack([a.astype(np.uint16) for a in arrays[len(paths) :]], axis=1)
    return ProbeTrace(header, delays, occupancy)
