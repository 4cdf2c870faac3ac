"""Tables in text files, read whole or not at all.

Helpers for data set loaders: find the files, decompress them within bounds, and parse
separated text so that every complaint names file, line and column.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from n3ic.errors import DataError, MissingDependencyError

if TYPE_CHECKING:
    import pandas as pd

MAX_BYTES = 512 << 20
MAX_MEMBERS = 64
MAX_FILES = 1000
MAX_LINE = 1 << 16
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
TABLE_SUFFIXES = (".csv", ".tsv", ".txt")
PACKED_SUFFIXES = (".gz", ".xz", ".bz2", ".zip")

_CHUNK = 1 << 20
_XZ_MEMORY = 256 << 20
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# quoted cells may hide a separator or a line end, and pandas takes truth values for numbers
_SUSPECT = (b'"', b"True", b"true", b"TRUE", b"False", b"false", b"FALSE")
_FOREIGN = {
    b"7z\xbc\xaf": "a 7z archive",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"Rar!": "a RAR archive",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"SQLite": "an SQLite database",
    b"PAR1": "a Parquet file",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"\xa1\xb2\xc3\xd4": "a packet capture",
    b"\xd4\xc3\xb2\xa1": "a packet capture",
    b"\x0a\x0d\x0d\x0a": "a packet capture",
    b"%PDF": "a PDF",
}


@dataclass(frozen=True)
class Content:
    """The decompressed bytes of one text file, or of one member of a zip archive.

    Attributes:
        name: the path as given; ``archive.zip:member`` for a member.
        data: the decompressed bytes.
    """

    name: str
    data: bytes

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the bytes, in hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def md5(self) -> str:
        """MD5 of the bytes, for publishers that give no other digest."""
        return hashlib.md5(self.data, usedforsecurity=False).hexdigest()


def find_tables(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files that ``paths`` names: files as given, folders by their table files, sorted.

    Args:
        paths: a file, a folder (searched with its subfolders), or several of them.

    Raises:
        DataError: a path does not exist, or a folder holds no table file.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise DataError("no file was given: name a file or a folder")
    found: list[Path] = []
    for path in map(Path, given):
        try:
            if path.is_dir():
                inside = sorted(p for p in path.rglob("*") if _is_table(p))
                if not inside:
                    raise DataError(
                        f"{path}: no table in this folder; expected files that end in "
                        f"{', '.join(TABLE_SUFFIXES)}, plain or with {', '.join(PACKED_SUFFIXES)}"
                    )
                found += inside
            elif path.is_file():
                found.append(path)
            elif path.exists():
                raise DataError(f"{path}: neither a file nor a folder")
            else:
                raise DataError(f"{path}: no such file or folder")
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(found) > MAX_FILES:
        raise DataError(f"{len(found)} files, at most {MAX_FILES} are read: name fewer")
    return list(dict.fromkeys(found))


def _is_table(path: Path) -> bool:
    suffixes = [s.lower() for s in path.suffixes[-2:]]
    if path.name.startswith(".") or not suffixes or not path.is_file():
        return False
    if suffixes[-1] == ".zip":
        return True
    if suffixes[-1] in PACKED_SUFFIXES:
        return len(suffixes) == 2 and suffixes[0] in TABLE_SUFFIXES
    return suffixes[-1] in TABLE_SUFFIXES


def read_contents(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Iterator[Content]:
    """Decompress a file; its compression is known by its first bytes, never by its name.

    Args:
        path: plain text, gzip, xz, bzip2, or a zip archive of any of them but archives.
        max_bytes: bound of the decompressed bytes, of all members together for a zip archive.

    Yields:
        One content, or one for each file in a zip archive.

    Raises:
        DataError: the file is empty, truncated, damaged, too large or of a foreign format.
    """
    name = str(path)
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(8)
            stream.seek(0)
            if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
                yield from _zip_members(name, stream, max_bytes)
                return
            data = _inflate(name, head, stream, max_bytes)
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror or error}") from error
    yield Content(name, _checked(name, data))


def _checked(name: str, data: bytes) -> bytes:
    if not data.strip():
        raise DataError(f"{name}: the file is empty")
    for magic, what in _FOREIGN.items():
        if data.startswith(magic):
            raise DataError(f"{name}: this is {what}; expected a CSV file in UTF-8")
    if data[257:262] == b"ustar":
        raise DataError(f"{name}: this is a tar archive; unpack it and name the CSV files")
    return data


def _inflate(name: str, head: bytes, stream: IO[bytes], max_bytes: int) -> bytes:
    if head.startswith(b"\xfd7zXZ\x00"):
        pieces = _xz_pieces(stream)
    elif head.startswith(b"\x1f\x8b"):
        pieces = _pieces(gzip.GzipFile(fileobj=stream))
    elif head.startswith(b"BZh"):
        pieces = _pieces(bz2.BZ2File(stream))
    else:
        pieces = _pieces(stream)
    return _bounded(name, pieces, max_bytes)


def _bounded(name: str, pieces: Iterator[bytes], max_bytes: int) -> bytes:
    out = bytearray()
    try:
        for piece in pieces:
            out += piece
            if len(out) > max_bytes:
                raise DataError(
                    f"{name}: more than {max_bytes:,} bytes decompressed; if this is a true "
                    "data file, split it"
                )
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise _damaged(name, error) from error
    except OSError as error:
        if error.errno is None:  # bz2 reports damage as an OSError without a number
            raise _damaged(name, error) from error
        raise
    return bytes(out)


def _damaged(name: str, error: Exception) -> DataError:
    return DataError(
        f"{name}: the archive is truncated or damaged ({error}); nothing was read from it: "
        "fetch it again"
    )


def _pieces(stream: Any) -> Iterator[bytes]:
    while piece := stream.read(_CHUNK):
        yield piece


def _xz_pieces(stream: IO[bytes]) -> Iterator[bytes]:
    # lzma.open has no bound of memory, and a hostile header may ask for 4 GiB
    pending = stream.read(_CHUNK)
    while pending.strip(b"\x00"):
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        while not decoder.eof:
            if decoder.needs_input and not pending:
                pending = stream.read(_CHUNK)
                if not pending:
                    raise EOFError("the end of the stream is missing")
            yield decoder.decompress(pending, max_length=_CHUNK)
            pending = b""
        pending = decoder.unused_data or stream.read(_CHUNK)


def _zip_members(name: str, stream: IO[bytes], max_bytes: int) -> Iterator[Content]:
    # members are read into memory, never unpacked: their path names lead nowhere
    try:
        with zipfile.ZipFile(stream) as archive:
            members = [i for i in archive.infolist() if not i.is_dir()]
            if any(m.filename == "[Content_Types].xml" for m in members):
                raise DataError(f"{name}: this is an office document; save the table as CSV")
            tables = [m for m in members if _is_table_name(m.filename)]
            if not tables:
                raise DataError(f"{name}: no CSV file in this archive")
            if len(tables) > MAX_MEMBERS:
                raise DataError(f"{name}: {len(tables)} files inside, at most {MAX_MEMBERS}")
            left = max_bytes
            for member in tables:
                inner = f"{name}:{printable(member.filename)}"
                if member.flag_bits & 1:
                    raise DataError(f"{inner}: encrypted; unpack it with its password first")
                with archive.open(member) as plain:
                    data = _bounded(inner, _pieces(plain), left)
                if data[:6] == b"\xfd7zXZ\x00" or data[:2] == b"\x1f\x8b" or data[:3] == b"BZh":
                    data = _inflate(inner, data[:8], io.BytesIO(data), left)
                left -= len(data)
                yield Content(inner, _checked(inner, data))
    except (zipfile.BadZipFile, NotImplementedError, EOFError, UnicodeDecodeError) as error:
        raise _damaged(name, error) from error


def _is_table_name(member: str) -> bool:
    base = member.replace("\\", "/").rsplit("/", 1)[-1].lower()
    if base.startswith(".") or member.startswith("__MACOSX/"):
        return False
    for packed in (".gz", ".xz", ".bz2"):
        base = base.removesuffix(packed)
    return base.endswith(TABLE_SUFFIXES)


def printable(text: str, limit: int = 60) -> str:
    """Text from a file on one line of a message: control characters escaped, cut at ``limit``."""
    safe = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: limit + 1])
    return safe if len(text) <= limit else safe[:limit] + "..."


@dataclass(frozen=True)
class Sheet:
    """Separated text whose encoding, separator and first line are known.

    Attributes:
        name: the file, for messages.
        body: UTF-8 bytes without a byte order mark.
        separator: one of :data:`SEPARATORS`.
        first: the cells of the first line, stripped.
    """

    name: str
    body: bytes
    separator: str
    first: tuple[str, ...]


def open_sheet(content: Content) -> Sheet:
    """Check encoding, NUL bytes and line lengths, and find the separator.

    Raises:
        DataError: the text is not UTF-8, holds NUL bytes, or a line that is far too long.
    """
    name, data = content.name, content.data
    body = data.removeprefix(b"\xef\xbb\xbf")
    if (nul := body.find(b"\0")) >= 0:
        raise DataError(f"{name}, line {_line(body, nul)}: a NUL byte; this is no text file")
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {_line(body, error.start)}: byte 0x{body[error.start]:02x} is "
                "not UTF-8; convert the file to UTF-8"
            ) from error
    if (start := _long_line(body)) >= 0:
        raise DataError(
            f"{name}, line {_line(body, start)}: longer than {MAX_LINE:,} bytes; this is no "
            "table of flows, or its lines do not end in a line feed"
        )
    line = re.split(rb"[\r\n]", body[:MAX_LINE], maxsplit=1)[0].decode(errors="replace")
    if not line.strip():
        raise DataError(f"{name}, line 1: blank; expected the column names or the first flow")
    separator = max(SEPARATORS, key=line.count)
    cells = next(csv.reader([line], delimiter=separator), [])
    return Sheet(name, body, separator, tuple(c.strip() for c in cells))


def _long_line(body: bytes) -> int:
    """Position of a line of more than ``MAX_LINE`` bytes, or -1."""
    start = 0
    while len(body) - start > MAX_LINE:
        end = body.rfind(b"\n", start, start + MAX_LINE + 1)
        if end < 0:
            return start
        start = end + 1
    return -1


def _line(body: bytes, position: int) -> int:
    return body.count(b"\n", 0, position) + 1


def check_header(sheet: Sheet, names: Sequence[str], required: Collection[str]) -> None:
    """Check that a header has every required column, and none twice.

    Args:
        sheet: the table.
        names: the column names of its header, in the data set's spelling.
        required: the columns that must be among them.

    Raises:
        DataError: a column is missing or comes twice, or the separator is not a comma.
    """
    missing = [c for c in required if c not in names]
    if sheet.separator != ",":
        seen = SEPARATORS[sheet.separator]
        raise DataError(
            f"{sheet.name}, line 1: columns are separated by a {seen} ({sheet.separator!r}), "
            "expected a comma; save the table with commas"
        )
    if missing:
        listed = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        what = "column" if len(missing) == 1 else "columns"
        raise DataError(
            f"{sheet.name}, line 1: {len(missing)} {what} missing: {listed}; "
            "the header must name each"
        )
    twice = sorted({n for n in names if n and names.count(n) > 1})
    if twice:
        raise DataError(f"{sheet.name}, line 1: column {twice[0]!r} comes twice; keep one")


def parse_sheet(
    sheet: Sheet,
    names: Sequence[str],
    *,
    header: bool,
    numeric: Collection[str],
    text: Collection[str],
    blank_is_zero: Collection[str] = (),
) -> pd.DataFrame:
    """Parse the wanted columns: numbers as float64, text as categories with blanks missing.

    Args:
        sheet: the table.
        names: column names, one for each cell of a line.
        header: whether the first line holds names.
        numeric: columns of finite numbers.
        text: columns of text.
        blank_is_zero: numeric columns whose blank cells mean 0.

    Raises:
        DataError: a line has too few or too many cells, or a cell is not a finite number.
        MissingDependencyError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingDependencyError(
            "reading tables needs pandas: pip install 'n3ic[train]'"
        ) from error
    unique = [n if n in numeric or n in text else f"\0{i}" for i, n in enumerate(names)]
    wanted = [n for n in unique if not n.startswith("\0")]

    def explain(problem: Exception | str) -> DataError:
        return _locate(sheet, names, header, numeric, blank_is_zero) or DataError(
            f"{sheet.name}: cannot be read as a table: {problem}"
        )

    # exact is the default, and no longer an option, from pandas 3 on
    precision: dict[str, Any] = (
        {} if int(pd.__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}
    )
    try:
        frame: pd.DataFrame = pd.read_csv(
            io.BytesIO(sheet.body),
            sep=sheet.separator,
            header=None,
            names=unique,
            usecols=wanted,
            index_col=False,
            skiprows=1 if header else 0,
            dtype={n: "category" if n in text else "float64" for n in wanted},
            keep_default_na=False,
            na_values=[""],
            skipinitialspace=True,
            **precision,
            low_memory=False,
            encoding="utf-8",
        )
    except (ValueError, OverflowError) as error:
        raise explain(error) from error
    if frame.empty:
        raise DataError(f"{sheet.name}: a header and no rows; expected one flow a line")
    cells = (len(frame) + header) * (len(names) - 1)
    if (
        any(word in sheet.body for word in _SUSPECT)
        or sheet.body.count(sheet.separator.encode()) != cells
    ):
        problem = _locate(sheet, names, header, numeric, blank_is_zero)
        if problem is not None:
            raise problem
    for column in blank_is_zero:
        if column in frame:
            frame[column] = frame[column].fillna(0.0)
    numbers = frame[[n for n in wanted if n in numeric]].to_numpy()
    if not abs(numbers).max(initial=0.0) < float("inf"):  # False for NaN as well
        raise explain("a cell is not a finite number")
    return frame


