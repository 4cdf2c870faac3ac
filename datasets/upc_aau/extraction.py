# SPDX-License-Identifier: Apache-2.0
"""Meters captures once, and keeps their flows as tables in the user's cache folder.

An entry is found by the captures' sizes, modification times and samples of their bytes, by the
meter's specification and by the code of the meter.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import n3ic.meter.rows
from n3ic.meter.capture import Capture
from n3ic.meter.source import meter_source
from n3ic.meter.stream import StreamExtraction, extract_stream
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.cache import Cache

CACHE = "upc_aau"
_FORMAT = 1
_SAMPLES, _SAMPLE_BYTES = 64, 1 << 16


@dataclass(frozen=True)
class ExtractedFlows:
    """The flows of captures.

    Attributes:
        table: a Parquet file of all of them, unlabelled.
        extraction: counters of the extraction.
        cached: whether an earlier call metered them.
    """

    table: Path
    extraction: StreamExtraction
    cached: bool


@contextmanager
def metered(captures: Sequence[Path], spec: MeterSpec, *, cache: bool) -> Iterator[ExtractedFlows]:
    """Yield the flows of captures, from the cache if it has them.

    Several captures are pieces of one. An interrupted run resumes: its flows so far and the meter's
    state are in the cache.

    Args:
        captures: see :class:`~n3ic.meter.capture.Capture`.
        spec: the meter's specification.
        cache: whether to use the cache; otherwise the table is removed after the block.

    Raises:
        DataError: a capture cannot be read.
        MissingDependencyError: libpcap or a C compiler is missing.
    """
    with tempfile.TemporaryDirectory(prefix="n3ic-upc-aau-") as scratch:
        folder, name = Path(scratch), "flows"
        store = _cache() if cache else None
        if store:
            folder, name = store.directory, _entry(captures, spec)
            if extraction := _read(store, name):
                yield ExtractedFlows(folder / f"{name}.parquet", extraction, cached=True)
                return
        table = folder / f"{name}.parquet"
        counts = extract_stream(_in_order(captures), table, spec, folder / f"{name}.parts")
        table.chmod(0o600)  # the cache refuses files that others may read
        if store:
            with store.new_file(f"{name}.json") as out:
                out.write_text(json.dumps(asdict(counts)))
        yield ExtractedFlows(table, counts, cached=False)


def _in_order(captures: Sequence[Path]) -> list[Path]:
    """The captures by the times of their first packets; empty ones last."""

    def first(path: Path) -> int:
        with Capture(path) as capture:
            return next((time for _, _, time in capture.packets()), 1 << 63)

    return sorted(captures, key=first)


def _cache() -> Cache | None:
    try:
        return Cache.open(CACHE)
    except OSError:
        return None


def _read(store: Cache, name: str) -> StreamExtraction | None:
    counts = store.find(f"{name}.json")
    if counts is None or store.find(f"{name}.parquet") is None:
        return None
    try:
        values = json.loads(counts.read_bytes())
        return StreamExtraction(**{**values, "damaged": tuple(values["damaged"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _entry(captures: Sequence[Path], spec: MeterSpec) -> str:
    """Name of an entry; it samples the captures, because 55 GB take too long to read twice."""
    digest = hashlib.sha256(f"{_FORMAT} {spec.digest}".encode())
    for text in (*meter_source(spec).values(), Path(n3ic.meter.rows.__file__).read_text()):
        digest.update(hashlib.sha256(text.encode()).digest())
    for capture in captures:
        info = capture.stat()
        digest.update(f"{capture.name} {info.st_size} {info.st_mtime_ns}\n".encode())
        with capture.open("rb") as stream:
            for i in range(_SAMPLES):
                stream.seek(i * max(info.st_size - _SAMPLE_BYTES, 0) // (_SAMPLES - 1))
                digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()
