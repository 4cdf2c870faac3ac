# SPDX-License-Identifier: Apache-2.0
"""``FILE.parquet``: a Parquet file, written when the stream stops.

Until then the rows are an Arrow IPC stream in ``.FILE.parquet.rows`` beside it, which can be cut.
If the stream can resume later, that file stays, and the next stop replaces the Parquet file by a
longer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.data.parquet import UNITS_KEY
from n3ic.errors import DataError, N3icError
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.sink import FileSink, Offset, StreamSink
from n3ic.util.files import free_path, new_file

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 16


class ParquetFile(FileSink):
    """A Parquet file of row groups of 65,536 flows; the file that grows is that of the rows."""

    def __init__(self, path: Path, model: StreamModel) -> None:
        super().__init__(path.with_name(f".{path.name}.rows"))
        self.name, self._table, self._model = str(path.absolute()), path, model
        self._is_complete = False  # whether the Parquet file is complete, and the rows were removed

    def begin(self, replace: bool) -> Offset:
        """See :meth:`StreamSink.begin`; drops rows that a killed stream without a state left."""
        free_path(self._table, replace)
        return {"bytes": 0}

    def open(self, offset: Offset, first: int, stream: str) -> None:
        """See :meth:`StreamSink.open`."""
        complete = bool(offset["bytes"]) and self._table.exists() and not self.path.exists()
        self._is_complete = complete
        if not complete:
            super().open(offset, first, stream)

    def head(self) -> bytes:
        """The schema."""
        data: bytes = self._model.schema.serialize().to_pybytes()
        return data

    def write(self, batch: FlowBatch, first: int) -> None:
        """See :meth:`StreamSink.write`."""
        if self._is_complete:
            raise DataError(f"{self.path} is missing: begin again with another --state and file")
        for part in self._model.table(batch, first).combine_chunks().to_batches():
            self.append(part.serialize().to_pybytes())

    def finish(self, more: bool) -> None:
        """Write the Parquet file.

        Raises:
            N3icError: It cannot be written, or the rows are damaged.
        """
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        if self._is_complete:
            return
        super().close()
        try:
            with pa.OSFile(str(self.path)) as source, pa.ipc.open_stream(source) as reader:
                schema = reader.schema.with_metadata({UNITS_KEY: "nic"})
                with new_file(self._table) as stream, ParquetWriter(stream, schema) as out:
                    for group in _groups(reader):
                        out.write_table(group.cast(schema), row_group_size=ROW_GROUP)
        except (pa.ArrowException, OSError) as error:
            raise N3icError(f"cannot make {self._table} of {self.path}: {error}") from error
        if not more:
            self.path.unlink()

    def discard(self) -> None:
        """Nothing: the Parquet file says that there were no flows."""


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
