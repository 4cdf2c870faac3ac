# SPDX-License-Identifier: Apache-2.0
"""Figures over the queues, and the replay."""

import json
from dataclasses import replace

import numpy as np
import pytest

from n3ic.data.split import split
from n3ic.datasets.ns3_tomography import DATASET, report
from n3ic.datasets.ns3_tomography.baselines import best_cut, delay_baselines
from n3ic.datasets.ns3_tomography.replay import heat_map, replay, write_replay
from n3ic.datasets.ns3_tomography.table import queue_tables
from n3ic.errors import UsageError
from n3ic.model.bits import unpack
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.targets.batch import export_item, export_plan
from n3ic.targets.colocation_report import write_set_report
from n3ic.usecases.base import set_tables


def figures(shape=(32, 16), accuracies=(0.9, 0.95, 0.91)):
    return [
        report.QueueFigures(f"q{i}", shape, a, 0.8, 0.85, a + 0.01, 676, 21632)
        for i, a in enumerate(accuracies)
    ]


def detector(feature="owd_tor0", cut=50, classes=("free", "congested")):
    """A network of one bit: congested where the delay reaches the cut."""
    weights = np.array([[False], [True]])
    spec = InputSpec((Field.thermometer(feature, [cut]),))
    return BinaryModel(spec, (), OutputLayer(weights, bias=np.zeros(2, np.int32)), classes)


def test_medians_and_table_5():
    both = figures() + figures((64, 32), (0.8, 0.81, 0.99))
    summary = report.summary(both)
    assert summary["32-16-2"]["median_accuracy"] == 0.91
    assert summary["64-32-2"]["median_accuracy"] == 0.81
    assert summary["32-16-2"]["median_gain_over_majority"] == pytest.approx(0.06)
    text = report.table5(both)
    assert "| 32-16-2 | 21,632 B | 676 B | 92.0 % | **91.0 %** |" in text


def test_mean_worst_queue_core_and_baselines_without_a_network():
    own = [
        report.QueueFigures("tor0_server0", (32, 16), 0.99, 0.9, 0.9, None, 676, 21632, 0.98, 0.97),
        report.QueueFigures("tor1_agg0", (32, 16), 0.90, 0.9, 0.7, None, 676, 21632, 0.75, 0.91),
        report.QueueFigures("agg2_core0", (32, 16), 0.93, 0.9, 0.88, None, 676, 21632, 0.88, 0.93),
        report.QueueFigures("core0_agg1", (32, 16), 0.95, 0.9, 0.90, None, 676, 21632, 0.90, 0.92),
    ]
    summary = report.summary(own)["32-16-2"]
    assert summary["mean_accuracy"] == pytest.approx(0.9425)
    assert (summary["min_accuracy"], summary["worst_queue"]) == (0.90, "tor1_agg0")
    assert summary["median_one_cut"] == pytest.approx(0.89)
    assert (summary["min_one_cut"], summary["better_than_one_cut"]) == (0.75, 4)
    assert summary["mean_logistic"] == pytest.approx(0.9325)
    assert summary["better_than_logistic"] == 2
    assert summary["core"]["queues"] == ["agg2_core0", "core0_agg1"]
    assert summary["core"]["median_accuracy"] == pytest.approx(0.94)
    assert summary["core"]["median_majority"] == pytest.approx(0.89)
    row = report.table5(own).splitlines()[2]
    assert "| 94.3 % | 90.0 % (tor1_agg0) | 94.0 % |" in row
    assert row.endswith("| 89.0 % | 92.5 % | 92.0 % | 90.0 % |")


def test_one_cut_is_the_best_of_all_and_fitted_to_training_rows_alone():
    rng = np.random.default_rng(0)
    for _ in range(50):
        column = rng.integers(0, 6, 12)
        congested = rng.random(12) < 0.4
        cut, right = best_cut(column, congested)
        every = [float(((column > c) == congested).mean()) for c in range(-1, 7)]
        assert right == max(every) == float(((column > cut) == congested).mean())
    table = queue_tables(DATASET.load().rows(np.arange(4000)), "0")["tor0_server0"]
    baselines = delay_baselines(table, "time", 0)
    test = split(table, "time", 0).test
    verdicts = table.features[baselines.cut.delay][test] > baselines.cut.above
    assert baselines.cut.accuracy == (verdicts == (table.label[test] == 1)).mean()
    assert min(baselines.cut.accuracy, baselines.logistic) > 1 - table.label[test].mean()
    flipped = replace(table, label=np.where(np.isin(np.arange(4000), test), 1, table.label))
    again = delay_baselines(flipped, "time", 0)
    assert (again.cut.delay, again.cut.above) == (baselines.cut.delay, baselines.cut.above)


