# SPDX-License-Identifier: Apache-2.0
"""Tables to classify: units, ranges, layouts, streams, and what write_features wrote."""

import gzip
import io
import lzma
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.data import flows
from n3ic.data.flows import read_features, stream_features, write_features
from n3ic.datasets.unsw_nb15.synthetic import generate, generate_columns, to_csv
from n3ic.errors import DataError, N3icError
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model


def model(*fields, data=""):
    spec = InputSpec(fields)
    net = random_model((spec.n_bits, 8, 2), np.random.default_rng(0))
    return replace(net, input=spec, provenance={"data": data})


DUR = Field.thermometer("dur", [10, 2000], unit="us", scale=1e6)
BYTES = Field.binary("sbytes", 16, unit="byte")
SCALED = model(DUR, BYTES)
PLAIN = model(BYTES, Field.binary("spkts", 8, unit="packet"))
UNSW = model(
    DUR,
    Field.binary("is_tcp", 1),
    Field.thermometer("mean_sum", [100, 1000], unit="byte"),
    Field.thermometer("rate", [5000], scale=1e3),
    data="unsw-nb15",
)


def table(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def lists(columns):
    return {name: values.tolist() for name, values in columns.items()}


def test_the_first_line_says_the_units(tmp_path):
    nic = table(tmp_path, "# n3ic-units: nic\nsbytes,dur\n70000,3\n5,2000\n", "nic.csv")
    source = table(tmp_path, "# n3ic-units: source\nsbytes,dur\n70000,3e-6\n5,0.002\n", "s.csv")
    want = {"dur": [3, 2000], "sbytes": [70000, 5]}
    assert lists(read_features(nic, SCALED)) == want
    assert lists(read_features(source, SCALED)) == want
    assert lists(read_features(nic, SCALED, units="nic")) == want
    with pytest.raises(DataError, match=r"nic\.csv: the table says that its units are nic, not s"):
        read_features(nic, SCALED, units="source")


def test_the_columns_that_a_table_of_metered_flows_lacks_are_named(tmp_path):
    with pytest.raises(DataError, match=r"t\.csv, line 1: 1 column missing: dur"):
        read_features(table(tmp_path, "sbytes\n7\n"), model(DUR, BYTES, data="metered"))


def test_a_table_that_could_be_either_is_refused_with_what_to_do(tmp_path):
    path = table(tmp_path, "sbytes,dur\n70000,3\n")
    with pytest.raises(DataError, match=r"dur in us.*--units nic or --units source.*n3ic-units"):
        read_features(path, SCALED)
    assert lists(read_features(path, SCALED, units="nic"))["dur"] == [3]
    assert lists(read_features(path, SCALED, units="source"))["dur"] == [3_000_000]
    same = table(tmp_path, "sbytes,spkts\n7,3\n")
    assert lists(read_features(same, PLAIN)) == {"sbytes": [7], "spkts": [3]}


@pytest.mark.parametrize(
    ("cell", "units", "what"),
    [
        ("3.5", "source", r"t\.csv, line 3, column 'sbytes': expected an integer.* got 3\.5"),
        ("1e300", "source", r"t\.csv, line 3, column 'sbytes': expected an integer.* got 1e\+300"),
        ("-1", "source", "column 'sbytes': expected an integer from 0"),
        ("-1", "nic", "line 3, column 'sbytes': expected an integer from 0 to 4,294,967,295"),
        ("4294967296", "nic", "line 3, column 'sbytes': expected an integer.* got 4294967296"),
        ("0.5", "nic", "column 'sbytes': expected an integer"),
        ("x", "nic", "line 3, column 'sbytes': expected a finite number, got 'x'"),
        ("", "nic", "line 3, column 'sbytes': expected a finite number, got a blank"),
        ("nan", "source", "line 3, column 'sbytes': expected a finite number, got 'nan'"),
    ],
)
def test_columns_of_integers_hold_integers_in_range(tmp_path, cell, units, what):
    path = table(tmp_path, f"dur,sbytes\n1,4294967295\n1,{cell}\n")
    with pytest.raises(DataError, match=what):
        read_features(path, SCALED, units=units)


def test_counters_above_32_bits_are_the_largest(tmp_path):
    path = table(tmp_path, "sbytes,spkts\n99999999999,1\n")
    assert lists(read_features(path, PLAIN)) == {"sbytes": [2**32 - 1], "spkts": [1]}


def test_missing_columns_are_listed(tmp_path):
    with pytest.raises(DataError, match="line 1: 1 column missing: dur"):
        read_features(table(tmp_path, "sbytes\n1\n"), SCALED)
    with pytest.raises(DataError, match="line 2: 1 column missing: dur"):
        read_features(table(tmp_path, "# n3ic-units: nic\nsbytes\n1\n"), SCALED)
    with pytest.raises(DataError, match="column 'dur' comes twice"):
        read_features(table(tmp_path, "sbytes,dur,dur\n1,1,1\n"), SCALED, units="nic")


def partition(rows=300):
    return to_csv(generate_columns(rows, 3)).decode()


def test_the_own_layout_needs_no_units_and_only_the_columns_that_are_read(tmp_path):
    whole = partition()
    want = generate(300, 3).features
    got = read_features(table(tmp_path, whole), UNSW)
    header, *lines = (line.split(",") for line in whole.splitlines())
    places = [header.index(n) for n in ("proto", "dmean", "dur", "smean", "spkts", "dpkts")]
    less = "\n".join(",".join(row[i] for i in places) for row in (header, *lines))
    few = read_features(table(tmp_path, less), UNSW)
    assert set(got) == set(few) == set(UNSW.input.features)
    for name in ("dur", "is_tcp", "mean_sum"):
        assert np.array_equal(got[name], want[name])
        assert np.array_equal(few[name], want[name])
    np.testing.assert_allclose(few["rate"], want["rate"], atol=1)
    gone = less.replace("smean", "unknown", 1)
    with pytest.raises(DataError, match="line 1: 1 column missing: smean"):
        read_features(table(tmp_path, gone), UNSW)
    with pytest.raises(DataError, match=r"line 4, column 'dur': expected a finite number"):
        lines = less.splitlines()
        lines[3] = lines[3].replace(lines[3].split(",")[2], "x")
        read_features(table(tmp_path, "\n".join(lines)), UNSW)


def test_whole_columns_of_the_own_layout(tmp_path):
    own = model(DUR, BYTES, data="unsw-nb15")
    whole = partition()
    want = generate(300, 3).features
    got = read_features(table(tmp_path, whole), own)
    assert np.array_equal(got["dur"], want["dur"])
    header, first, *rest = (line.split(",") for line in whole.splitlines())
    first[header.index("sbytes")] = "3.5"
    text = "\n".join(",".join(row) for row in (header, first, *rest))
    with pytest.raises(DataError, match=r"line 2, column 'sbytes': expected an integer.*'3\.5'"):
        read_features(table(tmp_path, text), own)


def test_a_table_of_codes_and_integers_is_not_taken_for_the_own_layout(tmp_path):
    """The same columns, with numbers where the files have names: a NIC may have made it."""
    own = model(DUR, BYTES, Field.binary("proto", 8), data="unsw-nb15")
    names = partition(1).splitlines()[0].split(",")
    text = ",".join(names) + "\n" + ",".join("1" for _ in names) + "\n"
    with pytest.raises(DataError, match="--units nic or --units source"):
        read_features(table(tmp_path, text), own)


@pytest.mark.first_case
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_chunks_are_the_table(tmp_path, monkeypatch, pack):
    path = table(tmp_path, pack(partition(5000).encode()))
    whole = read_features(path, UNSW)
    monkeypatch.setattr(flows, "stream_sheets", small_sheets(flows.stream_sheets))
    chunks = list(stream_features(path, UNSW))
    assert len(chunks) > 10
    for name in whole:
        assert np.array_equal(np.concatenate([c[name] for c in chunks]), whole[name])


def small_sheets(stream_sheets):
    return lambda name, pieces, **options: stream_sheets(
        name,
        (p[i : i + 999] for p in pieces for i in range(0, len(p), 999)),
        chunk_bytes=20_000,
        **options,
    )


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        ("a,b".encode("utf-16"), "UTF-16 text"),
        (lzma.compress(b"%PDF-1.4"), "a PDF"),
        (bytes(1 << 20) * 12, "line 1: a NUL byte"),
        (gzip.compress(b"sbytes,spkts\n1,2\n" * 99, mtime=0)[:-9], "truncated or damaged"),
    ],
)
def test_foreign_and_damaged_files_are_named(tmp_path, data, what):
    with pytest.raises(DataError, match=r"t\.csv.*" + what):
        read_features(table(tmp_path, data), PLAIN)


