# SPDX-License-Identifier: Apache-2.0
"""Find data files, and decompress them within bounds; every error names the file."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, cast

from n3ic.errors import DataError

MAX_BYTES = 512 << 20
MAX_MEMBERS = 64
MAX_FILES = 1000
TABLE_SUFFIXES = (".csv", ".tsv", ".txt")
PACKED_SUFFIXES = (".gz", ".xz", ".bz2", ".zip")
_CHUNK = 1 << 20
_XZ_MEMORY = 256 << 20
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
    b"\x93NUMPY": "a numpy array",
    b"ARROW1": "a Feather file",
    b"\x80\x04": "a pickle, which is never read",
    b"\x80\x05": "a pickle, which is never read",
    b"[{": "JSON",
    b"[[": "JSON",
}
_BLANKS = re.compile(rb"\s+")


class DamagedError(ValueError):
    """Compressed bytes are truncated or damaged; the message says how."""


@dataclass(frozen=True)
class Content:
    """The decompressed bytes of one text file, or of one member of a zip archive.

    Attributes:
        name: the path as given; ``archive.zip:member`` for a member.
        data: the decompressed bytes.
    """

    name: str
    data: bytes

    def __str__(self) -> str:
        return self.name

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the bytes, in hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def md5(self) -> str:
        """MD5 of the bytes, for publishers that give no other digest."""
        return hashlib.md5(self.data, usedforsecurity=False).hexdigest()


def find_tables(
    paths: str | Path | Sequence[str | Path], suffixes: tuple[str, ...] = TABLE_SUFFIXES
) -> list[Path]:
    """The files that ``paths`` names: files as given, folders by their table files, sorted.

    Args:
        paths: a file, a folder (searched with its subfolders), or several of them.
        suffixes: suffixes of table files in a folder, without those of compression.

    Raises:
        DataError: a path does not exist, or a folder holds no table file.
    """
    names = [paths] if isinstance(paths, str | Path) else list(paths)
    if not names:
        raise DataError("no file was given: name a file or a folder")
    files: list[Path] = []
    for path in map(Path, names):
        try:
            if path.is_dir():
                inside = sorted(p for p in path.rglob("*") if _is_table(p, suffixes))
                if not inside:
                    raise DataError(
                        f"{path}: no table in this folder; expected files that end in "
                        f"{', '.join(suffixes)}, plain or with {', '.join(PACKED_SUFFIXES)}"
                    )
                files += inside
            elif path.is_file():
                files.append(path)
            elif path.exists():
                raise DataError(f"{path}: neither a file nor a folder")
            else:
                raise DataError(f"{path}: no such file or folder")
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(files) > MAX_FILES:
        raise DataError(f"{len(files)} files, at most {MAX_FILES} are read: name fewer")
    return list(dict.fromkeys(files))  # a file that is named twice is read once


def _is_table(path: Path, known: tuple[str, ...]) -> bool:
    suffixes = [s.lower() for s in path.suffixes[-2:]]
    if path.name.startswith(".") or not suffixes or not path.is_file():
        return False
    if suffixes[-1] == ".zip":
        return True
    if suffixes[-1] in PACKED_SUFFIXES:
        return len(suffixes) == 2 and suffixes[0] in known
    return suffixes[-1] in known


def read_contents(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Iterator[Content]:
    """Decompress a file; its first bytes, not its name, determine the compression.

    Args:
        path: plain text, gzip, xz, bzip2, or a zip archive of such files.
        max_bytes: bound of the decompressed bytes, of all members together for a zip archive.

    Yields:
        One content, or one for each file in a zip archive.

    Raises:
        DataError: the file is empty, truncated, damaged, too large or of an unknown format.
    """
    name = str(path)
    try:
        with Path(path).open("rb") as stream:
            if stream.peek(4)[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
                yield from _zip_members(name, stream, max_bytes)
                return
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror or error}") from error
    yield Content(name, checked_text(name, read_bytes(path, max_bytes=max_bytes)))


def read_bytes(path: str | Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The decompressed bytes of a file, plain or compressed with gzip, xz or bzip2.

    Raises:
        DataError: the file cannot be read, is truncated, damaged or too large.
    """
    name = str(path)
    try:
        with Path(path).open("rb") as stream:
            return _bounded(name, decompress(name, stream), max_bytes)
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror or error}") from error


def decompress(name: str, stream: IO[bytes]) -> Iterator[bytes]:
    """The bytes of a stream in pieces of at most 1 MiB, decompressed if necessary.

    A pipe's bytes are given as they are written, not held back until 1 MiB is full.

    Args:
        name: the file, for messages.
        stream: a stream, which need not be seekable; its first bytes tell gzip, xz or bzip2.

    Raises:
        DataError: the stream is truncated or damaged.
        OSError: the stream cannot be read.
    """
    try:
        yield from unpack(stream)
    except DamagedError as error:
        raise _damaged(name, error) from error


