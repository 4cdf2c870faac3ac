# SPDX-License-Identifier: Apache-2.0
"""Build the kernel as a shared library, in a folder that only this user can write."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from n3ic.util.cache import Cache
from n3ic.util.process import run_tool

CACHE = "native"
FOLDER = Path(__file__).resolve().parent
SOURCE = FOLDER / "bnn.c"
HEADER = FOLDER / "bnn.h"
STREAM = (FOLDER / "stream.c", FOLDER / "stream.h")
FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared")  # no -march: bnn.c picks a kernel for the CPU
TIMEOUT_S = 120


class NoCompilerError(Exception):
    """No C compiler was found."""


class BuildError(Exception):
    """The compiler failed; the text names the log."""


@dataclass(frozen=True)
class CCompiler:
    """A C compiler: the words of its command, and the first line of its version."""

    command: tuple[str, ...]
    version: str


def find_compiler() -> CCompiler:
    """The compiler in ``CC``, else cc, gcc or clang from the PATH.

    Raises:
        NoCompilerError: no compiler runs.
    """
    chosen = shlex.split(os.environ.get("CC", ""))
    for command in ([chosen] if chosen else []) + [["cc"], ["gcc"], ["clang"]]:
        program = shutil.which(command[0])
        if not program:
            continue
        full = (program, *command[1:])
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
            return CCompiler(full, answer.stdout.splitlines()[0].strip())
    raise NoCompilerError("no C compiler: install gcc or clang")


def compile_shared(
    compiler: CCompiler, source: Path, out: Path, extra: tuple[str, ...] = ()
) -> None:
    """Compile a C file to a shared library, with ``FLAGS`` and ``extra`` arguments.

    Raises:
        BuildError: the compiler failed; the text holds its output.
    """
    _compile(compiler, (*FLAGS, str(source.resolve()), *extra), out)


def compile_object(compiler: CCompiler, source: Path, out: Path) -> None:
    """Compile a C file to an object file, for libraries and for programs.

    Raises:
        BuildError: the compiler failed; the text holds its output.
    """
    flags = (flag for flag in FLAGS if flag != "-shared")
    _compile(compiler, (*flags, "-c", str(source.resolve())), out)


def compile_program(compiler: CCompiler, sources: Sequence[Path], out: Path) -> None:
    """Compile C files and link object files to a program.

    Raises:
        BuildError: the compiler failed; the text holds its output.
    """
    flags = (flag for flag in FLAGS if flag not in ("-fPIC", "-shared"))
    _compile(compiler, (*flags, *(str(path.resolve()) for path in sources), "-lm"), out)


def _compile(compiler: CCompiler, words: Sequence[str], out: Path) -> None:
    try:
        process = run_tool(
            [*compiler.command, *words, "-o", str(out.resolve())],
            seconds=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{compiler.command[0]}: {error}") from error
    if process.returncode:
        message = process.stderr.decode(errors="replace").strip()
        raise BuildError(message or f"{compiler.command[0]} ended {process.returncode}")


def compile_kernel(compiler: CCompiler, out: Path, source: Path | None = None) -> None:
    """Compile a kernel, ``bnn.c`` by default, and the code that turns tables into lines.

    Raises:
        BuildError: the compiler failed; the text holds its output.
    """
    compile_shared(compiler, source or SOURCE, out, (f"-I{FOLDER}", str(STREAM[0])))


def kernel_sources(source: Path | None = None) -> list[bytes]:
    """All files that a kernel is built from."""
    return [path.read_bytes() for path in (source or SOURCE, HEADER, *STREAM)]


def library_name(stem: str, compiler: CCompiler, sources: Sequence[bytes]) -> str:
    """A name that changes with the sources, the flags, the compiler and the platform."""
    digest = hashlib.sha256()
    parts = (
        *sources,
        " ".join((*compiler.command, *FLAGS)).encode(),
        compiler.version.encode(),
        f"{sys.platform} {platform.machine()} {platform.libc_ver()}".encode(),
    )
    for part in parts:
        # Lengths are digested, too: text that moves from one part to the next changes the name.
        digest.update(len(part).to_bytes(8, "little") + part)
    return f"{stem}-{digest.hexdigest()[:32]}.so"


def cached_library(source: Path | None = None) -> Path:
    """Path of a built kernel, ``bnn.c`` by default; builds it if it is missing.

    Raises:
        NoCompilerError: the kernel is not cached, and no compiler is installed.
        BuildError: the compiler failed; the text names the log.
        OSError: the cache cannot be written, or another user could write it.
    """
    compiler = find_compiler()
    cache = Cache.open(CACHE)
    name = library_name((source or SOURCE).stem, compiler, kernel_sources(source))
    return cache.find(name) or build(compiler, cache, name, source)


def build(compiler: CCompiler, cache: Cache, name: str, source: Path | None = None) -> Path:
    """Compile a kernel into the cache; only a complete library appears there.

    Raises:
        BuildError: the compiler failed; the text names the log.
        OSError: the cache cannot be written.
    """
    try:
        with cache.new_file(name) as out:
            compile_kernel(compiler, out, source)
    except BuildError as error:
        with cache.new_file("build.log") as log:
            log.write_text(f"{compiler.version}\n{error}\n", encoding="utf-8")
        raise BuildError(f"see {cache.directory / 'build.log'}") from error
    return cache.directory / name
