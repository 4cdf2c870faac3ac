# SPDX-License-Identifier: Apache-2.0
"""Packet sequences: each format, damaged files, and features that equal those of the meter."""

import json
import struct

import numpy as np
import pytest

import n3ic
from n3ic.data.dataset import data_set_of
from n3ic.datasets.packet_sequences import DOH_TUNNELS
from n3ic.datasets.packet_sequences.features import log_codes
from n3ic.datasets.packet_sequences.formats import read_sequences
from n3ic.datasets.packet_sequences.loader import load_sequences
from n3ic.errors import DataError, UsageError
from n3ic.meter.packet import LINK_ETHERNET, parse
from n3ic.meter.reference import ReferenceMeter
from n3ic.model.meter_spec import log_code

TUNNELS = DOH_TUNNELS


def frames(number, lengths, times):
    """TCP packets of a flow with these signed lengths, captured without their payload."""
    client, server = bytes([10, 0, number >> 8, number & 255]), bytes([10, 9, 9, 9])
    for length, time in zip(lengths, times, strict=True):
        ends, ports = (
            ((client, server), (5000, 443)) if length > 0 else ((server, client), (443, 5000))
        )
        head = struct.pack(">BBHHHBBH", 0x45, 0, abs(length), 0, 0, 64, 6, 0)
        tcp = struct.pack(">HHIIBBHHH", *ports, 0, 0, 0x50, 16, 0, 0, 0)
        yield bytes(12) + b"\x08\0" + head + b"".join(ends) + tcp, abs(length) + 14, time


def metered(spec, file):
    """Features of the reference meter for each flow and packet of its decision."""
    packets = [
        (time, number, frame, length)
        for number, (lengths, times) in enumerate(zip(file.lengths, file.times, strict=True))
        for frame, length, time in frames(
            number, lengths[lengths != 0].tolist(), times[lengths != 0].tolist()
        )
    ]
    packets.sort(key=lambda p: p[0])
    out = {}
    for record in ReferenceMeter(spec).run(
        parse(LINK_ETHERNET, frame, length, time) for time, _, frame, length in packets
    ):
        number = int.from_bytes(record.key.source[2:], "big")
        ended = record.decided == "capture" and len(spec.decision.schedule) > 1
        out[number, 0 if ended or not spec.decision.schedule else record.packets] = record.features
    return out


@pytest.mark.slow
@pytest.mark.parametrize("packets", [(8,), (4, 30)])
def test_features_are_those_that_the_meter_computes(packets):
    table = TUNNELS.load_at(None, packets)
    (file,) = read_sequences(TUNNELS.folder / "doh-tunnels.csv.xz")
    want = metered(table.meter, file)
    flow = np.arange(len(table)) if table.flow is None else table.flow
    point = np.zeros(len(table), int) if table.point is None else table.point
    assert len(want) == len(table)
    for row, key in enumerate(zip(flow.tolist(), point.tolist(), strict=True)):
        got = {name: int(values[row]) for name, values in table.features.items()}
        assert got == want[key], key


def test_the_embedded_flows_are_the_published_ones():
    table = TUNNELS.load()
    assert table.sha256 == "472c6185e9793e00a34aeef39e43fc78503acc5ff0553aa74a2b8436b2dc21a9"
    assert dict(zip(table.classes, np.bincount(table.label).tolist(), strict=True)) == {
        "benign": 300, "dns2tcp": 100, "dnscat2": 100, "iodine": 100,
    }  # fmt: skip
    assert len(table.features) == 15
    assert table.meter.decision.packets == 8


def test_logarithms_are_those_of_the_meter():
    edges = [(1 << e) + d for e in range(48) for d in (-1, 0, 1) if (1 << e) + d < 1 << 48]
    assert log_codes(np.array(edges)).tolist() == [log_code(v) for v in edges]


SIZES, WAYS, GAPS = [60, 1500, 52], [1, -1, 1], [0, 21, 3]
CERTTA = [
    {"direction_length": [60, -1500, 52], "timestamp": [7.5, 7.521, 7.524], "label": 3},
    {"direction_length": [-61], "timestamp": [1e9], "label": 4},
]
SPLT = (
    "id,splt_direction,splt_ps,splt_piat_ms,application_name\n"
    '0,"[0, 1, 0, -1]","[60, 1500, 52, -1]","[0, 21, 3, -1]",TLS\n'
    '1,"[0, -1, -1, -1]","[61, -1, -1, -1]","[0, -1, -1, -1]",DNS\n'
)
PPI = (
    'ID,PPI,APP\n0,"[[0, 21, 3], [1, -1, 1], [60, 1500, 52]]",mail\n1,"[[0], [1], [61], [1]]",dns\n'
)
PLAIN = "flow,label,packets,lengths,times_us\n0,a,3,60 -1500 52,0 21000 24000\n1,b,1,-61,0\n"
WRITTEN = {"a.json": json.dumps(CERTTA, indent=1), "s.csv": SPLT, "p.csv": PPI, "l.csv": PLAIN}


