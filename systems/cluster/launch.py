# SPDX-License-Identifier: Apache-2.0
"""Start the nodes of a ring as processes of a Dask cluster, local or remote."""

from __future__ import annotations

import secrets
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Generic, TypeVar

from n3ic.errors import ClusterError, needed
from n3ic.model.network import BinaryModel
from n3ic.systems.cluster.binary import parts_of
from n3ic.systems.cluster.endpoint import Endpoint
from n3ic.systems.cluster.kernels import GemmKernel, Kernel
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.memory import TileLayout, TileMemory, model_layout, shared_file
from n3ic.systems.cluster.node import ArrayPart, Node
from n3ic.systems.cluster.placement import ModelPlacement
from n3ic.systems.cluster.protocol import HOME
from n3ic.systems.cluster.session import (
    CoordinatorSession,
    GemmSession,
    JobSession,
    RingLink,
    Session,
    talk,
)
from n3ic.systems.cluster.udp import (
    Address,
    FaultInjection,
    UdpEndpoint,
    neighbours,
    open_socket,
    run_endpoint,
)
from n3ic.util.signals import held

LOOPBACK = "127.0.0.1"
_STOP_S = 2
_KEY_BYTES = 32
_LOOPBACK_TILE, _ETHERNET_TILE = 1 << 15, 1400  # bytes of numbers
AnySession = TypeVar("AnySession", bound=CoordinatorSession)
_SEED_STEP = 1_000_003  # makes each node lose different datagrams
# Dask looks at what its processes do up to a hundred times a second; a node needs its core.
_SELDOM = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}


@dataclass(frozen=True)
class RingOptions:
    """How a ring is started.

    Attributes:
        dask: address of a Dask scheduler (``tcp://host:8786``) whose workers have n3ic installed;
            None starts processes on this machine.
        cards: addresses of nodes of the card subset that already run.
        addresses: addresses on which other nodes and the coordinator listen. A node that is not
            named takes any free port. The neighbours of a card need fixed addresses.
        timing: timing of all links.
        faults: faults that every node injects.
        replacements: nodes of a model's ring that may be lost and are replaced.
    """

    dask: str | None = None
    cards: Mapping[int, Address] = field(default_factory=dict)
    addresses: Mapping[int, Address] = field(default_factory=dict)
    timing: LinkTiming = field(default_factory=LinkTiming)
    faults: FaultInjection = field(default_factory=FaultInjection)
    replacements: int = 0


class RingWork(ABC, Generic[AnySession]):
    """The work that a ring is started for, and what its sessions are."""

    nodes: int

    @abstractmethod
    def part(self, number: int) -> NodeAssignment:
        """Return what a node must hold."""

    @property
    def shared_layout(self) -> TileLayout | None:
        """Tiles that nodes of one host may share in memory; None if packets carry the numbers."""
        return None

    @abstractmethod
    def session(self, link: RingLink, sock: socket.socket) -> AnySession:
        """Make the coordinator's session; the nodes must be running."""


@dataclass(frozen=True)
class NodeAssignment:
    """The part of a ring's work that is sent to a node's process.

    Attributes:
        digest: SHA-256 of the whole model or kernel.
        kernel_arrays: arrays of the node for a kernel; empty for a model.
        model: bytes of a model file; empty for a kernel.
        placement: placement of the model, in JSON types.
    """

    digest: str
    kernel_arrays: Sequence[ArrayPart] = ()
    model: bytes = b""
    placement: Mapping[str, Any] = field(default_factory=dict)

    def arrays(self, number: int, memory: TileMemory | None) -> Sequence[ArrayPart]:
        """Make the arrays that the node holds; ``memory`` is that of the ring's tiles."""
        if not self.model:
            for array in self.kernel_arrays:
                array.memory = memory
            return self.kernel_arrays
        # The model travels as its file, so a node checks it as it would check any file.
        placement = ModelPlacement.from_dict(dict(self.placement))
        return parts_of(BinaryModel.from_bytes(self.model), placement, number, memory)


class ModelWork(RingWork[Session]):
    """A binary model.

    Args:
        model: the model.
        placement: placement of the model.

    Attributes:
        model: the model.
        placement: its placement.
    """

    def __init__(self, model: BinaryModel, placement: ModelPlacement) -> None:
        placement.check_model(model)
        self.nodes = placement.nodes
        self.model, self.placement = model, placement
        self._part = NodeAssignment(
            model.digest, model=model.to_bytes(), placement=placement.to_dict()
        )

    @property
    def shared_layout(self) -> TileLayout:
        """The layers' inputs, partial popcounts and scores."""
        return model_layout(self.placement)

    def part(self, number: int) -> NodeAssignment:
        """Return the model and its placement, from which a node takes its share."""
        return self._part

    def session(self, link: RingLink, sock: socket.socket) -> Session:
        """Make the coordinator's session."""
        return Session(self.model, self.placement, link, sock)


