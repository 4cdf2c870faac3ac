# SPDX-License-Identifier: Apache-2.0
"""Flow tables from captures: metered by a specification, and labelled if labels are given.

Flows end with their capture. Several captures are metered in parallel, each into a part of its own
(:mod:`n3ic.meter.checkpoints`). The table joins the parts in the order of the captures, so it
depends neither on timing nor on interruptions.
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
    PART_FILE,
    CaptureCheckpoint,
    checkpoint_file,
    checkpoint_folder,
    read_checkpoint,
    write_checkpoint,
)
from n3ic.meter.compiled import ASIDE, STAMPS
from n3ic.meter.labels import Labels
from n3ic.meter.records import left_out, meter_stream, require_read, unread_links
from n3ic.meter.rows import KEY_COLUMNS, flow_table, with_labels, write_rows
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


@dataclass(frozen=True)
class CaptureSource:
    """A capture to read.

    Attributes:
        path: the file; ``-`` for standard input.
        name: name in the rows of its flows: the file's name, or its path below the given folder.
    """

    path: str
    name: str


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

    An interrupted extraction resumes: the flows of finished captures are kept in the folder
    ``OUT.parts``, which the next call with the same captures and specification reads and removes.

    Args:
        captures: pcap and pcapng files, and folders of them; ``-`` for standard input.
        out: a CSV file, or a Parquet file if the name ends in ``.parquet``.
        spec: what a flow is, and which integers are kept for it.
        labels: labels of the flows.
        progress: called with the progress from time to time.
        jobs: number of captures metered at once on this machine, each on one core; None for all
            cores. The table does not depend on it.
        dask: address of a Dask scheduler whose workers meter them; they see the captures and
            ``out`` under the same paths.
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
    if len(sources) > 1 and not one_stream:
        with work_folder(checkpoint_folder(out), PART_FILE) as folder:
            meter = partial(_meter_parts, progress=progress, jobs=jobs, dask=dask)
            return _extract_parts(sources, out, spec, labels, meter, folder, must_read=must_read)
    if one_stream:
        sources = sorted(sources, key=_first_time) if len(sources) > 1 else sources
    damaged: list[str] = []
    counters: dict[str, int] = {}
    outcomes: Counter[str] = Counter()
    flows = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal counters, flows
        for number, records, so_far in meter_stream(
            [s.path for s in sources], spec, damaged.append
        ):
            counters, flows = so_far, flows + len(records)
            if progress:
                progress(Progress(number, len(sources), 0.0, counters["packets"], flows))
            table = flow_table(records, spec, sources[number].name)
            yield with_labels(table, labels, sources[number].name, outcomes)
        if must_read:
            require_read(sources[0].name, counters)

    write_rows(tables(), out, spec)
    _warn(counters, sources[0].name)
    return _extracted(flows, counters, outcomes, len(sources), damaged)


def _first_time(source: CaptureSource) -> float:
    """Time of the first packet, in nanoseconds; an empty capture comes last."""
    with Capture(source.path) as capture:
        return next((time for _, _, time in capture.packets()), math.inf)


def _extract_parts(
    sources: Sequence[CaptureSource],
    out: str | Path,
    spec: MeterSpec,
    labels: Labels | None,
    meter: Callable[[Mapping[Path, CaptureSource], MeterSpec], _Metered],
    folder: Path,
    *,
    must_read: bool,
) -> TableExtraction:
    files = [checkpoint_file(folder, Path(s.path), s.name, spec) for s in sources]
    source_of = dict(
        zip(files, sources, strict=True)
    )  # a capture that is named twice is metered once
    metered = meter(source_of, spec)
    if not metered.parts:
        raise DataError(
            f"none of the captures can be read: {next(iter(metered.left_out.values()))}"
        )
    total: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    parts = [(metered.parts[file], source_of[file].name) for file in files if file in metered.parts]
    for part, _ in parts:
        total.update(part.counters)
    if must_read:
        require_read(sources[0].name, total)
    tables = (
        with_labels(table, labels, name, outcomes)
        for part, name in parts
        for table in part.tables()
    )
    flows = write_rows(tables, out, spec)
    for file, source in source_of.items():
        if file in metered.parts:
            _warn(metered.parts[file].counters, source.name)
    damaged = [metered.left_out.get(f) or metered.parts[f].damage for f in source_of]
    return _extracted(flows, total, outcomes, len(files), [d for d in damaged if d], metered.reused)


@dataclass(frozen=True)
class _Metered:
    """Parts by file, a line about each one left out, and the number kept from an earlier run."""

    parts: Mapping[Path, CaptureCheckpoint]
    left_out: Mapping[Path, str]
    reused: int


def _meter_parts(
    source_of: Mapping[Path, CaptureSource],
    spec: MeterSpec,
    *,
    progress: Callable[[Progress], None] | None,
    jobs: int | None,
    dask: str | None,
) -> _Metered:
    """Meter the captures whose parts are missing."""
    sizes = {file: Path(source.path).stat().st_size for file, source in source_of.items()}
    parts = {file: part for file in source_of if (part := read_checkpoint(file))}
    reused, of = len(parts), sum(sizes.values())
    left_out: dict[Path, str] = {}

    def report() -> None:
        if progress:
            finished_files = [*parts, *left_out]
            share = of and sum(sizes[f] for f in finished_files) / of
            packets = sum(part.counters["packets"] for part in parts.values())
            flows = sum(part.flows for part in parts.values())
            progress(Progress(len(finished_files), len(source_of), share, packets, flows))

    report()
    missing = [file for file in source_of if file not in parts]
    absolute = os.path.abspath if dask else str  # a worker has its own working folder
    calls = [
        (absolute(source_of[f].path), source_of[f].name, spec, Path(absolute(f))) for f in missing
    ]
    for number, problem in parallel_map(_meter_part, calls, jobs=jobs, dask=dask):
        file = missing[number]
        part = read_checkpoint(file)
        if part is None:
            left_out[file] = f"{problem}; it is left out"
        else:
            parts[file] = part
        report()
    return _Metered(parts, left_out, reused)


def _meter_part(path: str, name: str, spec: MeterSpec, file: Path) -> str:
    """Write the part of a capture; return why it cannot be read, or an empty text."""
    counters: dict[str, int] = {}
    damaged: list[str] = []

    def tables() -> Iterator[pa.Table]:
        nonlocal counters
        for _, records, so_far in meter_stream([path], spec, damaged.append):
            counters = so_far
            yield flow_table(records, spec, name)

    problem = ""
    try:
        write_checkpoint(file, tables(), lambda: (counters, "".join(damaged)))
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
