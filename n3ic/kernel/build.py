"""Builds the kernel as a shared library, and keeps it where only this user can write."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SOURCE = FOLDER / "bnn.c"
HEADER = FOLDER / "bnn.h"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared")
TIMEOUT_S = 120


class NoCompilerError(Exception):
    """No C compiler was found."""


class BuildError(Exception):
    """The compiler failed; the text names the log."""


class UnsafeError(Exception):
    """A cache that somebody else could write."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler: the words of its command, and the first line of its version."""

    command: tuple[str, ...]
    version: str


def find_compiler() -> Compiler:
    """The compiler in ``CC``, else cc, gcc or clang from the PATH.

    Raises:
        NoCompilerError: none of them runs.
    """
    wanted = shlex.split(os.environ.get("CC", ""))
    for command in ([wanted] if wanted else []) + [["cc"], ["gcc"], ["clang"]]:
        found = shutil.which(command[0])
        if not found:
            continue
        full = (found, *command[1:])
        try:
            answer = subprocess.run(
                [*full, "--version"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if answer.returncode == 0 and answer.stdout:
            return Compiler(full, answer.stdout.splitlines()[0].strip())
    raise NoCompilerError("no C compiler: install gcc or clang")


def compile_shared(
    compiler: Compiler, source: Path, out: Path, extra: tuple[str, ...] = ()
) -> None:
    """Compile a C file to a shared library, with ``FLAGS`` and what ``extra`` adds.

    Raises:
        BuildError: the compiler failed; the text holds its words.
    """
    try:
        done = subprocess.run(
            [*compiler.command, *FLAGS, str(source), *extra, "-o", str(out)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{compiler.command[0]}: {error}") from error
    if done.returncode:
        raise BuildError(done.stderr.strip() or f"{compiler.command[0]} ended {done.returncode}")


def cache_directory() -> Path:
    """The user's cache for built kernels."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "n3ic" / "native"


def file_name(compiler: Compiler) -> str:
    """A name that changes with the source, the flags, the compiler and the platform."""
    digest = hashlib.sha256()
    parts = (
        SOURCE.read_bytes(),
        HEADER.read_bytes(),
        " ".join((*compiler.command, *FLAGS)).encode(),
        compiler.version.encode(),
        f"{sys.platform} {platform.machine()} {platform.libc_ver()}".encode(),
    )
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return f"bnn-{digest.hexdigest()[:32]}.so"


def safe_directory(path: Path) -> Path:
    """``path`` as a directory that only this user can write; made with mode 0700.

    Raises:
        UnsafeError: it, or a directory above it, belongs to or can be written by somebody else.
        OSError: it cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise UnsafeError(f"{path} is not a directory")
    if info.st_uid != os.getuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise UnsafeError(f"{path} must belong to you with mode 0700")
    for parent in path.resolve().parents:
        above = parent.stat()
        shared = above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX
        if above.st_uid not in (0, os.getuid()) or shared:
            raise UnsafeError(f"{parent} can be written by somebody else")
    return path


def is_safe_file(path: Path) -> bool:
    """Whether ``path`` is a file of this user alone: no link, nobody else can write it."""
    try:
        info = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISREG(info.st_mode)
        and info.st_uid == os.getuid()
        and not info.st_mode & 0o022
        and info.st_nlink == 1
    )


def cached_library() -> Path:
    """Path of the built kernel; builds it where it is missing.

    Raises:
        NoCompilerError: it is missing, and there is no compiler.
        BuildError: the compiler failed; the text names the log.
        UnsafeError: the cache could be written by somebody else.
        OSError: the cache cannot be written.
    """
    compiler = find_compiler()
    directory = safe_directory(cache_directory())
    target = directory / file_name(compiler)
    if is_safe_file(target):
        return target
    return build(compiler, directory, target.name)


def build(compiler: Compiler, directory: Path, name: str) -> Path:
    """Compile the kernel into ``directory``, whole or not at all.

    Raises:
        BuildError: the compiler failed; the text names the log.
        OSError: the directory cannot be written.
    """
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=".", suffix=".so")
    os.close(handle)
    out = Path(temporary)
    try:
        compile_shared(compiler, SOURCE, out)
        out.chmod(0o700)
        out.replace(directory / name)
    except BuildError as error:
        log = directory / "build.log"
        log.write_text(f"{compiler.version}\n{error}\n", encoding="utf-8")
        raise BuildError(f"see {log}") from error
    finally:
        out.unlink(missing_ok=True)
    return directory / name
