# SPDX-License-Identifier: Apache-2.0
"""Prediction by the compiled kernel of look-up tables, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from n3ic.errors import ModelError, N3icWarning
from n3ic.families.tables import kernel
from n3ic.families.tables.network import Table, TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.kernel import prediction
from n3ic.kernel.library import KernelError
from n3ic.model.bits import pack
from n3ic.model.inputs import InputSpec

pytestmark = pytest.mark.usefixtures("quick_build")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """A cache of the test's own for what it builds; nothing loaded before counts."""
    monkeypatch.delenv("N3IC_NATIVE", raising=False)
    prediction._network.cache_clear()
    yield
    prediction._network.cache_clear()


MODELS = {
    "52 tables of 5 bits": {"tables": 52, "inputs": (5, 5), "features": 40},
    "all sizes, 3 classes": {"inputs": (1, 8), "widths": (1, 8), "tables": 70, "classes": 3},
    "bytes, 7 classes": {"inputs": (4, 4), "widths": (8, 8), "tables": 30, "classes": 7},
    "one table": {"tables": 1, "inputs": (1, 1), "features": 1, "cuts": 1},
}


@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_gives_the_references_scores_and_verdicts(compiler, name):
    rng = np.random.default_rng(5)
    model = random_tables(rng, **MODELS[name])
    model = model.changed(shunt=model.largest_margin // 4)
    library = kernel.compile_kernel()
    assert library.kernels[0] == "portable"
    network = library.load(kernel.dump(model))
    n = model.input.n_bits
    extremes = np.concatenate(
        [np.zeros((1, n), bool), np.ones((1, n), bool), np.eye(n, dtype=bool)]
    )
    words = pack(np.concatenate([extremes, ~extremes, rng.random((150, n)) < 0.5]))
    for kernel_name in library.kernels:
        network.use_kernel(kernel_name)
        for rows in (0, 1, 63, 64, 65, len(words)):
            got, want = network.classify(words[:rows]), model.infer(words[:rows])
            assert np.array_equal(got.scores, want.scores), (kernel_name, rows)
            assert np.array_equal(got.margins, want.margins)
            assert np.array_equal(got.verdicts, want.verdicts)


def test_sums_of_the_largest_entries_fit(compiler):
    """Entries of -128 and 127 in all places: a byte sums one of them at most."""
    tables = [
        Table((t, t + 1), np.full((4, 1), e), 8) for t, e in enumerate([-128] * 9 + [127] * 9)
    ]
    for part in (tables, tables[:9], tables[9:]):
        model = TablesModel(InputSpec.raw(33), tuple(part), np.array([1 << 29]), ("a", "b"))
        words = pack(np.random.default_rng(0).random((70, 33)) < 0.5)
        library = kernel.compile_kernel()
        network = library.load(kernel.dump(model))
        for name in library.kernels:
            network.use_kernel(name)
            assert np.array_equal(network.scores(words), model.scores(words))


def test_prediction_takes_the_kernel_and_any_array(compiler):
    model = random_tables(np.random.default_rng(6), features=12)
    assert prediction.load_into_kernel(model) is not None
    words = pack(np.random.default_rng(7).random((200, model.input.n_bits)) < 0.5)
    want = model.scores(words)
    backward = words[::-1]
    wide = np.repeat(words, 3, axis=1)[:, ::3]
    for given, expected in (
        (words, want),
        (words[:0], want[:0]),
        (backward, want[::-1]),
        (wide, want),
        (np.asfortranarray(words), want),
        (words.tolist(), None),
    ):
        if expected is None:
            with pytest.raises(ModelError, match="uint32"):
                prediction.scores(model, given)
        else:
            assert np.array_equal(prediction.scores(model, given), expected)
    with pytest.raises(ModelError, match="pad bits"):
        prediction.scores(model, words | np.uint32(1 << 31))
    with pytest.raises(ModelError, match="shape"):
        prediction.scores(model, words[:, :0])


@pytest.mark.parametrize("classes", [2, 3])
def test_lines_are_the_same_without_the_kernel(compiler, monkeypatch, classes):
    model = random_tables(np.random.default_rng(8), classes=classes)
    model = model.changed(shunt=5)
    rng = np.random.default_rng(9)
    columns = {f.feature: rng.integers(0, 1000, 300) for f in model.input.fields}
    names = [name.encode() for name in model.verdict_names]
    lines, counts = prediction.csv_lines(model, columns, 7, names)
    monkeypatch.setenv("N3IC_NATIVE", "0")
    assert prediction.load_into_kernel(model) is None
    plain, same = prediction.csv_lines(model, columns, 7, names)
    assert bytes(lines) == plain
    assert counts.tolist() == same.tolist()


def test_models_beyond_its_limits_are_computed_without_it():
    rng = np.random.default_rng(10)
    wide = random_tables(rng, spec=InputSpec.raw(kernel.MOST_INPUTS + 1))
    many = random_tables(rng, classes=kernel.MOST_CLASSES + 1)
    for model in (wide, many):
        assert prediction.load_into_kernel(model) is None
        words = pack(rng.random((3, model.input.n_bits)) < 0.5)
        assert np.array_equal(prediction.scores(model, words), model.scores(words))


def test_the_largest_model_of_the_kernel(compiler):
    rng = np.random.default_rng(11)
    spec = InputSpec.raw(kernel.MOST_INPUTS)
    model = random_tables(rng, spec=spec, classes=kernel.MOST_CLASSES)
    words = pack(rng.random((65, spec.n_bits)) < 0.5)
    network = kernel.loaded(model)
    for name in kernel.compile_kernel().kernels:
        network.use_kernel(name)
        assert np.array_equal(network.scores(words), model.scores(words))


def test_bytes_that_are_no_tables_are_refused(compiler):
    library = kernel.compile_kernel()
    model = random_tables(np.random.default_rng(12))
    blob = kernel.dump(model)
    for broken in (b"", blob[:40], blob[:-1], blob + b"\0"):
        with pytest.raises(KernelError):
            library.load(broken)
    for word, value in ((0, 0), (0, 1), (2, 1), (2, 65), (4, 11), (5, 7), (6, 9), (7, 0)):
        header = np.frombuffer(blob, dtype=np.uint32, count=8).copy()
        header[word] = value
        with pytest.raises(KernelError):
            library.load(header.tobytes() + blob[32:])
    with pytest.raises(KernelError, match="kernel of that name"):
        library.load(blob).use_kernel("abacus")


@pytest.mark.slow
def test_a_miscompiled_kernel_is_not_used(compiler, monkeypatch, tmp_path):
    text = kernel.SOURCE.read_text("utf-8")
    assert "sum[s][i] = net->bias[s];" in text
    wrong = tmp_path / "tables.c"
    wrong.write_text(text.replace("sum[s][i] = net->bias[s];", "sum[s][i] = net->bias[s] + 1;"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernel, "SOURCE", wrong)
    kernel.compile_kernel.cache_clear()
    model = random_tables(np.random.default_rng(13))
    words = pack(np.random.default_rng(14).random((9, model.input.n_bits)) < 0.5)
    with pytest.warns(N3icWarning, match="reference"):
        assert np.array_equal(prediction.scores(model, words), model.scores(words))
    kernel.compile_kernel.cache_clear()
