# SPDX-License-Identifier: Apache-2.0
"""What is seen first: the help, the recipes, and what a mistake is answered with."""

import json
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import typer

from n3ic import plugins
from n3ic.cli.main import command_line
from n3ic.data.user_table import OWN
from n3ic.model.random_models import random_model
from n3ic.training.recipe import recipe_values
from n3ic.usecases.base import use_case
from tests.support.command_line import n3ic as called

PANELS = ["Most used", "Train and use", "Look", "Deploy", "Data", "Systems"]


@pytest.fixture
def n3ic(tmp_path):
    """``n3ic`` of words, run in ``tmp_path``."""
    return partial(called, cwd=tmp_path)


def shown(*words):
    """The options in the help of a command, and all that it takes."""
    group: Any = typer.main.get_command(command_line([*words]))
    options = [p for p in group.commands[words[0]].params if p.param_type_name == "option"]
    return {p.opts[0] for p in options if not p.hidden}, {p.opts[0] for p in options}


def test_the_help_shows_commands_in_groups_and_five_of_them_first():
    group: Any = typer.main.get_command(command_line(["--help"]))
    panels = {}
    for name, command in group.commands.items():
        panels.setdefault(command.rich_help_panel, []).append(name)
    assert list(panels) == PANELS
    assert panels["Most used"] == ["train", "predict", "export", "verify", "report"]
    assert {"ask", "xdp"} < {*panels["Deploy"]} and panels["Systems"] == ["card", "cluster"]
    assert "sweep" in panels["Train and use"]  # a plug-in that says where it stands


@pytest.mark.parametrize("case", [(), *((name,) for name in plugins.names("n3ic.usecases"))])
def test_the_help_of_train_has_twenty_options_at_most_and_all_work(case):
    seen, taken = shown("train", *case, "--help")
    own = use_case(case[0] if case else OWN).options
    recipe = {f"--{value.typed_name}" for value in recipe_values().values()}
    assert len(seen) < 20  # and --help itself
    assert {f"--{option.name}" for option in own} <= seen
    assert not seen & recipe and recipe < taken
    assert recipe < shown("train", "--help-recipe", "--help")[0]  # of which the site's page is made
    for other in ("sweep", "decide"):
        seen, taken = shown(other, "--help")
        assert not seen & recipe and "--epochs" in taken


def rows(text):
    """Option and value of each row of a table of options."""
    return dict(re.findall(r"^│ (--[\w-]+) +│ (\S*) +│", text, re.MULTILINE))


def test_each_value_of_a_recipe_is_shown(n3ic):
    anomaly, paper = use_case("anomaly"), use_case("anomaly").recipes["paper"]
    values = rows(n3ic("recipes", "show", "paper", "anomaly").stdout)
    assert values["--ste"] == paper.training.ste and values["--batch-norm"] == "False"
    assert values["--hidden"] == ",".join(map(str, paper.training.hidden))
    assert "--leaf-cuts" not in values
    recipe = json.loads(n3ic("recipes", "show", "published", "--json").stdout)
    assert recipe["bits"] == anomaly.recipes["published"].bits
    listed = n3ic("recipes", "list").stdout.splitlines()
    assert len(listed) == sum(
        len(use_case(name).recipes) for name in plugins.names("n3ic.usecases")
    )


def test_the_values_that_a_training_would_have_are_shown(n3ic, tmp_path):
    values = rows(n3ic("train", "--help-recipe", "--epochs", 3, "--hidden", "8,4").stdout)
    assert (values["--epochs"], values["--hidden"]) == ("3", "8,4")
    assert values["--bits"] == str(use_case(OWN).recipes["default"].bits)
    values = rows(n3ic("train", "anomaly", "--help-recipe", "--family", "spn").stdout)
    assert "--leaf-cuts" in values and "--epochs" not in values
    assert list(tmp_path.iterdir()) == []


def test_an_export_without_a_target_lists_them(n3ic):
    listed = n3ic("export", expect=2).stdout
    names = [line.split()[0] for line in listed.splitlines()]
    assert names == [*plugins.names("n3ic.exporters")]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--label", "kine"], "kind"),
        (["--label", "kind", "--positive", "Bulk"], "bulk"),
        (["--label", "kind", "--columns", "packet"], "packets"),
        (["--label", "kind", "--recipe", "larg"], "large"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_one_that_is_there(n3ic, tmp_path, words, meant):
    lines = [f"{i},{i * 7 % 90},{'bulk' if i % 2 else 'web'}" for i in range(60)]
    (tmp_path / "flows.csv").write_text("\n".join(["packets,bytes,kind", *lines]) + "\n")
    done = n3ic("train", "--data", "flows.csv", *words, expect=1 if "Bulk" in words else 2)
    assert f"did you mean {meant!r}?" in done.stderr.splitlines()[-1]


def test_a_column_that_a_model_lacks_is_answered_with_the_nearest(n3ic, tmp_path):
    random_model((40, 5, 2), np.random.default_rng(0)).save(tmp_path / "m.n3ic")
    (tmp_path / "t.csv").write_text("x0,X_1\n1,2\n")
    done = n3ic("predict", "--model", "m.n3ic", "t.csv", expect=1)
    assert "1 column missing: x1; did you mean 'X_1'?" in done.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["recipes", "show", "papr"], "did you mean 'paper'?"),
        (["train", "--lable", "x"], "--label"),
        (["export", "--target", "host", "--modle", "x"], "--model"),
        (["data", "shwo"], "Did you mean 'show'?"),
        (["data", "generate", "unsw-nb15-synthetic", "--rws", "3"], "--rows"),
    ],
)
def test_a_mistyped_word_of_the_command_line_has_a_suggestion(n3ic, words, meant):
    assert meant in n3ic(*words, expect=2).stderr
