# SPDX-License-Identifier: Apache-2.0
"""Rows that are drawn from tables of any size: which they are, and what is trained on them."""

import gzip
import lzma
import resource
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from n3ic import api
from n3ic.data import row_sample as module
from n3ic.data.parquet import parquet_sheets
from n3ic.data.row_sample import row_sample
from n3ic.errors import DataError, UsageError
from n3ic.runs.progress import TrainingProgress
from n3ic.usecases.request import TrainRequest
from n3ic.usecases.training_data import read_training_data

HEAD = b"bytes,packets,label\n"


def rows_of(count, first=0):
    x = np.random.default_rng(first).integers(0, 1000, count)
    return [
        b"%d,%d,%s\n" % (value, first + i, b"bad" if value > 500 else b"good")
        for i, value in enumerate(x.tolist())
    ]


def drawn(data, rows, seed=0):
    with row_sample(data, rows, seed) as sample:
        return [[*path.read_bytes().splitlines(keepends=True)] for path in sample.paths]


def smallest(rows, of, seed=0):
    """Places of the rows with the smallest numbers, by the definition."""
    numbers = np.random.default_rng(seed).integers(0, 1 << 64, of, dtype=np.uint64)
    return sorted(np.argsort(numbers, kind="stable")[:rows].tolist())


@pytest.mark.first_case
@pytest.mark.parametrize("chunk", [64, 1 << 20])
def test_rows_with_the_smallest_numbers_are_drawn_in_their_order(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(module, "_CHUNK", chunk)
    monkeypatch.setattr(module, "CHUNK_ROWS", 3)
    (tmp_path / "a.csv").write_bytes(
        b"# n3ic-units: source\n# more\n" + HEAD + b"".join(rows_of(90))
    )
    one, two = rows_of(90), rows_of(60, 90)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(HEAD + b"".join(two).rstrip(b"\n")))
    for seed in (0, 1):
        want = smallest(40, 150, seed)
        a, b = drawn([tmp_path / "a.csv", tmp_path / "b.csv.gz"], 40, seed)
        assert a == [b"# n3ic-units: source\n", b"# more\n", HEAD] + [
            one[i] for i in want if i < 90
        ]
        assert b == [HEAD] + [two[i - 90] for i in want if i >= 90]
    with row_sample([tmp_path / "a.csv", tmp_path / "b.csv.gz"], 40, 0) as sample:
        assert (sample.rows, sample.of) == (40, 150)
        assert [p.name for p in sample.paths] == ["a.csv", "b.csv"]
        assert sample.as_given(f"{sample.paths[0]}, line 3") == f"{tmp_path}/a.csv, line 3"
    assert not sample.paths[0].exists()


@pytest.mark.parametrize("packed", ["", ".gz", ".xz", ".parquet"])
def test_the_rows_do_not_depend_on_how_a_table_is_kept(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(module, "CHUNK_ROWS", 16)
    text = HEAD + b"".join(rows_of(100))
    file = tmp_path / f"t{packed if packed == '.parquet' else '.csv' + packed}"
    if packed == ".parquet":
        x = [line.decode().strip().split(",") for line in rows_of(100)]
        table = pa.table({"bytes": [r[0] for r in x], "packets": [r[1] for r in x]})
        table = table.replace_schema_metadata({"n3ic-units": "nic"})
        pq.write_table(table, file, row_group_size=30)
        with row_sample(file, 20, 5) as sample:
            rows = pq.read_table(sample.paths[0])
        assert rows["packets"].to_pylist() == [str(i) for i in smallest(20, 100, 5)]
        assert rows.schema.metadata == {b"n3ic-units": b"nic"}
        return
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packed]
    file.write_bytes(pack(text))
    (rows,) = drawn(file, 20, 5)
    assert [line.split(b",")[1] for line in rows[1:]] == [b"%d" % i for i in smallest(20, 100, 5)]


def test_a_row_may_have_line_ends_inside_quotes(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 8)
    rows = [b'%d,"a\n%s",good\n' % (i, b'""\n' * (i % 3)) for i in range(50)]
    (tmp_path / "t.csv").write_bytes(HEAD + b"".join(rows))
    with row_sample(tmp_path / "t.csv", 10, 0) as sample:
        text = sample.paths[0].read_bytes()
    assert text == HEAD + b"".join(rows[i] for i in smallest(10, 50))
    (tmp_path / "t.csv").write_bytes(HEAD + b'1,"' + b"x" * (3 << 20))
    monkeypatch.setattr(module, "_LONGEST", 20)
    with (
        pytest.raises(DataError, match=r"t\.csv: a row of more than 20 bytes"),
        row_sample(tmp_path / "t.csv", 1, 0),
    ):
        pass


def test_a_folder_keeps_its_other_files_and_a_table_what_describes_it(tmp_path):
    day = tmp_path / "day"
    (day / "sub").mkdir(parents=True)
    for name in ("a.csv", "sub/b.csv"):
        (day / name).write_bytes(HEAD + b"".join(rows_of(20)))
    (day / "columns.toml").write_text("[table]\n")
    (day / "sub" / "notes.pdf").write_bytes(b"%PDF")
    (day / "a.csv.meter.json").write_text("{}")
    with row_sample(day, 5, 0) as sample:
        (place,) = sample.paths
        names = sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file())
        assert names == ["a.csv", "a.csv.meter.json", "columns.toml", "sub/b.csv", "sub/notes.pdf"]
        assert len((place / "a.csv").read_bytes().splitlines()) < 8
    with row_sample(day / "a.csv", 5, 0) as sample:
        names = sorted(p.name for p in sample.paths[0].parent.iterdir())
    assert names == ["a.csv", "a.csv.meter.json", "columns.toml"]
    assert (day / "columns.toml").read_text() == "[table]\n"


