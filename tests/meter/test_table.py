# SPDX-License-Identifier: Apache-2.0
"""Metered rows as a table to train on: what is asked of their columns, and what is said of them."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from n3ic.errors import DataError
from n3ic.meter import rows
from n3ic.meter.table import catalogue_of, flow_table
from n3ic.model.meter_spec import (
    Decision,
    Guard,
    MeteredFeature,
    MeterSpec,
    Register,
    Step,
    Window,
)

SPEC = MeterSpec((Register("n", "count"),), (MeteredFeature("n", "n"),))
AGAIN = replace(SPEC, decision=Decision(schedule=(2, 5)))
COLUMNS = {
    "capture": ["c", "c", "c", "c", "d", "c"],
    "source": ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"],
    "source_port": [1, 2, 1, 1, 1, 1],
    "destination": ["10.0.0.2", "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2", "10.0.0.2"],
    "destination_port": [2, 1, 2, 2, 2, 2],
    "protocol": [6, 6, 6, 17, 6, 6],
    "first_us": [7, 7, 7, 7, 7, 8],
    "packets": [2, 5, 4, 4, 5, 9],
    "decided": ["packets", "packets", "after", "fin", "idle", "after"],
    "n": [0, 1, 2, 3, 4, 2**32 - 1],
    "label": ["b", "a", "b", "c", "a", "b"],
}


def table_of(spec=AGAIN, without=(), **changed):
    columns = {**COLUMNS, **changed}
    table = pa.table({name: c for name, c in columns.items() if name not in without})
    return flow_table("f.csv", table, spec, sha256="0")


def test_rows_of_one_flow_and_of_one_conversation_are_told():
    """A flow has a direction, a start and a capture; a conversation has two ends and a protocol."""
    table = table_of()
    assert table.flow.tolist() == [0, 1, 0, 2, 3, 4]
    assert table.conversation.tolist() == [0, 0, 0, 1, 0, 0]
    assert table.point.tolist() == [2, 5, 2, 0, 0, 2]  # a time takes the place of the first
    assert table.classes == ("a", "b", "c")
    assert table.label.tolist() == [1, 0, 1, 2, 0, 1]
    assert table.features["n"].tolist() == COLUMNS["n"]
    assert (table.meter, table.sha256, table.synthetic) == (AGAIN, "0", False)


def test_only_flows_that_are_decided_again_have_points():
    repeated = table_of(replace(SPEC, decision=Decision(2, repeat=True)))
    assert (repeated.flow.tolist(), repeated.point) == ([0, 1, 0, 2, 3, 4], None)
    once = table_of(SPEC)
    assert (once.flow, once.point) == (None, None)


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_that_a_table_needs(name):
    hint = "; n3ic data extract joins it with --labels" if name == "label" else ""
    with pytest.raises(DataError) as error:
        table_of(without=(name,))
    assert str(error.value) == f"f.csv: the column {name!r} is missing{hint}"
    if name in ("n", "label"):
        with pytest.raises(DataError, match="is missing"):
            table_of(SPEC, without=(name,))
        return
    of_ends = ("source", "source_port", "destination", "destination_port", "protocol")
    once = table_of(SPEC, without=(name,))
    assert (once.conversation is None) == (name in of_ends)


def test_the_key_alone_tells_conversations():
    others = ("capture", "first_us", "packets", "decided")
    assert table_of(SPEC, without=others).conversation.tolist() == [0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("labels", [["", "a", None, "c", "", "a"], [None, 1, None, 3, None, 1]])
def test_flows_without_a_label_are_left_out(labels):
    table = table_of(label=labels)
    assert table.features["n"].tolist() == [1, 3, 2**32 - 1]
    assert table.label.tolist() == [0, 1, 0]
    assert table.flow.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match=r"^f\.csv: no flow has a label$"):
        table_of(label=[None, "", None, None, "", ""])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 1, 2, 3, 4, 2**32], "from 0 to 4,294,967,295"),
        ([-1, 1, 2, 3, 4, 5], "from 0 to 4,294,967,295"),
        ([0, 1, 2, 3, 4, None], "got int64 or blanks"),
        ([0.0, 1, 2, 3, 4, 5], "got double or blanks"),
        (["0", "1", "2", "3", "4", "5"], "got string or blanks"),
    ],
)
def test_features_are_whole_numbers_of_32_bits(values, message):
    with pytest.raises(DataError, match=rf"^f\.csv, column 'n': expected integers,? .*{message}$"):
        table_of(n=values)


@pytest.mark.parametrize(
    ("column", "marked"),
    [
        (pa.array([False] * 5 + [True]), True),
        (pa.array([False] * 6), False),
        (pa.array(["false"] * 5 + ["True"]), True),
        (pa.array(["no"] * 6), False),
    ],
)
def test_one_row_of_a_generator_marks_all(column, marked):
    assert table_of(synthetic=column).synthetic is marked


def test_what_a_feature_is_made_of():
    spec = MeterSpec(
        (
            Register("hops", "last", "ttl", Guard("reverse"), 8),
            Register("n", "count", guard=Guard("forward"), width=24),
            Register("size", "max", "ip_length", width=16),
        ),
        (
            MeteredFeature("h", "hops", unit="hop"),
            MeteredFeature("n", "n", unit="packet"),
            MeteredFeature("s", "size", unit="byte"),
            MeteredFeature("x", program=(Step("add", "n", "hops"), Step("max", "$0", "n"))),
            MeteredFeature("y", program=(Step("add", "n", "size"),)),
        ),
        windows=(Window("w", 1500, ("source", "destination_port")),),
    )
    catalogue = catalogue_of(spec)
    assert [f.name for f in catalogue] == ["h", "n", "s", "x", "y", "w"]
    assert [f.meaning for f in catalogue] == [
        "last of ttl, reverse",
        "count of packets, forward",
        "max of ip length, both",
        "computed from n, hops",
        "computed from n, size",
        "how many of the last 1,500 flows have the same source and destination port",
    ]
    assert [(f.leaks, bool(f.leak_reason)) for f in catalogue] == [
        (name in "hx", name in "hx") for name in "hnsxyw"
    ]
    assert (
        [f.unit for f in catalogue]
        == [f.source_unit for f in catalogue]
        == [spec.units[name] for name in "hnsxyw"]
    )
    assert [f.bits for f in catalogue] == [8, 24, 16, 25, 25, 11]
    assert all(f.nic and f.scale == 1 for f in catalogue)


def test_features_are_64_bits_wide_as_all_of_a_table():
    assert table_of(n=np.array([1, 2, 3, 4, 5, 6], np.uint8)).features["n"].dtype == np.int64


@pytest.mark.parametrize(
    "sizes", [(0,), (7,), (8,), (3, 0, 4), (7, 7), (1,) * 15, (0, 30, 5), (22,)]
)
def test_rows_are_grouped_however_they_come(monkeypatch, sizes):
    monkeypatch.setattr(rows, "ROW_GROUP", 7)
    values = [*range(sum(sizes))]
    schema = pa.schema([("n", pa.int64())])
    given, at = [], 0
    for size in sizes:
        given.append(pa.table({"n": values[at : at + size]}, schema=schema))
        at += size
    groups = [group["n"].to_pylist() for group in rows._grouped(given)]
    assert groups == [values[i : i + 7] for i in range(0, max(1, len(values)), 7)]


def test_a_group_of_a_file_has_65_536_rows():
    (one, two) = rows._grouped([pa.table({"n": np.zeros(70_000, np.int8)})])
    assert (len(one), len(two)) == (65_536, 4_464)


def test_a_flow_has_its_protocol_and_of_few_hosts_its_source_as_category():
    assert table_of().category.tolist() == [
        *("tcp from 10.0.0.1", "tcp from 10.0.0.2", "tcp from 10.0.0.1"),
        *("udp from 10.0.0.1", "tcp from 10.0.0.1", "tcp from 10.0.0.1"),
    ]
    many = [f"10.0.{i}.1" for i in range(33)]
    columns = {
        name: [*values[:1]] * 33
        for name, values in COLUMNS.items()
        if name not in ("source", "protocol")
    }
    categories = table_of(source=many, protocol=[1, 6, 253] * 11, **columns).category.tolist()
    assert categories == ["icmp", "tcp", "protocol 253"] * 11
    assert table_of(SPEC, without=("protocol",)).category is None
