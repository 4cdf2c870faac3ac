# SPDX-License-Identifier: Apache-2.0
"""Which rows are held out, and that they alone are asked."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import f1_score

from n3ic.data.split import split
from n3ic.data.table import Feature, FlowTable
from n3ic.errors import DataError, UsageError
from n3ic.evaluation.calibration import calibration
from n3ic.evaluation.held_out import held_out, known_split
from n3ic.evaluation.importance import permutation_importance
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model


def made(rows=300, classes=("a", "b")):
    rng = np.random.default_rng(0)
    spec = InputSpec((Field.thermometer("x", range(1, 21)),))
    model = random_model((20, 8, len(classes)), rng).changed(input=spec, classes=classes)
    table = FlowTable(
        "flows", {"x": rng.integers(0, 30, rows)}, (Feature("x", "", "", "", 1.0, 32, True, ""),),
        rng.integers(0, len(classes), rows), classes, False, "sha",
    )  # fmt: skip
    known = {"data_sha256": "sha", "protocol": "random", "seed": "3"}
    return model.changed(provenance=known), table


def test_of_the_data_of_its_training_the_test_rows():
    model, table = made()
    holdout = held_out(model, table)
    parts = split(table, "random", 3)
    assert holdout.rows.tolist() == parts.test.tolist()
    assert not set(holdout.rows) & {*parts.train, *parts.validation}
    assert holdout.origin == "the 30 test rows of flows"
    inference = model.infer(model.encode({"x": table.features["x"][parts.test]}))
    assert np.array_equal(holdout.inference.scores, inference.scores)
    assert np.array_equal(holdout.label, table.label[parts.test])
    assert sum(g.rows for g in holdout.calibration()) == len(holdout.right) == 30


def test_labels_of_training_rows_change_nothing():
    model, table = made()
    holdout = held_out(model, table)
    values = table.features["x"].copy()
    others = np.setdiff1d(np.arange(300), holdout.rows)
    values[others] = 29
    again = held_out(model, replace(table, features={"x": values}))
    assert again.importance() == holdout.importance()
    assert again.calibration() == holdout.calibration() and again.roc.area == holdout.roc.area


def test_of_other_flows_all_rows():
    model, table = made()
    holdout = held_out(model, replace(table, sha256="other"))
    assert len(holdout.rows) == 300 and holdout.origin == "300 rows of other flows of flows"
    other = replace(table, sha256="other")
    assert known_split(model, other) == ("random", 0, False)
    by_time = {"data_sha256": "sha", "protocol": "time", "seed": "3"}
    timed = replace(other, time_order=True)
    assert known_split(model.changed(provenance=by_time), timed) == ("time", 0, False)
    assert known_split(model.changed(provenance={}), other) == ("random", 0, False)


def test_figures_of_each_packet_of_a_schedule():
    model, table = made(classes=("a", "b", "c"))
    assert held_out(model, replace(table, sha256="other")).by_packet() == []
    point = np.arange(300) % 3 * 5  # of packets 5 and 10, and of the end
    holdout = held_out(model, replace(table, sha256="other", point=point))
    figures = holdout.by_packet()
    assert [(of["packet"], of["flows"]) for of in figures] == [(5, 100), (10, 100), (0, 100)]
    for of in figures:
        rows = point == of["packet"]
        label, predicted = holdout.label[rows], holdout.inference.classes[rows]
        assert of["accuracy"] == (label == predicted).mean()
        assert of["macro_f1"] == pytest.approx(f1_score(label, predicted, average="macro"))


def test_a_model_that_does_not_say_its_split_is_refused():
    model, table = made()
    with pytest.raises(UsageError, match="does not say on which of them"):
        held_out(model.changed(provenance={"data_sha256": "sha"}), table)
    for lacking in ({"protocol": "random"}, {"seed": "3"}, {"protocol": "time", "seed": "3"}):
        with pytest.raises(UsageError, match="does not say on which of them"):
            known_split(model.changed(provenance={"data_sha256": "sha"} | lacking), table)


def test_classes_are_told_by_name():
    model, table = made()
    swapped = replace(table, classes=("b", "a"), sha256="other")
    assert np.array_equal(held_out(model, swapped).label, 1 - table.label)
    with pytest.raises(DataError, match="class 'c' is not one of the network's: a, b"):
        held_out(model, replace(table, classes=("a", "c")))


@pytest.mark.parametrize(("classes", "positive", "there"), [
    (("a", "b"), None, True), (("a", "b"), 0, True), (("a", "b", "c"), None, False),
    (("a", "b", "c"), 2, True),
])  # fmt: skip
def test_a_roc_where_a_class_is_to_be_found(classes, positive, there):
    holdout = held_out(*made(classes=classes), positive=positive)
    assert (holdout.roc is not None) == there
    if there:
        assert holdout.roc.positives == (holdout.label == holdout.positive).sum()


def test_features_are_permuted_by_seed_0_if_nothing_else_is_said():
    model, table = made()
    graded = random_model((20, 8, 2), np.random.default_rng(3), extremes=False)
    graded = graded.changed(input=model.input, classes=model.classes)
    assert len(np.unique(graded.infer(graded.encode(table.features)).classes)) == 2
    holdout = held_out(graded, table)
    assert holdout.importance(1) == holdout.importance(1, 0) != holdout.importance(1, 1)


def test_rows_of_one_kind_have_no_roc():
    model, table = made()
    other = replace(table, sha256="other", label=np.ones(300, np.int64))
    holdout = held_out(model, other)
    assert holdout.positive == 1 and holdout.roc is None


def test_a_row_is_right_where_the_found_class_is_its_label():
    model, table = made()
    classes = model.infer(model.encode(table.features)).classes
    holdout = held_out(model, replace(table, sha256="other", label=classes.astype(np.int64)))
    assert holdout.right.all()
    turned = np.where(np.arange(300) < 7, 1 - classes, classes).astype(np.int64)
    holdout = held_out(model, replace(table, sha256="other", label=turned))
    assert holdout.right.tolist() == [False] * 7 + [True] * 293


def test_held_out_rows_display_as_a_line_a_table_and_html():
    holdout = held_out(*made())
    accuracy = f"{100 * holdout.right.mean():.1f} % right"
    assert repr(holdout) == f"<HeldOut random on the 30 test rows of flows: {accuracy}>"
    (table,) = holdout.view().tables
    assert sum(int(row[1]) for row in table.rows) == 30 and "<table" in holdout._repr_html_()
    assert len(repr(holdout.roc)) < 100


def test_margins_are_grouped_in_ten_if_nothing_else_is_said():
    model, table = made(3000)
    holdout = held_out(model, table)
    margins = np.arange(len(holdout.rows), dtype=np.int32)
    spread = replace(holdout, inference=replace(holdout.inference, margins=margins))
    assert [g.rows for g in spread.calibration()] == [30] * 10
    assert spread.calibration(7) == calibration(holdout.right, margins, 7)
    columns = {"x": table.features["x"][holdout.rows]}
    assert holdout.importance(2, 1) == permutation_importance(
        model, columns, holdout.label, repeats=2, seed=1
    )