def test_box_plot_has_a_box_a_shape():
    axes = report.box_figure(figures() + figures((64, 32))).axes[0]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["32-16-2", "64-32-2"]


def test_probe_budgets_are_those_of_the_whole_set():
    def of(latency_ns, refused=None, problems=()):
        together = {
            "latency_ns": latency_ns,
            "latency_kind": None if latency_ns is None else "estimated",
            "problems": problems,
        }
        return {"networks": 17, "refused": refused or {}, "together": together}

    summary = {
        "a": of(34e3), "b": of(2.9e6), "c": of(None), "d": of(10.0, {"too large": 1}),
        "e": of(10.0, problems=("too much",)),
        "f": {"networks": 0, "refused": {"too large": 17}, "together": None},
    }  # fmt: skip
    budgets = {row["target"]: row for row in report.probe_budget(summary)}
    links = ("40 Gb/s", "100 Gb/s", "400 Gb/s")
    assert [budgets["a"][link] for link in links] == [True, True, False]
    assert budgets["a"]["set_us"] == 34
    assert [budgets["b"][link] for link in links] == [False] * 3
    assert [budgets["e"][link] for link in links] == [False] * 3
    for unknown in "cdf":
        assert [budgets[unknown][link] for link in links] == [None] * 3


def test_a_set_is_exported_with_its_probe_budgets(tmp_path):
    models = {"tor0_server0": detector(), "tor1_agg0": detector(cut=60)}
    plan = export_plan(tmp_path, models, "nfp", tmp_path / "out", {})
    done = [export_item(item, verify=False) for item in plan]
    page = write_set_report(done, set_tables({"use_case": "tomography"}))
    assert "## Probe budgets" in page.read_text()
    data = json.loads((tmp_path / "out" / "set.json").read_text())
    (rows,) = data["tables"].values()
    assert [r["target"] for r in rows] == ["nfp"]
    assert rows[0]["40 Gb/s"] is True
    assert data["targets"]["nfp"]["networks"] == 2
    assert rows[0]["set_us"] == data["targets"]["nfp"]["together"]["latency_ns"] / 1000


@pytest.mark.parametrize("name", ["heat.png", "heat.csv"])
def test_a_replay_is_written(tmp_path, name):
    table = DATASET.load()
    lines = write_replay({"tor1_agg0": detector()}, table, tmp_path / name, 10.0, last=20)
    truth = (table.occupancy["tor1_agg0"][-20:] > 40).mean()
    assert lines[0] == "20 intervals, 1 queues"
    assert f"{truth:.1%} in truth" in lines[1]
    written = (tmp_path / name).read_bytes()
    assert written.startswith(b"\x89PNG" if name.endswith("png") else b"interval,tor1_agg0\n")


def test_a_replay_refuses_other_files(tmp_path):
    with pytest.raises(UsageError, match=r"\.csv"):
        write_replay({}, DATASET.load(), tmp_path / "x.pdf", 10.0)


def test_replay_says_what_the_networks_say(tmp_path):
    table = DATASET.load().rows(np.arange(200))
    (tmp_path / "models").mkdir()
    for queue, cut in (("tor1_agg0", 60), ("tor0_server0", 50)):
        detector(cut=cut).save(tmp_path / "models" / f"{queue}.n3ic")
    shown = replay(tmp_path, table)
    assert shown.queues == ("tor0_server0", "tor1_agg0")
    assert np.array_equal(shown.congested[:, 0], table.features["owd_tor0"] >= 50)
    assert np.array_equal(shown.congested[:, 1], table.features["owd_tor0"] >= 60)
    assert (shown.margins == 1).all()
    figure = heat_map(shown, truth=~shown.congested)
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == list(shown.queues)
    assert unpack(detector().encode(table.features), 1).shape == (200, 1)


def test_replay_refuses_networks_of_another_use_case():
    with pytest.raises(UsageError, match="benign, attack"):
        replay({"x": detector(classes=("benign", "attack"))}, DATASET.load())