class KernelWork(RingWork[GemmSession | JobSession]):
    """An integer kernel.

    Args:
        kernel: the kernel.
        nodes: number of nodes of the ring.

    Attributes:
        kernel: the kernel.
    """

    def __init__(self, kernel: Kernel | GemmKernel, nodes: int) -> None:
        self.nodes = nodes
        self.kernel = kernel

    def part(self, number: int) -> NodeAssignment:
        """Return a node's rows, or its columns of a matrix."""
        return NodeAssignment(self.kernel.digest, self.kernel.arrays_of(number, self.nodes))

    def session(self, link: RingLink, sock: socket.socket) -> GemmSession | JobSession:
        """Make the coordinator's session."""
        if isinstance(self.kernel, GemmKernel):
            return GemmSession(self.kernel, self.nodes, link, sock)
        return JobSession(self.kernel, self.nodes, link, sock)


class NodeProcess:
    """A node in a worker process: a Dask actor.

    Args:
        part: what the node holds.
        nodes: number of nodes of the ring.
        number: number of the node.
        address: address on which it listens; None for any free port of the worker's host.
    """

    def __init__(
        self, part: NodeAssignment, nodes: int, number: int, address: Address | None
    ) -> None:
        self._part, self._nodes, self._number = part, nodes, number
        self._memory: TileMemory | None = None
        self._sock = open_socket(*(address or (_worker_host(), 0)))
        self._station: Endpoint | None = None
        self._wire: UdpEndpoint | None = None
        self._stopped = False

    def address(self) -> Address:
        """Return the address on which the node listens."""
        host, port = self._sock.getsockname()
        return host, port

    def share(self, layout: TileLayout, path: str) -> bool:
        """Map the memory of the ring's tiles, and return whether this process could.

        Args:
            layout: where the numbers lie.
            path: path of the memory; empty to forget it.
        """
        self._memory = TileMemory.mapped(layout, path)
        return self._memory is not None

    def process(self) -> int:
        """Return the process id."""
        import os

        return os.getpid()

    def serve(
        self,
        ring: Mapping[int, Address],
        cards: list[int],
        timing: LinkTiming,
        faults: FaultInjection,
        key: bytes,
    ) -> None:
        """Run the node in its own thread."""
        number, part = self._number, self._part
        node = Node(number, part.arrays(number, self._memory), part.digest)
        self._wire = UdpEndpoint(self._sock, neighbours(number, self._nodes, ring), faults)
        self._station = Endpoint(
            node,
            self._nodes,
            successor=talk(number, self._nodes, cards),
            timing=timing,
            key=key,
            inner=not cards,
        )
        threading.Thread(
            target=run_endpoint,
            args=(self._station, self._wire),
            kwargs={"timing": timing, "stopped": lambda: self._stopped},
            # A worker must be able to end even if its ring never does.
            daemon=True,
        ).start()

    def stop(self) -> None:
        """Leave the ring, even during a session."""
        self._stopped = True

    def counters(self) -> dict[str, int]:
        """Count the datagrams that were resent, dropped on arrival, and lost on purpose."""
        if self._station is None or self._wire is None:
            return {"resent": 0, "dropped": 0, "lost": 0}
        return {
            "resent": self._station.resent,
            "dropped": self._station.dropped,
            "lost": self._wire.lost,
        }


def _worker_host() -> str:
    from distributed import get_worker

    host: str = get_worker().address.rpartition("://")[2].rpartition(":")[0]
    return host


@dataclass(frozen=True, eq=False)
class Ring(Generic[AnySession]):
    """A running ring.

    Attributes:
        session: session of the coordinator.
        processes: actors of the nodes that were started here, by node number.
    """

    session: AnySession
    processes: Mapping[int, Any]

    def counters(self) -> dict[int, dict[str, int]]:
        """Count, for each process, the datagrams that were resent, dropped, and lost on purpose."""
        return {number: actor.counters().result() for number, actor in self.processes.items()}

    def process_ids(self) -> dict[int, int]:
        """Return the process id of each node that was started here."""
        return {number: actor.process().result() for number, actor in self.processes.items()}


