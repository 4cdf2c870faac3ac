# SPDX-License-Identifier: Apache-2.0
"""Files and directories that are written atomically."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO

from n3ic.errors import N3icError, UsageError
from n3ic.util.signals import check, held

_NEW = ".n3ic-new"  # suffix of a directory that is being written, and locked
_OLD = ".n3ic-old"  # suffix of a directory that is being replaced
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def free_path(path: str | Path, replace: bool) -> Path:
    """A file to write: it must not exist, unless it may be replaced.

    Raises:
        UsageError: the path exists and may not be replaced, or is not a file.
    """
    target = Path(path)
    if target.is_dir() or (target.exists() and not replace):
        hint = "it is a folder" if target.is_dir() else "name another file, or add --replace"
        raise UsageError(f"{target} exists: {hint}")
    return target


def write_atomic(path: str | Path, data: bytes | str) -> None:
    """Write a file through a temporary file beside it and a rename.

    Raises:
        N3icError: the file cannot be written; an existing file is untouched.
    """
    with new_file(path) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def new_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A temporary file that becomes ``path`` when the block succeeds.

    Raises:
        N3icError: the file cannot be written; an existing file is untouched.
    """
    target = Path(path)
    temporary: Path | None = None
    try:
        with held():
            stream = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed below
                dir=target.parent, prefix=f".{target.name}.", delete=False
            )
            temporary = Path(stream.name)
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # else a crash could leave an empty file of the new name
        check()
        temporary.chmod(0o666 & ~_umask())  # temporary files are private at first
        temporary.replace(target)
    except OSError as error:
        raise N3icError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with held(), suppress(OSError):
                temporary.unlink(missing_ok=True)


