# SPDX-License-Identifier: Apache-2.0
"""A sender in a separate process, which never sends more than the receiver has room for.

The receiver writes what it has seen into shared memory, like the flow control of a lossless link.
Both use the same clock, because :func:`time.monotonic_ns` is the machine's.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import N3icError
from n3ic.systems.stream.messages.sender import MessageSender

_PAUSE_S = 50e-6
_PATIENCE_S = 10.0  # then packets that were not seen count as lost
PACKETS, MESSAGES, STOP = range(3)  # indices of the receiver's counters


class SendOrder(NamedTuple):
    """Messages to send.

    Attributes:
        port: the receiver's port on loopback.
        first: number of the first message.
        rows: rows of the loaded payloads.
        part: bytes of a message in a packet.
        ahead: the most messages that are sent but not ended.
    """

    port: int
    first: int
    rows: range
    part: int
    ahead: int = 1


def serve(orders: Connection, counters: Any, window: int) -> None:
    """Execute orders to send until they end.

    Args:
        orders: delivers payloads, a uint8 array with a row per message, and instances of
            :class:`SendOrder`. Gets the start times of an order's messages, in nanoseconds.
        counters: shared counters of what the receiver has seen.
        window: the most packets that are sent but not seen.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the receiver ends this process
    payloads: NDArray[np.uint8] = np.zeros((0, 0), dtype=np.uint8)
    packets = messages = 0

    receiver = os.getppid()

    def await_room(counter: int, least: int) -> bool:
        """Wait until a counter reaches ``least``, or give up; exit if the receiver has died."""
        end = time.monotonic() + _PATIENCE_S
        while counters[counter] < least and not counters[STOP]:
            if time.monotonic() > end:
                return False
            if os.getppid() != receiver:
                sys.exit()
            time.sleep(_PAUSE_S)
        return True

    def room(count: int) -> None:
        nonlocal packets
        packets += count
        if not await_room(PACKETS, packets - window):
            packets = counters[PACKETS] + count

    while True:
        try:
            order = orders.recv()
        except (EOFError, OSError):
            return
        if not isinstance(order, SendOrder):
            payloads, packets, messages = order, 0, 0
            continue
        begun = []
        sender = MessageSender("127.0.0.1", order.port, order.part)
        for i, row in enumerate(order.rows):
            messages += 1
            await_room(MESSAGES, messages - order.ahead)
            if counters[STOP]:
                break
            begun.append(time.monotonic_ns())
            sender.send(order.first + i, payloads[row], room)
        sender.close()
        try:
            orders.send(begun)
        except OSError:
            return  # the receiver has ended


class LoopbackSender:
    """The sending process, and the counters that it waits for.

    Attributes:
        process: the process.
    """

    def __init__(self, window: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._counters = context.RawArray("Q", 3)
        self._orders, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, args=(theirs, self._counters, window), daemon=True
        )
        self.process.start()
        theirs.close()

    def load(self, payloads: NDArray[np.uint8]) -> None:
        """Hand over messages, one per row, and reset the counters; all orders must be done."""
        self.report_counts(0, 0)
        self._orders.send(payloads)

    def order(self, order: SendOrder) -> None:
        """Have messages sent."""
        self._orders.send(order)

    def report_counts(self, packets: int, messages: int) -> None:
        """Report how many packets of all orders were seen, and how many messages have ended."""
        self._counters[PACKETS], self._counters[MESSAGES] = packets, messages

    def begun(self) -> list[int] | None:
        """When each message of the oldest order was started; None while it is being sent.

        Raises:
            N3icError: The sender died.
        """
        try:
            return self._orders.recv() if self._orders.poll() else None
        except (EOFError, OSError) as error:
            raise N3icError("the sending process died") from error

    def close(self) -> None:
        """End the process."""
        self._counters[STOP] = 1
        self._orders.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def loopback_sender(window: int = 1024) -> Iterator[LoopbackSender]:
    """Run a sender to ports of this machine during the block.

    Args:
        window: the most packets that are sent but not seen; the socket's buffer must hold them.
    """
    sender = LoopbackSender(window)
    try:
        yield sender
    finally:
        sender.close()
