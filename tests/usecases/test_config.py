# SPDX-License-Identifier: Apache-2.0
"""Files that a training is started from: what they may say, and what goes before them."""

import json

import pytest

from n3ic.errors import UsageError
from n3ic.usecases.base import use_case
from n3ic.usecases.config import MAX_BYTES, read_config, train_request
from n3ic.usecases.request import TrainRequest, command_words

TOML = """
use-case = "tomography"
recipe = "default"
hidden = [32, 16]
dropout = 0
batch-norm = true
columns = ["owd_*"]
loss = "squared_hinge"
queue = "0,1"
threshold = 5
seeds = 3
"""


def request_of(folder, text, name="run.toml", **given):
    (folder / name).write_text(text)
    return train_request(folder / name, **given)


def test_a_file_says_what_the_options_of_the_command_say(tmp_path):
    request = request_of(tmp_path, TOML)
    assert (request.use_case, request.recipe, request.seed, request.seeds) == (
        "tomography",
        "default",
        0,
        3,
    )
    assert request.overrides == {
        "hidden": (32, 16),
        "dropout": 0.0,
        "batch_norm": True,
        "columns": ("owd_*",),
        "loss": "squared_hinge",
    }
    assert type(request.overrides["dropout"]) is float
    assert request.options == {"queue": "0,1", "threshold": 5.0}
    same = {"use_case": "tomography", "hidden": [32, 16], "seeds": 3, "threshold": 5}
    assert request_of(tmp_path, json.dumps(same), "run.json").overrides == {"hidden": (32, 16)}


def test_what_is_given_goes_before_the_file(tmp_path):
    request = request_of(
        tmp_path,
        TOML,
        seeds=1,
        overrides={"hidden": (8,), "epochs": 2},
        options={"queue": "4"},
        recipe=None,
    )
    assert (request.seeds, request.recipe) == (1, "default")
    assert request.overrides["hidden"] == (8,)
    assert (request.overrides["epochs"], request.overrides["batch_norm"]) == (2, True)
    assert request.options == {"queue": "4", "threshold": 5.0}
    assert request_of(tmp_path, 'data = "flows.csv"\nlabel = "app"\n').use_case == "flows"


def test_options_of_a_run_ask_for_that_run(tmp_path):
    case = use_case("anomaly")
    first = TrainRequest(
        "anomaly",
        data="-x y.csv",
        recipe="paper",
        overrides={"hidden": (16, 8), "batch_norm": True, "columns": ("sbytes", "ct_*")},
        seed=3,
        seeds=2,
    )
    words = command_words(first, case, first.chosen_recipe(case), {}, "random")
    again = request_of(tmp_path, json.dumps({"command": words, "seed": 9}), "options.json")
    assert (again.data, again.seed, again.seeds, again.protocol) == ("-x y.csv", 3, 2, "random")
    assert again.chosen_recipe(case) == first.chosen_recipe(case)
    assert command_words(again, case, again.chosen_recipe(case), {}, "random") == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3", "unknown option 'epoch'; did you mean 'epochs'?"),
        ("queue-s = 3", "unknown option 'queue-s'; did you mean 'queue'?"),
        ("[training]\nepochs = 3", "'training'; options are top-level keys, not in a table"),
        ("replace = true", "unknown option 'replace'"),
        ("epochs = '3'", "epochs: expected a whole number, got '3'"),
        ("epochs = 3.0", "epochs: expected a whole number, got 3.0"),
        ("epochs = true", "epochs: expected a whole number, got True"),
        ("hidden = 3", "hidden: expected a list of whole numbers, got 3"),
        ("hidden = ['3']", "hidden: expected a list of whole numbers"),
        ("dropout = 1" + 400 * "0", "dropout: expected a number"),
        ("batch-norm = 1", "batch-norm: expected true or false, got 1"),
        ("loss = ['cross_entropy']", "loss: expected a text"),
        ("loss = 2026-01-01", "loss: expected a text"),
        ("queue = 3", "queue: expected a text, got 3"),
        ("seeds = 0\nseed = -1", "seeds are whole numbers"),
        ("seeds = 1\nseeds = 2", "is damaged"),
        ("budget-bytes = 1\nbudget_bytes = 2", "budget-bytes is given twice"),
        ("use-case = 3", "use-case: expected a text"),
        ("use-case = 'tomografy'", "did you mean 'tomography'?"),
        ("= 3", "is damaged"),
        ("a = " + 5000 * "[", "is damaged"),
        ("x" * (MAX_BYTES + 1), "not a file of options"),
    ],
)
def test_what_a_file_cannot_say_is_refused_in_a_line(tmp_path, text, message):
    text = text if "use-case" in text else 'use-case = "tomography"\n' + text
    with pytest.raises(UsageError) as refused:
        request_of(tmp_path, text)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is damaged"),
        (b"[1, 2]", "expected options by name"),
        (b"[" * 100_000, "is damaged"),
        (b'{"command": null}', "no command line repeats that run"),
        (b'{"command": 7}', "no command line of n3ic train"),
        (b'{"command": ["rm", "-rf", "/"]}', "no command line of n3ic train"),
        (b'{"command": ["n3ic", "train", 7]}', "no command line of n3ic train"),
        (b'{"command": ["n3ic", "train", "anomaly", "--seeds"]}', "without a value"),
        (b'{"command": ["n3ic", "train", "anomaly", "--epochs=x"]}', "not of type int"),
        (b'{"command": ["n3ic", "train", "anomaly", "--seed=1", "--seed=2"]}', "twice"),
        (b'{"command": ["n3ic", "train", "anomaly", "--replace"]}', "unknown option 'replace'"),
    ],
)
def test_hostile_files_are_refused(tmp_path, content, message):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        train_request(tmp_path / "run.json")


def test_files_that_are_none_are_refused(tmp_path):
    (tmp_path / "folder.toml").mkdir()
    for name, message in (
        ("run.yaml", r"ends in \.toml or \.json"),
        ("absent.toml", "cannot be read"),
        ("folder.toml", "cannot be read"),
        ("a\0b.toml", "cannot be read"),
    ):
        with pytest.raises(UsageError, match=message):
            read_config(tmp_path / name)
    with pytest.raises(UsageError, match="name a use case"):
        train_request()
