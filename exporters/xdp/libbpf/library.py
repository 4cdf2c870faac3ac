# SPDX-License-Identifier: Apache-2.0
"""Loads libbpf, declares its functions' types, and formats its errors."""

from __future__ import annotations

import ctypes
import errno
import os
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from n3ic.errors import MissingDependencyError, N3icError

SAMPLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


# Capabilities to load programs, to find loaded objects by number, and to attach to interfaces.
RIGHTS = "CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN and CAP_NET_ADMIN"
_PERFMON, _SYS_ADMIN = 38, 21  # numbers of capabilities


class BpfError(N3icError):
    """The kernel or libbpf refused a request.

    Attributes:
        number: error number (``errno``).
    """

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.number = number


class VerifierError(BpfError):
    """The kernel's verifier refused a program.

    Attributes:
        log: end of the verifier's log, from the last part of its instruction trace.
    """

    def __init__(self, text: str, number: int, log: str) -> None:
        super().__init__(text, number)
        self.log = log


class Closing:
    """Base class of resources that a ``with`` block closes at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the resource."""
        raise NotImplementedError


class Descriptor(Closing):
    """An object in the kernel behind a file descriptor.

    Args:
        fd: file descriptor.
        owned: whether closing this object closes the descriptor.
    """

    def __init__(self, fd: int, *, owned: bool = False) -> None:
        self.fd, self._owned = fd, owned

    def close(self) -> None:
        """Close the descriptor if this object owns it."""
        if self._owned and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class ObjectInfo(ctypes.Structure):
    """The common start of the kernel's ``struct bpf_map_info`` and ``struct bpf_prog_info``."""


InfoT = TypeVar("InfoT", bound=ObjectInfo)


class MapInfo(ObjectInfo):
    """The beginning of ``struct bpf_map_info``."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("key_size", ctypes.c_uint32),
        ("value_size", ctypes.c_uint32),
        ("max_entries", ctypes.c_uint32),
        ("map_flags", ctypes.c_uint32),
        ("name", ctypes.c_char * 16),
    )


class ProgramInfo(ObjectInfo):
    """The beginning of ``struct bpf_prog_info``."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("tag", ctypes.c_uint8 * 8),
        ("jited_prog_len", ctypes.c_uint32),
        ("xlated_prog_len", ctypes.c_uint32),
        ("jited_prog_insns", ctypes.c_uint64),
        ("xlated_prog_insns", ctypes.c_uint64),
        ("load_time", ctypes.c_uint64),
        ("created_by_uid", ctypes.c_uint32),
        ("nr_map_ids", ctypes.c_uint32),
        ("map_ids", ctypes.c_uint64),
        ("name", ctypes.c_char * 16),
        ("rest", ctypes.c_uint8 * 136),
        ("verified_insns", ctypes.c_uint32),
        ("end", ctypes.c_uint32),
    )


