# SPDX-License-Identifier: Apache-2.0
"""Accuracy by the packet at which flows are decided: the same flows, and what is written."""

import json

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from n3ic.cli.data import packets_of
from n3ic.cli.main import command_line
from n3ic.datasets.upc_aau import DATASET
from n3ic.errors import DataError, UsageError
from n3ic.meter.labels import read_labels
from n3ic.meter.standard import standard_spec
from n3ic.meter.verdicts import predict_capture
from n3ic.model.network import BinaryModel
from n3ic.studies.decide.comparison import AT_END, DecisionRequest, _same_flows, compare_decisions
from n3ic.training.recipe import Recipe, Training

QUICK = Recipe("quick", "", bits=32, training=Training(hidden=(8,), epochs=1))


@pytest.fixture(scope="module")
def capture(tmp_path_factory, compiler, small_baselines):
    folder = tmp_path_factory.mktemp("upc") / "data"
    DATASET.generate_file(folder, {"flows": 400, "seed": 3})
    return folder


@pytest.fixture(scope="module")
def comparison(capture, tmp_path_factory):
    return compare_decisions(request(capture, tmp_path_factory.mktemp("out") / "decide"))


def request(capture, out, **more):
    labels = read_labels(capture / "packets_default.info", "upc-aau")
    values = {
        "packets": (4, AT_END, 1),
        "recipe": QUICK,
        "out": out,
        "least": 40,
        "positive": "ssh",
    }
    captures = [capture / "packets_default.pcap"]
    return DecisionRequest(captures, labels, standard_spec(), **{**values, **more})


@pytest.mark.slow
def test_points_are_of_the_same_flows_and_later_ones_wait_longer(comparison):
    assert [point.name for point in comparison.points] == ["1", "4", "end"]
    assert comparison.points[0].reached == comparison.points[2].reached == 1
    assert 0 < comparison.points[1].reached < 1
    waits = [point.wait_us for point in comparison.points]
    assert waits[0] == 0 < waits[1] < waits[2]
    for point in comparison.points:
        assert len(point.test) == 1
        assert {"majority", "float_mlp", "hist_gradient_boosting"} <= point.baselines.keys()
        truth = [np.sum(e.confusion, axis=1).tolist() for e in point.test]
        assert truth == [np.sum(e.confusion, axis=1).tolist() for e in comparison.points[0].test]
        majority = [e.accuracy for e in point.baselines["majority"]]
        assert majority == [e.accuracy for e in comparison.points[0].baselines["majority"]]
    assert comparison.left_out["no label"] > 0
    assert any(reason.startswith("a class of fewer than 40") for reason in comparison.left_out)


@pytest.mark.slow
def test_one_network_for_all_points_is_tested_on_the_same_flows(comparison, capture):
    figures = json.loads((comparison.path / "decision.json").read_bytes())
    for point, figures_of_point in zip(comparison.points, figures["points"], strict=True):
        (one,), (own,) = point.one, point.test
        # each flow counts once at each point, where it has ended before with its last decision
        assert np.sum(one.confusion, axis=1).tolist() == np.sum(own.confusion, axis=1).tolist()
        assert figures_of_point["one"][0]["accuracy"] == one.accuracy > 0.5
    model = BinaryModel.load(comparison.path / "packets-all.n3ic")
    assert model.meter is not None
    assert model.meter.decision.schedule == (1, 4)
    assert "one network for all points" in (comparison.path / "decision.md").read_text()
    rows = predict_capture(model, capture / "packets_default.pcap", None).rows
    assert rows > 2 * comparison.flows


@pytest.mark.slow
def test_networks_are_written_and_decide_there(comparison, capture):
    for point in comparison.points:
        model = BinaryModel.load(comparison.path / f"packet-{point.name}.n3ic")
        assert model.meter is not None
        assert model.meter.decision.packets == point.packets
    verdicts = predict_capture(model, capture / "packets_default.pcap", None)
    assert verdicts.rows >= comparison.flows
    figures = json.loads((comparison.path / "decision.json").read_bytes())
    assert [p["packets"] for p in figures["points"]] == [1, 4, 0]
    assert (comparison.path / "decision.png").read_bytes().startswith(b"\x89PNG")
    report = (comparison.path / "decision.md").read_text()
    assert "| 1 | 100.0 % | 0 us |" in report
    assert f"{comparison.flows} synthetic flows of 2 classes" in report
    assert figures["synthetic"] is True


def table(rows):
    names = ("capture", "source", "source_port", "destination", "destination_port", "protocol")
    columns = {name: pa.array([1] * len(rows)) for name in names}
    columns |= {"first_us": pa.array([r[0] for r in rows]), "label": pa.array([r[1] for r in rows])}
    columns["feature"] = pa.array([r[2] for r in rows])
    return pa.table(columns)


def test_a_flow_that_is_not_everywhere_the_same_is_left_out():
    one = table([(3, "a", 0), (1, "b", 1), (2, "a", 2), (4, "", 3), (5, "b", 4), (5, "b", 5)])
    two = table([(1, "b", 6), (2, "b", 7), (3, "a", 8), (5, "b", 9), (9, "a", 9)])
    common_rows, left_out = _same_flows({1: one, 2: two}, 1)
    assert common_rows[1]["feature"].to_pylist() == [1, 0]
    assert common_rows[2]["feature"].to_pylist() == [6, 8]
    assert left_out == {
        "no label": 1,
        "the same key and time as another": 2,
        "another flow or label at another packet": 1,
    }
    with pytest.raises(DataError, match="0 classes with 2 flows or more among 2 labelled flows"):
        _same_flows({1: one, 2: two}, 2)


def test_decision_points_that_are_no_packet_numbers_are_refused():
    assert packets_of("1, 8,end") == (1, 8, AT_END)
    for text in ("0", "", "1,,2", "-1", "x", "1.5", "\u0663"):
        with pytest.raises(UsageError, match="expected numbers from 1 and 'end'"):
            packets_of(text)


@pytest.mark.slow
def test_the_command_prints_what_it_wrote(capture, tmp_path):
    out = tmp_path / "decide"
    words = ["decide", str(capture / "packets_default.pcap"), "--labels-format", "upc-aau"]
    words += ["--labels", str(capture / "packets_default.info"), "--packets", "2", "--json"]
    words += ["--least", "40", "--out", str(out), "--epochs", "1", "--hidden", "8", "--bits", "32"]
    words += ["--polish", "0", "--encoding", "boosted"]
    app = command_line(["decide"])
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    printed = json.loads(done.stdout)
    assert printed.pop("path") == str(out)
    assert printed == json.loads((out / "decision.json").read_bytes())
    assert printed["recipe"]["training"]["epochs"] == 1
    with pytest.raises(UsageError, match="exists"):
        CliRunner().invoke(app, words, catch_exceptions=False)
