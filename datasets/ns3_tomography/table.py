# SPDX-License-Identifier: Apache-2.0
"""Tomography traces as tables: 19 probe delays, and the occupancy of 17 queues beside them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import TIME_TEST_SHARE
from n3ic.data.table import Feature, FlowTable, SourceFile
from n3ic.datasets.ns3_tomography.trace import (
    MISSING,
    QUARTERS,
    SUFFIX,
    ProbeTrace,
    join,
    read,
)
from n3ic.errors import DataError, N3icWarning, UsageError, did_you_mean

CLASSES = ("free", "congested")
THRESHOLD = 10.0
LEAST = "least_"  # prefix of derived features; the delays have the prefix owd_
MIN_CLASS_ROWS = 50  # fewer rows of a class cannot be split, learned and tested


@dataclass(frozen=True, eq=False)
class TomographyTable(FlowTable):
    """A trace's delays as features, with the occupancy of every queue beside them.

    The label of the table itself says whether any queue is congested at the default threshold;
    networks are trained on the tables that :func:`queue_tables` makes from it, one per queue.

    Attributes:
        occupancy: int64 array of shape ``(rows,)`` per queue, in quarters of a full packet.
        trace_header: the header of the trace, see :mod:`n3ic.datasets.ns3_tomography.trace`.
    """

    occupancy: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    trace_header: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> TomographyTable:
        """The table of some rows, by index or by mask."""
        table = super().rows(index)
        assert isinstance(table, TomographyTable)  # noqa: S101 - replace keeps the class
        return replace(table, occupancy={q: v[index] for q, v in self.occupancy.items()})

    @property
    def queues(self) -> tuple[str, ...]:
        """Names of the queues."""
        return tuple(self.occupancy)


def catalogue(header: Mapping[str, Any]) -> tuple[Feature, ...]:
    """Describe the features of a trace: the delay of each path, the least through each queue."""
    unit_us = header["delay_unit_ns"] / 1000

    def feature(name: str, meaning: str, reason: str) -> Feature:
        return Feature(
            name=name,
            meaning=f"{meaning}; {MISSING} where none had arrived when the interval ended",
            source_unit="us",
            unit=f"x {unit_us:g} us",
            scale=1 / unit_us,
            bits=8,
            nic=True,
            nic_reason=reason,
        )

    delays = tuple(
        feature(
            path["name"],
            f"one-way delay of server {path['server']}'s probe to server 0 through "
            f"{', '.join(q.split('_')[0] for q in path['path'])}",
            "the NIC subtracts the sender's time in the probe from its own clock",
        )
        for path in header["paths"]
    )
    least = tuple(
        feature(
            f"{LEAST}{queue}",
            f"least one-way delay of the {len(paths)} probes that cross the queue {queue}",
            "the NIC keeps a running minimum as the probes arrive",
        )
        for queue, paths in shared_queues(header).items()
    )
    return delays + least


def shared_queues(header: Mapping[str, Any]) -> dict[str, list[int]]:
    """Queues that several probes cross, with the numbers of these probes' paths.

    A full queue raises even the least of their delays, because all of these probes have waited in
    it, whatever else they met.
    """
    paths = [path["path"] for path in header["paths"]]
    crossing = {q: [i for i, path in enumerate(paths) if q in path] for q in header["queues"]}
    return {queue: ids for queue, ids in crossing.items() if len(ids) > 1}


def from_trace(
    trace: ProbeTrace,
    sha256: str,
    sources: tuple[SourceFile, ...] = (),
    name: str = "ns3-tomography",
) -> TomographyTable:
    """Make the table of a trace.

    Args:
        trace: delays and occupancies.
        sha256: digest of the trace.
        sources: the files it came from.
        name: the data set's name.
    """
    columns = trace.delays.astype(np.int64)
    occupancy = trace.occupancy.astype(np.int64)
    features = {p: np.ascontiguousarray(columns[:, i]) for i, p in enumerate(trace.paths)}
    for queue, ids in shared_queues(trace.header).items():
        features[f"{LEAST}{queue}"] = columns[:, ids].min(axis=1)
    return TomographyTable(
        name=name,
        features=features,
        catalogue=catalogue(trace.header),
        label=np.asarray(trace.congested(THRESHOLD).any(axis=1), dtype=np.int64),
        classes=CLASSES,
        synthetic=True,
        sha256=sha256,
        time_order=True,
        sources=sources,
        occupancy={q: np.ascontiguousarray(occupancy[:, i]) for i, q in enumerate(trace.queues)},
        trace_header=trace.header,
    )


def load(paths: str | Path | Sequence[str | Path]) -> TomographyTable:
    """Read trace files, or the traces in a folder; several are runs of one simulation.

    Raises:
        DataError: a file is not a trace, or the traces are of different simulations.
    """
    files = _files([paths] if isinstance(paths, str | Path) else list(paths))
    contents = [read(path) for path in files]
    trace = join([source.trace for source in contents])
    sources = tuple(
        SourceFile(str(path), source.sha256, len(source.trace), _identity(source.trace))
        for path, source in zip(files, contents, strict=True)
    )
    if len(contents) == 1:
        return from_trace(trace, contents[0].sha256, sources)
    import hashlib

    return from_trace(trace, hashlib.sha256(trace.to_bytes()).hexdigest(), sources)


def _files(paths: list[str | Path]) -> list[Path]:
    out: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(path.glob(f"*{SUFFIX}"))
            if not inside:
                raise DataError(f"{path}: no trace in this folder; expected files *{SUFFIX}")
            out += inside
        else:
            out.append(path)
    if not out:
        raise DataError("no file was given: name a trace, or a folder of traces")
    return out


def _identity(trace: ProbeTrace) -> str:
    h = trace.header
    runs = ", ".join(str(r["run"]) for r in h["runs"])
    return (
        f"ns-3 trace, {h['link_mbps']:g} Mb/s links, load {h['load']:g}, incast {h['incast']}, "
        f"queues of {h['queue_packets']} packets, seed {h['seed']}, run {runs}"
    )


def choose_queues(names: Sequence[str], choice: str) -> tuple[str, ...]:
    """Parse ``all``, or indices and names of queues separated by commas.

    Raises:
        UsageError: the trace has no such queue; the error lists its queues.
    """
    if choice.strip() == "all":
        return tuple(names)
    chosen = []
    for word in (w.strip() for w in choice.split(",")):
        if word in names:
            chosen.append(word)
        elif word.isdecimal() and int(word) < len(names):
            chosen.append(names[int(word)])
        else:
            raise UsageError(
                f"--queue: {word!r} is not a queue; {did_you_mean(word, names)}name all, "
                f"a number in 0..{len(names) - 1} or one of {', '.join(names)}"
            )
    return tuple(dict.fromkeys(chosen))


def queue_tables(
    table: FlowTable, queue: str = "all", threshold: float = THRESHOLD
) -> dict[str, FlowTable]:
    """One table per queue, labelled by whether the queue holds more than the threshold.

    A queue that is almost never or almost always congested at this threshold, in all rows or in the
    rows before the time split's test rows, cannot be learned. It is left out with a warning, or
    refused if it was named.

    Args:
        table: a table of this data set.
        queue: ``all``, an index, a name, or several of them separated by commas.
        threshold: full packets; a queue is congested above it.

    Raises:
        UsageError: the table is of another data set, or a queue cannot be learned.
    """
    if not isinstance(table, TomographyTable):
        raise UsageError(f"{table.name} has no queues; tomography needs a trace of ns3-tomography")
    chosen = choose_queues(table.queues, queue)
    out: dict[str, FlowTable] = {}
    for name in chosen:
        label = (table.occupancy[name] > threshold * QUARTERS).astype(np.int64)
        training_label = label[: round((1 - TIME_TEST_SHARE) * len(label))]
        positive = int(training_label.sum())
        if min(positive, len(training_label) - positive) < MIN_CLASS_ROWS:
            text = (
                f"queue {name} holds more than {threshold:g} packets in {positive:,} of the first "
                f"{len(training_label):,} intervals; each class needs {MIN_CLASS_ROWS}: take "
                "another --threshold or a longer trace"
            )
            if queue.strip() != "all":
                raise UsageError(text)
            warnings.warn(f"{text}; the queue is left out", N3icWarning, stacklevel=2)
            continue
        out[name] = FlowTable(
            name=table.name,
            features=table.features,
            catalogue=table.catalogue,
            label=label,
            classes=table.classes,
            synthetic=table.synthetic,
            sha256=table.sha256,
            time_order=table.time_order,
            sources=table.sources,
        )
    if not out:
        raise UsageError(f"no queue can be learned at a threshold of {threshold:g} packets")
    return out
