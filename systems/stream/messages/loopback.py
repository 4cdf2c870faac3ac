# SPDX-License-Identifier: Apache-2.0
"""A sender in a process of its own, that sends no more than the receiver has room for.

The receiver writes what it has seen into memory that both share, as a lossless link's flow
control would tell. Clocks are one: :func:`time.monotonic_ns` is the machine's.
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
_PATIENCE_S = 10.0  # packets that were lost are never seen
PACKETS, MESSAGES, STOP = range(3)  # what the receiver tells


class SendOrder(NamedTuple):
    """Messages to send.

    Attributes:
        port: the receiver's port on loopback.
        first: number of the first message.
        rows: rows of the payloads that were loaded.
        part: bytes of a message in a packet.
        ahead: messages that may be sent and not ended.
    """

    port: int
    first: int
    rows: range
    part: int
    ahead: int = 1


def serve(orders: Connection, told: Any, window: int) -> None:
    """Send what is ordered, until the orders end.

    Args:
        orders: gives payloads, a uint8 array of a row a message, and :class:`SendOrder`. Gets
            when each message of an order began, in nanoseconds.
        told: shared counters of what the receiver has seen.
        window: packets that may be sent and not seen.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the receiver ends it
    payloads: NDArray[np.uint8] = np.zeros((0, 0), dtype=np.uint8)
    packets = messages = 0

    receiver = os.getppid()

    def await_room(counter: int, least: int) -> bool:
        """Wait until the receiver has told so much; give up on what is lost, and if it died."""
        end = time.monotonic() + _PATIENCE_S
        while told[counter] < least and not told[STOP]:
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
            packets = told[PACKETS] + count

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
            if told[STOP]:
                break
            begun.append(time.monotonic_ns())
            sender.send(order.first + i, payloads[row], room)
        sender.close()
        try:
            orders.send(begun)
        except OSError:
            return  # the receiver is gone


class LoopbackSender:
    """The process that sends, and the counters that it waits for.

    Attributes:
        process: the process.
    """

    def __init__(self, window: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._told = context.RawArray("Q", 3)
        self._orders, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self._told, window), daemon=True)
        self.process.start()
        theirs.close()

    def load(self, payloads: NDArray[np.uint8]) -> None:
        """Hand messages over, a row each, and count from nothing; all orders must be done."""
        self.tell(0, 0)
        self._orders.send(payloads)

    def order(self, order: SendOrder) -> None:
        """Have messages sent."""
        self._orders.send(order)

    def tell(self, packets: int, messages: int) -> None:
        """Tell how many packets were seen, and how many messages ended, of all orders."""
        self._told[PACKETS], self._told[MESSAGES] = packets, messages

    def begun(self) -> list[int] | None:
        """When each message of the oldest order began; None while it is being sent.

        Raises:
            N3icError: the sender died.
        """
        try:
            return self._orders.recv() if self._orders.poll() else None
        except (EOFError, OSError) as error:
            raise N3icError("the sending process died") from error

    def close(self) -> None:
        """End the process."""
        self._told[STOP] = 1
        self._orders.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def loopback_sender(window: int = 1024) -> Iterator[LoopbackSender]:
    """A sender to ports of this machine, while the block runs.

    Args:
        window: packets that may be sent and not seen; the socket's buffer must hold them.
    """
    sender = LoopbackSender(window)
    try:
        yield sender
    finally:
        sender.close()
