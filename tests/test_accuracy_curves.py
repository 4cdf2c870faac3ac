"""The curves of accuracy are drawn from all points, and only missing ones are trained."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "accuracy_curves.py"
_spec = importlib.util.spec_from_file_location("accuracy_curves", SCRIPT)
curves = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(curves)


def point(axis, asked, seed, binary, tree):
    return {
        "axis": axis,
        "asked": asked,
        "seed": seed,
        "shape": [asked, 8, 2],
        "weight_bytes": 10 + asked,
        "cuts": asked,
        "validation": 0.9,
        "test": {"binary": [binary, 0.5], "tree_same_cuts": [tree, None]},
    }


POINTS = [
    point("bits", 4, 1, 0.90, 0.80),
    point("bits", 4, 2, 0.92, 0.80),
    point("bytes", 16, 1, 0.7, 0.6),
]


def test_means_and_deviations_stand_in_the_table():
    head, _, row = curves.summary(POINTS, "bits")
    assert head.split("|")[1].strip() == "input bits"
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[1:6] == ["4", "4-8-2", "14", "4", "2"]
    assert cells[6:8] == ["91.00 +- 1.41 / 50.00 +- 0.00", "80.00 +- 0.00"]


def test_curves_are_told_apart_without_colours():
    looks = [(mark, dashes) for _, _, mark, dashes in curves.SERIES.values()]
    assert len({*looks}) == len(looks) == len({dashes for _, dashes in looks})
    left, right = curves.figure(POINTS, "data").axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        "binary network", "tree of as many cuts",
    ]  # fmt: skip
    assert right.get_xlabel() == "bytes of weights"


def test_what_is_there_is_not_trained_again(tmp_path, monkeypatch):
    def trained(*_):
        raise AssertionError("nothing is missing")

    monkeypatch.setattr(curves, "prepare", trained)
    (tmp_path / "points.jsonl").write_text("".join(json.dumps(p) + "\n" for p in POINTS[:2]))
    words = ["classification", str(tmp_path), "--bits", "4", "--bytes", "--seeds", "1", "2"]
    monkeypatch.setattr(sys, "argv", ["accuracy_curves.py", *words])
    assert curves.main() == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "91.00" in Path(tmp_path / "curves.md").read_text()
    monkeypatch.setattr(sys, "argv", ["accuracy_curves.py", *words[:-1], "3"])
    with pytest.raises(AssertionError, match="nothing is missing"):
        curves.main()
