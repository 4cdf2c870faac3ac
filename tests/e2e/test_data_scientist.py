# SPDX-License-Identifier: Apache-2.0
"""A data scientist with a DataFrame: a search, a run, verified exports for all targets, a page."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from typer.testing import CliRunner

import n3ic
from n3ic import plugins
from n3ic.cli.main import command_line

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_baselines")]
TARGETS = plugins.names("n3ic.exporters")


@pytest.fixture(scope="module")
def frame():
    """Flows of three applications, an int64, a float, a text and a boolean column."""
    rng = np.random.default_rng(0)
    k = rng.integers(0, 3, 900)
    return pd.DataFrame(
        {
            "bytes": rng.integers(40, 1500, 900) * (k + 1),
            "packets": rng.integers(1, 9, 900) + 3 * k,
            "dur": np.round(rng.random(900) * (k + 1), 3),
            "proto": np.array(["tcp", "udp"])[(k + (rng.random(900) < 0.3)) % 2],
            "syn": rng.random(900) < 0.2 + 0.3 * k,
            "app": np.array(["dns", "p2p", "web"])[k],
        }
    )


def typed(*words):
    words = tuple(map(str, words))
    done = CliRunner().invoke(command_line(words), words)
    assert done.exit_code == 0, (words, done.output, done.exception)
    return done.stdout


def exported_and_verified(model, folder):
    """Exports of a model for every target, each verified; where a tool is missing, what says so."""
    missing = []
    for target in TARGETS:
        done = n3ic.export(model, target, folder / target, verify=False)
        verifications = json.loads(
            typed("verify", done.path, "--vectors", 40, "--no-record", "--json")
        )
        missing += [r["missing"] for r in verifications if r["missing"]]
        assert all(r["ok"] or r["missing"] for r in verifications), verifications
    return missing


@pytest.mark.filterwarnings("ignore::n3ic.errors.N3icWarning")
def test_from_a_frame_to_a_report_page(frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train, test = frame[:700], frame[700:]
    run = n3ic.train(train, label="app", out="run", overrides={"hidden": (8,), "epochs": 3})
    train.to_csv("flows.csv", index=False)
    of_file = n3ic.train(data="flows.csv", label="app", out="run2",
                         overrides={"hidden": (8,), "epochs": 3})  # fmt: skip
    assert n3ic.load(run.path).to_bytes() == n3ic.load(of_file.path).to_bytes()
    assert (tmp_path / "run/columns.toml").read_text() == (
        tmp_path / "run2/columns.toml"
    ).read_text()
    (figures,) = n3ic.evaluate(run, test, label="app").values()
    classes = run.predict(test)["class"]
    assert figures.accuracy == pytest.approx(accuracy_score(test["app"], classes))
    recall = np.diag(figures.confusion) / np.sum(figures.confusion, axis=1)
    assert recall.mean() == pytest.approx(balanced_accuracy_score(test["app"], classes))
    assert exported_and_verified(run, tmp_path / "exports") == []
    typed("report", "run", "--html", "page.html", "--data", "flows.csv")
    page = (tmp_path / "page.html").read_text()
    assert all(f">{target}</" in page for target in TARGETS)
    assert "test rows of flows" in page  # held-out rows of the frame, by its digest


@pytest.mark.exhaustive
def test_from_a_search_to_exports(frame, tmp_path):
    X, y = frame[["bytes", "packets"]], frame["app"]
    search = GridSearchCV(
        n3ic.BinaryMLPClassifier(epochs=5, learning_rate=0.02, random_state=0),
        {"hidden_layer_sizes": [(4,), (12,)]},
        scoring="balanced_accuracy",
        cv=3,
    ).fit(X[:700], y[:700])
    assert search.best_score_ > 0.6
    best = search.best_estimator_
    assert cross_val_score(best, X, y, cv=3).mean() > 0.6
    classes = n3ic.predict(best.model_, X[700:])["class"]
    assert accuracy_score(y[700:], classes) == best.score(X[700:], y[700:])
    assert exported_and_verified(best.model_, tmp_path / "exports") == []
    best.model_.save(tmp_path / "best.n3ic")
    typed("report", tmp_path / "best.n3ic", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert all(f">{target}</" in page for target in TARGETS)
