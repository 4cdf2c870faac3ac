# SPDX-License-Identifier: Apache-2.0
"""Columns to lines in C: the same as numpy's, on the values where they could differ."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.kernel import prediction
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model

pytestmark = pytest.mark.usefixtures("quick_build", "compiler")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    prediction._library.cache_clear()
    prediction._network.cache_clear()
    yield
    prediction._library.cache_clear()
    prediction._network.cache_clear()


def spec(rng, n_fields):
    """Fields of both kinds and all widths, some of one feature, so that words are crossed."""
    fields = []
    for i in range(n_fields):
        name = f"f{i // 2}"
        if rng.random() < 0.4:
            fields.append(Field.binary(name, int(rng.integers(1, 33))))
        else:
            top = int(rng.choice([50, 1 << 16, (1 << 32) - 1]))
            cuts = np.unique(rng.integers(1, top, int(rng.integers(1, 45)), endpoint=True))
            fields.append(Field.thermometer(name, cuts.tolist()))
    return InputSpec(tuple(fields))


def hard_columns(model, rng, rows):
    """0, the largest, and each cut and clamp with its neighbours."""
    out = {}
    for name in model.input.features:
        fields = [f for f in model.input.fields if f.feature == name]
        edges = {c + d for f in fields for c in (*f.cuts, f.clamp) for d in (-1, 0, 1)}
        edges = sorted({0, 2**32 - 1} | {e for e in edges if e < 2**32})
        out[name] = rng.choice(np.array(edges, dtype=np.uint32), rows)
    return out


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("seed", "rows"),
    [
        pytest.param(seed, rows, marks=[pytest.mark.slow] if seed and rows != most else [])
        for seed, most in enumerate((0, 1000, 257, 256))
        for rows in (0, 1, 255, 256, 257, 1000)
    ],
)
def test_lines_are_the_references(monkeypatch, seed, rows):
    rng = np.random.default_rng(seed)
    inputs = spec(rng, 9)
    shape = (inputs.n_bits, 33, 7, 5) if seed else (inputs.n_bits, 300)
    model = replace(random_model(shape, rng), input=inputs)
    columns = hard_columns(model, rng, rows)
    names = [b'"a,b"', b"", b"x" * 300, *(b"c%d" % i for i in range(297))][: len(model.classes)]
    first = int(rng.choice([0, 95, 999_999, 2**40]))
    assert prediction.available()
    lines, counts = prediction.csv_lines(model, columns, first, names)
    monkeypatch.setenv("N3IC_NATIVE", "0")
    want, expected = prediction.csv_lines(model, columns, first, names)
    assert bytes(lines) == want
    assert counts.tolist() == expected.tolist()
    assert bytes(lines).count(b"\n") == counts.sum() == rows


def test_columns_of_other_integers_and_steps_are_taken():
    model = random_model((40, 9, 2), np.random.default_rng(0))
    columns = {n: np.arange(600, dtype=np.int64)[::2] for n in model.input.features}
    lines, _ = prediction.csv_lines(model, columns, 0, [b"a", b"b"])
    want = prediction.predict(model, model.encode(columns))
    scores = [line.split(b",")[3:] for line in bytes(lines).splitlines()]
    assert np.array_equal(np.array(scores, dtype=int), want.scores)
    columns["x1"] = columns["x1"][1:]
    with pytest.raises(ValueError, match="one length"):
        prediction.csv_lines(model, columns, 0, [b"a", b"b"])
