# SPDX-License-Identifier: Apache-2.0
"""Creates veth links in a separate network namespace."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from n3ic.errors import MissingDependencyError
from n3ic.exporters.xdp.libbpf import BpfError

_SET_GRO = 0x2C  # ETHTOOL_SGRO
_CLONE_NEWNET = 0x40000000
_ETHTOOL = 0x8946  # SIOCETHTOOL
_IP_S = 10


@contextmanager
def own_network() -> Iterator[None]:
    """Give this thread, and all it starts in the block, a network namespace of their own.

    The kernel removes the namespace and everything in it once all of them have left or ended.

    Raises:
        MissingDependencyError: ``ip`` is not installed.
        BpfError: the kernel refuses.
    """
    if shutil.which("ip") is None:
        raise MissingDependencyError("a link needs ip: apt-get install iproute2")
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as outside:  # noqa: PTH123 - held for its descriptor
        if libc.unshare(_CLONE_NEWNET):
            number = ctypes.get_errno()
            raise BpfError(f"a network namespace: {os.strerror(number)}", number)
        try:
            yield
        finally:
            if libc.setns(outside.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "the network namespace cannot be left")


def add_link(one: str, other: str) -> None:
    """Add a veth pair that is up and sends no packets of its own: no IPv6, no ARP.

    Raises:
        BpfError: the kernel refuses.
    """
    run_ip("link", "add", one, "type", "veth", "peer", "name", other)
    for name in (one, other):
        run_ip("link", "set", name, "addrgenmode", "none")  # no IPv6 packets of its own
        run_ip("link", "set", name, "arp", "off", "up")


def run_ip(*words: str) -> None:
    """Run ``ip``.

    Raises:
        BpfError: ``ip`` fails.
    """
    command = ("ip", *words)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_IP_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BpfError(f"{' '.join(command)}: {error}", 0) from error
    if done.returncode:
        raise BpfError(f"{' '.join(command)}: {done.stderr.strip()}", 0)


def switch_gro_on(name: str) -> None:
    """Switch generic receive offload of an interface on, as ethtool does.

    Raises:
        BpfError: the kernel refuses.
    """
    value = ctypes.create_string_buffer(struct.pack("=II", _SET_GRO, 1))
    request = struct.pack("=16sQ16x", name.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        try:
            fcntl.ioctl(channel, _ETHTOOL, request)
        except OSError as error:
            raise BpfError(f"{name}: GRO: {error.strerror}", error.errno or 0) from error
