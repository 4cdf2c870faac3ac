# SPDX-License-Identifier: Apache-2.0
"""The pictures of a run: whole, readable at half size, honest about what rows can show."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from n3ic.evaluation.calibration import calibration
from n3ic.evaluation.held_out import HeldOut
from n3ic.evaluation.importance import FeatureImportance
from n3ic.evaluation.roc import roc_curve
from n3ic.model.random_models import random_model
from n3ic.runs.pictures import (
    SizePoint,
    accuracy_against,
    calibration_figure,
    confusion_figure,
    importance_figure,
    margins_figure,
    roc_figure,
    training_figure,
)
from n3ic.runs.pictures.accuracy import pareto_front
from tests.support.pictured import overhang, smallest_type

pytest.importorskip("matplotlib")
EVIL = "$\\frac{$ \x1b[2J <b> " + "W" * 200
NEGATIVES = 400
MANY = [f"{i} {EVIL}" for i in range(12)]


def holdout(rows=1000, shunt=0, positive=0.6):
    rng = np.random.default_rng(0)
    model = random_model((64, 16, 2), rng).changed(shunt=shunt)
    inference = model.infer(rng.integers(0, 1 << 32, (rows, 2), dtype=np.uint32))
    label = np.where(rng.random(rows) < positive, inference.classes, 1 - inference.classes)
    return HeldOut(model, None, np.arange(rows), label, inference, 1, EVIL)


def curves(shift=1.5, names=("binary network", EVIL)):
    rng = np.random.default_rng(0)
    positive = np.arange(NEGATIVES + 300) >= NEGATIVES
    return {
        name: roc_curve(positive, rng.normal(size=len(positive)) + shift * positive)
        for name in names
    }


def epochs(n):
    return [
        SimpleNamespace(
            number=i + 1, loss=1 / (i + 1), validation_loss=0.5, validation_accuracy=0.9
        )
        for i in range(n)
    ]


def importance(n, name=EVIL):
    return [
        FeatureImportance(f"{i} {name}", 5, 0.1 / (i + 1) - 0.01, 0.01, 0.1, 0.01, 30.0, 0.3, 5 * i)
        for i in range(n)
    ]


def sizes(label=""):
    return [
        SizePoint({"bytes": b}, (0.8 + b / 9999 - o / 50, 0.81), f"{o} {EVIL}", label)
        for b in (64, 256, 1092)
        for o in range(3)
    ]


def bars(axes):
    return [bar for container in axes.containers for bar in getattr(container, "patches", ())]


def square(n):
    return np.random.default_rng(0).integers(0, 999, (n, n)).tolist()


ALL = {
    "confusion of two": lambda: confusion_figure(square(2), ("normal", EVIL), EVIL),
    "confusion of twelve": lambda: confusion_figure(square(12), MANY, EVIL),
    "empty confusion": lambda: confusion_figure([[0, 0], [0, 0]], ("a", "b"), "no rows"),
    "roc": lambda: roc_figure(curves(), EVIL, EVIL),
    "roc of many": lambda: roc_figure(curves(names=MANY), "rows"),
    "training": lambda: training_figure(epochs(40), EVIL),
    "one epoch": lambda: training_figure(epochs(1)),
    "importance": lambda: importance_figure(importance(8), EVIL),
    "importance of many": lambda: importance_figure(importance(60), EVIL),
    "importance of one": lambda: importance_figure(importance(1, "a"), "rows"),
    "margins": lambda: margins_figure(holdout()),
    "margins that are shunted": lambda: margins_figure(holdout(shunt=4)),
    "margins of no rows": lambda: margins_figure(holdout(0)),
    "calibration": lambda: calibration_figure(holdout().calibration(), EVIL),
    "calibration of no rows": lambda: calibration_figure((), "rows"),
    "accuracy": lambda: accuracy_against(sizes(), title=EVIL, front=True, levels={EVIL: 0.9}),
    "accuracy with labels": lambda: accuracy_against(sizes(EVIL)),
}  # fmt: skip


@pytest.mark.first_case
@pytest.mark.parametrize("name", ALL)
def test_everything_is_on_the_page_and_large_enough_for_half_of_it(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = ALL[name]()
        assert overhang(figure) < 0.02
    assert smallest_type(figure) >= 10


def test_nothing_of_a_roc_is_drawn_below_one_negative():
    axes = roc_figure(curves(), "rows", "attack").axes[0]
    assert axes.get_xlim()[0] == pytest.approx(1 / NEGATIVES)
    assert f"1 of {NEGATIVES} negatives" in axes.get_xlabel()
    for line in axes.get_lines():
        assert np.min(line.get_xdata()) >= 1 / NEGATIVES * (1 - 1e-9)
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    assert corners[:, 0].min() >= 1 / NEGATIVES * (1 - 1e-9)
    assert axes.get_legend_handles_labels()[1][-1] == "95% band of the first"


@pytest.mark.parametrize("last", [1, 2, 5, 12, 90])
def test_epochs_are_whole_numbers(last):
    axes = training_figure(epochs(last)).axes[-1]
    low, high = axes.get_xlim()
    shown = [t for t in axes.get_xticks() if low <= t <= high]
    assert shown and all(float(t).is_integer() for t in shown)


def test_bars_are_the_figures():
    left, right = importance_figure(importance(3, "f"), "rows").axes
    assert [b.get_width() for b in bars(left)] == pytest.approx([9, 4, 10 / 3 - 1])
    assert [b.get_width() for b in bars(right)] == [0.3] * 3
    assert [t.get_text() for t in left.get_yticklabels()] == [f"{i} f (5 bits)" for i in range(3)]


def test_margins_count_every_row_once():
    of = holdout()
    axes = margins_figure(of).axes[0]
    assert sum(b.get_height() for b in bars(axes)) == 1000
    names = axes.get_legend_handles_labels()[1]
    assert names == [f"right: {of.right.sum():,} rows", f"wrong: {(~of.right).sum():,} rows"]


def test_calibration_has_its_intervals_and_counts():
    groups = calibration(holdout().right, holdout().inference.margins, 4)
    upper, lower = calibration_figure(groups, "rows").axes
    assert [b.get_height() for b in bars(lower)] == [g.rows for g in groups]
    _, _, (across, up) = upper.containers[0]
    ends = [100 * np.array([g.low, g.high]) for g in groups]
    assert np.allclose([s[:, 1] for s in up.get_segments()], ends)
    assert np.allclose([s[1, 0] - s[0, 0] for s in across.get_segments()],
                       [g.most - g.least + 1 for g in groups])  # fmt: skip


def test_the_front_is_what_no_other_beats():
    made = [SizePoint({"x": x}, (y,)) for x, y in
            ((4, 0.9), (1, 0.5), (2, 0.8), (2, 0.7), (8, 0.9), (9, 0.95), (3, 0.6))]  # fmt: skip
    assert [(p.size["x"], p.mean) for p in pareto_front(made, "x")] == [
        (1, 0.5), (2, 0.8), (4, 0.9), (9, 0.95)
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no point has a size 'y'"):
        accuracy_against(made, "y")
    assert SizePoint({}, (0.5, 0.7)).deviation == pytest.approx(0.2 / 2**0.5)
