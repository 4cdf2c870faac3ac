# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json

import numpy as np
import pytest

import n3ic
from n3ic.errors import UsageError, VerifyError
from n3ic.exporters.host import bench
from n3ic.kernel import blob
from n3ic.kernel.library import KernelLibrary
from n3ic.model.bits import unpack
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from tests.support.kernel_models import small_model

pytestmark = pytest.mark.usefixtures("quick_build")

MODEL = random_model((70, 20, 9, 3), np.random.default_rng(0))


@pytest.mark.slow
def test_every_kernel_is_timed_after_a_check(compiler: object, library: KernelLibrary) -> None:
    result = bench.bench_host(MODEL, passes=1, rows=1000, alternatives=False)
    assert [t.name for t in result.timings] == [f"n3ic {name}" for name in library.kernels]
    for timing in result.timings:
        assert set(timing.batches) == {1, 1000}
        assert all(ns > 0 for ns in timing.batches.values())
        assert timing.dependent is not None
    rendered = bench.render(result)
    title, columns, rows = rendered.tables[0]
    assert "measured" in title
    assert {len(row) for row in rows} == {len(columns)}
    assert min(float(row[-1]) for row in rows) == 1.0
    assert json.loads(json.dumps(rendered.data))["kind"] == "measured"


@pytest.mark.slow
def test_kernels_are_timed_from_features_where_there_are_cuts(
    compiler: object, library: KernelLibrary
) -> None:
    result = bench.bench_host(small_model(), passes=1, rows=100, alternatives=False)
    names = [t.name for t in result.timings]
    plain = [f"n3ic {name}" for name in library.kernels]
    assert names == [*plain, *(f"{name}, from features" for name in plain)]
    assert all(t.batches[1] > 0 for t in result.timings)
    assert len(bench.render(result).tables[0][2]) == len(names)


@pytest.mark.slow
def test_a_kernel_with_other_scores_is_not_timed(
    compiler: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = random_model(MODEL.shape, np.random.default_rng(1))
    weights = blob.dump(other)
    monkeypatch.setattr(blob, "dump", lambda _: weights)
    with pytest.raises(VerifyError, match=r"kernel portable: .* layer 0"):
        bench.bench_host(MODEL, passes=1, rows=100, alternatives=False)


@pytest.mark.parametrize(
    ("library_name", "measure"),
    [
        ("onnxruntime", bench._onnx_folded),
        ("onnxruntime", bench._onnx_float),
        ("torch", bench._torch_float),
    ],
)
def test_alternatives_run(library_name: str, measure: bench.Measure) -> None:
    pytest.importorskip(library_name, reason=f"needs {library_name}")
    words = verification_vectors(MODEL, 100)
    for timing in measure(MODEL, words, unpack(words, MODEL.input.n_bits)):
        assert not timing.ours
        assert timing.batches[1] > 0


def test_what_is_not_installed_is_named(compiler: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def _other(*_: object) -> list[bench.ProgramTiming]:
        raise ImportError("gone", name="gone")

    monkeypatch.setattr(bench, "ALTERNATIVES", (_other,))
    result = bench.bench_host(MODEL, passes=1, rows=50)
    assert result.missing == ("other: gone is not installed",)


def test_the_host_bench_has_no_options() -> None:
    with pytest.raises(UsageError, match="no option rows"):
        n3ic.bench("host", MODEL, rows=5)
