# SPDX-License-Identifier: Apache-2.0
"""TAP devices and network namespaces that exist for a ``with`` block.

Linux only. Needs root, ``/dev/net/tun`` and ``ip``.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from n3ic.errors import MissingDependencyError, N3icError, UsageError

TUN = Path("/dev/net/tun")
_TUNSETIFF = 0x400454CA  # linux/if_tun.h
_IFF_TAP_NO_PI = 0x1002
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")


def require() -> None:
    """Check that this machine can run a virtual card.

    Raises:
        MissingDependencyError: a tool or ``/dev/net/tun`` is missing.
        N3icError: this process is not root.
    """
    for tool, package in (("ip", "iproute2"), ("verilator", "verilator"), ("g++", "g++")):
        if shutil.which(tool) is None:
            raise MissingDependencyError(f"a virtual card needs {tool}: apt install {package}")
    if not TUN.exists():
        raise MissingDependencyError(
            f"a virtual card needs {TUN}: modprobe tun, or give it to the container "
            "(--device /dev/net/tun)"
        )
    if os.geteuid() != 0:
        raise N3icError("a virtual card needs root, to make TAP devices: run it with sudo")


def check_names(*names: str) -> None:
    """Check names of devices and namespaces.

    Raises:
        UsageError: Linux does not allow a name.
    """
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a device name: a letter, then 14 of A-Za-z0-9_.-")


@contextmanager
def namespace(name: str) -> Iterator[None]:
    """Create a network namespace for the block.

    Raises:
        N3icError: a namespace with that name exists, or the kernel refuses.
    """
    ip("netns", "add", name)
    try:
        yield
    finally:
        ip("netns", "del", name)


@contextmanager
def device(name: str, *, netns: str = "", address: str = "", mac: str = "") -> Iterator[int]:
    """Create and set up a TAP device for the block.

    Args:
        name: name of the device.
        netns: namespace that the device is moved to; empty to keep it in this process's own.
        address: IPv4 address with prefix length; empty for none.
        mac: MAC address; empty to let the kernel choose.

    Yields:
        Its file descriptor, in non-blocking mode.

    Raises:
        N3icError: a device with that name exists, or the kernel refuses.
    """
    descriptor = _open(name)
    try:
        inside = ["-n", netns] if netns else []
        if netns:
            ip("link", "set", name, "netns", netns)
        if mac:
            ip(*inside, "link", "set", name, "address", mac)
        if address:
            ip(*inside, "address", "add", address, "dev", name)
        ip(*inside, "link", "set", name, "up")
        yield descriptor
    finally:
        os.close(descriptor)


def _open(name: str) -> int:
    import fcntl

    descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        request = struct.pack("16sH22x", name.encode(), _IFF_TAP_NO_PI)
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
    except OSError as error:
        os.close(descriptor)
        raise N3icError(f"cannot make the TAP device {name}: {error.strerror}") from error
    return descriptor


def ip(*arguments: str) -> None:
    """Run the command ``ip``.

    Raises:
        N3icError: the command failed.
    """
    done = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    if done.returncode != 0:
        raise N3icError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
