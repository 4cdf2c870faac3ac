# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import shutil
import stat
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import ModelError, N3icWarning
from n3ic.kernel import build, prediction
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from n3ic.util.cache import Cache, UnsafeCacheError

pytestmark = pytest.mark.usefixtures("quick_build")

MODEL = random_model((70, 33, 9, 3), np.random.default_rng(4))
WORDS = verification_vectors(MODEL, 100)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own; nothing loaded before counts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("N3IC_NATIVE", raising=False)
    prediction._library.cache_clear()
    prediction._network.cache_clear()
    yield tmp_path / "cache" / "n3ic" / "native"
    prediction._library.cache_clear()
    prediction._network.cache_clear()


def fake_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    script = folder / "fakecc"
    script.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo fake 1.0; exit; fi\n{body}\n')
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))


def test_scores_are_the_references(compiler: object, own_cache: Path) -> None:
    assert prediction.available()
    assert np.array_equal(prediction.scores(MODEL, WORDS), MODEL.scores(WORDS))
    got, want = prediction.predict(MODEL, WORDS), MODEL.infer(WORDS)
    assert np.array_equal(got.classes, want.classes)
    assert np.array_equal(got.margins, want.margins)
    assert prediction.scores(MODEL, WORDS[:0]).shape == (0, 3)
    strided = np.repeat(WORDS, 2, axis=0)[::2]
    assert np.array_equal(prediction.scores(MODEL, strided), MODEL.scores(WORDS))


@pytest.mark.slow
def test_bad_inputs_are_the_same_errors(compiler: object) -> None:
    with pytest.raises(ModelError, match="packed inputs have shape"):
        prediction.scores(MODEL, WORDS[:, :2])
    with pytest.raises(ModelError, match="uint32"):
        prediction.scores(MODEL, WORDS.astype(np.int64))
    with pytest.raises(ModelError, match="pad bits"):
        prediction.scores(MODEL, WORDS | np.uint32(1 << 31))


@pytest.mark.slow
def test_built_once_where_only_the_user_can_write(
    compiler: object, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prediction.available()
    assert stat.S_IMODE(own_cache.stat().st_mode) == 0o700
    files = list(own_cache.iterdir())
    assert len(files) == 1
    assert Cache.open(build.CACHE).find(files[0].name) == files[0]
    assert not stat.S_IMODE(files[0].stat().st_mode) & 0o077

    def refuse(*_: object) -> Path:
        raise AssertionError("built again")

    prediction._library.cache_clear()
    monkeypatch.setattr(build, "build", refuse)
    assert prediction.available()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755])
def test_a_cache_that_others_can_use_is_not_loaded(
    compiler: object, own_cache: Path, mode: int
) -> None:
    own_cache.mkdir(parents=True)
    own_cache.chmod(mode)
    with pytest.raises(UnsafeCacheError):
        build.cached_library()
    # Prediction still works, from a directory of its own.
    assert prediction.available()
    assert np.array_equal(prediction.scores(MODEL, WORDS), MODEL.scores(WORDS))
    assert list(own_cache.iterdir()) == []


def test_a_folder_above_that_others_can_write_is_not_used(
    compiler: object, own_cache: Path
) -> None:
    own_cache.mkdir(parents=True, mode=0o700)
    own_cache.parent.parent.chmod(0o777)
    with pytest.raises(UnsafeCacheError, match="somebody else"):
        build.cached_library()


def test_a_link_as_cache_is_not_used(compiler: object, own_cache: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    own_cache.parent.mkdir(parents=True, mode=0o700)
    own_cache.symlink_to(elsewhere)
    with pytest.raises(UnsafeCacheError, match="not a directory"):
        build.cached_library()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["writable", "link", "hard link", "directory"])
def test_a_planted_library_is_replaced(
    compiler: object, own_cache: Path, tmp_path: Path, kind: str
) -> None:
    cache = Cache.open(build.CACHE)
    target = own_cache / build.library_name("bnn", build.find_compiler(), build.kernel_sources())
    planted = tmp_path / "planted.so"
    planted.write_bytes(b"not a library")
    if kind == "link":
        target.symlink_to(planted)
    elif kind == "hard link":
        os.link(planted, target)
    elif kind == "directory":
        target.mkdir()
    else:
        target.write_bytes(b"not a library")
        target.chmod(0o666)
    assert cache.find(target.name) is None
    assert prediction.available()
    assert planted.read_bytes() == b"not a library"
    assert np.array_equal(prediction.scores(MODEL, WORDS), MODEL.scores(WORDS))


