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

FIRST = "0" * 64
"""What the first line carries in place of the digest of a previous line."""


class ChainedLog:
    """A log that several processes append to, one at a time.

    A line is on the disk when :meth:`append` returns. A line that a crash or a full disk has cut
    short is discarded; reading the log detects every other change of an earlier line.

    Args:
        path: the file; it is made if necessary.

    Raises:
        N3icError: The file cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise N3icError(f"cannot open {path}: {error.strerror or error}") from error
        self.rewind()

    def rewind(self) -> None:
        """Read from the first line again."""
        self._end = self._lines = 0
        self._last = FIRST

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from appending."""
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
            where = f"{self.path}, line {self._lines + 1}"
            try:
                entry = json.loads(line)
                is_entry = isinstance(entry, dict) and isinstance(entry["what"], str)
                follows = entry["previous"] == self._last and entry["n"] == self._lines
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
        entry = {**facts, "what": what, "n": self._lines, "previous": self._last}
        line = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode() + b"\n"
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

    def _accept(self, line: bytes) -> None:
        self._end += len(line)
        self._lines += 1
        self._last = hashlib.sha256(line).hexdigest()
