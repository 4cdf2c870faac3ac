# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.kernel import blob
from n3ic.kernel.library import KernelError, KernelLibrary
from n3ic.model.bits import pack
from n3ic.model.difference import first_difference
from n3ic.model.inputs import Field, InputSpec, to_integer
from n3ic.model.layers import OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import boundary_features, verification_vectors
from tests.support.kernel_models import small_model
from tests.support.memory_faults import flip_weight

widths = st.one_of(
    st.integers(1, 70), st.sampled_from([31, 32, 33, 64, 96, 127, 128, 152, 255, 256, 257])
)


def check_all_kernels(library: KernelLibrary, model: BinaryModel, count: int) -> None:
    words = verification_vectors(model, count)
    net = library.load(blob.dump(model))
    for kernel in library.kernels:
        net.use_kernel(kernel)
        assert net.kernel == kernel
        difference = first_difference(model, net.trace(words, model), words)
        assert difference is None, f"{kernel}: {difference}"


@settings(max_examples=80, deadline=None)
@given(
    inputs=widths,
    hidden=st.lists(st.integers(1, 70), max_size=4),
    classes=st.integers(2, 40),
    density=st.sampled_from([None, None, 0.0, 0.3, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_kernel_gives_the_reference(
    library: KernelLibrary,
    inputs: int,
    hidden: list[int],
    classes: int,
    density: float | None,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    model = random_model((inputs, *hidden, classes), rng, density=density)
    check_all_kernels(library, model, 64)


@pytest.mark.first_case
@pytest.mark.parametrize("inputs", [32 * w - d for w in range(1, 10) for d in (0, 1)])
@pytest.mark.parametrize("outputs", [1, 16, 17, 32, 33])
def test_small_networks_of_every_first_layer(
    library: KernelLibrary, inputs: int, outputs: int
) -> None:
    model = random_model((inputs, outputs, 20, 2), np.random.default_rng(inputs))
    check_all_kernels(library, model, 40)


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("shape", "density"),
    [
        *(((4096, 130, 3), d) for d in (None, 0.5)),
        *(((20_001, 2, 2), None), ((33, 2049, 2), None), ((40, 5, 700), 0.5)),
        pytest.param((20_001, 2, 2), 0.5, marks=pytest.mark.slow),
        pytest.param((33, 2049, 2), 0.5, marks=pytest.mark.slow),
        pytest.param((40, 5, 700), None, marks=pytest.mark.slow),
    ],
)
def test_large_layers(
    library: KernelLibrary, shape: tuple[int, ...], density: float | None
) -> None:
    # Beyond 31 words the byte counters of AVX2 and NEON are emptied on the way.
    check_all_kernels(library, random_model(shape, np.random.default_rng(1), density=density), 12)


@pytest.mark.parametrize("inputs", [250, 256, 508, 509, 510, 700])
@pytest.mark.parametrize("density", [None, 0.9])
def test_thresholds_where_bytes_end(
    library: KernelLibrary, inputs: int, density: float | None
) -> None:
    """Sums of bytes saturate: every threshold, up to never firing, is met and just missed."""
    model = random_model((inputs, 40, 20, 2), np.random.default_rng(inputs), density=density)
    hidden = model.hidden[0]
    wanted = [0, 1, 2, 126, 127, 128, 129, 253, 254, 255, 256, 257, 258, inputs - 1, inputs]
    for fixed in ((), (257,), (300,)):  # neurons that all count what agrees, and what disagrees
        thresholds = np.resize(fixed or wanted, hidden.n_outputs)
        thresholds[0] = inputs + 1
        layer = replace(hidden, thresholds=np.minimum(thresholds, hidden.fan_in + 1))
        check_all_kernels(library, replace(model, hidden=(layer, model.hidden[1])), 200)


def test_the_lowest_class_wins_a_tie_and_the_margin_is_zero(library: KernelLibrary) -> None:
    weights = np.zeros((5, 40), dtype=np.bool_)
    bias = np.array([-1, 3, 3, 0, 3], dtype=np.int32)
    names = tuple("abcde")
    model = BinaryModel(InputSpec.raw(40), (), OutputLayer(weights, bias=bias), names)
    words = verification_vectors(model, 20)
    net = library.load(blob.dump(model))
    for kernel in library.kernels:
        net.use_kernel(kernel)
        got = net.classify(words)
        assert set(got.classes) == {1}, kernel
        assert set(got.margins) == {0}, kernel


def test_encoding_is_that_of_the_model(library: KernelLibrary) -> None:
    model = small_model()
    rng = np.random.default_rng(0)
    edges = [0, 1, 4, 5, 9, 10, 44, 45, 46, 99, 100, 199, 200, 201, 65535, 65536]
    edges += [3_999_999_999, 4_000_000_000, 2**32 - 1, -5, 2**40]
    columns = {name: rng.choice(edges, 500) for name in model.input.features}
    net = library.load(blob.dump(model))
    for kernel in library.kernels:
        net.use_kernel(kernel)
        assert np.array_equal(net.encode(columns), model.encode(columns)), kernel


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_encoding_of_drawn_specs(library: KernelLibrary, data: st.DataObject) -> None:
    fields = []
    for i in range(data.draw(st.integers(1, 6))):
        name = f"f{data.draw(st.integers(0, 2))}"
        if data.draw(st.booleans()):
            width = data.draw(st.integers(1, 32))
            clamp = data.draw(st.integers(1, 2**width - 1))
            fields.append(Field(name, "binary", width, clamp))
        else:
            top = data.draw(st.sampled_from([60, 2**32 - 1]))
            cuts = data.draw(st.sets(st.integers(1, top), min_size=1, max_size=50))
            fields.append(Field.thermometer(name, sorted(cuts)))
        del i
    spec = InputSpec(tuple(fields))
    rng = np.random.default_rng(0)
    model = random_model((spec.n_bits, 2), rng)
    model = BinaryModel(spec, (), model.output, model.classes)
    cuts_seen = [c + d for f in fields for c in (*f.cuts, f.clamp) for d in (-1, 0, 1)]
    values = np.array([0, 2**32 - 1, *cuts_seen])
    columns = {name: rng.permutation(values) for name in spec.features}
    net = library.load(blob.dump(model))
    for kernel in library.kernels:
        net.use_kernel(kernel)
        assert np.array_equal(net.encode(columns), model.encode(columns)), kernel


@settings(max_examples=150, deadline=None)
@given(
    scale=st.one_of(st.sampled_from([1.0, 1e6, 1e3, 0.1]), st.floats(1e-12, 1e12)),
    values=st.lists(
        st.one_of(
            st.floats(allow_nan=False, allow_infinity=False),
            st.floats(-2, 2**33),
            st.integers(0, 2**33).map(lambda n: n / 2),
        ),
        min_size=1,
    ),
)
def test_integers_of_source_units(
    library: KernelLibrary, scale: float, values: list[float]
) -> None:
    spec = InputSpec((Field.binary("x", 32, scale=scale),))
    base = random_model((32, 2), np.random.default_rng(0))
    net = library.load(blob.dump(BinaryModel(spec, (), base.output, base.classes)))
    function = library.handle.bnn_integer
    function.restype = ctypes.c_uint32
    function.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_double]
    tried = [*values, *(value / scale for value in values)]
    tried = [value for value in tried if np.isfinite(value)]
    with np.errstate(over="ignore"):
        want = to_integer(tried, scale).tolist()
    assert [function(net.pointer, 0, value) for value in tried] == want


def test_names_come_back(library: KernelLibrary) -> None:
    model = small_model()
    net = library.load(blob.dump(model))
    assert net.classes == model.classes
    assert net.features == model.input.features


def test_an_unknown_kernel_is_refused(library: KernelLibrary) -> None:
    net = library.load(blob.dump(small_model()))
    with pytest.raises(KernelError, match="no kernel"):
        net.use_kernel("sse9")


@pytest.mark.parametrize("shape", [(70, 33, 9, 2), (256, 32, 16, 2), (300, 40, 5)])
@pytest.mark.parametrize("shunt", [0, 3])
def test_single_calls_and_calls_from_features(
    library: KernelLibrary, shape: tuple[int, ...], shunt: int
) -> None:
    model = random_model(shape, np.random.default_rng(6)).with_shunt(shunt)
    rows = np.random.default_rng(7).integers(0, 2**32, (700, len(model.input.features)))
    features = rows.astype(np.uint32)
    words = model.encode(dict(zip(model.input.features, rows.T, strict=True)))
    want = model.infer(words)
    verdicts = model.verdicts(want.scores).astype(np.uint32)  # BNN_SHUNT is UINT32_MAX
    assert 0 < (verdicts == 0xFFFFFFFF).sum() < 700 or not shunt
    net = library.load(blob.dump(model))
    c, pointer = library.handle, ctypes.c_void_p
    c.bnn_infer.restype, c.bnn_infer.argtypes = ctypes.c_uint32, [pointer] * 3
    c.bnn_classify_batch.restype = None
    c.bnn_classify_batch.argtypes = [pointer, pointer, ctypes.c_size_t, pointer, pointer]
    for kernel in library.kernels:
        net.use_kernel(kernel)
        margin = ctypes.c_int32()
        for row in range(20):
            got = c.bnn_infer(net.pointer, words[row].ctypes.data, ctypes.byref(margin))
            assert (got, margin.value) == (verdicts[row], want.margins[row]), kernel
            assert c.bnn_infer(net.pointer, words[row].ctypes.data, None) == got
        classes = np.zeros(len(rows), dtype=np.uint32)
        margins = np.zeros(len(rows), dtype=np.int32)
        at = (features.ctypes.data, len(rows), classes.ctypes.data, margins.ctypes.data)
        c.bnn_classify_batch(net.pointer, *at)
        assert np.array_equal(classes, verdicts), kernel
        assert np.array_equal(margins, want.margins), kernel
        inference = net.classify(words)
        assert first_difference(model, inference, words) is None, kernel
        c.bnn_infer_batch(
            net.pointer, words, len(words), classes.ctypes.data, None, inference.scores
        )
        assert np.array_equal(classes, verdicts), kernel


@settings(max_examples=80, deadline=None)
@given(
    n_fields=st.integers(1, 20),
    hidden=st.lists(st.integers(1, 70), max_size=3),
    density=st.sampled_from([None, None, 0.0, 0.5]),
    rows=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_from_features_is_from_bits(
    library: KernelLibrary,
    n_fields: int,
    hidden: list[int],
    density: float | None,
    rows: int,
    seed: int,
) -> None:
    """Intervals, raw bits and clamps of features that several fields read, on and beside cuts."""
    rng = np.random.default_rng(seed)
    fields = []
    for i in range(n_fields):
        name = f"f{int(rng.integers(i + 1))}"
        if rng.random() < 0.4:
            width = int(rng.integers(1, 33))
            fields.append(Field(name, "binary", width, int(rng.integers(1, 1 << width))))
        else:
            top = int(rng.choice([30, 1 << 16, (1 << 31) + 5, (1 << 32) - 1]))
            cuts = np.unique([*rng.integers(1, top, int(rng.integers(1, 30))), top])
            fields.append(Field.thermometer(name, cuts.tolist()))
    spec = InputSpec(tuple(fields))
    model = random_model((spec.n_bits, *hidden, 3), rng, density=density)
    model = replace(model, input=spec, shunt=min(2, model.largest_margin))
    features = {n: rng.choice(v, rows) for n, v in boundary_features(spec).items()}
    words = model.encode(features)
    net = library.load(blob.dump(model))
    for kernel in library.kernels:
        net.use_kernel(kernel)
        assert first_difference(model, net.run(features), words) is None, kernel


@pytest.mark.parametrize(
    "shape", [(5000, 8, 2), (256, 600, 2), (300, 5), (64, 5), (700, 257, 2), (4096, 32, 2)]
)
def test_from_features_of_large_networks(library: KernelLibrary, shape: tuple[int, ...]) -> None:
    model = random_model(shape, np.random.default_rng(shape[0]))
    names = model.input.features
    rows = np.random.default_rng(7).integers(0, 2**32, (600, len(names)))
    features = dict(zip(names, rows.T, strict=True))
    words = model.encode(features)
    net = library.load(blob.dump(model))
    for kernel in library.kernels:
        net.use_kernel(kernel)
        assert first_difference(model, net.run(features), words) is None, kernel


@pytest.mark.parametrize("bit", [0, 31, 4096 * 16 - 1])
def test_the_digest_of_a_networks_memory_changes_with_a_bit(library: KernelLibrary, bit: int):
    model = random_model((4096, 33, 3), np.random.default_rng(0))
    words = verification_vectors(model, 10)
    net = library.load(blob.dump(model))
    digest, scores = net.digest(), net.scores(words)
    assert net.digest() == digest
    flip_weight(net, bit)
    assert net.digest() != digest
    flip_weight(net, bit)
    assert net.digest() == digest
    assert np.array_equal(net.scores(words), scores)


def test_hidden_bits_are_those_of_the_trace(library: KernelLibrary):
    model = random_model((300, 65, 40, 3), np.random.default_rng(0))
    words = verification_vectors(model, 50)
    hidden_words = library.load(blob.dump(model)).hidden(words)
    first, second = model.infer(words).hidden
    assert np.array_equal(hidden_words, np.hstack([pack(first), pack(second)]))
