# SPDX-License-Identifier: Apache-2.0
"""Measure the packets per second and core of meters, after a check that ours agree."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from shutil import which
from statistics import median

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import DataError, N3icError
from n3ic.meter.capture import Capture
from n3ic.meter.compiled import CompiledMeter, Frames
from n3ic.meter.packet import parse
from n3ic.meter.records import meter_capture
from n3ic.meter.reference import FlowRecord, ReferenceMeter
from n3ic.meter.sequences import with_sequence
from n3ic.meter.standard import standard_spec
from n3ic.model.metering import MeterSpec

PACKETS = 1_000_000
SEQUENCES = (8, 30)  # first packets that a flow keeps
REFERENCE_PACKETS = 20_000
_FLOWS = 20_000
_CAPTURED = 96  # bytes of a frame in the capture: headers, as a snap length leaves them
_ETHERNET = 1
_TIMES = 5  # a median withstands two disturbed runs


@dataclass(frozen=True)
class MeterBench:
    """Results of the meters.

    Attributes:
        packets: packets that each counted; the reference meter counts the first 20,000.
        flows: flows that the compiled meter found.
        rates: packets a second of one core's time by meter, the compiled one first.
        notes: how it was measured, and what was skipped.
    """

    packets: int
    flows: int
    rates: Mapping[str, float]
    notes: tuple[str, ...]


def bench_meter(capture: str | Path | None = None, packets: int = PACKETS) -> MeterBench:
    """Measure the standard meter beside others, on the same packets.

    Args:
        capture: a capture; generated traffic where None.
        packets: number of packets to generate, or to read at most.

    Raises:
        DataError: the capture cannot be read, or is empty.
        MissingDependencyError: libpcap or a C compiler is missing.
        N3icError: the compiled meter and the reference meter differ.
    """
    spec = standard_spec()
    link, frames = (
        (_ETHERNET, generated_frames(packets)) if capture is None else _read(capture, packets)
    )
    count = len(frames.time)
    first = frames.first(REFERENCE_PACKETS)
    _check(spec, link, first)
    rates, notes = {}, []
    rates["compiled, frames in memory"] = count / median_seconds(
        partial(_count, spec, link, frames)
    )
    for kept in SEQUENCES:
        rates[f"compiled, with {kept} packets of a sequence"] = count / median_seconds(
            partial(_count, with_sequence(spec, kept), link, frames)
        )
    with tempfile.TemporaryDirectory(prefix="n3ic-bench-") as name:
        file = Path(name) / "packets.pcap"
        write_pcap(file, link, frames)
        rates["compiled, pcap file"] = count / median_seconds(partial(_drain, file, spec))
        rates["reference (Python)"] = len(first.time) / _timed(partial(_follow, spec, link, first))
        if find_spec("nfstream"):
            rates["NFStream, pcap file"] = count / _timed(partial(_nfstream, file))
            notes.append("NFStream: one meter process, statistics on, no dissection")
        else:
            notes.append("NFStream is not installed (pip install nfstream): left out")
        argus = which("argus")
        try:
            if argus:
                rates["argus, pcap file"] = count / median_seconds(partial(_argus, argus, file))
            else:
                notes.append("argus is not installed (apt-get install argus-server): left out")
        except subprocess.CalledProcessError as error:
            notes.append(f"argus ended with {error.returncode}: left out")
    source = "generated traffic" if capture is None else str(capture)
    cost = "files lie in the page cache; a second is one of a core, whoever uses it"
    notes.insert(0, f"{count:,} packets of {source}; {cost}")
    return MeterBench(count, _count(spec, link, frames), rates, tuple(notes))


def generated_frames(packets: int) -> Frames:
    """Frames of 20,000 biflows of TCP and UDP, of which some carry most of the packets."""
    rng = np.random.default_rng(0)
    # Heavy-tailed, as traffic is: a few flows carry most packets and stay in the cache.
    flow = (rng.pareto(0.7, packets) * 20).astype(np.uint64) % _FLOWS
    reverse = rng.random(packets) < 0.5
    length = rng.choice(np.array([_CAPTURED, 576, 1514], dtype=np.uint32), packets)
    frame = np.zeros((packets, _CAPTURED), dtype=np.uint8)
    frame[:, 12] = 8  # EtherType 0x0800
    frame[:, 14], frame[:, 22] = 0x45, 64  # IPv4 with a header of 20 bytes; TTL
    total = (length - 14).astype(np.uint16)
    frame[:, 16:18] = _bytes(total)
    udp = flow % 4 == 0
    frame[:, 23] = np.where(udp, 17, 6)
    client = (0x0A000000 + flow).astype(np.uint32)
    server = (0xC0A80000 + flow % 250).astype(np.uint32)
    ports = (1024 + flow).astype(np.uint16), np.full(packets, 443, dtype=np.uint16)
    frame[:, 26:30] = _bytes(np.where(reverse, server, client))
    frame[:, 30:34] = _bytes(np.where(reverse, client, server))
    frame[:, 34:36] = _bytes(np.where(reverse, ports[1], ports[0]))
    frame[:, 36:38] = _bytes(np.where(reverse, ports[0], ports[1]))
    frame[udp, 38:40] = _bytes(total[udp] - 20)
    frame[~udp, 46], frame[~udp, 47] = 0x50, 16  # header of 20 bytes, ACK
    return Frames(
        frame.reshape(-1),
        np.arange(packets, dtype=np.uint64) * _CAPTURED,
        np.full(packets, _CAPTURED, dtype=np.uint32),
        length,
        np.arange(packets, dtype=np.uint64),
    )


def _bytes(numbers: NDArray[np.unsignedinteger]) -> NDArray[np.uint8]:
    """Numbers in network order: uint8 array of shape ``(rows, bytes)``."""
    swapped = np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder(">")))
    return swapped.view(np.uint8).reshape(len(numbers), -1)


def _read(capture: str | Path, packets: int) -> tuple[int, Frames]:
    with Capture(capture) as opened:
        found = [(f, n, t // 1000) for f, n, t in islice(opened.packets(), packets)]
        link = opened.link
    if not found:
        raise DataError(f"{capture}: the capture holds no packet")
    return link, Frames.of(found)


def write_pcap(file: Path, link: int, frames: Frames) -> None:
    """Write frames as a pcap file with stamps of microseconds."""
    with file.open("wb") as out:
        # Magic number of microseconds, version 2.4, snap length, link type.
        out.write(np.array([0xA1B2C3D4, 4 << 16 | 2, 0, 0, 1 << 18, link], dtype="<u4").tobytes())
        seconds, rest = np.divmod(frames.time, np.uint64(10**6))
        heads = np.stack([seconds, rest, frames.captured, frames.length], axis=1).astype("<u4")
        data = frames.data.tobytes()
        starts = frames.offset.tolist()
        for head, start, size in zip(heads, starts, frames.captured.tolist(), strict=True):
            out.write(head.tobytes() + data[start : start + size])


def _check(spec: MeterSpec, link: int, frames: Frames) -> None:
    """Compare the features of both meters' flows."""
    with CompiledMeter(spec, link) as meter:
        meter.count_frames(frames)
        got = meter.finish()["features"].tolist()
    if got != [list(f.features.values()) for f in _reference_flows(spec, link, frames)]:
        raise N3icError("the compiled meter differs from the reference meter")