def test_parquet_is_not_read_from_a_pipe(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"PAR1" + bytes(40))))
    with pytest.raises(DataError, match="standard input: this is a Parquet file"):
        read_features("-", PLAIN)


def test_standard_input(tmp_path, monkeypatch):
    text = gzip.compress(b"sbytes,spkts\n7,3\n", mtime=0)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    assert lists(read_features("-", PLAIN)) == {"sbytes": [7], "spkts": [3]}


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 2), min_size=1, max_size=20),
    st.sampled_from(["f.csv", "f.parquet"]),
)
def test_what_is_written_is_read(tmp_path_factory, rows, name):
    path = tmp_path_factory.mktemp("flows") / name
    dur, sbytes = (np.array(column, dtype=np.uint32) for column in zip(*rows, strict=True))
    chunks = [{"dur": dur[:3], "sbytes": sbytes[:3]}, {"dur": dur[3:], "sbytes": sbytes[3:]}]
    assert write_features(path, chunks) == len(rows)
    got = read_features(path, SCALED)
    assert got["dur"].tolist() == dur.tolist()
    assert got["sbytes"].tolist() == sbytes.tolist()
    if name == "f.csv":
        assert path.read_bytes().startswith(b"# n3ic-units: nic\ndur,sbytes\n%d," % dur[0])


