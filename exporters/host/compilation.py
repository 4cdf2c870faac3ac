# SPDX-License-Identifier: Apache-2.0
"""Compiles an export's C. The network is compiled once, for both its library and ``flow-exec``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from n3ic.errors import MissingDependencyError
from n3ic.kernel import build
from n3ic.kernel.library import KernelLibrary

Sources = tuple[tuple[str, bytes], ...]
"""Names and contents of C files."""


def find_compiler() -> build.CCompiler:
    """Find the C compiler of this machine.

    Raises:
        MissingDependencyError: no C compiler is installed.
    """
    try:
        return build.find_compiler()
    except build.NoCompilerError as error:
        raise MissingDependencyError(
            "the host target runs compiled C: install a C compiler (gcc or clang), "
            "or name one in CC"
        ) from error


@lru_cache(maxsize=4)  # encoding and running one export use the same library
def network_library(
    network: Sources, compiler: build.CCompiler, flags: tuple[str, ...]
) -> KernelLibrary:
    """Compile ``bnn.c`` and load it as a library.

    Raises:
        BuildError: the C does not compile.
        OSError: the library cannot be loaded.
        AttributeError: a function is missing.
    """
    files = {"bnn.o": _network_object(network, compiler, flags)}
    with _folder(files) as scratch:
        build.compile_shared(compiler, scratch / "bnn.o", scratch / "bnn.so")
        return KernelLibrary.open(scratch / "bnn.so")


@lru_cache(maxsize=4)  # one export meters several captures
def flow_program(
    network: Sources, flow: Sources, compiler: build.CCompiler, flags: tuple[str, ...]
) -> bytes:
    """Compile ``flow-exec`` and return the program's bytes.

    Raises:
        BuildError: the C does not compile.
        OSError: the compiler does not start.
    """
    files = {**dict(network), **dict(flow), "bnn.o": _network_object(network, compiler, flags)}
    with _folder(files) as scratch:
        parts = [scratch / name for name, _ in flow if name.endswith(".c")]
        build.compile_program(compiler, [*parts, scratch / "bnn.o"], scratch / "flow-exec")
        return (scratch / "flow-exec").read_bytes()


@lru_cache(maxsize=4)
def _network_object(network: Sources, compiler: build.CCompiler, flags: tuple[str, ...]) -> bytes:
    # Returned as bytes, because the cached result outlives the folder.
    with _folder(dict(network)) as scratch:
        build.compile_object(compiler, scratch / "bnn.c", scratch / "bnn.o")
        return (scratch / "bnn.o").read_bytes()


@contextmanager
def _folder(files: Mapping[str, bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="n3ic-host-") as name:
        for file, content in files.items():
            (Path(name) / file).write_bytes(content)
        yield Path(name)
