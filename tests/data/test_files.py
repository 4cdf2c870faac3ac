# SPDX-License-Identifier: Apache-2.0
"""Files are read whole or refused: what n3ic.data.files makes of sound and hostile bytes."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from n3ic.data import delimited
from n3ic.data.delimited import MAX_LINE, open_sheet, parse_sheet, stream_sheets
from n3ic.data.files import Content, combined_sha256, find_tables, printable, read_contents
from n3ic.errors import DataError

TEXT = b"a,b\n1,2\n3,4\n"


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            # Without the time of day: test runners compare the names of parameters.
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def read(tmp_path, data, **options):
    path = tmp_path / "no-suffix"
    path.write_bytes(data)
    return list(read_contents(path, **options))


def parse(data, **options):
    sheet = open_sheet(Content("t.csv", data))
    names = list(sheet.first)
    return parse_sheet(sheet, names, header=True, numeric=names, **options)


@pytest.mark.parametrize(
    "data",
    [
        TEXT,
        gzip.compress(TEXT, mtime=0),
        gzip.compress(TEXT[:5], mtime=0) + gzip.compress(TEXT[5:], mtime=0),
        lzma.compress(TEXT),
        lzma.compress(TEXT[:5]) + lzma.compress(TEXT[5:]),
        lzma.compress(TEXT) + bytes(8),
        bz2.compress(TEXT),
        zipped({"t.csv": TEXT}),
        zipped({"t.csv.xz": lzma.compress(TEXT), "readme.md": b"no table"}),
    ],
)
def test_compression_is_known_by_content(tmp_path, data):
    (content,) = read(tmp_path, data)
    assert content.data == TEXT


def test_zip_gives_every_table_and_its_path_names_lead_nowhere(tmp_path):
    contents = read(tmp_path, zipped({"../../evil.csv": TEXT, "/etc/b.csv": TEXT, "x/": b""}))
    assert [c.data for c in contents] == [TEXT, TEXT]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["no-suffix"]


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize("cut", [12, -12, -1])
def test_truncated_archive(tmp_path, compress, cut):
    packed = compress(TEXT * 400)
    with pytest.raises(DataError, match=r"no-suffix: the archive is truncated or damaged"):
        read(tmp_path, packed[:cut])


def test_damaged_archive(tmp_path):
    packed = bytearray(gzip.compress(bytes(range(256)) * 40))
    packed[40] ^= 0xFF
    with pytest.raises(DataError, match="truncated or damaged"):
        read(tmp_path, bytes(packed))
    with pytest.raises(DataError, match="truncated or damaged"):
        read(tmp_path, zipped({"t.csv": TEXT * 40})[:-30])


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_bomb_is_bounded(tmp_path, compress):
    bomb = compress(bytes(4 << 20))
    with pytest.raises(DataError, match=r"more than 1,048,576 bytes"):
        read(tmp_path, bomb, max_bytes=1 << 20)
    with pytest.raises(DataError, match=r"bytes decompressed"):
        read(tmp_path, zipped({"a.csv.gz": bomb, "b.csv": bytes(4 << 20)}), max_bytes=1 << 20)


def test_zip_members_share_one_bound(tmp_path):
    members = {f"{i}.csv": b"x" * 600_000 for i in range(3)}
    with pytest.raises(DataError, match=r"2?\.csv: more than"):
        read(tmp_path, zipped(members), max_bytes=1 << 20)
    with pytest.raises(DataError, match="at most 64"):
        read(tmp_path, zipped({f"{i}.csv": TEXT for i in range(65)}))


def test_encrypted_zip(tmp_path):
    data = bytearray(zipped({"t.csv": TEXT}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    with pytest.raises(DataError, match=r"t\.csv: encrypted"):
        read(tmp_path, bytes(data))


def tarred():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("t.csv")
        info.size = len(TEXT)
        archive.addfile(info, io.BytesIO(TEXT))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        ("a,b\n".encode("utf-16"), "UTF-16"),
        (b"7z\xbc\xaf\x27\x1c", "7z archive"),
        (gzip.compress(tarred(), mtime=0), "tar archive"),
        (zipped({"[Content_Types].xml": b"<x/>"}), "office document"),
        (zipped({"readme.md": b"x"}), "no CSV file"),
        (zipped({}), "no CSV file"),
    ],
)
def test_foreign_formats_are_named(tmp_path, data, what):
    with pytest.raises(DataError, match=what):
        read(tmp_path, data)


def test_paths(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        find_tables(tmp_path / "absent")
    with pytest.raises(DataError, match="no table in this folder"):
        find_tables(tmp_path)
    with pytest.raises(DataError, match="no file was given"):
        find_tables([])
    with pytest.raises(DataError, match="neither a file nor a folder"):
        find_tables("/dev/null")
    (tmp_path / "deep").mkdir()
    wanted = [tmp_path / "a.csv", tmp_path / "deep" / "b.csv.xz", tmp_path / "deep" / "c.zip"]
    for path in (*wanted, tmp_path / "notes.md", tmp_path / ".hidden.csv", tmp_path / "x.tar.gz"):
        path.write_bytes(TEXT)
    assert find_tables(tmp_path) == wanted
    assert find_tables([tmp_path, wanted[0]]) == wanted


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"a,b\n1,\x00\n", "line 2: a NUL byte"),
        (b"a,b\n1,2\n1,\xff\n", "line 3: byte 0xff is not UTF-8"),
        (b"a,b\n" + b"9" * (MAX_LINE + 1), "line 2: longer than"),
        (b"a,b\n1,2\n" + b"9," * MAX_LINE + b"\n1,2\n", "line 3: longer than"),
        (b"\na,b\n1,2\n", "line 1: blank"),
        (b"a,b\n", "a header and no rows"),
        (b"a,b\n1,2\n3\n", "line 3: 1 cells, expected 2"),
        (b"a,b\n1,2,3\n", "line 2: 3 cells, expected 2"),
        (b"a,b\n1,2\n3,4,5\n6\n", "line 3: 3 cells, expected 2"),
        (b"a,b\n1,2\n\n3,x\n", "line 4, column 'b': expected a finite number, got 'x'"),
        (b"a,b\n1,2\n3,\n", "line 3, column 'b': expected a finite number, got a blank"),
        (b"a,b\n1,inf\n", "line 2, column 'b'.*'inf'"),
        (b"a,b\n1,nan\n", "line 2, column 'b'.*'nan'"),
        (b"a,b\n1e999,1\n", "line 2, column 'a'.*'1e999'"),
        (b"a,b\n0x10,1\n", "line 2, column 'a'.*'0x10'"),
        (b"a,b\n1_0,1\n", "line 2, column 'a'.*'1_0'"),
        (b"a,b\nTrue,1\n", "line 2, column 'a'.*'True'"),
        (b'a,b\n"1\n2",3\n', "line 3, column 'a'"),
        (b'a,b\n1,"2\n', "line 2"),
    ],
)
def test_bad_cells_are_located(data, what):
    with pytest.raises(DataError, match=r"t\.csv.*" + what):
        parse(data)


def numbers(data, **options):
    cells = parse(data, **options)
    return {name: column.tolist() for name, column in cells.numbers.items()}


def test_good_cells():
    got = numbers(b'\xef\xbb\xbfa,b\r\n1, 2.50\r\n\r\n"-3",+4e-1\r\n')
    assert got == {"a": [1.0, -3.0], "b": [2.5, 0.4]}
    assert numbers(b"a,b\n1,\n", blank_is_zero=["b"]) == {"a": [1], "b": [0]}
    assert numbers(b"a,b\n1, \n2,3\n", blank_is_zero=["b"]) == {"a": [1, 2], "b": [0, 3]}
    assert numbers(b"a;b\n1;2\n") == {"a": [1], "b": [2]}
    assert numbers(b"# n3ic-units: source\na,b\n1,2\n") == {"a": [1], "b": [2]}


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**62), 2**62).map(str) | st.floats(allow_nan=False).map(repr),
            st.sampled_from(
                [
                    *("1", " 2", "+3", "1e3", ".5", "2.", "", "x", "1.5", '"4"', "9" * 30),
                    *("inf", "-Infinity", "+inf", " nan", "NaN", "nAn", "-", " -", "?", "N/A"),
                    "-nan",
                ]
            ),
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
    st.booleans(),
)
def test_the_fast_parser_agrees_with_the_careful_one(rows, whole, gaps):
    """Where the fast one gives anything, the careful one gives the same."""
    body = "\n".join(["a,b", *map(",".join, rows), ""]).encode()
    sheet = open_sheet(Content("t.csv", body))
    wanted = delimited.Wanted(
        ("a", "b"),
        numeric=frozenset("ab"),
        text=frozenset(),
        whole=frozenset("ab") if whole and not gaps else frozenset(),
        blank_is_zero=frozenset() if gaps else frozenset("b"),
        gaps=frozenset("b") if gaps else frozenset(),
    )
    if b'"' in body or (fast := delimited._parse_fast(sheet, True, wanted)) is None:
        return
    careful = delimited._parse_carefully(sheet, True, wanted)
    assert fast.rows == careful.rows
    for name, column in careful.numbers.items():
        assert np.array_equal(fast.numbers[name].astype(float), column, equal_nan=True)


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ("3.5", "line 3, column 'b': expected an integer of at most 64 bits, got '3.5'"),
        ("1e300", "line 3, column 'b': expected an integer of at most 64 bits, got '1e300'"),
        ("9" * 30, "line 3, column 'b': expected an integer of at most 64 bits"),
        ("x", "line 3, column 'b': expected a finite number, got 'x'"),
    ],
)
def test_columns_of_integers_hold_integers(cell, what):
    with pytest.raises(DataError, match=what):
        parse(f"a,b\n0.5,1\n0.5,{cell}\n".encode(), whole=["b"])
    got = numbers(b"a,b\n0.5,1.0\n1.5,1e3\n", whole=["b"])
    assert got == {"a": [0.5, 1.5], "b": [1, 1000]}


def test_units_of_a_table_are_said_in_its_first_line():
    table = b"# n3ic-units: nic\na\n1\n"
    with pytest.raises(DataError, match=r"t\.csv, line 1: the numbers are in nic units"):
        open_sheet(Content("t.csv", table))
    assert open_sheet(Content("t.csv", table), units=None).units == "nic"
    with pytest.raises(DataError, match="line 1: expected n3ic-units: nic or source, got 'miles'"):
        open_sheet(Content("t.csv", table.replace(b"nic\n", b"miles\n")))
    with pytest.raises(DataError, match=r"line 4, column 'a': expected a finite number, got 'x'"):
        parse(b"# n3ic-units: source\na\n1\nx\n")


@pytest.mark.parametrize("chunk_bytes", [1, 7, 20, 1000])
def test_a_stream_of_sheets_is_the_table(chunk_bytes):
    body = b'a,b\n1,2\n"3",4\n5,"6"\n\n7,8\n9,10'
    pieces = [body[i : i + 5] for i in range(0, len(body), 5)]
    sheets = list(stream_sheets("t.csv", pieces, chunk_bytes=chunk_bytes))
    cells = [parse_sheet(s, s.first, header=True, numeric="ab") for s in sheets]
    assert np.concatenate([c.numbers["a"] for c in cells]).tolist() == [1, 3, 5, 7, 9]
    pieces[-2] = pieces[-2].replace(b"8", b"x")
    with pytest.raises(DataError, match="line 6, column 'b'"):
        for s in stream_sheets("t.csv", pieces, chunk_bytes=chunk_bytes):
            parse_sheet(s, s.first, header=True, numeric="ab")


def test_a_quote_that_never_ends_is_refused_in_bounded_memory():
    def pieces():
        yield b'a,b\n1,"2\n'
        while True:
            yield b"1,2\n" * 1000

    with pytest.raises(DataError, match="line 1 or below: a quote does not end"):
        list(stream_sheets("t.csv", pieces(), chunk_bytes=5000))


def test_messages_show_cells_on_one_line():
    assert printable("a\x1b[31m\nb") == "a\\x1b[31m\\nb"
    assert printable("x" * 100) == "x" * 60 + "..."


def test_digest_of_several_files_depends_on_their_order():
    assert combined_sha256(["aa"]) == "aa"
    assert combined_sha256(["aa", "bb"]) != combined_sha256(["bb", "aa"])
