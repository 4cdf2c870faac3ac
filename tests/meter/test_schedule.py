# SPDX-License-Identifier: Apache-2.0
"""Flows that are decided at several packets: their rows, their split, one network for all."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from n3ic.cli.main import command_line
from n3ic.data.split import split
from n3ic.errors import DataError, MissingDependencyError, N3icError
from n3ic.evaluation.held_out import held_out
from n3ic.meter.capture import libpcap
from n3ic.meter.extract import extract
from n3ic.meter.labels import read_labels
from n3ic.meter.standard import standard_spec
from n3ic.meter.table import flow_table, load_flows, read_table
from n3ic.meter.verdicts import predict_capture
from n3ic.model.meter_spec import Decision
from n3ic.model.network import BinaryModel
from n3ic.targets.fuzz_traffic import pcap
from n3ic.usecases.request import TrainRequest
from n3ic.usecases.training import train_use_case
from tests.support.conversations import flows_of
from tests.support.metered_models import page_schedule
from tests.support.traffic import labelled_capture

try:
    libpcap()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)
FLOWS = 120
SPEC = standard_spec(schedule=(1, 3, 8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A capture of flows of 2 and of 16 packets, its labels, and the table of a schedule."""
    there = tmp_path_factory.mktemp("schedule")
    capture, labels = labelled_capture(FLOWS)
    (there / "c.pcap").write_bytes(capture)
    (there / "labels.csv").write_bytes(labels)
    label_table = read_labels(there / "labels.csv", "table")
    extract([there / "c.pcap"], there / "flows.parquet", SPEC, labels=label_table)
    return there


def command(*words):
    app = command_line([str(word) for word in words])
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False).stdout


@pytest.mark.slow
def test_the_command_writes_a_row_for_each_decision(folder, tmp_path):
    out = tmp_path / "f.parquet"
    labels = ("--labels", folder / "labels.csv")
    output = command(
        "data", "extract", folder / "c.pcap", "--packets", "1,3,8,end", *labels, "--out", out
    )
    assert out.read_bytes() == (folder / "flows.parquet").read_bytes()
    rows = pyarrow.parquet.read_table(out).to_pylist()
    assert f"{len(rows)} decisions ->" in output
    of = {}
    for row in rows:
        of.setdefault(row["source"], []).append((row["packets"], row["decided"]))
    assert {tuple(decisions) for decisions in of.values()} == {
        ((1, "packets"), (2, "capture")),
        ((1, "packets"), (3, "packets"), (8, "packets"), (16, "fin")),
    }


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("end", Decision()),
        ("0", Decision()),
        pytest.param("6", Decision(6), marks=pytest.mark.slow),
        ("6,end", Decision(schedule=(6,))),
    ],
)
def test_one_packet_is_decided_once_and_one_and_the_end_twice(folder, tmp_path, typed, decision):
    out = tmp_path / "f.parquet"
    command("data", "extract", folder / "c.pcap", "--packets", typed, "--out", out)
    wanted = tmp_path / "wanted.parquet"
    extract([folder / "c.pcap"], wanted, replace(standard_spec(), decision=decision))
    assert out.read_bytes() == wanted.read_bytes()


