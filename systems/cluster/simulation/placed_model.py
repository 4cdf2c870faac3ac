# SPDX-License-Identifier: Apache-2.0
"""Workloads of the rows of a placed binary model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from n3ic.systems.cluster.costs import is_tiled, tile_nodes
from n3ic.systems.cluster.memory import SLOTS, model_layout
from n3ic.systems.cluster.node import ROW_SLOTS
from n3ic.systems.cluster.nodes import ClusterDescription
from n3ic.systems.cluster.placement import LayerPlacement, LayerSplit, ModelPlacement, Share
from n3ic.systems.cluster.protocol import HOME, SCORES_PER_PACKET, SUMS_PER_PACKET
from n3ic.systems.cluster.simulation.components import (
    SLICE,
    PacketTrain,
    RingTrace,
    SimNode,
    Stage,
    Workload,
    nothing,
    sim_node,
)
from n3ic.systems.cluster.simulation.engine import simulate_rows
from n3ic.systems.cluster.traffic import SLICE_BITS, holders, results_of, slices_of, work_of


def simulate_placed(
    placement: ModelPlacement, cluster: ClusterDescription, rows: int, cores: int = 0
) -> tuple[RingTrace, RingTrace, tuple[SimNode, ...], int]:
    """Simulate a row alone and many rows of a placed model.

    Args:
        placement: placement of the model.
        cluster: the nodes.
        rows: least number of rows; in a ring of processes whole tiles, 64 or more.
        cores: processors that the processes share; 0 if each has its own.

    Returns:
        The row alone, the many rows, the nodes with the coordinator first, and the number of rows.
    """
    tiled = is_tiled(cluster)
    together = model_layout(placement).rows if tiled else 1
    described = tile_nodes(placement, cluster, 1) if tiled else (cluster.home, *cluster.nodes)
    one = [sim_node(node) for node in described]
    # Processes on shared cores compete for them; cards have pipelines of their own.
    one = [replace(n, core=0) if cores and n.serial else n for n in one]
    nodes = tuple(replace(n, pipeline=n.pipeline * together) for n in one)
    alone = simulate_rows([row_workload(placement, 0, one, tiled=tiled)], one, slots=1, cores=cores)
    work = [
        row_workload(placement, tag, nodes, tiled=tiled, rows=together)
        # A ring that is not full for most of the time would tell nothing of its speed.
        for tag in range(max(-(-rows // together), 4 * SLOTS if tiled else 1))
    ]
    many = simulate_rows(work, nodes, slots=SLOTS if tiled else ROW_SLOTS, cores=cores)
    return alone, many, nodes, together * len(work)


def row_workload(
    placement: ModelPlacement,
    row: int,
    nodes: Sequence[SimNode],
    *,
    tiled: bool = False,
    rows: int = 1,
) -> Workload:
    """Make the workload of a row: one stage per layer, and one more for partial popcounts.

    Args:
        placement: placement of the model.
        row: number of the row.
        nodes: the coordinator, then the nodes in ring order; their slice sizes are read.
        tiled: whether a packet is a tile, which holds all numbers of one sender for a layer.
        rows: rows of a tile.
    """
    stages: list[Stage] = []
    sources: Sequence[Share] = (Share(HOME, 0, placement.shape[0]),)
    for (inputs, neurons), layer in zip(pairwise(placement.shape), placement.layers, strict=True):
        owners = holders(layer, row)
        work = nothing(placement.nodes)
        for owner in owners:
            mine = work_of(layer, owner, inputs, neurons)
            work[owner.node] = rows * mine.neurons * nodes[owner.node].slices(mine.inputs)
        flows = tuple(f for s in sources for f in _input_flows(layer, s, owners, tiled))
        stages.append(_stage("layer", flows, work))
        if layer.reducers:
            sums = tuple(
                PacketTrain(
                    o.node,
                    1 if tiled else -(-(r.end - r.start) // SUMS_PER_PACKET),
                    ((r.node, 0.0),),
                    SLICE,
                )
                for o in owners
                for r in layer.reducers
            )
            stages.append(_stage("sums", sums, nothing(placement.nodes)))
        sources = results_of(layer, row)
    for source in sources:
        # Scores leave in the last stage, packed as the protocol packs them.
        packets = 1 if tiled else -(-(source.end - source.start) // SCORES_PER_PACKET)
        stages[-1].results[source.node] = packets
    return Workload("placed", tuple(stages))


def _input_flows(
    layer: LayerPlacement, source: Share, owners: Sequence[Share], tiled: bool
) -> list[PacketTrain]:
    """Group the packets of one source's bits by the nodes that receive them."""
    packets: Counter[tuple[int, ...]] = Counter()
    if layer.split is LayerSplit.INPUT:
        step = source.end - source.start if tiled else SLICE_BITS
        for at in range(source.start, source.end, step):
            end = min(at + step, source.end)
            # A packet of inputs may reach two owners if a share does not end with the packet.
            packets[tuple(o.node for o in owners if o.start < end and at < o.end)] += 1
    else:
        packets[tuple(o.node for o in owners)] = (
            1 if tiled else slices_of(source.end - source.start)
        )
    return [
        PacketTrain(source.node, count, tuple((node, 0.0) for node in nodes), SLICE)
        for nodes, count in packets.items()
    ]


def _stage(name: str, flows: tuple[PacketTrain, ...], work: NDArray[np.float64]) -> Stage:
    none = np.zeros_like(work)
    results = np.zeros(len(work), dtype=np.int64)
    return Stage(name, flows, results, work, none, none, none, SLICE, whole=True)
