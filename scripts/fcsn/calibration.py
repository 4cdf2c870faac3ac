# SPDX-License-Identifier: Apache-2.0
"""Measure the clocks of a process node on this machine in processor time, which ignores load.

A ring runs in this process on real sockets. The first node's thread computes rows of several
shapes, once with all weights and once only passing packets on. Its time is the sum of the costs of
packets, datagrams, slices of weights and rows. The cost of a slice is measured alone, and least
squares gives the others.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.model.bits import pack
from n3ic.model.layers import Connections
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.systems.cluster.binary import counting, parts_of
from n3ic.systems.cluster.endpoint import Endpoint
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.node import Node
from n3ic.systems.cluster.placement import LayerPlacement, LayerSplit, ModelPlacement, Share
from n3ic.systems.cluster.protocol import MAX_PACKETS, SCORES_PER_PACKET
from n3ic.systems.cluster.session import RingLink, Session
from n3ic.systems.cluster.traffic import slices_of
from n3ic.systems.cluster.udp import Address, UdpEndpoint, neighbours, open_socket, run_endpoint

SHAPES = ((384, 2), (8448, 2), (384, 768), (4096, 2048))
_ROWS = 40
_REPEATS = 2
_WEIGHTS = 1 << 30  # bytes of main memory that a process may use
_PINGS = 400
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class NodeMeasurement:
    """Nanoseconds of processor time of a process node.

    Attributes:
        packet: cost of each received or sent packet.
        datagram: cost of each received or sent datagram with packets, its acknowledgement included.
        slice: cost of one neuron's weights for one task packet.
        row: remaining cost of each computed row.
        hop: elapsed time between two processes, through the kernel and the scheduler.
        error: the largest relative difference between fit and measurement.
    """

    packet: float
    datagram: float
    slice: float
    row: float
    hop: float
    error: float

    def toml(self, machine: str) -> str:
        """Make a ``node.toml`` with these clocks, which are nanoseconds.

        Args:
            machine: description of the measured machine, for the source.
        """
        return (
            f'clock_mhz = 1000 # nanoseconds\nkind = "measured"\n'
            f'source = "processor time of a process node on {machine}; '
            f'fit within {self.error:.0%}"\n'
            f'memory = "dram"\ntogether = {MAX_PACKETS}\nserial = true\n'
            f"\n[bytes]\nweights = {_WEIGHTS}\n"
            f"\n[clocks]\nslice = {self.slice:.3f}\npacket = {self.packet:.0f}\n"
            f"datagram = {self.datagram:.0f}\nclassify = 0\nforward = 0\n"
            f"compute = {self.row:.0f}\nresult = 0\n"
        )


def measure_node(shapes: Sequence[tuple[int, int]] = SHAPES, rows: int = _ROWS) -> NodeMeasurement:
    """Measure a process node on this machine.

    Args:
        shapes: inputs and classes of the models to compute.
        rows: rows of each model, computed one after another.

    Raises:
        ClusterError: The ring did not run.
    """
    counts, seconds, slice_ = [], [], _slice_seconds()
    for shape in shapes:
        model = random_model(shape, np.random.default_rng(0))
        into, out = slices_of(shape[0]), -(-shape[1] // SCORES_PER_PACKET)
        grams_in, grams_out = -(-into // MAX_PACKETS), -(-out // MAX_PACKETS)
        # The first node computes: it receives the inputs and sends the scores.
        counts.append([into + out, grams_in + grams_out, 1.0])
        spent = _row_seconds(model, _all_on(model, 1, 1), rows) - slice_ * shape[1] * into
        seconds.append(spent)
        # The first node relays: it receives and sends the inputs, and computes nothing.
        counts.append([2 * into, 2 * grams_in, 0])
        seconds.append(_row_seconds(model, _all_on(model, 2, 2), rows))
    a, b = np.array(counts), np.array(seconds) * 1e9
    # Dividing each equation by its measurement minimises relative errors: shapes differ in time
    # by orders of magnitude. A cost cannot be negative.
    prices = _non_negative(a / b[:, None], np.ones(len(b)))
    error = float(np.max(np.abs(a @ prices / b - 1)))
    packet, datagram, row = (float(p) for p in prices)
    return NodeMeasurement(packet, datagram, slice_ * 1e9, row, _hop_seconds() * 1e9, error)


def _slice_seconds() -> float:
    """Measure the processor time of one neuron's weights per task packet, in a large layer."""
    inputs, neurons = SHAPES[-1]
    weights = np.random.default_rng(0).random((neurons, inputs)) < 0.5
    count = counting(Connections(weights)).compute
    words = pack(np.random.default_rng(1).random((1, inputs)) < 0.5)
    best = np.inf
    for _ in range(_REPEATS + 1):
        began = time.thread_time()
        for _ in range(_PINGS):
            count(words)
        best = min(best, time.thread_time() - began)
    return float(best) / _PINGS / neurons / slices_of(inputs)


