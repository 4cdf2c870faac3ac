# SPDX-License-Identifier: Apache-2.0
"""Units of times that the other columns of a table contradict."""

import csv
import lzma
import random
from pathlib import Path

import pyarrow.csv as arrow
import pytest

from n3ic.data.user_table import describe
from n3ic.dataframes import table_sheet
from n3ic.errors import DataError

HEADER = (
    "src_ip,dst_port,flow_duration,flow_byts_s,flow_pkts_s,tot_fwd_pkts,tot_bwd_pkts,"
    "totlen_fwd_pkts,totlen_bwd_pkts,flow_iat_mean,flow_iat_max,fwd_iat_tot,label"
)


def cells(count, tick=1.0, seed=0):
    """Rows of Python's cicflowmeter, whose times are in seconds over ``tick``."""
    rng = random.Random(seed)
    for i in range(count):
        forward, backward = rng.randrange(1, 30), rng.randrange(30)
        packets = forward + backward
        seconds = 0.0 if packets == 1 else 10 ** rng.uniform(-3, 2)
        ahead, back = forward * rng.randrange(1500), backward * rng.randrange(1500)
        rate = packets / seconds if seconds else "inf"
        octets = (ahead + back) / seconds if seconds else "inf"
        gap = seconds / (packets - 1) if packets > 1 else 0
        times = [f"{t / tick:.9g}" for t in (gap, gap * 1.5, seconds)]
        yield [
            "10.0.0.1", 80, f"{seconds / tick:.9g}", octets, rate, forward, backward, ahead, back,
            *times, "ab"[i % 2],
        ]  # fmt: skip


def written(path, rows, header=HEADER, left_out=()):
    names = header.split(",")
    places = [i for i, name in enumerate(names) if name not in left_out]
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow([names[i] for i in places])
        writer.writerows([row[i] for i in places] for row in rows)
    return path


@pytest.mark.parametrize(
    ("left_out", "evidence"),
    [
        ((), "flow_byts_s times flow_duration is 1/1,000,000 of"),
        (("flow_byts_s", "totlen_fwd_pkts"), "flow_pkts_s times flow_duration is 1/1,000,000 of"),
        (
            ("flow_byts_s", "tot_fwd_pkts", "tot_bwd_pkts", "totlen_fwd_pkts"),
            "less than 0.01 packets",
        ),
    ],
)
def test_seconds_under_names_of_microseconds_are_a_contradiction(tmp_path, left_out, evidence):
    path = written(tmp_path / "t.csv", cells(200), left_out=left_out)
    with pytest.raises(DataError, match="flow_duration is in us by its name, but in s") as caught:
        describe(path, "label")
    assert evidence in str(caught.value)
    assert 'time_unit = "s" or "us" under [table]' in str(caught.value)
    with pytest.raises(DataError, match="flow_duration is in us by its name, but in s"):
        describe(table_sheet(arrow.read_csv(path)), "label")


def test_times_without_a_rate_are_compared_with_each_other(tmp_path):
    rows = list(cells(200, 1e-6))
    for row in rows:
        row[2] = float(row[2]) / 1e6
    path = written(tmp_path / "t.csv", rows, left_out=("flow_byts_s", "flow_pkts_s"))
    with pytest.raises(DataError, match=r"1/1,000,000 of flow_iat_mean times \(\(tot_fwd_pkts"):
        describe(path, "label")


@pytest.mark.parametrize(
    ("text", "unit", "scale", "gap"),
    [
        ('[table]\ntime_unit = "s"\n', "s", 1e6, "s"),
        ('[table]\ntime_unit = "us"\n', "us", 1e3, "us"),
        ('[columns.flow_duration]\nsource_unit = "s"\n', "s", 1e6, "us"),
    ],
)
def test_columns_toml_settles_it(tmp_path, text, unit, scale, gap):
    path = written(tmp_path / "t.csv", cells(200))
    (tmp_path / "columns.toml").write_text(text)
    columns = describe(path, "label")[0].toml["columns"]
    entry = columns["flow_duration"]
    assert (entry["source_unit"], entry["scale"]) == (unit, scale) or unit == "us"
    assert columns["flow_iat_mean"].get("source_unit", columns["flow_iat_mean"]["unit"]) == gap
    if unit == "s":
        table = describe(path, "label")[0].load(path)
        wanted = [round(float(row[2]) * 1e6) for row in cells(200)]
        assert table.features["flow_duration"].tolist() == pytest.approx(wanted, abs=1)


def test_an_unknown_unit_of_time_is_refused(tmp_path):
    path = written(tmp_path / "t.csv", cells(50))
    (tmp_path / "columns.toml").write_text('[table]\ntime_unit = "minutes"\n')
    with pytest.raises(DataError, match=r"time_unit of .table. is one of s, ms, us, ns"):
        describe(path, "label")


def test_right_units_and_too_few_rows_are_no_contradiction(tmp_path):
    for tick, count in ((1e-6, 200), (1.0, 8)):
        own, _ = describe(written(tmp_path / "t.csv", cells(count, tick)), "label")
        assert own.toml["columns"]["flow_duration"].get("source_unit", "us") == "us"
    header = HEADER.replace("flow_duration", "dur").replace("flow_iat", "iat")
    for tick, wrong in ((1.0, False), (1e-3, True), (1e-6, True)):
        path = written(tmp_path / "t.csv", cells(200, tick), header)
        if wrong:
            with pytest.raises(DataError, match=r"dur is in s by its name, but in [mu]s"):
                describe(path, "label")
        else:
            describe(path, "label")


REAL = Path(__file__).resolve().parents[3] / "shared/data"
KNOWN = (
    "cic_ids2017/cic-ids2017-workload2.csv.xz",
    "iscx_tor2016/Scenario-B-merged_5s.csv.xz",
    "unsw_nb15/UNSW_NB15_training-set.first-5000.csv.xz",
    "unsw_iot/unsw-iot-workload1.csv",
    "pcaps/flows_expected.csv",
)


@pytest.mark.first_case
@pytest.mark.parametrize("name", KNOWN)
def test_real_tables_do_not_contradict_themselves(name, tmp_path):
    if not (REAL / name).is_file():
        pytest.skip(f"{name} is not here")
    text = (REAL / name).read_bytes()
    text = lzma.decompress(text) if name.endswith(".xz") else text
    path = tmp_path / "t.csv"
    path.write_bytes(text)
    assert describe(path)[1]
