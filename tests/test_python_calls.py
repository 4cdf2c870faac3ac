# SPDX-License-Identifier: Apache-2.0
"""What people type in Python works, and every mistake is one line in Python's own terms."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import n3ic
from n3ic.errors import (
    ArgumentError,
    N3icError,
    N3icWarning,
    VerifyError,
    did_you_mean,
    python_text,
)
from n3ic.targets.manifest import MODEL
from n3ic.training.recipe import Recipe, Training
from n3ic.training.recipe_values import RecipeValues
from n3ic.training.values import values_of

TRAIN: Any = n3ic.train  # with keywords that a type checker refuses, too
SMALL = {"epochs": 1, "hidden": [4], "bits": 16}

pytestmark = pytest.mark.usefixtures("small_baselines")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    web = rng.random(300) < 0.5
    return pd.DataFrame(
        {
            "bytes": np.where(web, rng.integers(500, 9000, 300), rng.integers(40, 700, 300)),
            "pkts": np.where(web, rng.integers(5, 90, 300), rng.integers(1, 9, 300)),
            "app": np.where(web, "web", "dns"),
        }
    )


@pytest.fixture(scope="module")
def rows(frame):
    return frame[["bytes", "pkts"]]


@pytest.fixture
def files(frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("f.csv", index=False)
    frame.to_parquet("f.parquet")
    return tmp_path


def model_of(run):
    """The model's bytes without what names its source."""
    return n3ic.load(run.path).changed(provenance={}, name="flows", table=None)


# --- what is taken -------------------------------------------------------------------------------

FIRST = {
    "path": lambda f: ("f.csv", "app"),
    "Path": lambda f: (Path("f.csv"), "app"),
    "several": lambda f: (["f.csv"], "app"),
    "parquet": lambda f: ("f.parquet", "app"),
    "dict of lists": lambda f: (f.to_dict("list"), "app"),
    "dict of arrays": lambda f: ({c: f[c].to_numpy() for c in f}, "app"),
    "dict of Series": lambda f: ({c: f[c] for c in f}, "app"),
    "Series": lambda f: (f.drop(columns="app"), f["app"]),
    "array": lambda f: (f.drop(columns="app"), f["app"].to_numpy()),
    "list": lambda f: (f.drop(columns="app"), f["app"].tolist()),
    "one column": lambda f: (f.drop(columns="app"), f[["app"]]),
    "the table's own column": lambda f: (f, f["app"]),
    "its values": lambda f: (f, f["app"].to_numpy()),
    "polars": lambda f: (pl.DataFrame(f.to_dict("list")).drop("app"), pl.Series("app", f["app"])),
    "arrow": lambda f: (pa.table(f).drop_columns(["app"]), pa.table(f)["app"]),
}


@pytest.fixture(scope="module")
def wanted(frame, tmp_path_factory):
    return model_of(
        n3ic.train(frame, label="app", out=tmp_path_factory.mktemp("w") / "run", **SMALL)
    )


# By default one form of each kind: a file, columns, a table beside its classes, another library.
DEFAULT = ("path", "dict of lists", "array", "arrow")


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [pytest.param(how, marks=() if how in DEFAULT else pytest.mark.slow) for how in FIRST],
)
def test_every_form_of_a_table_and_of_its_classes_trains_the_same_network(
    how, files, frame, wanted
):
    first, label = FIRST[how](frame)
    assert model_of(n3ic.train(first, label, out="run", **SMALL)) == wanted


@pytest.fixture(scope="module")
def overridden(frame, tmp_path_factory):
    again = {"epochs": 1, "hidden": [4], "columns": ["bytes", "pkts"], "class_weight": "web=2"}
    out = tmp_path_factory.mktemp("o") / "run"
    return n3ic.load(n3ic.train(frame, label="app", overrides=again, out=out).path)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [np.array([4]), [4], (4,), range(4, 5), pd.Series([4]), 4, "4"])
def test_a_value_of_the_recipe_is_a_keyword_in_any_sequence(hidden, files, frame, overridden):
    run = n3ic.train(
        frame, label="app", epochs=np.int64(1), hidden=hidden, columns=frame.columns[:2],
        class_weight={"web": 2}, out="run",
    )  # fmt: skip
    assert n3ic.load(run.path).shape[1:] == (4, 2)
    assert n3ic.load(run.path) == overridden


def test_editors_see_the_values_of_a_recipe():
    named = inspect.signature(n3ic.train).parameters
    own = [*values_of(Recipe, ("name", "summary", "training", "settings")), *values_of(Training)]
    names = {value.name for value in own} - {"family"}
    assert names == set(RecipeValues.__annotations__)
    assert {*names, "family", "label", "seed", "out"} <= set(named)


# --- mistakes -------------------------------------------------------------------------------------

