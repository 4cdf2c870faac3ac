# SPDX-License-Identifier: Apache-2.0
"""Tomography as a person types it: train, replay, export together."""

import json
from importlib.resources import as_file, files

import numpy as np
import pytest

from n3ic.datasets import ns3_tomography
from n3ic.datasets.ns3_tomography.trace import ProbeTrace, read
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel, OutputLayer
from tests.support.command_line import n3ic

ROWS = 1500


@pytest.fixture(scope="module")
def place(tmp_path_factory, small_baselines, small_pictures_of_runs):
    """A folder with a run of two queues on the bundled trace's first seconds."""
    folder = tmp_path_factory.mktemp("tomography")
    with as_file(files(ns3_tomography).joinpath(ns3_tomography.BUNDLED)) as path:
        whole = read(path).trace
    run = whole.header["runs"][0] | {"rows": ROWS}
    part = ProbeTrace(whole.header | {"runs": [run]}, whole.delays[:ROWS], whole.occupancy[:ROWS])
    part.save(folder / "half.tomo.xz")
    words = (
        "train tomography --data half.tomo.xz --queue 0,tor1_agg0 --epochs 3 --hidden 16-8 "
        "--shapes 8,16-8 --jobs 1"
    )
    done = n3ic(*words.split(), cwd=folder)
    assert "6 networks (time and random split)" in done.stderr
    assert "random split: median accuracy" in done.stdout
    return folder


@pytest.mark.slow
def test_a_run_holds_every_queue_beside_its_baselines(place):
    run = place / "runs" / "tomography"
    metrics = json.loads((run / "metrics.json").read_text())
    assert set(metrics["queues"]) == {"tor0_server0", "tor1_agg0"}
    for name, queue in metrics["queues"].items():
        assert (run / "models" / f"{name}.n3ic").is_file()
        assert queue["model"]["shape"] == [152, 16, 8, 2]
        baselines = queue["baselines"]
        assert queue["test"]["accuracy"] > baselines["majority"]["accuracy"]
        assert queue["test"]["macro_f1"] > 0.7
        assert {"majority", "float_mlp", "hist_gradient_boosting"} <= set(baselines)
    assert set(metrics["protocols"]) == {"time", "random"}
    assert metrics["protocols"]["time"]["test"] == metrics["test"]


@pytest.mark.exhaustive
def test_the_shapes_that_were_asked_for_are_compared(place):
    run = place / "runs" / "tomography"
    shapes = json.loads((run / "metrics.json").read_text())["shapes"]
    assert list(shapes) == ["16-8-2", "8-2"]
    assert {s["queues"] for s in shapes.values()} == {2}
    assert shapes["8-2"]["weight_bytes"] == (152 * 8 + 8 * 2) // 8
    assert all(s["median_float_mlp"] > s["median_majority"] for s in shapes.values())
    assert all(min(s["min_logistic"], s["min_one_cut"]) > 0.5 for s in shapes.values())
    page = (run / "table5.md").read_text()
    assert [line.split()[1] for line in page.splitlines()[2:]] == ["8-2", "16-8-2"]
    for picture in ("queues.png", "congestion.png"):
        assert (run / "plots" / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.exhaustive
def test_the_words_in_a_run_make_it_again(place):
    options = json.loads((place / "runs" / "tomography" / "options.json").read_text())
    # In this process, as the first run: other processes have baselines of full size.
    n3ic(*options["command"][1:], "--jobs", "1", "--out", "again", cwd=place)
    for name in ("tor0_server0", "tor1_agg0"):
        first, second = (
            (place / run / "models" / f"{name}.n3ic").read_bytes()
            for run in ("runs/tomography", "again")
        )
        assert first == second


@pytest.mark.parametrize("shapes", ["32x16", "0-4", "8,,8", "papers"])
def test_shapes_that_are_none_are_said(tmp_path, shapes):
    done = n3ic("train", "tomography", "--shapes", shapes, cwd=tmp_path, expect=2)
    assert "--shapes: expected paper, own or hidden layers as 32-16,64-32" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_networks_of_any_run_answer_on_the_bundled_trace(tmp_path):
    """A network of one bit: congested where the delay reaches the cut."""
    output = OutputLayer(np.array([[False], [True]]), bias=np.zeros(2, np.int32))
    spec = InputSpec((Field.thermometer("owd_tor0", [50]),))
    (tmp_path / "run" / "models").mkdir(parents=True)
    model = BinaryModel(spec, (), output, ("free", "congested"))
    model.save(tmp_path / "run" / "models" / "tor1_agg0.n3ic")
    metrics = {"version": 1, "use_case": "tomography"}
    (tmp_path / "run" / "metrics.json").write_text(json.dumps(metrics))
    words = ("replay", "--model", "run", "--last", 20, "--out", "answers.csv")
    assert n3ic(*words, cwd=tmp_path).stdout.startswith("20 intervals, 1 queues\n")
    assert (tmp_path / "answers.csv").read_text().startswith("interval,tor1_agg0\n")
    assert "exists" in n3ic(*words, cwd=tmp_path, expect=2).stderr


@pytest.mark.slow
def test_a_replay_is_drawn_and_told(place):
    done = n3ic("replay", "half.tomo.xz", "--last", 100, "--out", "heat.png", cwd=place)
    assert done.stdout.startswith("100 intervals, 2 queues\n")
    assert (place / "heat.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_networks_are_exported_together(place):
    n3ic("export", "-t", "host", "--out", "nic", cwd=place)
    data = json.loads((place / "nic" / "set.json").read_text())
    assert data["targets"]["host"]["networks"] == 2
    assert {"tor0_server0", "tor1_agg0"} == {
        p.name for p in (place / "nic").iterdir() if p.is_dir()
    }
    assert (
        "250 us at 40 Gb/s, 100 us at 100 Gb/s, 25 us at 400 Gb/s"
        in (place / "nic" / "set.md").read_text()
    )
    assert "equal scores" in n3ic("verify", "nic/tor0_server0", cwd=place).stdout
