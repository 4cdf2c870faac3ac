# SPDX-License-Identifier: Apache-2.0
"""Data sets that a catalogue describes: what is read, repaired, refused and recognised."""

import gzip
from dataclasses import replace

import numpy as np
import pytest

from n3ic.data import catalogue_dataset
from n3ic.data.catalogue_dataset import CatalogueDataSet
from n3ic.data.dataset import data_set_of
from n3ic.data.delimited import open_sheet
from n3ic.data.files import Content
from n3ic.errors import DataError, UsageError

CATALOGUE = """
[table]
label = ["kind", "label"]
conversation = ["source_ip", "source_port", "destination_ip", "destination_port", "protocol"]
[published]
[reasons]
header = "read from a header"
"""
HEADER = (
    "Source IP, Source Port, Destination IP,Destination Port,Protocol, Time,Bytes/s,Note, Label"
)
ROWS = (
    "10.0.0.1,5,10.0.0.2,443,6,1.5,8,x,WEB",
    "10.0.0.2,443,10.0.0.1,5,6,-2,inf,y,WEB",
    "10.0.0.1,5,::1,443,17,0.0001,,z, MAIL",
)


def catalogue():
    text = CATALOGUE
    for name, rest in (
        ("source_ip", 'kind="address"'),
        ("source_port", ""),
        ("destination_ip", 'kind="address"'),
        ("destination_port", ""),
        ("protocol", ""),
        ("time", 'source_unit="s"\nscale=1000'),
        ("bytes_s", 'kind="quotient"'),
    ):
        text += f'[columns.{name}]\nmeaning="m"\nunit="u"\nbits=32\nreason="header"\n{rest}\n'
    return (
        text + '[derived.twice]\nmeaning="m"\nunit="u"\nbits=4\nneeds=["time"]\nreason="header"\n'
    )


@pytest.fixture
def flows(tmp_path, monkeypatch):
    class Toy(CatalogueDataSet):
        name, summary = "toy", "a toy"
        formulas = {"twice": lambda time: 2 * time}  # noqa: RUF012
        folder = tmp_path

    (tmp_path / "catalogue.toml").write_text(catalogue())
    return Toy()


def written(folder, *rows, header=HEADER):
    path = folder / "flows.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_integers_classes_and_conversations(flows, tmp_path):
    table = flows.load(written(tmp_path, *ROWS))
    assert table.classes == ("MAIL", "WEB")
    assert table.label.tolist() == [1, 1, 0]
    assert table.features["source_ip"].tolist() == [0x0A000001, 0x0A000002, 0x0A000001]
    assert table.features["destination_ip"].tolist()[2] == 0
    assert table.features["time"].tolist() == [1500, 0, 1]
    assert table.features["bytes_s"].tolist() == [8, 2**32 - 1, 2**32 - 1]
    assert table.features["twice"].tolist() == [15, 0, 2]  # 4 bits
    assert table.conversation.tolist() == [0, 0, 1]
    assert table.feature("time").nic_reason == "read from a header"


def test_what_was_changed_is_counted(flows, tmp_path):
    report = flows.check(written(tmp_path, *ROWS))
    assert report["rows_changed"] == 2
    assert report["conversations"] == 2
    assert report["problems"] == [
        "time negative, set to 0: 1 of 3 rows",
        "bytes_s blank or infinite, set to the largest value: 2 of 3 rows",
    ]


def test_a_file_without_addresses_has_no_conversations(flows, tmp_path):
    table = flows.load(written(tmp_path, "1,2,A", "1,2,B", header="Time,Bytes/s,Label"))
    assert table.conversation is None
    assert set(table.features) == {"time", "bytes_s", "twice"}
    both = tmp_path / "both"
    both.mkdir()
    written(both, *ROWS)
    (both / "more.csv").write_text("Time,Bytes/s,Label\n1,2,A\n")
    joined = flows.load(both)
    assert (len(joined), joined.conversation) == (4, None)
    assert joined.classes == ("A", "MAIL", "WEB")


