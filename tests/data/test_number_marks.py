# SPDX-License-Identifier: Apache-2.0
"""Spreadsheets: decimal commas and marks between thousands, found or refused."""

import csv
import io
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from n3ic.data.delimited import stream_sheets
from n3ic.data.flows import read_features
from n3ic.data.number_marks import plain_numbers
from n3ic.data.user_table import describe
from n3ic.errors import DataError
from n3ic.model.columns import TableRules
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model

GERMAN = str.maketrans(",.", ".,")


def rows(count=60, seed=0):
    rng = random.Random(seed)
    for i in range(count):
        yield rng.randrange(10, 2_000_000), round(rng.random() * 5000, 4), "ab"[i % 2]


def written(path, cells, separator=";", header="bytes;dur;label", end="\n"):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, lineterminator=end)
    writer.writerow(header.split(";"))
    writer.writerows(cells)
    path.write_bytes(out.getvalue().encode())
    return path


def german(cells):
    for *numbers, label in cells:
        yield *(str(n).translate(GERMAN) for n in numbers), label


def network(own, name):
    spec = InputSpec((Field.binary(name, 32),))
    net = random_model((32, 8, 2), np.random.default_rng(0))
    return replace(net, input=spec, table=own.rules.only([name]))


@pytest.mark.first_case
@pytest.mark.parametrize("separator", [";", "\t", "|", ","])
@pytest.mark.parametrize("thousands", [True, False])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_convention_gives_the_numbers_of_the_plain_file(tmp_path, separator, thousands, end):
    plain = describe(written(tmp_path / "p.csv", rows(), ","), "label")[0]
    want = plain.load(tmp_path / "p.csv").features
    english = [(f"{s:,}", f"{d:,.4f}", c) if thousands else (s, d, c) for s, d, c in rows()]
    for cells in (english, list(german(english))):
        path = written(tmp_path / "t.csv", cells, separator, end=end)
        own, _ = describe(path, "label")
        table = own.load(path)
        for name, column in want.items():
            assert table.features[name].tolist() == column.tolist()
        assert own.toml["columns"]["bytes"]["kind"] == "number"
        for chunk in (1, 200):
            data = path.read_bytes()
            pieces = [data[i : i + 70] for i in range(0, len(data), 70)]
            sheets = stream_sheets("t", pieces, chunk_bytes=chunk, decimal=own.rules.decimal or ".")
            read = [row[0] for sheet in sheets for _, row in sheet.rows(True)]
            assert [int(cell) for cell in read] == [s for s, _, _ in rows()]


def test_a_column_of_thousands_alone_is_read_by_its_own_cells(tmp_path):
    sizes = [("1.279", "a"), ("540", "b"), ("12.040", "a"), ("87", "b")] * 5  # a fraction: 12.04
    own, _ = describe(written(tmp_path / "t.csv", sizes, header="bytes;label"), "label")
    table = own.load(tmp_path / "t.csv")
    assert table.features["bytes"].tolist()[:4] == [1279, 540, 12040, 87]
    assert "decimal mark is a comma" in table.notes[0]
    many = [("1.234.567", "a"), ("1.279", "b")] * 5
    own, _ = describe(written(tmp_path / "t.csv", many, header="bytes;label"), "label")
    assert own.load(tmp_path / "t.csv").features["bytes"].tolist()[:2] == [1_234_567, 1279]
    fractions = [("1.279", "a"), ("0.5", "b"), ("1204.125", "a")] * 5
    own, _ = describe(written(tmp_path / "t.csv", fractions, header="dur;label"), "label")
    assert own.load(tmp_path / "t.csv").features["dur"].tolist()[:2] == [1279, 500]


AMBIGUOUS = [("1.279", "a"), ("3.451", "b"), ("12.043", "a"), ("7.212", "b")] * 5


