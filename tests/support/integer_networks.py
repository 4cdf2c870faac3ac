# SPDX-License-Identifier: Apache-2.0
"""Networks of integers for rings: small modules, and a pipeline over nodes in memory."""

import numpy as np

from n3ic.systems.cluster.coordinator import Coordinator
from n3ic.systems.cluster.endpoint import Endpoint
from n3ic.systems.cluster.networks.pipeline import (
    NetworkFlow,
    NetworkPart,
    layout,
    network_tiles,
)
from n3ic.systems.cluster.networks.ring import pipeline_digest
from n3ic.systems.cluster.node import Node
from tests.support.rings import Network, by_row, tile_memory


class PipelineRing:
    """A network of integers over nodes in memory.

    Args:
        network: the network.
        pipeline: its parts.
        tile_bytes: maximum bytes of numbers in a tile.
        shared: whether the nodes share memory.
        faults: of the links.
    """

    def __init__(self, network, pipeline, tile_bytes=2000, *, shared=False, **faults):
        self.network, self.results = network, {}
        nodes, digest = pipeline.nodes, pipeline_digest(network, pipeline)
        memory = tile_memory(network_tiles(network, pipeline)) if shared else None
        self.flow = NetworkFlow(network, pipeline, tile_bytes, memory)
        self.home = Coordinator(nodes, digest, self.flow.accept_data)
        parts = {n: NetworkPart(network, pipeline, n) for n in range(1, nodes + 1)}
        for part in parts.values():
            part.memory = memory
        stations = {n: Endpoint(Node(n, [part], digest), nodes) for n, part in parts.items()}
        self.station = Endpoint(self.home, nodes, session=7)
        self.wire = Network(stations | {0: self.station}, **faults)
        self.station.send([self.home.start()])
        self._until(lambda: self.home.started)
        self.flow.slots = self.home.slots

    def _until(self, condition):
        self.wire.run(lambda: condition() or self.home.error)
        if self.home.error:
            raise self.home.error

    def scores(self, items):
        """Scores of integer items; raises the coordinator's error."""
        self.results.clear()
        self.flow.submit(layout(self.network, 0).pack([items]), by_row(self.results))
        self.station.send(self.flow.admit())
        self._until(lambda: self.flow.idle)
        rows = np.array([self.results[i] for i in range(len(items))])
        return rows.reshape(len(items), *self.network.values[-1].shape)


def integers(network, items, seed=0):
    """Random items over the whole range of a network's input."""
    given = network.values[0]
    rng = np.random.default_rng(seed)
    shape = (items, *given.shape)
    return rng.integers(given.low, given.high, shape, endpoint=True).astype(given.dtype)