@pytest.mark.parametrize(
    ("rows", "header", "says"),
    [
        (("1,2,",), "Time,Bytes/s,Label", "line 2, column 'label': no class"),
        (("x,2,A",), "Time,Bytes/s,Label", "line 2, column 'time': expected a finite number"),
        (("1,2,A", "1,x,A"), "Time,Bytes/s,Label", "line 3, column 'bytes_s': expected a number"),
        (("1,2",), "Time,Bytes/s", "1 column missing: kind"),
        (("1,A",), "Time,Label", "1 column missing: bytes_s"),
        (("1,2,3,A",), "Time,Bytes/s,bytes s,Label", "'bytes_s' comes twice"),
        (("10.0.0.300,5,1.1.1.1,4,6,1,1,x,A",), HEADER, "'source_ip': expected an address"),
        ((), "Time,Bytes/s,Label", "a header and no rows"),
        ([f"1,2,c{i}" for i in range(300)], "Time,Bytes/s,Label", "300 classes, at most 256"),
    ],
)
def test_what_is_no_such_table_is_refused_by_line_and_column(flows, tmp_path, rows, header, says):
    with pytest.raises(DataError) as error:
        flows.load(written(tmp_path, *rows, header=header))
    assert says in str(error.value)


def test_unlabelled_flows_give_the_features_that_are_wanted(flows):
    sheet = open_sheet(Content("f.csv", b"time,other\n2,x\n"))
    assert flows.read_features(sheet, ["twice"])["twice"].tolist() == [15]
    with pytest.raises(DataError, match="1 column missing: bytes_s"):
        flows.read_features(sheet, ["bytes_s"])


def test_without_an_embedded_file_a_path_is_needed(flows):
    with pytest.raises(UsageError, match="toy has no embedded sample"):
        flows.load()


def test_files_are_recognised_by_their_header(flows, tmp_path):
    path = written(tmp_path, *ROWS)
    assert flows.recognises(path)
    assert flows.recognises(tmp_path)
    packed = tmp_path / "flows.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert flows.recognises(packed)
    other = tmp_path / "other.csv"
    wide = f"{HEADER},{','.join('abcdefghij')}\n"  # of a meter that writes these columns, too
    for text in ("a,b,c\n1,2,3\n", "", "\x00\x01", wide):
        other.write_text(text)
        assert not flows.recognises(other)


def test_a_damaged_embedded_file_is_not_read(flows, tmp_path):
    (tmp_path / "catalogue.toml").write_text(
        catalogue().replace("[table]", '[table]\nembedded = "flows.csv"')
    )
    written(tmp_path, *ROWS)
    with pytest.raises(DataError, match="not the published one; reinstall n3ic"):
        flows.load()


def test_names_of_columns_are_compared_without_their_spelling():
    assert catalogue_dataset.canonical(" Flow Bytes/s") == "flow_bytes_s"
    assert catalogue_dataset.canonical("fwd header length.1") == "fwd_header_length_1"


def test_a_table_of_another_data_set_is_not_taken_for_unsw_nb15(tmp_path):
    path = written(tmp_path, "1,2,A", header="Time,Bytes/s,Label")
    with pytest.raises(UsageError, match="no data set knows it"):
        data_set_of(path)


def test_one_class_against_the_rest(flows, tmp_path):
    table = flows.load(written(tmp_path, *ROWS)).against_rest("MAIL")
    assert (table.classes, table.label.tolist()) == (("not MAIL", "MAIL"), [0, 0, 1])
    assert np.array_equal(table.conversation, [0, 0, 1])
    with pytest.raises(DataError, match=r"no class 'P2P' .* the classes are not MAIL, MAIL"):
        table.against_rest("P2P")


def test_several_classes_of_one_name_against_the_rest(flows, tmp_path):
    table = flows.load(written(tmp_path, *ROWS))
    label = np.array([0, 1, 2])
    named = replace(table, classes=("p2p-encrypted", "p2plike", "p2p-plain"), label=label)
    p2p_table = named.against_rest("p2p")
    assert (p2p_table.classes, p2p_table.label.tolist()) == (("not p2p", "p2p"), [1, 0, 1])
    for name in ("p2", "P2P"):
        with pytest.raises(DataError, match=f"no class '{name}'"):
            named.against_rest(name)
    both = replace(table, classes=("p2p-encrypted", "p2p-plain"), label=np.array([0, 1, 1]))
    with pytest.raises(DataError, match="no class 'p2p' to tell from others"):
        both.against_rest("p2p")
