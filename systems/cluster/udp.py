# SPDX-License-Identifier: Apache-2.0
"""Endpoints on UDP sockets: the loop that moves datagrams and keeps the time."""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from n3ic.errors import ClusterError
from n3ic.systems.cluster.endpoint import Endpoint
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.protocol import HOME
from n3ic.util.signals import check

Address = tuple[str, int]
_BUFFER_BYTES = 1 << 22
_DATAGRAM_BYTES = 1 << 16
_BURST = 64  # datagrams read before answers are sent
_IDLE_S = 0.5


@dataclass(frozen=True)
class FaultInjection:
    """Faults that an endpoint injects into what it sends.

    Attributes:
        loss: fraction of the datagrams that are discarded.
        seed: seed of that choice.
    """

    loss: float = 0.0
    seed: int = 0


def open_socket(host: str, port: int = 0) -> socket.socket:
    """Open a UDP socket for an endpoint.

    Args:
        host: an IPv4 address of this machine.
        port: port; 0 for any free port.

    Raises:
        ClusterError: The socket cannot be bound.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise ClusterError(f"{host}:{port}: {error.strerror or error}") from error
    # A window of datagrams from a fast neighbour must fit while this process does not run.
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    sock.setblocking(False)
    return sock


class UdpEndpoint:
    """An endpoint's socket and the addresses of the other endpoints.

    Args:
        sock: socket from :func:`open_socket`; closed by :meth:`close`.
        addresses: addresses of the nodes that it sends to, by number.
        faults: faults to inject.

    Attributes:
        lost: number of datagrams that were discarded on purpose.
    """

    def __init__(
        self,
        sock: socket.socket,
        addresses: Mapping[int, Address],
        faults: FaultInjection | None = None,
    ) -> None:
        self.lost = 0
        self._sock = sock
        self._addresses = dict(addresses)
        self._faults = faults or FaultInjection()
        self._random = random.Random(self._faults.seed)  # noqa: S311 - faults, no secrets
        self._bell_in, self._bell_out = socket.socketpair()
        self._bell_in.setblocking(False)
        self._bell_out.setblocking(False)

    def send(self, node: int, data: bytes) -> None:
        """Send a datagram; one that the network refuses counts as lost."""
        if self._faults.loss and self._random.random() < self._faults.loss:
            self.lost += 1
            return
        with suppress(OSError):
            self._sock.sendto(data, self._addresses[node])

    def wait(self, seconds: float) -> list[bytes]:
        """Wait for datagrams or for :meth:`ring`; return those that have arrived."""
        # The bell is a socket, because select() waits for sockets only.
        select.select([self._sock, self._bell_in], [], [], seconds)
        with suppress(BlockingIOError):
            self._bell_in.recv(_DATAGRAM_BYTES)
        datagrams: list[bytes] = []
        with suppress(OSError):  # no more datagrams
            while len(datagrams) < _BURST:
                datagrams.append(self._sock.recv(_DATAGRAM_BYTES))
        return datagrams

    def ring(self) -> None:
        """End a :meth:`wait` of another thread; do nothing if the socket is closed."""
        with suppress(OSError):
            self._bell_out.send(b"\0")

    def close(self) -> None:
        """Close the sockets."""
        for sock in (self._sock, self._bell_in, self._bell_out):
            sock.close()


def run_endpoint(
    station: Endpoint,
    wire: UdpEndpoint,
    *,
    timing: LinkTiming | None = None,
    each: Callable[[float], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Run an endpoint until its session has ended.

    Packets are handled in a thread of their own, so the endpoint answers its neighbours while a
    kernel runs. After the end it acknowledges for a while, because the last acknowledgements may be
    lost.

    Args:
        station: the node or the coordinator.
        wire: socket of the endpoint.
        timing: timing of its links.
        each: called with the time before anything is sent.
        stopped: returns whether to leave at once.
    """

    def work() -> None:
        while station.work():
            wire.ring()

    worker = threading.Thread(target=work, name="n3ic cluster work", daemon=True)
    worker.start()
    try:
        _run(station, wire, timing or LinkTiming(), each, stopped)
    finally:
        station.stop_work()
        worker.join()


def _run(
    station: Endpoint,
    wire: UdpEndpoint,
    timing: LinkTiming,
    each: Callable[[float], None] | None,
    stopped: Callable[[], bool],
) -> None:
    # Long enough for two more retransmissions of a neighbour that missed the last acknowledgement.
    linger = 2 * timing.longest
    end: float | None = None
    while not stopped():
        check()
        now = time.monotonic()
        if each is not None:
            each(now)
        for node, data in station.outgoing(now):
            wire.send(node, data)
        if station.finished and end is None:
            end = now + linger
        if end is not None and now >= end:
            return
        due = [t for t in (station.wake, end) if t is not None]
        for data in wire.wait(max(0.0, min([now + _IDLE_S, *due]) - now)):
            station.receive(data, time.monotonic())


def neighbours(number: int, nodes: int, ring: Mapping[int, Address]) -> dict[int, Address]:
    """Return where an endpoint sends: predecessor, successor and, for errors, the coordinator.

    The last node and the first are neighbours, too.
    """
    numbers = {(number - 1) % (nodes + 1), (number + 1) % (nodes + 1), HOME}
    numbers |= {1: {nodes}, nodes: {1}}.get(number, set())
    return {node: ring[node] for node in numbers}
