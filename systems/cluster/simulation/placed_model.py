# SPDX-License-Identifier: Apache-2.0
"""Workloads of the rows of a placed binary model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from n3ic.systems.cluster.placement import LayerPlacement, LayerSplit, ModelPlacement, Share
from n3ic.systems.cluster.protocol import HOME, SCORES_PER_PACKET, SUMS_PER_PACKET
from n3ic.systems.cluster.simulation.components import (
    SLICE,
    PacketTrain,
    SimNode,
    Stage,
    Workload,
    nothing,
)
from n3ic.systems.cluster.traffic import SLICE_BITS, holders, results_of, slices_of, work_of


def row_workload(placement: ModelPlacement, row: int, nodes: Sequence[SimNode]) -> Workload:
    """Make the workload of a row: one stage per layer, and one more for partial popcounts.

    Args:
        placement: placement of the model.
        row: number of the row.
        nodes: the coordinator, then the nodes in ring order; their slice sizes are read.
    """
    stages: list[Stage] = []
    sources: Sequence[Share] = (Share(HOME, 0, placement.shape[0]),)
    for (inputs, neurons), layer in zip(pairwise(placement.shape), placement.layers, strict=True):
        owners = holders(layer, row)
        work = nothing(placement.nodes)
        for owner in owners:
            mine = work_of(layer, owner, inputs, neurons)
            work[owner.node] = mine.neurons * nodes[owner.node].slices(mine.inputs)
        flows = tuple(f for s in sources for f in _input_flows(layer, s, owners))
        stages.append(_stage("layer", flows, work))
        if layer.reducers:
            sums = tuple(
                PacketTrain(
                    o.node, -(-(r.end - r.start) // SUMS_PER_PACKET), ((r.node, 0.0),), SLICE
                )
                for o in owners
                for r in layer.reducers
            )
            stages.append(_stage("sums", sums, nothing(placement.nodes)))
        sources = results_of(layer, row)
    for source in sources:
        # Scores leave in the last stage, packed as the protocol packs them.
        stages[-1].results[source.node] = -(-(source.end - source.start) // SCORES_PER_PACKET)
    return Workload("placed", tuple(stages))


def _input_flows(
    layer: LayerPlacement, source: Share, owners: Sequence[Share]
) -> list[PacketTrain]:
    """Group the packets of one source's bits by the nodes that receive them."""
    packets: Counter[tuple[int, ...]] = Counter()
    if layer.split is LayerSplit.INPUT:
        for at in range(source.start, source.end, SLICE_BITS):
            end = min(at + SLICE_BITS, source.end)
            # A packet of inputs may reach two owners if a share does not end with the packet.
            packets[tuple(o.node for o in owners if o.start < end and at < o.end)] += 1
    else:
        packets[tuple(o.node for o in owners)] = slices_of(source.end - source.start)
    return [
        PacketTrain(source.node, count, tuple((node, 0.0) for node in nodes), SLICE)
        for nodes, count in packets.items()
    ]


def _stage(name: str, flows: tuple[PacketTrain, ...], work: NDArray[np.float64]) -> Stage:
    none = np.zeros_like(work)
    results = np.zeros(len(work), dtype=np.int64)
    return Stage(name, flows, results, work, none, none, none, SLICE, whole=True)
