# SPDX-License-Identifier: Apache-2.0
"""Costs of a placed model: bytes of weights in each node, and time and packets of a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from n3ic.systems.cluster.memory import model_layout
from n3ic.systems.cluster.nodes import ClusterDescription, ClusterNode
from n3ic.systems.cluster.placement import LayerPlacement, LayerSplit, ModelPlacement
from n3ic.systems.cluster.protocol import HEADER_BYTES, MAX_PACKETS, PACKET_BYTES
from n3ic.systems.cluster.traffic import (
    SLICE_BITS,
    Counts,
    LayerTraffic,
    NodeWork,
    Traffic,
    mean_traffic,
    period,
    row_traffic,
    sum_traffic,
)

_FRAME_BYTES = 8 + 14 + 20 + 8 + 4 + 12  # preamble, Ethernet, IPv4, UDP, frame check, gap
_CRC_BYTES = 4
EMPTY_BYTES = _FRAME_BYTES + HEADER_BYTES + _CRC_BYTES
"""Bytes on the wire of a datagram without packets: an acknowledgement."""
_THRESHOLD_BYTES = 4
_PROCESSOR = " processor"
_ROW_BITS = (SLICE_BITS, 512)


@dataclass(frozen=True)
class CostEstimate:
    """The plan's estimate of a row.

    Attributes:
        latency_s: seconds of a single row, from the coordinator's first task packet to its last
            score.
        rows_per_s: throughput with many rows in flight, limited by the busiest handler, kernel or
            link.
        bottleneck: name of that part, such as ``node2 kernel``.
        packets: packets of a row on all links.
        wire_bytes: bytes of a row on all links, frames and acknowledgements included.
        layers_s: seconds of each layer, and of the scores' way home.
    """

    latency_s: float
    rows_per_s: float
    bottleneck: str
    packets: float
    wire_bytes: float
    layers_s: tuple[float, ...]

    @property
    def packets_text(self) -> str:
        """Packets of a row; many rows share those of a ring of processes, which are tiles."""
        return f"{self.packets:,.1f}" if self.packets > 1 else f"{self.packets:.2g}"


def datagrams(packets: float, sender: ClusterNode, receiver: ClusterNode) -> float:
    """Return the datagrams for packets that are ready together; a card takes one packet each."""
    together = min(sender.figures.together, receiver.figures.together, MAX_PACKETS)
    return packets if together == 1 else float(np.ceil(packets / together))


def wire_bytes(packets: float, sender: ClusterNode, receiver: ClusterNode) -> float:
    """Return the bytes on the wire for packets that are ready together, with preamble and gap."""
    return packets * PACKET_BYTES + datagrams(packets, sender, receiver) * EMPTY_BYTES


def row_bytes(bits: int) -> int:
    """Return the bytes of a neuron's weights in whole memory rows: a packet's or a beat's width."""
    return max(-(-bits // width) * width // 8 for width in _ROW_BITS)


def weight_bytes(layer: LayerPlacement, inputs: int, neurons: int) -> Mapping[int, int]:
    """Compute the bytes of a layer in each node's memory: whole slices of weights, and thresholds.

    Args:
        layer: placement of the layer.
        inputs: number of input bits.
        neurons: number of neurons.

    Returns:
        Bytes by node number.
    """
    by_node: dict[int, int] = {}
    for share in layer.shares:
        size = share.end - share.start
        by_input = layer.split is LayerSplit.INPUT
        by_node[share.node] = neurons * row_bytes(size) if by_input else size * row_bytes(inputs)
    for holder in layer.reducers or layer.shares:
        more = _THRESHOLD_BYTES * (holder.end - holder.start)
        by_node[holder.node] = by_node.get(holder.node, 0) + more
    return by_node


def memory_used(placement: ModelPlacement) -> dict[int, int]:
    """Compute the bytes of weights by node number."""
    used: dict[int, int] = {}
    for layer, (inputs, neurons) in zip(placement.layers, pairwise(placement.shape), strict=True):
        for node, size in weight_bytes(layer, inputs, neurons).items():
            used[node] = used.get(node, 0) + size
    return used


def is_tiled(cluster: ClusterDescription) -> bool:
    """Whether the ring sends tiles: every node and the coordinator are processes."""
    return all(n.figures.tiles is not None for n in (cluster.home, *cluster.nodes))


def tile_nodes(
    placement: ModelPlacement, cluster: ClusterDescription, rows: int
) -> tuple[ClusterNode, ...]:
    """Return the coordinator and the nodes with their clocks for tiles, a packet being a tile.

    Args:
        placement: placement of the model.
        cluster: nodes of a ring for which :func:`is_tiled` holds.
        rows: rows over which the clocks of a tile are divided.
    """
    used = memory_used(placement)
    nodes = []
    for number, node in enumerate((cluster.home, *cluster.nodes)):
        tiles = node.figures.tiles
        assert tiles is not None  # noqa: S101 - is_tiled()
        cached = used.get(number, 0) <= tiles.cache
        figures = replace(
            node.figures,
            packet=tiles.message / rows,
            datagram=0.0,
            together=1,
            slice_clocks=tiles.cached_slice if cached else tiles.slice,
            compute=tiles.row,
            result=0.0,
        )
        nodes.append(replace(node, figures=figures))
    return tuple(nodes)


def estimate_cost(
    placement: ModelPlacement, cluster: ClusterDescription, cores: int = 0
) -> CostEstimate:
    """Estimate time and traffic of a row from packet counts and the nodes' clocks.

    A single row waits in each layer for the busiest link or handler, for the way round the ring,
    and for the slowest kernel. With many rows the layers overlap, so the busiest part sets the
    pace. A ring of processes sends tiles, whose clocks many rows share.

    Args:
        placement: placement of the model.
        cluster: the nodes.
        cores: processors that all processes share; 0 if each has its own.
    """
    tiled = is_tiled(cluster)
    together = model_layout(placement).rows if tiled else 1
    nodes = (cluster.home, *cluster.nodes)
    alone = tile_nodes(placement, cluster, 1) if tiled else nodes
    nodes = tile_nodes(placement, cluster, together) if tiled else nodes
    # Replicas take rows in turn, so the mean over one period is the mean over all rows.
    rows = [row_traffic(placement, row, tiled=tiled) for row in range(period(placement))]
    layers = tuple(_layer_seconds(layer, alone) for layer in rows[0])
    total = mean_traffic([sum_traffic(row) for row in rows])
    computed = np.mean([_computed(row, len(nodes)) for row in rows], axis=0)
    clocks = np.mean([_kernel_clocks(row, nodes) for row in rows], axis=0)
    busy = _busy(total, computed, clocks, nodes)
    if cores:
        work = sum(seconds for name, seconds in busy.items() if name.endswith(_PROCESSOR))
        busy[f"{cores} cores"] = work / cores
    slowest = max(busy, key=lambda name: busy[name])
    wire = sum(_sent_bytes(total, i, nodes) for i in range(len(nodes)))
    return CostEstimate(
        latency_s=sum(layers) + _home_seconds(cluster.home),
        rows_per_s=1 / busy[slowest],
        bottleneck=slowest,
        packets=total.packets / together,
        wire_bytes=wire / together,
        layers_s=layers,
    )


def kernel_cost(placement: ModelPlacement, cluster: ClusterDescription) -> CostEstimate:
    """Estimate one process without a ring: the kernel of a placement on one node."""
    nodes = tile_nodes(placement, cluster, 1)
    clocks = _kernel_clocks(row_traffic(placement, tiled=True), nodes)
    seconds = max(node.seconds(float(c)) for node, c in zip(nodes, clocks, strict=True))
    layers = (seconds, *(0.0 for _ in placement.layers))
    return CostEstimate(seconds, 1 / seconds, "kernel", 0.0, 0.0, layers)


def _layer_seconds(layer: LayerTraffic, nodes: tuple[ClusterNode, ...]) -> float:
    """Estimate the seconds of a single row in one layer."""
    seconds = 0.0
    for part, hops in zip((layer.inputs, layer.sums), layer.hops, strict=True):
        if not part.origins.any():
            continue
        handled = max(_handled(part, i, nodes) for i in range(len(nodes)))
        link_seconds = max(_moved(part, i, nodes) for i in range(len(nodes)))
        way = max(n.latency_s + n.seconds(n.figures.forward) + _alone(n) for n in nodes)
        # Links and handlers work at the same time, so the slower one counts, not their sum.
        seconds += max(handled, link_seconds) + hops * way
        seconds += max(
            n.seconds(n.figures.classify) for n, t in zip(nodes, part.consumed, strict=True) if t
        )
    kernels = (_computing(work, nodes[work.node]) for work in layer.work)
    return seconds + max(kernels, default=0.0)


def _computing(work: NodeWork, node: ClusterNode) -> float:
    """Estimate the seconds from the last words of a row to the packet of the last result."""
    f = node.figures
    return node.seconds(work.neurons * f.neuron_clocks(work.inputs) + f.compute + f.result)


def _kernel_clocks(row: tuple[LayerTraffic, ...], nodes: tuple[ClusterNode, ...]) -> Counts:
    """Compute the clocks that each node's kernel needs for a row's neurons."""
    clocks = np.zeros(len(nodes))
    for work in (w for layer in row for w in layer.work):
        figures = nodes[work.node].figures
        clocks[work.node] += work.neurons * figures.neuron_clocks(work.inputs)
    return clocks


def _handled(part: Traffic, at: int, nodes: tuple[ClusterNode, ...]) -> float:
    """Estimate the seconds that a node needs to receive and send its packets."""
    node, before, after = nodes[at], nodes[at - 1], nodes[(at + 1) % len(nodes)]
    received = _handling(float(part.links[at - 1]), before, node, node)
    sent = _handling(float(part.links[at]), node, after, node)
    # One processor does both in turn; a card has a pipeline for each.
    return received + sent if node.figures.serial else max(received, sent)


def _handling(
    packets: float, sender: ClusterNode, receiver: ClusterNode, node: ClusterNode
) -> float:
    """Estimate the seconds that packets from sender to receiver cost ``node``, one of the two."""
    grams = datagrams(packets, sender, receiver)
    return node.seconds(packets * node.figures.packet + grams * node.figures.datagram)


def _moved(part: Traffic, at: int, nodes: tuple[ClusterNode, ...]) -> float:
    """Estimate the seconds that a node's link needs for its packets and acknowledgements."""
    return _sent_bytes(part, at, nodes) * 8 / nodes[at].link_bps


def _sent_bytes(part: Traffic, at: int, nodes: tuple[ClusterNode, ...]) -> float:
    """Return the bytes of packets to the successor and of acknowledgements to the predecessor."""
    node, before, after = nodes[at], nodes[at - 1], nodes[(at + 1) % len(nodes)]
    answers = datagrams(float(part.links[at - 1]), before, node)
    return wire_bytes(float(part.links[at]), node, after) + answers * EMPTY_BYTES


def _alone(node: ClusterNode) -> float:
    """Return the seconds of one packet on a node's link."""
    return (PACKET_BYTES + EMPTY_BYTES) * 8 / node.link_bps


def _computed(row: tuple[LayerTraffic, ...], nodes: int) -> Counts:
    """Count the layers of which each node computes a part."""
    owners = [work.node for layer in row for work in layer.work]
    return np.bincount(owners, minlength=nodes).astype(np.float64)


def _home_seconds(home: ClusterNode) -> float:
    """Estimate the seconds of the coordinator for a row: a process starts and finishes each row."""
    return 2 * home.seconds(home.figures.compute + home.figures.result) * home.figures.serial


def _busy(
    total: Traffic, computed: Counts, clocks: Counts, nodes: tuple[ClusterNode, ...]
) -> dict[str, float]:
    """Estimate the seconds of a row in each part of the cluster.

    Args:
        total: packets of a row.
        computed: number of layers of which each node computes a part.
        clocks: clocks of each node's kernel.
        nodes: the coordinator, then the nodes.
    """
    seconds_of: dict[str, float] = {}
    for i, node in enumerate(nodes):
        handler = _handled(total, i, nodes)
        kernel = node.seconds(float(clocks[i]))
        if node.figures.serial:
            rows = node.seconds(float(computed[i]) * (node.figures.compute + node.figures.result))
            # Index 0 is the coordinator.
            begun = 0.0 if i else _home_seconds(node)
            seconds_of[f"{node.name}{_PROCESSOR}"] = handler + kernel + rows + begun
        else:
            seconds_of[f"{node.name} packets"] = handler
            seconds_of[f"{node.name} kernel"] = kernel
        seconds_of[f"{node.name} link"] = _moved(total, i, nodes)
    return {name: float(np.float64(seconds)) for name, seconds in seconds_of.items()}
