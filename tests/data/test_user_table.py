# SPDX-License-Identifier: Apache-2.0
"""Tables of the user's own: what is inferred, what a columns.toml overrides, what is refused."""

import gzip
import lzma
import random
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from n3ic.data.column_inference import infer
from n3ic.data.column_profile import ColumnProfile, column_names
from n3ic.data.description import description_text, read_description
from n3ic.data.file_tables import open_sheets
from n3ic.data.files import Content
from n3ic.data.user_table import (
    UserTable,
    describe,
    summary_line,
)
from n3ic.errors import DataError, N3icError, UsageError
from n3ic.model.columns import ColumnRule, TableRules

HEADER = (
    "Flow ID,Src IP,Src Port,Dst IP,Dst Port,Protocol,Timestamp,dur,sbytes,pkt_len_std,rate,"
    "score,win,service,constant,sttl,attack_cat,label"
)


def rows(count=200, seed=0):
    """Flows with a column of every kind; the class depends on sbytes."""
    rng = random.Random(seed)
    for i in range(count):
        bad = i % 3 == 0
        yield (
            f"f{rng.random()},10.0.0.{rng.randrange(9)},{rng.randrange(1024, 65536)},192.168.1.1,"
            f"443,6,2021-03-04 10:00:{i % 60:02d},{rng.random() * 9:.6f},"
            f"{rng.randrange(99) + 500 * bad},1.5,"
            f"{'inf' if i == 5 else '' if i == 6 else f'{rng.random() * 1e6:.3f}'},"
            f"{rng.random() - 0.5:.4f},{-1 if i == 7 else 255},{rng.choice(['dns', 'http', '-'])},"
            f"0,{64 if bad else 128},{rng.choice(['DoS', 'Worm']) if bad else 'Normal'},{int(bad)}"
        )


def written(folder, lines=None, header=HEADER, name="flows.csv", separator=","):
    path = folder / name
    text = "\n".join([header, *(rows() if lines is None else lines)]) + "\n"
    path.write_text(text.replace(",", separator))
    return path


def used(own):
    return [name for name, entry in own.toml["columns"].items() if entry["use"]]


def test_what_leaks_is_left_out_and_says_why(tmp_path):
    own, _ = describe(written(tmp_path), "label")
    assert used(own) == ["dur", "sbytes", "rate", "score", "win", "service"]
    why = {name: entry["reason"] for name, entry in own.toml["columns"].items()}
    assert "identifier" in why["flow_id"]
    assert "address" in why["src_ip"]
    assert "port" in why["dst_port"]
    assert "a time" in why["timestamp"]
    assert "label" in why["attack_cat"]
    assert "roots" in why["pkt_len_std"] or "same" in why["pkt_len_std"]
    assert why["constant"] == "the same in every row"
    assert "how far" in why["sttl"]
    assert own.toml["table"]["conversation"] == [
        *("src_ip", "src_port", "dst_ip", "dst_port"),
        "protocol",
    ]


@pytest.mark.parametrize(
    ("headers", "columns_used"),
    [
        (  # IPFIX, as YAF and others write it
            "flowStartMilliseconds flowEndMilliseconds sourceIPv4Address destinationIPv4Address "
            "sourceTransportPort destinationTransportPort protocolIdentifier tcpSequenceNumber "
            "packetTotalCount octetTotalCount flowEndReason",
            "protocolidentifier packettotalcount octettotalcount flowendreason",
        ),
        (  # NetFlow version 9, as nProbe writes it
            "IPV4_SRC_ADDR L4_SRC_PORT IPV4_DST_ADDR L4_DST_PORT PROTOCOL IN_BYTES OUT_PKTS "
            "MIN_TTL FLOW_START_MILLISECONDS FLOW_DURATION_MILLISECONDS NUM_PKTS_UP_TO_128_BYTES "
            "DNS_QUERY_ID Attack",
            "protocol in_bytes out_pkts flow_duration_milliseconds num_pkts_up_to_128_bytes",
        ),
        (  # NFStream
            "id src_ip src_mac src_oui src_port dst_ip dst_port protocol "
            "bidirectional_first_seen_ms bidirectional_duration_ms bidirectional_stddev_ps "
            "src2dst_packets application_name requested_server_name user_agent",
            "protocol bidirectional_duration_ms src2dst_packets",
        ),
        (  # argus
            "StartTime Dur Proto SrcAddr Sport Dir DstAddr Dport TotBytes sTtl Seq",
            "dur proto dir totbytes",
        ),
    ],
)
def test_names_of_known_flow_exporters(headers, columns_used):
    facts = [
        ColumnProfile(name, header, "integer", 1000, 50, highest=1e4)
        for header in headers.split()
        for name in column_names([header])
    ]
    inferred = infer(facts)
    assert [n for n, entry in inferred["columns"].items() if entry["use"]] == columns_used.split()
    assert len(inferred["table"]["conversation"]) == 5