@cache
def libbpf() -> Any:
    """Load the library and declare its functions' types.

    Raises:
        MissingDependencyError: libbpf is not installed.
    """
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise MissingDependencyError(
            "XDP needs libbpf 1.0 or newer (Debian: apt-get install libbpf1)"
        ) from error
    number, size, text, pointer = (
        ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p
    )  # fmt: skip
    u32, u64 = ctypes.c_uint32, ctypes.c_uint64
    for function, result, arguments in (
        ("bpf_object__open_mem", pointer, [text, size, pointer]),
        ("bpf_object__load", number, [pointer]),
        ("bpf_object__close", None, [pointer]),
        ("bpf_object__next_map", pointer, [pointer, pointer]),
        ("bpf_object__find_map_by_name", pointer, [pointer, text]),
        ("bpf_map__name", text, [pointer]),
        ("bpf_map__fd", number, [pointer]),
        ("bpf_map__set_max_entries", number, [pointer, u32]),
        ("bpf_map__reuse_fd", number, [pointer, number]),
        ("bpf_map__set_initial_value", number, [pointer, text, size]),
        ("bpf_object__next_program", pointer, [pointer, pointer]),
        ("bpf_program__name", text, [pointer]),
        ("bpf_program__fd", number, [pointer]),
        ("bpf_program__set_autoload", number, [pointer, ctypes.c_bool]),
        ("bpf_program__set_log_level", number, [pointer, u32]),
        ("bpf_program__set_log_buf", number, [pointer, pointer, size]),
        ("bpf_map_create", number, [u32, text, u32, u32, u32, pointer]),
        ("bpf_map_lookup_elem", number, [number, text, pointer]),
        ("bpf_map_update_elem", number, [number, text, text, u64]),
        ("bpf_map_delete_elem", number, [number, text]),
        ("bpf_map_get_next_key", number, [number, text, pointer]),
        ("bpf_map_lookup_batch", number, [number, *[pointer] * 6]),
        ("bpf_map_get_fd_by_id", number, [u32]),
        ("bpf_prog_get_fd_by_id", number, [u32]),
        ("bpf_obj_get_info_by_fd", number, [number, pointer, pointer]),
        ("bpf_prog_test_run_opts", number, [number, pointer]),
        ("bpf_xdp_attach", number, [number, number, u32, pointer]),
        ("bpf_xdp_detach", number, [number, u32, pointer]),
        ("bpf_xdp_query", number, [number, number, pointer]),
        ("bpf_prog_attach_opts", number, [number, number, number, pointer]),
        ("bpf_prog_detach2", number, [number, number, number]),
        ("bpf_prog_query", number, [number, number, u32, pointer, pointer, pointer]),
        ("ring_buffer__new", pointer, [number, SAMPLE, pointer, pointer]),
        ("ring_buffer__poll", number, [pointer, number]),
        ("ring_buffer__consume", number, [pointer]),
        ("ring_buffer__free", None, [pointer]),
        ("libbpf_num_possible_cpus", number, []),
        ("libbpf_set_print", pointer, [_PRINT]),
    ):
        symbol = getattr(library, function)
        symbol.restype, symbol.argtypes = result, arguments
    library.libbpf_set_print(_HEARD)
    return library


def cpus() -> int:
    """Number of possible CPUs, which is the number of values of a per-CPU map entry."""
    return check(libbpf().libbpf_num_possible_cpus(), "asking for the number of CPUs")


def information(fd: int, info: InfoT) -> InfoT:
    """Query the kernel's information on a map or program."""
    size = ctypes.c_uint32(ctypes.sizeof(info))
    result = libbpf().bpf_obj_get_info_by_fd(fd, ctypes.byref(info), ctypes.byref(size))
    check(result, "asking the kernel about a map or program")
    return info


def check(result: int, what: str) -> int:
    """Return the result of a call unless it is an error code.

    Raises:
        BpfError: the result is an error code; ``what`` names the request.
    """
    if result < 0:
        raise errno_error(result, what)
    return result


def errno_error(result: int, what: str) -> BpfError:
    """Make the error for a call that returned ``-errno``."""
    number = -result
    if number in (errno.EPERM, errno.EACCES):
        why = f"not permitted: run as root, or with {RIGHTS}"
        if os.geteuid() == 0:
            why += "; this is root, so the kernel is locked down, or a container takes the rights"
    elif number == errno.EBUSY:
        why = "a program is attached there already"
    elif number == errno.EEXIST:
        why = "it is there already"
    else:
        why = os.strerror(number)
    return BpfError(f"{what}: {why}", number)


def without_perfmon() -> bool:
    """Return whether this process lacks CAP_PERFMON, which makes the verifier stricter."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    rights = next((int(s.split()[1], 16) for s in lines if s.startswith("CapEff:")), 0)
    return not rights >> _PERFMON & 1 and not rights >> _SYS_ADMIN & 1


# --- what libbpf says ----

recent_warnings: deque[str] = deque(maxlen=20)


def _hear(level: int, form: bytes, arguments: int) -> int:
    """Keep libbpf's warnings for the text of an error instead of printing them."""
    if level == 0:  # LIBBPF_WARN
        text = ctypes.create_string_buffer(4096)
        ctypes.CDLL(None).vsnprintf(
            text, ctypes.c_size_t(len(text)), form, ctypes.c_void_p(arguments)
        )
        recent_warnings.append(text.value.decode(errors="replace").strip())
    return 0


_HEARD = _PRINT(_hear)


def warning_suffix() -> str:
    """Return libbpf's first warning in brackets; empty if it gave none."""
    return f" (libbpf: {last_warning()})" if recent_warnings else ""


def last_warning() -> str:
    """Return libbpf's first warning: it names the cause, and later ones are consequences."""
    return recent_warnings[0].removeprefix("libbpf: ") if recent_warnings else "it says nothing"
