# SPDX-License-Identifier: Apache-2.0
"""Draws rows of tables of any size in bounded memory, into tables of the same layout.

Every row gets a random number, and those with the smallest are drawn: a simple random sample
without replacement. The numbers depend on the seed and on the row's place in the files alone, so
the same rows are drawn however the files are compressed, and neither depends on the machine.

The files are read twice, a batch at a time: once for the numbers, once for the rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.description import COLUMNS_FILE
from n3ic.data.files import MAX_BYTES, PACKED_SUFFIXES, TABLE_SUFFIXES, decompress, find_tables
from n3ic.data.parquet import CHUNK_ROWS, open_parquet, parquet_batches
from n3ic.data.table_meter import is_parquet, meter_file
from n3ic.errors import DataError

_CHUNK = 8 << 20  # bytes of text that are looked at together
_LONGEST = 64 << 20  # bytes of a row
_NEWLINE, _QUOTE = b'\n"'
_SUFFIXES = (*TABLE_SUFFIXES, ".log", ".parquet")


@dataclass(frozen=True)
class RowSample:
    """Tables of drawn rows.

    Attributes:
        paths: what takes the place of the given files and folders, in their order.
        rows: number of drawn rows.
        of: number of all rows.
        homes: the folder that stands for each given folder, or folder of a given file.
    """

    paths: list[Path]
    rows: int
    of: int
    homes: Mapping[Path, Path]

    def as_given(self, text: str) -> str:
        """A text with the given files in place of those of drawn rows."""
        for home, given in self.homes.items():
            text = text.replace(f"{home}/", f"{given}/" if given != Path() else "")
        return text


class _Draw:
    """Keeps the places of the rows with the smallest random numbers."""

    def __init__(self, rows: int, seed: int) -> None:
        self.rows, self.seen = rows, 0
        self._most = (1 << 64) - 1  # drawn numbers are at most this
        self._rng = np.random.default_rng(seed)
        self._number = np.empty(0, dtype=np.uint64)
        self._place = np.empty(0, dtype=np.int64)

    def see(self, rows: int) -> None:
        """Give numbers to the next rows."""
        numbers = self._rng.integers(0, 1 << 64, rows, dtype=np.uint64)
        near = np.flatnonzero(numbers <= self._most)  # few rows of a long table
        self._number = np.concatenate([self._number, numbers[near]])
        self._place = np.concatenate([self._place, near + self.seen])
        self.seen += rows
        if len(self._number) > 2 * self.rows + CHUNK_ROWS:
            self._cut()

    def _cut(self) -> None:
        if len(self._number) > self.rows:
            order = np.lexsort((self._place, self._number))[: self.rows]
            self._number, self._place = self._number[order], self._place[order]
            self._most = int(self._number[-1])

    @property
    def places(self) -> NDArray[np.int64]:
        """Places of the drawn rows, in their order."""
        self._cut()
        return np.sort(self._place)


@contextmanager
def row_sample(
    data: str | Path | Sequence[str | Path], rows: int, seed: int
) -> Iterator[RowSample]:
    """Draw rows from files at random, and write them to a temporary folder while the block runs.

    Args:
        data: files and folders of CSV and other text with a flow a line, plain or compressed by
            gzip, xz or bzip2, or Parquet. The first line of a text, and lines that begin with ``#``
            before it, are no rows: they are always kept.
        rows: number of rows; all of them if there are fewer.
        seed: seed of the random numbers.

    Raises:
        DataError: a file cannot be read, is damaged or a zip archive, or holds a row that is far
            too long; or a drawn table is too large.
    """
    given = [Path(data)] if isinstance(data, str | Path) else [Path(path) for path in data]
    tables = [(path, find_tables(path, _SUFFIXES)) for path in given]
    draw = _Draw(rows, seed)
    counts = [[_see(file, draw) for file in files] for _, files in tables]
    places = draw.places
    with tempfile.TemporaryDirectory(prefix="n3ic-rows-") as folder:
        start = 0
        paths: list[Path] = []
        homes: dict[Path, Path] = {}
        for number, ((path, files), of) in enumerate(zip(tables, counts, strict=True)):
            home = Path(folder) / str(number)
            home.mkdir()
            homes[home] = root = path if path.is_dir() else path.parent
            _link_others(path, home, files)
            for file, count in zip(files, of, strict=True):
                first, last = np.searchsorted(places, [start, start + count])
                out = home / _plain_name(file.relative_to(root))
                out.parent.mkdir(parents=True, exist_ok=True)
                _write(file, out, places[first:last] - start)
                start += count
            paths.append(home if path.is_dir() else home / _plain_name(Path(path.name)))
        yield RowSample(paths, len(places), draw.seen, homes)


def _plain_name(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() in PACKED_SUFFIXES else path


def _link_others(path: Path, home: Path, files: Sequence[Path]) -> None:
    """Put what lies beside the tables, such as a description of their columns, beside the drawn."""
    if path.is_dir():
        drawn = {*files}
        for entry in path.rglob("*"):
            if entry.is_file() and entry not in drawn:
                link = home / entry.relative_to(path)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(entry.absolute())
        return
    for beside in (path.parent / COLUMNS_FILE, meter_file(path)):
        if beside.is_file():
            (home / beside.name).symlink_to(beside.absolute())


def _see(file: Path, draw: _Draw) -> int:
    """Show all rows of a file to the draw; return their number."""
    before = draw.seen
    with _reading(file) as stream:
        if is_parquet(file):
            left = open_parquet(str(file), stream).metadata.num_rows
            while left:
                draw.see(batch := min(left, CHUNK_ROWS))
                left -= batch
        else:
            for ends in _Lines(file, stream):
                draw.see(len(ends))
    return draw.seen - before


def _write(file: Path, out: Path, places: NDArray[np.int64]) -> None:
    """Write the rows at some places of a file."""
    with _reading(file) as stream, out.open("wb") as sink:
        if is_parquet(file):
            _write_parquet(str(file), stream, sink, places)
            return
        lines, start = _Lines(file, stream), 0
        size = 0
        for ends in lines:
            if not start:
                size += sink.write(lines.head)
            first, last = np.searchsorted(places, [start, start + len(ends)])
            begins = np.concatenate([[0], ends[:-1]])
            chosen = places[first:last] - start
            for a, b in zip(begins[chosen].tolist(), ends[chosen].tolist(), strict=True):
                row = lines.text[a:b]
                size += sink.write(row if row.endswith(b"\n") else row + b"\n")
            start += len(ends)
            if size > MAX_BYTES:
                raise DataError(
                    f"{file}: the drawn rows have more than {MAX_BYTES:,} bytes; draw fewer"
                )
        if not start:
            sink.write(lines.head)


def _write_parquet(
    name: str, stream: IO[bytes], sink: IO[bytes], places: NDArray[np.int64]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = open_parquet(name, stream)
    start, drawn = 0, []
    try:
        for batch in parquet_batches(table):
            first, last = np.searchsorted(places, [start, start + batch.num_rows])
            if first < last:
                drawn.append(batch.take(pa.array(places[first:last] - start)))
            start += batch.num_rows
        pq.write_table(pa.Table.from_batches(drawn, table.schema_arrow), sink)
    except pa.ArrowException as error:
        raise DataError(f"{name}: this Parquet file is damaged: {error}") from error


@contextmanager
def _reading(file: Path) -> Iterator[Any]:
    try:
        with file.open("rb") as stream:
            yield stream
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error


class _Lines:
    """The rows of a text, batch by batch; iterates over where each row of the batch ends.

    Attributes:
        head: the lines before the first row.
        text: the bytes of the batch.
    """

    def __init__(self, file: Path, stream: IO[bytes]) -> None:
        if stream.read(4) == b"PK\x03\x04":
            raise DataError(
                f"{file}: rows are not drawn from a zip archive; unpack it and name the files"
            )
        stream.seek(0)
        self._file = file
        self._pieces = decompress(str(file), stream)
        self.head = self.text = b""

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        buffer, begun = bytearray(), False
        for piece in self._pieces:
            buffer += piece
            if len(buffer) < _CHUNK:
                continue
            ends = _row_ends(buffer)
            if not len(ends):
                if len(buffer) > _LONGEST:
                    raise DataError(
                        f"{self._file}: a row of more than {_LONGEST:,} bytes: a quote does not end"
                    )
                continue
            rest = buffer[ends[-1] :]
            yield self._batch(bytes(buffer[: ends[-1]]), ends, begun)
            buffer, begun = rest, True
        if buffer:
            ends = _row_ends(buffer)
            if not len(ends) or ends[-1] < len(buffer):
                ends = np.append(ends, len(buffer))
            yield self._batch(bytes(buffer), ends, begun)

    def _batch(self, text: bytes, ends: NDArray[np.int64], begun: bool) -> NDArray[np.int64]:
        """A batch without the head of the file."""
        if not begun:
            lines = 0  # of the head
            while lines < len(ends) - 1 and text.startswith(b"#", ends[lines - 1] if lines else 0):
                lines += 1
            cut = int(ends[lines])
            self.head, text, ends = text[:cut], text[cut:], ends[lines + 1 :] - cut
        self.text = text
        return ends


def _row_ends(text: bytearray) -> NDArray[np.int64]:
    """Positions after each line end that is not inside quotes."""
    data = np.frombuffer(bytes(text), dtype=np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    if _QUOTE in text:
        # A line end with an odd number of quotes before it is inside a quoted cell.
        quotes = np.flatnonzero(data == _QUOTE)
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return ends + 1