def test_a_feature_is_not_taken_for_another_by_a_part_of_its_name():
    names = ("app_bytes", "cat_len", "class_of_service", "sinpkt", "attack_cat")
    columns = infer([ColumnProfile(n, n, "integer", 1000, 500, highest=1e4) for n in names])[
        "columns"
    ]
    assert [columns[n]["use"] for n in names] == [True, True, True, True, False]
    assert [columns[n]["unit"] for n in names[:4]] == ["byte", "byte", "", "ms"]


def test_another_form_of_the_label_is_known_by_its_cells(tmp_path):
    header = "x,kind_of,code,label"
    lines = [f"{i % 50},{'abc'[i % 3]}{i % 2},{i % 3},{'pqr'[i % 3]}" for i in range(300)]
    own, _ = describe(written(tmp_path, lines, header), "label")
    assert used(own) == ["x"]
    finer, _ = describe(written(tmp_path, lines, header), "kind_of")
    assert used(finer) == ["x", "code"]  # a text that says the class is left out, a number is not
    assert "the label determines it" in finer.toml["columns"]["code"]["doubt"]


def test_units_scales_and_odd_cells(tmp_path):
    path = written(tmp_path)
    own, _ = describe(path, "label")
    rules = own.rules.columns
    assert (rules["dur"].unit, rules["dur"].scale) == ("us", 1e6)
    assert (rules["rate"].scale, rules["sbytes"].scale) == (1e3, 1)
    assert rules["score"].negative == "split"  # half of it is below 0
    assert rules["win"].negative == "zero"
    table, changed = own.load_noting(path)
    text = path.read_text().splitlines()[1].split(",")
    assert table.features["dur"][0] == round(float(text[7]) * 1e6)
    assert table.features["rate"][5:7].tolist() == [2**32 - 1] * 2
    assert table.features["win"][7] == 0
    score = table.features["score"] - table.features["score_negative"]
    assert np.allclose(score[0] / 1e4, float(text[11]))
    assert table.features["service"].max() == 2
    assert changed == (
        "rate blank or infinite, set to the largest value: 2 of 200 rows",
        "win negative, set to 0: 1 of 200 rows",
    )
    assert table.conversation is not None
    assert (table.classes, int(table.label.sum())) == (("0", "1"), 67)


def test_of_two_classes_the_one_that_harms_is_looked_for(tmp_path):
    lines = [f"{i},{'ATTACK' if i % 2 else 'BENIGN'}" for i in (*range(50), *range(50))]
    path = written(tmp_path, lines, "bytes,label")
    assert describe(path, "label")[0].load(path).classes == ("BENIGN", "ATTACK")
    turned = describe(path, "label", positive="BENIGN")[0].load(path)
    assert turned.classes == ("ATTACK", "BENIGN")
    assert turned.label.tolist() == [1, 0] * 50


