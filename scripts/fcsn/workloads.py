# SPDX-License-Identifier: Apache-2.0
"""Neural-network kernels on a ring: the tasks that each node spawns and the work that it does.

Data is distributed as in FCsN (Guo et al., section IV-C). In dense and sparse products, the
right-hand matrix is the data, divided by columns, and the left-hand matrix becomes tasks, so that
no two nodes write the same output. In a sparse matrix-vector product the vector is divided, and
partial results go to the owners of the rows. A convolution is divided by rows, and RDMA fetches
halos.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import cbrt, sqrt

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
        skew: exponent of Zipf's law for the columns of a sparse matrix; 0 for uniform columns.
        seed: seed of the random sparse matrices.
        slice_bits: weights of a binary neuron that a node counts together.
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
    skew: float = 0.0
    seed: int = 0
    slice_bits: int = SLICE_BITS

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
    """Send non-zeros to the owner of the vector's element, partial results to the row's owner."""
    counts = non_zeros(problem, nodes)
    rows = problem.size / nodes
    tasks, back = [], []
    for i in range(nodes):
        for j in range(nodes):
            if counts[i, j]:
                there = -(-int(counts[i, j]) // NONZEROS_PER_PACKET)
                tasks.append(PacketTrain(i + 1, there, ((j + 1, float(counts[i, j])),)))
                # A block has at most one partial sum per row, and no more than it has non-zeros.
                sums = min(float(counts[i, j]), rows)
                if i != j:
                    packets = -(-int(sums) // ELEMENTS)
                    back.append(PacketTrain(j + 1, packets, ((i + 1, sums),)))
    local = np.array([0.0, *counts.sum(axis=1)])
    gathered = _even(nodes, problem.size / nodes * ELEMENT_BYTES)
    none = nothing(nodes)
    return (
        Stage(
            "spmv", tuple(tasks), _none(nodes), local, local / NONZEROS_PER_PACKET, gathered, none
        ),
        Stage("spmv sums", tuple(back), _none(nodes), none, none, none, none),
    )


def _spgemm(problem: KernelProblem, nodes: int) -> tuple[Stage, ...]:
    row = problem.size * problem.density  # non-zeros of a row of the right matrix
    counts = non_zeros(problem, nodes)
    gathered = counts.sum(axis=1) * 2 * ELEMENT_BYTES
    return (_sparse("spgemm", counts.sum(axis=1), row, nodes, gathered),)


def _aggregation(problem: KernelProblem, nodes: int) -> tuple[Stage, ...]:
    return (_aggregate(problem, problem.columns, nodes),)


def _aggregate(problem: KernelProblem, columns: int, nodes: int) -> Stage:
    """Send edges round; each node sums its columns of all rows."""
    edges = non_zeros(problem, nodes).sum(axis=1)
    gathered = np.full(nodes, problem.graph.nodes / nodes * columns * ELEMENT_BYTES)
    return _sparse("aggregation", edges, columns, nodes, gathered, whole=True)


def _sparse(
    name: str, spawned: Array, columns: float, nodes: int, gathered: Array, *, whole: bool = False
) -> Stage:
    """Make a sparse product with distributed columns; ``whole`` columns cannot be divided."""
    owned = _divided(int(columns), nodes) if whole else [columns / nodes] * nodes
    flows = tuple(
        PacketTrain(
            i,
            -(-int(mine) // NONZEROS_PER_PACKET),
            tuple((j, float(mine * c)) for j, c in enumerate(owned, 1) if c),
        )
        for i, mine in enumerate(spawned, 1)
        if mine
    )
    local = np.array([0.0, *(spawned * columns)])
    streamed, gathered = np.array([[0.0, *spawned / NONZEROS_PER_PACKET], [0.0, *gathered]])
    return Stage(name, flows, _none(nodes), local, streamed, gathered, nothing(nodes))


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

    The first product is local, because each node has the features of its rows and all weights. Its
    result goes to the owners of its columns, which aggregate it.
    """
    g, hidden = problem.graph, problem.hidden
    rows, columns = g.nodes / nodes, _divided(hidden, nodes)
    flows = [PacketTrain(i, 0, ((i, rows * g.features * hidden),)) for i in range(1, nodes + 1)]
    trains = [
        PacketTrain(i, max(1, round(rows * c / ELEMENTS)), ((j, 0.0),))
        for i in range(1, nodes + 1)
        for j, c in enumerate(columns, 1)
        if c
    ]
    none = nothing(nodes)
    product = _even(nodes, rows * g.features * hidden)
    first = Stage("features", tuple(flows), _none(nodes), product, none, none, none)
    moved = Stage("columns", tuple(trains), _none(nodes), none, none, none, none)
    second = _dense("weights", g.nodes, [float(c) for c in columns], g.classes, nodes)
    second = replace(second, local=_even(nodes, rows * hidden * g.classes), gathered=none)
    return (
        first,
        moved,
        _aggregate(problem, hidden, nodes),
        second,
        _aggregate(problem, g.classes, nodes),
    )


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


def non_zeros(problem: KernelProblem, nodes: int) -> Array:
    """Count the non-zeros of a random sparse matrix by block of rows and block of columns.

    Args:
        problem: sizes, density, skew and seed.
        nodes: number of blocks of rows and of columns.

    Returns:
        float64 array of shape ``(nodes, nodes)`` of whole numbers.
    """
    on_graph = problem.kernel in ("aggregation", "gnn")
    size = problem.graph.nodes if on_graph else problem.size
    total = problem.graph.edges if on_graph else round(problem.size**2 * problem.density)
    popular = np.arange(1, size + 1, dtype=np.float64) ** -problem.skew
    ends = np.cumsum([0, *_divided(size, nodes)])
    # With more nodes than columns some blocks are empty, which reduceat() cannot express.
    blocks = np.add.reduceat(popular, ends[:-1]) if nodes <= size else np.ones(nodes)
    columns = blocks / blocks.sum()
    # In a graph, popular nodes also have many links, so rows are as skewed as columns.
    rows = columns if on_graph else np.full(nodes, 1 / nodes)
    shares = np.outer(rows, columns).ravel()
    counts = np.random.default_rng(problem.seed).multinomial(total, shares / shares.sum())
    return counts.reshape(nodes, nodes).astype(np.float64)


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
