"""Files that are written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from n3ic.errors import N3icError, UsageError


def free_path(path: str | Path, replace: bool) -> Path:
    """A file to write: it must not exist, unless it may be replaced.

    Raises:
        UsageError: it exists and may not be replaced, or it is no file.
    """
    target = Path(path)
    if target.is_dir() or (target.exists() and not replace):
        hint = "it is a folder" if target.is_dir() else "name another file, or add --replace"
        raise UsageError(f"{target} exists: {hint}")
    return target


def write_atomic(path: str | Path, data: bytes | str) -> None:
    """Write a file through a temporary neighbour and a rename.

    Raises:
        N3icError: the file cannot be written; what was there before is untouched.
    """
    with new_file(path) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def new_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A temporary file that becomes ``path`` when the block ends well.

    Raises:
        N3icError: the file cannot be written; what was there before is untouched.
    """
    target = Path(path)
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as stream:
            temporary = Path(stream.name)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        raise N3icError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


@contextmanager
def new_directory(path: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """A temporary directory that becomes ``path`` when the block ends well.

    On any error, Ctrl-C included, the temporary directory is removed, parents that were made for
    it too, and what stood at ``path`` before is untouched.

    Args:
        path: the directory to make.
        replace: whether an existing directory may be replaced.

    Raises:
        UsageError: ``path`` exists and may not be replaced.
        N3icError: the directory cannot be written.
    """
    target = Path(path)
    if target.exists() and (not replace or not target.is_dir()):
        hint = (
            "choose another name, or replace it (--replace)"
            if not replace
            else "it is no directory"
        )
        raise UsageError(f"{target} exists: {hint}")
    absent = [p for p in target.absolute().parents if not p.exists()]
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        if target.exists():
            old = temporary.with_name(temporary.name + ".old")
            target.rename(old)
            try:
                temporary.rename(target)
            except OSError:
                old.rename(target)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            temporary.rename(target)
    except OSError as error:
        raise N3icError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        for parent in absent:
            with suppress(OSError):
                parent.rmdir()  # one that was made above and holds nothing


def sha256_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
