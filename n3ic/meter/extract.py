# SPDX-License-Identifier: Apache-2.0
"""Flow tables from captures: metered by a specification, and labelled if labels are given.

Flows end with their capture, or go on in the next one where the captures are pieces. Several
streams of captures are metered in parallel, each into a part of its own
(:mod:`n3ic.meter.checkpoints`), and each in steps that another process can go on from
(:mod:`n3ic.meter.stream`). The table joins the parts in the order of the captures, so it depends
neither on timing nor on interruptions.
"""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.errors import DataError, N3icWarning, UsageError
from n3ic.meter.capture import STANDARD_INPUT, Capture, is_capture
from n3ic.meter.checkpoints import (
    CaptureCheckpoint,
    CaptureSource,
    CaptureStream,
    checkpoint_file,
    checkpoint_folder,
    read_checkpoint,
    write_checkpoint,
)
from n3ic.meter.compiled import ASIDE, STAMPS
from n3ic.meter.labels import Labels
from n3ic.meter.records import left_out, require_read, unread_links
from n3ic.meter.rows import KEY_COLUMNS, with_labels, write_rows
from n3ic.meter.stream import STEP_FILE, StreamSteps
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.files import work_folder
from n3ic.util.parallel import parallel_map

if TYPE_CHECKING:
    import pyarrow as pa

_COUNTS = ("packets", "late", "evicted", *STAMPS, "tunnelled", "forgotten")  # counters of a meter
_SUFFIXES = (".pcap", ".pcapng", ".cap")


@dataclass(frozen=True)
class TableExtraction:
    """Counts of an extraction.

    Attributes:
        flows: number of rows written.
        packets: number of packets read.
        late: packets after the end of their flow.
        evicted: flows that ended because the flow cache was full.
        back: packets stamped earlier than a packet before them.
        ahead: packets stamped more than an hour ahead; see :class:`~n3ic.meter.clock.Clock`.
        steps: how often the clock was set back.
        tunnelled: packets in GRE, VXLAN and GTP tunnels that the specification does not open.
        forgotten: sources that made room for others; see :class:`~n3ic.meter.sources.SourceTable`.
        aside: packets that belong to no flow, by reason.
        links: packets of link types that are not read, by number and name of the type.
        labels: flows that are ``matched``, ``unmatched`` and ``ambiguous``, if labels are given.
        captures: number of captures named.
        damaged: a line about each capture that ends early or cannot be read.
        kept: captures whose flows were kept from an interrupted run.
    """

    flows: int
    packets: int
    late: int
    evicted: int
    back: int
    ahead: int
    steps: int
    tunnelled: int
    forgotten: int
    aside: dict[str, int]
    links: dict[str, int]
    labels: dict[str, int]
    captures: int
    damaged: tuple[str, ...]
    kept: int


@dataclass(frozen=True)
class Progress:
    """Progress of an extraction.

    Attributes:
        captures: number of finished captures.
        of: total number of captures.
        share: finished share of the captures' bytes, 0 to 1.
        packets: packets so far.
        flows: flows so far.
    """

    captures: int
    of: int
    share: float
    packets: int
    flows: int


def find_captures(paths: Sequence[str | Path]) -> list[CaptureSource]:
    """Find the captures that files and folders name.

    Args:
        paths: files and folders, in this order. A folder stands for all files below it that begin
            like captures or are named ``.pcap``, ``.pcapng`` or ``.cap``, sorted by name.

    Raises:
        UsageError: no capture is named, or standard input is combined with others.
        DataError: a file does not exist, or a folder holds no capture.
    """
    if not paths:
        raise UsageError("name at least one capture")
    if STANDARD_INPUT in map(str, paths):
        if len(paths) > 1:
            raise UsageError("standard input (-) cannot be combined with other captures")
        return [CaptureSource(STANDARD_INPUT, STANDARD_INPUT)]
    return [source for path in paths for source in _sources(Path(path))]


def _sources(path: Path) -> list[CaptureSource]:
    if not path.is_dir():
        if not path.exists():
            raise DataError(f"{path}: No such file or directory")
        return [CaptureSource(str(path), _printable(path.name))]
    files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
    captures = [p for p in files if {*_SUFFIXES} & {*p.suffixes} or is_capture(p)]
    if not captures:
        raise DataError(f"{path}: no capture in this folder")
    return [CaptureSource(str(p), _printable(p.relative_to(path).as_posix())) for p in captures]