def test_a_table_is_written_whole_or_not_at_all(tmp_path):
    def chunks():
        yield {"a": np.arange(3)}
        raise DataError("the rest is damaged")

    path = table(tmp_path, "before", "out.csv")
    with pytest.raises(DataError, match="damaged"):
        write_features(path, chunks())
    assert path.read_bytes() == b"before"
    with pytest.raises(N3icError, match="cannot write"):
        write_features(tmp_path / "no" / "out.csv", {"a": np.arange(3)})
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize(
    "kind", ["uint8", "int32", "uint32", "int64", "uint64", "float32", "float64"]
)
def test_parquet_of_any_number(tmp_path, kind):
    path = tmp_path / "t.parquet"
    columns = {"dur": np.array([3, 200], kind), "sbytes": np.array([7, 0], kind)}
    pq.write_table(pa.table(columns), path)
    with pytest.raises(DataError, match="--units nic or --units source"):
        read_features(path, SCALED)
    assert lists(read_features(path, SCALED, units="nic")) == {"dur": [3, 200], "sbytes": [7, 0]}
    source = read_features(path, SCALED, units="source")
    assert lists(source) == {"dur": [3_000_000, 200_000_000], "sbytes": [7, 0]}


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (pa.array([1, None, 3]), "row 2, column 'sbytes': expected a number, got null"),
        (pa.array([1.0, 2.0, 3.5]), r"row 3, column 'sbytes': expected an integer.*got 3\.5"),
        (pa.array([1.0, float("nan"), 3.0]), "row 2, column 'sbytes'.*got nan"),
        (pa.array([1, -2, 3]), "row 2, column 'sbytes': expected an integer from 0"),
        (pa.array([1, 2**40, 3]), "row 2, column 'sbytes': expected an integer from 0 to 4,294"),
        (pa.array(["1", "2", "3"]), "column 'sbytes': expected numbers, got string"),
    ],
)
def test_bad_parquet_is_located(tmp_path, values, what):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"sbytes": values, "dur": pa.array([1, 2, 3])}), path)
    with pytest.raises(DataError, match=what):
        read_features(path, SCALED, units="nic")


def test_damaged_parquet_is_named(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"sbytes": np.arange(9999), "dur": np.arange(9999)}), path)
    sound = path.read_bytes()
    for data in (sound[:-30], sound[: len(sound) // 2], b"PAR1" + bytes(60)):
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"t\.parquet"):
            read_features(path, SCALED, units="nic")
    path.write_bytes(sound)
    with pytest.raises(DataError, match="columns missing: spkts"):
        read_features(path, PLAIN)


def test_reading_tables_needs_no_training_library(tmp_path):
    """CSV, Parquet and the layouts of data sets are what a plain installation reads."""
    UNSW.save(tmp_path / "m.n3ic")
    table(tmp_path, partition(50))
    code = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in blocked:\n"
        "            raise ModuleNotFoundError(name)\n"
        "blocked = 'torch brevitas sklearn pandas matplotlib joblib onnx'.split()\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "from n3ic.data.flows import read_features, write_features\n"
        "from n3ic.model.network import BinaryModel\n"
        "model = BinaryModel.load('m.n3ic')\n"
        "flows = read_features('t.csv', model)\n"
        "assert write_features('t.parquet', flows) == 50\n"
        "again = read_features('t.parquet', model)\n"
        "assert all((again[n] == flows[n]).all() for n in flows)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=600)


def test_lines_that_are_blank_at_first_are_not_an_empty_file(tmp_path):
    with pytest.raises(DataError, match="line 1: blank; expected the column names"):
        read_features(table(tmp_path, "\n" * 20 + "sbytes,spkts\n1,2\n"), PLAIN)
