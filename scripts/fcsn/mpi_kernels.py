# SPDX-License-Identifier: Apache-2.0
"""Kernels in the compute-centric model: each rank gathers missing data, then computes its rows.

Matrices are divided by rows. The right-hand matrix is gathered before the product, as distributed
PyTorch does over MPI (FCsN, section V-A). Numbers are small integers, so float32 holds every sum
exactly. Each rank makes the whole random problem and keeps its part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from n3ic.kernel import prediction
from n3ic.model.bits import pack
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import OutputLayer
from n3ic.model.network import BinaryModel
from scripts.fcsn.workloads import KernelProblem

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

Matrix = NDArray[np.float32]
Run = Callable[[], NDArray[Any]]
_BLOCK = 256  # nodes of a graph whose features are made together
_MOST = 4  # entries are in -4..4, so float32 sums of 2^20 products stay within 2^24: exact


def bounds(size: int, ranks: int) -> list[int]:
    """Return where the parts of the ranks begin and end."""
    return [size * i // ranks for i in range(ranks + 1)]


def prepare(problem: KernelProblem, comm: Comm) -> Run:
    """Make this rank's part of a problem.

    Args:
        problem: kernel and sizes.
        comm: communicator of the ranks.

    Returns:
        A function that runs the kernel once, communication included, and returns this rank's part
        of the result.
    """
    return _KERNELS[problem.kernel](problem, comm)


def _part(size: int, comm: Comm) -> slice:
    ends = bounds(size, comm.size)
    return slice(ends[comm.rank], ends[comm.rank + 1])


def _dense(rng: np.random.Generator, rows: int, columns: int) -> Matrix:
    return rng.integers(-_MOST, _MOST, (rows, columns), endpoint=True, dtype=np.int8).astype(
        np.float32
    )


def _gathered(comm: Comm, mine: Matrix, rows: int) -> Matrix:
    """Gather all rows of a matrix of which each rank has a part."""
    whole = np.empty((rows, *mine.shape[1:]), dtype=mine.dtype)
    row = int(np.prod(mine.shape[1:], dtype=np.int64))
    ends = bounds(rows, comm.size)
    counts = [(b - a) * row for a, b in pairwise(ends)]
    comm.Allgatherv(np.ascontiguousarray(mine), [whole, counts])
    return whole


def sparse_matrix(problem: KernelProblem) -> Any:
    """Make a problem's random sparse matrix in CSR, float32; the rows of a graph are its nodes."""
    import scipy.sparse

    on_graph = problem.kernel in ("aggregation", "gnn")
    size = problem.graph.nodes if on_graph else problem.size
    total = problem.graph.edges if on_graph else round(problem.size**2 * problem.density)
    rng = np.random.default_rng(problem.seed)
    rows, columns = rng.integers(0, size, (2, total))
    values = rng.integers(1, _MOST, total, endpoint=True).astype(np.float32)
    return scipy.sparse.csr_matrix((values, (rows, columns)), shape=(size, size))


def _gemm(problem: KernelProblem, comm: Comm) -> Run:
    n, rng = problem.size, np.random.default_rng(problem.seed)
    left, right = _dense(rng, n, n), _dense(rng, n, n)
    part = _part(n, comm)
    left, right = left[part].copy(), right[part].copy()
    # The exchange is inside the timed function: it is what the ring is compared with.
    return lambda: left @ _gathered(comm, right, n)


def _mlp(problem: KernelProblem, comm: Comm) -> Run:
    """Give each rank some columns of every layer's weights; activations are gathered."""
    rng = np.random.default_rng(problem.seed)
    x = _dense(rng, problem.batch, problem.shape[0]).clip(0, 1)
    weights = []
    for inputs, outputs in pairwise(problem.shape):
        weights.append(_dense(rng, outputs, inputs)[_part(outputs, comm)].copy())
    first = x.T[_part(problem.shape[0], comm)].copy()

    def run() -> NDArray[Any]:
        mine = first
        for weight, inputs in zip(weights, problem.shape, strict=False):
            out = weight @ _gathered(comm, mine, inputs)
            mine = (out > 0).astype(np.float32)
        return out

    return run


def _spmv(problem: KernelProblem, comm: Comm) -> Run:
    part = _part(problem.size, comm)
    left = sparse_matrix(problem)[part]
    vector = _dense(np.random.default_rng(problem.seed + 1), problem.size, 1)
    mine = vector[part].copy()
    return lambda: np.asarray(left @ _gathered(comm, mine, problem.size))


def _spgemm(problem: KernelProblem, comm: Comm) -> Run:
    import scipy.sparse

    size, part = problem.size, _part(problem.size, comm)
    left = sparse_matrix(problem)[part]
    right = left.copy()
    rows = np.diff(right.indptr).astype(np.int32)

    def run() -> NDArray[Any]:
        lengths = _gathered(comm, rows.reshape(-1, 1), size).ravel()
        ends = bounds(size, comm.size)
        counts = [int(lengths[a:b].sum()) for a, b in pairwise(ends)]
        columns = np.empty(sum(counts), dtype=np.int32)
        values = np.empty(sum(counts), dtype=np.float32)
        comm.Allgatherv(right.indices.astype(np.int32), [columns, counts])
        comm.Allgatherv(right.data, [values, counts])
        pointers = np.concatenate([[0], np.cumsum(lengths)])
        whole = scipy.sparse.csr_matrix((values, columns, pointers), shape=(size, size))
        return np.asarray((left @ whole).sum(axis=1))

    return run