def _printable(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")


def extract(
    captures: Sequence[str | Path],
    out: str | Path,
    spec: MeterSpec,
    *,
    labels: Labels | None = None,
    progress: Callable[[Progress], None] | None = None,
    jobs: int | None = 1,
    dask: str | None = None,
    one_stream: bool = False,
    must_read: bool = False,
) -> TableExtraction:
    """Write a table of the flows of captures, whole or not at all.

    The key columns come first, then the specification's features as the integers that a NIC
    keeps, then the label if labels are given. The table carries the specification; see
    :mod:`n3ic.data.table_meter`.

    An interrupted extraction resumes: the flows so far, and the state of the meter in a long
    capture, are kept in the folder ``OUT.parts``, which the next call with the same captures and
    specification reads and removes.

    Args:
        captures: pcap and pcapng files, and folders of them; ``-`` for standard input.
        out: a CSV file, or a Parquet file if the name ends in ``.parquet``.
        spec: what a flow is, and which integers are kept for it.
        labels: labels of the flows.
        progress: called with the progress from time to time.
        jobs: number of captures metered at once on this machine, each on one core; None for all
            cores. The table does not depend on it.
        dask: address of a Dask scheduler whose workers meter them; they see the captures and
            ``out`` under the same paths. If one is lost, another goes on from its last step.
        one_stream: whether the captures are pieces of one. If so, they are metered one after the
            other, in the order of their first packets, and flows continue from one to the next.
            Otherwise flows end with their capture.
        must_read: whether it is an error, and not just a warning, if no packet is of a link type
            that is read.

    Raises:
        DataError: no capture can be read; or with ``must_read``, no packet.
        UsageError: no capture is named, a feature has the name of a key column, or another
            process is writing the same table.
        MissingDependencyError: libpcap, a C compiler, or distributed for ``dask`` is missing.
        N3icError: the file cannot be written, or the scheduler cannot be reached.

    Warns:
        N3icWarning: a capture ends early, or is left out because it cannot be read; time stamps
            go back or jump; packets are of a link type that is not read; or most packets are in
            tunnels that are not opened.
    """
    sources = find_captures(captures)
    clash = set(KEY_COLUMNS) & set(spec.feature_names)
    if clash:
        raise UsageError(f"the feature {min(clash)!r} has the name of a column of the flow's key")
    if one_stream and len(sources) > 1:
        sources = sorted(sources, key=_first_time)
    streams = [tuple(sources)] if one_stream else [(source,) for source in sources]
    if sources[0].path == STANDARD_INPUT:
        return _extract_stream(streams[0], out, spec, labels, progress, None, must_read=must_read)
    with work_folder(checkpoint_folder(out), STEP_FILE) as folder:
        if len(streams) == 1 and dask is None:
            return _extract_stream(
                streams[0], out, spec, labels, progress, folder, must_read=must_read
            )
        meter = partial(_meter_parts, progress=progress, jobs=jobs, dask=dask)
        return _extract_parts(streams, out, spec, labels, meter, folder, must_read=must_read)


def _extract_stream(
    sources: CaptureStream,
    out: str | Path,
    spec: MeterSpec,
    labels: Labels | None,
    progress: Callable[[Progress], None] | None,
    folder: Path | None,
    *,
    must_read: bool,
) -> TableExtraction:
    """Write the flows of captures that follow each other, while they are metered here."""
    steps = StreamSteps(sources, spec, folder)
    outcomes: Counter[str] = Counter()

    def tables() -> Iterator[pa.Table]:
        flows = 0
        for table in steps.tables():
            flows += len(table)
            if progress and steps.counters:
                packets = steps.counters["packets"]
                progress(Progress(steps.capture, len(sources), 0.0, packets, flows))
            yield _labelled(table, labels, outcomes)
        if must_read:
            require_read(sources[0].name, steps.counters)

    flows = write_rows(tables(), out, spec)
    _warn(steps.counters, sources[0].name)
    return _extracted(flows, steps.counters, outcomes, len(sources), steps.damaged)


def _labelled(table: pa.Table, labels: Labels | None, outcomes: Counter[str]) -> pa.Table:
    """A table of one capture's flows with their labels."""
    name = table["capture"][0].as_py() if len(table) else ""
    return with_labels(table, labels, name, outcomes)


def _first_time(source: CaptureSource) -> float:
    """Time of the first packet, in nanoseconds; an empty capture comes last."""
    with Capture(source.path) as capture:
        return next((time for _, _, time in capture.packets()), math.inf)


def _extract_parts(
    streams: Sequence[CaptureStream],
    out: str | Path,
    spec: MeterSpec,
    labels: Labels | None,
    meter: Callable[[Mapping[Path, CaptureStream], MeterSpec], _Metered],
    folder: Path,
    *,
    must_read: bool,
) -> TableExtraction:
    """Write the flows of streams of captures, each metered by itself."""
    files = [checkpoint_file(folder, stream, spec) for stream in streams]
    stream_of = dict(
        zip(files, streams, strict=True)
    )  # a capture that is named twice is metered once
    metered = meter(stream_of, spec)
    if not metered.parts:
        raise DataError(
            f"none of the captures can be read: {next(iter(metered.left_out.values()))}"
        )
    total: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    parts = [metered.parts[file] for file in files if file in metered.parts]
    for part in parts:
        total.update(part.counters)
    if must_read:
        require_read(streams[0][0].name, total)
    tables = (_labelled(table, labels, outcomes) for part in parts for table in part.tables())
    flows = write_rows(tables, out, spec)
    for file, stream in stream_of.items():
        if file in metered.parts:
            _warn(metered.parts[file].counters, stream[0].name)
    damaged: list[str] = []
    for file in stream_of:
        left_out = metered.left_out.get(file)
        damaged += [left_out] if left_out else metered.parts[file].damage
    captures = sum(map(len, streams))
    return _extracted(flows, total, outcomes, captures, damaged, metered.reused)


@dataclass(frozen=True)
class _Metered:
    """Parts by file, a line about each one left out, and the number kept from an earlier run."""

    parts: Mapping[Path, CaptureCheckpoint]
    left_out: Mapping[Path, str]
    reused: int


def _meter_parts(
    stream_of: Mapping[Path, CaptureStream],
    spec: MeterSpec,
    *,
    progress: Callable[[Progress], None] | None,
    jobs: int | None,
    dask: str | None,
) -> _Metered:
    """Meter the captures whose parts are missing."""
    sizes = {
        file: sum(Path(source.path).stat().st_size for source in stream)
        for file, stream in stream_of.items()
    }
    parts = {file: part for file in stream_of if (part := read_checkpoint(file))}
    reused, of = len(parts), sum(sizes.values())
    left_out: dict[Path, str] = {}

    def report() -> None:
        if progress:
            finished_files = [*parts, *left_out]
            share = of and sum(sizes[f] for f in finished_files) / of
            packets = sum(part.counters["packets"] for part in parts.values())
            flows = sum(part.flows for part in parts.values())
            progress(Progress(len(finished_files), len(stream_of), share, packets, flows))

    report()
    missing = [file for file in stream_of if file not in parts]
    absolute = os.path.abspath if dask else str  # a worker has its own working folder

    def call(file: Path) -> tuple[CaptureStream, MeterSpec, Path]:
        stream = tuple(CaptureSource(absolute(s.path), s.name) for s in stream_of[file])
        return stream, spec, Path(absolute(file))

    calls = map(call, missing)
    for number, problem in parallel_map(_meter_part, calls, jobs=jobs, dask=dask):
        file = missing[number]
        part = read_checkpoint(file)
        if part is None:
            left_out[file] = f"{problem}; it is left out"
        else:
            parts[file] = part
        report()
    return _Metered(parts, left_out, reused)


def _meter_part(stream: CaptureStream, spec: MeterSpec, file: Path) -> str:
    """Write the part of a stream; return why it cannot be read, or an empty text.

    Where another process was stopped in the middle of it, its last step is the beginning.
    """
    steps = StreamSteps(stream, spec, file.parent)
    problem = ""
    try:
        write_checkpoint(file, steps.tables(), lambda: (steps.counters, steps.damaged))
        steps.remove()
    except DataError as error:
        problem = str(error)
    return problem


def _warn(counters: Mapping[str, int], name: str) -> None:
    losses = {stamp: counters[stamp] for stamp in STAMPS}
    if 2 * counters["tunnelled"] > counters["packets"]:
        losses["tunnelled"] = counters["tunnelled"]
    unread = (
        f"{count:,} of {counters['packets']:,} packets are of link type {link}, which is not read"
        for link, count in unread_links(counters).items()
    )
    for line in (*unread, *left_out(losses)):
        warnings.warn(f"{name}: {line}", N3icWarning, stacklevel=4)


def _extracted(
    flows: int,
    counters: Mapping[str, int],
    outcomes: Mapping[str, int],
    captures: int,
    damaged: Sequence[str],
    reused: int = 0,
) -> TableExtraction:
    for line in damaged:
        warnings.warn(line, N3icWarning, stacklevel=3)
    counts = {name: counters[name] for name in _COUNTS}
    return TableExtraction(
        flows,
        **counts,
        aside={reason: counters[reason] for reason in ASIDE if counters[reason]},
        links=unread_links(counters),
        labels=dict(outcomes),
        captures=captures,
        damaged=tuple(damaged),
        kept=reused,
    )
