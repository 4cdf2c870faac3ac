# SPDX-License-Identifier: Apache-2.0
"""Neural-network kernels on a ring: the tasks that each node spawns and the work that it does.

Data is distributed as in FCsN (Guo et al., section IV-C). In dense products, the right-hand matrix
is the data, divided by columns, and the left-hand matrix becomes tasks, so that no two nodes write
the same output. In sparse products, one of :class:`Travels`. A convolution is divided by rows, and
RDMA fetches halos.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import cbrt, ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.systems.cluster.protocol import BODY_BYTES, NONZEROS_PER_PACKET
from n3ic.systems.cluster.simulation.components import SLICE, PacketTrain, Stage, Workload, nothing
from n3ic.systems.cluster.traffic import SLICE_BITS, slices_of

ELEMENT_BYTES = 4
ELEMENTS = BODY_BYTES // ELEMENT_BYTES  # dense elements per task packet

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GraphSize:
    """Sizes of a graph. Edges are directed; an undirected edge counts twice."""

    nodes: int
    edges: int
    features: int
    classes: int


GRAPHS: Mapping[str, GraphSize] = {
    "cora": GraphSize(2_708, 10_556, 1_433, 7),
    "corafull": GraphSize(19_793, 126_842, 8_710, 70),
    "pubmed": GraphSize(19_717, 88_648, 500, 3),
    "physics": GraphSize(34_493, 495_924, 8_415, 5),
    "reddit": GraphSize(232_965, 114_615_892, 602, 41),
}
"""The graphs of FCsN's figure 7c, with the counts of PyTorch Geometric's documentation."""


class Travels(StrEnum):
    """What of a sparse product travels round the ring."""

    OPERAND = "operand"
    """Rows of the operand, to all nodes; each holds the matrix's rows of its results."""
    REQUESTED = "requested"
    """Rows of the operand, to each node that asks for them by RDMA; it holds the same."""
    SUMS = "sums"
    """Partial results, to their owners; each node holds the matrix's columns of its operand."""
    NONZEROS = "nonzeros"
    """Non-zeros, to the owner of the operand's row; then partial results. FCsN recommends it."""


@dataclass(frozen=True)
class KernelProblem:
    """A kernel and its sizes.

    Attributes:
        kernel: one of :data:`KERNELS`.
        size: rows and columns of matrices, edge of an image, or inputs of a binary layer.
        outputs: neurons of a binary layer.
        density: fraction of non-zero elements in sparse matrices.
        window: edge of a convolution's kernel.
        shape: layer sizes of an MLP.
        batch: rows of an MLP or a binary layer.
        graph: graph of an aggregation or a graph network.
        columns: columns that an aggregation sums.
        hidden: columns between the two layers of a graph network.
        seed: seed of the random sparse matrices.
        slice_bits: weights of a binary neuron that a node counts together.
        travels: what of a sparse product travels.
    """

    kernel: str
    size: int = 2048
    outputs: int = 2048
    density: float = 0.01
    window: int = 3
    shape: tuple[int, ...] = (2048, 2048, 2048, 10)
    batch: int = 64
    graph: GraphSize = GRAPHS["cora"]
    columns: int = 16
    hidden: int = 16
    seed: int = 0
    slice_bits: int = SLICE_BITS
    travels: Travels = Travels.OPERAND

    def grown(self, nodes: int) -> KernelProblem:
        """Return a problem with ``nodes`` times the work, for weak scaling."""
        # GEMM's work grows with the cube of the edge, that of the other kernels with its square.
        edge = {"gemm": cbrt(nodes)}.get(self.kernel, sqrt(nodes))
        g = self.graph
        size = self.size if self.kernel == "binary" else round(self.size * edge)
        if self.kernel == "spgemm":  # non-zeros of both matrices grow with the area
            size = round(self.size * cbrt(nodes))
        return replace(
            self,
            size=size,
            outputs=self.outputs * nodes,
            batch=self.batch if self.kernel == "binary" else self.batch * nodes,
            graph=replace(g, nodes=g.nodes * nodes, edges=g.edges * nodes),
        )


def workload(problem: KernelProblem, nodes: int) -> Workload:
    """Make the workload of a problem on ``nodes`` nodes.

    Raises:
        UsageError: The kernel is unknown.
    """
    if problem.kernel not in KERNELS:
        names = ", ".join(KERNELS)
        raise UsageError(f"--kernel: expected one of {names}, got {problem.kernel!r}")
    return Workload(problem.kernel, KERNELS[problem.kernel](problem, nodes))