@contextmanager
def ring_on(
    client: Any, work: RingWork[AnySession], options: RingOptions
) -> Iterator[Ring[AnySession]]:
    """Start a ring on the workers of :func:`workers`; it stops at the end of the block.

    Args:
        client: the Dask client.
        work: work of the ring.
        options: how to start the ring.

    Raises:
        ClusterError: A node does not start, does not answer, or holds something else.
    """
    everyone = set(range(work.nodes + 1))
    wrong = (set(options.cards) | set(options.addresses)) - everyone
    if wrong or HOME in options.cards:
        raise ClusterError(
            f"node {min(wrong, default=HOME)}: expected a node of the ring, 1 to {work.nodes}"
        )
    processes = _started(client, work, sorted(everyone - {HOME, *options.cards}), options)
    process_addresses: dict[int, Address] = {
        n: actor.address().result() for n, actor in processes.items()
    }
    addresses = process_addresses | dict(options.cards)
    sock = open_socket(*(options.addresses.get(HOME) or (_host_towards(addresses[1][0]), 0)))
    # The coordinator's port is known only now, so nodes serve after every socket is bound.
    addresses[HOME] = sock.getsockname()
    memory = _memory_of(work, processes, options)
    # It reaches the nodes through Dask, not through the ring. Cards know no keys.
    key = b"" if options.cards else secrets.token_bytes(_KEY_BYTES)
    for number, actor in processes.items():
        faults = FaultInjection(options.faults.loss, options.faults.seed + _SEED_STEP * number)
        actor.serve(addresses, list(options.cards), options.timing, faults, key).result()
    size = tile_bytes([host for host, _ in addresses.values()], options.cards)
    link = RingLink(addresses, options.cards, options.timing, options.faults, size, memory, key)
    try:
        with work.session(link, sock) as session:
            yield Ring(session, processes)
    finally:
        for actor in processes.values():
            with suppress(Exception):  # a dead worker raises errors of any type
                actor.stop().result(timeout=_STOP_S)


def _memory_of(
    work: RingWork[Any], processes: Mapping[int, Any], options: RingOptions
) -> TileMemory | None:
    """Give the processes memory for their tiles; None if they do not share a host."""
    layout = work.shared_layout
    if layout is None or options.cards:
        return None
    with shared_file(layout.bytes) as path:
        memory = TileMemory.mapped(layout, path)
        # All or none: a node without it could not read what the others write there.
        if memory and all(actor.share(layout, path).result() for actor in processes.values()):
            return memory
    for actor in processes.values():
        actor.share(layout, "").result()
    return None


def tile_bytes(hosts: Collection[str], cards: Collection[int]) -> int:
    """Choose the maximum bytes of numbers in a tile of a ring.

    Returns:
        Most for processes of one machine, as many as fit an Ethernet frame of 1,500 bytes for
        several, and 0, for packets of 512 bits, if a node is a card.
    """
    if cards:
        return 0
    one = all(ip_address(host).is_loopback for host in hosts)
    return _LOOPBACK_TILE if one else _ETHERNET_TILE


def _started(
    client: Any, work: RingWork[Any], numbers: Sequence[int], options: RingOptions
) -> dict[int, Any]:
    """Start one actor per node, on the workers in turn."""
    there = sorted(client.scheduler_info(n_workers=-1)["workers"])
    if numbers and not there:
        raise ClusterError(f"{options.dask}: the Dask cluster has no worker")
    futures = {
        number: client.submit(
            NodeProcess,
            work.part(number),
            work.nodes,
            number,
            options.addresses.get(number),
            workers=[there[i % len(there)]],
            actor=True,
            # Not pure: Dask would hand out one actor for two equal calls.
            pure=False,
        )
        for i, number in enumerate(numbers)
    }
    return {number: future.result() for number, future in futures.items()}


def _host_towards(host: str) -> str:
    """Return the address of this machine that ``host`` sees."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host, 9))  # connecting a UDP socket chooses the route and sends nothing
        own: str = sock.getsockname()[0]
        return own


@contextmanager
def workers(processes: int, dask: str | None = None) -> Iterator[Any]:
    """Start worker processes on this machine, or connect to a running Dask cluster.

    Args:
        processes: number of processes to start on this machine.
        dask: address of a scheduler to use instead.

    Yields:
        The Dask client.

    Raises:
        ClusterError: No scheduler answers.
        MissingDependencyError: distributed is not installed.
    """
    with needed("a ring of processes"):
        from dask import config as dask_config
        from distributed import Client, LocalCluster
    if dask is not None:
        try:
            client = Client(dask, timeout="10s")
        except (OSError, ValueError, TimeoutError) as error:
            raise ClusterError(f"no Dask scheduler answers at {dask}: {error}") from error
        with client:
            yield client
        return
    # Workers inherit the configuration, and the signal mask, so that only this process ends them.
    with held(), dask_config.set(_SELDOM):
        cluster = LocalCluster(
            n_workers=processes,
            threads_per_worker=1,
            host=LOOPBACK,
            dashboard_address=f"{LOOPBACK}:0",
            silence_logs=50,
        )
    with cluster, Client(cluster) as client:
        yield client