def test_what_fits_two_readings_is_refused_with_both_until_it_is_said(tmp_path):
    path = written(tmp_path / "t.csv", AMBIGUOUS, header="bytes;label")
    with pytest.raises(
        DataError, match=r"'1\.279' is 1279 if the comma .* and 1\.279 if the point"
    ):
        describe(path, "label")
    for mark, first in ((",", 1279), (".", 1279)):
        (tmp_path / "columns.toml").write_text(f'[table]\ndecimal = "{mark}"\n')
        own, _ = describe(path, "label")
        scale = own.toml["columns"]["bytes"].get("scale", 1)
        assert own.load(path).features["bytes"][0] == first
        assert scale == (1 if mark == "," else 1000)
        assert own.rules.decimal == mark
    (tmp_path / "columns.toml").write_text('[table]\ndecimal = ";"\n')
    with pytest.raises(DataError, match="the decimal mark"):
        describe(path, "label")


def test_the_mark_of_the_training_reads_the_next_table(tmp_path):
    cells = [*AMBIGUOUS, ("1.234.567", "a")]
    own, _ = describe(written(tmp_path / "t.csv", cells, header="bytes;label"), "label")
    assert TableRules.from_dict(own.rules.to_dict()) == own.rules
    net = network(own, "bytes")
    few = written(tmp_path / "few.csv", AMBIGUOUS[:2], header="bytes;label")
    with pytest.warns(UserWarning, match="decimal mark is a comma"):
        assert read_features(few, net)["bytes"].tolist() == [1279, 3451]
    fractions = [("0.25", "a"), ("3.451", "b")] * 5
    own, _ = describe(written(tmp_path / "t.csv", fractions, header="dur;label"), "label")
    assert "decimal" not in own.rules.to_dict()  # models of plain tables keep their bytes
    few = written(tmp_path / "few.csv", AMBIGUOUS[:2], header="dur;label")
    assert read_features(few, network(own, "dur"))["dur"].tolist() == [1279, 3451]
    whole = [(str(i), "ab"[i % 2]) for i in range(50)]
    own, _ = describe(written(tmp_path / "t.csv", whole, header="bytes;label"), "label")
    few = written(tmp_path / "few.csv", AMBIGUOUS[:2], header="bytes;label")
    with pytest.raises(DataError, match="no column tells which"):
        read_features(few, network(own, "bytes"))


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        (["1 279", "12 345,5"], ["1279", "12345.5"]),
        (["1\u202f279", "0,5"], ["1279", "0.5"]),
        (["1'279", "2'345.25"], ["1279", "2345.25"]),
        (["-1.279,5", "+3,25"], ["-1279.5", "+3.25"]),
        (["1,5e-3", "2,5"], ["1.5e-3", "2.5"]),
        (["192.168.100.100", "10.100.100.100"], None),
        (["1.2.3", "1.2.4"], None),
        (["1,5", "1.5"], None),
        (["1,5", "x"], None),
        (["", "-"], None),
    ],
)
def test_cells_of_one_column(cells, read):
    body = "a;b\n" + "".join(f"{cell};1\n" for cell in cells)
    content = plain_numbers("t", body.encode(), ";", ("a", "b"), header=True)
    want = body if read is None else "a;b\n" + "".join(f"{cell};1\n" for cell in read)
    assert content.body.decode() == want


def test_a_version_shows_no_decimal_mark():
    cells = "".join(f"1.{i % 3};{i % 9 + 1}.{100 + i}\n" for i in range(60))
    with pytest.raises(DataError, match="column 'bytes'"):
        plain_numbers(
            "t", f"version;bytes\n{cells}".encode(), ";", ("version", "bytes"), header=True
        )


def test_lines_keep_their_numbers_where_cells_have_line_ends():
    body = b'a;b\n"x\ny";1,5\n\nz;2,5\n'
    content = plain_numbers("t", body, ";", ("a", "b"), header=True)
    assert content.body == b'a;b\n\n"x\ny";1.5\n\nz;2.5\n'
    assert content.changed == {1: ","}


@given(
    st.lists(st.integers(0, 10**9 - 1), min_size=1, max_size=20),
    st.sampled_from([";", "\t", "|"]),
)
def test_grouped_integers_are_read_right_or_refused(numbers, separator):
    body = "n" + separator + "x\n"
    body += "".join(f"{n:,}{separator}1\n".replace(",", ".") for n in numbers)
    try:
        content = plain_numbers("t", body.encode(), separator, ("n", "x"), header=True)
    except DataError as error:
        assert "no column tells which" in str(error)
        return
    read = [line.split(separator)[0] for line in content.body.decode().splitlines()[1:]]
    assert [int(cell) for cell in read] == numbers