def sync_folder(folder: str | Path) -> None:
    """Wait until the names in a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def new_directory(
    path: str | Path, *, replace: bool = False, written: Collection[str] = ()
) -> Iterator[Path]:
    """A temporary directory that becomes ``path`` when the block succeeds.

    The name is reserved first, so that a second process that wants to write ``path`` is refused at
    once. On any error, including Ctrl-C, the temporary directory and parents made for it are
    removed, and an old ``path`` is left untouched. Remains of a killed process are removed when the
    next directory beside them is written.

    Args:
        path: the directory to make.
        replace: whether an existing directory may be replaced.
        written: files of an existing directory that may be removed with it, by relative path; any
            other file there prevents its replacement.

    Raises:
        UsageError: ``path`` exists and may not be replaced, or is being written.
        N3icError: the directory cannot be written.
    """
    target = Path(path)
    if not target.name:
        raise UsageError(f"{target} exists: name a folder to make")
    temporary = target.with_name(f".{target.name}{_NEW}")
    with parents_of(target):
        try:
            _check_free(target, replace, written)
            target.parent.mkdir(parents=True, exist_ok=True)
            with _reserved(temporary):
                yield temporary
                check()
                with _alone(target.parent), held():
                    _check_free(target, replace, written)  # it may have appeared meanwhile
                    temporary.chmod(0o777 & ~_umask())
                    _put(temporary, target)
        except OSError as error:
            raise N3icError(f"cannot write {target}: {error.strerror or error}") from error


@contextmanager
def parents_of(path: Path) -> Iterator[None]:
    """Remove the parents that the block made for a folder if they are empty in the end."""
    absent = [p for p in path.absolute().parents if not p.exists()]
    try:
        yield
    finally:
        for parent in absent:
            with held(), suppress(OSError):
                parent.rmdir()


@contextmanager
def report_kept_work(
    folder: Path, pattern: str, noun: str, note: Callable[[str], object]
) -> Iterator[None]:
    """If the block fails, report how much finished work a folder keeps.

    Args:
        folder: the folder.
        pattern: glob pattern of the finished files.
        noun: the word for one of them; several get an s.
        note: called with the report.
    """
    try:
        yield
    except BaseException:
        with held(), suppress(OSError):  # after SIGHUP, there may be no terminal
            if count := len(list(folder.glob(pattern))):
                done = f"a {noun} is" if count == 1 else f"{count} {noun}s are"
                note(f"{done} kept in {folder}; the same command resumes from there")
        raise


@contextmanager
def work_folder(path: str | Path, own: re.Pattern[str]) -> Iterator[Path]:
    """A folder of work that can be resumed; see :func:`reserved_folder`.

    Its files stay if the block fails, and are removed if it succeeds.

    Args:
        path: the folder; created if missing.
        own: pattern that its files' names begin with, after the dot of temporary ones.

    Raises:
        UsageError: the folder holds other files, or another process uses it.
        N3icError: the folder cannot be created.
    """
    with reserved_folder(path, own) as folder:
        yield folder
        check()
        _remove(folder.iterdir())


@contextmanager
def reserved_folder(path: str | Path, own: re.Pattern[str]) -> Iterator[Path]:
    """A folder that one process at a time writes, file by file.

    When the block ends, temporary files of :func:`new_file` go, and so does an empty folder.

    Args:
        path: the folder; created if missing.
        own: pattern that its files' names begin with, after the dot of temporary ones.

    Raises:
        UsageError: the folder holds other files, or another process uses it.
        N3icError: the folder cannot be created.
    """
    target = Path(path)
    try:
        target.mkdir(exist_ok=True)
        handle = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise N3icError(f"cannot write {target}: {error.strerror or error}") from error
    try:
        _reserve(target, handle, own)
        try:
            yield target
        finally:
            with held(), suppress(OSError):
                _remove(target.glob(".*"))
                target.rmdir()  # succeeds only if nothing is kept
    finally:
        os.close(handle)


def _reserve(folder: Path, handle: int, own: re.Pattern[str]) -> None:
    """Lock a folder, check its files, and remove temporary ones of a killed process."""
    try:
        free = _lock(handle)
    except OSError:  # a file system without locks: the reserved name must suffice
        free = True
    if not free:
        raise UsageError(f"{folder} is being written by another n3ic")
    for entry in folder.iterdir():
        if not own.match(entry.name.removeprefix(".")):
            raise UsageError(f"{folder} holds {entry.name}, which n3ic did not write there")
    _remove(folder.glob(".*"))


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink(missing_ok=True)


def being_written(path: str | Path) -> bool:
    """Whether another n3ic is writing a directory; see :func:`new_directory`."""
    target = Path(path)
    try:
        handle = os.open(target.with_name(f".{target.name}{_NEW}"), os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _lock(handle)
    except OSError:
        return True
    finally:
        os.close(handle)


def _put(temporary: Path, target: Path) -> None:
    """Rename a directory; it replaces another one of that name."""
    if not target.exists():
        temporary.rename(target)
        return
    # If the process is killed between the renames, the next `_sweep` restores the old directory.
    old = target.with_name(f".{target.name}{_OLD}")
    target.rename(old)
    try:
        temporary.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _check_free(target: Path, replace: bool, written: Collection[str]) -> None:
    if not target.exists():
        return
    if not replace:
        raise UsageError(f"{target} exists: choose another name, or replace it (--replace)")
    if not target.is_dir():
        raise UsageError(f"{target} exists: it is no directory")
    files = (p for p in target.rglob("*") if p.is_symlink() or not p.is_dir())
    foreign = sorted({p.relative_to(target).as_posix() for p in files} - set(written))
    if foreign:
        more = f" and {len(foreign) - 1} more" if foreign[1:] else ""
        raise UsageError(
            f"{target} holds {foreign[0]}{more}, which n3ic did not write there: move it away first"
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one n3ic at a time make, rename or sweep directories in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _reserved(temporary: Path) -> Iterator[None]:
    """Make a directory that only this process uses during the block, and remove it afterwards.

    Its lock ends with the process and its children, however they end.
    """
    handle: int | None = None
    try:
        with _alone(temporary.parent), held():
            _sweep(temporary.parent)
            try:
                temporary.mkdir(mode=0o700)
            except FileExistsError as error:
                target = temporary.with_name(_target_of(temporary))
                raise UsageError(
                    f"{target} is being written by another n3ic (in {temporary})"
                ) from error
            handle = os.open(temporary, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks: the reserved name must suffice
                _lock(handle)
        yield
    finally:
        with held():
            if handle is not None:
                # After a rename the name may be another process's: remove only the locked one.
                if temporary.exists() and os.path.samestat(os.fstat(handle), temporary.stat()):
                    shutil.rmtree(temporary, ignore_errors=True)
                os.close(handle)


def _sweep(folder: Path) -> None:
    """Remove what killed processes left in a folder; restore directories that they set aside."""
    for left in folder.glob(f".*{_NEW}"):
        with suppress(OSError):
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if _lock(handle):
                    shutil.rmtree(left)
            finally:
                os.close(handle)
    for old in folder.glob(f".*{_OLD}"):
        target = folder / old.name[1:].removesuffix(_OLD)
        with suppress(OSError):
            if target.exists():
                shutil.rmtree(old)
            else:
                old.rename(target)


def _target_of(temporary: Path) -> str:
    return temporary.name[1:].removesuffix(_NEW)


def _lock(handle: int) -> bool:
    """Lock an open directory; False if another process holds the lock."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sha256_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def open_regular(path: str | Path, most: int, *, follow: bool = False) -> BufferedReader:
    """Open a file that another user may control, but never a pipe, a device or an endless file.

    Args:
        path: the file.
        most: largest size in bytes.
        follow: whether the last part of ``path`` may be a symbolic link.

    Raises:
        OSError: the file cannot be opened, is not regular, or is too large; see ``strerror``.
    """
    # Check before opening, which can have effects on a device, and after, as files may be swapped.
    _check_regular(Path(path).stat(follow_symlinks=follow), path, most)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(path, flags)
    try:
        _check_regular(os.fstat(handle), path, most)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str | Path, most: int, *, follow: bool = False) -> bytes:
    """The bytes of a file that another user may control; see :func:`open_regular`."""
    with open_regular(path, most, follow=follow) as stream:
        return stream.read(most)


def _check_regular(status: os.stat_result, path: str | Path, most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a special file")
        raise OSError(errno.EINVAL, f"it is {kind}, no regular file", str(path))
    if status.st_size > most:
        problem = f"it has {status.st_size:,} bytes, at most {most:,} are expected"
        raise OSError(errno.EFBIG, problem, str(path))


def _umask() -> int:
    mask = os.umask(0)  # it can be read only by setting it
    os.umask(mask)
    return mask
