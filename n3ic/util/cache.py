# SPDX-License-Identifier: Apache-2.0
"""The user's cache: folders that nobody else can write, so that their files may be run."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path


class UnsafeCacheError(OSError):
    """Another user could write the cache."""


@dataclass(frozen=True)
class Cache:
    """A folder of the user's cache, one per subject, such as built kernels.

    Attributes:
        directory: the folder; it belongs to this user, has mode 0700, and no directory above it
            can be written by anybody else.
    """

    directory: Path

    @classmethod
    def open(cls, subject: str) -> Cache:
        """The cache of a subject: a folder in the platform's cache, such as ``~/.cache/n3ic``.

        Raises:
            UnsafeCacheError: another user owns or can write the folder or a directory above it.
            OSError: the folder cannot be created.
        """
        directory = user_cache_path("n3ic", appauthor=False) / subject
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = directory.lstat()  # not stat(): a link could lead to another user's folder
        if not hasattr(os, "getuid"):
            raise UnsafeCacheError(f"{directory}: this platform does not tell whose it is")
        if not stat.S_ISDIR(info.st_mode):
            raise UnsafeCacheError(f"{directory} is not a directory")
        if info.st_uid != os.getuid() or stat.S_IMODE(info.st_mode) & 0o077:
            raise UnsafeCacheError(f"{directory} must belong to you with mode 0700")
        for parent in directory.resolve().parents:
            above = parent.stat()
            shared = above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX  # sticky is safe
            if above.st_uid not in (0, os.getuid()) or shared:
                raise UnsafeCacheError(f"{parent} can be written by somebody else")
        return cls(directory)

    def find(self, name: str) -> Path | None:
        """The file of that name, if only this user can write it and it is not a link; else None."""
        path = self.directory / name
        try:
            info = path.lstat()
        except OSError:
            return None
        safe = (
            stat.S_ISREG(info.st_mode)
            and info.st_uid == os.getuid()
            and not info.st_mode & 0o022
            and info.st_nlink == 1  # no other name to write it by
        )
        return path if safe else None

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """A temporary file that becomes ``name``, with mode 0700, when the block succeeds.

        Raises:
            OSError: the file cannot be written.
        """
        handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=".")
        os.close(handle)
        out = Path(temporary)
        try:
            yield out
            out.chmod(0o700)
            out.replace(self.directory / name)
        finally:
            out.unlink(missing_ok=True)