def median_seconds(work: Callable[[], object]) -> float:
    """Median of the core seconds of five runs."""
    return median(_timed(work) for _ in range(_TIMES))


def _timed(work: Callable[[], object]) -> float:
    """Core seconds of a run, in this process and in those that it starts."""
    start = _core_seconds()
    work()
    return _core_seconds() - start


def _core_seconds() -> float:
    used = (getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(r.ru_utime + r.ru_stime for r in used)


def _count(spec: MeterSpec, link: int, frames: Frames) -> int:
    with CompiledMeter(spec, link) as meter:
        meter.count_frames(frames)
        return len(meter.finish())


def _drain(file: Path, spec: MeterSpec) -> int:
    return sum(len(records) for records, _ in meter_capture(file, spec))


def _follow(spec: MeterSpec, link: int, frames: Frames) -> int:
    return sum(1 for _ in _reference_flows(spec, link, frames))


def _reference_flows(spec: MeterSpec, link: int, frames: Frames) -> Iterator[FlowRecord]:
    return ReferenceMeter(spec).run(parse(link, *f, spec.tunnels) for f in frames.each())


def _nfstream(file: Path) -> int:
    streamer = import_module("nfstream").NFStreamer(
        source=str(file), statistical_analysis=True, n_dissections=0, n_meters=1
    )
    return sum(1 for _ in streamer)


def _argus(program: str, file: Path) -> None:
    out = file.with_suffix(".argus")
    out.unlink(missing_ok=True)
    options = ["-F", "/dev/null", "-J", "-R", "-S", "3600", "-r", str(file), "-w", str(out)]
    subprocess.run([program, *options], capture_output=True, check=True)
