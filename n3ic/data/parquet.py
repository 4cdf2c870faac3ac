# SPDX-License-Identifier: Apache-2.0
"""Parquet files as sheets of delimited text, so that every layout is read in one way."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, cast

from n3ic.data.delimited import Sheet, Units
from n3ic.data.files import printable
from n3ic.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

UNITS_KEY = b"n3ic-units"
CHUNK_ROWS = 1 << 16


def open_parquet(name: str, file: IO[bytes]) -> Any:
    """Open a Parquet file.

    Raises:
        DataError: the file is damaged, or not a Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(file)
    except pa.ArrowException as error:
        raise DataError(f"{name}: this Parquet file is damaged: {error}") from error


def parquet_batches(
    table: Any, chunk_rows: int = CHUNK_ROWS, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of an open Parquet file, in batches of at most ``chunk_rows``.

    Args:
        table: from :func:`open_parquet`.
        chunk_rows: rows of a batch.
        columns: columns to read; None for all.
    """
    # Of several row groups, Arrow keeps what was read of each until the last one.
    for group in range(table.num_row_groups):
        yield from table.iter_batches(chunk_rows, row_groups=[group], columns=columns)


def units_of(name: str, schema: pa.Schema) -> Units | None:
    """The units that a file names for its numbers; None if it names none.

    Raises:
        DataError: the named unit is unknown.
    """
    units = (schema.metadata or {}).get(UNITS_KEY, b"").decode(errors="replace")
    if units not in ("", "nic", "source"):
        raise DataError(f"{name}: n3ic-units is nic or source, got {printable(units)!r}")
    return cast(Units | None, units or None)


def parquet_sheets(
    name: str,
    file: IO[bytes],
    columns: Collection[str] | None = None,
    *,
    chunk_rows: int = CHUNK_ROWS,
) -> Iterator[Sheet]:
    """The rows as text, in sheets of at most ``chunk_rows`` rows.

    Args:
        name: the file, for messages.
        file: the Parquet file; seekable.
        columns: columns to read; other columns read as blank. None for all.
        chunk_rows: rows of a sheet; bounds the memory.

    Raises:
        DataError: the file is damaged, or has no rows.
    """
    import pyarrow as pa

    table = open_parquet(name, file)
    names = table.schema_arrow.names
    units = units_of(name, table.schema_arrow)
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(names)
    start = 0
    try:
        for batch in parquet_batches(table, chunk_rows):
            if not batch.num_rows:
                continue
            cells = [
                column if columns is None or n in columns else pa.nulls(len(column))
                for n, column in zip(names, batch.columns, strict=True)
            ]
            body = (b"" if start else header.getvalue().encode()) + delimited_text(cells)
            yield Sheet(
                name=name,
                body=body,
                separator=",",
                first=tuple(n.strip() for n in names),
                units=units,
                line=start + 1 if start else 0,  # the header counts as row 0
                continued=bool(start),
                row="row",
            )
            start += batch.num_rows
    except pa.ArrowException as error:
        raise DataError(f"{name}: this Parquet file is damaged: {error}") from error
    if not start:
        raise DataError(f"{name}: no rows; expected one flow a row")


def _plain(column: pa.Array) -> pa.Array:
    """A column that can be written as text; blank if its type cannot."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if kind == pa.string_view():
        return column.cast(pa.large_string())
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return pa.array([""] * len(column), pa.string())
    if pa.types.is_duration(kind):
        return column.cast(pa.int64())
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array(["" if v is None else v.hex() for v in column.to_pylist()], pa.string())
    return column


def delimited_text(columns: Sequence[pa.Array]) -> bytes:
    """Rows of comma-separated text; cells are quoted if necessary."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    table = pa.table([_plain(c) for c in columns], names=[str(i) for i in range(len(columns))])

    def written(style: str) -> bytes:
        out = io.BytesIO()
        arrow.write_csv(table, out, arrow.WriteOptions(include_header=False, quoting_style=style))
        return out.getvalue()

    try:
        return written("none")
    except pa.ArrowInvalid:  # a cell holds a separator, a quote or a line end
        return written("needed")