MISTAKES = {
    "typo": (lambda f: TRAIN(f, label="app", epoch=3), "no argument 'epoch'; .* 'epochs'"),
    "part of a name": (
        lambda f: TRAIN(f, label="app", hidden_layer_sizes=[3]),
        "did you mean 'hidden'",
    ),
    "initials": (lambda f: TRAIN(f, label="app", lr=0.1), "did you mean 'learning_rate'"),
    "in overrides": (
        lambda f: n3ic.train(f, label="app", overrides={"epoch": 3}),
        "overrides: .* 'epoch'; did you mean 'epochs'",
    ),
    "unknown": (lambda f: TRAIN(f, label="app", verbose=1), r"'verbose'; help\(n3ic.train\)"),
    "text": (lambda f: n3ic.train(f, label="app", epochs="3"), "epochs: expected a whole number"),
    "fraction": (lambda f: TRAIN(f, label="app", hidden=[4.5]), "hidden: .* whole numbers"),
    "flag": (
        lambda f: n3ic.train(f, label="app", batch_norm="no"),
        "batch_norm: expected true or false",
    ),
    "choice": (
        lambda f: n3ic.train(f, label="app", optimizer="Adam"),
        "optimizer: .*did you mean 'adam'",
    ),
    "family": (lambda f: n3ic.train(f, label="app", family="tabels"), "did you mean 'tables'"),
    "seed": (lambda f: n3ic.train(f, label="app", seed=1.5), "seed: expected a whole number"),
    "budget": (lambda f: n3ic.train(f, label="app", budget_bytes="x"), "^budget_bytes: expected"),
    "no label": (lambda f: n3ic.train(f), "Say label='COLUMN'; these could be: app"),
    "no label of a file": (lambda f: n3ic.train("f.csv"), "Say label='COLUMN'"),
    "no such label": (lambda f: n3ic.train(f, label="ap"), "no column 'ap'; did you mean 'app'"),
    "few classes": (lambda f: n3ic.train(f, ["web"]), "one class for each of the 300 rows"),
    "another index": (
        lambda f: n3ic.train(f[["pkts"]], f["app"].iloc[::-1]),
        "index is not the table's",
    ),
    "classes for a file": (lambda f: n3ic.train("f.csv", f["app"]), "label: .* column of the file"),
    "use case": (lambda f: n3ic.train("anomly"), "neither .* nor a file; did you mean 'anomaly'"),
    "file": (lambda f: n3ic.train(Path("no.csv"), "app"), "no.csv: no such file"),
    "a number": (lambda f: n3ic.train(3), "got int 3"),
    "a Series": (lambda f: n3ic.train(f["app"]), "expected a use case, a table"),
    "unequal columns": (
        lambda f: n3ic.train({"a": [1, 2], "app": ["x"]}, "app"),
        "as many rows in each, got a 2, app 1",
    ),
    "two sources": (lambda f: n3ic.train("f.csv", "app", data="f.csv"), "two sources"),
    "existing run": (
        lambda f: [n3ic.train(f, "app", out="o", **SMALL) for _ in range(2)],
        "name another folder, or add replace=True",
    ),
    "option of a use case": (lambda f: n3ic.train("anomaly", "app"), "has no option label;"),
    "progress": (lambda f: n3ic.train(f, "app", progress=True), "progress: expected"),
    "no model": (lambda f: n3ic.export(3, "host", "e"), "expected a model, .* got int"),
    "a class": (lambda f: n3ic.export(n3ic.BinaryMLPClassifier, "host", "e"), "is a class"),
    "not fitted": (
        lambda f: n3ic.predict(n3ic.BinaryMLPClassifier(8), f),
        r"BinaryMLPClassifier is not fitted: call its fit\(X, y\)",
    ),
    "another estimator": (
        lambda f: n3ic.evaluate(make_pipeline(RandomForestClassifier()), f, label="app"),
        "Pipeline of a RandomForestClassifier has no network",
    ),
    "argument of verify": (lambda f: n3ic.verify("e", vektors=3), "did you mean 'vectors'"),
    "directory": (lambda f: n3ic.verify(3), "directory: expected the path"),
    "layers": (
        lambda f: n3ic.BinaryMLPClassifier(8.5).fit(f[["pkts"]], f["app"]),
        "hidden_layer_sizes: expected numbers of neurons",
    ),
    "no layers": (
        lambda f: n3ic.BinaryMLPClassifier((-8,)).fit(f[["pkts"]], f["app"]),
        "hidden_layer_sizes: expected",
    ),
    "epochs of an estimator": (
        lambda f: n3ic.BinaryMLPClassifier(epochs="3").fit(f[["pkts"]], f["app"]),
        "epochs: expected a whole number",
    ),
    "a column of text": (
        lambda f: n3ic.BinaryMLPClassifier(8).fit(f, f["app"]),
        "got '(web|dns)' in column 'app': put a OneHotEncoder",
    ),
    "a category": (
        lambda f: n3ic.BinaryMLPClassifier(8).fit(f.astype({"app": "category"}), f["app"]),
        "in column 'app': put a OneHotEncoder",
    ),
    "text of polars": (
        lambda f: n3ic.BinaryMLPClassifier(8).fit(pl.DataFrame(f.to_dict("list")), f["app"]),
        "in column 'app': put a OneHotEncoder",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_line_in_pythons_terms(what, files, frame):
    call, reason = MISTAKES[what]
    with pytest.raises(N3icError, match=reason) as caught:
        call(frame)
    message = str(caught.value)
    assert "\n" not in message
    assert "--" not in message
    assert "columns.toml" not in message
    kind = type(caught.value)
    assert kind.__name__ == "DataError" or issubclass(kind, TypeError)
    assert kind.__name__ == "DataError" or issubclass(kind, ValueError)


def test_options_of_the_command_line_are_keywords_of_python():
    assert (
        python_text("Say --label COLUMN; or --no-record") == "Say label='COLUMN'; or record=False"
    )
    assert python_text("(--force writes it)") == "(force=True writes it)"
    assert python_text("--input-of: x; a-b -- c") == "input_of: x; a-b -- c"
    assert did_you_mean("lr", ["learning_rate", "bits"]) == "did you mean 'learning_rate'? "
    assert not did_you_mean("verbose", ["epochs", "seed"])


# --- estimators -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def estimators(rows, frame):
    alone = n3ic.BinaryMLPClassifier(8, epochs=2, random_state=0).fit(rows, frame["app"])
    scaled = make_pipeline(StandardScaler(), n3ic.BinaryMLPClassifier(8, epochs=2, random_state=0))
    search = GridSearchCV(n3ic.BinaryMLPClassifier(4, epochs=1), {"epochs": [1]}, cv=2)
    return {
        "alone": alone,
        "pipeline": scaled.fit(rows, frame["app"]),
        "last of one": make_pipeline(n3ic.BinaryMLPClassifier((8,), epochs=2, random_state=0)).fit(
            rows, frame["app"]
        ),
        "search": search.fit(rows, frame["app"]),
    }


@pytest.mark.slow
def test_one_number_is_one_hidden_layer(estimators):
    assert estimators["alone"].model_ == estimators["last of one"][-1].model_


@pytest.mark.slow
@pytest.mark.parametrize("which", ["alone", "pipeline", "last of one", "search"])
def test_a_fitted_estimator_is_a_model(which, estimators, rows, frame, tmp_path):
    estimator = estimators[which]
    predicted = n3ic.predict(estimator, rows)
    assert (predicted["class"] == estimator.predict(rows)).all()
    assert (predicted.index == rows.index).all()
    for flows, label in ((rows, frame["app"]), (frame, "app")):
        figures = n3ic.evaluate(estimator, flows, label=label)[""]
        assert figures.accuracy == pytest.approx(estimator.score(rows, frame["app"]))
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        n3ic.export(estimator, "nfp", tmp_path / "e")
    own = [str(w.message) for w in records if w.category is N3icWarning]
    assert len(own) == (which == "pipeline")
    assert all("standardscaler" in text for text in own)
    assert n3ic.verify(tmp_path / "e", estimator, vectors=20).ok
    assert n3ic.verify(estimator, tmp_path / "e", vectors=20).ok


@pytest.mark.slow
def test_an_export_of_another_model_is_not_verified(estimators, tmp_path):
    n3ic.export(estimators["alone"], "nfp", tmp_path / "e")
    assert n3ic.load(tmp_path / "e" / MODEL) == estimators["alone"].model_
    with pytest.raises(VerifyError, match="holds another model"):
        n3ic.verify(tmp_path / "e", estimators["search"])


def test_labels_that_an_estimator_does_not_know_are_named(estimators, rows, frame):
    with pytest.raises(
        ArgumentError, match="class 'mail' is not one of the classifier's: dns, web"
    ):
        n3ic.evaluate(estimators["alone"], rows, label=frame["app"].replace("web", "mail"))
    with pytest.raises(ArgumentError, match="did you mean 'app'"):
        n3ic.evaluate(estimators["alone"], frame, label="apps")


@pytest.mark.slow
def test_a_use_case_trains_on_a_loaded_table(tmp_path):
    import n3ic.datasets

    table = n3ic.datasets.load("unsw-nb15-synthetic").table.rows(np.arange(900))
    run = TRAIN("anomaly", data=table, out=tmp_path / "run", **SMALL)
    assert sum(run.metrics["rows"].values()) == 900
