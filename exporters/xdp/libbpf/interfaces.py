# SPDX-License-Identifier: Apache-2.0
"""Programs on interfaces: at XDP, and at tcx, where a program is attached in both directions."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import socket
import struct
from dataclasses import dataclass
from typing import Literal

from n3ic.errors import UsageError
from n3ic.exporters.xdp.libbpf.library import BpfError, check, libbpf
from n3ic.exporters.xdp.libbpf.programs import BpfProgram

AttachMode = Literal["native", "generic", "offload", "tcx"]

_FLAGS: dict[AttachMode, int] = {"generic": 1 << 1, "native": 1 << 2, "offload": 1 << 3}
_MODES: dict[int, AttachMode] = {1: "native", 2: "generic", 3: "offload"}  # XDP_ATTACHED_*
_IF_NONE = 1  # XDP_FLAGS_UPDATE_IF_NOEXIST
_DIRECTIONS = (46, 47)  # BPF_TCX_INGRESS, BPF_TCX_EGRESS, which libbpf 1.1 does not name
_REPLACE = 1 << 2  # BPF_F_REPLACE
_AT_MOST = 64  # the kernel's maximum number of programs per direction
_SIOCGIFHWADDR = 0x8927
_ETHERNET = (1, 772)  # ARPHRD_ETHER, ARPHRD_LOOPBACK


class _AttachOptions(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("old_prog_fd", ctypes.c_int))


class _ProgAttachOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("flags", ctypes.c_uint),
        ("replace_prog_fd", ctypes.c_int),
    )


class _QueryOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("prog_id", ctypes.c_uint32),
        ("drv_prog_id", ctypes.c_uint32),
        ("hw_prog_id", ctypes.c_uint32),
        ("skb_prog_id", ctypes.c_uint32),
        ("attach_mode", ctypes.c_uint8),
    )


@dataclass(frozen=True)
class AttachedProgram:
    """The program attached to an interface.

    Attributes:
        program_id: the program's number in the kernel.
        mode: attach mode; None if several programs are attached, one per mode.
    """

    program_id: int
    mode: AttachMode | None


def has_ethernet(interface: int) -> bool:
    """Return whether an interface's packets begin with an Ethernet header.

    Those of tun, PPP, GRE and WireGuard do not; the kernel shows them to programs without one.

    Raises:
        BpfError: no interface has that index.
    """
    name = _interface(interface)
    request = struct.pack("=16s24x", name.encode())
    with socket.socket() as channel:  # not /sys, which may show another network namespace
        try:
            answer = fcntl.ioctl(channel, _SIOCGIFHWADDR, request)
        except OSError as error:
            raise BpfError(
                f"{name}: the type of the interface cannot be read: {error.strerror}",
                error.errno or 0,
            ) from error
    return struct.unpack_from("=H", answer, 16)[0] in _ETHERNET


def check_ethernet(interface: int) -> None:
    """Check that an interface's packets begin with an Ethernet header, as programs expect.

    Raises:
        UsageError: they do not.
        BpfError: no interface has that index.
    """
    if not has_ethernet(interface):
        name = _interface(interface)
        raise UsageError(
            f"{name}: its packets have no Ethernet header, which programs need (tun, PPP, GRE and "
            f"WireGuard have none): n3ic stream {name} reads them"
        )


def attach(
    interface: int, program: BpfProgram, mode: AttachMode, *, replaces: BpfProgram | None = None
) -> None:
    """Attach a program to an interface.

    Args:
        interface: index of the interface.
        program: program to attach.
        mode: ``native`` (in the driver), ``generic`` (in the stack) or ``offload`` for XDP; ``tcx``
            for both directions of tcx, after the programs that are already attached there.
        replaces: attached program to replace atomically; None if the interface must be free.

    Raises:
        UsageError: the interface's packets have no Ethernet header.
        BpfError: another program is attached, or the driver does not support the mode
            (``number`` is then ``errno.EOPNOTSUPP``).
    """
    check_ethernet(interface)
    if mode == "tcx":
        _attach_tcx(interface, program, replaces)
        return
    options = _AttachOptions(ctypes.sizeof(_AttachOptions), replaces.fd if replaces else 0)
    flags = _FLAGS[mode] | (0 if replaces else _IF_NONE)
    result = libbpf().bpf_xdp_attach(interface, program.fd, flags, ctypes.byref(options))
    check(result, f"cannot attach {program.name} to {_interface(interface)}, {mode}")


def _attach_tcx(interface: int, program: BpfProgram, replaces: BpfProgram | None) -> None:
    options = _ProgAttachOptions(ctypes.sizeof(_ProgAttachOptions))
    if replaces:
        options.flags, options.replace_prog_fd = _REPLACE, replaces.fd
    for direction in _DIRECTIONS:
        result = libbpf().bpf_prog_attach_opts(
            program.fd, interface, direction, ctypes.byref(options)
        )
        if result < 0:
            detach(interface, "tcx", program)
        hint = " (tcx needs Linux 6.6)" if result == -errno.EINVAL else ""
        check(result, f"cannot attach {program.name} to {_interface(interface)}, tcx{hint}")


def detach(interface: int, mode: AttachMode, program: BpfProgram | None = None) -> None:
    """Detach a program from an interface.

    Args:
        interface: index of the interface.
        mode: mode in which the program was attached.
        program: program that must be attached; for XDP, None detaches any program.
    """
    if mode == "tcx":
        if program is None:
            raise ValueError("several programs may stand at tcx: name the one to detach")
        for direction in _DIRECTIONS:
            result = libbpf().bpf_prog_detach2(program.fd, interface, direction)
            if result != -errno.ENOENT:
                check(result, f"cannot detach from {_interface(interface)}, tcx")
        return
    options = _AttachOptions(ctypes.sizeof(_AttachOptions), program.fd if program else 0)
    result = libbpf().bpf_xdp_detach(interface, _FLAGS[mode], ctypes.byref(options))
    check(result, f"cannot detach from {_interface(interface)}, {mode}")


def query(interface: int) -> AttachedProgram | None:
    """Return the XDP program attached to an interface, or None."""
    options = _QueryOptions(size=ctypes.sizeof(_QueryOptions))
    result = libbpf().bpf_xdp_query(interface, 0, ctypes.byref(options))
    check(result, f"cannot read the program of {_interface(interface)}")
    if not options.attach_mode:
        return None
    several = (options.drv_prog_id, options.skb_prog_id, options.hw_prog_id)
    number = int(options.prog_id) or next((int(n) for n in several if n), 0)
    return AttachedProgram(number, _MODES.get(int(options.attach_mode)))


def tcx_programs(interface: int) -> list[int]:
    """Return the ids of an interface's tcx programs without repetition, ingress first."""
    identifiers: dict[int, None] = {}
    for direction in _DIRECTIONS:
        numbers, count = (ctypes.c_uint32 * _AT_MOST)(), ctypes.c_uint32(_AT_MOST)
        result = libbpf().bpf_prog_query(
            interface, direction, 0, None, numbers, ctypes.byref(count)
        )
        if result == -errno.EINVAL:  # a kernel before 6.6
            return []
        check(result, f"cannot list the programs of {_interface(interface)}, tcx")
        identifiers |= dict.fromkeys(numbers[: count.value])
    return list(identifiers)


def _interface(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:
        return f"interface {index}"
