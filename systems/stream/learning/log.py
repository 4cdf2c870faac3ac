# SPDX-License-Identifier: Apache-2.0
"""An append-only log of lines of JSON, each with the digest of the line before it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from n3ic.errors import DataError, N3icError
from n3ic.util.files import sync_folder

FIRST = "0" * 64
"""What the first line carries in place of the digest of a previous line."""
STATE = "state"
"""What the first line is if :meth:`ChainedLog.cut` has replaced the lines before it."""


class ChainedLog:
    """A log that several processes append to, one at a time.

    A line is on the disk when :meth:`append` returns. A line that a crash or a full disk has cut
    short is discarded; reading the log detects every other change of an earlier line. The log may
    begin with a line :data:`STATE`, whose number and digest go on from lines that were cut.

    Args:
        path: the file; it is made if necessary.

    Attributes:
        size: bytes that this object has read or written after the first line.
        lines: number of lines so far, those before the first one included.
        last: digest of the last line so far.

    Raises:
        N3icError: The file cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._handle = self._opened()
        self.rewind()

    def rewind(self) -> None:
        """Read from the first line again."""
        self._end = self.lines = self.size = 0
        self.last = FIRST

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from appending."""
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        while not self._is_current():  # another process has cut the log meanwhile
            os.close(self._handle)
            self._handle = self._opened()
            self.rewind()
            fcntl.flock(self._handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def news(self) -> Iterator[dict[str, Any]]:
        """Yield lines that this object has neither read nor written.

        Raises:
            DataError: A line is damaged, or does not follow from the previous one.
        """
        size = os.fstat(self._handle).st_size
        if size < self._end:
            raise DataError(f"{self.path}: the log has become shorter, expected it only to grow")
        data = os.pread(self._handle, size - self._end, self._end)
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                return  # cut short: never acknowledged
            where = f"{self.path}, line {self.lines + 1}"
            try:
                entry = json.loads(line)
                is_entry = isinstance(entry, dict) and isinstance(entry["what"], str)
                if not self._end and entry["what"] == STATE:
                    self.lines, self.last = int(entry["n"]), str(entry["previous"])
                follows = entry["previous"] == self.last and entry["n"] == self.lines
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise DataError(f"{where}: damaged: {error}") from error
            if not is_entry or not follows:
                raise DataError(f"{where}: it does not follow from the line before it")
            self._accept(line)
            yield entry

    def append(self, what: str, facts: Mapping[str, Any]) -> None:
        """Append a line and wait until it is on the disk; the caller holds :meth:`alone`.

        Raises:
            N3icError: The line cannot be written; the log is unchanged.
        """
        line = self._line(what, facts)
        try:
            os.ftruncate(self._handle, self._end)  # drops a line that was cut short
            at = 0
            while at < len(line):
                at += os.pwrite(self._handle, line[at:], self._end + at)
            os.fsync(self._handle)
        except OSError as error:
            os.ftruncate(self._handle, self._end)
            raise N3icError(f"cannot write {self.path}: {error.strerror or error}") from error
        self._accept(line)

    def cut(self, facts: Mapping[str, Any]) -> None:
        """Replace all lines by one line :data:`STATE`; the caller holds :meth:`alone`.

        Other processes find the old log or the new one, whenever this one is killed.

        Args:
            facts: what sums up the lines so far.

        Raises:
            N3icError: The new log cannot be written; the log is unchanged.
        """
        new = self.path.with_name(f".{self.path.name}.new")
        line, handle = self._line(STATE, facts), -1
        try:
            new.unlink(missing_ok=True)  # of a process that was killed
            handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            fcntl.flock(handle, fcntl.LOCK_EX)  # before another process can find it
            with open(handle, "wb", closefd=False) as stream:
                stream.write(line)
            os.fsync(handle)
            new.replace(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            if handle >= 0:
                os.close(handle)
            raise N3icError(f"cannot write {new}: {error.strerror or error}") from error
        os.close(self._handle)
        self._handle, self._end = handle, 0
        self._accept(line)

    def _opened(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise N3icError(f"cannot open {self.path}: {error.strerror or error}") from error

    def _is_current(self) -> bool:
        """Whether the open file is the one of that name."""
        try:
            return os.path.samestat(os.fstat(self._handle), self.path.stat())
        except FileNotFoundError as error:
            raise DataError(f"{self.path}: the log was removed while it was in use") from error

    def _line(self, what: str, facts: Mapping[str, Any]) -> bytes:
        entry = {**facts, "what": what, "n": self.lines, "previous": self.last}
        return json.dumps(entry, sort_keys=True, separators=(",", ":")).encode() + b"\n"

    def _accept(self, line: bytes) -> None:
        self.size = self.size + len(line) if self._end else 0
        self._end += len(line)
        self.lines += 1
        self.last = hashlib.sha256(line).hexdigest()
