# SPDX-License-Identifier: Apache-2.0
"""Flows of captures, kept beside a table until all captures are finished.

A part is two files: the flows (Arrow IPC) and, written after them, the counters (JSON). Its name is
a digest of the captures (path, size, modification time), the meter's specification and its code. A
part is written again if any of them changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.errors import DataError
from n3ic.meter.source import meter_source
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.files import new_file, write_atomic
from n3ic.util.json_text import json_text

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class CaptureSource:
    """A capture to read.

    Attributes:
        path: the file; ``-`` for standard input.
        name: name in the rows of its flows: the file's name, or its path below the given folder.
    """

    path: str
    name: str


CaptureStream = tuple[CaptureSource, ...]
"""Captures whose flows go on from one to the next; a capture alone is one."""


@dataclass(frozen=True)
class CaptureCheckpoint:
    """The flows of a capture, and the meter's counters.

    Attributes:
        file: the flows.
        flows: number of flows.
        counters: see :meth:`~n3ic.meter.compiled.CompiledMeter.counters`.
        damage: a line about each capture that ended early.
    """

    file: Path
    flows: int
    counters: Mapping[str, int]
    damage: Sequence[str]

    def tables(self) -> Iterator[pa.Table]:
        """The flows, batch by batch; an empty table if there are none.

        Raises:
            DataError: the file is damaged.
        """
        import pyarrow as pa

        rows = 0
        try:
            with pa.memory_map(str(self.file)) as stream, pa.ipc.open_stream(stream) as reader:
                for batch in reader:
                    rows += len(batch)
                    yield pa.Table.from_batches([batch])
                if not rows:
                    yield reader.schema.empty_table()
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.file} is damaged; remove it, start again: {error}") from error
        if rows != self.flows:
            raise DataError(f"{self.file} is cut short; remove it, start again")


def checkpoint_folder(out: str | Path) -> Path:
    """The folder for the parts of a table."""
    return Path(f"{out}.parts")


def checkpoint_file(folder: Path, stream: CaptureStream, spec: MeterSpec) -> Path:
    """The file for the flows of captures that follow each other."""
    return folder / f"{stream_key(stream, spec)}.flows"


def stream_key(stream: CaptureStream, spec: MeterSpec) -> str:
    """Digest of captures (path, size, modification time, name) and of :func:`spec_digest`."""
    facts: list[object] = [spec_digest(spec)]
    for source in stream:
        path = Path(source.path)
        status = path.stat()
        facts.append([str(path.resolve()), source.name, status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@lru_cache(maxsize=8)
def spec_digest(spec: MeterSpec) -> str:
    """Digest of a specification and of the C code generated from it."""
    sources = [spec.to_json(), sorted(meter_source(spec).items())]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def read_checkpoint(file: Path) -> CaptureCheckpoint | None:
    """Read a part; None if it is missing or incomplete."""
    try:
        record = json.loads(file.with_suffix(".counted").read_bytes())
        counters = {str(name): int(count) for name, count in record["counters"].items()}
        part = CaptureCheckpoint(
            file, int(record["flows"]), counters, [*map(str, record["damage"])]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return part if file.is_file() else None


def write_checkpoint(
    file: Path,
    tables: Iterator[pa.Table],
    counted: Callable[[], tuple[Mapping[str, int], Sequence[str]]],
) -> None:
    """Write a part.

    Args:
        file: the file of the flows.
        tables: the flows, at least one table.
        counted: returns the counters and the damage; called after the last table.

    Raises:
        N3icError: the files cannot be written.
    """
    import pyarrow as pa

    first = next(tables)
    flows = len(first)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with new_file(file) as stream, pa.ipc.new_stream(stream, first.schema, options=options) as out:
        out.write_table(first)
        for table in tables:
            flows += len(table)
            out.write_table(table)
    counters, damage = counted()
    text = json_text({"flows": flows, "counters": dict(counters), "damage": [*damage]})
    write_atomic(file.with_suffix(".counted"), text)  # last: it marks the part as complete
