# SPDX-License-Identifier: Apache-2.0
"""Streams of flows: the lines are the predictions, whole or not at all, in bounded memory."""

import csv
import io
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from n3ic.data import delimited, files
from n3ic.data.flows import stream_features, write_features
from n3ic.data.streaming import csv_cell, predict_stream
from n3ic.errors import DataError
from n3ic.kernel.prediction import predict
from n3ic.model.random_models import random_model

MODEL = replace(
    random_model((40, 9, 3), np.random.default_rng(0)), classes=("=1+1", 'a "b",c', "d")
)


def columns(rows, seed=1):
    rng = np.random.default_rng(seed)
    return {n: rng.integers(0, 2**32, rows, dtype=np.uint32) for n in MODEL.input.features}


@pytest.mark.parametrize("name", ["flows.csv", "flows.parquet"])
def test_lines_are_the_predictions(tmp_path, monkeypatch, name):
    monkeypatch.setitem(stream_features.__kwdefaults__, "chunk_rows", 1000)
    monkeypatch.setattr(files, "_CHUNK", 10_000)
    monkeypatch.setitem(delimited.stream_sheets.__kwdefaults__, "chunk_bytes", 20_000)
    given = columns(5000)
    write_features(tmp_path / name, given)
    rows_done = []
    prediction = predict_stream(
        MODEL,
        tmp_path / name,
        tmp_path / "out.csv",
        progress=lambda rows, _: rows_done.append(rows),
    )
    want = predict(MODEL, MODEL.encode(given))
    with (tmp_path / "out.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["row", "class", "margin", "score_=1+1", 'score_a "b",c', "score_d"]
    assert [int(r[0]) for r in rows] == list(range(5000))
    safe = ("'=1+1", 'a "b",c', "d")
    assert [r[1] for r in rows] == [safe[c] for c in want.classes]
    assert [int(r[2]) for r in rows] == want.margins.tolist()
    assert np.array_equal(np.array([r[3:] for r in rows], dtype=int), want.scores)
    assert prediction.rows == rows_done[-1] == 5000
    assert len(rows_done) >= 5
    counts = np.bincount(want.classes, minlength=3).tolist()
    assert dict(prediction.classes) == dict(zip(MODEL.classes, counts, strict=True))
    assert predict_stream(MODEL, tmp_path / name, None) == prediction


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=cmd()", b"'=cmd()"),
        ("+1", b"'+1"),
        ("-1", b"'-1"),
        ("@x", b"'@x"),
        ("\tx", b"'\tx"),
        ("\r=x", b'"\'\r=x"'),
        ('=a,"b"', b'"\'=a,""b"""'),
        ("a=b", b"a=b"),
        ("über", "über".encode()),
    ],
)
def test_no_cell_is_a_formula(text, cell):
    assert csv_cell(text) == cell


def test_standard_input_to_standard_output(tmp_path, monkeypatch):
    write_features(tmp_path / "t.csv", columns(300))
    text = (tmp_path / "t.csv").read_bytes()
    predict_stream(MODEL, tmp_path / "t.csv", tmp_path / "out.csv")
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))
    assert predict_stream(MODEL, "-").rows == 300
    assert out.getvalue() == (tmp_path / "out.csv").read_bytes()


def test_a_bad_row_far_down_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setitem(delimited.stream_sheets.__kwdefaults__, "chunk_bytes", 4096)
    write_features(tmp_path / "t.csv", columns(3000))
    lines = (tmp_path / "t.csv").read_text().splitlines()
    lines[2500] = "1.5,2"
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match="line 2501, column 'x0': expected an integer"):
        predict_stream(MODEL, tmp_path / "t.csv", tmp_path / "out.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_what_is_classified_is_read_no_further(monkeypatch):
    """The first flows come out of a stream that has no end."""
    taken = []

    class Endless(io.RawIOBase):
        def readable(self):
            return True

        def read(self, size=-1):
            taken.append(size)
            return b"x0,x1\n" if len(taken) == 1 else b"1,2\n" * 10_000

        read1 = read

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Endless()))
    first = next(stream_features("-", MODEL))
    assert len(first["x0"]) >= 1000
    assert len(taken) * 40_000 < 4 * delimited.CHUNK_BYTES
