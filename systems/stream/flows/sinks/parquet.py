# SPDX-License-Identifier: Apache-2.0
"""``FILE.parquet``: a Parquet file, written when the stream stops.

Until then the rows are an Arrow IPC stream in ``.FILE.parquet.rows`` beside it, which can be cut.
If the stream can resume later, that file stays, and the next stop replaces the Parquet file by a
longer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from n3ic.data.parquet import UNITS_KEY
from n3ic.errors import DataError, N3icError
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.sink import CutFile, Offset, StreamSink
from n3ic.util.files import free_path, new_file

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 16


class ParquetFile(StreamSink):
    """A Parquet file of row groups of 65,536 flows."""

    cuts: ClassVar[bool] = True

    def __init__(self, path: Path, model: StreamModel) -> None:
        self.name = str(path.absolute())
        self.path = path
        self.rows = path.with_name(f".{path.name}.rows")
        self._model = model
        self._file = CutFile(self.rows)
        self._is_complete = False  # whether the Parquet file is complete, and the rows were removed

    def begin(self, replace: bool) -> Offset:
        """See :meth:`StreamSink.begin`; drops rows that a killed stream without a state left."""
        free_path(self.path, replace)
        return {"bytes": 0}

    def open(self, offset: Offset, first: int, stream: str) -> None:
        """See :meth:`StreamSink.open`."""
        self._is_complete = bool(offset["bytes"]) and self.path.exists() and not self.rows.exists()
        if not self._is_complete and self._file.open(offset) == 0:
            self._file.write(self._model.schema.serialize().to_pybytes())

    def write(self, batch: FlowBatch, first: int) -> None:
        """See :meth:`StreamSink.write`."""
        if self._is_complete:
            raise DataError(f"{self.rows} is missing: begin again with another --state and file")
        for part in self._model.table(batch, first).combine_chunks().to_batches():
            self._file.write(part.serialize().to_pybytes())

    def flush(self) -> Offset:
        """See :meth:`StreamSink.flush`."""
        return self._file.flush()

    def finish(self, more: bool) -> None:
        """Write the Parquet file.

        Raises:
            N3icError: It cannot be written, or the rows are damaged.
        """
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        if self._is_complete:
            return
        self._file.close()
        try:
            with pa.OSFile(str(self.rows)) as source, pa.ipc.open_stream(source) as reader:
                schema = reader.schema.with_metadata({UNITS_KEY: "nic"})
                with new_file(self.path) as stream, ParquetWriter(stream, schema) as out:
                    for group in _groups(reader):
                        out.write_table(group.cast(schema), row_group_size=ROW_GROUP)
        except (pa.ArrowException, OSError) as error:
            raise N3icError(f"cannot make {self.path} of {self.rows}: {error}") from error
        if not more:
            self.rows.unlink()

    def close(self) -> None:
        """Close the rows."""
        self._file.close()


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Regroup rows into tables of equal size, so that the file does not depend on the batches."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        if rows >= ROW_GROUP:
            whole = pa.Table.from_batches(waiting)
            for start in range(0, rows - rows % ROW_GROUP, ROW_GROUP):
                yield whole.slice(start, ROW_GROUP).combine_chunks()
            rows %= ROW_GROUP
            waiting = whole.slice(len(whole) - rows).to_batches()
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks()


def open_sink(text: str, model: StreamModel) -> StreamSink:
    """Open a Parquet file by its path."""
    return ParquetFile(Path(text), model)
