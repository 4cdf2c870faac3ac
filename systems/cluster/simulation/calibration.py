# SPDX-License-Identifier: Apache-2.0
"""The clocks of a process node on this machine, measured: processor time, which load leaves alone.

A ring runs in this process on real sockets. What the first node's thread takes for rows of several
shapes, as the owner of all weights and as one that only passes packets on, is packets, datagrams
and slices of weights. The kernel is timed by itself; least squares tells the price of the others.
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
from n3ic.systems.cluster.binary import held_by, popcounter
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
_WEIGHTS = 1 << 30  # bytes of main memory that a process may take
_PINGS = 400
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class NodeMeasurement:
    """Nanoseconds of processor time of a process node.

    Attributes:
        packet: of each packet that comes or goes.
        datagram: of each datagram that comes or goes with packets, its acknowledgement included.
        slice: of one neuron's weights beside a task packet.
        row: of a row that is computed, beside these.
        hop: from one process to another through the kernel and the scheduler; elapsed time.
        error: the largest relative difference of the fit from what was measured.
    """

    packet: float
    datagram: float
    slice: float
    row: float
    hop: float
    error: float

    def toml(self, machine: str) -> str:
        """A ``node.toml`` with these clocks, which are nanoseconds.

        Args:
            machine: what it was measured on, for the source.
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
        shapes: inputs and classes of the models that it computes.
        rows: of each, one after the other.

    Raises:
        ClusterError: the ring did not run.
    """
    counts, seconds, slice_ = [], [], _slice_seconds()
    for shape in shapes:
        model = random_model(shape, np.random.default_rng(0))
        into, out = slices_of(shape[0]), -(-shape[1] // SCORES_PER_PACKET)
        grams_in, grams_out = -(-into // MAX_PACKETS), -(-out // MAX_PACKETS)
        counts.append([into + out, grams_in + grams_out, 1.0])
        spent = _row_seconds(model, _all_on(model, 1, 1), rows) - slice_ * shape[1] * into
        seconds.append(spent)
        counts.append([2 * into, 2 * grams_in, 0])
        seconds.append(_row_seconds(model, _all_on(model, 2, 2), rows))
    a, b = np.array(counts), np.array(seconds) * 1e9
    prices = _non_negative(a / b[:, None], np.ones(len(b)))
    error = float(np.max(np.abs(a @ prices / b - 1)))
    packet, datagram, row = (float(p) for p in prices)
    return NodeMeasurement(packet, datagram, slice_ * 1e9, row, _hop_seconds() * 1e9, error)


def _slice_seconds() -> float:
    """Processor time of one neuron's weights beside a task packet, in a large layer."""
    inputs, neurons = SHAPES[-1]
    weights = np.random.default_rng(0).random((neurons, inputs)) < 0.5
    count = popcounter(Connections(weights))
    words = pack(np.random.default_rng(1).random((1, inputs)) < 0.5)[0]
    best = np.inf
    for _ in range(_REPEATS + 1):
        began = time.thread_time()
        for _ in range(_PINGS):
            count(words)
        best = min(best, time.thread_time() - began)
    return float(best) / _PINGS / neurons / slices_of(inputs)


def _all_on(model: BinaryModel, nodes: int, owner: int) -> ModelPlacement:
    """A layer that one node of a ring has."""
    shares = (Share(owner, 0, model.shape[1]),)
    return ModelPlacement(
        model.digest, model.shape, nodes, (LayerPlacement(LayerSplit.OUTPUT, shares),)
    )


def _non_negative(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.optimize import nnls

    return np.asarray(nnls(a, b)[0])


def _row_seconds(model: BinaryModel, placement: ModelPlacement, rows: int) -> float:
    """Processor time of the first node's thread for a row, rows one after the other."""
    socks = [open_socket(_HOST) for _ in range(placement.nodes + 1)]
    ring = {i: sock.getsockname() for i, sock in enumerate(socks)}
    timing = LinkTiming()
    spent = [0.0]

    def each(_: float) -> None:
        if threading.current_thread() is threads[0]:
            spent[0] = time.thread_time()

    threads = []
    for number in range(1, placement.nodes + 1):
        node = Node(number, held_by(model, placement, number), model.digest)
        station = Endpoint(node, placement.nodes, timing=timing)
        wire = UdpEndpoint(socks[number], neighbours(number, placement.nodes, ring))
        words = {"timing": timing, "each": each}
        threads.append(threading.Thread(target=run_endpoint, args=(station, wire), kwargs=words))
    for thread in threads:
        thread.start()
    bits = np.random.default_rng(1).random((rows, model.input.n_bits)) < 0.5
    inputs, took = pack(bits), np.inf
    try:
        with Session(model, placement, RingLink(ring, timing=timing), socks[0]) as session:
            session.scores(inputs[:1])
            for _ in range(_REPEATS):
                began = spent[0]
                for row in inputs:
                    session.scores(row[None])
                took = min(took, spent[0] - began)
    finally:
        for thread in threads:
            thread.join()
    if took <= 0:
        raise ClusterError("the node's thread took no time that this machine's clock could show")
    return float(took) / rows


def _hop_seconds() -> float:
    """Elapsed time of the fastest datagrams from process to process, one way."""
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
