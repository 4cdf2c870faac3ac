# SPDX-License-Identifier: Apache-2.0
"""Every operation beside plain loops over Python's integers, its bounds, and what is refused."""

import pickle
from fractions import Fraction

import numpy as np
import pytest

from n3ic.errors import ClusterError, ModelError
from n3ic.systems.cluster.networks.network import IntegerNetwork, NetworkStep
from n3ic.systems.cluster.networks.operations import (
    INT32,
    Addition,
    Aggregate,
    Convolution,
    Dense,
    Integers,
    Pool,
    Rescale,
    Reshape,
    Sign,
    arrays_of,
)

RNG = np.random.default_rng(5)
UINT8, INT8, BITS24 = (0, 255), (-128, 127), (-(1 << 23), 1 << 23)


def _padded(image, padding, beyond):
    edges = ((0, 0), *((p, p) for p in padding))
    return np.pad(image, edges, constant_values=beyond)


def _convolved(op, image):
    whole = _padded(image, op.padding, 0)
    filters, depth, high, wide = op.weights.shape
    size = [
        (n - k) // s + 1 for n, k, s in zip(whole.shape[1:], (high, wide), op.stride, strict=True)
    ]
    out = np.zeros((filters, *size), dtype=object)
    for f, r, c in np.ndindex(*out.shape):
        first = f // (filters // op.groups) * depth
        r0, c0 = r * op.stride[0], c * op.stride[1]
        seen = whole[first : first + depth, r0 : r0 + high, c0 : c0 + wide]
        out[f, r, c] = int(op.bias[f]) + sum(
            int(a) * int(b) for a, b in zip(op.weights[f].flat, seen.flat, strict=True)
        )
    return out


def _multiplied(op, rows):
    return np.array(rows, dtype=object) @ op.weights.T.astype(object) + op.bias.astype(object)


def _aggregated(op, rows):
    out = np.zeros((op.vertices[0], rows.shape[1]), dtype=object)
    for row, column, weight in zip(op.rows, op.columns, op.weights, strict=True):
        out[row] += int(weight) * np.array(rows[column], dtype=object)
    return out


