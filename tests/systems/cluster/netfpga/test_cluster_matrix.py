# SPDX-License-Identifier: Apache-2.0
"""A Verilated card that holds columns of a matrix: GEMM, convolution and aggregation, exactly."""

import shutil
import subprocess

import numpy as np
import pytest

from n3ic.errors import ClusterError
from n3ic.systems.cluster.convolution import Filters
from n3ic.systems.cluster.dense import WindowedMatrix
from n3ic.systems.cluster.kernels import GemmKernel
from n3ic.systems.cluster.matrices import AggregationKernel, FilterKernel
from n3ic.systems.cluster.netfpga.matrix_image import MatrixSize, matrix_image
from n3ic.systems.cluster.netfpga.sources import TOP, node_sources
from n3ic.systems.cluster.protocol import BY_RANGE, PacketType, TaskId, TaskPacket, body_of
from n3ic.systems.cluster.sparse import Combine
from tests.support.card_rig import MatrixRing, neighbours_of
from tests.support.lone_card import CARD, Alone

needs_verilator = pytest.mark.skipif(
    shutil.which("verilator") is None or shutil.which("g++") is None,
    reason="needs Verilator and g++",
)
LOW, HIGH = -(1 << 31), (1 << 31) - 1


def rows_of(rng, rows, inner):
    """Rows of 32-bit integers: the lowest, the highest, both in turn, zeros, and random ones."""
    made = rng.integers(LOW, HIGH, (rows, inner), endpoint=True)
    made[0], made[1], made[2] = LOW, HIGH, 0
    made[3] = np.where(np.arange(inner) % 2, LOW, HIGH)
    return made


def matrix_of(rng, inner, columns, bits):
    """Weights of a width with their extremes, and a column of zeros."""
    most = 1 << bits - 1
    share = most if inner * most < 1 << 32 else (1 << 32) // inner - 1  # sums fit 64 bits
    matrix = rng.integers(-share, share, (inner, columns)) // 2
    matrix[:, 0] = -share
    if columns > 2:
        matrix[:, 1] = matrix[:, -1] = 0
        matrix[0, 1] = most - 1  # the widest weight
        matrix[-1, 1] = -most
    return matrix


def check(kernel, operand, want, folder, *, nodes=3, card=CARD, **options):
    """A ring with the card gives what numpy says; returns what the card counted."""
    ring = MatrixRing(kernel, nodes, card, folder, **options)
    try:
        ring.start()
        assert np.array_equal(ring.result(operand), want)
    finally:
        seen = ring.rig.stop()
    return seen


def by_node(kernel, operand):
    """The result as the processes of a ring of one node compute it."""
    rows = kernel.rows(operand)
    return kernel.result(kernel.whole_matrix.results(rows).reshape(len(rows), -1))


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize(
    ("inner", "columns", "bits", "at_once"),
    [
        (1, 1, 8, 4),
        (37, 29, 8, 4),
        (250, 33, 8, 4),
        (13, 12, 16, 4),
        (400, 7, 32, 1),
        (16, 16, 8, 4),
    ],
)
def test_gemm_is_exact_at_the_ends_of_32_bits(tmp_path, inner, columns, bits, at_once):
    rng = np.random.default_rng(inner)
    matrix, rows = matrix_of(rng, inner, columns, bits), rows_of(rng, 30, inner)
    nodes, card = (1, 1) if columns == 1 else (3, 2)
    kernel = GemmKernel(matrix)
    want = rows @ matrix
    seen = check(kernel, rows, want, tmp_path, nodes=nodes, card=card, columns=at_once)
    assert seen.stored == 30 * kernel.whole_matrix.packets
    assert seen.bad_packets == seen.bad_datagrams == seen.strays == 0