def test_every_layout_and_packing_reads_the_same(tmp_path):
    plain = written(tmp_path)
    own, _ = describe(plain, "label")
    expected = own.load(plain)
    others = [written(tmp_path, name="bars.csv", separator="|")]
    others.append(written(tmp_path, name="semicolons.csv", separator=";"))
    bom = tmp_path / "bom.csv"
    bom.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes().replace(b"\n", b"\r\n"))
    gz, xz = tmp_path / "f.csv.gz", tmp_path / "f.csv.xz"
    gz.write_bytes(gzip.compress(plain.read_bytes()))
    xz.write_bytes(lzma.compress(plain.read_bytes()))
    quoted = tmp_path / "quoted.csv"
    quoted.write_text(
        "\n".join(",".join(f'"{c}"' for c in x.split(",")) for x in plain.read_text().splitlines())
    )
    parquet = tmp_path / "flows.parquet"
    pq.write_table(arrow_csv.read_csv(plain), parquet)
    for path in (*others, bom, gz, xz, quoted, parquet):
        description, _ = describe(path, "label")
        assert description.toml == own.toml, path
        table = description.load(path)
        assert table.classes == expected.classes
        for name, column in expected.features.items():
            assert np.array_equal(table.features[name], column), (path, name)


ZEEK = """#separator \\x09
#set_separator\t,
#empty_field\t(empty)
#unset_field\t-
#path\tconn
#open\t2021-03-04-10-00-00
#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\tduration\torig_bytes\tlabel
#types\ttime\tstring\taddr\tport\taddr\tport\tenum\tinterval\tcount\tstring
"""


def test_a_zeek_log_is_read(tmp_path):
    path = tmp_path / "conn.log"
    lines = [
        f"16148520{i:02d}.5\tC{i}x\t10.0.0.{i % 5}\t{1024 + i}\t10.0.0.9\t53\t"
        f"{'udp' if i % 2 else 'tcp'}\t{'-' if i == 3 else f'{i / 7:.6f}'}\t{i * 10}\t{'ab'[i % 2]}"
        for i in range(60)
    ]
    path.write_text(ZEEK + "\n".join(lines) + "\n#close\t2021-03-04-11-00-00\n")
    own, _ = describe(path, "label")
    assert used(own) == ["proto", "duration", "orig_bytes"]  # measurements, whatever they say
    assert own.toml["columns"]["proto"]["doubt"].startswith("alone it tells the classes to 100.0%")
    table, changed = own.load_noting(path)
    assert len(table) == 60
    assert changed == ("duration blank or infinite, set to the largest value: 1 of 60 rows",)
    assert table.features["duration"][7] == 1_000_000
    assert own.toml["table"]["conversation"][0] == "id_orig_h"
    path.write_text(path.read_text().replace("\t50\t", "\tfifty\t"))
    with pytest.raises(DataError, match=r"conn.log, line 14, column 'orig_bytes'"):
        own.load(path)


def test_columns_toml_overrides_and_is_written_alike(tmp_path):
    path = written(tmp_path)
    own, _ = describe(path, "label")
    (tmp_path / "columns.toml").write_text(description_text(own.toml))
    again, _ = describe(path)
    assert again.toml == own.toml
    assert again.rules == own.rules
    (tmp_path / "columns.toml").write_text(
        """
        [table]
        label = "label"
        positive = "1"
        [columns.dst_port]
        use = true
        [columns.rate]
        scale = 1
        unit = "packet/s"
        blank = "zero"
        [columns.service]
        use = false
        """
    )
    changed, _ = describe(path)
    assert used(changed) == ["dst_port", "dur", "sbytes", "rate", "score", "win"]
    table = changed.load(path)
    assert table.usable[0] == "dst_port"
    assert table.features["rate"][5:7].tolist() == [2**32 - 1, 0]
    assert "packet/s" in summary_line(changed, describe(path)[1])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[table]\nlabel = 3", "'label' of \\[table\\] must be str or list"),
        ("[column.x]\nuse = true", "unknown entry 'column'"),
        ("[columns.dur]\nscale = -1", "scale: expected 1e-18 to 1e\\+18"),
        ("[columns.dur]\nscale = true", "'scale' of \\[columns.dur\\] must be"),
        ("[columns.dur]\nbits = 64", "bits: expected an integer from 1 to 32"),
        ("[columns.dur]\nkind = 'real'", "kind: expected number or address or category"),
        ("[columns.dur]\nblank = 'mean'", "blank: expected"),
        ("[columns.absent]\nuse = true", "describes the column 'absent', which .* lacks"),
        ("[columns.label]\nuse = true", "has as its label"),
        ("[columns.flow_id]\nuse = true", 'a column of text .* kind = "category"'),
        ("[table]\nconversation = ['dur']", "names five columns"),
        ("use = ", "not a TOML file"),
        ("[columns.dur]\nuse = 'yes'", "'use' of \\[columns.dur\\] must be bool"),
    ],
)
def test_a_bad_columns_toml_is_refused_by_key(tmp_path, text, says):
    (tmp_path / "columns.toml").write_text(text)
    with pytest.raises(DataError, match=says):
        describe(written(tmp_path), "label")


