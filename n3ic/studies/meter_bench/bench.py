# SPDX-License-Identifier: Apache-2.0
"""Measure how many packets per second meters count on one core, after checking that ours agree."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from shutil import which

from n3ic.errors import DataError, N3icError
from n3ic.meter.capture import Capture
from n3ic.meter.compiled import CompiledMeter, Frames
from n3ic.meter.packet import parse
from n3ic.meter.records import meter_capture
from n3ic.meter.reference import FlowRecord, ReferenceMeter
from n3ic.meter.sequences import with_sequence
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import MeterSpec
from n3ic.targets.bench_tools import (
    core_seconds_of,
    generated_frames,
    median_seconds,
    write_pcap,
)
from n3ic.targets.figures import Bench

PACKETS = 1_000_000
SEQUENCES = (8, 30)  # how many of its first packets a flow keeps
REFERENCE_PACKETS = 20_000
_ETHERNET = 1


@dataclass(frozen=True)
class MeterBench:
    """What was measured of each meter.

    Attributes:
        packets: packets that each meter counted; the reference meter counts the first 20,000.
        flows: flows that the compiled meter found.
        rates: packets per second of one core's time, by meter; the compiled meter comes first.
        notes: how it was measured, and what was skipped.
    """

    packets: int
    flows: int
    rates: Mapping[str, float]
    notes: tuple[str, ...]


def bench_meter(capture: str | Path | None = None, packets: int = PACKETS) -> MeterBench:
    """Measure the standard meter and others on the same packets.

    Args:
        capture: a capture; None generates traffic.
        packets: how many packets to generate, or to read at most.

    Raises:
        DataError: The capture cannot be read, or is empty.
        MissingDependencyError: libpcap or a C compiler is missing.
        N3icError: The compiled meter and the reference meter differ.
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
    for sequence in SEQUENCES:
        rates[f"compiled, with {sequence} packets of a sequence"] = count / median_seconds(
            partial(_count, with_sequence(spec, sequence), link, frames)
        )
    with tempfile.TemporaryDirectory(prefix="n3ic-bench-") as name:
        file = Path(name) / "packets.pcap"
        write_pcap(file, link, frames)
        rates["compiled, pcap file"] = count / median_seconds(partial(_drain, file, spec))
        rates["reference (Python)"] = len(first.time) / core_seconds_of(
            partial(_follow, spec, link, first)
        )
        if find_spec("nfstream"):
            rates["NFStream, pcap file"] = count / core_seconds_of(partial(_nfstream, file))
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


def _read(capture: str | Path, packets: int) -> tuple[int, Frames]:
    with Capture(capture) as opened:
        frames = [(f, n, t // 1000) for f, n, t in islice(opened.packets(), packets)]
        link = opened.link
    if not frames:
        raise DataError(f"{capture}: the capture holds no packet")
    return link, Frames.of(frames)


def _check(spec: MeterSpec, link: int, frames: Frames) -> None:
    """Compare the features of both meters' flows."""
    with CompiledMeter(spec, link) as meter:
        meter.count_frames(frames)
        features = meter.finish()["features"].tolist()
    if features != [list(f.features.values()) for f in _reference_flows(spec, link, frames)]:
        raise N3icError("the compiled meter differs from the reference meter")


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


def bench(capture: str | Path | None = None) -> Bench:
    """Tables and figures of :func:`bench_meter`."""
    result = bench_meter(capture)
    fastest = next(iter(result.rates.values()))
    rows = tuple(
        (name, f"{rate:,.0f}", f"{1e9 / rate:,.0f}", f"{rate / fastest:.4f}")
        for name, rate in result.rates.items()
    )
    title = f"meters on one core: {result.packets:,} packets, {result.flows:,} flows"
    columns = ("meter", "packets/s", "ns a packet", "ratio")
    return Bench(((title, columns, rows),), result.notes, asdict(result))