@pytest.mark.slow
@needs_verilator
def test_faults_change_no_sum(tmp_path):
    """One datagram in twenty is lost, as many come twice or are damaged, one in ten is late."""
    rng = np.random.default_rng(4)
    matrix, rows = matrix_of(rng, 37, 29, 8), rows_of(rng, 40, 37)
    faults = {"seed": 5, "loss": 0.05, "repeat": 0.05, "damage": 0.05, "late": 0.1}
    seen = check(GemmKernel(matrix), rows, rows @ matrix, tmp_path, **faults)
    assert seen.bad_datagrams > 0
    assert seen.again > 0
    assert seen.resent > 0
    assert seen.bad_packets == 0


def filters_and_image(rng, stride, padding, size, *, binary=False):
    low, high = (0, 1) if binary else (-128, 127)
    weights = rng.integers(low, high, (7, 3, *size), endpoint=True)
    given = Filters(weights, (9, 11, 3), stride, padding, binary=binary)
    low, high = (0, 1) if binary else (LOW, HIGH)
    return given, rng.integers(low, high, given.shape, endpoint=True)


def convolved(filters, image):
    """What the processes of a ring compute that is distributed by rows of the image."""
    rows = range(filters.out_rows)
    return np.stack([filters.row(y, [image[i] for i in filters.image_rows(y)]) for y in rows])


GEOMETRY = [(1, 1, (3, 3)), (2, 1, (3, 2)), (1, 2, (2, 5)), (3, 0, (1, 1))]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("stride", "padding", "size"), GEOMETRY)
def test_strips_give_the_convolution(stride, padding, size, binary):
    rng = np.random.default_rng(stride)
    filters, image = filters_and_image(rng, stride, padding, size, binary=binary)
    assert np.array_equal(by_node(FilterKernel(filters), image), convolved(filters, image))


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("stride", "padding", "size"), GEOMETRY)
def test_a_card_convolves(tmp_path, stride, padding, size, binary):
    rng = np.random.default_rng(stride)
    filters, image = filters_and_image(rng, stride, padding, size, binary=binary)
    faults = {"seed": 5, "loss": 0.02, "repeat": 0.02}
    check(FilterKernel(filters), image, convolved(filters, image), tmp_path, **faults)


def graph_and_features(rng, nodes, width):
    """A graph with a hub, a node without neighbours, and weights of both signs."""
    graph = np.where(rng.random((nodes, nodes)) < 0.03, rng.integers(-99, 99, (nodes, nodes)), 0)
    graph[1], graph[2] = 0, rng.integers(1, 99, nodes)
    return graph, rng.integers(LOW, HIGH, (nodes, width), endpoint=True)


def aggregated(graph, features, combine):
    if combine is Combine.SUM:
        return graph @ features
    there = graph != 0
    if combine is Combine.MEAN:
        return np.concatenate([there.astype(np.int64) @ features, there.sum(1)[:, None]], axis=1)
    return np.stack([features[row].max(0) if row.any() else 0 * features[0] for row in there])


@pytest.mark.parametrize("combine", list(Combine))
def test_columns_of_features_give_the_aggregation(combine):
    graph, features = graph_and_features(np.random.default_rng(7), 40, 3)
    got = by_node(AggregationKernel(graph, combine), features)
    assert np.array_equal(got, aggregated(graph, features, combine))


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize("combine", list(Combine))
def test_a_card_aggregates_over_a_graph(tmp_path, combine):
    """The card skips what is not an edge: each bank of inputs has its own slice."""
    graph, features = graph_and_features(np.random.default_rng(7), 230, 20)
    kernel = AggregationKernel(graph, combine)
    image = matrix_image(kernel, 3, CARD, **neighbours_of(CARD, 3))
    assert image.size.parameters["SPARSE"] == 1
    assert image.slices < 76 // 4 * 15  # rows of all columns in full
    check(kernel, features, aggregated(graph, features, combine), tmp_path, seed=3, loss=0.02)


