# SPDX-License-Identifier: Apache-2.0
"""Rows are an argument or ``--data`` of every command that takes some, and lists are JSON too."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest
import typer

from n3ic import datasets, plugins
from n3ic.cli.main import command_line
from n3ic.model.columns import ColumnRule, TableRules
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.usecases.evaluation import labelled_flows

ROWS = [
    "cluster run", "data audit", "data check", "data describe", "data show", "evaluate", "features",
    "predict", "replay", "report", "shunt", "stream drift", "stream learn", "stream second-stage",
    "sweep", "train", "verify",
]  # fmt: skip


def commands():
    """Every command by its words."""
    groups = ("n3ic.commands", "n3ic.studies")
    called = [["evaluate"], *([name] for group in groups for name in plugins.names(group))]
    by_name = {}

    def walk(command, words):
        for name, below in getattr(command, "commands", {}).items():
            walk(below, [*words, name])
        if not hasattr(command, "commands"):
            by_name.setdefault(" ".join(words), command)

    for words in [["no-such-command"], *called]:
        walk(typer.main.get_command(command_line(words)), [])
    return by_name


def test_every_command_with_rows_takes_them_in_both_forms():
    known = commands()
    by_option = {
        words for words, command in known.items() if any("--data" in p.opts for p in command.params)
    }
    assert by_option == {*ROWS}
    for words in ROWS:
        arguments = [p for p in known[words].params if p.param_type_name == "argument"]
        (rows,) = [a for a in arguments if a.metavar in ("FLOWS", "SOURCE", "TABLE")]
        assert not rows.required and rows.nargs == 1, words
    rest = [c for words, c in known.items() if words not in ROWS]
    assert not [p for c in rest for p in c.params if p.metavar in ("FLOWS", "TABLE")]


@pytest.fixture(name="table")
def table_and_model(tmp_path):
    spec = InputSpec((Field.thermometer("a", [1, 5, 9]), Field.thermometer("b", [2])))
    base = random_model((4, 3, 2), np.random.default_rng(0), extremes=False)
    BinaryModel(spec, base.hidden, base.output, ("x", "y"), "m").save(tmp_path / "m.n3ic")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n9,0\n4,4\n")


@pytest.mark.usefixtures("table")
def test_rows_typed_alone_or_after_data_give_the_same_and_not_both(n3ic):
    for command in ("predict", "features"):
        one = n3ic(f"{command} t.csv --model m.n3ic")
        assert one.stdout == n3ic(f"{command} --data t.csv --model m.n3ic").stdout != ""
        twice = n3ic(f"{command} t.csv --data t.csv --model m.n3ic", expect=2)
        assert twice.stderr.endswith("t.csv and --data t.csv: name the rows once\n")
        none = n3ic(f"{command} --model m.n3ic", expect=2)
        assert "no rows are named: type FLOWS, or --data FLOWS" in none.stderr


def test_a_lone_file_where_a_use_case_stands_is_the_rows(n3ic, tmp_path):
    (tmp_path / "anomaly.csv").write_text("a,b,kind\n1,2,x\n")
    for words in (
        "train anomaly.csv",
        "train --data anomaly.csv",
        "sweep anomaly.csv",
        "sweep --data anomaly.csv",
    ):
        done = n3ic(f"{words} --label nothing", expect=2)
        assert "nothing" in done.stderr, done.stderr
    assert "no.csv: no such file" in n3ic("train no.csv", expect=2).stderr
    assert "unknown use case 'anomly'" in n3ic("train anomly", expect=2).stderr


@pytest.mark.usefixtures("table")
def test_lists_and_features_are_json_as_well(n3ic, tmp_path):
    recipes = json.loads(n3ic("recipes list --json").stdout)
    assert {*recipes} == {*plugins.names("n3ic.usecases")} and "default" in recipes["flows"]
    assert {*json.loads(n3ic("data list --json").stdout)} == {*plugins.names("n3ic.datasets")}
    document = json.loads(n3ic("features t.csv --model m.n3ic --json").stdout)
    assert document == {
        "rows": 3,
        "columns": {"a": {"least": 1, "most": 9}, "b": {"least": 0, "most": 4}},
        "path": None,
    }
    assert json.loads(n3ic("features t.csv --model m.n3ic --json --out f.csv").stdout)["rows"] == 3
    assert len((tmp_path / "f.csv").read_text().splitlines()) == 5


def model_of(table, path, data, rules=None):
    """A random network of all features of a table."""
    cuts = {n: sorted({1, *map(int, np.quantile(v, (0.3, 0.7)))} - {0}) for n, v in table.items()}
    spec = InputSpec(tuple(Field.thermometer(name, of) for name, of in cuts.items()))
    base = random_model((spec.n_bits, 8, 2), np.random.default_rng(0), extremes=False)
    more = {"provenance": {"data": data}, **(rules or {})}
    model = BinaryModel(spec, base.hidden, base.output, ("3", "4"), "m", **more)
    model.save(path)
    return model


SEQUENCES = [([60, -1500, 52], [0, 21, 24]), ([-61], [0]), ([80, 90, -40, -40], [0, 5, 5, 9])] * 20
LABELS = [3, 4, 4] * 20


def spaced(labelled):
    head = ["label,lengths,times_us"] if labelled else ["lengths,times_us"]
    rows = zip(SEQUENCES, LABELS, strict=True)
    lines = [
        (f"{label}.0," if labelled else "")
        + " ".join(map(str, sizes))
        + ","
        + " ".join(str(t * 1000) for t in times)
        for (sizes, times), label in rows
    ]
    return "\n".join([*head, *lines, ""])


def test_predict_takes_the_sequences_that_train_and_evaluate_take(n3ic, tmp_path):
    rows = [
        {"direction_length": sizes, "timestamp": [7 + t / 1000 for t in times], "label": label}
        for (sizes, times), label in zip(SEQUENCES, LABELS, strict=True)
    ]
    (tmp_path / "s.json").write_text(json.dumps(rows))
    (tmp_path / "s.csv").write_text(spaced(True))
    (tmp_path / "unlabelled.csv").write_text(spaced(False))
    unlabelled = [{k: v for k, v in row.items() if k != "label"} for row in rows]
    (tmp_path / "unlabelled.json").write_text(json.dumps(unlabelled))
    pd.DataFrame(rows).to_parquet(tmp_path / "s.parquet")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "s.json").write_text(json.dumps(rows))
    table = datasets.load("packet-sequences", tmp_path / "s.json").table
    model = model_of(table.features, tmp_path / "m.n3ic", table.name, {"meter": table.meter})
    want = model.predict(table.features)
    names = ("s.json", "s.csv", "s.parquet", "unlabelled.json", "unlabelled.csv", "folder")
    for name in names:
        lines = n3ic(f"predict {name} --model m.n3ic").stdout.splitlines()
        cells = [line.split(",") for line in lines[1:]]
        assert [int(c[1]) - 3 for c in cells] == want.classes.tolist(), name
        assert [int(c[2]) for c in cells] == want.margins.tolist(), name
    figures = [json.loads(n3ic(f"evaluate {n} --model m.n3ic --json").stdout) for n in names[:3]]
    assert figures[0] == figures[1] == figures[2]  # the classes 3, 3.0 and "3" are one
    assert n3ic("features unlabelled.json --model m.n3ic").stdout.count("\n") == 2 + len(rows)
    splt = "splt_direction,splt_ps,splt_piat_ms\n[0],[60],[0]\n"
    (tmp_path / "other.csv").write_text(splt)
    assert "metered differently" in n3ic("predict other.csv --model m.n3ic").stderr


@pytest.mark.usefixtures("table")
def test_predict_takes_folders_and_archives_of_tables(n3ic, tmp_path):
    (tmp_path / "many").mkdir()
    for name, text in (("b.csv", "b,a\n0,9\n4,4\n"), ("a.csv", "a,b\n1,2\n")):
        (tmp_path / "many" / name).write_text(text)
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for name in ("a.csv", "b.csv"):
            archive.write(tmp_path / "many" / name, name)
    want = n3ic("predict t.csv --model m.n3ic").stdout
    for name in ("many", "many.zip"):
        assert n3ic(f"predict {name} --model m.n3ic").stdout == want


def test_predict_takes_parquet_of_a_data_set_that_evaluate_takes(n3ic, tmp_path):
    own = datasets.load("iscx-tor2016").table
    source = plugins.load("n3ic.datasets", "iscx-tor2016").embedded
    frame = pd.read_csv(source).head(50)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    model_of({n: own.features[n] for n in own.usable}, tmp_path / "m.n3ic", own.name)
    of_file = n3ic("predict t.csv --model m.n3ic").stdout
    assert n3ic("predict t.parquet --model m.n3ic").stdout == of_file


def test_numbers_beside_texts_are_the_classes_that_they_were(tmp_path):
    """``1.0`` of a file with another class of text is the class ``1`` of the training."""
    rules = TableRules({"a": ColumnRule()}, "kind")
    spec = InputSpec((Field.thermometer("a", [2]),))
    base = random_model((1, 3, 3), np.random.default_rng(0), extremes=False)
    model = BinaryModel(spec, base.hidden, base.output, ("1", "2", "dns"), "m", table=rules)
    (tmp_path / "t.csv").write_text("a,kind\n1,1.0\n2,dns\n3,2.0\n")
    assert labelled_flows(model, tmp_path / "t.csv")[""].label.tolist() == [0, 2, 1]