@pytest.mark.parametrize("typed", ["3,8", "3,end,8", "end,3", "8,3,end", "3,3,end", "x", "", "-1"])
def test_points_that_do_not_rise_are_no_schedule(folder, tmp_path, typed):
    words = ["data", "extract", folder / "c.pcap", "--packets", typed, "--out", tmp_path / "f.csv"]
    with pytest.raises(N3icError, match=r"expected|increasing packets"):
        command(*words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("protocol", ["random", "conversation"])
def test_no_flow_is_on_two_sides(folder, protocol):
    table = load_flows(folder / "flows.parquet")
    assert table.flow is not None
    assert table.point is not None
    assert len(np.unique(table.flow)) == FLOWS
    assert dict(zip(*np.unique(table.point, return_counts=True), strict=True)) == {
        0: FLOWS,
        1: FLOWS,
        **dict.fromkeys((3, 8), (table.point == 8).sum()),
    }
    for seed in range(3):
        parts = split(table, protocol, seed)
        sides = [{*table.flow[rows]} for rows in (parts.train, parts.validation, parts.test)]
        assert sum(map(len, sides)) == FLOWS
        assert len(parts.test) > len(sides[2]) > 0


def test_a_flow_of_many_packets_has_a_few_rows_of_one_conversation(tmp_path):
    """So it does not outweigh the others: a row for each point that it reaches, and the end."""
    points, packets = page_schedule(), (1, 2, 100, 2, 12_000, 1)
    capture = pcap(1, flows_of(packets), 1000, "<")
    (tmp_path / "c.pcap").write_bytes(capture)
    (tmp_path / "labels.csv").write_text("network,label\n10.0.0.0/8,honest\n")
    labels = read_labels(tmp_path / "labels.csv", "hosts")
    spec = standard_spec(schedule=points)
    extract([tmp_path / "c.pcap"], tmp_path / "flows.parquet", spec, labels=labels)
    table = load_flows(tmp_path / "flows.parquet")
    for of in (table.flow, table.conversation):
        assert of is not None
        rows = np.bincount(of)
        assert sorted(rows) == sorted(1 + sum(p <= n for p in points) for n in packets)
        assert rows.max() == 8


def test_a_time_counts_as_the_first_point_and_a_repeated_decision_has_none(folder, tmp_path):
    rows = read_table(folder / "flows.parquet")
    why = rows.column_names.index("decided")
    timed = rows["decided"].to_pylist()
    timed[timed.index("packets")] = "after"
    renamed = rows.set_column(why, "decided", [timed])
    point = flow_table("t", renamed, SPEC, sha256="").point
    assert point is not None
    assert point[timed.index("after")] == 1
    again = replace(SPEC, decision=Decision(1, repeat=True))
    table = flow_table("t", rows, again, sha256="")
    assert table.point is None
    assert table.flow is not None
    assert len(np.unique(table.flow)) == FLOWS
    once = flow_table("t", rows, standard_spec(), sha256="")
    assert once.flow is None
    assert once.point is None
    with pytest.raises(DataError, match="the column 'first_us' is missing"):
        flow_table("t", rows.drop_columns("first_us"), SPEC, sha256="")


@pytest.mark.slow
def test_one_network_is_trained_for_all_points_and_decides_at_them(
    folder, tmp_path, small_baselines
):
    training = {"hidden": (8,), "epochs": 2, "polish": 0}
    request = TrainRequest(
        "flows",
        data=folder / "flows.parquet",
        protocol="random",
        out=tmp_path / "run",
        overrides={**training, "bits": 32},
    )
    run = train_use_case(request)
    model = BinaryModel.load(tmp_path / "run" / "model.n3ic")
    assert model.meter == SPEC
    holdout = held_out(model, load_flows(folder / "flows.parquet"))
    points = json.loads((tmp_path / "run" / "metrics.json").read_bytes())["by_packet"]
    assert [p["packet"] for p in points] == [1, 3, 8, 0]
    assert points[0]["flows"] == points[3]["flows"] > points[1]["flows"] == points[2]["flows"] > 0
    right = sum(p["accuracy"] * p["flows"] for p in points)
    assert right == pytest.approx(holdout.right.sum())
    assert right / len(holdout.rows) == pytest.approx(run.metrics["test"]["accuracy"])
    page = (tmp_path / "run" / "report.md").read_text()
    assert "| decided at packet | test flows | accuracy | macro F1 |" in page
    assert f"| end | {points[3]['flows']} |" in page
    verdicts = predict_capture(model, folder / "c.pcap", None)
    assert verdicts.rows == len(pyarrow.parquet.read_table(folder / "flows.parquet"))