def test_the_name_changes_with_the_compiler() -> None:
    a = build.library_name("a", build.CCompiler(("cc",), "gcc 1"), [b"x"])
    assert a == build.library_name("a", build.CCompiler(("cc",), "gcc 1"), [b"x"])
    assert a != build.library_name("a", build.CCompiler(("cc",), "gcc 2"), [b"x"])
    assert a != build.library_name("a", build.CCompiler(("cc", "-m32"), "gcc 1"), [b"x"])


def test_switched_off(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.setenv("N3IC_NATIVE", "0")
    assert not prediction.available()
    assert np.array_equal(prediction.scores(MODEL, WORDS), MODEL.scores(WORDS))
    assert not own_cache.exists()


def test_no_compiler_is_silent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_cache: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not prediction.available()
        assert np.array_equal(prediction.scores(MODEL, WORDS), MODEL.scores(WORDS))


def test_a_compiler_that_fails_is_told_with_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_cache: Path
) -> None:
    fake_compiler(tmp_path, monkeypatch, "echo 'no such luck' >&2; exit 1")
    with pytest.warns(N3icWarning, match=r"build\.log"):
        assert not prediction.available()
    assert "no such luck" in (own_cache / "build.log").read_text()
    assert [p.name for p in own_cache.iterdir()] == ["build.log"]
    assert np.array_equal(prediction.scores(MODEL, WORDS), MODEL.scores(WORDS))


def test_a_compiler_that_makes_nonsense_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_cache: Path
) -> None:
    fake_compiler(tmp_path, monkeypatch, "exit 0")
    with pytest.warns(N3icWarning, match="not used"):
        assert not prediction.available()
    assert np.array_equal(prediction.scores(MODEL, WORDS), MODEL.scores(WORDS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("bnn.c", "limit[j] = (int32_t)bias;", "limit[j] = (int32_t)bias + 1;"),
        ("stream.c", "value >= cuts[k]", "value > cuts[k]"),
        pytest.param(
            "stream.c", "block.margins[r]", "block.margins[r] + 1", marks=pytest.mark.slow
        ),
    ],
)
def test_a_miscompiled_kernel_is_not_used(
    compiler: object,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    file: str,
    right: str,
    wrong: str,
) -> None:
    folder = tmp_path / "src"
    shutil.copytree(build.FOLDER, folder)
    text = (folder / file).read_text()
    assert right in text
    (folder / file).write_text(text.replace(right, wrong))
    monkeypatch.setattr(build, "FOLDER", folder)
    monkeypatch.setattr(build, "SOURCE", folder / "bnn.c")
    monkeypatch.setattr(build, "STREAM", (folder / "stream.c", folder / "stream.h"))
    with pytest.warns(N3icWarning, match="reference"):
        assert not prediction.available()


@pytest.mark.slow
@pytest.mark.parametrize("native", ["0", "1"])
def test_lines_say_shunt_below_the_threshold(monkeypatch, native):
    monkeypatch.setenv("N3IC_NATIVE", native)
    base = random_model((40, 12, 3), np.random.default_rng(0))
    model = replace(base, input=InputSpec((Field.binary("a", 32), Field.binary("b", 8))))
    model = model.with_shunt(3)
    columns = {"a": np.arange(5000) * 7919 * 10007 % 2**32, "b": np.arange(5000) % 251}
    want = model.infer(model.encode(columns))
    lines, counts = prediction.csv_lines(model, columns, 10, [b"x", b"y", b"z", b"shunt"])
    cells = [line.split(b",") for line in bytes(lines).splitlines()]
    assert [c[1] for c in cells] == [[b"x", b"y", b"z", b"shunt"][v] for v in want.verdicts]
    assert [int(c[2]) for c in cells] == want.margins.tolist()
    assert [int(c[0]) for c in cells] == list(range(10, 5010))
    assert counts.tolist() == [int((want.verdicts == v).sum()) for v in (0, 1, 2, -1)]
    assert 0 < counts[3] < 5000
    assert np.array_equal(prediction.predict(model, model.encode(columns)).verdicts, want.verdicts)


@pytest.mark.parametrize("rows", [0, 1, 255, 257, 1000])
def test_input_bits_are_those_of_the_input_stage(rows):
    """Fields of every kind across borders of words, one of them repeated, at their bounds."""
    rng = np.random.default_rng(rows)
    spec = InputSpec(
        (
            Field.binary("a", 7),
            Field.thermometer("b", range(3, 123, 3)),
            Field.binary("c", 32),
            Field.thermometer("a", (1, 2**32 - 1)),
            Field.binary("d", 1),
        )
    )
    bounds = np.array([0, 2, 3, 127, 128, 2**32 - 1], dtype=np.uint32)
    columns = {
        name: np.where(rng.random(rows) < 0.5, rng.choice(bounds, rows), rng.integers(0, 200, rows))
        for name in "abcd"
    }
    assert np.array_equal(prediction.encode(spec, columns), spec.encode_words(columns))
