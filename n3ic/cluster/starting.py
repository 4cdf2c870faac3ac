"""Starts the nodes of a ring as processes of a Dask cluster: this machine's, or another's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from n3ic.cluster.binary import held_by
from n3ic.cluster.link import Timing
from n3ic.cluster.node import Node
from n3ic.cluster.placement import Placement
from n3ic.cluster.protocol import HOME
from n3ic.cluster.session import Link, Session, talk
from n3ic.cluster.station import Station
from n3ic.cluster.wire import Address, Faults, Wire, neighbours, open_socket, run_station
from n3ic.errors import ClusterError, MissingDependencyError
from n3ic.model.network import BinaryModel
from n3ic.util.signals import held

LOOPBACK = "127.0.0.1"
_STOP_S = 2
_SEED_STEP = 1_000_003  # each node loses other datagrams


@dataclass(frozen=True)
class RingOptions:
    """How a ring is started.

    Attributes:
        dask: address of a Dask scheduler (``tcp://host:8786``) whose workers have n3ic installed;
            processes of this machine if None.
        cards: nodes of the card subset that run already, and where.
        addresses: where other nodes, the home included, are to listen; any free port if a node is
            not named. A card's neighbours need fixed ones.
        timing: of all links.
        faults: damage done on purpose by every node.
    """

    dask: str | None = None
    cards: Mapping[int, Address] = field(default_factory=dict)
    addresses: Mapping[int, Address] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    faults: Faults = field(default_factory=Faults)


class NodeProcess:
    """A node in a worker process: a Dask actor.

    Args:
        model: bytes of the model file.
        placement: as JSON has it.
        number: the node's number.
        address: where it listens; None for any free port of the worker's host.
    """

    def __init__(
        self, model: bytes, placement: dict[str, Any], number: int, address: Address | None
    ) -> None:
        placed = Placement.from_dict(placement)
        loaded = BinaryModel.from_bytes(model)
        self._nodes = placed.nodes
        self._node = Node(number, held_by(loaded, placed, number), loaded.digest)
        self._sock = open_socket(*(address or (_worker_host(), 0)))
        self._station: Station | None = None
        self._wire: Wire | None = None
        self._stopped = False

    def address(self) -> Address:
        """Where it listens."""
        host, port = self._sock.getsockname()
        return host, port

    def process(self) -> int:
        """Its process id."""
        import os

        return os.getpid()

    def serve(
        self, ring: Mapping[int, Address], cards: list[int], timing: Timing, faults: Faults
    ) -> None:
        """Run the node on a thread of its own."""
        number = self._node.number
        self._wire = Wire(self._sock, neighbours(number, self._nodes, ring), faults)
        self._station = Station(
            self._node, self._nodes, successor=talk(number, self._nodes, cards), timing=timing
        )
        threading.Thread(
            target=run_station,
            args=(self._station, self._wire),
            kwargs={"timing": timing, "stopped": lambda: self._stopped},
            daemon=True,
        ).start()

    def stop(self) -> None:
        """Leave the ring, whatever its session is about."""
        self._stopped = True

    def counters(self) -> dict[str, int]:
        """Datagrams that it sent again, dropped when they came, and lost on purpose."""
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
class Ring:
    """A ring whose nodes run.

    Attributes:
        session: the home's.
        processes: the actor of each node that was started here, by number.
    """

    session: Session
    processes: Mapping[int, Any]

    def counters(self) -> dict[int, dict[str, int]]:
        """Of each process: datagrams sent again, dropped, and lost on purpose."""
        return {number: actor.counters().result() for number, actor in self.processes.items()}

    def process_ids(self) -> dict[int, int]:
        """The process of each node that was started here."""
        return {number: actor.process().result() for number, actor in self.processes.items()}


@contextmanager
def ring(
    model: BinaryModel, placement: Placement, options: RingOptions | None = None
) -> Iterator[Ring]:
    """Start a ring; it ends with the block.

    Args:
        model: the model.
        placement: who holds what of it.
        options: how to start it.

    Raises:
        ClusterError: a node does not start, is silent, or holds something else.
        MissingDependencyError: distributed is not installed.
    """
    chosen = options or RingOptions()
    numbers = [n for n in range(1, placement.nodes + 1) if n not in chosen.cards]
    wrong = (set(chosen.cards) | set(chosen.addresses)) - set(range(placement.nodes + 1))
    if wrong or HOME in chosen.cards:
        raise ClusterError(f"node {min(wrong, default=HOME)} is none of the ring's nodes")
    with _client(len(numbers), chosen.dask) as client:
        processes = _started(client, model, placement, numbers, chosen)
        found: dict[int, Address] = {n: actor.address().result() for n, actor in processes.items()}
        addresses = found | dict(chosen.cards)
        sock = open_socket(*(chosen.addresses.get(HOME) or (_host_towards(addresses[1][0]), 0)))
        addresses[HOME] = sock.getsockname()
        for number, actor in processes.items():
            faults = Faults(chosen.faults.loss, chosen.faults.seed + _SEED_STEP * number)
            actor.serve(addresses, list(chosen.cards), chosen.timing, faults).result()
        link = Link(addresses, chosen.cards, chosen.timing, chosen.faults)
        try:
            with Session(model, placement, link, sock) as session:
                yield Ring(session, processes)
        finally:
            for actor in processes.values():
                with suppress(Exception):
                    actor.stop().result(timeout=_STOP_S)


def _started(
    client: Any,
    model: BinaryModel,
    placement: Placement,
    numbers: list[int],
    options: RingOptions,
) -> dict[int, Any]:
    """An actor a node, on the workers in turn."""
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    if numbers and not workers:
        raise ClusterError(f"{options.dask}: the Dask cluster has no worker")
    file, placed = model.to_bytes(), placement.to_dict()
    futures = {
        number: client.submit(
            NodeProcess,
            file,
            placed,
            number,
            options.addresses.get(number),
            workers=[workers[i % len(workers)]],
            actor=True,
            pure=False,
        )
        for i, number in enumerate(numbers)
    }
    return {number: future.result() for number, future in futures.items()}


def _host_towards(host: str) -> str:
    """The address of this machine that another one sees."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host, 9))  # sends nothing
        own: str = sock.getsockname()[0]
        return own


@contextmanager
def _client(processes: int, dask: str | None) -> Iterator[Any]:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise MissingDependencyError(
            "a ring of processes needs distributed; install it with: pip install 'n3ic[cluster]'"
        ) from error
    if dask is not None:
        try:
            client = Client(dask, timeout="10s")
        except (OSError, ValueError, TimeoutError) as error:
            raise ClusterError(f"no Dask scheduler answers at {dask}: {error}") from error
        with client:
            yield client
        return
    with held():  # workers inherit that: this process alone is to end them
        cluster = LocalCluster(
            n_workers=processes,
            threads_per_worker=1,
            host=LOOPBACK,
            dashboard_address=None,
            silence_logs=50,
        )
    with cluster, Client(cluster) as client:
        yield client