def _binary(problem: KernelProblem, nodes: int) -> tuple[Stage, ...]:
    """Split a binary layer by output: the coordinator's input bits go round, result bits return."""
    neurons, slices = _divided(problem.outputs, nodes), -(-problem.size // problem.slice_bits)
    work = tuple((i, float(n * slices * problem.batch)) for i, n in enumerate(neurons, 1) if n)
    results = np.array([0, *(problem.batch * slices_of(n) for n in neurons)], dtype=np.int64)
    flow = PacketTrain(0, problem.batch * slices_of(problem.size), work, SLICE)
    local = _by_node(nodes, work)
    gathered, none = _even(nodes, problem.batch * problem.size / 8 / nodes), nothing(nodes)
    return (Stage("binary", (flow,), results, local, none, gathered, none, SLICE),)


def _gemm(problem: KernelProblem, nodes: int) -> tuple[Stage, ...]:
    n = problem.size
    return (_dense("gemm", n, [float(c) for c in _divided(n, nodes)], n, nodes),)


def _mlp(problem: KernelProblem, nodes: int) -> tuple[Stage, ...]:
    stages = []
    for inputs, outputs in zip(problem.shape, problem.shape[1:], strict=False):
        mine = [float(c) for c in _divided(inputs, nodes)]
        stages.append(_dense("mlp", problem.batch, mine, outputs, nodes))
    return tuple(stages)


def _dense(name: str, rows: int, spawned: Sequence[float], columns: int, nodes: int) -> Stage:
    """Make a dense product: each node sends its ``spawned`` columns of the left matrix round."""
    owned = _divided(columns, nodes)
    flows = tuple(
        PacketTrain(
            i,
            max(1, round(rows * mine / ELEMENTS)),
            tuple((j, rows * mine * c) for j, c in enumerate(owned, 1) if c),
        )
        for i, mine in enumerate(spawned, 1)
        if mine
    )
    local = np.array([0.0, *(rows * sum(spawned) * c for c in owned)])
    gathered = np.array([0.0, *(rows * mine * ELEMENT_BYTES for mine in spawned)])
    none = nothing(nodes)
    return Stage(name, flows, _none(nodes), local, none, gathered, none)


def _spmv(problem: KernelProblem, nodes: int) -> tuple[Stage, ...]:
    return _sparse(problem, 1, nodes)


def _spgemm(problem: KernelProblem, nodes: int) -> tuple[Stage, ...]:
    # The columns of a row of the right matrix are its non-zeros, with a column's number each.
    return _sparse(problem, problem.size * problem.density, nodes, words=2)


def _aggregation(problem: KernelProblem, nodes: int) -> tuple[Stage, ...]:
    return _sparse(problem, problem.columns, nodes)


def _sparse(
    problem: KernelProblem, columns: float, nodes: int, words: int = 1
) -> tuple[Stage, ...]:
    """Make a product of a sparse matrix and an operand with ``columns`` numbers in a row.

    At the start each node has its rows of the operand, at the end its rows of the result.

    Args:
        problem: sizes, and what travels.
        columns: numbers in a row of the operand.
        nodes: number of nodes.
        words: words of a number in a packet.
    """
    counts = non_zeros(problem, nodes)
    rows = (problem.graph.nodes if _on_graph(problem) else problem.size) / nodes
    flows: list[PacketTrain] = []
    sums: list[PacketTrain] = []

    def packets(operand_rows: float) -> int:
        return ceil(operand_rows * columns * words / ELEMENTS)

    for j in range(1, nodes + 1):  # a node with rows of the operand
        # Operations by the node that has the rows of the result.
        work = {i: n * columns for i, n in enumerate(counts[:, j - 1].tolist(), 1) if n}
        here = PacketTrain(j, 0, (), reads=1 / columns / NONZEROS_PER_PACKET)
        others = tuple((i, n) for i, n in work.items() if i != j)
        if problem.travels is Travels.OPERAND:
            own = ((j, work[j]),) if j in work else ()
            flows += [replace(here, work=own), replace(here, packets=packets(rows), work=others)]
            continue
        if problem.travels is Travels.SUMS:
            flows.append(replace(here, work=((j, sum(work.values())),)))
        for i, operations in work.items():
            elements = operations / columns
            if problem.travels is Travels.NONZEROS:
                there = ceil(elements / NONZEROS_PER_PACKET)
                flows.append(PacketTrain(i, there, ((j, operations),)))
            elif problem.travels is Travels.REQUESTED:
                # Rows of the operand in which random non-zeros are.
                needed = packets(rows * -np.expm1(-elements / rows))
                fetch = ((j, needed),) if i != j else ()
                flows.append(replace(here, origin=i, work=((i, operations),), fetch=fetch))
                continue
            if i != j:  # a block has at most one sum per row, and no more than it has non-zeros
                most = min(elements, rows)
                sums.append(PacketTrain(j, packets(most), ((i, most * columns),)))
    local = np.array([0.0, *counts.sum(axis=1) * columns])
    streamed = local / columns / NONZEROS_PER_PACKET
    gathered, none = _even(nodes, rows * columns * words * ELEMENT_BYTES), nothing(nodes)
    tasks = tuple(f for f in flows if f.work)
    stage = Stage(problem.kernel, tasks, _none(nodes), local, streamed, gathered, none)
    if not sums:
        return (stage,)
    return stage, Stage("sums", tuple(sums), _none(nodes), none, none, none, none)


def _conv2d(problem: KernelProblem, nodes: int) -> tuple[Stage, ...]:
    """Divide the image by rows; tasks at the edges are frozen until the halo has arrived."""
    n, halo = problem.size, problem.window // 2
    area = problem.window**2
    packets = -(-halo * n // ELEMENTS)
    flows = []
    rows = _divided(n, nodes)
    for i, mine in enumerate(rows, 1):
        others = [j for j in (i - 1, i + 1) if 1 <= j <= nodes]
        edge = min(mine, halo * len(others))
        flows.append(PacketTrain(i, 0, ((i, float((mine - edge) * n * area)),)))
        if edge:
            fetch = tuple((j, packets) for j in others)
            flows.append(PacketTrain(i, 0, ((i, float(edge * n * area)),), fetch=fetch))
    local = np.array([0.0, *(float(r * n * area) for r in rows)])
    edge_bytes = _even(nodes, halo * n * ELEMENT_BYTES if nodes > 1 else 0)
    none = nothing(nodes)
    return (Stage("conv2d", tuple(flows), _none(nodes), local, none, none, edge_bytes),)


def _graph_network(problem: KernelProblem, nodes: int) -> tuple[Stage, ...]:
    """Make two layers of graph convolution, each a product with weights and an aggregation.

    The products are local, because each node has the features of its rows and all weights.
    """
    g, stages = problem.graph, list[Stage]()
    for inputs, outputs in ((g.features, problem.hidden), (problem.hidden, g.classes)):
        work = g.nodes / nodes * inputs * outputs
        flows = tuple(PacketTrain(i, 0, ((i, work),)) for i in range(1, nodes + 1))
        none = nothing(nodes)
        local = _even(nodes, work)
        stages.append(Stage("weights", flows, _none(nodes), local, none, none, none))
        stages += _sparse(problem, outputs, nodes)
    return tuple(stages)


KERNELS: Mapping[str, Callable[[KernelProblem, int], tuple[Stage, ...]]] = {
    "binary": _binary,
    "gemm": _gemm,
    "spmv": _spmv,
    "spgemm": _spgemm,
    "aggregation": _aggregation,
    "conv2d": _conv2d,
    "mlp": _mlp,
    "gnn": _graph_network,
}
SPARSE = ("spmv", "spgemm", "aggregation", "gnn")
"""Kernels with a sparse product."""


def non_zeros(problem: KernelProblem, nodes: int) -> Array:
    """Count the non-zeros of a random sparse matrix by block of rows and block of columns.

    Args:
        problem: sizes, density and seed.
        nodes: number of blocks of rows and of columns.

    Returns:
        float64 array of shape ``(nodes, nodes)`` of whole numbers.
    """
    on_graph = _on_graph(problem)
    size = problem.graph.nodes if on_graph else problem.size
    total = problem.graph.edges if on_graph else round(problem.size**2 * problem.density)
    columns = np.array(_divided(size, nodes)) / size
    rows = columns if on_graph else np.full(nodes, 1 / nodes)
    shares = np.outer(rows, columns).ravel()
    counts = np.random.default_rng(problem.seed).multinomial(total, shares / shares.sum())
    return counts.reshape(nodes, nodes).astype(np.float64)


def _on_graph(problem: KernelProblem) -> bool:
    return problem.kernel in ("aggregation", "gnn")


def _divided(size: int, nodes: int) -> list[int]:
    """Divide a size among nodes, as evenly as integers allow."""
    return [size * (i + 1) // nodes - size * i // nodes for i in range(nodes)]


def _even(nodes: int, each: float) -> Array:
    """Return the same value for all nodes, and 0 for the coordinator."""
    return np.array([0.0, *[float(each)] * nodes])


def _by_node(nodes: int, work: Sequence[tuple[int, float]]) -> Array:
    by_node = nothing(nodes)
    for node, operations in work:
        by_node[node] += operations
    return by_node


def _none(nodes: int) -> NDArray[np.int64]:
    return np.zeros(nodes + 1, dtype=np.int64)
