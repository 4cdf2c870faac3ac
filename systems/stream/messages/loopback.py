# SPDX-License-Identifier: Apache-2.0
"""A sender in a process of its own, that sends no more than the receiver has room for.

The receiver writes what it has seen into memory that both share, as a lossless link's flow
control would tell. Clocks are one: :func:`time.monotonic_ns` is the machine's.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.systems.stream.messages.sender import MessageSender

_PAUSE_S = 50e-6
_PATIENCE_S = 10.0  # packets that were lost are never seen
PACKETS, MESSAGES, STOP = range(3)  # what the receiver tells


def serve(port: int, orders: Connection, told: Any, window: int) -> None:
    """Send what is ordered, until the orders end.

    Args:
        port: the receiver's port on loopback.
        orders: gives ``(first number, payloads, part, ahead)``: rows of messages, bytes of a
            packet, and messages that may be sent and not computed. Gets when each message began,
            in nanoseconds.
        told: shared counters of what the receiver has seen.
        window: packets that may be sent and not seen.
    """
    packets = 0

    def await_room(count: int, counter: int, most: int) -> None:
        end = time.monotonic() + _PATIENCE_S
        while count - told[counter] > most and not told[STOP] and time.monotonic() < end:
            time.sleep(_PAUSE_S)

    while True:
        try:
            order = orders.recv()
        except EOFError:
            return
        first, payloads, part, ahead = order
        sender = MessageSender("127.0.0.1", port, part)
        packets, begun = told[PACKETS], []
        before = told[MESSAGES]

        def room(count: int) -> None:
            nonlocal packets
            await_room(packets + count, PACKETS, window)
            packets += count

        for i, payload in enumerate(payloads):
            await_room(before + i + 1, MESSAGES, ahead)
            if told[STOP]:
                break
            begun.append(time.monotonic_ns())
            sender.send(first + i, payload, room)
        sender.close()
        orders.send(begun)


class LoopbackSender:
    """The process that sends, and the counters that it waits for.

    Attributes:
        process: the process.
    """

    def __init__(self, port: int, window: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._told = context.RawArray("Q", 3)
        self._orders, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, args=(port, theirs, self._told, window), daemon=True
        )
        self.process.start()
        theirs.close()

    def order(self, first: int, payloads: NDArray[np.uint8], part: int, ahead: int = 1) -> None:
        """Have messages sent: rows of ``payloads``, numbered from ``first`` on."""
        self._orders.send((first, payloads, part, ahead))

    def tell(self, packets: int, messages: int) -> None:
        """Tell how many packets were seen and how many messages were computed or lost."""
        self._told[PACKETS], self._told[MESSAGES] = packets, messages

    def begun(self) -> list[int] | None:
        """When each message of the last order began; None while it is being sent."""
        return self._orders.recv() if self._orders.poll() else None

    def close(self) -> None:
        """End the process."""
        self._told[STOP] = 1
        self._orders.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def loopback_sender(port: int, window: int = 1024) -> Iterator[LoopbackSender]:
    """A sender to a port of this machine, while the block runs.

    Args:
        port: the port.
        window: packets that may be sent and not seen; the socket's buffer must hold them.
    """
    sender = LoopbackSender(port, window)
    try:
        yield sender
    finally:
        sender.close()
