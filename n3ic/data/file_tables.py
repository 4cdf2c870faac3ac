# SPDX-License-Identifier: Apache-2.0
"""Tables of a file, plain or packed: delimited text or Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from n3ic.data.delimited import Sheet, open_sheet
from n3ic.data.files import MAX_BYTES, read_contents
from n3ic.data.parquet import parquet_sheets
from n3ic.data.table_meter import is_parquet
from n3ic.errors import DataError
from n3ic.util.files import sha256_file


@dataclass(frozen=True)
class FileTable:
    """A table of a file.

    Attributes:
        sheet: its rows.
        sha256: SHA-256 of the decompressed bytes; for Parquet, of the file.
    """

    sheet: Sheet
    sha256: str


def open_sheets(path: str | Path) -> Iterator[FileTable]:
    """The tables of a file in source units: one, or several of an archive.

    Raises:
        DataError: the file cannot be read, is damaged, too large or of a foreign format, or its
            numbers are in other units.
    """
    try:
        parquet = is_parquet(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not parquet:
        for content in read_contents(path):
            yield FileTable(open_sheet(content), content.sha256)
        return
    with Path(path).open("rb") as file:
        size, parts = 0, []
        for sheet in parquet_sheets(str(path), file):
            size += len(sheet.body)
            if size > MAX_BYTES:
                raise DataError(f"{path}: more than {MAX_BYTES:,} bytes as text; split it")
            parts.append(sheet)
    first = parts[0]
    if first.units not in (None, "source"):
        raise DataError(f"{path}: the numbers are in {first.units} units, expected source units")
    yield FileTable(replace(first, body=b"".join(s.body for s in parts)), sha256_file(path))