def _pooled(op, image):
    whole = _padded(image.astype(object), op.padding, -(1 << 40) if op.largest else 0)
    size = [(n - k) // s + 1 for n, k, s in zip(whole.shape[1:], op.window, op.stride, strict=True)]
    out = np.zeros((len(image), *size), dtype=object)
    for c, i, j in np.ndindex(*out.shape):
        a, b = i * op.stride[0], j * op.stride[1]
        seen = whole[c, a : a + op.window[0], b : b + op.window[1]].ravel()
        out[c, i, j] = max(seen) if op.largest else sum(seen)
    return out


def _rescaled(op, array):
    shape = [1] * array.ndim
    shape[op.axis] = len(op.shift)
    shifts = np.broadcast_to(op.shift.reshape(shape), array.shape)
    out = np.zeros(array.shape, dtype=object)
    for at in np.ndindex(*array.shape):
        exact = Fraction(int(array[at])) * Fraction(2) ** int(shifts[at]) / op.divisor
        out[at] = min(max(round(exact), op.low), op.high)  # Python rounds ties to even, too
    return out


def _weights(*shape, most=127):
    return RNG.integers(-most, most, shape, endpoint=True).astype(np.int8)


def _bias(outputs, most=100_000):
    return RNG.integers(-most, most, outputs).astype(np.int32)


def _graph(vertices, edges):
    pairs = np.unique(RNG.integers(0, vertices, (edges, 2)), axis=0)
    rows, columns = pairs.T.astype(np.int32)
    return Aggregate((vertices, vertices), rows, columns, _weights(len(rows)))


RESCALES = [
    Rescale(np.array([-3]), -128, 127),
    Rescale(np.array([2]), 0, 255),
    Rescale(np.array([-1, -2, 0, -9, 3]), -128, 127, axis=1),
    Rescale(np.array([0]), 0, 255, divisor=9),
    Rescale(np.array([1]), -128, 127, divisor=6),
]
CASES = [
    (Dense(_weights(7, 30), _bias(7)), (30,), UINT8, _multiplied),
    (Dense(_weights(7, 3000), _bias(7)), (3000,), INT8, _multiplied),
    (Dense(_weights(4, 6), _bias(4)), (5, 6), INT8, _multiplied),
    (Dense(np.full((2, 20), 2, np.int8), _bias(2)), (20,), BITS24, _multiplied),
    (Dense(_weights(2, 20), _bias(2, 1 << 29)), (20,), INT8, _multiplied),
    (Convolution(_weights(6, 4, 3, 3), _bias(6)), (4, 7, 6), UINT8, _convolved),
    (Convolution(_weights(4, 300, 3, 3), _bias(4), (2, 1), (1, 1)), (300, 5, 4), UINT8, _convolved),
    (Convolution(_weights(6, 2, 3, 2), _bias(6), (1, 2), (0, 1), 3), (6, 5, 8), INT8, _convolved),
    (Convolution(_weights(5, 1, 3, 3), _bias(5), (2, 2), (1, 1), 5), (5, 8, 8), UINT8, _convolved),
    (Convolution(_weights(6, 1, 3, 3), _bias(6), groups=3), (3, 5, 5), INT8, _convolved),
    (Convolution(_weights(4, 1, 1, 1), _bias(4), groups=4), (4, 3, 3), BITS24, _convolved),
    (_graph(12, 60), (12, 5), INT8, _aggregated),
    (Pool((2, 2), (2, 2)), (3, 6, 7), UINT8, _pooled),
    (Pool((3, 3), (2, 2), (1, 1)), (2, 7, 7), INT8, _pooled),
    (Pool((3, 2), (1, 2), (1, 0), largest=False), (2, 5, 6), UINT8, _pooled),
    (Pool((4, 4), (4, 4), largest=False), (2, 4, 4), (5, 9), _pooled),
    *((op, (4, 5), BITS24, _rescaled) for op in RESCALES),
    *((op, (4, 5), (-30, 30), _rescaled) for op in RESCALES),
    (Rescale(np.array([0]), 0, INT32[1]), (9,), INT32, _rescaled),
    (Sign(), (4,), (-3, 3), lambda _, a: np.sign(a)),
    (Reshape((2, 6)), (3, 4), INT8, lambda op, a: a.reshape(op.shape)),
]  # fmt: skip


IDS = [f"{at} {type(case[0]).__name__}" for at, case in enumerate(CASES)]


@pytest.mark.parametrize(("operation", "shape", "ends", "oracle"), CASES, ids=IDS)
def test_an_operation_equals_plain_loops_and_stays_in_its_range(operation, shape, ends, oracle):
    given = Integers(shape, *ends)
    result, kernel = operation.output(given), operation.kernel(given)
    extremes = RNG.choice([*ends, 0] if ends[0] <= 0 <= ends[1] else ends, (3, *shape))
    items = np.concatenate([
        extremes,
        RNG.integers(ends[0], ends[1], (3, *shape), endpoint=True),
        np.full((1, *shape), ends[0]),
        np.full((1, *shape), ends[1]),
    ]).astype(given.dtype)  # fmt: skip
    answers = kernel(items)
    assert answers.shape == (len(items), *result.shape)
    expected = np.array([oracle(operation, item.astype(np.int64)) for item in items])
    assert np.array_equal(answers.astype(np.int64), expected)
    assert result.low <= expected.min()
    assert expected.max() <= result.high


@pytest.mark.parametrize(("operation", "shape", "ends", "oracle"), CASES, ids=IDS)
def test_a_digest_is_of_the_numbers_that_an_operation_reads(operation, shape, ends, oracle):
    """Weights, biases and powers of two are found in its function, and each changed bit shows."""
    part = IntegerNetwork(Integers(shape, *ends), [NetworkStep(operation, (0,))]).whole
    ((_, kernel, _),) = part._kernels
    arrays, first = [*arrays_of(kernel)], part.digest()
    array_count = sum(isinstance(value, np.ndarray) for value in vars(operation).values())
    assert len(arrays) >= array_count - (2 if isinstance(operation, Aggregate) else 0)
    for array in arrays:
        octets = array.reshape(-1).view(np.uint8)
        assert np.shares_memory(octets, array)
        octets[-1] ^= 1
        assert part.digest() != first
        octets[-1] ^= 1
    assert part.digest() == first


def test_the_range_of_a_sum_is_reached():
    weights = np.array([[5, -3], [2, 2]], dtype=np.int8)
    result = Dense(weights, np.array([1, -50], dtype=np.int32)).output(Integers((2,), -4, 10))
    assert (result.low, result.high) == (-66, 63)


@pytest.mark.parametrize("shifts", [(0, 0), (3, 0), (0, 20)])
def test_a_sum_of_two_values_equals_plain_integers(shifts):
    given = Integers((50,), *INT8)
    a, b = RNG.integers(*INT8, (2, 4, 50), endpoint=True).astype(np.int64)
    operation = Addition(shifts)
    sums = operation.kernel(given, given)(a.astype(np.int8), b.astype(np.int8))
    assert np.array_equal(sums.astype(np.int64), (a << shifts[0]) + (b << shifts[1]))
    assert operation.output(given, given).high == (127 << shifts[0]) + (127 << shifts[1])


def test_an_overflow_cannot_be_written():
    given = Integers((40_000,), 0, 1000)
    wide = Dense(np.full((1, 40_000), 127, np.int8), np.zeros(1, np.int32))
    with pytest.raises(ClusterError, match=r"^wide: values may reach 0 to 5,080,000,000"):
        IntegerNetwork(given, [NetworkStep(wide, (0,), "wide")])
    with pytest.raises(ClusterError, match="within 32 bits"):
        Addition((24, 0)).output(Integers((1,), *UINT8), Integers((1,), *UINT8))


def test_shapes_that_do_not_fit_are_refused_by_step():
    dense = Dense(_weights(3, 4), _bias(3))
    with pytest.raises(ClusterError, match=r"^second: expected rows of 4 values, got \(3,\)"):
        IntegerNetwork(
            Integers((4,), *INT8), [NetworkStep(dense, (0,)), NetworkStep(dense, (1,), "second")]
        )
    with pytest.raises(ClusterError, match=r"^early: reads values \(1,\) of 1"):
        IntegerNetwork(Integers((4,), *INT8), [NetworkStep(dense, (1,), "early")])


def test_only_integers_of_the_range_are_computed():
    network = IntegerNetwork(Integers((4,), -3, 3), [NetworkStep(Sign(), (0,))], input_bits=1)
    with pytest.raises(ModelError, match="expected inputs of -3 to 3, got 0 to 4"):
        network.scores([[0, 1, 2, 4]])
    with pytest.raises(ModelError, match="encode rounds real numbers"):
        network.scores([[0.5] * 4])
    assert network.encode([[0.25, -0.75, 9, -9]]).tolist() == [[0, -2, 3, -3]]
    with pytest.raises(ModelError, match="NaN"):
        network.encode([[float("nan")] * 4])


def test_a_network_of_parts_keeps_what_later_parts_read():
    steps = [
        NetworkStep(Rescale(np.array([1]), -128, 127), (0,)),
        NetworkStep(Sign(), (1,)),
        NetworkStep(Addition((0, 2)), (2, 0)),
        NetworkStep(Addition((0, 0)), (3, 1)),
    ]
    network = IntegerNetwork(Integers((6,), *INT8), steps)
    items = RNG.integers(*INT8, (20, 6), endpoint=True).astype(np.int8)
    whole = network.scores(items)
    assert [network.alive(at) for at in range(5)] == [(0,), (0, 1), (0, 1, 2), (1, 3), (4,)]
    copy = pickle.loads(pickle.dumps(network))  # after it has computed, as before
    assert copy.digest == network.digest
    assert np.array_equal(copy.scores(items), whole)
    for at in range(1, 4):
        between = network.part(0, at).compute([items])
        (scores,) = network.part(at, 4).compute(between)
        assert np.array_equal(scores, whole)


def test_a_digest_names_every_number():
    given, bias = Integers((4,), *INT8), _bias(3)
    weights = _weights(3, 4)
    other = weights.copy()
    other[2, 3] ^= 1
    digests = {
        IntegerNetwork(given, [NetworkStep(operation, (0,))]).digest
        for operation in (
            Dense(weights, bias), Dense(other, bias), Dense(weights, bias + 1),
            Rescale(np.array([1]), 0, 9), Rescale(np.array([2]), 0, 9),
            Rescale(np.array([1]), 0, 8),
        )
    }  # fmt: skip
    assert len(digests) == 6
    again = IntegerNetwork(given, [NetworkStep(Dense(weights.copy(), bias.copy()), (0,))])
    assert again.digest in digests