def test_a_columns_toml_that_is_too_large_is_refused(tmp_path):
    """Cut at the limit, this one would be whole TOML without its last table."""
    begin = b"[columns.dur]\nuse = true\n"
    path = tmp_path / "columns.toml"
    path.write_bytes(begin.ljust(4 << 20, b"\n"))
    assert read_description(path)["columns"] == {"dur": {"use": True}}
    path.write_bytes(begin.ljust(4 << 20, b"\n") + b"[columns.rate]\nuse = false\n")
    with pytest.raises(DataError, match="not a description of columns: larger than 4 MiB"):
        read_description(path)


def test_names_from_a_table_are_safe_in_toml(tmp_path):
    quoted = '"u""v"'
    header = 'a"b,x\\y,"tab\there",\u00fcber,,label,'
    lines = [
        f"{i % 9},{i % 7},{i % 5},{i % 3},{i % 11},{('w', quoted)[i % 2]},{i % 4}"
        for i in range(60)
    ]
    path = tmp_path / "odd.csv"
    path.write_text("\n".join([header, *lines]))
    own, _ = describe(path, "label")
    document = read_description_text(tmp_path, description_text(own.toml))
    assert set(document["columns"]) == {"a_b", "x_y", "tab_here", "ber", "unnamed_5", "unnamed_7"}
    assert own.load(path).classes == ('u"v', "w")


def read_description_text(folder, text):
    path = folder / "written.toml"
    path.write_text(text, "utf-8")
    assert tomllib.loads(text)
    return read_description(path)


@pytest.mark.parametrize(
    ("header", "lines", "label", "says"),
    [
        ("bytes,label", ["1,a"] * 60, "label", "one class 'a' in every row"),
        ("bytes,label", ["1,a"] * 60, "class", "no column 'class'; its columns are bytes, label"),
        (
            "bytes,label",
            [f"1,c{i}" for i in range(100_000)],
            "label",
            "100,000 classes, at most 256",
        ),
        (
            "bytes,label",
            ["1,a", "2,b", "3,"],
            "label",
            "line 4, column 'label': no class; .*blank_label",
        ),
        ("bytes,label,Label", ["1,a,b"] * 9, "LABEL", "2 columns are called 'LABEL'"),
        ("bytes,label", ["1,a", "2", "3,b"], "label", "line 3: 1 cells, expected 2"),
        ("bytes,label", ["1,a", "2,b,c"], "label", "line 3: 3 cells, expected 2"),
        ("bytes,label", [], "label", "a header and no rows"),
        ("label", ["a", "b"], "label", "a single column"),
        ("b,label", ["1,a", f"2,{'x' * 300}"], "label", "a class of 300 characters"),
        (",label", ["1,a", "2,b"], "", "nothing says which column is the class"),
    ],
)
def test_hostile_tables_are_refused(tmp_path, header, lines, label, says):
    path = written(tmp_path, lines, header)
    with pytest.raises(N3icError, match=says):
        describe(path, label)[0].load(path)


