# SPDX-License-Identifier: Apache-2.0
"""Joined files, files without names, labelled Zeek logs, and flow records in JSON."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from n3ic.data.delimited import remarks_of, stream_sheets
from n3ic.data.file_tables import open_sheets
from n3ic.data.flows import read_features
from n3ic.data.user_table import UserTable, describe
from n3ic.errors import DataError, N3icError, N3icWarning
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model

PART = "dur,bytes,label\n" + "".join(f"{i / 8},{i * 7},{'ab'[i % 2]}\n" for i in range(40))


def written(tmp_path, data, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def pieces(data):
    return [data[i : i + 50] for i in range(0, len(data), 50)]


def sheet_of(path):
    (one,) = open_sheets(path)
    return one.sheet


def network(own, *names):
    """A network on some columns of a table."""
    spec = InputSpec(tuple(Field.binary(name, 8) for name in names))
    net = random_model((spec.n_bits, 8, 2), np.random.default_rng(0))
    return replace(net, input=spec, table=own.rules.only(names))


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_joined_files_lose_the_names_in_the_middle_and_say_so(tmp_path, mark, end):
    path = written(tmp_path, ((mark + PART) * 3).replace("\n", end))
    own, _ = describe(path, "label")
    assert [e["kind"] for e in own.toml["columns"].values()] == ["number", "number"]
    table, _ = own.load_noting(path)
    assert len(table) == 120
    assert table.notes == (f"{path}: left out 2 lines that repeat the names of the columns",)
    assert table.features["bytes"].tolist() == [i * 7 for i in range(40)] * 3
    bad = written(tmp_path, (PART * 2).replace("35,b", "x5,b"))
    with pytest.raises(DataError, match=r"line 7, column 'bytes': expected a number, got 'x5'"):
        own.load(bad)
    second = written(tmp_path, PART + PART.replace("35,b", "x5,b"))
    with pytest.raises(DataError, match=r"line 48, column 'bytes'"):
        own.load(second)


@pytest.mark.parametrize("chunk_bytes", [1, 100, 10**6])
def test_names_in_the_middle_of_a_stream_are_counted_once(chunk_bytes):
    sheets = list(stream_sheets("s", pieces((PART * 4).encode()), chunk_bytes=chunk_bytes))
    rows = [row for sheet in sheets for _, row in sheet.rows(True)]
    assert len(rows) == 160
    assert sum(sum(sheet.left_out.values()) for sheet in sheets) == 3
    assert remarks_of(sheets)[0].startswith("s: left out")


def test_a_prediction_says_what_it_left_out(tmp_path):
    own, _ = describe(written(tmp_path, PART), "label")
    net = network(own, "bytes")
    path = written(tmp_path, PART * 2)
    with pytest.warns(N3icWarning, match="left out 1 lines that repeat the names") as recorder:
        features = read_features(path, net)
    assert len(recorder) == 1
    assert features["bytes"].tolist() == [i * 7 for i in range(40)] * 2


def kdd(count, more=()):
    rng = random.Random(3)
    for i in range(count):
        cells = [str(rng.randrange(9)) for _ in range(41)]
        cells[1:4] = rng.choice(["tcp", "udp"]), rng.choice(["http", "ftp"]), "SF"
        cells += [["normal.", "neptune."][i % 2], *(str(rng.randrange(22)) for _ in more)]
        yield ",".join(cells)


def test_kdd_and_nsl_kdd_have_their_names(tmp_path):
    for more, layout, last in (((), "KDD Cup 1999", "label"), ([1], "NSL-KDD", "difficulty")):
        path = written(tmp_path, "\n".join(kdd(60, more)))
        sheet = sheet_of(path)
        assert (sheet.first[0], sheet.first[40], sheet.first[-1]) == (
            "duration", "dst_host_srv_rerror_rate", last)  # fmt: skip
        assert remarks_of([sheet]) == [
            f"{path}: no names in the first line: the columns are those of {layout}"
        ]
        own, facts = describe(path, "label")
        assert facts[0].rows == 60
        table = own.load(path)
        assert table.classes == ("normal.", "neptune.")  # the second is the attack
        assert own.toml["columns"]["src_bytes"]["use"]


def test_a_table_without_names_has_numbered_columns_which_are_used(tmp_path):
    rng = random.Random(4)
    lines = [
        f"10.0.0.1,{rng.random():.6f},{rng.randrange(9999)},tcp,{'ab'[i % 2]}" for i in range(50)
    ]
    path = written(tmp_path, "\n".join(lines))
    own, facts = describe(path, "column_5")
    assert facts[0].rows == 50
    used = [name for name, entry in own.toml["columns"].items() if entry["use"]]
    assert used == ["column_2", "column_3"]
    (remark,) = remarks_of([sheet_of(path)])
    assert "column_1 to column_5" in remark
    damaged = written(tmp_path, "\n".join([*lines, "10.0.0.1,x,5,tcp,a"]))
    with pytest.raises(DataError, match=r"line 51, column 'column_2'"):
        own.load(damaged)
    kitsune = "\n".join(",".join(f"{rng.random() * 9:.9g}" for _ in range(115)) for _ in range(9))
    assert sheet_of(written(tmp_path, kitsune)).first[-1] == "column_115"


@pytest.mark.parametrize(
    "header", ["0,1,2,label", "64,128,256,label", "a,b,c,label", "1st,2nd,3rd,label", ",x,y,label"]
)
def test_names_that_count_are_names(tmp_path, header):
    path = written(
        tmp_path, header + "\n" + "".join(f"{i},{i % 3},7,{'ab'[i % 2]}\n" for i in range(9))
    )
    assert sheet_of(path).first == tuple(header.split(","))


ZEEK = (
    "#separator \\x09\n#path\tconn\n#fields\tts\torig_bytes\tservice\ttunnel_parents   label   "
    "detailed-label\n#types\ttime\tcount\tstring\tset[string]   string   string\n"
)


def test_blanks_part_the_last_columns_of_a_labelled_zeek_log(tmp_path):
    ends = ("(empty)   Malicious   PartOfAHorizontalPortScan", "-   benign   -")
    lines = [f"160{i}.5\t{i * 3}\ta  b\t{ends[i % 2]}\n" for i in range(40)]
    path = written(tmp_path, ZEEK + "".join(lines) + "#close\n", "conn.log.labeled")
    assert sheet_of(path).first[-3:] == ("tunnel_parents", "label", "detailed-label")
    table = describe(path, "label")[0].load(path)
    assert table.classes == ("benign", "Malicious")
    assert table.features["orig_bytes"].tolist() == [i * 3 for i in range(40)]
    sheets = list(stream_sheets("z", pieces(path.read_bytes()), chunk_bytes=300))
    assert len(sheets) > 2
    assert {len(row) for sheet in sheets for _, row in sheet.rows(True)} == {6}


def conn(i, **more):
    return {
        "ts": 1.6e9 + i, "id.orig_h": "10.0.0.1", "id.orig_p": i, "proto": "tcp",
        "duration": i / 8, "orig_bytes": 2**62 + i, "conn_state": "SF", "orig_pkts": i,
        "resp_pkts": i % 3, "label": "ab"[i % 2],
    } | more  # fmt: skip


def eve(i, **more):
    return {
        "timestamp": f"2021-03-04T10:00:{i:02d}.5+0000", "event_type": "flow", "proto": "UDP",
        "flow": {"pkts_toserver": i, "bytes_toserver": i * 60, "state": "new"},
        "label": "ab"[i % 2],
    } | ({"tcp": {"syn": True}} if i % 3 == 0 else {}) | more  # fmt: skip


def lines_of(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def test_conn_records_of_zeek_are_read(tmp_path):
    other = {"_path": "dns", "query": "x"}
    path = written(tmp_path, lines_of([*(conn(i) for i in range(40)), other]), "conn.log")
    sheet = sheet_of(path)
    assert sheet.first[1] == "id.orig_h"
    table = describe(path, "label")[0].load(path)
    assert table.features["duration"][3] == 375  # ms
    assert table.features["orig_pkts"].tolist() == [*range(40)]
    assert table.notes == (f"{path}: left out 1 records of dns.log",)
    digits = [row[sheet.first.index("orig_bytes")] for _, row in sheet.rows(True)]
    assert digits[3] == str(2**62 + 3)  # no float on the way


def test_flow_events_of_suricata_are_read_and_others_counted(tmp_path):
    alert = {"event_type": "alert", "alert": {"signature": "x" * 200_000}}
    records = [alert, *(eve(i) for i in range(40)), {"event_type": "stats"}]
    path = written(tmp_path, lines_of(records), "eve.json")
    own, _ = describe(path, "label")
    table = own.load(path)
    assert table.features["flow_bytes_toserver"].tolist() == [i * 60 for i in range(40)]
    assert own.toml["columns"]["tcp_syn"]["kind"] == "category"
    assert table.notes == (
        f"{path}: left out 1 records of event_type alert",
        f"{path}: left out 1 records of event_type stats",
    )
    for size in (1, 500, 10**7):  # a stream has the columns of its first flows
        sheets = list(stream_sheets("eve", pieces(path.read_bytes()), chunk_bytes=size))
        assert sum(len(list(sheet.rows(True))) for sheet in sheets) == 40
        assert sum(sum(sheet.left_out.values()) for sheet in sheets) == 2
    bad = written(tmp_path, lines_of([alert, eve(1), eve(2, flow={"bytes_toserver": "many"})]))
    with pytest.raises(DataError, match=r"line 3, column 'flow_bytes_toserver'.*'many'"):
        own.read_features(sheet_of(bad), ["flow_bytes_toserver"])


def test_keys_that_no_flow_of_a_prediction_has_are_blank(tmp_path):
    path = written(tmp_path, lines_of(eve(i) for i in range(40)), "eve.json")
    own, _ = describe(path, "label")
    reader = UserTable(own.rules)
    wanted = [*own.rules.features]
    few = written(tmp_path, lines_of([eve(1), eve(2)]), "few.json")
    rows = reader.read_features(sheet_of(few), wanted)
    whole = reader.read_features(sheet_of(path), wanted)
    for name in wanted:
        assert rows[name].tolist() == whole[name][1:3].tolist()
    with pytest.raises(DataError, match="missing"):  # another layout is not filled with blanks
        reader.read_features(sheet_of(written(tmp_path, lines_of([conn(1)]))), wanted)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "b": 2}\n', "no flow in this JSON.*1 records that are no flows"),
        ('{"event_type": "dns"}\n' * 3, "no flow in this JSON.*3 records of event_type dns"),
        (json.dumps(eve(1), indent=2), "line 1: expected one JSON object a line"),
        (json.dumps([eve(1)]), "this is JSON"),
        (lines_of([eve(1)]) + lines_of([eve(2)])[:-9], "line 2: expected one JSON object a line"),
        (lines_of([eve(1)]) + "[1]\n", "line 2: expected a JSON object"),
        ('{"event_type":"flow","a":1,"a":2}\n', "line 1: the key 'a' comes twice"),
        ('{"event_type":"flow","a.b":1,"a":{"b":2}}\n', "the key 'a.b' comes twice"),
        ('{"event_type":"flow","a":' + "[" * 99_999 + "]" * 99_999 + "}\n", "too many levels"),
        ('{"event_type":"flow","a":' + '{"a":' * 99 + "1" + "}" * 100 + "\n", "16 levels of JSON"),
        (lines_of({"event_type": "flow", f"k{i}": 1} for i in range(5000)), "different keys"),
        ('{"event_type":"flow","\udcff":1}\n', "line 1"),
    ],
)
def test_other_json_and_damaged_records_are_one_clear_line(tmp_path, text, says):
    path = written(tmp_path, text.encode("utf-8", "surrogateescape"), "x.json")
    with pytest.raises(N3icError, match=says) as caught:
        describe(path)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


def test_huge_and_odd_values_of_records_are_cells(tmp_path):
    odd = eve(1, big=10**4000, real=1e308, none=None, text='a,"b"\n\u2028c', many=[1, {"x": 2}])
    raw = lines_of([odd]).replace("1e+308", "1e999")
    sheet = sheet_of(written(tmp_path, raw))
    ((_, row),) = sheet.rows(True)
    cells = dict(zip(sheet.first, row, strict=True))
    assert cells["big"] == "1" + "0" * 4000
    assert (cells["real"], cells["none"]) == ("1e999", "")
    assert cells["text"] == 'a,"b"  c'
    assert cells["many"] == '["1", {"x": "2"}]'
