# SPDX-License-Identifier: Apache-2.0
"""Kernels of integers on a ring, against numpy and scipy; operands that nothing proves."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import ClusterError
from n3ic.systems.cluster.convolution import Filters
from n3ic.systems.cluster.coordinator import Coordinator
from n3ic.systems.cluster.distributed_rows import DistributedRows, answer, request
from n3ic.systems.cluster.kernels import ConvolutionKernel, GemmKernel, SparseKernel
from n3ic.systems.cluster.placement import Share
from n3ic.systems.cluster.protocol import (
    BY_RANGE,
    PacketType,
    ProtocolError,
    TaskId,
    TaskPacket,
    body_of,
)
from n3ic.systems.cluster.scrubbing import SCRUBBED
from n3ic.systems.cluster.sparse import LANES, TILE, Combine, Elements, nonzero_packets, spawn_order
from tests.support.rings import KernelRing

scipy_sparse = pytest.importorskip("scipy.sparse")
signal = pytest.importorskip("scipy.signal")

RNG = np.random.default_rng(8)
LOW, HIGH = -(2**31), 2**31 - 1
FAULTS = {"seed": 1, "loss": 0.05, "repeat": 0.05, "damage": 0.05, "jitter": 0.01}


def sparse(rows, columns, density=0.08, low=-9, high=9, rng=RNG):
    dense = rng.integers(low, high, (rows, columns), endpoint=True)
    return scipy_sparse.csr_array(np.where(rng.random((rows, columns)) < density, dense, 0))


@pytest.mark.first_case
@pytest.mark.parametrize("nodes", [2, 1, 4])
@pytest.mark.parametrize("faults", [FAULTS, {}], ids=["faults", "clean"])
def test_spmv_is_scipys(nodes, faults):
    matrix = sparse(70, 53)
    vectors = [RNG.integers(LOW, HIGH, (53, 1), endpoint=True) for _ in range(3)]
    ring = KernelRing(SparseKernel((70, 53)), nodes, **faults)
    for vector in vectors:  # one after another: nothing of the last stays
        assert np.array_equal(ring.run(matrix, vector), matrix @ vector)


@pytest.mark.parametrize("nodes", [1, 3])
def test_spgemm_is_scipys(nodes):
    first, second = sparse(40, 60), sparse(60, 30, density=0.2)
    ring = KernelRing(SparseKernel((40, 60), width=30, sparse=True), nodes, **FAULTS)
    assert np.array_equal(ring.run(first, second), (first @ second).toarray())
    assert np.array_equal(ring.run(first * 0, second), np.zeros((40, 30)))


def neighbours_of(matrix, row):
    return matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("combine", list(Combine))
def test_aggregation_over_a_graph_is_numpys(combine, nodes):
    graph = sparse(90, 90, density=0.03, low=1, high=1)
    features = RNG.integers(-1000, 1000, (90, 7))
    sums = KernelRing(SparseKernel((90, 90), 7, combine), nodes, **FAULTS).run(graph, features)
    for row in range(90):
        near = features[neighbours_of(graph, row)]
        total = near.sum(axis=0)
        want = {
            Combine.SUM: total,
            Combine.MEAN: np.append(total, len(near)),
            Combine.MAX: near.max(axis=0) if len(near) else np.zeros(7),
        }[combine]
        assert np.array_equal(sums[row], want), row


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 60),
    columns=st.integers(1, 60),
    density=st.floats(0, 1),
)
def test_no_packet_writes_a_row_twice_and_each_stays_in_a_tile(seed, rows, columns, density):
    elements = Elements.of(sparse(rows, columns, density, rng=np.random.default_rng(seed)))
    chosen = list(spawn_order(elements)) if elements.rows.size else []
    for packet in chosen:
        lanes = elements.rows[packet] % LANES
        assert len(set(lanes.tolist())) == len(packet) <= LANES
        assert len(set((elements.columns[packet] // TILE).tolist())) == 1
    flat = sorted(np.concatenate(chosen).tolist()) if chosen else []
    assert flat == list(range(len(elements.rows)))


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("shape", [(5, 30, 7), (3, 1, 2), (9, 40, 3)])
def test_gemm_is_numpys_at_the_ends_of_32_bits(nodes, shape):
    rows, inner, columns = shape
    first = RNG.choice([LOW, HIGH, -1, 0, 1], (rows, inner))
    second = RNG.integers(-(2**26), 2**26, (inner, columns))
    ring = KernelRing(GemmKernel(second), nodes, **FAULTS)
    want = first.astype(object) @ second.astype(object)
    assert np.array_equal(ring.rows(first), want)


@pytest.mark.parametrize("nodes", [1, 2, 5])
@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (1, 1), (2, 1), (3, 2), (2, 4)])
def test_convolution_is_scipys(nodes, stride, padding):
    image = RNG.integers(-99, 99, (11, 9, 2))
    weights = RNG.integers(-9, 9, (4, 2, 3, 3))
    kernel = ConvolutionKernel(Filters(weights, image.shape, stride, padding))
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    want = np.stack(
        [
            sum(signal.correlate2d(padded[:, :, c], w[c], mode="valid") for c in range(2))
            for w in weights
        ],
        axis=2,
    )[::stride, ::stride]
    ring = KernelRing(kernel, nodes, **FAULTS)
    assert np.array_equal(ring.run(image), want)
    assert np.array_equal(ring.run(-image), -want)


@pytest.mark.parametrize("padding", [0, 1])
def test_binary_convolution_counts_agreeing_bits_inside_of_the_image(padding):
    image = RNG.integers(0, 2, (7, 10, 13))
    weights = RNG.integers(0, 2, (3, 13, 3, 3))
    kernel = ConvolutionKernel(Filters(weights, image.shape, 1, padding, binary=True))
    counts = KernelRing(kernel, 3, **FAULTS).run(image)
    for y, x, f in np.ndindex(counts.shape):
        want = 0
        for dy, dx in np.ndindex(3, 3):
            at = y + dy - padding, x + dx - padding
            if 0 <= at[0] < 7 and 0 <= at[1] < 10:
                want += int((image[at] == weights[f, :, dy, dx]).sum())
        assert counts[y, x, f] == want


def test_a_task_waits_frozen_for_the_rows_of_another_node():
    kernel = SparseKernel((4, 4))
    source, result = kernel.arrays_of(2, 2)
    (task,) = nonzero_packets(Elements.of(np.array([[0] * 4] * 3 + [[5, 0, 0, 0]])), 1)
    (asked,) = result.perform_task(task)
    assert (asked.type, asked.array, asked.start, asked.end) == (PacketType.RDMA, 0, 0, 1)
    assert list(result.perform_task(task)) == []  # the row is on its way
    assert list(result.answer_read(request(1, 2, 4, 0))) == []  # not yet
    (data,) = answer(0, 0, np.array([7]), 2)
    packets = list(source.arrived(data))
    assert [(p.start, p.destination) for p in packets] == [(2, 0), (3, 0)]
    assert int.from_bytes(packets[1].body[:8], "big") == 70


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: GemmKernel(np.full((3, 2), 2**31)).arrays_of(1, 1), "less than 2.32"),
        (lambda: GemmKernel(np.ones((3, 2))).arrays_of(1, 1), "matrix of integers"),
        (lambda: SparseKernel((1, 1), combine=Combine.MAX, sparse=True), "can only be summed"),
        (
            lambda: SparseKernel((1, 3)).job(1, np.full((1, 3), HIGH), np.ones((3, 1), int)),
            "beyond 64 bits",
        ),
        (lambda: SparseKernel((1, 1)).job(1, np.ones((2, 1), int), np.ones((1, 1), int)), "shape"),
        (lambda: SparseKernel((1, 1)).job(1, np.ones((1, 1)), np.ones((1, 1), int)), "integers"),
        (lambda: SparseKernel((1, 1)).job(1, np.full((1, 1), 2**31), [[1]]), "exceeds 32 bits"),
        (lambda: SparseKernel((1, 1)).job(1, np.ones((1, 1), int), [[2**31]]), "exceeds 32 bits"),
        (lambda: SparseKernel((1, 1)).job(1, np.ones((1, 1), int), [[1, 2]]), "of shape"),
        (lambda: SparseKernel((1, 1)).job(1, np.ones(1, int), [[1]]), "expected a matrix"),
        (lambda: SparseKernel((1, 2), sparse=True).job(1, [[1, 1]], [[1]]), "second matrix"),
        (lambda: Filters(np.ones((1, 1, 3, 3), int), (2, 5, 1)), "larger than"),
        (lambda: Filters(np.ones((1, 2, 3, 3), int), (5, 5, 1)), "of 2 channels"),
        (lambda: Filters(np.ones((1, 1, 3), int), (5, 5, 1)), "of shape"),
        (lambda: Filters(np.full((1, 1, 3, 3), 2), (5, 5, 1), binary=True), "bits"),
        (
            lambda: ConvolutionKernel(Filters(np.full((1, 1, 3, 3), HIGH), (5, 5, 1))).arrays_of(
                1, 1
            ),
            "beyond 64 bits",
        ),
        (
            lambda: ConvolutionKernel(
                Filters(np.ones((1, 1, 3, 3), int), (5, 5, 1), binary=True)
            ).job(1, np.full((5, 5, 1), 2)),
            "expected bits",
        ),
        (
            lambda: SparseKernel((1, 1), width=30_000).job(
                1, np.ones((1, 1), int), np.ones((1, 30_000), int)
            ),
            "more than 24,570 numbers",
        ),
    ],
)
def test_what_is_not_proven_to_fit_is_refused(build, message):
    with pytest.raises(ClusterError, match=message):
        build()


def held_rows():
    return DistributedRows(0, Share(1, 0, 2), 5)


def task_of(*numbers, count=None):
    body = body_of(np.array(numbers), ">u4")
    return TaskPacket(
        PacketType.TASK, TaskId.NONZEROS, 255, 1, 0, 4, count=count or len(numbers), body=body
    )


def in_slices(packet):
    rows = held_rows()
    list(rows.arrived(replace(packet, row=2)))
    list(rows.arrived(replace(packet, row=2)))


(SLICE,) = answer(0, 1, np.arange(3), 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: list(held_rows().answer_read(replace(SLICE, start=0, end=1))), "never written"),
        (lambda: list(held_rows().arrived(replace(SLICE, start=7, end=8))), "unrequested row"),
        (lambda: list(held_rows().arrived(replace(SLICE, end=3))), "not a slice"),
        (lambda: list(held_rows().arrived(replace(SLICE, count=7))), "not a slice"),
        (lambda: list(held_rows().arrived(replace(SLICE, offset=1))), "not a slice"),
        (lambda: in_slices(SLICE), "arrived twice"),
        (lambda: held_rows().perform_task(SLICE), "takes no task"),
        (
            lambda: list(SparseKernel((4, 4)).arrays_of(1, 1)[1].perform_task(task_of(0, 0))),
            "no whole",
        ),
    ],
)
def test_data_that_cannot_be_is_an_error(wrong, message):
    with pytest.raises(ProtocolError, match=message):
        wrong()


def test_two_elements_of_one_row_in_a_task_are_refused():
    source, result = SparseKernel((4, 4)).arrays_of(1, 1)
    list(source.arrived(next(answer(0, 0, np.array([1]), 1))))
    with pytest.raises(ProtocolError, match="in the same row"):
        list(result.perform_task(task_of(1, 0, 5, 1, 0, 6)))


def test_a_bit_that_changes_in_a_matrix_is_found():
    part: Any = GemmKernel(np.arange(24).reshape(8, 3)).arrays_of(1, 1)[0]

    def multiply_rows():
        for row in range(SCRUBBED):
            task = (PacketType.TASK, TaskId.VALUES, BY_RANGE, 0, 0, 3)
            list(part.perform_task(TaskPacket(*task, row=row, count=8)))

    multiply_rows()
    part._columns.matrix[7, 2] ^= 1
    with pytest.raises(ClusterError, match="array 0: weights changed in memory"):
        multiply_rows()


def test_a_node_without_its_columns_is_named():
    kernel = GemmKernel(np.ones((8, 3), dtype=int))
    home = Coordinator(1, kernel.digest, lambda _: [])
    with pytest.raises(ClusterError, match=r"node 1 does not hold \[0, 3\) of array 0"):
        home.check_shares(kernel.expected_shares(1), "array")
