# SPDX-License-Identifier: Apache-2.0
"""A network of integers on a ring of processes."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ClusterError
from n3ic.systems.cluster.launch import (
    NodeAssignment,
    Ring,
    RingOptions,
    RingWork,
    ring_on,
    workers,
)
from n3ic.systems.cluster.memory import TileLayout
from n3ic.systems.cluster.networks.network import IntegerNetwork, checked_items
from n3ic.systems.cluster.networks.pipeline import (
    NetworkFlow,
    NetworkPart,
    NetworkPipeline,
    layout,
    measured_seconds,
    network_tiles,
    plan_pipeline,
)
from n3ic.systems.cluster.replacement import LastingRing
from n3ic.systems.cluster.session import RingLink, RowSession


class NetworkSession(RowSession[np.int32]):
    """A network of integers on a ring.

    Args:
        network: the network.
        pipeline: its parts.
        ring: addresses and timing of the ring.
        sock: the coordinator's socket; closed at the end.

    Raises:
        ClusterError: a node does not answer, or holds something else.
    """

    def __init__(
        self,
        network: IntegerNetwork,
        pipeline: NetworkPipeline,
        ring: RingLink,
        sock: socket.socket,
    ) -> None:
        self._network = network
        self._given = layout(network, 0)
        flow = NetworkFlow(network, pipeline, ring.tile_bytes, ring.memory)
        digest, width = pipeline_digest(network, pipeline), network.values[-1].size
        super().__init__(pipeline.nodes, digest, flow, width, np.int32, ring, sock)

    def submit(self, items: ArrayLike) -> Future[NDArray[np.int32]]:
        """Send items; others may be sent before their scores arrive.

        Args:
            items: integers of shape ``(items, *shape)``, as :meth:`IntegerNetwork.scores` takes.

        Returns:
            A future of an int32 array of shape ``(items, scores)``.

        Raises:
            ModelError: the items are no inputs of the network.
            ClusterError: the session has already failed.
        """
        return self.submit_rows(self._packed(items))

    def _packed(self, items: ArrayLike) -> NDArray[np.uint8]:
        return self._given.pack([checked_items(self._network, items)])

    def compute(self, rows: NDArray[Any]) -> NDArray[np.int32]:
        """Compute bytes of items in this process."""
        scores = self._network.scores(self._given.unpack(rows)[0])
        return scores.reshape(len(scores), -1)

    def scores(self, items: ArrayLike) -> NDArray[np.int32]:
        """Compute items: those of :meth:`IntegerNetwork.scores`, bit for bit."""
        scores = self.submit_rows(self._packed(items), copied=False).result()
        return scores.reshape(len(scores), *self._network.values[-1].shape)


def pipeline_digest(network: IntegerNetwork, pipeline: NetworkPipeline) -> str:
    """SHA-256 of a network, of the ends of its parts and of their nodes."""
    parts = f"{network.digest} {pipeline.ends} {pipeline.replicas}"
    return hashlib.sha256(parts.encode()).hexdigest()


class NetworkWork(RingWork[NetworkSession]):
    """A network of integers in parts.

    Args:
        network: the network.
        pipeline: its parts.

    Raises:
        ClusterError: the parts are not those of the network.
    """

    def __init__(self, network: IntegerNetwork, pipeline: NetworkPipeline) -> None:
        pipeline.check(network)
        self.nodes = pipeline.nodes
        self._network, self._pipeline = network, pipeline

    def part(self, number: int) -> NodeAssignment:
        """Return a node's operations."""
        part = NetworkPart(self._network, self._pipeline, number)
        return NodeAssignment(pipeline_digest(self._network, self._pipeline), (part,))

    @property
    def shared_layout(self) -> TileLayout:
        """The parts' inputs, and scores."""
        return network_tiles(self._network, self._pipeline)

    def session(self, link: RingLink, sock: socket.socket) -> NetworkSession:
        """Make the coordinator's session."""
        return NetworkSession(self._network, self._pipeline, link, sock)


@contextmanager
def lasting_network_ring(
    network: IntegerNetwork, nodes: int, options: RingOptions
) -> Iterator[LastingRing[NetworkSession]]:
    """Start a ring for a network of integers, which replaces up to ``options.replacements`` nodes.

    After a loss, the network is divided anew over the processes that are there, at most ``nodes``,
    by the same measured times, and the items without scores are sent again.

    Args:
        network: the network.
        nodes: number of nodes.
        options: how to start the ring.

    Raises:
        ClusterError: as :func:`network_ring`.
        MissingDependencyError: distributed is not installed.
    """
    seconds = measured_seconds(network)
    with workers(nodes, options.dask) as client:

        def start() -> AbstractContextManager[Ring[NetworkSession]]:
            there = len(client.scheduler_info(n_workers=-1)["workers"])
            parts = plan_pipeline(network, max(1, min(nodes, there)), seconds)
            return ring_on(client, NetworkWork(network, parts), without_cards(options))

        with LastingRing(start, options.replacements) as ring:
            yield ring


@contextmanager
def network_ring(
    network: IntegerNetwork,
    nodes: int = 2,
    *,
    pipeline: NetworkPipeline | None = None,
    options: RingOptions | None = None,
) -> Iterator[Ring[NetworkSession]]:
    """Start a ring for a network of integers; it stops at the end of the block.

    Nodes are processes, so a script calls this below ``if __name__ == "__main__"``.

    Args:
        network: the network.
        nodes: number of nodes; without meaning beside a pipeline.
        pipeline: the parts; None for those that measurements here make equally slow.
        options: how to start the ring.

    Raises:
        ClusterError: the network has fewer operations than nodes, a card is among the nodes, or a
            node does not start or does not answer.
        MissingDependencyError: distributed is not installed.
    """
    ring_options = without_cards(options or RingOptions())
    parts = pipeline or plan_pipeline(network, nodes)
    with (
        workers(parts.nodes, ring_options.dask) as client,
        ring_on(client, NetworkWork(network, parts), ring_options) as ring,
    ):
        yield ring


def without_cards(options: RingOptions) -> RingOptions:
    """Return the options of a ring of processes.

    Raises:
        ClusterError: A card is among the nodes.
    """
    if options.cards:
        raise ClusterError(
            "a card computes no network of integers: expected processes alone; "
            "network_with_card gives a card one step"
        )
    return options