def _aggregation(problem: KernelProblem, comm: Comm) -> Run:
    rows, part = problem.graph.nodes, _part(problem.graph.nodes, comm)
    edges = sparse_matrix(problem)[part]
    x = _dense(np.random.default_rng(problem.seed + 1), rows, problem.columns)[part].copy()
    return lambda: np.asarray(edges @ _gathered(comm, x, rows))


def _graph_network(problem: KernelProblem, comm: Comm) -> Run:
    g, part = problem.graph, _part(problem.graph.nodes, comm)
    edges = sparse_matrix(problem)[part]
    edges.data[:] = 1  # keeps the sums of sums small enough to be exact in float32
    rng = np.random.default_rng(problem.seed + 1)
    first = _dense(rng, g.features, problem.hidden)
    second = _dense(rng, problem.hidden, g.classes)
    x = _features(problem, part)

    def run() -> NDArray[Any]:
        hidden = np.asarray(edges @ _gathered(comm, x @ first, g.nodes))
        fires = (hidden > 0).astype(np.float32)
        return np.asarray(edges @ _gathered(comm, fires @ second, g.nodes))

    return run


def _features(problem: KernelProblem, part: slice) -> Matrix:
    """Make the bits of some nodes of a graph block by block, as the whole takes gigabytes."""
    blocks = []
    for block in range(part.start // _BLOCK, -(-part.stop // _BLOCK)):
        rng = np.random.default_rng([problem.seed, block])
        rows = rng.integers(0, 2, (_BLOCK, problem.graph.features), dtype=np.int8)
        at = block * _BLOCK
        blocks.append(rows[max(0, part.start - at) : part.stop - at].astype(np.float32))
    return np.concatenate(blocks)


def _conv2d(problem: KernelProblem, comm: Comm) -> Run:
    n, window, halo = problem.size, problem.window, problem.window // 2
    rng = np.random.default_rng(problem.seed)
    image, kernel = _dense(rng, n, n), _dense(rng, window, window)
    part = _part(n, comm)
    # The halo rows of the first and the last rank stay 0, as at the edge of an image.
    mine = np.zeros((part.stop - part.start + 2 * halo, n + 2 * halo), dtype=np.float32)
    mine[halo : len(mine) - halo, halo : halo + n] = image[part]
    up = comm.rank - 1 if comm.rank else _nobody()
    down = comm.rank + 1 if comm.rank + 1 < comm.size else _nobody()

    def run() -> NDArray[Any]:
        comm.Sendrecv(
            mine[halo : 2 * halo].copy(), up, recvbuf=mine[len(mine) - halo :], source=down
        )
        comm.Sendrecv(mine[-2 * halo : -halo].copy(), down, recvbuf=mine[:halo], source=up)
        out = np.zeros((part.stop - part.start, n), dtype=np.float32)
        for i in range(window):
            for j in range(window):
                out += kernel[i, j] * mine[i : i + len(out), j : j + n]
        return out

    return run


def _nobody() -> int:
    from mpi4py import MPI

    return MPI.PROC_NULL


def _binary(problem: KernelProblem, comm: Comm) -> Run:
    """Broadcast the coordinator's bits; each rank computes neurons, and their bits are gathered."""
    rng = np.random.default_rng(problem.seed)
    weights = rng.random((problem.outputs, problem.size)) < 0.5
    bits = pack(rng.random((problem.batch, problem.size)) < 0.5)
    part = _part(problem.outputs, comm)
    mine = weights[part]
    spec = InputSpec(
        tuple(Field.binary(f"x{i}", min(32, problem.size - i)) for i in range(0, problem.size, 32))
    )
    model = BinaryModel(
        input=spec,
        hidden=(),
        output=OutputLayer(mine, bias=np.zeros(len(mine), dtype=np.int32)),
        classes=tuple(f"n{i}" for i in range(len(mine))),
    )
    # Every neuron fires at half of its inputs, rounded up.
    fires = -(-problem.size // 2)

    def run() -> NDArray[Any]:
        comm.Bcast(bits, 0)
        fired = prediction.scores(model, bits) >= fires
        return _gathered(comm, np.ascontiguousarray(fired.T).view(np.uint8), problem.outputs)[part]

    return run


_KERNELS: Mapping[str, Callable[[KernelProblem, Any], Run]] = {
    "binary": _binary,
    "gemm": _gemm,
    "spmv": _spmv,
    "spgemm": _spgemm,
    "aggregation": _aggregation,
    "conv2d": _conv2d,
    "mlp": _mlp,
    "gnn": _graph_network,
}
