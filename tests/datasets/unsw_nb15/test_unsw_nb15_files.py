# SPDX-License-Identifier: Apache-2.0
"""What the UNSW-NB15 loader makes of both layouts, of every spelling, and of broken tables."""

import gzip
import io
import lzma
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from n3ic.data.delimited import open_sheet
from n3ic.data.files import Content
from n3ic.datasets.unsw_nb15 import DATASET, SYNTHETIC
from n3ic.datasets.unsw_nb15.catalogue import BY_NAME
from n3ic.datasets.unsw_nb15.columns import (
    PARTITION_COLUMNS,
    PARTITION_HEADER,
    PROTOCOLS,
    RAW_COLUMNS,
    RAW_ONLY,
    SERVICES,
    STATES,
    canonical,
)
from n3ic.datasets.unsw_nb15.loader import load_table
from n3ic.datasets.unsw_nb15.meter import WINDOWS
from n3ic.datasets.unsw_nb15.reader import read_features, read_flows
from n3ic.datasets.unsw_nb15.synthetic import generate_columns, to_csv
from n3ic.errors import DataError, UsageError

RAW_HEADER = (
    "srcip,sport,dstip,dsport,proto,state,dur,sbytes,dbytes,sttl,dttl,sloss,dloss,service,Sload,"
    "Dload,Spkts,Dpkts,swin,dwin,stcpb,dtcpb,smeansz,dmeansz,trans_depth,res_bdy_len,Sjit,Djit,"
    "Stime,Ltime,Sintpkt,Dintpkt,tcprtt,synack,ackdat,is_sm_ips_ports,ct_state_ttl,"
    "ct_flw_http_mthd,is_ftp_login,ct_ftp_cmd,ct_srv_src,ct_srv_dst,ct_dst_ltm,ct_src_ ltm,"
    "ct_src_dport_ltm,ct_dst_sport_ltm,ct_dst_src_ltm,attack_cat,Label"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def partition_rows(rows=40, seed=3):
    """Rows of a partition file as lists of cells, with ids as the real files have them."""
    source = generate_columns(rows, seed)
    source["id"] = np.arange(1, rows + 1)
    lines = to_csv(source).decode().splitlines()
    return [line.split(",") for line in lines[1:]]


def as_raw(row, i=0):
    """A partition row as a row of a raw file."""
    cells = dict(zip(PARTITION_COLUMNS, row, strict=True)) | {
        "srcip": "59.166.0.1",
        "sport": str(1000 + i),
        "dstip": "149.171.126.6",
        "dsport": "53",
        "stime": str(1421927414 + i),
        "ltime": str(1421927415 + i),
    }
    if cells["attack_cat"] == "Normal":
        cells["attack_cat"] = ""
    return [cells[c] for c in RAW_COLUMNS]


def text(rows, header=PARTITION_HEADER):
    lines = ([header] if header else []) + [",".join(row) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def change(rows, line, column, cell):
    rows = [list(r) for r in rows]
    rows[line - 2][PARTITION_COLUMNS.index(column)] = cell
    return rows


def write(tmp_path, data, name="flows.csv"):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def same(a, b, names=None):
    names = set(a.features) if names is None else names
    assert set(a.features) == set(b.features) or names is not None
    for name in names:
        np.testing.assert_array_equal(a.features[name], b.features[name], err_msg=name)
    np.testing.assert_array_equal(a.label, b.label)
    np.testing.assert_array_equal(a.category, b.category)


def test_partition_layout(tmp_path):
    rows = partition_rows()
    table = DATASET.load(write(tmp_path, text(rows)))
    assert table.name == "unsw-nb15"
    assert not table.synthetic
    assert len(table) == 40
    assert table.sources[0].identity == "partition layout, not a published file"
    assert set(table.partition) == {""}
    first = dict(zip(PARTITION_COLUMNS, rows[0], strict=True))
    assert table.features["dur"][0] == round(float(first["dur"]) * 1e6)
    assert table.features["sbytes"][0] == int(first["sbytes"])
    assert table.features["proto"][0] == PROTOCOLS[first["proto"]]
    assert table.features["state"][0] == STATES[first["state"].lower()]
    assert table.features["service"][0] == SERVICES[first["service"]]
    assert table.category[0] == first["attack_cat"]
    assert "id" not in table.features
    assert "label" not in table.features
    assert "attack_cat" not in table.features


def test_raw_layout_with_and_without_header(tmp_path):
    rows = partition_rows()
    plain = DATASET.load(write(tmp_path, text(rows)))
    raw = [as_raw(r, i) for i, r in enumerate(rows)]
    with_header = DATASET.load(write(tmp_path, text(raw, RAW_HEADER), "with.csv"))
    without = DATASET.load(write(tmp_path, text(raw, ""), "without.csv"))
    same(with_header, without)
    shared = [f.name for f in plain.catalogue if f.name != "rate"]
    same(plain, with_header, shared)
    np.testing.assert_allclose(plain.features["rate"], with_header.features["rate"], atol=1)
    assert set(with_header.features) - set(plain.features) == {*RAW_ONLY, *WINDOWS}
    assert {*WINDOWS} < {*with_header.usable} == {*with_header.meter.feature_names}
    assert {*plain.usable} == {*plain.meter.feature_names}
    sheet = open_sheet(Content("w.csv", (tmp_path / "with.csv").read_bytes()))
    with pytest.raises(DataError, match="tap_ct_dst counts over recent flows"):
        DATASET.read_features(sheet, ["tap_dur", "tap_ct_dst"])
    assert with_header.time_order
    assert not plain.time_order
    assert with_header.features["srcip"][0] == (59 << 24) + (166 << 16) + 1
    assert "raw layout" in without.sources[0].identity


def test_spellings(tmp_path):
    rows = partition_rows(300)
    attack = next(i for i, r in enumerate(rows) if r[-2] != "Normal")
    shell = next(i for i, r in enumerate(rows) if r[-2] == "Fuzzers")
    raw = [as_raw(r, i) for i, r in enumerate(rows)]
    raw[attack][RAW_COLUMNS.index("attack_cat")] = " Backdoors"
    raw[shell][RAW_COLUMNS.index("attack_cat")] = " Fuzzers "
    raw[0][RAW_COLUMNS.index("dsport")] = "0x000b"
    raw[1][RAW_COLUMNS.index("sport")] = "-"
    raw[2][RAW_COLUMNS.index("sport")] = "0x20205321"
    raw[3][RAW_COLUMNS.index("dstip")] = "ff02::1"
    for column in ("ct_flw_http_mthd", "is_ftp_login"):
        raw[4][RAW_COLUMNS.index(column)] = ""
    raw[4][RAW_COLUMNS.index("ct_ftp_cmd")] = " "
    raw[5][RAW_COLUMNS.index("ct_ftp_cmd")] = "-1"
    raw[6][RAW_COLUMNS.index("proto")] = "brand-new"
    raw[7][RAW_COLUMNS.index("state")] = "XYZ"
    raw[8][RAW_COLUMNS.index("proto")] = "UDP"
    table = DATASET.load(write(tmp_path, b"\xef\xbb\xbf" + text(raw, "").replace(b"\n", b"\r\n")))
    assert table.category[attack] == "Backdoor"
    assert table.category[shell] == "Fuzzers"
    assert table.category[rows.index(next(r for r in rows if r[-1] == "0"))] == "Normal"
    f = table.features
    assert f["dsport"][0] == 11
    assert f["sport"][1] == 0
    assert f["sport"][2] == 65535
    assert f["dstip"][3] == 0
    assert f["ct_flw_http_mthd"][4] == f["is_ftp_login"][4] == f["ct_ftp_cmd"][4] == 0
    assert f["ct_ftp_cmd"][5] == 0
    assert f["proto"][6] == 134
    assert f["state"][7] == 11
    assert f["proto"][8] == 17


def test_nothing_positive_becomes_zero_and_nothing_overflows(tmp_path):
    rows = change(partition_rows(), 2, "sload", "0.0001")
    rows = change(rows, 3, "dur", "9999999")
    rows = change(rows, 4, "sbytes", "99999999999")
    table = DATASET.load(write(tmp_path, text(rows)))
    assert table.features["sload"][0] == 1
    assert table.features["dur"][1] == 2**32 - 1
    assert table.features["sbytes"][2] == 2**24 - 1
    for feature in table.catalogue:
        assert table.features[feature.name].max() < 1 << feature.bits


@pytest.mark.parametrize(
    ("line", "column", "cell", "what"),
    [
        (2, "dur", "fast", "expected a finite number, got 'fast'"),
        (5, "rate", "inf", "expected a finite number, got 'inf'"),
        (5, "sjit", "NaN", "expected a finite number, got 'NaN'"),
        (6, "sbytes", "", "expected a finite number, got a blank"),
        (7, "spkts", "-4", "expected 0 or more, got -4"),
        (7, "spkts", "0x10", "expected a finite number, got '0x10'"),
        (8, "proto", "6", "expected a protocol name, got '6'"),
        (8, "proto", "", "expected a protocol name, got ''"),
        (9, "state", "3", "expected a state name, got '3'"),
        (9, "service", "2", "expected a service name or '-', got '2'"),
        (4, "label", "2", "expected 0 or 1, got 2"),
        (4, "attack_cat", "Aliens", "unknown category 'Aliens'"),
        (4, "proto", "a\x1bb", r"expected a protocol name, got 'a\\\\x1bb'"),
    ],
)
def test_bad_cell_names_file_line_and_column(tmp_path, line, column, cell, what):
    path = write(tmp_path, text(change(partition_rows(), line, column, cell)))
    with pytest.raises(DataError, match=rf"flows\.csv, line {line}, column '{column}'.*{what}"):
        DATASET.load(path)


def test_label_that_contradicts_its_category(tmp_path):
    rows = partition_rows()
    line = 2 + next(i for i, r in enumerate(rows) if r[-2] == "Normal")
    path = write(tmp_path, text(change(rows, line, "label", "1")))
    with pytest.raises(DataError, match=f"line {line}, column 'label'.*contradicts.*'Normal'"):
        DATASET.load(path)
    blank = change(change(rows, line, "label", "1"), line, "attack_cat", "")
    assert DATASET.load(write(tmp_path, text(blank))).category[line - 2] == "Unknown"


def test_header_mistakes(tmp_path):
    rows = partition_rows()
    header = list(PARTITION_COLUMNS)
    short = [c for c in header if c not in ("dur", "smean")]
    with pytest.raises(DataError, match=r"line 1: 2 columns missing: dur, smean"):
        cut = [[c for c, n in zip(r, header, strict=True) if n in short] for r in rows]
        DATASET.load(write(tmp_path, text(cut, ",".join(short))))
    with pytest.raises(DataError, match=r"line 1: column 'dur' comes twice"):
        DATASET.load(write(tmp_path, text([[*r, "1"] for r in rows], ",".join([*header, "Dur"]))))
    with pytest.raises(DataError, match=r"semicolon \(';'\), expected a comma"):
        DATASET.load(write(tmp_path, text(rows).replace(b",", b";")))
    with pytest.raises(DataError, match=r"tab \('\\t'\), expected a comma"):
        DATASET.load(write(tmp_path, text(rows).replace(b",", b"\t")))
    with pytest.raises(DataError, match=r"line 1: no header"):
        DATASET.load(write(tmp_path, text(rows, "")))
    with pytest.raises(DataError, match=r"not an UNSW-NB15 table.*got alpha, beta"):
        DATASET.load(write(tmp_path, b"alpha,beta\n1,2\n"))
    with pytest.raises(DataError, match=r"line 5: 44 cells, expected 45"):
        lines = text(rows).splitlines()
        lines[4] = lines[4].rsplit(b",", 1)[0]
        DATASET.load(write(tmp_path, b"\n".join(lines)))


def test_extra_and_reordered_columns_are_fine(tmp_path):
    rows = partition_rows()
    order = np.random.default_rng(0).permutation(len(PARTITION_COLUMNS))
    header = ["note", *(PARTITION_COLUMNS[i].upper() for i in order)]
    moved = [["x y", *(r[i] for i in order)] for r in rows]
    same(
        DATASET.load(write(tmp_path, text(rows))),
        DATASET.load(write(tmp_path, text(moved, ",".join(header)), "moved.csv")),
    )


def test_folder_archive_and_list_give_the_same_rows(tmp_path):
    rows = partition_rows()
    folder = tmp_path / "data"
    first = write(tmp_path, text(rows[:15]), "data/a.csv")
    second = write(tmp_path, lzma.compress(text(rows[15:])), "data/b.csv.xz")
    companions = "No.,Name,Type ,Description\n1,srcip,nominal,Source\x92s\n".encode(
        "cp1252", "replace"
    )
    write(tmp_path, companions[:-1] + b"\x92\n", "data/NUSW-NB15_features.csv")
    write(
        tmp_path,
        b"Attack category,Attack subcategory,Number of events\r\nnormal,,2218761\r\n",
        "data/LIST.csv",
    )
    write(tmp_path, b"x,y\n1,2\n", "data/other.csv")
    write(tmp_path, gzip.compress(text(rows[:15])), "data/z-copy.csv.gz")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("in/a.csv", text(rows[:15]))
        archive.writestr("in/b.csv", text(rows[15:]))
    packed = write(tmp_path, buffer.getvalue(), "all.zip")
    by_folder = DATASET.load(folder)
    assert len(by_folder) == 40
    notes = {s.path.rsplit("/", 1)[-1]: s.identity for s in by_folder.sources if not s.rows}
    assert notes["NUSW-NB15_features.csv"] == "skipped: the list of columns, no flows"
    assert notes["LIST.csv"] == "skipped: the counts of events, no flows"
    assert "not an UNSW-NB15 table" in notes["other.csv"]
    assert "the same bytes as" in notes["z-copy.csv.gz"]
    same(by_folder, DATASET.load([first, second]))
    same(by_folder, DATASET.load(packed))
    assert by_folder.sha256 == DATASET.load(packed).sha256 != DATASET.load(first).sha256


def test_companion_files_alone_are_no_flows(tmp_path):
    path = write(tmp_path, b"No.,Name,Type ,Description\n1,srcip,nominal,x\x92\n")
    with pytest.raises(DataError, match="the list of columns, no flows"):
        DATASET.load(path)
    with pytest.raises(DataError, match="no flows found"):
        DATASET.load(write(tmp_path, path.read_bytes(), "folder/f.csv").parent)


def test_a_broken_file_in_a_folder_stops_the_load(tmp_path):
    write(tmp_path, text(partition_rows()), "data/a.csv")
    write(tmp_path, text(change(partition_rows(), 3, "dur", "x")), "data/b.csv")
    with pytest.raises(DataError, match=r"b\.csv, line 3, column 'dur'"):
        DATASET.load(tmp_path / "data")


def test_recoded_categories_get_their_names_from_shared_flows(tmp_path):
    rows = partition_rows(600)
    names = sorted({r[-2] for r in rows} - {"Normal"})
    code = {"Normal": "0"} | {n: str(i + 1) for i, n in enumerate(names)}
    recoded = [[*r[:-2], code[r[-2]], r[-1]] for r in rows]
    alone = DATASET.load(write(tmp_path, text(recoded), "recoded.csv"))
    assert set(alone.category) == {"Normal"} | {f"category {i + 1}" for i in range(len(names))}
    named = write(tmp_path, text(rows[:400]), "named.csv")
    both = DATASET.load([named, tmp_path / "recoded.csv"])
    truth = [r[-2] for r in rows]
    categories = both.category[400:].tolist()
    assert all(f == t or f == f"category {code[t]}" for f, t in zip(categories, truth, strict=True))
    assert {"Exploits", "Fuzzers", "Normal"} <= set(categories)


def test_unlabelled_tables_can_be_read_for_prediction(tmp_path):
    rows = [r[:-2] for r in partition_rows()]
    path = write(tmp_path, text(rows, ",".join(PARTITION_COLUMNS[:-2])))
    with pytest.raises(DataError, match="2 columns missing: attack_cat, label"):
        DATASET.load(path)
    assert "dur" in read_features(open_sheet(Content("f", path.read_bytes())), ["dur", "bytes"])


def test_the_real_data_set_has_no_sample():
    with pytest.raises(UsageError, match="unsw-nb15-synthetic"):
        DATASET.load()


def test_raw_header_is_the_published_one():
    assert tuple(canonical(c) for c in RAW_HEADER.split(",")) == RAW_COLUMNS
    assert {*PARTITION_COLUMNS} - {*RAW_COLUMNS} == {"id", "rate"}
    assert {*BY_NAME} >= {*PARTITION_COLUMNS, *RAW_COLUMNS} - {"id", "label", "attack_cat"}


GOOD = text(partition_rows(12))


@given(
    st.sampled_from(["", "\r"]),
    st.booleans(),
    st.sampled_from([bytes, gzip.compress, lzma.compress]),
    st.randoms(use_true_random=False),
)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_form_does_not_change_the_flows(tmp_path, end, mark, pack, random):
    """Line ends, byte order mark, quotes, exponents, column order and packing say nothing."""
    lines = [line.split(",") for line in GOOD.decode().splitlines()]
    order = random.sample(range(45), 45)
    out = []
    for number, row in enumerate(lines):
        cells = list(row)
        if number:
            for i in random.sample(range(45), 6):
                cells[i] = f'"{cells[i]}"' if random.random() < 0.5 else f" {cells[i]}"
        out.append(",".join(cells[i] for i in order))
    data = (end + "\n").join([*out, ""]).encode()
    path = write(tmp_path, pack(b"\xef\xbb\xbf" * mark + data))
    same(load_table(path, cache=False), load_table(write(tmp_path, GOOD, "good.csv"), cache=False))


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_damaged_table_is_refused_or_read_whole(position, byte, cut):
    """One byte changed, or the end cut off: an error that names the file, or every row."""
    data = GOOD[:position] if cut else GOOD[:position] + bytes([byte]) + GOOD[position + 1 :]
    try:
        flows = read_flows(Content("damaged.csv", data or b"\n"))
    except DataError as error:
        assert str(error).startswith("damaged.csv")
        return
    rows = sum(bool(line.strip()) for line in data.replace(b"\r", b"\n").split(b"\n")) - 1
    assert len(flows) == rows
    for name, column in flows.columns.items():
        assert column.shape == (rows,)
        assert 0 <= column.min() <= column.max() < 1 << BY_NAME[name].bits


def test_synthetic_does_not_read_other_flows(tmp_path):
    with pytest.raises(DataError, match="not synthetic"):
        SYNTHETIC.load(write(tmp_path, GOOD))
