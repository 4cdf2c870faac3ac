# SPDX-License-Identifier: Apache-2.0
"""Rows are an argument or ``--data`` of every command that takes some, and lists are JSON too."""

import json

import numpy as np
import pytest
import typer

from n3ic import plugins
from n3ic.cli.main import command_line
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model

ROWS = [
    "cluster run", "data audit", "data check", "data describe", "data show", "evaluate", "features",
    "predict", "replay", "report", "shunt", "stream drift", "stream learn", "stream second-stage",
    "sweep", "train", "verify",
]  # fmt: skip
ELSEWHERE = {"stream train"}  # its --data is the name of a data set


def commands():
    """Every command by its words."""
    groups = ("n3ic.commands", "n3ic.studies")
    called = [["evaluate"], *([name] for group in groups for name in plugins.names(group))]
    found = {}

    def walk(command, words):
        for name, below in getattr(command, "commands", {}).items():
            walk(below, [*words, name])
        if not hasattr(command, "commands"):
            found.setdefault(" ".join(words), command)

    for words in [["no-such-command"], *called]:
        walk(typer.main.get_command(command_line(words)), [])
    return found


def test_every_command_with_rows_takes_them_in_both_forms():
    known = commands()
    by_option = {
        words for words, command in known.items() if any("--data" in p.opts for p in command.params)
    }
    assert by_option - ELSEWHERE == {*ROWS}
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
def test_both_forms_give_the_same_and_one_is_typed(n3ic):
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
    told = json.loads(n3ic("features t.csv --model m.n3ic --json").stdout)
    assert told == {
        "rows": 3,
        "columns": {"a": {"least": 1, "most": 9}, "b": {"least": 0, "most": 4}},
        "path": None,
    }
    assert json.loads(n3ic("features t.csv --model m.n3ic --json --out f.csv").stdout)["rows"] == 3
    assert len((tmp_path / "f.csv").read_text().splitlines()) == 5
