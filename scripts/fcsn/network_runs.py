# SPDX-License-Identifier: Apache-2.0
"""Measure whole networks on a ring of processes beside one process."""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from n3ic.errors import VerifyError
from n3ic.systems.cluster.launch import RingOptions
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.networks.compile import compile_module
from n3ic.systems.cluster.networks.network import IntegerNetwork
from n3ic.systems.cluster.networks.pipeline import plan_pipeline
from n3ic.systems.cluster.networks.ring import network_ring
from n3ic.systems.cluster.udp import FaultInjection
from scripts.fcsn.mpi_baseline import run_ranks
from scripts.fcsn.networks import (
    GraphConvolution,
    GraphSage,
    mobilenet,
    random_graph,
    resnet,
    settled,
    vgg11,
)

IMAGES = (64, 3, 32, 32)
CORA = (2708, 5278, 1433, 7)
"""Vertices, edges, features and classes of the graph Cora."""
_REPEATS = 5
_LIMIT_S = 60.0  # a busy machine may leave a process without its cores for seconds


def _mlp() -> tuple[nn.Module, Tensor]:
    layers = (nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(2048, 10)).eval(), torch.rand(64, 2048)


def _graph(kind: type[nn.Module]) -> tuple[nn.Module, Tensor]:
    vertices, edges, features, classes = CORA
    module = kind(random_graph(vertices, edges), vertices, features, 16, classes)
    generator = torch.Generator().manual_seed(0)
    some = torch.rand(vertices, features, generator=generator) < 0.0127  # Cora's share of ones
    return module.eval(), some.float()


def _images(make: Callable[[], nn.Module]) -> tuple[nn.Module, Tensor]:
    return settled(make(), IMAGES), torch.randn(IMAGES, generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class NetworkCase:
    """A network to measure.

    Attributes:
        make: makes the module and its examples.
        items: items of a run.
        claim: FCsN's speed-ups over MPI on 16 cores of such networks, on its cards.
    """

    make: Callable[[], tuple[nn.Module, Tensor]]
    items: int
    claim: str


CASES = {
    "mlp": NetworkCase(_mlp, 2048, "3.3"),
    "vgg11": NetworkCase(lambda: _images(vgg11), 256, "3.36 to 4.6"),
    "resnet20": NetworkCase(lambda: _images(resnet), 512, "3.36 to 4.6"),
    "mobilenet": NetworkCase(lambda: _images(mobilenet), 1024, "3.36 to 4.6"),
    "gcn": NetworkCase(lambda: _graph(GraphConvolution), 24, "5.4 to 10.1"),
    "sage": NetworkCase(lambda: _graph(GraphSage), 12, "5.4 to 10.1"),
}


@dataclass(frozen=True)
class NetworkMeasurement:
    """A network on a ring and in one process, whose scores were equal in every run.

    Attributes:
        network: its name.
        nodes: number of nodes.
        items: items of a run.
        one_s: seconds of one process, with one thread: the fastest run.
        ring_s: seconds of the ring: the fastest run.
        speedup: median of the ratios of both, each measured right after the other.
        one_processor_s: processor seconds of one process, median.
        busiest_processor_s: processor seconds of the ring's busiest process, median: what bounds
            the ring where each process has a core.
        ranks_s: seconds of as many MPI ranks, with the same parts: the fastest run; None if they
            were not measured.
        claim: FCsN's speed-ups of such networks.
    """

    network: str
    nodes: int
    items: int
    one_s: float
    ring_s: float
    speedup: float
    one_processor_s: float
    busiest_processor_s: float
    ranks_s: float | None
    claim: str

    @property
    def processor_speedup(self) -> float:
        """The speed-up where every process has a core of its own."""
        return self.one_processor_s / self.busiest_processor_s


def compiled(name: str, seed: int = 0) -> IntegerNetwork:
    """Make a network of :data:`CASES` with random weights, as integers."""
    torch.manual_seed(seed)
    return compile_module(*CASES[name].make())


def random_items(network: IntegerNetwork, count: int) -> NDArray[np.generic]:
    """Draw inputs of a network from their whole range: shape ``(count, *shape)``."""
    given, rng = network.values[0], np.random.default_rng(0)
    items = rng.integers(given.low, given.high, (count, *given.shape), endpoint=True)
    return items.astype(given.dtype)


def scores_digest(scores: NDArray[np.int32]) -> str:
    """SHA-256 of scores in the order of the items."""
    return hashlib.sha256(np.ascontiguousarray(scores, dtype="<i4").tobytes()).hexdigest()


def measure_network(
    name: str,
    network: IntegerNetwork,
    nodes: int,
    *,
    loss: float = 0.0,
    share: float = 1.0,
    mpi: bool = False,
) -> NetworkMeasurement:
    """Measure a network on a ring of processes here.

    Args:
        name: name of the network in :data:`CASES`.
        network: the network.
        nodes: number of nodes.
        loss: share of the datagrams that every process drops on purpose.
        share: share of the items to compute.
        mpi: whether to compute it on MPI ranks, too, in the same parts.

    Raises:
        VerifyError: a score differs.
        MissingDependencyError: MPI is not installed.
        ClusterError: a node does not start, does not answer, or fails.
    """
    count = max(2, round(share * CASES[name].items))
    items, parts = random_items(network, count), plan_pipeline(network, nodes)
    faults = FaultInjection(loss, 1)
    options = RingOptions(timing=LinkTiming(limit=_LIMIT_S), faults=faults)
    one, ring, ones, busiest = [], [], [], []
    with (
        threadpool_limits(1),
        network_ring(network, pipeline=parts, options=options) as running,
    ):
        processes = [os.getpid(), *running.process_ids().values()]
        running.session.scores(items[:2])  # the first row prepares the kernels
        network.scores(items[:2])
        for _ in range(_REPEATS):
            before, began = _processor(processes), time.perf_counter()
            scores = running.session.scores(items)
            ring.append(time.perf_counter() - began)
            busiest.append(max(b - a for a, b in zip(before, _processor(processes), strict=True)))
            began, spent = time.perf_counter(), time.process_time()
            expected = network.scores(items)
            one.append(time.perf_counter() - began)
            ones.append(time.process_time() - spent)
            if not np.array_equal(scores, expected):
                raise VerifyError(f"{name}: the ring's scores differ from one process's")
    ranks = None
    if mpi:
        request = {"network": name, "ends": parts.ends, "replicas": parts.replicas}
        request |= {"rows": parts.rows, "items": count}
        answer = run_ranks("mpi_networks", {**request, "repeats": _REPEATS}, nodes)
        if answer["scores"] != scores_digest(expected):
            raise VerifyError(f"{name}: the MPI ranks' scores differ from one process's")
        ranks = min(answer["seconds"])
    ratios = [a / b for a, b in zip(one, ring, strict=True)]
    return NetworkMeasurement(
        name,
        nodes,
        count,
        min(one),
        min(ring),
        statistics.median(ratios),
        statistics.median(ones),
        statistics.median(busiest),
        ranks,
        CASES[name].claim,
    )


def _processor(processes: Iterable[int]) -> list[float]:
    """Processor seconds that processes have spent (Linux)."""
    tick = os.sysconf("SC_CLK_TCK")
    stats = (Path(f"/proc/{number}/stat").read_text(encoding="ascii") for number in processes)
    fields = (stat.rpartition(")")[2].split() for stat in stats)  # a name may hold spaces
    return [(int(field[11]) + int(field[12])) / tick for field in fields]