def test_mixed_huge_and_repeated_columns(tmp_path):
    header = "a,a,mixed,huge,text,hex,label"
    lines = [
        f"{i % 7},{i % 5},{'n' + str(i) if i % 9 == 0 else i},{2**70 + i if i % 2 else i},note {i},"
        f"{'0x1f' if i == 3 else i % 13},{'xy'[i % 2]}"
        for i in range(300)
    ]
    path = written(tmp_path, lines, header)
    own, _ = describe(path, "label")
    assert used(own) == ["a", "a_2", "huge"]
    why = {name: entry["reason"] for name, entry in own.toml["columns"].items()}
    assert why["mixed"] == "numbers and text in one column, such as 'n0'"
    assert why["hex"] == "numbers and text in one column, such as '0x1f'"
    assert why["text"] == "text of 300 different values"
    _, changed = own.load_noting(path)
    assert len(changed) <= 1  # the huge ones, where they do not fit, are counted
    assert column_names(["A b", "a_b", "", "a b_2"]) == ["a_b", "a_b_2", "unnamed_3", "a_b_2_2"]


def test_without_a_label_the_candidates_are_listed(tmp_path):
    from n3ic.data.user_table import need_label

    path = written(tmp_path)
    own, facts = describe(path)
    with pytest.raises(
        UsageError, match=r"--label COLUMN; these could be: .*attack_cat \(3 values"
    ):
        need_label(own, facts, path)


def test_classes_that_are_whole_numbers_are_spelled_alike(tmp_path):
    lines = ["1,0", "2,1.0", "3,1", "4,0.0"]
    path = written(tmp_path, lines, "bytes,label")
    table = describe(path, "label")[0].load(path)
    assert (table.classes, table.label.tolist()) == (("0", "1"), [0, 1, 1, 0])
    written(tmp_path, ["1,1_0", "2,1.5", "3,1"], "bytes,label")
    assert describe(path, "label")[0].load(path).classes == ("1", "1.5", "1_0")


def test_a_blank_label_may_stand_for_a_class(tmp_path):
    path = written(tmp_path, [f"{i},{'DoS' if i % 2 else ''}" for i in range(60)], "bytes,cat")
    (tmp_path / "columns.toml").write_text('[table]\nlabel = "cat"\nblank_label = "Normal"\n')
    assert describe(path)[0].load(path).classes == ("Normal", "DoS")


def test_tables_of_other_columns_do_not_join(tmp_path):
    folder = tmp_path / "both"
    folder.mkdir()
    written(folder, ["1,a", "2,b"], "bytes,label", name="one.csv")
    written(folder, ["1,a", "2,b"], "octets,label", name="two.csv")
    with pytest.raises(DataError, match=r"two.csv: other columns than .*one.csv \(bytes, octets\)"):
        describe(folder, "label")


def test_a_folder_may_hold_tables_of_several_kinds(tmp_path):
    folder = tmp_path / "days"
    folder.mkdir()
    plain = written(folder, ["1,a", "2,b"] * 9, "bytes,label", name="one.csv")
    pq.write_table(arrow_csv.read_csv(plain), folder / "two.parquet")
    table = describe(folder, "label")[0].load(folder)
    assert len(table) == 36
    assert [source.rows for source in table.sources] == [18, 18]
    (tmp_path / "columns.toml").write_text('[table]\nlabel = "label"\npositive = "a"\n')
    assert describe(tmp_path)[0].load(tmp_path).classes == ("b", "a")


