# SPDX-License-Identifier: Apache-2.0
"""BPF object files, their programs, and test runs without an interface."""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from n3ic.exporters.xdp.libbpf.library import (
    BpfError,
    Closing,
    Descriptor,
    ProgramInfo,
    VerifierError,
    check,
    cpus,
    errno_error,
    information,
    last_warning,
    libbpf,
    recent_warnings,
    warning_suffix,
    without_perfmon,
)
from n3ic.exporters.xdp.libbpf.maps import BpfMap, map_by_id

_LOG_TRACE, _LOG_STATISTICS = 1, 4  # BPF_LOG_LEVEL1, BPF_LOG_STATS
_LOG_BYTES = 1 << 16
_TRACE_BYTES = 1 << 24
_LOG_LINES = 12
_OF_CPUS = "_of_cpus"  # suffix of the names of arrays with one entry per CPU
_NAME = 15  # characters of a name that the kernel keeps
_MAPS = 64  # maximum number of maps to query per program
_IN_PIECES, _WHOLE = b"xdp.frags\0", b"xdp\0frags\0"  # section names, as string tables hold them
_LIVE_FRAMES, _BATCH = 1 << 1, 64  # BPF_F_TEST_XDP_LIVE_FRAMES, and frames per batch


class _OpenOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("object_name", ctypes.c_char_p),
        ("relaxed_maps", ctypes.c_bool),
        ("pin_root_path", ctypes.c_char_p),
        ("attach_prog_fd", ctypes.c_uint32),
        ("kconfig", ctypes.c_char_p),
        ("btf_custom_path", ctypes.c_char_p),
        ("kernel_log_buf", ctypes.c_void_p),
        ("kernel_log_size", ctypes.c_size_t),
        ("kernel_log_level", ctypes.c_uint32),
    )