@pytest.mark.parametrize("name", WRITTEN)
def test_each_format_gives_the_same_flows(tmp_path, name):
    (tmp_path / name).write_text(WRITTEN[name])
    (file,) = read_sequences(tmp_path / name)
    assert np.abs(file.lengths[:, :4]).tolist() == [[60, 1500, 52, 0], [61, 0, 0, 0]]
    assert (file.times[0, :3] * file.format.tick_ns).tolist() == [0, 21_000_000, 24_000_000]
    table = load_sequences("it", tmp_path / name, (3,))
    assert [int(table.features[f"len_{k}"][0]) for k in (1, 2, 3)] == [2108, 548, 2100]
    assert [int(table.features[f"len_{k}"][1]) for k in (1, 2, 3)] == [
        2109,
        0,
        0,
    ]  # forward, always
    assert data_set_of(tmp_path / name).name == "packet-sequences"


def test_a_parquet_file_with_lists_is_read(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    rows = {"PPI": [[[0, 21, 3], WAYS, SIZES], [[0], [1], [61]]], "APP": ["mail", "dns"]}
    parquet.write_table(pa.table(rows), tmp_path / "x.parquet")
    (file,) = read_sequences(tmp_path / "x.parquet")
    assert file.lengths[0, :3].tolist() == [60, -1500, 52]
    assert data_set_of(tmp_path / "x.parquet").name == "packet-sequences"


def test_lengths_and_times_mean_what_the_meter_counts(tmp_path):
    for name, length, payload, tick in [
        ("a.json", "ip", "any", 1000),
        ("s.csv", "wire", "any", 1_000_000),
        ("p.csv", "payload", "some", 1_000_000),
    ]:
        (tmp_path / name).write_text(WRITTEN[name])
        spec = load_sequences("it", tmp_path / name, (2,)).meter
        register = spec.registers[0]
        assert register.field == f"directed_{length}_length"
        assert (register.guard.payload, spec.tick_ns) == (payload, tick)
        assert spec.idle_timeout * tick == 60_000_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "a list with an object for each flow"),
        ("[{}]", "no packet sequences"),
        ("[" * 100_000, "not JSON"),
        ('[{"direction_length": [1.5], "timestamp": [0], "label": 1}]', "flow 1: not a flow"),
        ('[{"direction_length": [5, 6], "timestamp": [0], "label": 1}]', "2 lengths and 1 times"),
        ('[{"direction_length": [], "timestamp": [], "label": 1}]', "flow 1"),
        ('[{"direction_length": [0], "timestamp": [0], "label": 1}]', "length is not in"),
        ('[{"direction_length": [9], "timestamp": ["x"], "label": 1}]', "not a flow"),
        ('[{"direction_length": {}, "timestamp": 3, "label": 1}]', "not a flow"),
        ('[{"direction_length": [1e999], "timestamp": [0], "label": 1}]', "not a flow"),
        ('[{"direction_length": [7, 7], "timestamp": [0, 1e300], "label": 1}]', "flow"),
        (SPLT.replace("[0, 1, 0, -1]", "[0, 1]"), "flow 1: not a flow"),
        (SPLT.replace("[0, 1, 0, -1]", "__import__('os')"), "flow 1: not a flow"),
        (PPI.replace("[1, -1, 1], ", ""), "flow 1: not a flow"),
        (PLAIN.replace("60 -1500 52", "60 x 52"), "flow 1: not a flow"),
        (PLAIN.replace("0,a,3", "0,,3"), "a label"),
        (PLAIN.partition("\n")[0], "no flow"),
        (PLAIN.replace(",b,", ",a,"), "two or more"),
    ],
)
def test_damaged_files_are_refused_by_flow(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        load_sequences("it", tmp_path / "x.csv", (8,))


def test_files_whose_lengths_differ_are_not_mixed(tmp_path):
    for name in ("a.json", "s.csv"):
        (tmp_path / name).write_text(WRITTEN[name])
    with pytest.raises(DataError, match="one format"):
        load_sequences("it", tmp_path, (8,))


@pytest.mark.parametrize("packets", [(0,), (33,), (8, 4), (8, 8)])
def test_packets_are_increasing_and_in_range(packets):
    with pytest.raises(UsageError, match=r"1\.\.32"):
        TUNNELS.load_at(None, packets)


@pytest.mark.parametrize(
    ("dataset", "packets", "message"),
    [("iscx-tor2016", "8", "no packet sequences"), ("doh-tunnels", "4,x", "numbers such as")],
)
def test_packets_are_said_of_data_sets_of_sequences(tmp_path, dataset, packets, message):
    with pytest.raises(UsageError, match=message):
        n3ic.train(
            "classification",
            dataset=dataset,
            options={"packets": packets},
            out=tmp_path / "run",
        )
