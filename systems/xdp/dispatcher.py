# SPDX-License-Identifier: Apache-2.0
"""libxdp's dispatcher: several XDP programs on one interface, which run one after the other.

libxdp (Debian: libxdp1) loads a program anew as an extension of its dispatcher, and pins it below
the BPF file system. Source: the protocol in the README of libxdp of xdp-tools.
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

NAME = "xdp_dispatcher"  # of libxdp's program, to which the others are linked
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
        mode: attach mode of all of them.
        programs: their names by number in the kernel, in the order in which they run.
    """

    mode: AttachMode
    programs: dict[int, str]


@cache
def libxdp() -> Any | None:
    """The library with its functions' types; None if it is not installed, or before 1.3."""
    libbpf()  # the same one is used by both
    try:
        library = ctypes.CDLL("libxdp.so.1", use_errno=True)
        library.xdp_program__create  # noqa: B018 - an AttributeError says that it is too old
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
        found = getattr(library, function)
        found.restype, found.argtypes = result, arguments
    library.libxdp_set_print(_QUIET)
    return library


def needed() -> Any:
    """The library.

    Raises:
        MissingDependencyError: it is not installed.
    """
    library = libxdp()
    if library is None:
        raise MissingDependencyError(
            "standing beside other XDP programs needs libxdp 1.3 (Debian: apt-get install libxdp1)"
        )
    return library


def dispatched(interface: int) -> Dispatched | None:
    """What a dispatcher on an interface runs; None if there is none, or libxdp is missing."""
    library, there = libxdp(), query(interface)
    if library is None or there is None:
        return None
    with program_by_id(there.program_id) as program:
        if program.name != NAME:  # libxdp 1.3 keeps a program open that it is asked about
            return None
    found = ctypes.c_void_p(library.xdp_multiprog__get_from_ifindex(interface))
    if library.libxdp_get_error(found):
        return None
    try:
        mode = _MODES[int(library.xdp_multiprog__attach_mode(found))]
        programs = {}
        one = library.xdp_multiprog__next_prog(None, found)
        while one:
            place = ctypes.c_void_p(one)
            name = library.xdp_program__name(place).decode(errors="replace")
            programs[int(library.xdp_program__id(place))] = name
            one = library.xdp_multiprog__next_prog(place, found)
        return Dispatched(mode or "native", programs)
    finally:
        library.xdp_multiprog__close(found)


@contextmanager
def attached(
    interface: int, image: bytes, program: BpfProgram, mode: AttachMode, priority: int
) -> Iterator[BpfProgram]:
    """Attach a metering program by libxdp, beside what its dispatcher runs already.

    A kernel that has no such extensions runs it alone.

    Args:
        interface: index of the interface.
        image: object file of the program.
        program: the program, loaded; the attached one uses its maps.
        mode: attach mode, that of the dispatcher if one is there.
        priority: programs of a lower one run before it; those behind it run for what it passes.

    Yields:
        The attached program, which stays when the block ends.

    Raises:
        MissingDependencyError: libxdp is missing.
        BpfError: the kernel or libxdp refuses.
    """
    library = needed()

    def load(opened: Any) -> int:
        options = _ProgramOptions(
            size=ctypes.sizeof(_ProgramOptions), object=opened, program=METER.encode()
        )
        made = ctypes.c_void_p(library.xdp_program__create(ctypes.byref(options)))
        if error := library.libxdp_get_error(made):
            return int(error)
        try:
            library.xdp_program__set_run_prio(made, priority)
            library.xdp_program__set_chain_call_enabled(made, _XDP_PASS, True)
            library.xdp_program__set_xdp_frags_support(made, True)
            return int(library.xdp_program__attach(made, interface, _MODES.index(mode), 0))
        finally:
            library.xdp_program__close(made)

    with ExitStack() as stack:
        shares = [stack.enter_context(m) for m in program.maps()]
        made = stack.enter_context(
            BpfObject(image, "libxdp", shares=shares, without=(METER_TC, END, PASS), load=load)
        )
        yield made.programs[METER]


def detach(interface: int, number: int, mode: AttachMode) -> None:
    """Take a program out of a dispatcher; the others go on.

    Raises:
        BpfError: the kernel or libxdp refuses.
    """
    library = needed()
    found = ctypes.c_void_p(library.xdp_program__from_id(number))
    error = library.libxdp_get_error(found)
    if not error:
        error = library.xdp_program__detach(found, interface, _MODES.index(mode), 0)
        library.xdp_program__close(found)
    if error and error != -errno.ENOENT:
        raise BpfError(f"libxdp: program {number} stays: error {-error}", -error)