def _all_on(model: BinaryModel, nodes: int, owner: int) -> ModelPlacement:
    """Place a model's only layer on one node of a ring."""
    shares = (Share(owner, 0, model.shape[1]),)
    return ModelPlacement(
        model.digest, model.shape, nodes, (LayerPlacement(LayerSplit.OUTPUT, shares),)
    )


def _non_negative(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.optimize import nnls

    return np.asarray(nnls(a, b)[0])


class _TimedEndpoint(Endpoint):
    """An endpoint that notes the processor time of the thread that handles its packets."""

    handled = 0.0

    def work(self) -> bool:
        """Handle a packet; see :meth:`Endpoint.work`."""
        goes_on = super().work()
        self.handled = time.thread_time()
        return goes_on


def _row_seconds(model: BinaryModel, placement: ModelPlacement, rows: int) -> float:
    """Measure the first node's processor time per row, with rows one after another."""
    socks = [open_socket(_HOST) for _ in range(placement.nodes + 1)]
    ring = {i: sock.getsockname() for i, sock in enumerate(socks)}
    timing = LinkTiming()
    moved = [0.0]

    def each(_: float) -> None:
        if threading.current_thread() is threads[0]:
            moved[0] = time.thread_time()

    threads: list[threading.Thread] = []
    stations: list[_TimedEndpoint] = []
    for number in range(1, placement.nodes + 1):
        node = Node(number, parts_of(model, placement, number), model.digest)
        station = _TimedEndpoint(node, placement.nodes, timing=timing)
        stations.append(station)
        wire = UdpEndpoint(socks[number], neighbours(number, placement.nodes, ring))
        words = {"timing": timing, "each": each}
        threads.append(threading.Thread(target=run_endpoint, args=(station, wire), kwargs=words))
    for thread in threads:
        thread.start()
    bits = np.random.default_rng(1).random((rows, model.input.n_bits)) < 0.5
    inputs, took = pack(bits), np.inf
    try:
        with Session(model, placement, RingLink(ring, timing=timing), socks[0]) as session:
            # The first row warms up caches and the compiled kernel.
            session.scores(inputs[:1])
            for _ in range(_REPEATS):
                began = moved[0] + stations[0].handled
                for row in inputs:
                    session.scores(row[None])
                # The minimum is the run that other processes disturbed least.
                took = min(took, moved[0] + stations[0].handled - began)
    finally:
        for thread in threads:
            thread.join()
    if took <= 0:
        raise ClusterError("the node's thread took too little time for this machine's clock")
    return float(took) / rows


def _hop_seconds() -> float:
    """Measure the elapsed one-way time of the fastest datagram between two processes."""
    with open_socket(_HOST) as here, open_socket(_HOST) as there:
        other = get_context("fork").Process(
            target=_echo, args=(there, here.getsockname()), daemon=True
        )
        other.start()
        here.settimeout(2.0)
        best = np.inf
        try:
            for _ in range(_PINGS):
                began = time.perf_counter()
                here.sendto(b"ping", there.getsockname())
                here.recv(16)
                best = min(best, time.perf_counter() - began)
        except OSError as error:
            raise ClusterError(f"datagrams on {_HOST} do not arrive: {error}") from error
        finally:
            other.kill()
            other.join()
    return float(best) / 2


def _echo(sock: socket.socket, back: Address) -> None:
    sock.setblocking(True)
    while True:
        sock.sendto(sock.recv(16), back)
