# SPDX-License-Identifier: Apache-2.0
"""Builds the manager and a function's library on first use, and keeps them in the user's cache."""

from __future__ import annotations

import ctypes
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import MissingDependencyError, N3icError
from n3ic.exporters.dpdk.application import require_dpdk
from n3ic.exporters.dpdk.exporter import EXPORTER
from n3ic.kernel import build
from n3ic.meter import source
from n3ic.util.cache import Cache
from n3ic.util.process import run_tool

_FOLDER = Path(__file__).resolve().parent / "c"
_LOSSES = EXPORTER.folder / "c"
_METER = Path(source.__file__).resolve().parent / "c"
_MANAGER = (
    *("manager.c", "chain.c", "control.c", "flows.c", "functions.c", "memory.c", "settings.c"),
    *("statistics.c", "losses.c"),
)
_SECONDS = 300
_FLAGS = ("-std=gnu11", "-O2")


def manager_program() -> Path:
    """The path of the manager; built if it is not cached.

    Raises:
        MissingDependencyError: DPDK or a C compiler is missing.
        N3icError: It does not compile.
    """
    return _built("manager", _MANAGER, (), libraries=True)


@cache
def function_library(*, secondary: bool) -> ctypes.CDLL:
    """Load a function's side of the shared memory, with the types of its functions.

    Args:
        secondary: whether to include the code of a secondary DPDK process, see ``secondary.h``.

    Raises:
        MissingDependencyError: DPDK or a C compiler is missing.
        N3icError: It does not compile.
    """
    names = ("function.c", "payloads.c", *(("secondary.c",) if secondary else ()))
    shared = ("-shared", "-fPIC")
    library = ctypes.CDLL(str(_built("function", names, shared, libraries=secondary)))
    for name, (result, arguments) in {**_OWN, **(_SECONDARY if secondary else {})}.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _array(kind: type[np.generic]) -> Any:
    return np.ctypeslib.ndpointer(dtype=kind, flags="C_CONTIGUOUS")


_OWN: dict[str, tuple[Any, list[Any]]] = {
    "function_check": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_size_t]),
    "function_receive": (
        ctypes.c_size_t,
        [
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32),
            *(_array(t) for t in (np.uint64, np.uint64, np.uint32, np.uint32, np.uint64)),
            _array(np.uint32),
        ],
    ),
    "function_return": (
        ctypes.c_size_t,
        [ctypes.c_void_p, ctypes.c_size_t, _array(np.uint64), _array(np.uint8)],
    ),
    "payloads_find": (
        None,
        [
            *(ctypes.c_void_p, ctypes.c_size_t),
            *(_array(t) for t in (np.uint64, np.uint32, np.uint32)),
            ctypes.c_uint16,
            *(_array(t) for t in (np.uint8, np.int64, np.int64, np.uint64)),
        ],
    ),
    "function_alive": (None, [ctypes.c_void_p]),
    "function_stopping": (ctypes.c_int, [ctypes.c_void_p]),
}
_SECONDARY: dict[str, tuple[Any, list[Any]]] = {
    "secondary_start": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]),
    "secondary_zone": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)]),
    "secondary_end": (None, []),
}


def _built(stem: str, names: tuple[str, ...], flags: tuple[str, ...], *, libraries: bool) -> Path:
    require_dpdk(("pkg-config",))
    try:
        compiler = build.find_compiler()
    except build.NoCompilerError as error:
        raise MissingDependencyError(str(error)) from error
    sources = [_LOSSES / n if n == "losses.c" else _FOLDER / n for n in names]
    theirs = (_LOSSES / "losses.h", _METER / "key.h", _METER / "packet.h")
    headers = sorted([*_FOLDER.glob("*.h"), *theirs])
    include = tuple(f"-I{folder}" for folder in (_FOLDER, _LOSSES, _METER))
    before, after = (*_FLAGS, *flags, *include, *_dpdk("--cflags")), _dpdk("--libs") * libraries
    text = [p.read_bytes() for p in (*sources, *headers)]
    cache = Cache.open("functions")
    # Flags and version are part of the key, because DPDK's inline functions are compiled in.
    flags_text = " ".join((*before, *after, *_dpdk("--modversion"))).encode()
    name = build.library_name(stem, compiler, [*text, flags_text])
    if cache.find(name) is None:
        with cache.new_file(name) as out:
            words = (*compiler.command, *before, *map(str, sources), "-o", str(out), *after)
            compilation = run_tool(words, seconds=_SECONDS)
            if compilation.returncode:
                report = compilation.stderr.decode(errors="replace")[-2000:]
                raise N3icError(f"the {stem} of functions does not compile: {report}")
    return cache.directory / name


def _dpdk(what: str) -> tuple[str, ...]:
    process = subprocess.run(
        ["pkg-config", what, "libdpdk"], capture_output=True, text=True, check=True
    )
    return tuple(shlex.split(process.stdout))
