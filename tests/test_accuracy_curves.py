# SPDX-License-Identifier: Apache-2.0
"""The curves of accuracy are drawn from all points, and only missing ones are trained."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from n3ic.datasets.ns3_tomography import DATASET
from n3ic.datasets.ns3_tomography.table import queue_tables
from n3ic.runs.preparation import Experiment, prepare

SCRIPT = Path(__file__).parent.parent / "scripts" / "accuracy_curves.py"
_spec = importlib.util.spec_from_file_location("accuracy_curves", SCRIPT)
curves = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(curves)


def point(axis, asked, seed, **test):
    return {
        "recipe": "default",
        "axis": axis,
        "asked": asked,
        "seed": seed,
        "shape": [4, 8, 2],
        "bytes": dict(zip(test, (14, 6, 90), strict=False)),
        "kept": "trained",
        "cuts": 4,
        "sites": 70,
        "validation": 0.9,
        "test": test,
    }


POINTS = [
    point("bits", 4, 1, binary=[0.90, 0.5], tree_same_cuts=[0.80, None], float_mlp=[0.93, 0.6]),
    point("bits", 4, 2, binary=[0.92, 0.5], tree_same_cuts=[0.80, None]),
    point("bytes", 16, 1, binary=[0.7, 0.5], tree=[0.8, 0.6], random_forest=[0.9, 0.9]),
    point("sites", "1x50", 1, forest=[0.95, 0.9]),
]


def test_means_and_deviations_stand_in_the_table():
    head, _, row, _ = curves.summary(POINTS, "default", "bits")
    assert head.split("|")[1].strip() == "default: input bits"
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[1:7] == ["4", "4-8-2", "14", "4", "70", "2"]
    assert cells[7:9] == ["91.00 +- 1.41 / 50.00 +- 0.00", "80.00 +- 0.00"]
    assert cells[9] == "93.00 / 60.00 (of 1)"


def test_a_picture_for_bits_bytes_and_sites_of_each_recipe():
    other = [{**p, "recipe": "published"} for p in POINTS]
    drawn = curves.figure(POINTS + other, {"default": "one tap", "published": "published"})
    pictures = drawn.axes
    assert len(pictures) == 6
    named = [list(a.get_legend_handles_labels()[1]) for a in pictures]
    assert named[0] == ["binary network", "tree of as many cuts", "float network"]
    forest = "random forest of 60 trees"
    assert {*named[2]} == {"binary network", "tree, packed", "float network", forest}
    assert {*named[4]} == {"binary network", "trees in look-up tables", forest}
    colours = [{c.get_label(): c.lines[0].get_color() for c in a.containers} for a in pictures]
    assert len({c["binary network"] for c in (colours[0], colours[2], colours[4])}) == 1
    (legend,) = drawn.legends
    assert {t.get_text() for t in legend.get_texts()} == {*named[0], *named[2], *named[4]}

    def places(axes):
        return {c.get_label(): list(c.lines[0].get_xdata()) for c in axes.containers}

    assert places(pictures[2]) == {
        "binary network": [14],
        "tree, packed": [6],
        "float network": [90],
    }
    assert places(pictures[4]) == {"binary network": [70], "trees in look-up tables": [70]}


def test_budgets_alone_are_one_row_of_pictures():
    drawn = curves.figure([p for p in POINTS if p["axis"] == "bytes"], {"default": "one tap"})
    (axes,) = drawn.axes
    assert axes.get_xlabel() == "bytes in total, cuts included"


def test_a_place_on_an_axis_is_what_the_command_line_trains():
    case = curves.use_case("classification")
    few, bytes_, forest = (
        curves.chosen_recipe(case, "default", *place, 3)
        for place in (("bits", 8), ("bytes", 100), ("sites", "2x30"))
    )
    assert (few.bits, few.training.method) == (8, "prototypes")
    assert bytes_.bits < 48
    assert (forest.training.trees, forest.training.leaves) == (2, 30)
    assert forest.bits == 512


@pytest.mark.slow
def test_what_is_there_is_not_trained_again(tmp_path, monkeypatch):
    def trained(*_):
        raise AssertionError("nothing is missing")

    monkeypatch.setattr(curves, "prepare", trained)
    (tmp_path / "points.jsonl").write_text("".join(json.dumps(p) + "\n" for p in POINTS[:2]))
    words = ["classification", str(tmp_path), "--bits", "4", "--bytes", "--forests"]
    monkeypatch.setattr(sys, "argv", ["accuracy_curves.py", *words, "--seeds", "1", "2"])
    assert curves.main() == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "91.00" in Path(tmp_path / "curves.md").read_text()
    monkeypatch.setattr(sys, "argv", ["accuracy_curves.py", *words, "--seeds", "1", "3"])
    with pytest.raises(AssertionError, match="nothing is missing"):
        curves.main()


@pytest.mark.slow
def test_a_point_has_the_sizes_and_accuracies_of_a_network_and_of_its_tree():
    (table,) = queue_tables(DATASET.load().rows(np.arange(2000)), "0").values()
    recipe = curves.chosen_recipe(curves.use_case("tomography"), "default", "bits", 4, 2)
    experiment = Experiment(table, recipe, "time", 7, with_baselines=False)
    point = curves._point(prepare(experiment, lambda _: None), with_others=True, with_float=False)
    assert point["test"]["binary"][0] >= point["test"]["tree_same_cuts"][0] - 0.05
    assert {"hist_gradient_boosting"} < set(point["test"])
    assert point["cuts"] <= 4
    assert point["bytes"]["tree_same_cuts"] < 40
    assert "float_mlp" not in point["bytes"]
    assert point["validation"] > 0.5 and point["sites"] > 0