def _locate(
    sheet: Sheet,
    names: Sequence[str],
    header: bool,
    numeric: Collection[str],
    blank_is_zero: Collection[str],
) -> DataError | None:
    """Walk the table cell by cell to the first that breaks the contract."""
    reader = csv.reader(
        io.StringIO(sheet.body.decode(), newline=""), delimiter=sheet.separator, strict=True
    )
    columns = [(i, n, n in blank_is_zero) for i, n in enumerate(names) if n in numeric]
    seen = False
    try:
        for row in reader:
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if header and not seen:
                seen = True
                continue
            where = f"{sheet.name}, line {reader.line_num}"
            if len(row) != len(names):
                return DataError(
                    f"{where}: {len(row)} cells, expected {len(names)}; "
                    "the line is cut short or has a stray separator"
                )
            for i, name, blank in columns:
                cell = row[i].strip()
                if _NUMBER.fullmatch(cell) and abs(float(cell)) < float("inf"):
                    continue
                if not cell and blank:
                    continue
                got = f"got {printable(cell)!r}" if cell else "got a blank"
                return DataError(
                    f"{where}, column {name!r}: expected a finite number, {got}; "
                    "correct the cell or remove the line"
                )
    except csv.Error as error:
        return DataError(f"{sheet.name}, line {reader.line_num}: {error}")
    return None


def row_line(sheet: Sheet, header: bool, row: int) -> int:
    """Line number, counted from 1, of a row, counted from 0."""
    reader = csv.reader(io.StringIO(sheet.body.decode(), newline=""), delimiter=sheet.separator)
    left = row + header
    for cells in reader:
        if not cells or (len(cells) == 1 and not cells[0].strip()):
            continue
        if left == 0:
            return reader.line_num
        left -= 1
    return 0


def combined_sha256(digests: Mapping[str, str] | Sequence[str]) -> str:
    """One digest for several files: of one file its own, of more the digest of theirs."""
    parts = list(digests.values() if isinstance(digests, Mapping) else digests)
    return parts[0] if len(parts) == 1 else hashlib.sha256("\n".join(parts).encode()).hexdigest()
