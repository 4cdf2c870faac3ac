# SPDX-License-Identifier: Apache-2.0
"""``shunted:SOCKET``: packets of flows that an XDP program shunts.

The program's policy hands them to AF_XDP sockets (``--policy shunt=socket:0``). The export's
program ``shunted`` takes them and sends them to whoever connects to its UNIX socket. A message
holds the sizes of the message and of the frame (32 bits each), the time in nanoseconds since 1970
(64 bits), what the kernel knows about the flow (80 bytes), and the frame. The meter sees a flow
only from the packet that decided it.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping

from n3ic.errors import DataError
from n3ic.meter.compiled import Frames
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.flows.gather import PACKETS
from n3ic.systems.stream.flows.source import FrameBatch, Position, Source

HEAD = struct.Struct("=IIQ80x")
_LARGEST = HEAD.size + (1 << 16)
_WAIT_MS = 100
_GRACE_NS = 10**9


class ShuntedSource(Source):
    """The packets of shunted flows.

    Args:
        path: the UNIX socket of ``shunted``.

    Raises:
        DataError: Nobody listens there.
    """

    link = LINK_ETHERNET

    def __init__(self, path: str) -> None:
        self.name = f"shunted:{path}"
        self._damaged = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise DataError(
                f"{self.name}: {error.strerror or error}; expected the socket of the export's "
                "shunted/shunted INTERFACE QUEUES SOCKET"
            ) from error
        self._socket.setblocking(False)

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Yield batches of packets as they come.

        Raises:
            DataError: The other side has ended.
        """
        waits = select.poll()
        waits.register(self._socket, select.POLLIN)
        while not self._stopped:
            frames, more = self._read()
            # The packets are stamped with this machine's clock, so it tells which are still due.
            quiet = 0 if more else time.time_ns() - _GRACE_NS
            yield FrameBatch({}, Frames.of(frames) if frames else None, quiet_ns=quiet)
            if not more:
                waits.poll(_WAIT_MS)

    def lost(self) -> Mapping[str, int]:
        """The number of malformed messages; ``shunted`` and ``status`` count earlier losses."""
        return {f"{self.name}: damaged messages": self._damaged}

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _read(self) -> tuple[list[tuple[bytes, int, int]], bool]:
        """Read frames with their lengths and times, and tell whether more may be waiting."""
        frames: list[tuple[bytes, int, int]] = []
        while len(frames) < PACKETS:
            try:
                message = self._socket.recv(_LARGEST)
            except BlockingIOError:
                return frames, False
            if not message:
                if frames:
                    return frames, True
                raise DataError(
                    f"{self.name}: shunted has ended; the packets before that are counted"
                )
            size, length, came_ns = HEAD.unpack_from(message.ljust(HEAD.size, b"\0"))
            if size != len(message) or size != HEAD.size + length:
                self._damaged += 1
                continue
            frames.append((message[HEAD.size :], length, came_ns))
        return frames, True


def open_source(rest: str, model: Classifier) -> ShuntedSource:
    """Connect to the socket of ``shunted`` by its path."""
    return ShuntedSource(rest)
