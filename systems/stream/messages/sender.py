# SPDX-License-Identifier: Apache-2.0
"""Sends messages over UDP, many packets per system call if the kernel can segment them."""

from __future__ import annotations

import errno
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import N3icError, UsageError
from n3ic.systems.stream.messages.protocol import (
    HEADER_BYTES,
    check_part,
    last_bytes,
    packets_of,
)

_UDP_SEGMENT = 103  # the kernel cuts a block into datagrams of one size
_SEGMENTS = 64  # the most datagrams of one call
_DATAGRAM = 65_507


def first_number() -> int:
    """Draw a number for a sender's first message that earlier runs are unlikely to have used."""
    return secrets.randbits(63)


def read_message(path: Path) -> bytes:
    """Read a file as a message.

    Raises:
        UsageError: The file cannot be read, is empty, or is too large for a message.
    """
    try:
        size = path.stat().st_size
        if not 0 < size < 1 << 32:
            raise UsageError(f"{path}: expected a file of 1 to {2**32 - 1:,} bytes, got {size:,}")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


class MessageSender:
    """Sends messages to one receiver.

    Args:
        host: the receiver's IPv4 address or name.
        port: its port.
        part: bytes of a message in a packet.
        packets_per_s: the highest rate, in packets per second; 0 for no limit.

    Raises:
        UsageError: The receiver's name is unknown, or ``part`` is refused.
    """

    def __init__(self, host: str, port: int, part: int, packets_per_s: float = 0.0) -> None:
        try:
            check_part(part)
        except ValueError as error:
            raise UsageError(f"{error}") from error
        self.part = part
        self._interval = 1 / packets_per_s if packets_per_s else 0.0
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._sock.connect((host, port))
        except OSError as error:
            self._sock.close()
            raise UsageError(f"{host}:{port}: {error.strerror or error}") from error
        self._cut = 1
        try:
            self._sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, HEADER_BYTES + part)
            self._cut = max(1, min(_SEGMENTS, _DATAGRAM // (HEADER_BYTES + part)))
        except OSError:
            pass  # an older kernel: one call per packet

    def send(
        self,
        message: int,
        payload: bytes | NDArray[np.uint8],
        before: Callable[[int], None] | None = None,
    ) -> int:
        """Send a message.

        Args:
            message: its number, used once.
            payload: its bytes.
            before: called with the number of packets that are sent next.

        Returns:
            The number of packets.

        Raises:
            N3icError: The network refuses packets.
        """
        packets = packets_of(message, payload, self.part)
        end = packets.size - packets.shape[1] + last_bytes(len(payload), self.part)
        flat = packets.reshape(-1)[:end].data
        step = self._cut * packets.shape[1]
        due = time.monotonic()
        for start in range(0, end, step):
            block = flat[start : start + step]
            count = -(-len(block) // packets.shape[1])
            if before is not None:
                before(count)
            if self._interval:
                time.sleep(max(0.0, due - time.monotonic()))
                due += count * self._interval
            self._send(block)
        return len(packets)

    def _send(self, block: memoryview) -> None:
        step = self._cut * (HEADER_BYTES + self.part)
        if len(block) > step:
            for start in range(0, len(block), step):
                self._send(block[start : start + step])
            return
        try:
            self._sock.send(block)
        except ConnectionRefusedError:
            return  # nobody listens (yet, or any more): the packets are lost, as usual with UDP
        except OSError as error:
            if self._cut > 1 and error.errno in (errno.EINVAL, errno.EMSGSIZE, errno.EIO):
                # The packets exceed the MTU, so the kernel does not segment; IP fragments them.
                self._cut = 1
                self._sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 0)
                self._send(block)
                return
            raise N3icError(
                f"sending packets of {HEADER_BYTES + self.part} bytes: {error.strerror}"
            ) from error

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