class _TestOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("data_in", ctypes.c_char_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_char_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


@dataclass(frozen=True)
class TestRun:
    """Result of a test run in the kernel (``BPF_PROG_TEST_RUN``).

    Attributes:
        result: return value of the program, such as an XDP action.
        data: packet after the run; empty if it was not requested.
        nanoseconds: mean time per run, including the kernel's own work.
    """

    __test__ = False  # tells pytest that this is not a test class

    result: int
    data: bytes
    nanoseconds: int


class BpfProgram(Descriptor):
    """A BPF program in the kernel.

    Args:
        fd: file descriptor.
        log: the verifier's log of loading the program; at least its statistics.
        owned: whether closing this object closes the descriptor.

    Attributes:
        id: the program's number in the kernel.
        name: name, truncated to 15 characters by the kernel.
        tag: the kernel's digest of the program's instructions.
        instructions: number of instructions after the verifier's rewriting; 0 if unknown.
        verified: number of instructions that the verifier processed.
        machine_bytes: size of the compiled program in bytes; 0 without the JIT.
    """

    def __init__(self, fd: int, log: str = "", *, owned: bool = False) -> None:
        super().__init__(fd, owned=owned)
        self.log = log
        info = information(fd, ProgramInfo())
        self.id, self.name = int(info.id), info.name.decode(errors="replace")
        self.tag = bytes(info.tag).hex()
        self.instructions = int(info.xlated_prog_len) // 8
        self.verified, self.machine_bytes = int(info.verified_insns), int(info.jited_prog_len)

    def maps(self) -> list[BpfMap]:
        """Open the maps that the program uses; the caller closes them."""
        ids = (ctypes.c_uint32 * _MAPS)()
        info = ProgramInfo(nr_map_ids=_MAPS, map_ids=ctypes.addressof(ids))
        return [map_by_id(n) for n in ids[: information(self.fd, info).nr_map_ids]]

    def test_run(
        self, data: bytes, *, repeat: int = 1, output: bool = False, context: bytes = b""
    ) -> TestRun:
        """Run the program in the kernel on a packet, without an interface.

        Args:
            data: packet of at least 14 bytes, preceded by the metadata that ``context`` announces.
            repeat: number of runs; the result holds their mean time.
            output: whether to return the packet.
            context: a ``struct xdp_md``; empty for none.

        Raises:
            BpfError: the kernel refuses the input, or test runs of this program type.
        """
        room = ctypes.create_string_buffer(len(data) + 512) if output else None
        options = _TestOptions(
            size=ctypes.sizeof(_TestOptions),
            data_in=data,
            data_size_in=len(data),
            data_out=ctypes.addressof(room) if room is not None else None,
            data_size_out=len(room) if room is not None else 0,
            ctx_in=context or None,
            ctx_size_in=len(context),
            repeat=repeat,
        )
        result = libbpf().bpf_prog_test_run_opts(self.fd, ctypes.byref(options))
        check(result, f"program {self.name}: the test run fails on {len(data)} bytes")
        out = room.raw[: options.data_size_out] if room is not None else b""
        return TestRun(int(options.retval), out, int(options.duration))

    def live_run(self, data: bytes, interface: int, repeat: int) -> int:
        """Run the program on frames as if an interface had received them, and execute its actions.

        ``XDP_TX`` sends them out of that interface.

        Args:
            data: the frame; changes by the program may persist in later runs.
            interface: index of the interface, in this thread's network namespace.
            repeat: number of frames.

        Returns:
            Mean nanoseconds per frame, including all work that this CPU did for it.

        Raises:
            BpfError: the kernel refuses the input, lacks live frames (before 5.18), or was
                interrupted by a signal.
        """
        context = struct.pack("=6I", 0, len(data), 0, interface, 0, 0)  # struct xdp_md
        options = _TestOptions(
            size=ctypes.sizeof(_TestOptions),
            data_in=data,
            data_size_in=len(data),
            ctx_in=context,
            ctx_size_in=len(context),
            repeat=repeat,
            flags=_LIVE_FRAMES,
            batch_size=_BATCH,
        )
        result = libbpf().bpf_prog_test_run_opts(self.fd, ctypes.byref(options))
        check(result, f"program {self.name}: live frames cannot be sent")
        return int(options.duration)


class BpfObject(Closing):
    """The maps and programs of an object file, loaded into the kernel.

    Closing removes them from the kernel, except for what is attached or pinned by then.

    Args:
        image: bytes of the object file.
        name: name for messages.
        entries: maximum entries of maps by name, if they differ from the file's.
        values: contents of global data maps (``.rodata``) by name.
        without: names of programs to leave out.
        frags: whether programs of the section ``xdp.frags`` accept packets in several pieces;
            otherwise they are loaded as section ``xdp``, which the file must then not contain.

    Attributes:
        maps: maps by name.
        programs: programs by name.

    Raises:
        MissingDependencyError: libbpf is not installed.
        VerifierError: the verifier refuses a program.
        BpfError: the file is damaged, a right is missing, or the kernel lacks a feature.
    """

    def __init__(
        self,
        image: bytes,
        name: str,
        *,
        entries: Mapping[str, int] | None = None,
        values: Mapping[str, bytes] | None = None,
        without: Sequence[str] = (),
        frags: bool = True,
    ) -> None:
        self.name = name
        arguments = (entries or {}, values or {}, without)
        image = image if frags else image.replace(_IN_PIECES, _WHOLE)
        try:
            loaded = _load(image, name, *arguments, _LOG_STATISTICS)
        except VerifierError:
            # Load again for the instruction trace, which is too slow to request the first time.
            loaded = _load(image, name, *arguments, _LOG_TRACE)
        self._pointer: Any = loaded[0]
        self.maps: dict[str, BpfMap] = loaded[1]
        self.programs: dict[str, BpfProgram] = loaded[2]

    def close(self) -> None:
        """Close the maps and programs."""
        if self._pointer:
            libbpf().bpf_object__close(self._pointer)
            self._pointer = None


def program_by_id(number: int) -> BpfProgram:
    """Open a program by its kernel number."""
    fd = libbpf().bpf_prog_get_fd_by_id(number)
    return BpfProgram(check(fd, f"program {number}"), owned=True)


def _load(
    image: bytes,
    name: str,
    entries: Mapping[str, int],
    values: Mapping[str, bytes],
    without: Sequence[str],
    level: int,
) -> tuple[Any, dict[str, BpfMap], dict[str, BpfProgram]]:
    """Load an object into the kernel; return its handle, maps and programs."""
    c = libbpf()
    recent_warnings.clear()
    with ExitStack() as stack:
        options = _OpenOptions(size=ctypes.sizeof(_OpenOptions), object_name=b"n3ic")
        opened = c.bpf_object__open_mem(image, len(image), ctypes.byref(options))
        if not opened:
            raise BpfError(f"{name}: libbpf cannot read this object: {last_warning()}")
        pointer = ctypes.c_void_p(opened)
        stack.callback(c.bpf_object__close, pointer)
        for map_name, size in entries.items():
            check(c.bpf_map__set_max_entries(_find_map(pointer, name, map_name), size), map_name)
        for map_name, value in values.items():
            place = _find_map(pointer, name, map_name)
            result = c.bpf_map__set_initial_value(place, value, len(value))
            check(result, f"{name}: {len(value)} bytes of global data {map_name} cannot be set")
        for _, place in _each(c.bpf_object__next_map, pointer):
            own = c.bpf_map__name(place).decode()
            if own.endswith(_OF_CPUS):
                check(c.bpf_map__set_max_entries(place, cpus()), own)
        bytes_ = _LOG_BYTES if level == _LOG_STATISTICS else _TRACE_BYTES
        logs: dict[str, Any] = {}
        for number, program in _each(c.bpf_object__next_program, pointer):
            if c.bpf_program__name(program).decode() in without:
                check(c.bpf_program__set_autoload(program, False), name)
                continue
            log = logs[number] = ctypes.create_string_buffer(bytes_)
            c.bpf_program__set_log_level(program, level)
            c.bpf_program__set_log_buf(program, log, bytes_)
        result = c.bpf_object__load(pointer)
        messages = {number: log.value.decode(errors="replace") for number, log in logs.items()}
        if result < 0:
            raise _load_error(result, name, messages)
        maps = {
            c.bpf_map__name(m).decode(): BpfMap(c.bpf_map__fd(m))
            for _, m in _each(c.bpf_object__next_map, pointer)
        }
        programs = {
            c.bpf_program__name(p).decode(): BpfProgram(c.bpf_program__fd(p), messages[number])
            for number, p in _each(c.bpf_object__next_program, pointer)
            if number in logs
        }
        stack.pop_all()
    return pointer, maps, programs


def _each(
    following: Callable[[Any, Any], Any], pointer: Any
) -> Iterator[tuple[str, ctypes.c_void_p]]:
    address = following(pointer, None)
    while address:
        yield str(address), ctypes.c_void_p(address)
        address = following(pointer, ctypes.c_void_p(address))


def _find_map(pointer: Any, name: str, map_name: str) -> ctypes.c_void_p:
    address = libbpf().bpf_object__find_map_by_name(pointer, map_name.encode())
    if not address:
        raise BpfError(f"{name}: has no map {map_name!r}", errno.ENOENT)
    return ctypes.c_void_p(address)


def _load_error(result: int, name: str, logs: Mapping[str, str]) -> BpfError:
    """Make the error for an object that was not loaded, with the verifier's log if there is one."""
    # The log of an accepted program ends with the verifier's statistics.
    log = next((log for log in reversed(list(logs.values())) if log.strip()), "")
    if not log or -result == errno.EPERM:
        error = errno_error(result, f"{name}: loading into the kernel")
        return BpfError(f"{error}{warning_suffix()}", error.number)
    end = "\n".join(f"  {line}" for line in log.strip().splitlines()[-_LOG_LINES:])
    why = ", and allows less without CAP_PERFMON" if without_perfmon() else ""
    return VerifierError(
        f"{name}: the kernel's verifier refuses the program{why}; its log ends:\n{end}",
        -result,
        log,
    )
