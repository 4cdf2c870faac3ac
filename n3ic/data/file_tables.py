# SPDX-License-Identifier: Apache-2.0
"""Tables of a file, plain or compressed: delimited text or Parquet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from n3ic.data.delimited import Sheet, open_sheet
from n3ic.data.files import MAX_BYTES, find_tables, read_contents
from n3ic.data.number_marks import Mark
from n3ic.data.parquet import parquet_sheets
from n3ic.data.table_meter import is_parquet
from n3ic.errors import DataError
from n3ic.util.files import sha256_file

DataSource = str | Path | Sheet | Sequence[str | Path]
"""What a table is read from: one or several files or folders, or a table in memory."""


def find_sources(source: DataSource, suffixes: tuple[str, ...]) -> Sequence[Path | Sheet]:
    """What :func:`open_sheets` opens: a sheet itself, or the files of :func:`.find_tables`."""
    return [source] if isinstance(source, Sheet) else find_tables(source, suffixes)


@dataclass(frozen=True)
class FileTable:
    """A table of a file.

    Attributes:
        sheet: its rows.
        sha256: SHA-256 of the decompressed bytes; for Parquet, of the file; for a table in
            memory, of the text that its library writes.
    """

    sheet: Sheet
    sha256: str


def open_sheets(path: str | Path | Sheet, decimal: Mark | None = None) -> Iterator[FileTable]:
    """The tables of a file in source units: one, or several of an archive.

    Args:
        path: the file, or a table in memory.
        decimal: the decimal mark where a text fits two; None to refuse such a text.

    Raises:
        DataError: the file cannot be read, is damaged, too large or in an unknown format, or its
            numbers are in other units.
    """
    if isinstance(path, Sheet):
        memory = path.memory
        yield FileTable(path, memory.sha256 if memory else hashlib.sha256(path.body).hexdigest())
        return
    try:
        parquet = is_parquet(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not parquet:
        for content in read_contents(path):
            yield FileTable(open_sheet(content, decimal=decimal), content.sha256)
        return
    with Path(path).open("rb") as file:
        size, parts = 0, []
        for sheet in parquet_sheets(str(path), file):
            size += len(sheet.body)
            if size > MAX_BYTES:
                raise DataError(
                    f"{path}: more than {MAX_BYTES:,} bytes as text; split it, or draw "
                    "rows (n3ic train --rows 1000000)"
                )
            parts.append(sheet)
    first = parts[0]
    if first.units not in (None, "source"):
        raise DataError(f"{path}: the numbers are in {first.units} units, expected source units")
    yield FileTable(replace(first, body=b"".join(s.body for s in parts)), sha256_file(path))
