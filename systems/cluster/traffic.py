# SPDX-License-Identifier: Apache-2.0
"""Count the packets that a row of a placed model causes on every link of the ring.

A node consumes the part of a task packet's range that it owns, and passes on the parts before and
after it, one packet each (docs/reference/cluster-protocol.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import lcm

import numpy as np
from numpy.typing import NDArray

from n3ic.model.bits import WORD_BITS
from n3ic.systems.cluster.placement import LayerPlacement, LayerSplit, ModelPlacement, Share
from n3ic.systems.cluster.protocol import BODY_WORDS, HOME, SCORES_PER_PACKET, SUMS_PER_PACKET

SLICE_BITS = BODY_WORDS * WORD_BITS
"""Input bits per task packet."""

Counts = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Traffic:
    """Packets of one row.

    Attributes:
        links: packets from node ``i`` to the next, float64 array of shape ``(nodes + 1,)``;
            node 0 is the coordinator.
        consumed: task packets of which a node consumes a part, its own included; same shape.
        origins: packets that each node puts on the ring or consumes itself; same shape.
    """

    links: Counts
    consumed: Counts
    origins: Counts

    @property
    def packets(self) -> float:
        """Packets on all links."""
        return float(self.links.sum())

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.links + other.links,
            self.consumed + other.consumed,
            self.origins + other.origins,
        )


@dataclass
class _Ring:
    """Packet counts of a ring of ``nodes`` nodes and its coordinator.

    In an ``inner`` ring the last node sends tasks to the first, past the coordinator.
    """

    nodes: int
    inner: bool = False
    links: list[int] = field(init=False)
    consumed: list[int] = field(init=False)
    origins: list[int] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("links", "consumed", "origins"):
            setattr(self, name, [0] * (self.nodes + 1))

    def send(
        self, origin: int, start: int, end: int, owners: Sequence[Share], times: int = 1
    ) -> int:
        """Send packets of ``[start, end)`` round the ring; return the most hops of any part."""
        owner = {o.node: (o.start, o.end) for o in owners}
        # Follow the range round the ring: each owner cuts its part out, which may split a fragment.
        fragments, node, hops = [(start, end)], origin, 0
        self.origins[origin] += times
        while fragments:
            if node in owner:
                first, last = owner[node]
                remaining = [part for f in fragments for part in _without(*f, first, last)]
                if sum(b - a for a, b in remaining) < sum(b - a for a, b in fragments):
                    # Several fragments may reach one owner; each is a packet of its own.
                    met = sum(max(a, first) < min(b, last) for a, b in fragments)
                    self.consumed[node] += times * met
                fragments = remaining
            if fragments:
                self.links[node] += times * len(fragments)
                node = self._next(node)
                hops += 1
        return hops

    def _next(self, node: int) -> int:
        return 1 if self.inner and node == self.nodes else (node + 1) % (self.nodes + 1)

    def send_to(self, origin: int, node: int, times: int) -> int:
        """Send packets to one node; return the hops."""
        self.origins[origin] += times
        hops, at = 0, origin
        while at != node:
            self.links[at] += times
            at = (at + 1) % (self.nodes + 1) if node == HOME else self._next(at)
            hops += 1
        self.consumed[node] += times
        return hops

    def traffic(self) -> Traffic:
        counts = (self.links, self.consumed, self.origins)
        return Traffic(*(np.asarray(c, dtype=np.float64) for c in counts))


def _without(start: int, end: int, first: int, last: int) -> list[tuple[int, int]]:
    """Return the parts of ``[start, end)`` outside ``[first, last)``."""
    return [(a, b) for a, b in ((start, min(end, first)), (max(start, last), end)) if a < b]


@dataclass(frozen=True)
class NodeWork:
    """Work of a node for one row in one layer.

    Attributes:
        node: number of the node.
        neurons: number of neurons that it counts, in part or whole.
        inputs: input bits of each neuron that it counts.
    """

    node: int
    neurons: int
    inputs: int


@dataclass(frozen=True, eq=False)
class LayerTraffic:
    """Traffic of a row in one layer.

    Attributes:
        inputs: traffic of input bits to the owners of the weights.
        sums: traffic of partial popcounts to the reducers; zero unless split by inputs.
        hops: maximum links that an input packet, and then a packet of sums, passes.
        work: work of each node that computes a part; empty for the scores' way home.
    """

    inputs: Traffic
    sums: Traffic
    hops: tuple[int, int]
    work: tuple[NodeWork, ...] = ()

    @property
    def total(self) -> Traffic:
        """Traffic of inputs and sums."""
        return self.inputs + self.sums


def period(placement: ModelPlacement) -> int:
    """Return the number of rows after which the choice of replicas repeats."""
    return lcm(*(len(p.shares) for p in placement.layers if p.split is LayerSplit.REPLICATED))


def sum_traffic(layers: Sequence[LayerTraffic]) -> Traffic:
    """Sum the traffic of all layers."""
    total = layers[0].total
    for layer in layers[1:]:
        total = total + layer.total
    return total


def mean_traffic(rows: Sequence[Traffic]) -> Traffic:
    """Average the traffic of several rows."""
    if len(rows) == 1:
        return rows[0]
    return Traffic(
        *(
            np.mean([getattr(r, name) for r in rows], axis=0)
            for name in ("links", "consumed", "origins")
        )
    )


def holders(layer: LayerPlacement, row: int) -> tuple[Share, ...]:
    """Return the shares that compute a row: all of them, or the replica whose turn it is."""
    if layer.split is LayerSplit.REPLICATED:
        return (layer.shares[row % len(layer.shares)],)
    return layer.shares


def results_of(layer: LayerPlacement, row: int) -> tuple[Share, ...]:
    """Return the shares that hold the outputs of a layer."""
    return layer.reducers or holders(layer, row)


def work_of(layer: LayerPlacement, owner: Share, inputs: int, neurons: int) -> NodeWork:
    """Return the work of an owner for a row."""
    size = owner.end - owner.start
    if layer.split is LayerSplit.INPUT:
        return NodeWork(owner.node, neurons, size)
    return NodeWork(owner.node, size, inputs)


def slices_of(bits: int) -> int:
    """Return the number of task packets that carry ``bits`` bits."""
    return -(-bits // SLICE_BITS)


def row_traffic(
    placement: ModelPlacement, row: int = 0, *, tiled: bool = False
) -> tuple[LayerTraffic, ...]:
    """Count the traffic of a row in each layer, and of its scores on their way home.

    Args:
        placement: placement of the model.
        row: number of the row; it chooses the replica of a replicated layer.
        tiled: count tiles instead of packets; a tile holds all numbers of one sender for a layer.

    Returns:
        One entry per layer, and one more for the scores.
    """
    sources: tuple[Share, ...] = (Share(HOME, 0, placement.shape[0]),)
    traffic = []
    for (inputs, neurons), layer in zip(pairwise(placement.shape), placement.layers, strict=True):
        owners = holders(layer, row)
        traffic.append(_layer(placement.nodes, layer, owners, sources, inputs, neurons, tiled))
        sources = results_of(layer, row)
    home = _Ring(placement.nodes)
    hops = 0
    for source in sources:
        packets = 1 if tiled else -(-(source.end - source.start) // SCORES_PER_PACKET)
        hops = max(hops, home.send_to(source.node, HOME, packets))
    nothing = _Ring(placement.nodes).traffic()
    return (*traffic, LayerTraffic(home.traffic(), nothing, (hops, 0)))


@lru_cache(maxsize=4096)  # most rows, and most compared placements, share their layers
def _layer(
    nodes: int,
    layer: LayerPlacement,
    owners: tuple[Share, ...],
    sources: tuple[Share, ...],
    inputs: int,
    neurons: int,
    tiled: bool,
) -> LayerTraffic:
    ring, back = _Ring(nodes, inner=tiled), _Ring(nodes, inner=tiled)
    hops = hops_back = 0
    for source in sources:
        size = source.end - source.start
        packets = 1 if tiled else slices_of(size)
        step = size if tiled else SLICE_BITS
        if layer.split is LayerSplit.REPLICATED:
            # One replica takes the whole row, so nothing is split on the way.
            hops = max(hops, ring.send_to(source.node, owners[0].node, packets))
        elif layer.split is LayerSplit.OUTPUT:
            hops = max(hops, ring.send(source.node, 0, neurons, owners, packets))
        for at in range(source.start, source.end if layer.split is LayerSplit.INPUT else 0, step):
            end = min(at + step, source.end)
            hops = max(hops, ring.send(source.node, at, end, owners))
    for owner in owners:
        if tiled and layer.reducers:
            hops_back = max(hops_back, back.send(owner.node, 0, neurons, layer.reducers))
            continue
        for to in layer.reducers:  # boundaries of shares are boundaries of packets of sums
            packets = -(-(to.end - to.start) // SUMS_PER_PACKET)
            sent = back.send(owner.node, to.start, to.end, layer.reducers, packets)
            hops_back = max(hops_back, sent)
    work = tuple(work_of(layer, owner, inputs, neurons) for owner in owners)
    return LayerTraffic(ring.traffic(), back.traffic(), (hops, hops_back), work)