def test_rules_are_data_and_what_is_none_is_refused():
    rules = TableRules(
        {"x": ColumnRule(negative="split", scale=1e3), "s": ColumnRule("category", values=("a",))},
        "label",
        "bad",
    )
    assert TableRules.from_dict(rules.to_dict()) == rules
    assert rules.features == ("x", "x_negative", "s")
    assert rules.only(["x_negative"]).features == ("x", "x_negative")
    good = rules.to_dict()
    for key, value in (("columns", []), ("label", 3), ("columns", {"x": {"kind": "eval"}})):
        with pytest.raises(N3icError):
            TableRules.from_dict({**good, key: value})
    for bad in (
        {"scale": "1"},
        {"scale": float("nan")},
        {"bits": 0},
        {"values": ["a"]},
        {"code": 1},
    ):
        with pytest.raises(N3icError):
            TableRules.from_dict({**good, "columns": {"x": {"kind": "number", **bad}}})


def test_a_parquet_file_of_every_type_has_a_text(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table(
            {
                "i": pa.array([1, None, 3]),
                "s": pa.array(["a,b", 'c"d', None]).dictionary_encode(),
                "l": pa.array([[1], [2], None]),
                "b": pa.array([True, False, None]),
                "t": pa.array([1, 2, 3], pa.timestamp("us")),
                "y": pa.array([b"\xff", b"", None]),
            }
        ),
        path,
        row_group_size=2,
    )
    (table,) = open_sheets(path)
    assert next(row for _, row in table.sheet.rows(True))[:4] == ["1", "a,b", "", "true"]
    assert [n for n, _ in table.sheet.rows(True)] == [1, 2, 3]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="Parquet file is damaged"):
        list(open_sheets(path))


def test_the_network_reads_by_its_rules_alone():
    own = UserTable(TableRules({"x": ColumnRule(scale=1e3, blank="largest")}, "label"))
    from n3ic.data.delimited import open_sheet

    sheet = open_sheet(Content("f.csv", b"other;X\na;1.5\nb;NaN\n"))
    assert own.read_features(sheet, ["x"])["x"].tolist() == [1500, 2**32 - 1]


CELLS = st.sampled_from(
    [
        *("", "-", "0", "1", "-1", "1.5", "1e308", "-1e308", "1e400", "nan", "inf", "-inf"),
        *("18446744073709551615", "99999999999999999999999", "0x1F", "a", "b", "'", '"', "\u00e9"),
        *("10.0.0.1", "::1", "aa:bb:cc:dd:ee:ff", "2021-01-01", "2021-01-01 00:00:01", "true", "T"),
        *("1600000000", "1600000001.5", " 7 ", "1,5", "1;5", "#x", "\t"),
    ]
)
NAMES = st.sampled_from(
    ["a", "A", "", "dur", "src_ip", "dst_ip", "sport", "dport", "proto", "label", '"x"', "id"]
)


@given(
    st.lists(NAMES, min_size=1, max_size=6),
    st.lists(st.lists(CELLS, min_size=1, max_size=6), max_size=8),
    st.sampled_from(",;\t|"),
    st.booleans(),
)
@example(["a", "A"], [["0"], ["1e308"], ["-1e308"]], ",", True)
@pytest.mark.filterwarnings("error")
def test_no_table_breaks_inference(tmp_path_factory, header, lines, separator, square):
    """What is no table is refused in words; what is one is read alike by its columns.toml."""
    folder = tmp_path_factory.mktemp("any")
    width = len(header)
    if square:
        lines = [(line * width)[:width] for line in lines]
    path = folder / "t.csv"
    path.write_text("\n".join(map(separator.join, [header, *lines])), "utf-8")
    try:
        own, facts = describe(path, header[-1])
        table = own.load(path)
    except N3icError as error:
        assert str(error)
        return
    assert len(table) == facts[0].rows
    assert summary_line(own, facts)
    (folder / "columns.toml").write_text(description_text(own.toml), "utf-8")
    again = describe(path)[0].load(path)
    assert again.classes == table.classes
    for name, column in table.features.items():
        assert column.min() >= 0
        assert column.max() < 2**32
        assert np.array_equal(again.features[name], column)
    sheet = next(open_sheets(path)).sheet
    carried = UserTable(TableRules.from_dict(own.rules.to_dict()))
    features = carried.read_features(sheet, own.rules.features)
    for name, column in features.items():
        assert np.array_equal(column, table.features[name])