def test_what_cannot_be_drawn_from_is_named(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("t.csv", HEAD)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(HEAD + b"".join(rows_of(5000)))[:-20])
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "t.csv").write_bytes(HEAD + b"".join(rows_of(100)))
    for name, message in (
        ("t.zip", "unpack it and name the files"),
        ("t.csv.gz", "truncated or damaged"),
        ("t.parquet", "damaged"),
        ("none.csv", "no such file"),
    ):
        with pytest.raises(DataError, match=message), row_sample(tmp_path / name, 5, 0):
            pass
    monkeypatch.setattr(module, "MAX_BYTES", 200)
    with (
        pytest.raises(DataError, match="more than 200 bytes; draw fewer"),
        row_sample(tmp_path / "t.csv", 50, 0),
    ):
        pass
    for wrong in ({"rows": 0, "data": "x.csv"}, {"rows": 5}):
        with pytest.raises(UsageError, match="rows"):
            TrainRequest("flows", **wrong)


def test_a_parquet_file_of_several_batches_is_read_whole(tmp_path):
    """Each batch, and each row group, has its cells."""
    pq.write_table(
        pa.table({"a": [*range(50)], "b": ["x"] * 50}), tmp_path / "t", row_group_size=20
    )
    with (tmp_path / "t").open("rb") as file:
        text = b"".join(sheet.body for sheet in parquet_sheets("t", file, chunk_rows=15))
    assert text == b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(50))


TRAINED = {"epochs": 1, "hidden": [8], "bits": 16, "tree_bytes": 0}


def noisy(count):
    x = np.random.default_rng(7).integers(0, 1000, (count, 3))
    label = np.where(x[:, 0] + x[:, 1] > 1000, b"bad", b"good")
    rows = zip(x.tolist(), label.tolist(), strict=True)
    return b"bytes,packets,size,label\n" + b"".join(b"%d,%d,%d,%s\n" % (*r, c) for r, c in rows)


def read(data, rows=None):
    request = TrainRequest("flows", data=data, options={"label": "label"}, rows=rows, seed=3)
    return read_training_data(request, TrainingProgress()).table


def test_a_table_of_drawn_rows_names_the_files_that_they_are_from(tmp_path):
    file = tmp_path / "t.csv"
    file.write_bytes(noisy(900))
    table, whole = read(file, 200), read(file)
    assert len(table) == 200
    for name in whole.features:
        assert (table.features[name] == whole.features[name][smallest(200, 900, 3)]).all()
    assert table.notes == (*whole.notes, "200 of 900 rows, drawn at random (seed 3)")
    assert [s.path for s in table.sources] == [s.path for s in whole.sources]
    assert table.sha256 != whole.sha256
    assert read(file, 900).sha256 == read(file, 901).sha256 == whole.sha256
    assert read(file, 900).notes == whole.notes
    file.write_bytes(noisy(900).replace(b"bad", b""))
    with pytest.raises(DataError, match=rf"^{file}, line .* no class.*\(of 200 drawn rows\)"):
        read(file, 200)


@pytest.mark.slow
def test_what_is_trained_on_drawn_rows_is_what_is_trained_on_a_file_of_them(tmp_path):
    file = tmp_path / "t.csv"
    file.write_bytes(noisy(1500))
    few = tmp_path / "few.csv"
    few.write_bytes(b"".join(drawn(file, 400, 3)[0]))
    runs = {
        name: api.train(path, "label", rows=rows, seed=3, out=tmp_path / name, **TRAINED)
        for name, path, rows in (("drawn", file, 400), ("given", few, None), ("all", few, 400))
    }
    models = {name: (run.path / "model.n3ic").read_bytes() for name, run in runs.items()}
    assert models["drawn"] == models["given"] == models["all"]
    data = runs["drawn"].metrics["data"]
    assert data["notes"][-1] == "400 of 1,500 rows, drawn at random (seed 3)"
    assert str(file) in (tmp_path / "drawn" / "metrics.json").read_text()
    assert "/n3ic-rows-" not in (tmp_path / "drawn" / "metrics.json").read_text()
    assert "--rows=400" in (tmp_path / "drawn" / "options.json").read_text()
    assert "drawn at random" not in (tmp_path / "all" / "metrics.json").read_text()


FURTHER = [pytest.param(name, marks=pytest.mark.exhaustive) for name in ("tables", "trees")]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["binary", *FURTHER])
def test_a_table_of_ten_times_the_memory_is_trained_on(tmp_path, family):
    """Under ``ulimit -d``; the same command without --rows ends with an error."""
    limit = 1_000_000_000
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (12, 1 << 20))
    label = np.where(x[0] + x[1] > 255, "bad", "good")
    group = pa.table({**{f"packets_{i}": column * 1000 for i, column in enumerate(x)}, "l": label})
    rows, file = 0, tmp_path / "t.parquet"
    with pq.ParquetWriter(file, group.schema) as writer:
        while rows * group.nbytes < 10 * limit * len(group):
            writer.write_table(group)
            rows += len(group)

    def run(out, *more):
        command = ["train", "--data", file, "--label", "l", "--out", tmp_path / out, *more]
        return subprocess.run(
            [sys.executable, "-m", "n3ic", *command],
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
        )

    drawn = run(family, "--rows", "5000", "--family", family)
    assert drawn.returncode == 0, drawn.stderr
    assert f"5,000 of {rows:,} rows, drawn at random (seed 0)" in drawn.stderr + drawn.stdout
    assert (tmp_path / family / "model.n3ic").is_file()
    whole = run("whole")
    assert whole.returncode != 0
    assert "draw rows (n3ic train --rows" in whole.stderr
    assert not (tmp_path / "whole").exists()
