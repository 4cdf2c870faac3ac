# SPDX-License-Identifier: Apache-2.0
"""Loads packet sequences as tables for training, with the meter that computes their features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.data.dataset import FileFeatures
from n3ic.data.files import combined_sha256, find_tables, first_bytes
from n3ic.data.table import FlowTable, SourceFile
from n3ic.datasets.packet_sequences.features import sequence_features
from n3ic.datasets.packet_sequences.formats import (
    FORMATS,
    SUFFIXES,
    PacketSequenceFile,
    SequenceFormat,
    format_of,
    read_sequences,
)
from n3ic.errors import DataError
from n3ic.meter.sequences import sequence_spec
from n3ic.meter.table import catalogue_of
from n3ic.model.meter_spec import MAX_PACKET

_ENOUGH_NAMES = 4096  # bytes of a file's beginning, which hold its column names


def load_sequences(name: str, path: str | Path, packets: Sequence[int]) -> FlowTable:
    """Read flows that are decided at the given packets, or at their ends if they have fewer.

    Args:
        name: name of the data set.
        path: a file or a folder.
        packets: packets at which flows are decided, increasing, each in 1..32. With several of
            them, a flow has a row for each that it reaches and one for its end.

    Raises:
        DataError: a file is malformed, or files differ in what their lengths and times mean.
        UsageError: ``packets`` are not increasing, or not in 1..32.
    """
    read = read_sequences(path)
    kind, lengths, times = _joined(path, read)
    spec = sequence_spec(packets, kind.length, kind.payload, kind.tick_ns)
    classes, label = np.unique([x for file in read for x in file.labels], return_inverse=True)
    if len(classes) < 2:
        raise DataError(f"{path}: all flows are of the class {classes[0]!r}; expected two or more")
    size = (lengths != 0).sum(axis=1)
    several = len(packets) > 1
    points = [*packets, 0] if several else [0]  # 0 is the end
    rows = [np.flatnonzero(size >= point) for point in points]
    parts = []
    for row, point in zip(rows, points, strict=True):
        arrived = np.arange(MAX_PACKET) < (point or packets[-1])
        sizes, when = (np.where(arrived, x[row], 0) for x in (lengths, times))
        parts.append(sequence_features(sizes, when, packets[-1]))
    flow = np.concatenate(rows)
    decided = np.repeat(points, [len(row) for row in rows])
    return FlowTable(
        name=name,
        features={f: np.concatenate([p[f] for p in parts]) for f in spec.feature_names},
        catalogue=catalogue_of(spec),
        label=label[flow].astype(np.int64),
        classes=tuple(map(str, classes)),
        synthetic=False,
        sha256=combined_sha256([file.sha256 for file in read]),
        flow=flow if several else None,
        point=decided.astype(np.int64) if several else None,
        sources=tuple(
            SourceFile(str(path), file.sha256, len(file.labels), file.format.name) for file in read
        ),
        notes=(_note(kind.name, spec.tick_ns, kind.length),),
        meter=spec,
    )


def features_of_file(path: Path, packets: int) -> FileFeatures | None:
    """Features of flows that may lack labels: a row for each flow, of its first ``packets``.

    Returns:
        The features; None if the file, or the first of the folder, has no sequences.

    Raises:
        DataError: a file is malformed, or files differ in what their lengths and times mean.
        UsageError: ``packets`` is not in 1..32.
    """
    if not begins_like_sequences(find_tables(path, SUFFIXES)[0]):
        return None
    kind, lengths, times = _joined(path, read_sequences(path, labelled=False))
    spec = sequence_spec((packets,), kind.length, kind.payload, kind.tick_ns)
    arrived = np.arange(MAX_PACKET) < packets
    sizes, when = (np.where(arrived, x, 0) for x in (lengths, times))
    return FileFeatures(sequence_features(sizes, when, packets), spec)


def _joined(
    path: str | Path, read: Sequence[PacketSequenceFile]
) -> tuple[SequenceFormat, NDArray[np.int64], NDArray[np.int64]]:
    """The format of all files, and their lengths and times.

    Raises:
        DataError: the files are of two formats.
    """
    kinds = list(dict.fromkeys(file.format for file in read))
    if len(kinds) > 1:
        raise DataError(
            f"{path}: files of {kinds[0].name} and of {kinds[1].name}, whose lengths differ; "
            "take files of one format"
        )
    lengths, times = (np.concatenate([getattr(f, a) for f in read]) for a in ("lengths", "times"))
    return kinds[0], lengths, times


def _note(name: str, tick_ns: int, length: str) -> str:
    unit = {1000: "microseconds", 1_000_000: "milliseconds"}[tick_ns]
    return (
        f"{name}: lengths are taken for {length.replace('_', ' ')}s and times for {unit}; "
        "the meter of a trained network counts likewise"
    )


def begins_like_sequences(path: Path) -> bool:
    """Whether a file's first bytes name the columns of a format."""
    if not path.is_file():
        return False
    if path.suffix == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        try:
            return format_of(parquet.read_schema(path).names) is not None
        except (pa.ArrowException, OSError):
            return False
    head = first_bytes(path)[:_ENOUGH_NAMES]
    if head.lstrip()[:1] == b"[":
        return all(b'"%s"' % column.encode() in head for column in FORMATS[0].columns)
    return (
        format_of(head.partition(b"\n")[0].decode("utf-8", "replace").strip().split(","))
        is not None
    )
