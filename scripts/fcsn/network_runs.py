# SPDX-License-Identifier: Apache-2.0
"""Measure whole networks on a ring of processes, beside one process and as many without a ring."""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from n3ic.errors import VerifyError
from n3ic.kernel import prediction
from n3ic.model.bits import pack
from n3ic.model.network import BinaryModel
from n3ic.systems.cluster.launch import ModelWork, RingOptions, ring_on, workers
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.networks.compile import compile_module
from n3ic.systems.cluster.networks.network import IntegerNetwork
from n3ic.systems.cluster.networks.pipeline import plan_pipeline
from n3ic.systems.cluster.networks.ring import network_ring
from n3ic.systems.cluster.placement import even_placement, splits_of
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
        ceiling: times one process that as many processes compute at once without a ring, each its
            own items: what the cores of this machine give, median.
        one_processor_s: processor seconds of one process, median.
        busiest_processor_s: processor seconds of the ring's busiest process, median: what bounds
            the ring where each process has a core.
        coordinator_s: processor seconds of the coordinator's process, median.
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
    ceiling: float
    one_processor_s: float
    busiest_processor_s: float
    coordinator_s: float
    ranks_s: float | None = None
    claim: str = ""

    @property
    def processor_speedup(self) -> float:
        """The speed-up where every process has a core of its own."""
        return self.one_processor_s / self.busiest_processor_s


class Session(Protocol):
    """What a ring's session and one process have in common."""

    def scores(self, items: Any, /) -> NDArray[np.int32]:
        """Compute items."""


def compare_with_one(
    name: str, ring: Session, one: Session, items: NDArray[Any], processes: Mapping[int, int]
) -> NetworkMeasurement:
    """Measure a ring, one process, and as many processes as nodes without a ring, in turns.

    Args:
        name: name of the network.
        ring: the running ring.
        one: the network in this process.
        items: the items of a run.
        processes: process of each node.

    Raises:
        VerifyError: a score differs.
    """
    everyone = [os.getpid(), *processes.values()]
    ring.scores(items[:2])  # the first row prepares the kernels
    one.scores(items[:2])
    one_s, ring_s, one_processor, spent_by, ceilings = [], [], [], [], []
    for _ in range(_REPEATS):
        before, began = _processor(everyone), time.perf_counter()
        scores = ring.scores(items)
        ring_s.append(time.perf_counter() - began)
        spent_by.append([b - a for a, b in zip(before, _processor(everyone), strict=True)])
        began, spent = time.perf_counter(), time.process_time()
        expected = one.scores(items)
        one_s.append(time.perf_counter() - began)
        one_processor.append(time.process_time() - spent)
        if not np.array_equal(scores, expected):
            raise VerifyError(f"{name}: the ring's scores differ from one process's")
        together = _together(lambda: one.scores(items), len(processes))
        ceilings.append(len(processes) * one_s[-1] / together)
    return NetworkMeasurement(
        name,
        len(processes),
        len(items),
        min(one_s),
        min(ring_s),
        statistics.median(a / b for a, b in zip(one_s, ring_s, strict=True)),
        statistics.median(ceilings),
        statistics.median(one_processor),
        statistics.median(map(max, spent_by)),
        statistics.median(each[0] for each in spent_by),
    )


@dataclass(frozen=True)
class InTiles:
    """A network in one process, some items at a time: faster where all do not fit its caches."""

    network: IntegerNetwork
    rows: int

    def scores(self, items: NDArray[Any]) -> NDArray[np.int32]:
        """Compute items."""
        starts = range(0, len(items), self.rows)
        return np.concatenate([self.network.scores(items[at : at + self.rows]) for at in starts])


def _faster(ways: Iterable[Session], items: NDArray[Any]) -> Session:
    """The faster of some ways to compute items."""

    def seconds(way: Session) -> float:
        began = time.perf_counter()
        way.scores(items)
        return time.perf_counter() - began

    return min(ways, key=lambda way: min(seconds(way) for _ in range(2)))


def _together(compute: Callable[[], object], processes: int) -> float:
    """Seconds until so many copies of this process have computed the same (POSIX)."""
    began, children = time.perf_counter(), []
    for _ in range(processes - 1):
        child = os.fork()
        if not child:
            compute()
            os._exit(0)
        children.append(child)
    compute()
    for child in children:
        os.waitpid(child, 0)
    return time.perf_counter() - began


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
    with (
        threadpool_limits(1),
        network_ring(network, pipeline=parts, options=options) as running,
    ):
        one = _faster((network, InTiles(network, parts.rows)), items)
        measurement = compare_with_one(name, running.session, one, items, running.process_ids())
    ranks = None
    if mpi:
        parted = {"ends": parts.ends, "replicas": parts.replicas, "rows": parts.rows}
        request = {"network": name, "items": count, "repeats": _REPEATS, **parted}
        answer = run_ranks("mpi_networks", request, nodes)
        if answer["scores"] != scores_digest(network.scores(items)):
            raise VerifyError(f"{name}: the MPI ranks' scores differ from one process's")
        ranks = min(answer["seconds"])
    return replace(measurement, ranks_s=ranks, claim=CASES[name].claim)


def measure_model(
    model: BinaryModel, splits: str, nodes: int, rows: int, *, loss: float = 0.0
) -> NetworkMeasurement:
    """Measure a binary model, evenly divided, on a ring of processes here.

    Args:
        model: the model.
        splits: the split of all layers, or of each, separated by commas.
        nodes: number of nodes.
        rows: rows of a run, random.
        loss: share of the datagrams that every process drops on purpose.

    Raises:
        VerifyError: a score differs.
        UsageError: a split is unknown.
        ClusterError: a node does not start, does not answer, or fails.
    """
    placement = even_placement(model, nodes, splits_of(splits, len(model.layers)))
    work = ModelWork(model, placement)
    words = pack(np.random.default_rng(0).random((rows, model.input.n_bits)) < 0.5)
    one = prediction.load_into_kernel(model) or model
    shape = "-".join(map(str, model.shape))
    faults = FaultInjection(loss, 1)
    options = RingOptions(timing=LinkTiming(limit=_LIMIT_S), faults=faults)
    with workers(nodes) as client, ring_on(client, work, options) as running:
        return compare_with_one(shape, running.session, one, words, running.process_ids())


def _processor(processes: Iterable[int]) -> list[float]:
    """Processor seconds that processes have spent (Linux)."""
    tick = os.sysconf("SC_CLK_TCK")
    stats = (Path(f"/proc/{number}/stat").read_text(encoding="ascii") for number in processes)
    fields = (stat.rpartition(")")[2].split() for stat in stats)  # a name may hold spaces
    return [(int(field[11]) + int(field[12])) / tick for field in fields]
