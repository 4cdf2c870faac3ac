# SPDX-License-Identifier: Apache-2.0
"""A ring in memory: stations, and a network that loses, repeats, delays and damages."""

import heapq
import itertools

import numpy as np

from n3ic.systems.cluster.binary import parts_of
from n3ic.systems.cluster.coordinator import Coordinator, RowFlow
from n3ic.systems.cluster.dense import GemmFlow
from n3ic.systems.cluster.endpoint import CARD, Endpoint
from n3ic.systems.cluster.kernels import GemmKernel, JobFlow
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.memory import TileMemory, model_layout
from n3ic.systems.cluster.node import Node


def has_work(station):
    """Whether received packets wait to be handled."""
    return not station._inbox.empty() and not station.failed


class Network:
    """Datagrams with the faults of a seeded generator; time is simulated, in seconds."""

    def __init__(self, stations, seed=0, loss=0.0, repeat=0.0, damage=0.0, jitter=0.0):
        self.stations = stations
        self.rng = np.random.default_rng(seed)
        self.loss, self.repeat, self.damage, self.jitter = loss, repeat, damage, jitter
        self.now = 0.0
        self.dead = set()
        self.sent = 0
        self._flying = []
        self._count = itertools.count()

    def _launch(self, node, data):
        self.sent += 1
        copies = 1 + (self.rng.random() < self.repeat)
        for _ in range(copies):
            if self.rng.random() < self.loss:
                continue
            copy = self._damaged(data) if self.rng.random() < self.damage else data
            delay = 1e-4 + self.jitter * self.rng.random()
            heapq.heappush(self._flying, (self.now + delay, next(self._count), node, copy))

    def _damaged(self, data):
        raw = bytearray(data)
        kind = self.rng.integers(3)
        if kind == 0:
            return bytes(raw[: self.rng.integers(len(raw))])
        for _ in range(self.rng.integers(1, 6)):
            raw[self.rng.integers(len(raw))] ^= 1 << self.rng.integers(8)
        return bytes(raw)

    def run(self, until, limit=600.0):
        """Let time pass until a condition holds; False where nothing more happens."""
        while not until():
            for number, station in self.stations.items():
                if number not in self.dead:
                    while has_work(station):
                        station.work()
                    for node, data in station.outgoing(self.now):
                        self._launch(node, data)
            if until():
                return True
            wakes = [
                s.wake
                for n, s in self.stations.items()
                if n not in self.dead and s.wake is not None
            ]
            times = wakes + [t for t, *_ in self._flying[:1]]
            if not times or self.now > limit:
                return False
            self.now = max(self.now, min(times))
            while self._flying and self._flying[0][0] <= self.now:
                _, _, node, data = heapq.heappop(self._flying)
                if node not in self.dead and node in self.stations:
                    self.stations[node].receive(data, self.now)
        return True


def by_row(results):
    """A function that puts results of rows into a dict."""
    return lambda first, rows: results.update(enumerate(rows, first))


def tile_memory(layout):
    """Memory of the tiles of a ring, of this process alone."""
    return TileMemory(layout, bytearray(layout.bytes))


class BinaryRing:
    """A binary model over nodes in memory."""

    def __init__(
        self,
        model,
        placement,
        timing=None,
        talk=None,
        slots=None,
        tile_bytes=0,
        shared=False,
        **faults,
    ):
        timing = timing or LinkTiming()
        self.scores = {}
        memory = tile_memory(model_layout(placement)) if shared else None
        self.flow = RowFlow(placement, tile_bytes, memory)
        self.home = Coordinator(placement.nodes, model.digest, self.flow.accept_data)
        self.nodes = {
            n: Node(n, parts_of(model, placement, n, memory), model.digest)
            for n in range(1, placement.nodes + 1)
        }
        stations = {
            n: Endpoint(
                handler, placement.nodes, timing=timing, successor=talk, inner=talk is not CARD
            )
            for n, handler in self.nodes.items()
        }
        self.station = Endpoint(
            self.home, placement.nodes, timing=timing, successor=talk, session=7
        )
        self.network = Network(stations | {0: self.station}, **faults)
        self.placement = placement
        self.slots = slots

    def start(self):
        self.station.send([self.home.start()])
        assert self.network.run(lambda: self.home.started or self.home.error)
        if self.home.error:
            raise self.home.error
        self.home.check(self.placement)
        self.flow.slots = self.slots or self.home.slots

    def run(self, words):
        """Scores of packed rows; raises the coordinator's error."""
        self.scores.clear()
        self.flow.submit(words, by_row(self.scores))
        self.station.send(self.flow.admit())
        self.network.run(lambda: self.flow.idle or self.home.error)
        if self.home.error:
            raise self.home.error
        return np.array([self.scores[i] for i in range(len(words))])


class KernelRing:
    """A kernel of integers over nodes in memory."""

    def __init__(self, kernel, nodes, **faults):
        self.kernel, self.nodes = kernel, nodes
        self.results = {}
        self.jobs = JobFlow()
        self.flow = self.jobs
        if isinstance(kernel, GemmKernel):
            self.products = GemmFlow(0, kernel.matrix.shape[1])
            self.flow = self.products
        self.home = Coordinator(nodes, kernel.digest, self.flow.accept_data)
        stations = {
            n: Endpoint(Node(n, kernel.arrays_of(n, nodes), kernel.digest), nodes, inner=True)
            for n in range(1, nodes + 1)
        }
        self.station = Endpoint(self.home, nodes, session=7)
        self.network = Network(stations | {0: self.station}, **faults)
        self.station.send([self.home.start()])
        self._until(lambda: self.home.started)
        self.flow.slots = self.home.slots

    def _until(self, condition):
        self.network.run(lambda: condition() or self.home.error)
        if self.home.error:
            raise self.home.error

    def run(self, *operands):
        """The result of a job."""
        results = []
        self.jobs.submit(self.kernel.job(self.nodes, *operands), results.append)
        self.station.send(self.flow.admit())
        self._until(lambda: self.flow.idle)
        return results[0]

    def rows(self, matrix):
        """The product of GEMM."""
        self.products.submit(matrix, by_row(self.results))
        self.station.send(self.flow.admit())
        self._until(lambda: self.flow.idle)
        return np.array([self.results[i] for i in range(len(matrix))])
