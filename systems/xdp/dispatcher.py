# SPDX-License-Identifier: Apache-2.0
"""libxdp's dispatcher, which runs several XDP programs on one interface, one after the other.

libxdp (Debian: libxdp1) loads each program again, as an extension of its dispatcher, and pins it in
the BPF file system. The protocol is described in the README of libxdp, in xdp-tools.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from n3ic.errors import MissingDependencyError
from n3ic.exporters.xdp.libbpf import (
    AttachMode,
    BpfError,
    BpfObject,
    BpfProgram,
    libbpf,
    program_by_id,
    query,
)
from n3ic.exporters.xdp.program import END, METER, METER_TC, PASS

NAME = "xdp_dispatcher"  # libxdp's program, which calls the others
PRIORITY = 50  # libxdp's own default
_MODES: tuple[AttachMode | None, ...] = (
    None,
    "native",
    "generic",
    "offload",
)  # enum xdp_attach_mode
_XDP_PASS = 2
_LOG = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_QUIET = _LOG(lambda *_: 0)


class _ProgramOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("object", ctypes.c_void_p),
        ("options", ctypes.c_void_p),
        *((name, ctypes.c_char_p) for name in ("program", "find", "open", "pin")),
        ("id", ctypes.c_uint32),
        ("fd", ctypes.c_int),
    )


@dataclass(frozen=True)
class Dispatched:
    """The programs that a dispatcher runs.

    Attributes:
        mode: the attach mode of all of them.
        programs: their names by their number in the kernel, in the order in which they run.
    """

    mode: AttachMode
    programs: dict[int, str]


@cache
def libxdp() -> Any | None:
    """The library with the types of its functions; None if it is missing or older than 1.3."""
    libbpf()  # load it first, so that libxdp uses the same copy
    try:
        library = ctypes.CDLL("libxdp.so.1", use_errno=True)
        library.xdp_program__create  # noqa: B018 - raises AttributeError if libxdp is too old
    except (OSError, AttributeError):
        return None
    number, pointer, u32 = ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32
    for function, result, arguments in (
        ("libxdp_get_error", ctypes.c_long, [pointer]),
        ("libxdp_set_print", pointer, [_LOG]),
        ("xdp_program__create", pointer, [pointer]),
        ("xdp_program__from_id", pointer, [u32]),
        ("xdp_program__close", None, [pointer]),
        ("xdp_program__set_run_prio", number, [pointer, u32]),
        ("xdp_program__set_chain_call_enabled", number, [pointer, u32, ctypes.c_bool]),
        ("xdp_program__set_xdp_frags_support", number, [pointer, ctypes.c_bool]),
        ("xdp_program__attach", number, [pointer, number, number, u32]),
        ("xdp_program__detach", number, [pointer, number, number, u32]),
        ("xdp_program__id", u32, [pointer]),
        ("xdp_program__name", ctypes.c_char_p, [pointer]),
        ("xdp_multiprog__get_from_ifindex", pointer, [number]),
        ("xdp_multiprog__close", None, [pointer]),
        ("xdp_multiprog__attach_mode", number, [pointer]),
        ("xdp_multiprog__next_prog", pointer, [pointer, pointer]),
    ):
        symbol = getattr(library, function)
        symbol.restype, symbol.argtypes = result, arguments
    library.libxdp_set_print(_QUIET)
    return library


def needed() -> Any:
    """The library; fails if it is missing.

    Raises:
        MissingDependencyError: libxdp is not installed, or older than 1.3.
    """
    library = libxdp()
    if library is None:
        raise MissingDependencyError(
            "running beside other XDP programs needs libxdp 1.3 (Debian: apt-get install libxdp1)"
        )
    return library


def dispatched(interface: int) -> Dispatched | None:
    """What the dispatcher of an interface runs; None if it has none, or libxdp is missing."""
    library, there = libxdp(), query(interface)
    if library is None or there is None:
        return None
    with program_by_id(there.program_id) as program:
        if program.name != NAME:  # do not ask libxdp: 1.3 leaves the program that it examines open
            return None
    dispatcher = ctypes.c_void_p(library.xdp_multiprog__get_from_ifindex(interface))
    if library.libxdp_get_error(dispatcher):
        return None
    try:
        mode = _MODES[int(library.xdp_multiprog__attach_mode(dispatcher))]
        programs = {}
        one = library.xdp_multiprog__next_prog(None, dispatcher)
        while one:
            place = ctypes.c_void_p(one)
            name = library.xdp_program__name(place).decode(errors="replace")
            programs[int(library.xdp_program__id(place))] = name
            one = library.xdp_multiprog__next_prog(place, dispatcher)
        return Dispatched(mode or "native", programs)
    finally:
        library.xdp_multiprog__close(dispatcher)


@contextmanager
def attached(
    interface: int, image: bytes, program: BpfProgram, mode: AttachMode, priority: int
) -> Iterator[BpfProgram]:
    """Attach a metering program through libxdp, beside the programs that its dispatcher runs.

    On a kernel without program extensions, it runs alone.

    Args:
        interface: index of the interface.
        image: object file of the program.
        program: the loaded program; the attached one shares its maps.
        mode: attach mode; that of the dispatcher if there is one.
        priority: programs with a lower priority run before it; later ones run only for packets
            that it passes.

    Yields:
        The attached program, which stays attached when the block ends.

    Raises:
        MissingDependencyError: libxdp is missing.
        BpfError: The kernel or libxdp refuses.
    """
    library = needed()

    def load(opened: Any) -> int:
        options = _ProgramOptions(
            size=ctypes.sizeof(_ProgramOptions), object=opened, program=METER.encode()
        )
        handle = ctypes.c_void_p(library.xdp_program__create(ctypes.byref(options)))
        if error := library.libxdp_get_error(handle):
            return int(error)
        try:
            library.xdp_program__set_run_prio(handle, priority)
            library.xdp_program__set_chain_call_enabled(handle, _XDP_PASS, True)
            library.xdp_program__set_xdp_frags_support(handle, True)
            return int(library.xdp_program__attach(handle, interface, _MODES.index(mode), 0))
        finally:
            library.xdp_program__close(handle)

    with ExitStack() as stack:
        shares = [stack.enter_context(m) for m in program.maps()]
        opened = stack.enter_context(
            BpfObject(image, "libxdp", shares=shares, without=(METER_TC, END, PASS), load=load)
        )
        yield opened.programs[METER]


def detach(interface: int, number: int, mode: AttachMode) -> None:
    """Remove a program from a dispatcher; the others keep running.

    Raises:
        BpfError: The kernel or libxdp refuses.
    """
    library = needed()
    program = ctypes.c_void_p(library.xdp_program__from_id(number))
    error = library.libxdp_get_error(program)
    if not error:
        error = library.xdp_program__detach(program, interface, _MODES.index(mode), 0)
        library.xdp_program__close(program)
    if error and error != -errno.ENOENT:
        raise BpfError(f"libxdp: program {number} stays attached: error {-error}", -error)
