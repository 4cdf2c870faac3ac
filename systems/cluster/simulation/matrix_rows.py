# SPDX-License-Identifier: Apache-2.0
"""Workloads of rows that are combined with columns of a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from n3ic.systems.cluster.figures import ArrayFigures
from n3ic.systems.cluster.kernels import GemmKernel
from n3ic.systems.cluster.matrices import LANES
from n3ic.systems.cluster.nodes import ClusterNode
from n3ic.systems.cluster.protocol import HOME, WIDE_PER_PACKET
from n3ic.systems.cluster.simulation.components import PacketTrain, Stage, Workload, nothing

_NONE = ArrayFigures(0, 0, 0)


def matrix_row(
    kernel: GemmKernel,
    nodes: Sequence[ClusterNode],
    weight_rows: Mapping[int, int] | None = None,
) -> Workload:
    """Make the workload of a row of a kernel with a matrix.

    Args:
        kernel: the kernel.
        nodes: the nodes in ring order, without the coordinator.
        weight_rows: rows of weights of a node, by number; those of a matrix without zeros where a
            node is not named.
    """
    matrix, rows = kernel.whole_matrix, weight_rows or {}
    local, results = nothing(len(nodes)), np.zeros(len(nodes) + 1, dtype=np.int64)
    work = []
    for number, node in enumerate(nodes, 1):
        share = kernel.share(number, len(nodes))
        columns = share.end - share.start
        if not columns:
            continue
        at_once = max(1, int(node.figures.macs) // LANES)
        groups = -(-columns // at_once)
        whole = rows.get(number, groups * -(-len(matrix.matrix) // LANES))
        array = node.figures.array or _NONE
        packets = matrix.windows * -(-columns // WIDE_PER_PACKET)
        # Sums leave while others are added: the slower of the two sets the pace.
        begins = whole / groups * min(groups, -(-WIDE_PER_PACKET // at_once))
        clocks = max(matrix.windows * whole, begins + (packets - 1) * array.totals) + array.row
        local[number] = clocks * node.figures.macs
        results[number] = packets
        work.append((number, 0.0))
    none = nothing(len(nodes))
    flow = PacketTrain(HOME, matrix.packets, tuple(work))
    stage = Stage("matrix", (flow,), results, local, none, none, none, whole=True)
    return Workload("matrix", (stage,))