@pytest.mark.slow
@needs_verilator
def test_tasks_that_cannot_be_are_told_home(tmp_path):
    """Packets are whole, come once and carry a row for all columns of the card."""
    matrix = np.arange(30 * 9).reshape(30, 9) % 100
    kernel = GemmKernel(matrix)
    image = matrix_image(kernel, 3, CARD, **neighbours_of(CARD, 3))
    card = Alone(tmp_path, image=image, digest=kernel.digest, status=(0, 3, 6, 0, 4, 16, 3, 1))
    card.begin()
    row = np.arange(30) - 15

    def packet(offset, count, **fields):
        body = body_of(row[12 * offset : 12 * offset + count], ">i4")
        base = {"row": 0, "count": count, "offset": offset, "body": body}
        return TaskPacket(
            PacketType.TASK, TaskId.VALUES, BY_RANGE, 0, **{"start": 3, "end": 6, **base, **fields}
        )

    wrong = [packet(0, 11), packet(2, 7), packet(2, 5), packet(3, 1), packet(0, 12, start=4)]
    for each in wrong:
        card.send_packet(each)
        assert card.packet().body[8:].rstrip(b"\0") == b"a packet that cannot be"
    for offset, count in ((2, 6), (0, 12), (1, 12)):
        card.send_packet(packet(offset, count))
    totals = card.packet()
    assert totals.totals.tolist() == (row @ matrix[:, 3:6]).tolist()
    card.send_packet(packet(0, 12))
    card.send_packet(packet(0, 12))  # twice
    assert card.packet().body[8:].rstrip(b"\0") == b"a packet that cannot be"
    bits = TaskPacket(PacketType.TASK, TaskId.BITS, BY_RANGE, 0, 0, 9, count=1)
    card.send_packet(bits)
    assert card.packet() == bits
    assert card.rig.stop().bad_packets == len(wrong) + 1


@pytest.mark.parametrize(
    ("kernel", "options", "words"),
    [
        (GemmKernel(np.ones((4097, 3), dtype=int)), {}, "4,097 numbers, a card takes 4,096"),
        (GemmKernel(np.full((1, 3), 1 << 31)), {}, "weights of 32 bits with a sign"),
        (GemmKernel(np.ones((4, 3), dtype=int)), {"columns": 3}, "expected one of .1, 2, 4"),
    ],
)
def test_what_a_card_cannot_hold_is_refused_in_words(kernel, options, words):
    with pytest.raises(ClusterError, match=words):
        matrix_image(kernel, 1, 1, **options, **neighbours_of(1, 1))


def test_more_weights_than_a_card_has_block_ram_for_are_refused(monkeypatch):
    monkeypatch.setattr("n3ic.systems.cluster.netfpga.matrix_image.MAX_WEIGHTS", 1000)
    with pytest.raises(ClusterError, match="bytes of weights, a card holds 1,000"):
        matrix_image(GemmKernel(np.ones((64, 64), dtype=int)), 1, 1, **neighbours_of(1, 1))


def test_windows_that_are_no_slices_are_refused():
    class Odd(GemmKernel):
        whole_matrix = WindowedMatrix(np.ones((4, 3), dtype=int), windows=2, step=5)

    with pytest.raises(ClusterError, match="at multiples of 16"):
        matrix_image(Odd(np.ones((4, 3))), 1, 1, **neighbours_of(1, 1))


def test_a_node_without_columns_is_a_relay():
    kernel = GemmKernel(np.ones((4, 1), dtype=int))
    images = [matrix_image(kernel, 2, n, **neighbours_of(n, 2)) for n in (1, 2)]
    assert [image.neurons for image in images] == [0, 1]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("verilator") is None, reason="needs Verilator")
@pytest.mark.parametrize(
    "size",
    [
        MatrixSize(),
        MatrixSize(words_w=12, columns=16, weight_w=16, sparse=1),
        MatrixSize(columns=1, weight_w=32, maximum=1),
    ],
    ids=str,
)
def test_lint_finds_nothing(size):
    given = [f"-G{name}={value}" for name, value in size.parameters.items()]
    files = [str(path) for path in node_sources()]
    command = ["verilator", "--lint-only", "-Wall", *given, "--top-module", TOP, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