def unpack(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompress a stream; of a truncated or damaged one, yield everything before the damage.

    Raises:
        DamagedError: the stream is truncated or damaged; raised after the bytes before the damage.
        OSError: the stream cannot be read.
    """
    head = stream.read(8)
    whole = _Joined(head, cast(io.BufferedIOBase, stream))
    if head.startswith(b"\xfd7zXZ\x00"):
        pieces = _xz_pieces(whole)
    elif head.startswith(b"\x1f\x8b"):
        pieces = _unpacked(gzip.GzipFile(fileobj=whole))
    elif head.startswith(b"BZh"):
        pieces = _unpacked(bz2.BZ2File(whole))
    else:
        pieces = _pieces(whole)
    try:
        yield from pieces
    except EOFError as error:
        raise DamagedError("it is cut: its end is missing") from error
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise DamagedError(str(error)) from error
    except OSError as error:
        if error.errno is None:  # bz2 reports damage as an OSError without a number
            raise DamagedError(str(error)) from error
        raise


def first_bytes(path: str | Path) -> bytes:
    """The first decompressed bytes of a file, for detecting its format; empty if unreadable."""
    try:
        with Path(path).open("rb") as stream:
            if stream.peek(2)[:2] == b"PK":
                return next(read_contents(path)).data
            return next(decompress(str(path), stream), b"")
    except (OSError, DataError):
        return b""


class _Joined(io.BufferedIOBase):
    """A stream whose first bytes were already read to detect its format."""

    def __init__(self, head: bytes, tail: io.BufferedIOBase) -> None:
        self._head, self._rest = head, tail

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            head, self._head = self._head, b""
            return head + self._rest.read()
        return self.read1(size)

    def read1(self, size: int = _CHUNK) -> bytes:
        """The next bytes that the stream has, without waiting for as many as asked for."""
        head, self._head = self._head[:size], self._head[size:]
        return head + self._rest.read1(size - len(head)) if len(head) < size else head


def checked_text(name: str, data: bytes) -> bytes:
    """Return the given first bytes of a table, or all of them, if they may be text.

    Raises:
        DataError: the bytes are empty, or of a known format that is not text.
    """
    if not data.strip():
        raise DataError(f"{name}: the file is empty")
    head = _BLANKS.sub(b"", data[:64])  # JSON may have blanks between its first brackets
    for magic, format_name in _FOREIGN.items():
        if data.startswith(magic) or (format_name == "JSON" and head.startswith(magic)):
            raise DataError(
                f"{name}: this is {format_name}; expected a CSV file in UTF-8: save the table as "
                "one"
            )
    if data[257:262] == b"ustar":  # the signature of tar is in the middle of its header
        raise DataError(f"{name}: this is a tar archive; unpack it and name the CSV files")
    return data


def _bounded(name: str, pieces: Iterator[bytes], max_bytes: int) -> bytes:
    out = bytearray()
    for piece in pieces:
        out += piece
        if len(out) > max_bytes:
            raise DataError(
                f"{name}: more than {max_bytes:,} bytes decompressed; if this is a true "
                "data file, split it, or draw rows (n3ic train --rows 1000000)"
            )
    return bytes(out)


def _damaged(name: str, error: Exception) -> DataError:
    return DataError(
        f"{name}: the archive is truncated or damaged ({error}); nothing was read from it: "
        "fetch it again"
    )


def _pieces(stream: io.BufferedIOBase) -> Iterator[bytes]:
    while piece := stream.read1(_CHUNK):
        yield piece


def _unpacked(stream: gzip.GzipFile | bz2.BZ2File) -> Iterator[bytes]:
    # read() would lose the bytes before the damage; read1() returns them first.
    while piece := stream.read1(_CHUNK):
        yield piece


def _xz_pieces(stream: io.BufferedIOBase) -> Iterator[bytes]:
    # lzma.open does not bound memory, and a hostile header may request a dictionary of 4 GiB.
    pending = stream.read(_CHUNK)
    while pending.strip(b"\x00"):  # zeros may pad the streams of an xz file
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        while not decoder.eof:
            if decoder.needs_input and not pending:
                pending = stream.read(_CHUNK)
                if not pending:
                    raise EOFError("the end of the stream is missing")
            if piece := decoder.decompress(pending, max_length=_CHUNK):
                yield piece
            pending = b""
        pending = decoder.unused_data or stream.read(_CHUNK)


def _zip_members(name: str, stream: IO[bytes], max_bytes: int) -> Iterator[Content]:
    # Members are read into memory and never extracted, so their paths cannot escape a folder.
    try:
        with zipfile.ZipFile(stream) as archive:
            members = [i for i in archive.infolist() if not i.is_dir()]
            if {"[Content_Types].xml", "mimetype"} & {m.filename for m in members}:
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
                    data = _bounded(inner, decompress(inner, plain), left)
                left -= len(data)
                yield Content(inner, checked_text(inner, data))
    except (
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        EOFError,
        UnicodeDecodeError,
    ) as error:
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


def combined_sha256(digests: Mapping[str, str] | Sequence[str]) -> str:
    """One digest for several files: that of a single file, else the digest of all digests."""
    parts = list(digests.values() if isinstance(digests, Mapping) else digests)
    return parts[0] if len(parts) == 1 else hashlib.sha256("\n".join(parts).encode()).hexdigest()
