# SPDX-License-Identifier: Apache-2.0
"""Receives datagrams of a UDP socket into packet buffers, many per system call.

Python has no ``recvmmsg``, so it is called in the C library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import N3icError, UsageError
from n3ic.systems.stream.messages.buffers import PacketBuffers

_IOVEC = np.dtype([("base", "u8"), ("size", "u8")])
# struct mmsghdr of 64-bit Linux: a struct msghdr, then the bytes received.
_MMSGHDR = np.dtype(
    {
        "names": ["name", "name_size", "iov", "iov_count", "flags", "bytes"],
        "formats": ["u8", "u4", "u8", "u8", "u4", "u4"],
        "offsets": [0, 8, 16, 24, 48, 56],
        "itemsize": 64,
    }
)
_ADDRESS = 16  # bytes of a struct sockaddr_in
_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
_DROPS = 8  # index of the count of datagrams that a full buffer refused


def open_receiver(host: str, port: int = 0, buffer_bytes: int = 1 << 25) -> socket.socket:
    """Open a UDP socket with a large buffer.

    Args:
        host: an IPv4 address of this machine.
        port: port; 0 for any free one.
        buffer_bytes: size of the kernel's receive buffer; without privileges, at most
            ``net.core.rmem_max``.

    Raises:
        UsageError: The address cannot be bound.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise UsageError(f"{host}:{port}: {error.strerror or error}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
    except OSError:  # exceeding the limit needs a privilege
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    sock.setblocking(False)
    return sock


def refused_by_kernel(sock: socket.socket) -> int:
    """Number of datagrams for which the socket's buffer was full since it was opened."""
    words = struct.unpack("9I", sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36))
    return int(words[_DROPS])


class PacketReceiver:
    """Receives datagrams of a socket into packet buffers.

    Args:
        sock: a non-blocking UDP socket.
        buffers: slots for them; a datagram larger than a slot counts as damaged.

    Raises:
        UsageError: This system has no ``recvmmsg``.
    """

    def __init__(self, sock: socket.socket, buffers: PacketBuffers) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "recvmmsg") or ctypes.sizeof(ctypes.c_void_p) != 8:
            raise UsageError("receiving messages needs 64-bit Linux")
        self._sock, self._buffers = sock, buffers
        self._iov = np.zeros(buffers.slots, dtype=_IOVEC)
        starts = buffers.address + np.arange(buffers.slots, dtype=np.uint64) * buffers.stride
        self._iov["base"], self._iov["size"] = starts, buffers.stride
        self._names = np.zeros((buffers.slots, _ADDRESS), dtype=np.uint8)
        self._messages = np.zeros(buffers.slots, dtype=_MMSGHDR)
        slot = np.arange(buffers.slots, dtype=np.uint64)
        self._messages["name"] = self._names.ctypes.data + slot * _ADDRESS
        self._messages["iov"] = self._iov.ctypes.data + slot * _IOVEC.itemsize
        self._messages["iov_count"] = 1
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def receive(self, first: int, count: int, wait_s: float) -> int:
        """Receive up to ``count`` datagrams into the slots from ``first`` on.

        Args:
            first: a slot; ``first + count`` is at most the number of slots.
            count: the most datagrams to receive.
            wait_s: seconds to wait for the first one.

        Returns:
            The number of received datagrams. Their lengths are in the buffers' ``lengths``; a
            truncated one has 0.
        """
        if not self._poll.poll(1000 * wait_s):
            return 0
        part = self._messages[first : first + count]
        part["name_size"] = _ADDRESS
        flags = socket.MSG_DONTWAIT
        address = ctypes.c_void_p(self._messages.ctypes.data + first * _MMSGHDR.itemsize)
        datagrams = self._libc.recvmmsg(self._sock.fileno(), address, count, flags, None)
        if datagrams < 0:
            number = ctypes.get_errno()
            if number in (errno.EAGAIN, errno.EINTR, errno.ECONNREFUSED):
                return 0
            raise N3icError(f"receiving: {os.strerror(number)}")
        cut = (part["flags"][:datagrams] & socket.MSG_TRUNC) != 0
        self._buffers.lengths[first : first + datagrams] = np.where(
            cut, 0, part["bytes"][:datagrams]
        )
        return int(datagrams)

    def senders(self, first: int, count: int) -> NDArray[np.uint64]:
        """The senders of slots, ``port << 32 | IPv4 address``, uint64, shape ``(count,)``."""
        names = np.zeros((count, 8), dtype=np.uint8)
        names[:, 2:] = self._names[first : first + count, 2:8]
        return names.view(">u8")[:, 0].astype(np.uint64)
